"""Two replicas of a structure that get the same updates, as a primary and its backup do."""

from __future__ import annotations

from typing import Any

from holdfast.core.collections.collection_steps import decide_step
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind, encode_step
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import READS, Request
from holdfast.core.model.records import Record
from holdfast.core.store.map_state import MapState


class Structure:
    def __init__(self, kind: CollectionKind) -> None:
        self.map = kind.map_of("c")
        self.states = [MapState(self.map), MapState(self.map)]
        self.now_ms = 0
        self.wall_ms = 1_800_000_000_000
        self.number = 0

    def decide(self, kind: StepKind, *items: bytes, **step: int) -> Decision | Wait:
        value = encode_step(CollectionStep(kind, **step))
        request = Request(kind.op, self.map, [0], value=value, items=list(items))
        return decide_step(self.states[0], request, self.now_ms * MILLISECOND, self.wall_ms)

    def do(self, kind: StepKind, *items: bytes, **step: int) -> Any:
        decided = self.decide(kind, *items, **step)
        assert isinstance(decided, Decision)
        assert not decided.refused
        for update in decided.updates:
            self.number += 1
            record = Record(self.map, self.number, update.change, update.key, update.value, update.ttl_ms)
            for state in self.states:
                state.apply(record, self.now_ms * MILLISECOND)
        assert not (kind.op in READS and decided.updates)
        return decided.answer

    def fail_over(self) -> None:
        """The backup decides from now on, and gets another backup."""
        self.states[0] = self.states[1]
        self.states[1] = MapState(self.map)
        self.states[1].start_from(self.states[0])

    def expire(self) -> None:
        """As the primary does from time to time."""
        for key in self.states[0].due(self.now_ms * MILLISECOND, 1000):
            for state in self.states:
                state.drop(key)
