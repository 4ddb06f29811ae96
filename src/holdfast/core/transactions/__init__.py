"""Transactions over several entries: locks and two-phase commit (I3)."""
