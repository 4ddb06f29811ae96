"""A transaction sees a collection as if its own changes were stored, and leaves it as if they had been made at once."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.collections.collection_steps import decide_step
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind, encode_step, is_set
from holdfast.core.model.decisions import Decision
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.records import Change, Record
from holdfast.core.store.map_state import MapState
from holdfast.core.transactions.own_items import OwnItems, looked

QUEUE, LIST, SET = CollectionKind.QUEUE, CollectionKind.LIST, CollectionKind.SET
ITEMS = [b"a", b"b", b"c"]


class Stored:
    """A collection at its primary."""

    def __init__(self, kind: CollectionKind, items: list[bytes]) -> None:
        self.kind = kind
        self.state = MapState(kind.map_of("c"))
        self.number = 0
        for item in items:
            self.apply(self.decide(CollectionStep(StepKind.ADD), [item]))

    def decide(self, step: CollectionStep, items: list[bytes]) -> Decision:
        request = Request(step.kind.op, self.state.name, [0], value=encode_step(step), items=items)
        decided = decide_step(self.state, request)
        assert isinstance(decided, Decision)
        assert not decided.refused, decided.refused
        return decided

    def apply(self, decision: Decision) -> None:
        for update in decision.updates:
            self.change(update.key, update.value if update.change is Change.SET else None)

    def change(self, key: bytes, value: bytes | None) -> None:
        self.number += 1
        change = Change.REMOVE if value is None else Change.SET
        self.state.apply(Record(self.state.name, self.number, change, key, value or b""), 0)

    def items(self) -> Any:
        return self.decide(CollectionStep(StepKind.ITEMS), []).answer


class InTransaction:
    """Takes steps as the coordinator does."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.own = OwnItems(stored.kind)
        self.writes: dict[bytes, bytes | None] = {}

    def do(self, kind: StepKind, item: bytes = b"", max_size: int = 0) -> Any:
        step = CollectionStep(kind, max_size=max_size)
        look = CollectionStep(StepKind.LOOK, self.own.passed_over(step, item))
        looks_for = kind is StepKind.REMOVE or (is_set(self.stored.state.name) and item)
        seen = looked(self.stored.decide(look, [item] if looks_for else []).answer)
        answer, change = self.own.decide(step, item, seen)
        if change is not None:
            self.own.note(change)
            self.writes[change[0]] = change[2]
        return answer

    def commit(self) -> None:
        for key, value in self.writes.items():
            if value is not None or key in self.stored.state.entries:
                self.stored.change(key, value)


def model(kind: CollectionKind, items: list[bytes], step: StepKind, item: bytes, max_size: int) -> Any:
    """What Python's own collections answer; changes `items`."""
    match step:
        case StepKind.SIZE:
            return len(items)
        case StepKind.ADD:
            if (max_size and len(items) >= max_size) or (kind is SET and item in items):
                return False
            items.append(item)
            return True
        case StepKind.REMOVE:
            present = item in items
            if present:
                items.remove(item)
            return present
        case StepKind.PEEK:
            return items[0] if items else None
        case _:
            taken = deque(items)
            first = taken.popleft() if taken else None
            items[:] = taken
            return first


STEPS = {
    QUEUE: [StepKind.ADD, StepKind.POLL, StepKind.POLL, StepKind.PEEK, StepKind.SIZE],
    LIST: [StepKind.ADD, StepKind.REMOVE, StepKind.REMOVE, StepKind.SIZE],
    SET: [StepKind.ADD, StepKind.REMOVE, StepKind.SIZE],
}


@pytest.mark.rule("transactions/C-9")
@pytest.mark.parametrize("kind", [QUEUE, LIST, SET])
@given(data=st.data())
def test_a_transaction_is_one_change(kind: CollectionKind, data: st.DataObject) -> None:
    there = data.draw(st.lists(st.sampled_from(ITEMS), max_size=6, unique=kind is SET))
    max_size = data.draw(st.sampled_from([0, 5]))
    stored, expected = Stored(kind, there), list(there)
    inside = InTransaction(stored)
    for _ in range(data.draw(st.integers(0, 12))):
        step = data.draw(st.sampled_from(STEPS[kind]))
        item = data.draw(st.sampled_from(ITEMS)) if step in (StepKind.ADD, StepKind.REMOVE) else b""
        assert inside.do(step, item, max_size) == model(kind, expected, step, item, max_size)
        assert stored.items() == there, "nothing is stored before the commit"
    inside.commit()
    assert stored.items() == expected


@pytest.mark.parametrize(
    "answer", [None, 3, [], [b"1"], [1, b"k"], [b"1", b"k", b"v"], [b"1", b"k", b"v", None]]
)
def test_another_answer_is_no_look(answer: Any) -> None:
    with pytest.raises(ValueError, match="no answer to a look"):
        looked(answer)


def test_a_look_does_not_change_anything() -> None:
    for kind in (QUEUE, LIST, SET):
        stored = Stored(kind, [b"a"])
        assert not stored.decide(CollectionStep(StepKind.LOOK), [b"a"]).updates
        assert StepKind.LOOK.op is Op.READ_COLLECTION
