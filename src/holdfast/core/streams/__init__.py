"""Changes for clients: entry listeners and change streams."""
