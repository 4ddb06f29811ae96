"""Judges: pure functions over histories and states that report lost, duplicated and invented data."""
