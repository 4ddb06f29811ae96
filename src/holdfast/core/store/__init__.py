"""Replicas: update counter, recent updates, and state (the entries of a map, or a service)."""
