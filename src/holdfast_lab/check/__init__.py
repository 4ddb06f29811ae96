"""Judges: pure functions over histories and states that say whether something was lost, doubled or invented."""
