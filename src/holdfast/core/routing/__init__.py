"""Finds the member that serves a request."""
