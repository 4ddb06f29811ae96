"""Topology: members and the places of partitions, as a version (I1)."""

from __future__ import annotations

import msgspec


class TopologyVersion(msgspec.Struct, frozen=True, order=True, array_like=True):
    major: int = 0
    """Number of the view: members joined or left, or the operator changed the state of the cluster."""
    minor: int = 0
    """Version of the partition table."""

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


UNKNOWN_TOPOLOGY = TopologyVersion()


class MappedOn(msgspec.Struct, frozen=True, array_like=True):
    """The topology by which the coordinator of a transaction found a partition."""

    topology: TopologyVersion
    row: int
    """Version of the assignment there."""
    holds: bool = False
    """The transaction already holds locks anywhere: it continues, wherever partitions have moved."""
