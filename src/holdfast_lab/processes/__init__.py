"""Real member processes on loopback, and the load that campaigns and the demo put on them."""
