"""The transactions of one member, over partitions that a test lets answer, or not.

`Partitions` stands for the router and for the primaries behind it: the steps are carried out by the rules of
`core.operations.transaction_branches`, on real replicas. What is between is the test's: a request can be answered at
once, later, never, be carried out without an answer, or be carried out long after the answer "nobody knows".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.config import (
    TRANSACTIONS_MAP,
    LimitSettings,
    MapSettings,
    PartitionSettings,
    Settings,
    TransactionSettings,
)
from holdfast.core.effects import Complete, Note, Send, SetTimer
from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.membership_status import MembershipState, MembershipStatus
from holdfast.core.messages import Message
from holdfast.core.model.decisions import Decision, Update, Wait
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment, Table
from holdfast.core.model.records import Record
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    OperateIn,
    RollBackTransaction,
    TransactionAnswer,
    TransactionFate,
    TransactionOrder,
)
from holdfast.core.model.transactions import (
    LockKeys,
    PrepareBranch,
    StepFate,
    StepResult,
    TransactionId,
    TransactionStep,
    decode_step,
    encode,
)
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.operations.map_operations import peek
from holdfast.core.operations.transaction_branches import TransactionBranches
from holdfast.core.outbox import Outbox, Reply
from holdfast.core.routing.pending import Parked, Within
from holdfast.core.store.key_locks import KeyLocks
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.transactions.member_transactions import MemberTransactions
from holdfast.core.transactions.steps import result_of

COUNT = 7
ME, BEN, CAT = MemberId("me"), MemberId("ben"), MemberId("cat")
START_NS = 100 * SECOND
UNKNOWN = Outcome(Status.UNKNOWN, None, "nobody knows")
NOT_READY = Outcome(Status.NOT_READY, None, "no primary")
MAP = "m"


def info(uuid: MemberId) -> MemberInfo:
    return MemberInfo(uuid, 1, uuid, 5701, uuid, 5702, f"name-{uuid}")


def key_in(partition: int, number: int = 0) -> bytes:
    """The key of this number in a partition."""
    found = -1
    for tried in range(10_000):
        key = b"\x00\x00\x00\x01key%d" % tried
        found += partition_of(key, 0, COUNT) == partition
        if found == number:
            return key
    raise AssertionError("there are not so many")


class Asked:
    """A request that a test has not answered yet."""

    def __init__(self, partitions: Partitions, request: Request, within: Within) -> None:
        self._partitions = partitions
        self.request = request
        self.within = within
        self.wait: Parked | None = None

    @property
    def partition(self) -> int:
        return self.request.partitions[0]

    @property
    def step(self) -> TransactionStep:
        return decode_step(self.request.value)

    def answer(self, outcome: Outcome) -> None:
        """Without having done anything."""
        self.within.receiver.answered(self.within.ticket, outcome)

    def fate(self, fate: StepFate, **more: Any) -> None:
        self.answer(Outcome(Status.OK, encode(StepResult(fate, **more))))

    def carry_out(self) -> Outcome | Wait:
        """Do it, and tell nobody."""
        return self._partitions.carry_out(self.request)

    def serve(self, outcome: Outcome | None = None) -> None:
        """Do it, and answer what came of it; or this."""
        done = self.carry_out()
        if isinstance(done, Wait):
            parked = Parked(self.request, self.within, 0)
            parked.wait, parked.since_ns = done, self._partitions.out.now_ns
            self.wait = parked
            self._partitions.waiting.append(self)
            return
        self.answer(outcome or done)


class Partitions:
    """All partitions of the cluster, and the router that finds them."""

    def __init__(self, out: Outbox) -> None:
        self.out = out
        self.copies = [PartitionCopy(partition, 0) for partition in range(COUNT)]
        self.asked: list[Asked] = []
        self.waiting: list[Asked] = []
        self.prompt = True
        """Whether requests are served at once."""
        self.refuses: Callable[[Request], Outcome | None] = lambda _: None

    # -- as the router

    def execute(self, request: Request, asker: Within) -> None:
        asked = Asked(self, request, asker)
        if self.prompt:
            asked.serve()
        else:
            self.asked.append(asked)

    def waits(self) -> Iterator[Parked]:
        for asked in self.waiting:
            assert asked.wait is not None
            yield asked.wait

    def withdraw(self, asker: Within) -> None:
        pass

    def rejection(self, request: Request) -> Outcome | None:
        return self.refuses(request)

    def zone_of(self, name: str) -> int:
        return 0

    def knows_zone(self, zone: int) -> bool:
        return False

    def is_dropped(self, zone: int) -> bool:
        return False

    def zone_problem(self, zone: str) -> str:
        return f"there is no zone {zone!r}"

    def leader(self, zone: int, partition: int) -> MemberId | None:
        return None

    def led_in_zones(self) -> Iterator[tuple[int, PartitionCopy, KeyLocks]]:
        yield from ()

    # -- as the primaries

    def carry_out(self, request: Request) -> Outcome | Wait:
        now_ns = self.out.now_ns
        if request.op is Op.GET:
            copy = self.copies[request.partitions[0]]
            held = copy.maps.get(request.map)
            return Outcome(Status.OK, peek(held.state, request.key, now_ns) if held is not None else None)
        if request.op in (Op.KEYS, Op.ENTRIES):
            found: list[bytes] = []
            for partition in request.partitions:
                held = self.copies[partition].maps.get(request.map)
                for key, value in (held.state.entries if held is not None else {}).items():
                    found += [key] if request.op is Op.KEYS else [key, value]
            return Outcome(Status.OK, found)
        assert request.op in (Op.TRANSACT, Op.SETTLE)
        copy = self.copies[request.partitions[0]]
        step = decode_step(request.value)
        assert (request.op is Op.TRANSACT) is isinstance(step, LockKeys | PrepareBranch)
        if isinstance(step, LockKeys | PrepareBranch):
            mapped = step.mapped
            if mapped is not None and not mapped.holds and mapped.row < copy.term:
                return Outcome(Status.OK, encode(StepResult(StepFate.REMAP, row=copy.term)))
        return self.decide(copy.partition, step)

    def decide(self, partition: int, step: TransactionStep) -> Outcome | Wait:
        """What comes of a step, whoever it is from."""
        decision = self.branches(partition).decide(step)
        if isinstance(decision, Decision):
            assert decision.locks is not None
            self.copies[partition].locks.change(decision.locks)
            self.change(partition, *decision.updates)
            return Outcome(Status.OK, decision.answer)
        return decision

    def change(self, partition: int, *updates: Update) -> None:
        copy = self.copies[partition]
        for update in updates:
            held = copy.open(update.map)
            record = Record(
                update.map, held.updates.next(), update.change, update.key, update.value,
                update.ttl_ms, update.max_idle_ms, update.key_hash,
            )  # fmt: skip
            held.state.apply(record, self.out.now_ns)

    def look_at_waiting(self) -> None:
        """Serve what can go on, in the order in which it came, or has waited long enough."""
        again, self.waiting = self.waiting, []
        for asked in again:
            parked = asked.wait
            assert parked is not None and parked.wait is not None
            if self.out.now_ns - parked.since_ns >= parked.wait.ms * MILLISECOND:
                done = asked.carry_out()
                asked.answer(done if isinstance(done, Outcome) else Outcome(Status.OK, done.answer))
                continue
            since_ns = parked.since_ns
            asked.serve()
            if asked in self.waiting:
                assert asked.wait is not None
                asked.wait.since_ns = since_ns

    # -- what a test looks at

    def value(self, partition: int, key: bytes, name: str = MAP) -> bytes | None:
        held = self.copies[partition].maps.get(name)
        return held.state.entries.get(key) if held is not None else None

    def branches(self, partition: int) -> TransactionBranches:
        return TransactionBranches(self.copies[partition], self.out.now_ns)

    @property
    def kept(self) -> int:
        """Locks, and entries of locks and branches, everywhere."""
        stored = [copy.maps[TRANSACTIONS_MAP].state for copy in self.copies if TRANSACTIONS_MAP in copy.maps]
        return sum(len(copy.locks.held) for copy in self.copies) + sum(len(one.entries) for one in stored)


def settings_of(**changed: Any) -> Settings:
    """With a map that takes part. `limits`, `transactions`, `maps`: what differs in these sections."""
    maps = {"default": MapSettings(transactional=False), MAP: MapSettings(), **changed.pop("maps", {})}
    return Settings(
        partitions=PartitionSettings(count=COUNT),
        maps=maps,
        limits=LimitSettings(**{"call_timeout_ms": 10_000, **changed.pop("limits", {})}),
        transactions=TransactionSettings(**changed.pop("transactions", {})),
        **changed,
    )


class One:
    """One member of a cluster, the first unless others come before it, and what comes of its orders."""

    def __init__(self, *members: MemberId, **changed: Any) -> None:
        self.out = Outbox()
        self.out.now_ns = START_NS
        self.settings = settings_of(**changed)
        self.standing = MembershipStatus(
            Identity(info(ME), "prod", {}, (), False, "new"), Timing(500 * MILLISECOND, 3 * SECOND), self.out,
            majority=True,
        )  # fmt: skip
        self.enter(*(members or (ME, BEN, CAT)))
        self.partitions = Partitions(self.out)
        self.leading: list[PartitionCopy | None] = list(self.partitions.copies)
        self.table = Table(COUNT)
        for partition in range(COUNT):
            self.table.apply(partition, Assignment(1, (ME,)))
        self.transactions = MemberTransactions(
            ME, self.settings, self.out, self.standing, self.partitions,
            self.leading, self.table,
        )  # fmt: skip
        self._due_ns = 0
        self._tokens = 0
        self.answers: dict[int, list[TransactionAnswer]] = {}
        self.sent: list[tuple[MemberId, Message]] = []
        self.notes: list[Note] = []

    def enter(self, *members: MemberId) -> None:
        """It is in a view of these."""
        self.standing.view = View(5, "id", [info(one) for one in members])
        self.standing.state = MembershipState.MEMBER

    # -- time

    def deliver(self) -> None:
        """The end of a step."""
        self.transactions.deliver()
        self.transactions.wake_if_late()
        for effect in self.out.take():
            match effect:
                case Complete(token, answer):
                    assert isinstance(answer, TransactionAnswer)
                    self.answers[token].append(answer)
                    assert len(self.answers[token]) == 1, "it is answered once"
                case Send(to, message):
                    self.sent.append((to, message))
                case SetTimer(TimerName.TRANSACTIONS, after_ns):
                    assert after_ns > 0
                    self._due_ns = self.out.now_ns + after_ns
                case Note():
                    self.notes.append(effect)
                case _:
                    raise AssertionError(effect)

    def pass_time(self, milliseconds: float) -> None:
        """With the timer, and with what waits at the partitions."""
        end = self.out.now_ns + round(milliseconds * MILLISECOND)
        while self._due_ns and self._due_ns <= end:
            self.out.now_ns, self._due_ns = max(self.out.now_ns, self._due_ns), 0
            self.transactions.on_timer()
            self.deliver()
            self.serve_waiting()
        self.out.now_ns = end
        self.serve_waiting()

    def serve_waiting(self) -> None:
        self.partitions.look_at_waiting()
        self.deliver()

    @property
    def timer_ms(self) -> float | None:
        """In how long the timer is due."""
        return (self._due_ns - self.out.now_ns) / MILLISECOND if self._due_ns else None

    # -- orders

    def order(self, order: TransactionOrder) -> int:
        """Answers the token."""
        self._tokens += 1
        self.answers[self._tokens] = []
        self.transactions.take(order, Reply(self.out, self._tokens))
        self.deliver()
        return self._tokens

    def answer(self, token: int) -> TransactionAnswer:
        [answer] = self.answers[token]
        return answer

    def fate(self, token: int) -> TransactionFate | None:
        return self.answers[token][0].fate if self.answers[token] else None

    def begin(self, **chosen: Any) -> TransactionId:
        answer = self.answer(self.order(BeginTransaction(**chosen)))
        assert isinstance(answer.value, bytes)
        return answer.value

    def operate(
        self, transaction: TransactionId, op: Op, key: bytes = b"", value: bytes = b"", *,
        for_update: bool = False, name: str = MAP, **more: Any,
    ) -> int:  # fmt: skip
        request = Request(op, name, [0], key, value, **more)
        return self.order(OperateIn(transaction, request, for_update))

    def do(
        self, transaction: TransactionId, op: Op, key: bytes = b"", value: bytes = b"", **more: Any
    ) -> Any:
        answer = self.answer(self.operate(transaction, op, key, value, **more))
        assert answer.fate is TransactionFate.DONE, answer
        return answer.value

    def commit(self, transaction: TransactionId) -> int:
        return self.order(CommitTransaction(transaction))

    def roll_back(self, transaction: TransactionId, why: str = "") -> int:
        return self.order(RollBackTransaction(transaction, why))

    # -- what partitions are asked

    def slow(self) -> None:
        """From now on the test serves what is asked."""
        self.partitions.prompt = False

    def prompt(self) -> None:
        """From now on requests are served at once."""
        self.partitions.prompt = True

    def next(self, kind: type[msgspec.Struct] | None = None) -> Asked:
        """Take the oldest request, which is this step."""
        asked = self.partitions.asked.pop(0)
        assert kind is None or isinstance(asked.step, kind), asked.step
        return asked

    def take(self) -> list[Asked]:
        """Take all requests that wait for the test."""
        taken, self.partitions.asked = self.partitions.asked, []
        return taken

    def serve(self) -> None:
        """Serve all that waits, and what comes of it."""
        while self.partitions.asked:
            for asked in self.take():
                asked.serve()
            self.deliver()

    @property
    def running(self) -> int:
        return self.transactions.coordinator.running.count


def fate_of(outcome: Outcome) -> StepFate:
    result = result_of(outcome)
    assert result is not None
    return result.fate
