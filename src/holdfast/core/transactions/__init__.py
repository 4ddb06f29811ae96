"""How do several entries change together? Locks and two-phase commit (I3)."""
