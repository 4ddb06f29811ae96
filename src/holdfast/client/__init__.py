"""Clients of Holdfast's own protocol: routing and retries are pure (`routing`), the shells are thin (`blocking`)."""
