"""Locks of a partition that is handed over: stored in slices, while transactions take and release others, and read in
slices by the new primary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from tests.lab.sim.stage import Stage, clean
from tests.lab.sim.transaction_stage import Desk, done, kept, partition, put, transactional

from holdfast.actions.drain import Drain
from holdfast.core.events import ActionRequested, TimerFired
from holdfast.core.model.operations import Op
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.transaction_orders import TransactionFate
from holdfast.core.state_transfer import source as under_test
from holdfast.core.state_transfer.source import Source
from holdfast.core.state_transfer.supply import Supply
from holdfast.core.store import key_locks
from holdfast_lab.sim.world import Process

pytestmark = [pytest.mark.rule("store/K-2", "store/K-3", "state_transfer/S-10", "primary_backup/O-6")]


@contextmanager
def between_slices(stage: Stage, process: Process) -> Iterator[Supply]:
    """Drain the member, and hold it when it has stored the first of its locks."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Source, "on_locks", lambda self: None)
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
        supplies = process.driver.member.source.supplies
        stage.until(lambda: bool(supplies.storing()), 30)
        [supply] = supplies.storing()
        yield supply
    process.step(partial(process.driver.handle, TimerFired(TimerName.LOCKS)))


def together(stage: Stage, process: Process, count: int) -> list[str]:
    """Keys of one partition, whose primary is this process."""
    keys = [f"key{number}" for number in range(1000)]
    first = next(key for key in keys if stage.owner_of(key) is process)
    return [key for key in keys if partition(key) == partition(first)][:count]


def stage_of(monkeypatch: pytest.MonkeyPatch, hosts: int) -> tuple[Stage, list[Desk], list[str]]:
    monkeypatch.setattr(under_test, "LOCKS_AT_ONCE", 2)
    monkeypatch.setattr(key_locks, "READ_AT_ONCE", 1)
    stage = Stage(hosts, settings=transactional())
    desks = [Desk(stage, process) for process in stage.processes]
    return stage, desks, together(stage, stage.processes[0], 8)


def test_locks_that_change_between_the_slices_are_right_on_the_new_primary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, (one, _, three), keys = stage_of(monkeypatch, 3)
    first, second, third = three.begin(), three.begin(), three.begin()
    three.set(first, **dict.fromkeys(keys[:4], "first"))
    three.set(second, **dict.fromkeys(keys[4:6], "second"))
    with between_slices(stage, one.process) as supply:
        assert supply.partition == partition(keys[0])
        told = three.commit(second)
        stage.wait(1)
        assert told.fate is TransactionFate.DONE, "the partition is served"
        three.set(third, **{keys[4]: "third", keys[6]: "third"})
        assert three.do(third, Op.GET, keys[7]) is None
        assert stage.owner_of(keys[0]) is one.process
    stage.until(lambda: stage.owner_of(keys[0]) is not one.process, 30)
    waiting = [put(stage, three.process, key, "plain") for key in (*keys[:5], keys[6])]
    free = put(stage, three.process, keys[5], "plain")
    stage.wait(2)
    assert done(free), "its lock was released"
    assert not any(map(done, waiting)), "the others have moved"
    told_first, told_third = three.commit(first), three.commit(third)
    stage.wait(5)
    assert (told_first.fate, told_third.fate) == (TransactionFate.DONE, TransactionFate.DONE)
    assert all(map(done, waiting))
    assert kept(stage) == 0
    clean(stage)


@pytest.mark.parametrize("commits", [False, True])
def test_handover_that_is_given_up_between_the_slices_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    """Its destination dies."""
    stage, desks, keys = stage_of(monkeypatch, 4)
    one, two = desks[0], desks[1]
    tx = two.begin()
    two.set(tx, **dict.fromkeys(keys[:5], "v"))
    with between_slices(stage, one.process) as supply:
        destination = next(each for each in stage.processes if each.driver.member.me == supply.to)
        assert destination not in (one.process, two.process)
        destination.crash()
        stage.processes.remove(destination)
        stage.until(lambda: supply not in one.process.driver.member.source.supplies.storing(), 30)
    stage.until(lambda: stage.owner_of(keys[0]) is not one.process, 60)
    waiting = put(stage, two.process, keys[0], "plain")
    stage.wait(2)
    assert not done(waiting), "its lock came with the next handover"
    told = two.commit(tx) if commits else two.roll_back(tx)
    stage.wait(5)
    assert told.fate is TransactionFate.DONE
    assert done(waiting)
    assert kept(stage) == 0
    clean(stage)
