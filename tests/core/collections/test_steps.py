"""Each step of a collection does what Python's own deque, list and set do."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.collections import list_steps, ordered_steps, queue_steps
from holdfast.core.collections.collection_steps import decide_step
from holdfast.core.collections.item_order import ItemOrder
from holdfast.core.collections.list_steps import KEY_BYTES
from holdfast.core.model.collections import (
    NAME_MAX,
    STEPS_OF,
    CollectionKind,
    CollectionStep,
    StepKind,
    collection_of,
    encode_step,
    is_set,
    partition_of_name,
    shown_name,
    step_problem,
)
from holdfast.core.model.decisions import Decision, Update, Wait
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import MAP_NAME_MAX, EventKind, Op, Request
from holdfast.core.model.records import Change, Record
from holdfast.core.store.derived_index import index_of
from holdfast.core.store.map_state import MapState

QUEUE, LIST, SET = CollectionKind.QUEUE, CollectionKind.LIST, CollectionKind.SET


class Collection:
    """Two replicas of a collection, which get the same updates. The second one never decides."""

    def __init__(self, kind: CollectionKind, max_size: int = 0) -> None:
        self.kind = kind
        self.map = kind.map_of("c")
        self.max_size = max_size
        self.states = [MapState(self.map), MapState(self.map)]
        self.events: list[tuple[EventKind, bytes]] = []
        self.number = 0

    def decide(self, kind: StepKind, *items: bytes, **step: int) -> Decision | Wait:
        value = encode_step(CollectionStep(kind, max_size=self.max_size, **step))
        return decide_step(self.states[0], Request(kind.op, self.map, [0], value=value, items=list(items)))

    def do(self, kind: StepKind, *items: bytes, **step: int) -> Any:
        decided = self.decide(kind, *items, **step)
        assert isinstance(decided, Decision)
        for update in decided.updates:
            self.number += 1
            record = Record(self.map, self.number, update.change, update.key, update.value)
            if update.kind is not None:
                old = self.states[0].entries.get(update.key, b"")
                self.events.append((update.kind, update.value or old))
            for state in self.states:
                state.apply(record, 0)
        if kind.op is Op.READ_COLLECTION:
            assert not decided.updates
        return decided.answer

    def items(self) -> list[bytes]:
        first, second = (
            [state.entries[key] for key in index_of(state, ItemOrder).keys()]  # noqa: SIM118 - not a dictionary
            for state in self.states
        )
        assert first == second
        return first


items = st.sampled_from([b"a", b"b", b"c", b"d"])
several = st.lists(items, max_size=4)
OF_TRANSACTIONS = {StepKind.LOOK, StepKind.AWAIT_ROOM, StepKind.AWAIT_ITEM}
"""See `core/transactions/test_own_items`."""
steps = st.lists(
    st.tuples(
        st.sampled_from([kind for kind in StepKind if kind not in OF_TRANSACTIONS]),
        several,
        st.integers(-2, 8),
        st.integers(-1, 8),
    ),
    max_size=20,
)
some_steps = pytest.mark.parametrize("max_size", [0, 5])


def first_of(some: Sequence[bytes]) -> bytes:
    return some[0] if some else b"a"


@pytest.mark.rule("collections/Q-1")
@some_steps
@given(steps=steps)
def test_a_queue_is_a_deque(max_size: int, steps: list[tuple[StepKind, list[bytes], int, int]]) -> None:
    queue, model = Collection(QUEUE, max_size), deque[bytes]()
    for kind, some, _, end in steps:
        if kind not in STEPS_OF[QUEUE]:
            continue
        one = first_of(some)
        answer = queue.do(kind, *([one] if kind is StepKind.REMOVE else some), end=end)
        match kind:
            case StepKind.ADD:
                fits = not max_size or len(model) + len(some) <= max_size
                assert answer is (fits and bool(some))
                model.extend(some if fits else ())
            case StepKind.POLL:
                assert answer == (model.popleft() if model else None)
            case StepKind.PEEK:
                assert answer == (model[0] if model else None)
            case StepKind.DRAIN:
                count = len(model) if end < 0 else min(end, len(model))
                assert answer == [model.popleft() for _ in range(count)]
            case _:
                check_common(kind, some, one, answer, model)
        assert queue.items() == list(model)


@pytest.mark.rule("collections/L-1")
@some_steps
@given(steps=steps)
def test_a_list_is_a_list(max_size: int, steps: list[tuple[StepKind, list[bytes], int, int]]) -> None:
    found, model = Collection(LIST, max_size), list[bytes]()
    for kind, some, index, end in steps:
        if kind not in STEPS_OF[LIST]:
            continue
        one = first_of(some)
        single = kind in (StepKind.INDEX_OF, StepKind.LAST_INDEX_OF, StepKind.REPLACE, StepKind.REMOVE)
        answer = found.do(kind, *([one] if single else some), index=index, end=end)
        fits = bool(some) and not (max_size and len(model) + len(some) > max_size)
        match kind:
            case StepKind.ADD:
                assert answer is fits
                model.extend(some if fits else ())
            case StepKind.INSERT if 0 <= index <= len(model):
                assert answer is fits
                model[index:index] = some if fits else []
            case StepKind.GET if 0 <= index < len(model):
                assert answer == model[index]
            case StepKind.REPLACE if 0 <= index < len(model):
                assert answer == model[index]
                model[index] = one
            case StepKind.REMOVE_AT if 0 <= index < len(model):
                assert answer == model.pop(index)
            case StepKind.SLICE if 0 <= index <= (len(model) if end < 0 else end) <= len(model):
                assert answer == model[index : None if end < 0 else end]
            case StepKind.INSERT | StepKind.GET | StepKind.REPLACE | StepKind.REMOVE_AT | StepKind.SLICE:
                assert answer is None
            case StepKind.INDEX_OF:
                assert answer == (model.index(one) if one in model else -1)
            case StepKind.LAST_INDEX_OF:
                assert answer == max((at for at, item in enumerate(model) if item == one), default=-1)
            case _:
                check_common(kind, some, one, answer, model)
        assert found.items() == model


def check_common(kind: StepKind, some: list[bytes], one: bytes, answer: object, model: Any) -> None:
    """Steps of queues and lists; the model changes."""
    match kind:
        case StepKind.SIZE:
            assert answer == len(model)
        case StepKind.CONTAINS:
            assert answer is (set(some) <= set(model))
        case StepKind.ITEMS:
            assert answer == list(model)
        case StepKind.REMOVE:
            assert answer is (one in model)
            if one in model:
                model.remove(one)
        case StepKind.REMOVE_ALL | StepKind.RETAIN_ALL:
            keeps = kind is StepKind.RETAIN_ALL
            left = [item for item in model if (item in some) is keeps]
            assert answer is (len(left) < len(model))
            model.clear()
            model.extend(left)
        case StepKind.CLEAR:
            model.clear()
        case _:
            raise AssertionError(kind)


@pytest.mark.rule("collections/S-1")
@some_steps
@given(steps=steps)
def test_a_set_is_a_set_that_keeps_its_order(
    max_size: int, steps: list[tuple[StepKind, list[bytes], int, int]]
) -> None:
    found, model = Collection(SET, max_size), dict[bytes, None]()
    for kind, some, _, _ in steps:
        if kind not in STEPS_OF[SET]:
            continue
        one = first_of(some)
        answer = found.do(kind, *([one] if kind is StepKind.REMOVE else some))
        before = list(model)
        match kind:
            case StepKind.SIZE:
                assert answer == len(model)
            case StepKind.CONTAINS:
                assert answer is (set(some) <= set(model))
            case StepKind.ITEMS:
                assert answer == list(model)
            case StepKind.ADD if not max_size or len({**model, **dict.fromkeys(some)}) <= max_size:
                model |= {item: None for item in some if item not in model}
                assert answer is (list(model) != before)
            case StepKind.ADD:
                assert answer is False
            case StepKind.CLEAR:
                model.clear()
            case _:
                named = {one} if kind is StepKind.REMOVE else set(some)
                keeps = kind is StepKind.RETAIN_ALL
                model = {item: None for item in model if (item in named) is keeps}
                assert answer is (list(model) != before)
        assert set(found.states[0].entries) == set(found.states[1].entries) == set(model)


def test_only_a_queue_waits_and_only_as_long_as_it_was_told() -> None:
    queue = Collection(QUEUE, max_size=1)
    assert queue.decide(StepKind.POLL, wait_ms=70) == Wait(70)
    assert queue.do(StepKind.POLL) is None
    assert queue.do(StepKind.ADD, b"a", wait_ms=70) is True
    assert queue.decide(StepKind.ADD, b"b", wait_ms=70) == Wait(70, False)
    assert queue.do(StepKind.ADD, b"b") is False


def test_listeners_hear_of_the_items_that_came_and_went() -> None:
    queue = Collection(QUEUE)
    queue.do(StepKind.ADD, b"a", b"b", b"c")
    queue.do(StepKind.POLL)
    queue.do(StepKind.DRAIN)
    added, removed = EventKind.ADDED, EventKind.REMOVED
    assert queue.events == [
        *((added, item) for item in (b"a", b"b", b"c")),
        *((removed, item) for item in (b"a", b"b", b"c")),
    ]


@pytest.mark.rule("collections/C-2")
def test_a_step_that_needs_too_much_work_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_steps, "LOOKED_MAX", 6)
    monkeypatch.setattr(ordered_steps, "REMOVED_MAX", 3)
    monkeypatch.setattr(queue_steps, "REMOVED_MAX", 3)
    for kind in (QUEUE, LIST, SET):
        found = Collection(kind)
        found.do(StepKind.ADD, *(b"%d" % number for number in range(8)))
        refused = {
            step
            for step in STEPS_OF[kind] - {StepKind.REPLACE} - OF_TRANSACTIONS
            if (decided := found.decide(step, b"7")).__class__ is Decision and decided.refused  # type: ignore[union-attr]
        }
        looking = {StepKind.ITEMS, StepKind.RETAIN_ALL}
        if kind is not SET:
            looking |= {StepKind.REMOVE_ALL, StepKind.CONTAINS, StepKind.REMOVE}
        looking |= {StepKind.INDEX_OF, StepKind.SLICE} if kind is LIST else set()
        looking |= {StepKind.DRAIN} if kind is QUEUE else set()
        assert refused == looking
        assert found.decide(StepKind.CLEAR) == Decision(None, (Update(Change.CLEAR),))
    for kind in (QUEUE, LIST):
        found = Collection(kind)
        found.do(StepKind.ADD, *(b"%d" % number for number in range(8)))
        assert found.do(StepKind.CONTAINS, b"5", b"0") is found.do(StepKind.REMOVE, b"5") is True
        if kind is LIST:
            assert (found.do(StepKind.INDEX_OF, b"4"), found.do(StepKind.LAST_INDEX_OF, b"7")) == (4, 6)
            assert len(found.do(StepKind.SLICE, index=1)) == 6
    queue = Collection(QUEUE)
    queue.do(StepKind.ADD, *(b"%d" % number for number in range(8)))
    assert queue.do(StepKind.DRAIN, end=3) == [b"0", b"1", b"2"]
    assert len(queue.items()) == 5
    items = Collection(SET)
    items.do(StepKind.ADD, *(b"%d" % number for number in range(6)))
    refused = items.decide(StepKind.RETAIN_ALL, b"0", b"1")
    assert isinstance(refused, Decision) and "at most 3 items" in refused.refused


@pytest.mark.rule("collections/L-1")
def test_few_items_of_a_long_list_get_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_steps, "RENUMBERED", 2)
    found = Collection(LIST)
    model = [b"%d" % number for number in range(400)]
    found.do(StepKind.ADD, *model)
    longest = 0
    for number in range(1200):
        decided = found.decide(StepKind.INSERT, b"x%d" % number, index=200)
        assert isinstance(decided, Decision)
        longest = max(longest, len(decided.updates))
        found.do(StepKind.INSERT, b"x%d" % number, index=200)
        model.insert(200, b"x%d" % number)
    assert 1 < longest <= 40, "some of the new keys made a key too long"
    assert found.items() == model


@pytest.mark.rule("collections/L-1")
def test_insertions_at_one_place_keep_the_keys_short() -> None:
    found = Collection(LIST)
    found.do(StepKind.ADD, b"first", b"last")
    model = [b"first", b"last"]
    longest = 0
    for number in range(1200):
        item = b"%d" % number
        assert found.do(StepKind.INSERT, item, index=1) is True
        model.insert(1, item)
        longest = max(longest, *map(len, list(found.states[0].entries)[-1:]))
    assert 64 < longest <= KEY_BYTES
    assert found.items() == model
    assert len(found.events) == len(model), "new keys are no events"


def test_a_collection_is_one_map_that_clients_cannot_name() -> None:
    assert QUEUE.map_of("jobs") == "__queue:jobs"
    assert collection_of("__queue:jobs") == (QUEUE, "jobs")
    assert [shown_name(name) for name in ("__queue:jobs", "jobs")] == ["queue jobs", "jobs"]
    assert collection_of("__set:a:b") == (SET, "a:b")
    assert collection_of("__queue:") is collection_of("queue:jobs") is collection_of("__objects") is None
    assert [is_set(kind.map_of("x")) for kind in (SET, QUEUE, LIST)] == [True, False, False]
    assert len(SET.map_of("x" * NAME_MAX)) <= len(QUEUE.map_of("x" * NAME_MAX)) == MAP_NAME_MAX


def test_the_partition_is_that_of_the_name_after_the_first_at_sign() -> None:
    name = (-11).to_bytes(4, "big", signed=True) + (3).to_bytes(4, "big") + b"a@b"
    assert partition_of_name("x@a@b", 271) == partition_of(name, 0, 271)
    assert partition_of_name("a", 271) == partition_of_name("queue@a", 271) != partition_of_name("b", 271)


@pytest.mark.parametrize(
    ("map_name", "op", "value", "some", "told"),
    [
        ("m", Op.READ_COLLECTION, encode_step(CollectionStep(StepKind.SIZE)), [], "no collection"),
        ("__set:s", Op.READ_COLLECTION, b"\xc1", [], "unreadable"),
        ("__set:s", Op.ADD_TO_COLLECTION, encode_step(CollectionStep(StepKind.SIZE)), [], "is no step"),
        ("__set:s", Op.TAKE_FROM_COLLECTION, encode_step(CollectionStep(StepKind.POLL)), [], "is no step"),
        ("__list:l", Op.READ_COLLECTION, encode_step(CollectionStep(StepKind.INDEX_OF)), [], "one item"),
        (
            "__queue:q",
            Op.TAKE_FROM_COLLECTION,
            encode_step(CollectionStep(StepKind.POLL, wait_ms=-1)),
            [],
            "negative",
        ),
        ("__queue:q", Op.TAKE_FROM_COLLECTION, encode_step(CollectionStep(StepKind.POLL)), [], ""),
    ],
)
def test_a_request_from_another_member_is_checked(
    map_name: str, op: Op, value: bytes, some: list[bytes], told: str
) -> None:
    problem = step_problem(Request(op, map_name, [0], value=value, items=some))
    assert told in problem if told else not problem
