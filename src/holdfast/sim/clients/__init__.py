"""Clients of both protocols in the simulated world: they speak in bytes, with the members' real sessions."""
