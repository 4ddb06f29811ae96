"""Connections between members: mutual authentication, and seeds that are DNS names."""
