"""What the replicas of a zone's partitions on one member share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.config import Settings
from holdfast.core.machine import Outbox
from holdfast.core.model.ids import MILLISECOND, GroupNumber
from holdfast.core.model.operations import EntryEvent, Outcome, Status
from holdfast.core.multiraft.group_host import GroupHost, ReplicaNotice

NAMES_KEPT = 1000
"""Maps of which it is remembered what the settings say."""
NOT_LEADING = Outcome(Status.MOVED, None, "this member does not lead the partition's group")
Answered = Callable[[Outcome], None]


class ZoneReplicas:
    """What the replicas of a zone's partitions on this member share."""

    def __init__(self, settings: Settings, out: Outbox, groups: GroupHost, sink: ZoneSink) -> None:
        self.settings = settings
        self.out = out
        self.groups = groups
        self.sink = sink
        self.timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self._ttls: dict[str, int] = {}
        self.contexts = 0
        """How many questions were asked of groups."""
        self.again: set[Resumable] = set()
        """Partitions of which something may go to their groups now."""

    def lifetime(self, name: str) -> int:
        """The map's own time to live, in ms, by this member's settings: who leads says it, so that all replicas hear
        the same. There is no maximum idle time, for of uses only the leader knows.
        """
        ttl_ms = self._ttls.get(name)
        if ttl_ms is None:
            if len(self._ttls) >= NAMES_KEPT:
                self._ttls.clear()
            ttl_ms = self._ttls[name] = self.settings.map(name).ttl_ms
        return ttl_ms

    def context(self) -> bytes:
        """The name of a question, which no other of any member has."""
        self.contexts += 1
        return f"{self.groups.me}/{self.contexts}".encode()


class ZoneSink(Protocol):
    """Who hears what happens to partitions of zones."""

    listening: dict[str, int]
    """Maps of which somebody wants to hear."""

    def hear(self, event: EntryEvent) -> None:
        """An entry has changed."""

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None:
        """Something has happened to a partition's group."""


class Resumable(Protocol):
    """A partition's replica here, when something of it may go to its group."""

    @property
    def number(self) -> GroupNumber:
        """Of its group."""

    def flush(self) -> None:
        """Send what may go."""
