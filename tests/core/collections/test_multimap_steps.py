"""Multimaps: the values of one key, what counts as a value, and locks of their entries."""

from __future__ import annotations

import pytest
from tests.core.routing.test_collection_waits import Stage
from tests.core.routing.test_lock_waits import ADA, BEN, LockStage

from holdfast.core.collections import multimap_steps
from holdfast.core.collections.multimap_steps import AS_LIST
from holdfast.core.model.collections import (
    CollectionKind,
    CollectionStep,
    StepKind,
    encode_step,
    shown_name,
    step_problem,
)
from holdfast.core.model.map_locks import locks_of
from holdfast.core.model.multimap_values import count_values, decode_values, encode_values
from holdfast.core.model.operations import Op, Request, Status

HOLDER = CollectionKind.MULTIMAP.map_of("m")
ADDS = {"end": 1000}


def step(kind: StepKind, *items: bytes, key: bytes = b"k", holder: bytes = b"", **more: int) -> Request:
    value = encode_step(CollectionStep(kind, **more))
    return Request(kind.op, HOLDER, [0], key=key, value=value, items=list(items), holder=holder)


def add(*items: bytes, key: bytes = b"k", holder: bytes = b"", **more: int) -> Request:
    return step(StepKind.ADD, *items, key=key, holder=holder, **{**ADDS, **more})


def whole(op: Op, value: bytes = b"") -> Request:
    return Request(op, HOLDER, [0], value=value)


@pytest.fixture
def stage() -> Stage:
    return LockStage()


@pytest.mark.rule("collections/M-1")
def test_a_key_is_there_as_long_as_it_has_values(stage: Stage) -> None:
    for some in (add(b"a"), add(b"a"), add(b"b", b"b", b"c"), step(StepKind.ITEMS), step(StepKind.SIZE)):
        stage.ask(some)
    assert stage.values == [True, False, True, [b"a", b"b", b"c"], 3]
    for item in (b"a", b"x", b"b", b"c"):
        stage.ask(step(StepKind.REMOVE, item))
    stage.ask(step(StepKind.SIZE))
    stage.ask(whole(Op.KEYS))
    assert stage.values[5:] == [True, False, True, True, 0, []]
    stage.ask(add(b"a", b"b"))
    stage.ask(step(StepKind.CONTAINS, b"a", b"b"))
    stage.ask(step(StepKind.CONTAINS, b"c"))
    stage.ask(step(StepKind.DRAIN))
    stage.ask(step(StepKind.DRAIN))
    stage.ask(whole(Op.IS_EMPTY))
    assert stage.values[11:] == [True, True, False, [b"a", b"b"], [], True]


def test_a_list_keeps_equal_values(stage: Stage) -> None:
    stage.ask(add(b"a", b"a", index=AS_LIST))
    stage.ask(add(b"a", index=AS_LIST))
    stage.ask(step(StepKind.REMOVE, b"a"))
    stage.ask(step(StepKind.ITEMS))
    assert stage.values == [True, True, True, [b"a", b"a"]]


@pytest.mark.rule("collections/M-2")
def test_values_of_a_key_are_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multimap_steps, "LOOKED_MAX", 3)
    stage.ask(add(b"a", b"b", max_size=2))
    stage.ask(add(b"c", max_size=2))
    stage.ask(add(b"c"))
    stage.ask(add(b"d"))
    stage.ask(add(bytes(1001), key=b"another"))
    stage.ask(step(StepKind.SIZE))
    large = Status.TOO_LARGE
    assert stage.values == [True, large, True, large, large, 3]


def test_whole_operations_count_each_value(stage: Stage) -> None:
    stage.ask(add(b"a", b"b"))
    stage.ask(add(b"a", key=b"l"))
    for op in (Op.SIZE, Op.KEYS, Op.VALUES, Op.ENTRIES):
        stage.ask(whole(op))
    stage.ask(whole(Op.CONTAINS_VALUE, b"b"))
    stage.ask(whole(Op.CONTAINS_VALUE, b"c"))
    stage.ask(whole(Op.CLEAR))
    stage.ask(whole(Op.SIZE))
    assert stage.values[2:] == [
        3,
        [b"k", b"l"],
        [b"a", b"b", b"a"],
        [b"k", b"a", b"k", b"b", b"l", b"a"],
        True,
        False,
        2,
        0,
    ]


@pytest.mark.rule("operations/L-4")
def test_others_wait_to_change_the_values_of_a_locked_key(stage: Stage) -> None:
    lock = encode_step(CollectionStep(StepKind.LOCK))
    unlock = encode_step(CollectionStep(StepKind.UNLOCK))
    locks = Request(StepKind.LOCK.op, locks_of(HOLDER), [0], key=b"k", value=lock, ttl_ms=0, holder=ADA)
    stage.ask(locks)
    stage.ask(add(b"by ben", holder=BEN))
    stage.ask(step(StepKind.REMOVE, b"by ben", holder=BEN))
    stage.ask(add(b"by ada", holder=ADA))
    stage.ask(step(StepKind.ITEMS))
    stage.ask(add(b"elsewhere", key=b"l"))
    assert stage.values == [True, True, [b"by ada"], True]
    stage.ask(
        Request(StepKind.UNLOCK.op, locks_of(HOLDER), [0], key=b"k", value=unlock, ttl_ms=0, holder=ADA)
    )
    stage.ask(step(StepKind.ITEMS))
    assert stage.values[4:6] == [True, False], "what removes is asked first, and finds nothing"
    assert stage.values[6:] == [True, [b"by ada", b"by ben"]]


def test_values_are_counted_without_being_read() -> None:
    encoded = encode_values([b"a", b"", b"c" * 300])
    assert count_values(encoded) == 3
    assert decode_values(encoded) == [b"a", b"", b"c" * 300]


def test_steps_and_names() -> None:
    assert step_problem(add(b"a")) == ""
    assert "is no step of a multimap" in step_problem(step(StepKind.POLL))
    assert shown_name(HOLDER) == "multimap m"
    assert shown_name(locks_of(HOLDER)) == "locks of multimap m"
