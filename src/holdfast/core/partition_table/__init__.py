"""How does a change of the partition table reach every member? Two phases, and the log of migration events."""
