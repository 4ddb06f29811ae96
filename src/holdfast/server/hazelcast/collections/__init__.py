"""Requests for queues, lists and sets."""
