"""Caches and result stores of frameworks, kept in maps. Each module needs its framework, and an extra brings it."""
