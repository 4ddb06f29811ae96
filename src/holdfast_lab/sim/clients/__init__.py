"""Simulated clients of both protocols, which exchange bytes with the members' real sessions."""
