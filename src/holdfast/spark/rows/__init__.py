"""Entries as rows and back: JSON, Compact, primitive and nested values."""
