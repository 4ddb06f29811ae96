"""Hostile input at the client, member and HTTP ports of a real cluster."""
