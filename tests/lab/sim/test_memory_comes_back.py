"""What clients and operators create, and end again, leaves nothing in a member: its objects are counted, not its bytes.

Everything that can be reached from a member is walked through. Rounds of the same work end with as many objects as the
rounds before; what grows by something for each map, client or zone shows.
"""

from __future__ import annotations

import gc
import types
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from types import NoneType
from typing import Any

import pytest
from tests.lab.sim.stage import Stage, settings
from tests.lab.sim.zone_stage import ZoneStage

from holdfast.actions.change_zone import CreateZone, DropZone
from holdfast.core.member import Member
from holdfast.core.metastore import metastore
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    OperateIn,
    RollBackTransaction,
)
from holdfast.core.model.zone_answers import ZoneChanged
from holdfast.core.multiraft import group_host
from holdfast_lab.check.zone_invariants import Revisions
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.world import Process, World

CACHE = type(lru_cache(lambda: None))
NOT_OF_A_MEMBER = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    World,
    Revisions,
    CACHE,
)
"""A function knows its module, a cache of a module is bounded, and judges of the simulator remember everything."""
MAPS = EACH = 10
EVERY = list(range(7))


def objects(member: Member) -> Counter[str]:
    """How many objects of each type the member keeps alive, without what belongs to the simulated world."""
    seen: dict[int, Any] = {id(member): member}
    left: list[Any] = [member]
    while left:
        for other in gc.get_referents(left.pop()):
            if id(other) not in seen and not isinstance(other, NOT_OF_A_MEMBER):
                seen[id(other)] = other
                if gc.is_tracked(other):
                    left.append(other)
    return Counter(type(one).__name__ for one in seen.values() if not isinstance(one, int))


def judge_rounds(stage: Stage, work: Callable[[int], None], *, rest_s: float, least: int = EACH) -> None:
    """Do the work in rounds; after the first ones nothing is left over, not one object for each thing of a round."""
    counts: list[list[Counter[str]]] = []
    for number in range(4):
        for each in range(EACH):
            work(number * EACH + each)
        stage.wait(rest_s)
        if number % 2:
            gc.collect()
            counts.append([objects(process.driver.member) for process in stage.processes])
    for before, after in zip(*counts, strict=True):
        grown = {kind: count - before[kind] for kind, count in after.items() if count - before[kind] >= least}
        assert not grown, grown


def do(stage: Stage, process: Process, request: Request) -> None:
    answers: list[Outcome] = []
    process.step(partial(process.driver.execute, request, answers.append))


def test_maps_that_are_destroyed_leave_nothing() -> None:
    stage = Stage(3, settings=settings(1, replication={"anti_entropy_ms": 1000}))
    process = stage.processes[0]

    def work(number: int) -> None:
        name = f"job-{number}"
        for key in range(20):
            raw = wire_key(f"k{key}")
            do(stage, process, Request(Op.SET, name, [key % 7], raw, b"v" * 50))
        stage.wait(0.1)
        do(stage, process, Request(Op.DESTROY, name, EVERY))
        stage.wait(0.1)

    judge_rounds(stage, work, rest_s=4)


def test_listeners_and_transactions_that_end_leave_nothing() -> None:
    # Without the last updates of each map, which are kept on purpose.
    stage = Stage(3, settings=settings(1, replication={"anti_entropy_ms": 1000, "tail_bytes": 0}))
    drawn = [wire_key(f"k{number}") for number in range(99)]
    keys = [next(key for key in drawn if partition_of(key, 0, 7) == partition) for partition in EVERY]

    def work(number: int) -> None:
        process = stage.processes[number % 3]
        callers = process.driver.callers
        end: list[Callable[[], object]] = []
        for name, wide in ((f"heard-{number}", False), ("all", True)):
            for invalidations in (False, True):
                process.step(
                    lambda name=name, wide=wide, fed=invalidations: end.append(
                        callers.listen(
                            name, key=None, local_only=not wide, on_event=lambda _: None, invalidations=fed
                        )
                    )
                )
        begun: list[Any] = []
        process.step(lambda: callers.order_transaction(BeginTransaction(label=f"t{number}"), begun.append))
        stage.wait(0.2)
        transaction = begun[0].value
        raw = keys[number % 7]
        put = Request(Op.SET, "accounts", [number % 7], raw, b"v")
        process.step(lambda: callers.order_transaction(OperateIn(transaction, put), begun.append))
        stage.wait(0.2)
        last = CommitTransaction(transaction) if number % 2 else RollBackTransaction(transaction)
        process.step(lambda: callers.order_transaction(last, begun.append))
        stage.wait(0.3)
        do(stage, process, Request(Op.REMOVE, "accounts", [number % 7], raw))
        for one in end:
            process.step(one)
        stage.wait(0.1)

    judge_rounds(stage, work, rest_s=30)


def test_zones_that_are_dropped_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is kept on purpose is bounded, and full after a round.
    monkeypatch.setattr(metastore, "KEEP_REVISIONS", 10)
    monkeypatch.setattr(group_host, "METASTORE_LOG_BYTES", 4096)
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 10)
    stage = ZoneStage(3)

    def work(number: int) -> None:
        process = stage.processes[number % 3]
        answers: list[object] = []
        for order in (CreateZone(f"zone-{number}", partitions=3), DropZone(f"zone-{number}")):
            process.step(partial(process.driver.act, order, answers.append))
            stage.wait(2)
        assert [type(answer) for answer in answers] == [ZoneChanged, NoneType], answers

    judge_rounds(stage, work, rest_s=10)
