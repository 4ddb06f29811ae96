"""Jobs: load, read, export, restore, verify, compare, follow changes."""
