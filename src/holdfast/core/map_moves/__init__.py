"""How does a map move to another engine while it is used? Copies it, switches, and forgets it where it was."""
