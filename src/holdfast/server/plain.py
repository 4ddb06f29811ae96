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
