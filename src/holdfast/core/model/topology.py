"""Which members are there, and where do partitions live? As a version, and as what a request rests on (I1)."""

from __future__ import annotations

import msgspec


class TopologyVersion(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Rises with every change of the members or of the partition table. `0.0`: none is known yet."""

    major: int = 0
    """The number of the view: members have come or gone, or the operator has changed the state of the cluster."""
    minor: int = 0
    """The version of the partition table: partitions have moved."""

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


UNKNOWN_TOPOLOGY = TopologyVersion()


class MappedOn(msgspec.Struct, frozen=True, array_like=True):
    """By which topology whoever asks has found the partition, as requests of transactions tell it."""

    topology: TopologyVersion
    row: int
    """The version of the partition's row there."""
    holds: bool = False
    """Whether the transaction holds locks already, anywhere: then it goes on, wherever partitions have moved."""
