"""What a read buffer is served with while nothing of its connection has to be looked at for that."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.server.flow import Flow
from holdfast.server.grid import EntryLane
from holdfast.server.hazelcast.entries_cy import Served


class Plain(NamedTuple):
    """What a session gives to the data lane. Good until the session is given anything, or goes on by itself, and while
    nothing is `gathered` in its flow and no partition was lost since.
    """

    lane: EntryLane
    names: dict[bytes, Served]
    longest: tuple[int, int]
    flow: Flow
    losses: LostPartitions
    losses_seen: int
    collects: bool = False
    """Whether the client waits for backups itself: then the session has to know of each write."""


class KnownNames:
    """Names of maps that the data lane serves for whoever may do everything. The connections of a door share them: only
    the first request of all for a map is looked at by a session.
    """

    def __init__(self, losses: LostPartitions) -> None:
        self._losses = losses
        self._losses_seen = losses.changes
        self._names: dict[bytes, Served] = {}

    def now(self) -> dict[bytes, Served]:
        """Those of maps of which no partition is lost. After another loss they are others, and begin anew."""
        changes = self._losses.changes
        if changes != self._losses_seen:
            self._losses_seen, self._names = changes, {}
        return self._names
