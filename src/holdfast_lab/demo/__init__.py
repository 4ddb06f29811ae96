"""The main job on real processes: members on loopback, real data, faults, and the proof that nothing was lost."""
