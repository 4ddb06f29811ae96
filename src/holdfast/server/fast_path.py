"""The data lane's inputs to serve a connection's read buffers without the session (the fast path)."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.server.flow import Flow
from holdfast.server.grid import EntryLane
from holdfast.server.hazelcast.reference_lane import Served


class FastPath(NamedTuple):
    """A session's permission to use the data lane directly. Valid until the session gets input or resumes by
    itself, while its flow has nothing `gathered`, and until another partition is lost.
    """

    lane: EntryLane
    names: dict[bytes, Served]
    longest: tuple[int, int]
    flow: Flow
    losses: LostPartitions
    losses_seen: int
    collects_acks: bool = False
    """Whether the client itself waits for acknowledgements of backups; the session must then learn of each
    write.
    """


class ServedMaps:
    """Maps that the data lane serves for users with all permissions. All connections share the list: only the
    first request for a map needs a session.
    """

    def __init__(self, losses: LostPartitions) -> None:
        self._losses = losses
        self._losses_seen = losses.changes
        self._names: dict[bytes, Served] = {}

    def now(self) -> dict[bytes, Served]:
        """Maps without lost partitions. A new loss clears the list."""
        changes = self._losses.changes
        if changes != self._losses_seen:
            self._losses_seen, self._names = changes, {}
        return self._names
