"""Compares the replicas of a cluster, of listed members, or in files, and repairs them. Needs no member code."""
