"""Clears one partition of a map with a change stream entry by entry, as the other engine does.

A CLEAR has no keys: a reader of the stream would have to begin again with a snapshot. So removals go through the log in
batches of bounded work. Entries that are stored meanwhile may stay, and if the leader changes in between, the next one
removes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol, cast

from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneChanges, ZoneWrite, ZoneWrites
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.raft_partition.zone_replicas import Answered

STEP_KEYS = 1000
NO_KEY = b""
"""No entry has this key. The first step removes it: when that is applied, so is all that was acknowledged before."""


class ClearingProposer(Protocol):
    def change(self, partition: int, changes: list[ZoneChanges], on_done: Answered) -> None:
        """`on_done` is called once, with the former values."""

    def propose(self, request: Request, on_done: Answered) -> None: ...


class StepwiseClearing:
    def __init__(
        self, request: Request, state: StateMachine, proposer: ClearingProposer, done: Answered
    ) -> None:
        """`request`: on one partition. `done` is called once, with the number of removed entries."""
        self._request = request
        self._partition = request.partitions[0]
        self._state = state
        self._proposer = proposer
        self._done = done
        self._keys: Iterator[bytes] = iter(())
        self._removed = 0

    def begin(self) -> None:
        self._remove([NO_KEY], self._on_current)

    def _remove(self, keys: list[bytes], done: Answered) -> None:
        removals: list[ZoneWrite] = [(self._request.map, key, None, 0, 0) for key in keys]
        self._proposer.change(self._partition, [ZoneWrites(removals, self._partition)], done)

    def _on_current(self, outcome: Outcome) -> None:
        if outcome.status is not Status.OK:
            self._done(outcome)
            return
        held = self._state.copies[self._partition].maps.get(self._request.map)
        self._keys = iter(list(held.state.entries) if held is not None else [])
        self._next()

    def _next(self) -> None:
        keys = list(islice(self._keys, STEP_KEYS))
        if keys:
            self._remove(keys, self._on_removed)
        elif self._request.op is Op.DESTROY:
            self._proposer.propose(self._request, self._on_destroyed)
        else:
            self._done(Outcome(Status.OK, self._removed))

    def _on_removed(self, outcome: Outcome) -> None:
        if outcome.status is not Status.OK:
            self._done(outcome)
            return
        former = cast("list[bytes | None]", outcome.value)
        self._removed += sum(value is not None for value in former)
        self._next()

    def _on_destroyed(self, outcome: Outcome) -> None:
        if outcome.status is Status.OK and isinstance(outcome.value, int):
            outcome = Outcome(Status.OK, self._removed + outcome.value)
        self._done(outcome)
