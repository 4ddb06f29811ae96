"""What does an operation on a map, or a step of a transaction, answer and change? Pure."""
