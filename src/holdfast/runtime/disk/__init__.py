"""Real files: one directory, its writer threads, and their timing."""
