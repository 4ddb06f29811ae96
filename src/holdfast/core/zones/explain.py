"""Dry run of zone events: steps from a file, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.core.zones.assignments import Assignments, Node, PartitionKeys
from holdfast.core.zones.transitions import (
    Consistency,
    LocalReplica,
    NoVoters,
    ResetRequest,
    Transition,
    configuration_applied,
    reduce_changed,
    reset,
    update_pending,
)


class UpdatePending(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    calculated: Assignments
    known_stable: Assignments | None = None
    event_ts: int
    assignments_ts: int = 0
    mode: Consistency = Consistency.STRONG
    alive_nodes: tuple[Node, ...] = ()

    def carried_out(self, keys: PartitionKeys) -> Transition:
        return update_pending(
            keys,
            calculated=self.calculated,
            known_stable=self.known_stable,
            event_ts=self.event_ts,
            assignments_ts=self.assignments_ts,
            consistency=self.mode,
            alive=self.alive_nodes,
        )


class ConfApplied(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    applied: Assignments
    calculated_now: Assignments = Assignments()
    term: int = 0
    index: int = 0

    def carried_out(self, keys: PartitionKeys) -> Transition:
        return configuration_applied(
            keys, applied=self.applied, calculated=self.calculated_now, term=self.term, index=self.index
        )


class ReduceChanged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    switch_reduce: Assignments
    calculated: Assignments
    event_ts: int
    assignments_ts: int = 0

    def carried_out(self, keys: PartitionKeys) -> Transition:
        return reduce_changed(
            keys,
            reduce=self.switch_reduce,
            calculated=self.calculated,
            event_ts=self.event_ts,
            assignments_ts=self.assignments_ts,
        )


class Reset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    manual: bool = False
    alive_nodes: tuple[Node, ...]
    alive_data_nodes: tuple[Node, ...] = ()
    local_states: dict[Node, LocalReplica] = {}
    placement_order: tuple[Node, ...] = ()
    quorum: int
    replicas: int
    consensus: int
    pending_newer_than_recovery_trigger: bool = False
    event_ts: int
    assignments_ts: int = 0

    def carried_out(self, keys: PartitionKeys) -> Transition:
        return reset(
            keys,
            ResetRequest(
                self.manual,
                frozenset(self.alive_nodes),
                frozenset(self.alive_data_nodes),
                self.local_states,
                self.placement_order,
                self.quorum,
                self.replicas,
                self.consensus,
                self.pending_newer_than_recovery_trigger,
                self.event_ts,
                self.assignments_ts,
            ),
        )


EVENTS_OF: dict[str, type[UpdatePending | ConfApplied | ReduceChanged | Reset]] = {
    "update_pending": UpdatePending,
    "conf_applied": ConfApplied,
    "reduce_changed": ReduceChanged,
    "reset": Reset,
}


class ExplainStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    op: str
    event: dict[str, Any]
    before: PartitionKeys | None = None
    """None: those after the previous step."""


class NotAStep(ValueError): ...


def explain(steps: Sequence[ExplainStep]) -> Iterator[Transition]:
    keys = PartitionKeys()
    for number, step in enumerate(steps):
        kind = EVENTS_OF.get(step.op)
        if kind is None:
            raise NotAStep(f"step {number}: op {step.op!r} is none of {', '.join(EVENTS_OF)}")
        try:
            event = msgspec.convert(step.event, kind)
        except msgspec.ValidationError as error:
            raise NotAStep(f"step {number}: {step.op}: {error}".replace("`$", "`event")) from error
        if step.before is not None:
            keys = step.before
        try:
            result, keys = event.carried_out(keys)
        except NoVoters as error:
            raise NotAStep(f"step {number}: {step.op}: {error}") from error
        yield result, keys
