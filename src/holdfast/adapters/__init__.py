"""Caches and result stores of web frameworks, kept in maps. Each module needs its framework."""
