"""HTTP of a member: health, metrics, status, operator commands, and the console."""
