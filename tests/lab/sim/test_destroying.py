"""A map is destroyed at the moments that are worst: during a transaction, while a cut is read, and during a repair."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.stage import Stage, clean
from tests.lab.sim.test_cuts import PARTITIONS, Cutting
from tests.lab.sim.test_repair import INTERVAL_MS, KEYS, PARTITION, compared, filled, unjudged
from tests.lab.sim.transaction_stage import Desk, kept, keys_at, transactional, values

from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.transaction_orders import TransactionFate
from holdfast.core.model.update_counter import UpdateCounter
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP


def destroy(stage: Stage, seconds: float = 1) -> list[Outcome]:
    """Ask the first process; the answer is not awaited if `seconds` is 0."""
    answers: list[Outcome] = []
    request = Request(Op.DESTROY, MAP, list(range(PARTITIONS)))
    process = stage.processes[0]
    process.step(partial(process.driver.execute, request, answers.append))
    if seconds:
        stage.wait(seconds)
        assert [answer.status for answer in answers] == [Status.OK]
    return answers


def replicas_with_map(stage: Stage) -> int:
    return sum(
        MAP in copy.maps for process in stage.processes for copy in process.driver.member.copies.held.values()
    )


def begun(stage: Stage) -> tuple[Desk, bytes, str, str]:
    """A transaction that holds the locks of two entries with different primaries, one of them with a value."""
    desk = Desk(stage, stage.processes[2])
    old, new = (keys_at(stage, process, 1)[0] for process in stage.processes[:2])
    stage.put(desk.process, old, "old")
    transaction = desk.begin()
    desk.set(transaction, **{old: "a", new: "b"})
    return desk, transaction, old, new


@pytest.mark.parametrize("end", ["commit", "roll back"])
def test_a_map_is_destroyed_when_the_transaction_that_locks_its_entries_has_ended(end: str) -> None:
    stage = Stage(3, settings=transactional())
    desk, transaction, old, new = begun(stage)
    destroyed = destroy(stage, 0)
    stage.wait(0.5)
    assert destroyed == [], "it waits, as a clear does"
    asked = desk.commit(transaction) if end == "commit" else desk.roll_back(transaction)
    stage.wait(3)
    assert asked.fate is TransactionFate.DONE
    assert [outcome.status for outcome in destroyed] == [Status.OK]
    assert values(stage, stage.processes[0], old, new) == [None, None]
    assert kept(stage) == 0
    assert replicas_with_map(stage) == 0
    clean(stage)


@pytest.mark.covering(1)
@pytest.mark.parametrize("at_ms", [0, 2, 4, 8, 20])
@pytest.mark.parametrize("first", ["commit", "destroy"])
def test_a_commit_and_the_end_of_its_map_cross(first: str, at_ms: int) -> None:
    """Both are answered, no entry and no lock stays, and all replicas are equal, also after a power cut."""
    stage = Stage(3, settings=transactional())
    desk, transaction, old, new = begun(stage)
    destroyed = destroy(stage, 0) if first == "destroy" else []
    stage.wait(at_ms / 1000 if first == "destroy" else 0)
    asked = desk.commit(transaction)
    if first == "commit":
        stage.wait(at_ms / 1000)
        destroyed = destroy(stage, 0)
    stage.wait(5)
    assert [outcome.status for outcome in destroyed] == [Status.OK]
    assert asked.fate is TransactionFate.DONE
    assert values(stage, stage.processes[0], old, new) == [None, None]
    assert kept(stage) == 0
    stage.put(stage.processes[0], old, "later")
    clean(stage)


@pytest.mark.parametrize("again", [False, True])
def test_a_cut_shows_what_was_there_after_its_map_was_destroyed(*, again: bool) -> None:
    stage = Cutting(3)
    stage.take_all()
    destroy(stage)
    stage.judge(least=2)
    if again:
        stage.write("second")
        stage.wait(1)
        stage.judge(least=2)
    assert stage.get(stage.processes[0], "k1") == ("second" if again else None)
    clean(stage, again=False)


@pytest.mark.parametrize("packets", [0, 1, 3, 8])
def test_a_map_is_destroyed_while_its_cut_is_taken(packets: int) -> None:
    """Each partition was cut before or after; every named holder shows the same."""
    stage = Cutting(3)
    stage.ask_owners()
    for _ in range(packets):
        stage.wait(0.0005)
    destroy(stage)
    stage.take_all()
    stage.judge()
    stage.write("second")
    stage.wait(1)
    stage.judge()
    clean(stage, again=False)


@pytest.mark.covering(1)
@pytest.mark.parametrize("at_ms", [0, 900, 1001, 1004])
@pytest.mark.parametrize("damage", ["wrong value", "another history", "updates that never were"])
def test_a_repair_does_not_bring_a_destroyed_map_back(damage: str, at_ms: int) -> None:
    stage = compared(3)
    _, _, held = filled(stage)
    unjudged(stage)
    if damage == "wrong value":
        held.state.store(wire_key(KEYS[7]), b"wrong", 0, 0, 0, 0)
    elif damage == "another history":
        held.lineage = [(1 << 40, 0)]
    else:
        held.updates = UpdateCounter(held.counter + 5)
    stage.wait(at_ms / 1000)
    destroy(stage, 5 * INTERVAL_MS / 1000)
    assert replicas_with_map(stage) == 0
    stage.put(stage.processes[0], KEYS[0], "new")
    stage.rest()
    assert stage.get(stage.processes[0], KEYS[0]) == "new"
    assert stage.get(stage.processes[0], KEYS[7]) is None
    assert (
        sum(
            len(copy.maps[MAP].state.entries)
            for process in stage.processes
            if (copy := process.driver.member.copies.held.get(PARTITION)) is not None and MAP in copy.maps
        )
        == 2
    )
