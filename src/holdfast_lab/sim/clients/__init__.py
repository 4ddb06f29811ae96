"""Simulated clients of both protocols, which talk bytes with the members' real sessions."""
