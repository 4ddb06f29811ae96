"""Changes of moved maps from the place where these lived before, for readers that have not read all of them yet.

A move empties the source, and forgets the map there. So each member that has a copy of the source retains the updates
in its memory (the tail) when it installs the view with the new home: for an hour, of the latest moves, and for each
partition no more than `changes_bytes`.

- streams/K-1: A retained tail is used up to an update that the reader names by its term. Every copy that has an update
  of this counter and term has the same updates before it (state_transfer/C-1), so the copy need not be complete.
  Example: a primary was deposed with an update 51 of term 3 that no other member knows, and the source ended with
  update 51 of term 4. The terms differ, and the tail of this member is not used.
- streams/K-2: Later moves do not touch retained changes: a map that comes back begins with another tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from holdfast.core.model.changes_since import Asked
from holdfast.core.model.ids import SECOND
from holdfast.core.model.map_moves import MapMove, MovePhase
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, term_of
from holdfast.core.store.tail import Tail

KEPT_NS = 3600 * SECOND
"""How long changes are retained after a move."""
MOVES_MAX = 2
"""Changes are retained for the latest moves of a map, so many."""
_SERVED_ELSEWHERE = (MovePhase.MOVED, MovePhase.CLEANING)


class HasCopy(Protocol):
    @property
    def copy(self) -> PartitionCopy: ...


class SourceCopies(Protocol):
    def held_in(self, engine: str, partition: int) -> HasCopy | None:
        """The copy of an engine (a zone, or empty: with a primary) on this member, whatever its role."""


class _Retained:
    """The tail of a replica; one that lags behind its group gets it later. The replica itself may have entries."""

    __slots__ = ("_late", "_tail", "lineage")

    def __init__(self, held: MapReplica) -> None:
        self._tail = held.tail
        self._late = held if held.tail is None else None
        self.lineage = held.proven_lineage()

    @property
    def tail(self) -> Tail | None:
        if self._late is not None and self._late.tail is not None:
            self._tail, self._late = self._late.tail, None
        return self._tail

    def settle(self) -> None:
        """The replica will be forgotten: wait no longer for its tail."""
        self._tail, self._late = self.tail, None

    def find(self, asked: Asked) -> Tail | None:
        tail = self.tail
        if tail is None or not tail.covers(asked.after) or not asked.after < asked.upto <= tail.end:
            return None
        if term_of(tail.terms, asked.upto) != asked.upto_term:
            return None
        terms = tail.terms if asked.after > tail.start else self.lineage
        return tail if not asked.after or term_of(terms, asked.after) == asked.after_term else None


class _Move(NamedTuple):
    number: int
    since_ns: int
    by_partition: dict[int, _Retained]


class RetainedChanges:
    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._moves: dict[str, list[_Move]] = {}
        """By map, the latest move last."""

    def on_moves(self, moves: Mapping[str, MapMove], copies: SourceCopies, now_ns: int) -> None:
        """The moves of maps with change streams in a view that is being installed. The copies are as they were before
        it.
        """
        for name, kept in self._moves.items():
            if name not in moves or moves[name].phase is not MovePhase.MOVED:
                for one in kept[-1].by_partition.values():
                    one.settle()
        for name, move in moves.items():
            kept = self._moves.get(name, [])
            if move.phase not in _SERVED_ELSEWHERE or (kept and kept[-1].number >= move.number):
                continue
            found: dict[int, _Retained] = {}
            for partition in range(self._partitions):
                copy = copies.held_in(move.source, partition)
                held = copy.copy.maps.get(name) if copy is not None else None
                if held is not None:
                    found[partition] = _Retained(held)
            self._moves[name] = [*kept, _Move(move.number, now_ns, found)][-MOVES_MAX:]

    def find(self, asked: Asked) -> Tail | None:
        """A tail with all changes that are asked for; None: there is none, or perhaps of another history."""
        if not asked.upto_term:
            return None
        for move in self._moves.get(asked.map, ()):
            retained = move.by_partition.get(asked.partition)
            tail = retained.find(asked) if retained is not None else None
            if tail is not None:
                return tail
        return None

    def sweep(self, now_ns: int) -> None:
        """Drop changes that were retained for long enough."""
        for name, kept in list(self._moves.items()):
            left = [move for move in kept if now_ns - move.since_ns < KEPT_NS]
            if len(left) < len(kept):
                self._moves[name] = left
            if not left:
                del self._moves[name]

    @property
    def bytes(self) -> int:
        return sum(
            tail.size
            for kept in self._moves.values()
            for move in kept
            for one in move.by_partition.values()
            if (tail := one.tail) is not None
        )
