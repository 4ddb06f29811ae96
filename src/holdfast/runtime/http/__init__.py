"""A member over HTTP: health, metrics, status, orders, and the console."""
