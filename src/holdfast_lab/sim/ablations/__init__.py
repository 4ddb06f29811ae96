"""Disables safety rules, to show that tests and campaigns notice."""
