"""Replication of the partition table in two phases, and the log of migration events."""
