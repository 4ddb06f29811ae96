"""Raft, usable alone: one replica of one group, its log, its leader and the changes of its peers. See README.md."""
