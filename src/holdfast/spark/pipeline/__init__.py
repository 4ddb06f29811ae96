"""Jobs: load, read, export, restore, audit, compare, follow changes."""
