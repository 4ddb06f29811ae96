"""What a replica of a zone held at a place of its log, to be compared with others.

Replicas are never at the same place at the same time, and while somebody writes none stands still. So the leader puts a
*mark* into the log: a command that changes nothing. Each replica keeps what it holds when it applies the mark: of two
replicas that have kept the same place, all must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from holdfast.core.model.ids import SECOND
from holdfast.core.store.replica import MapReplica

KEPT = 2
"""Marks of a partition that are kept."""
KEPT_NS = 30 * SECOND
"""And how long, from when they were applied."""


@dataclass(frozen=True, slots=True)
class MarkedMap:
    """A map at a mark: entries as two columns."""

    name: str
    counter: int
    """Updates that it has had."""
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]
    expiries: tuple[tuple[bytes, int, int], ...]
    """Of entries that end: key, time to live in ms, and when it began, in zone ns."""
    hashes: tuple[tuple[bytes, int], ...]
    """Of entries that have one: key, partition-hash word."""


@dataclass(frozen=True, slots=True)
class MarkedCopy:
    """A replica at a mark."""

    term: int
    """Of the entry of the log; with its index it names the place."""
    kept_ns: int
    beside: int
    """64 bits over what is there beside entries: the partition's time, counters, and which requests were applied."""
    maps: tuple[MarkedMap, ...]


@dataclass(frozen=True, slots=True)
class ReplicaAtMark:
    """How far a replica here is, and what it has kept of one place."""

    applied: int
    """Index of the last entry that is applied."""
    last: int
    """Of the last one in its log."""
    kept: MarkedCopy | None
    """None: it is not there yet, or has kept nothing of that place."""


class MarkedCopies:
    """What one replica has kept, by index."""

    def __init__(self) -> None:
        self._kept: dict[int, MarkedCopy] = {}

    def keep(self, index: int, copy: MarkedCopy) -> None:
        """Keep this, and not more than a few."""
        self._kept[index] = copy
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    def find(self, index: int) -> MarkedCopy | None:
        """What was kept at this index."""
        return self._kept.get(index)

    def expire(self, now_ns: int) -> None:
        """What was kept for long enough is let go."""
        for index in [index for index, copy in self._kept.items() if now_ns - copy.kept_ns >= KEPT_NS]:
            del self._kept[index]

    def clear(self) -> None:
        """Another state has come in place of all that was here."""
        self._kept.clear()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)


def marked_map(name: str, parts: Sequence[MapReplica]) -> MarkedMap:
    """The present content of a map in the client partitions of a group; its digest is computed later."""
    states = [held.state for held in parts]
    return MarkedMap(
        name,
        sum(held.counter for held in parts),
        tuple([key for state in states for key in state.entries]),
        tuple([value for state in states for value in state.entries.values()]),
        tuple([(key, e.ttl_ms, e.stored_ns) for state in states for key, e in state.expiries.items()]),
        tuple([one for state in states for one in state.hashes.items()]),
    )


def digest_of(data: bytes) -> int:
    """64 bits over these."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
