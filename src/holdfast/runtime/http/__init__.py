"""A member over HTTP: health, metrics, status, orders, and what the console shows."""
