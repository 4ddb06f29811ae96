"""What the data lane needs to serve a connection's read buffers without the session (the fast path)."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.server.flow import Flow
from holdfast.server.grid import EntryLane
from holdfast.server.hazelcast.reference_lane import Served


class Plain(NamedTuple):
    """A session's permission for the data lane. Valid until the session gets input or resumes by itself, while nothing
    is `gathered` in its flow, and until another partition is lost.
    """

    lane: EntryLane
    names: dict[bytes, Served]
    longest: tuple[int, int]
    flow: Flow
    losses: LostPartitions
    losses_seen: int
    collects: bool = False
    """Whether the client waits for backups itself; the session must then learn of each write."""


class KnownNames:
    """Maps that the data lane serves for users who may do everything, shared by the connections of a door: only the
    first request for a map needs a session.
    """

    def __init__(self, losses: LostPartitions) -> None:
        self._losses = losses
        self._losses_seen = losses.changes
        self._names: dict[bytes, Served] = {}

    def now(self) -> dict[bytes, Served]:
        """Maps without lost partitions. Another loss clears the list."""
        changes = self._losses.changes
        if changes != self._losses_seen:
            self._losses_seen, self._names = changes, {}
        return self._names
