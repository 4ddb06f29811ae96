"""Real files: one directory, its writer threads, and how long they take."""
