"""Batches of operations of one read buffer on maps of a zone."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from holdfast.core.model.operations import Outcome, Request, Value

ZoneWrite = tuple[str, bytes, bytes | None, int, int]
"""Map, key, value (None: remove), time to live in ms (0: for ever), partition-hash word (0: none)."""


class ZoneRequests(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Part of an entry of the log, as the next one: these are decided when it is applied."""

    requests: list[Request]


class ZoneWrites(msgspec.Struct, frozen=True, array_like=True, tag=1):
    writes: list[ZoneWrite]
    partition: int = -1
    """-1, in logs of older builds: the only one of the group."""


ZoneChanges = ZoneRequests | ZoneWrites


@dataclass(slots=True)
class ZoneBatch:
    """Changes to apply, and reads to confirm, in partitions of one zone that this member leads."""

    zone: int
    changes: list[tuple[int, list[ZoneChanges]]] = field(default_factory=list)
    """Each of one map in one partition, in the order in which they came: all of them are applied, or none
    (raft_partition/Z-8).
    """
    reads: list[int] = field(default_factory=list)
    """Each once: the answers count when it is confirmed that this member has led them since."""


@dataclass(slots=True)
class ZoneBatchDone:
    answers: list[tuple[int, list[Value]]] = field(default_factory=list)
    """By place in `ZoneBatch.changes`, if they were applied: the former value of each write, and the answer to each
    request.
    """
    failed: list[tuple[int, Outcome]] = field(default_factory=list)
    """By the same place."""
    unconfirmed: Outcome | None = None
    """Why the reads do not count; None: they do."""
