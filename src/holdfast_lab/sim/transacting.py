"""Applications that run transactions on simulated members, and judgement of their histories.

Entries of a separate map are lists. A transaction reads some of them and appends to some, each element once
in the run. So reads show the order of transactions, and the judge (`holdfast_lab.check.serializability`)
finds what no order explains: partial or lost transactions, or one that was reported as rolled back and took
effect.
"""

from __future__ import annotations

import random
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial

import msgspec

from holdfast.config import MapSettings, Settings, TransactionSettings
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
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
from holdfast_lab.check.serializability import (
    Isolation,
    ListAppend,
    ListRead,
    ListTransaction,
    TransactionOutcome,
    judge,
)
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

LISTS = "lists"
ZONED_LISTS = "zoned lists"
"""Every other list is in this map, if it is there."""
APPLICATIONS = 3
TOGETHER = 0.2
KEYS = 6
PATIENCE_NS = 20 * SECOND
AT_LAST_NS = 500 * MILLISECOND


def with_transactions(settings: Settings, seed: int) -> Settings:
    draw = random.Random(f"{seed}/transactions")
    maps = {name: msgspec.structs.replace(entry, transactional=True) for name, entry in settings.maps.items()}
    default = settings.map("default")
    maps["default"] = msgspec.structs.replace(default, transactional=True)
    maps[LISTS] = MapSettings(
        backups=default.backups,
        journal=default.journal,
        transactional=True,
        changes_bytes=draw.choice([0, 0, 20_000]),
    )
    chosen = TransactionSettings(
        timeout_ms=draw.choice([3000, 10_000, 60_000]),
        lock_wait_ms=draw.choice([500, 3000, 10_000]),
        deadlock_after_ms=draw.choice([100, 500]),
    )
    return msgspec.structs.replace(settings, maps=maps, transactions=chosen)


def with_lists_in_zone(settings: Settings, zone: str) -> Settings:
    usual = settings.map(LISTS)
    zoned = MapSettings(backups=usual.backups, raft_zone=zone, transactional=True)
    return msgspec.structs.replace(settings, maps={**settings.maps, ZONED_LISTS: zoned})


@dataclass(slots=True)
class Running:
    number: int
    name: str
    optimistic: bool
    start: int
    plan: list[tuple[str, bool]]
    ends: str
    id: TransactionId = b""
    done: list[ListAppend | ListRead] = field(default_factory=list)
    value: bytes | None = None
    asked_to_commit: bool = False


