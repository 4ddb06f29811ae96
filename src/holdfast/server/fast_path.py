"""The data lane's inputs to serve a connection's read buffers without the session (the fast path)."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.routing.lane_access import LaneAccess
from holdfast.server.flow import Flow
from holdfast.server.frame_forwards import FrameForwards
from holdfast.server.grid import EntryLane
from holdfast.server.hazelcast.reference_lane import Served


class FastPath(NamedTuple):
    """A session's permission to use the data lane directly. Valid until the session gets input or resumes by
    itself, while its flow has nothing `gathered`, and until `access` changes.
    """

    lane: EntryLane
    names: dict[bytes, Served]
    longest: tuple[int, int]
    flow: Flow
    access: LaneAccess
    access_seen: int
    collects_acks: bool = False
    """Whether the client itself waits for acknowledgements of backups; the session must then learn of each
    write.
    """
    forwards: FrameForwards | None = None
    """For requests that other members serve."""


class ServedMaps:
    """Maps that the data lane serves for users with all permissions. All connections share the list: only the
    first request for a map needs a session.
    """

    def __init__(self, access: LaneAccess, forwards: FrameForwards | None = None) -> None:
        self.forwards = forwards
        self._access = access
        self._access_seen = access.changes
        self._names: dict[bytes, Served] = {}

    def now(self) -> dict[bytes, Served]:
        """Maps that are not closed. The list is cleared when another one is."""
        changes = self._access.changes
        if changes != self._access_seen:
            self._access_seen, self._names = changes, {}
        return self._names
