"""Transactions in a simulated cluster, told step by step."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from tests.lab.sim.stage import Stage

from holdfast.actions.list_transactions import ListTransactions, TransactionList
from holdfast.config import TRANSACTIONS_MAP, Settings
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status, Value
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    OperateIn,
    RollBackTransaction,
    TransactionAnswer,
    TransactionFate,
    TransactionOrder,
)
from holdfast.core.model.transactions import TransactionId
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process


def transactional(backups: int = 1, **changed: object) -> Settings:
    """Settings in which the map of the stories takes part."""
    base = simulated_settings(backups, 7, journal="sync")
    sections = {
        section: msgspec.structs.replace(getattr(base, section), **keys)  # type: ignore[arg-type]
        for section, keys in changed.items()
    }
    return taking_part(msgspec.structs.replace(base, **sections))


def taking_part(base: Settings) -> Settings:
    """These settings, with maps that take part."""
    maps = {name: msgspec.structs.replace(entry, transactional=True) for name, entry in base.maps.items()}
    maps[MAP] = msgspec.structs.replace(base.map(MAP), transactional=True)
    return msgspec.structs.replace(base, maps=maps)


class Told:
    """What came of an order."""

    def __init__(self) -> None:
        self.answers: list[TransactionAnswer] = []

    @property
    def answer(self) -> TransactionAnswer:
        assert len(self.answers) == 1, "it was answered once"
        return self.answers[0]

    @property
    def fate(self) -> TransactionFate | None:
        return self.answers[0].fate if self.answers else None


class Desk:
    """An application at one member."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self.stage = stage
        self.process = process

    def order(self, order: TransactionOrder) -> Told:
        told = Told()
        asking = partial(self.process.driver.callers.order_transaction, order, told.answers.append)
        self.process.step(asking)
        return told

    def begin(self, **chosen: object) -> TransactionId:
        told = self.order(BeginTransaction(**chosen))  # type: ignore[arg-type]
        self.stage.wait(0.01)
        assert isinstance(told.answer.value, bytes)
        return told.answer.value

    def start(
        self, transaction: TransactionId, op: Op, key: str, value: str = "", *, for_update: bool = False
    ) -> Told:
        raw = wire_key(key)
        request = Request(op, MAP, [0], raw, value.encode())
        return self.order(OperateIn(transaction, request, for_update))

    def do(self, transaction: TransactionId, op: Op, key: str, value: str = "") -> Value:
        told = self.start(transaction, op, key, value, for_update=True)
        self.stage.until_answered(told.answers, 1)
        assert told.fate is TransactionFate.DONE, told.answers
        return told.answer.value

    def set(self, transaction: TransactionId, **entries: str) -> None:
        for key, value in entries.items():
            self.do(transaction, Op.SET, key, value)

    def commit(self, transaction: TransactionId) -> Told:
        return self.order(CommitTransaction(transaction))

    def roll_back(self, transaction: TransactionId) -> Told:
        return self.order(RollBackTransaction(transaction))

    def listed(self) -> TransactionList:
        answers: list[Any] = []
        self.process.step(partial(self.process.driver.act, ListTransactions(), answers.append))
        self.stage.wait(0.1)
        [answer] = answers
        assert isinstance(answer, TransactionList)
        return answer


def partition(key: str) -> int:
    return partition_of(wire_key(key), 0, 7)


def keys_at(stage: Stage, process: Process, count: int, *, partitions: int | None = None) -> list[str]:
    """Keys of which this process is the primary; in so many different partitions, if that is said."""
    found: list[str] = []
    used: set[int] = set()
    for number in range(10_000):
        key = f"key{number}"
        if stage.owner_of(key) is not process:
            continue
        if partitions is not None and partition(key) in used and len(used) < partitions:
            continue
        used.add(partition(key))
        found.append(key)
        if len(found) == count:
            return found
    raise AssertionError("there are not so many keys")


def values(stage: Stage, process: Process, *keys: str) -> list[str | None]:
    return [stage.get(process, key) for key in keys]


def kept(stage: Stage) -> int:
    """Locks on primaries, and entries of locks and branches on all copies."""
    copies = [copy for member in stage.cluster.members() for copy in member.copies.held.values()]
    stored = [copy.maps[TRANSACTIONS_MAP].state for copy in copies if TRANSACTIONS_MAP in copy.maps]
    return sum(len(copy.locks.held) for copy in copies) + sum(len(state.entries) for state in stored)


def put(stage: Stage, process: Process, key: str, value: str) -> list[Outcome]:
    return stage.ask(process, Op.SET, key, value)


def done(outcomes: list[Outcome]) -> bool:
    return [outcome.status for outcome in outcomes] == [Status.OK]