class Application:
    def __init__(
        self, index: int, world: World, cluster: Cluster, others: list[str], other_map: str, together: float
    ) -> None:
        self._other_map = other_map
        self._share_together = together
        self._world = world
        self._cluster = cluster
        self._random = random.Random(f"{world.seed}/application {index}")
        self._together = random.Random(f"{world.seed}/application {index} together")
        self._index = index
        self._others = others
        self._turn = 0
        self._begun = 0
        self._now: Running | None = None
        self._process: Process | None = None
        self.running = True
        self.history: list[ListTransaction] = []

    @property
    def waiting(self) -> bool:
        return self._now is not None

    def _map_of(self, key: str) -> str:
        return map_of(key, self._cluster.settings)

    def start(self) -> None:
        self._world.after(self._random.randint(SECOND // 2, 3 * SECOND), self._next)

    def _next(self) -> None:
        living = [process for process in self._cluster.living() if process.picture.admitted]
        if not self.running:
            return
        if not living:
            self._world.after(SECOND, self._next)
            return
        draw = self._random
        self._begun += 1
        self._process = draw.choice(living)
        keys = draw.sample(range(KEYS), draw.choice([1, 2, 2, 3, 4]))
        plan = [(f"l{key}", draw.random() < 0.6) for key in keys]
        if draw.random() < 0.2:
            plan.insert(draw.randrange(len(plan) + 1), (f"={draw.choice(self._others)}", False))
        ends = draw.choices(["commit", "roll back", "leave"], [20, 2, 1])[0]
        name = f"{self._index}.{self._begun}"
        optimistic = draw.random() < 0.4
        self._now = Running(self._begun, name, optimistic, self._world.now_ns, plan, ends)
        self._order(BeginTransaction(optimistic=optimistic, label=name))

    # -- orders of one transaction

    def _order(self, order: TransactionOrder) -> None:
        process = self._process
        assert process is not None, "it runs somewhere"
        self._turn += 1
        turn = self._turn
        asking = partial(process.driver.callers.order_transaction, order, partial(self._answered, turn))
        process.whenever_awake(partial(process.step, asking))
        self._world.after(PATIENCE_NS, partial(self._given_up, turn))

    def _given_up(self, turn: int) -> None:
        if turn == self._turn and self._now is not None:
            self._over(
                TransactionOutcome.UNKNOWN if self._now.asked_to_commit else TransactionOutcome.ROLLED_BACK
            )

    def _answered(self, turn: int, answer: TransactionAnswer) -> None:
        now = self._now
        if turn != self._turn or now is None:
            return
        self._turn += 1
        if answer.fate is TransactionFate.ROLLED_BACK:
            self._world.marks.hit("transaction rolled back")
            self._over(TransactionOutcome.ROLLED_BACK)
        elif answer.fate is TransactionFate.NOT_ACTIVE:
            self._over(TransactionOutcome.UNKNOWN if now.asked_to_commit else TransactionOutcome.ROLLED_BACK)
        elif answer.fate is TransactionFate.UNKNOWN:
            self._world.marks.hit("transaction in doubt")
            self._over(TransactionOutcome.UNKNOWN)
        elif now.asked_to_commit and answer.fate is TransactionFate.DONE:
            self._world.marks.hit("transaction committed")
            self._over(TransactionOutcome.COMMITTED)
        elif not now.id:
            assert isinstance(answer.value, bytes), "a transaction has an id"
            now.id = answer.value
            self._read()
            if self._together.random() < self._share_together:
                self._read_together(now)
        elif answer.fate is TransactionFate.NOT_DONE:
            self._order(RollBackTransaction(now.id))
            now.plan.clear()
            now.ends = ""
        else:
            self._went_on(now, answer)

    def _went_on(self, now: Running, answer: TransactionAnswer) -> None:
        if not now.plan:
            self._over(TransactionOutcome.ROLLED_BACK)
            return
        key, appends = now.plan[0]
        if key.startswith("="):
            now.plan.pop(0)
            self._read()
        elif now.value is None:
            value = answer.value if isinstance(answer.value, bytes) else b""
            elements = value.decode().split(",") if value else []
            now.done.append(ListRead(key, elements))
            if appends:
                element = f"{now.name}/{key}"
                now.value = f"{value.decode()},{element}".lstrip(",").encode()
                now.done.append(ListAppend(key, element))
                self._order(OperateIn(now.id, _request(Op.SET, self._map_of(key), key, now.value)))
            else:
                now.plan.pop(0)
                self._read()
        else:
            now.value = None
            now.plan.pop(0)
            self._read()

    def _read(self) -> None:
        now = self._now
        assert now is not None, "it is in the middle of one"
        if not now.plan:
            self._end(now)
            return
        key, _ = now.plan[0]
        name, key = (self._other_map, key[1:]) if key.startswith("=") else (self._map_of(key), key)
        pause = self._random.choice([0, 0, 0, SECOND // 10, SECOND])
        order = OperateIn(now.id, _request(Op.GET, name, key), for_update=True)
        if pause:
            self._turn += 1
            self._world.after(pause, partial(self._later, self._turn, order))
        else:
            self._order(order)

    def _read_together(self, now: Running) -> None:
        """Request all entries at once. The answers do not matter: the transaction reads them again, one by one."""
        process = self._process
        assert process is not None, "it runs somewhere"
        self._world.marks.hit("transaction reads together")
        for key, _ in now.plan:
            if not key.startswith("="):
                order = OperateIn(now.id, _request(Op.GET, self._map_of(key), key), for_update=True)
                asking = partial(process.driver.callers.order_transaction, order, _ignore)
                process.whenever_awake(partial(process.step, asking))

    def _later(self, turn: int, order: TransactionOrder) -> None:
        if turn == self._turn and self._now is not None:
            self._order(order)

    def _end(self, now: Running) -> None:
        if now.ends == "commit":
            now.asked_to_commit = True
            self._order(CommitTransaction(now.id))
        elif now.ends == "leave":
            self._world.marks.hit("transaction left alone")
            self._over(TransactionOutcome.ROLLED_BACK)
        else:
            self._order(RollBackTransaction(now.id))

    def _over(self, outcome: TransactionOutcome) -> None:
        now = self._now
        assert now is not None, "it is in the middle of one"
        self._turn += 1
        self._now = None
        end = self._world.now_ns if outcome is not TransactionOutcome.UNKNOWN else None
        self.history.append(ListTransaction(now.name, outcome, now.start, end, now.done))
        self._world.after(self._random.randint(1, SECOND // 2), self._next)


def _ignore(answer: TransactionAnswer) -> None: ...


def map_of(key: str, settings: Settings) -> str:
    """The map of a list. Example: with a zone, l4 is outside and l5 inside."""
    return ZONED_LISTS if ZONED_LISTS in settings.maps and int(key[1:]) % 2 else LISTS


def _request(op: Op, name: str, key: str, value: bytes = b"") -> Request:
    return Request(op, name, [0], wire_key(key), value)


class Applications:
    def __init__(
        self, world: World, cluster: Cluster, others: list[str], other_map: str, *, together: float = 0
    ) -> None:
        """`together`: share of transactions that request all their entries at once."""
        self._world = world
        self._cluster = cluster
        self.all = [
            Application(index, world, cluster, others, other_map, together) for index in range(APPLICATIONS)
        ]
        self._last: ListTransaction | None = None
        self._looks = 0

    def start(self) -> None:
        for each in self.all:
            each.start()

    def pause(self) -> None:
        for each in self.all:
            each.running = False

    @property
    def waiting(self) -> bool:
        return any(each.waiting for each in self.all)

    @property
    def history(self) -> list[ListTransaction]:
        return [each for one in self.all for each in one.history]

    def look(self) -> None:
        self._looks += 1
        found: dict[str, list[str]] = {}
        count = self._cluster.settings.partitions.count
        now_ns = self._world.now_ns
        for number in range(KEYS):
            key = f"l{number}"
            raw = wire_key(key)
            partition = partition_of(raw, 0, count)
            name = map_of(key, self._cluster.settings)
            for process in self._cluster.living():
                picture = process.picture
                if name == LISTS and picture.assignment(partition).owner == picture.me:
                    copy = picture.held[partition]
                elif name != LISTS and (led := picture.copies.led(name, partition)) is not None:
                    copy = led.copy
                else:
                    continue
                held = copy.maps.get(name)
                value = held.state.entries.get(raw) if held is not None else None
                found[key] = value.decode().split(",") if value else []
        operations = [ListRead(key, elements) for key, elements in found.items()]
        committed = TransactionOutcome.COMMITTED
        self._last = ListTransaction(f"look {self._looks}", committed, now_ns, now_ns, operations)

    def problems(self, lost: AbstractSet[int]) -> list[str]:
        """Anomalies of the history. Lost partitions prevent a judgement."""
        if lost:
            return []
        history = self.history + ([self._last] if self._last is not None else [])
        return [f"transactions: {found}" for found in judge(history, Isolation.STRICT_SERIALIZABLE)]
