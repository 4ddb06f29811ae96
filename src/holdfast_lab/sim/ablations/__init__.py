"""Switches a safety rule off, to show that tests and campaigns notice."""
