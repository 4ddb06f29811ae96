"""Chaos campaigns on real processes: faults under load, and a judge of every answer."""
