"""Connections between members: proof of the shared secret, and where a seed's name leads."""
