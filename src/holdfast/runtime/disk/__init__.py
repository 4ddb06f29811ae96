"""Real files: a directory, and how long its deeds take."""
