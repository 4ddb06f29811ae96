"""The judge of ringbuffers, counters and ids: each wrong history has a name, and runs that have them find lies."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from holdfast.core.collections.id_steps import ID_STEP
from holdfast.core.collections.ring_steps import key_of
from holdfast.core.model.collections import StepKind, decode_step
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.operations import Request, Status, Value
from holdfast.core.primary_backup import primary_copy
from holdfast.core.store.map_state import MapState
from holdfast_lab.sim.run import simulate
from holdfast_lab.sim.structures import BATCH, CAPACITY, Left, StructureCall, judge_history

OK = Status.OK


def add(item: bytes, sequence: Value, at: int, status: Status | None = OK) -> StructureCall:
    return StructureCall(StepKind.APPEND, at, item, ended_ns=at + 1, status=status, value=sequence)


def read(start: int, first: int, *items: bytes, at: int = 99) -> StructureCall:
    return StructureCall(
        StepKind.READ_ITEMS, at, start=start, ended_ns=at + 1, status=OK, value=[key_of(first), *items]
    )


def increase(value: int, at: int, status: Status | None = OK) -> StructureCall:
    answer = value.to_bytes(8, "big") * 2 if status is OK else None
    return StructureCall(StepKind.INCREASE, at, ended_ns=at + 1, status=status, value=answer)


def reserve(first: int) -> StructureCall:
    return StructureCall(StepKind.RESERVE_IDS, 0, ended_ns=1, status=OK, value=first)


def ring(*items: bytes) -> Left:
    return Left({key_of(sequence): item for sequence, item in enumerate(items)})


ADDS = [add(b"a", 0, 0), add(b"b", 1, 10), add(b"c", None, 20, None)]


def test_histories_that_the_models_explain() -> None:
    assert judge_history([*ADDS, read(0, 0, b"a", b"b"), read(2, 2, b"c")], ring(b"a", b"b", b"c")) == []
    assert judge_history(ADDS, ring(b"a", b"b")) == []
    assert (
        judge_history(
            [increase(1, 0), increase(2, 10), increase(0, 20, None)], Left({}, (3).to_bytes(8, "big") * 2)
        )
        == []
    )
    assert judge_history([reserve(0), reserve(BATCH * ID_STEP), reserve(1)], Left()) == []
    full = Left({key_of(at): b"%d" % at for at in range(5, 5 + CAPACITY)})
    added = [add(b"%d" % at, at, 10 * at) for at in range(5 + CAPACITY)]
    assert judge_history([*added, read(0, 5, b"5")], full) == [], "the first five were replaced"


@pytest.mark.parametrize(
    ("more", "left", "named"),
    [
        ([read(0, 0, b"b")], ring(b"a", b"b"), "sequence 0 was given to"),
        ([read(0, 0, b"a", b"b", b"a")], ring(b"a", b"b"), "b'a' has the sequences"),
        ([], ring(b"a"), "b'b' was acknowledged, and is lost"),
        ([read(5, 0, b"a")], ring(b"a", b"b"), "was sent back to 0"),
        ([read(0, 1, b"b")], ring(b"a", b"b"), "got 1, and the oldest"),
        ([], ring(b"a", b"b", b"x"), "never added"),
        ([add(b"d", 2, 100), add(b"e", 3, 50)], ring(b"a", b"b", b"d", b"e"), "the sequence 2 came after 3"),
        ([increase(1, 0), increase(1, 10)], Left(ring(b"a", b"b").ring, (2).to_bytes(8, "big") * 2), "the same value"),
        ([increase(1, 0)], ring(b"a", b"b"), "it is 0 after 1 changes"),
        ([increase(2, 0), increase(1, 10)], ring(b"a", b"b"), "the value 1 came after 2"),
        ([reserve(0), reserve(ID_STEP)], ring(b"a", b"b"), "an id was given twice"),
    ],
)  # fmt: skip
def test_histories_that_they_do_not_explain(more: list[StructureCall], left: Left, named: str) -> None:
    assert any(named in problem for problem in judge_history([*ADDS, *more], left))


def without_updates(decision: Decision) -> Decision:
    return Decision(decision.answer)


def repeated(decision: Decision) -> Decision:
    """As if the generator had forgotten what it gave out."""
    return Decision(ID_STEP << 6, decision.updates)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "lie", "named"),
    [
        (None, without_updates, ""),
        (StepKind.APPEND, without_updates, "ringbuffer: "),
        (StepKind.INCREASE, without_updates, "counter: "),
        (StepKind.RESERVE_IDS, repeated, "ids: "),
    ],
)
def test_a_run_with_structures_finds_lies(
    monkeypatch: pytest.MonkeyPatch, kind: StepKind | None, lie: Callable[[Decision], Decision], named: str
) -> None:
    decide, draw = primary_copy.decide_step, random.Random(1)

    def lies(state: MapState | None, request: Request, *times: int) -> Decision | Wait:
        decision = decide(state, request, *times)
        if isinstance(decision, Decision) and decode_step(request.value).kind is kind and draw.random() < 0.1:
            return lie(decision)
        return decision

    monkeypatch.setattr(primary_copy, "decide_step", lies)
    verdict = simulate(STRUCTURES_SEED, journal="mixed")
    assert verdict.figures["structure_calls_answered"] > 100
    found: Sequence[str] = [
        one for one in verdict.problems if one.startswith(named or ("ring", "counter", "ids"))
    ]
    assert bool(found) is (kind is not None), verdict.problems


STRUCTURES_SEED = 95_001
