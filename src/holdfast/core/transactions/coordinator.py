"""What a member does for the transactions that were begun on it: operations, commit, rollback (I3; 004 "Update counter
flow").

- transactions/C-1: A pessimistic transaction locks an entry before it changes it, and reads it under the lock.
- transactions/C-2: An optimistic one locks nothing. What it has read must be the same when it is prepared.
- transactions/C-3: It commits when all branches are prepared, and then only. A transaction in one partition alone needs
  no second phase: its writes are one batch there.
- transactions/C-4: Its caller hears "rolled back" only when nothing of it was done or will be, and "done" when
  all of it is.
- transactions/C-5: It is rolled back when its time is over, unless it has begun to be prepared.
- transactions/C-6: What transactions keep here is bounded: their number, what one keeps (`limits.frame_bytes`, for each
  partition is sent its share in one message), and what all do together (`limits.waiting_bytes`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b

import msgspec
from msgspec import structs

from holdfast.config import INTERNAL, Settings
from holdfast.core.machine import Outbox, Reply
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import DEFAULT_TTL, WHOLE, Op, Outcome, Request, Status
from holdfast.core.model.topology import UNKNOWN_TOPOLOGY, MappedOn, TopologyVersion
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    OperateIn,
    RunningTransaction,
    StoreTogether,
    TransactionAnswer,
    TransactionFate,
)
from holdfast.core.model.transactions import (
    KEYS_MAX,
    EntryKey,
    LockKeys,
    PrepareBranch,
    StepFate,
    StepResult,
    TransactionalWrite,
    TransactionId,
    ValueSeen,
)
from holdfast.core.transactions.finishing import Finishing
from holdfast.core.transactions.mapping import Mapping
from holdfast.core.transactions.own_writes import KEYED, WHOLE_IN, change_in, whole_in
from holdfast.core.transactions.steps import Steps, result_of

AGAIN_NS = 50 * MILLISECOND
REMAP_NS = 5 * MILLISECOND
"""A newer topology is awaited for so long before it is looked at again."""
TICK_NS = 250 * MILLISECOND
ENDED_MAX = 10_000
"""Of so many transactions that have ended it is known why."""
SHOWN_KEYS = 10
RUNNING_MAX = 50_000
"""Transactions of one member (transactions/C-6)."""
ENTRY_BYTES = 500
"""What an entry takes besides its key and its values, at about."""
LABEL_MAX = WHY_MAX = 200
"""Characters. Why one was rolled back is kept for as long as that it was (`ENDED_MAX`)."""
NOT_TRANSACTIONAL = (
    "the map {0!r} takes no part in transactions: it is Holdfast's own, lives in a zone, or maps.{0}.transactional "
    "(or maps.default.transactional) is false"
)


class TransactionPhase(Enum):
    """How far a transaction is."""

    ACTIVE = "active"
    PREPARING = "preparing"
    COMMITTING = "committing"
    ROLLING_BACK = "rolling back"
    IN_DOUBT = "in doubt"
    """Its coordinator asks the branches what the outcome is."""


@dataclass(slots=True)
class TouchedEntry:
    """What a transaction knows of an entry, and makes of it."""

    partition: int
    locked: bool = False
    known: bool = False
    """Whether it was read without a lock."""
    value: bytes | None = None
    """What it was when it was locked or read."""
    write: TransactionalWrite | None = None

    @property
    def present(self) -> bytes | None:
        """What the transaction sees."""
        return self.write.value if self.write is not None else self.value


@dataclass(slots=True)
class Transaction:
    """One that was begun here."""

    id: TransactionId
    began_ns: int
    deadline_ns: int
    optimistic: bool
    repeatable: bool
    label: str
    phase: TransactionPhase = TransactionPhase.ACTIVE
    entries: dict[EntryKey, TouchedEntry] = field(default_factory=dict)
    reply: Reply | None = None
    """Who waits for what is being done."""
    operation: OperateIn | None = None
    ticket: int = 0
    """Of the last operation that had to ask."""
    locking: int = -1
    """The partition in which it waits for a lock, or may have got one without hearing of it."""
    queue: deque[tuple[OperateIn, Reply]] = field(default_factory=deque)
    steps: dict[int, int] = field(default_factory=dict)
    """Prepares that are under way: ticket -> partition."""
    prepares: dict[int, PrepareBranch] = field(default_factory=dict)
    """What is not prepared yet, by partition."""
    participants: list[int] = field(default_factory=list)
    """Where it is prepared, from when it begins to be."""
    doubted: set[int] = field(default_factory=set)
    """Where a prepare may still be on its way."""
    answer_by_ns: int = 0
    why: str = ""
    """Why it is rolled back."""
    size: int = 0
    """Bytes of the entries that it keeps."""
    topology: TopologyVersion = UNKNOWN_TOPOLOGY
    """On which it was mapped: the one of its first lock."""
    holds: bool = False
    """Whether it holds locks."""

    @property
    def partitions(self) -> set[int]:
        """Where it holds locks."""
        return {entry.partition for entry in self.entries.values() if entry.locked}


class Coordinator:
    """The transactions of this member."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        steps: Steps,
        finishing: Finishing,
        mapping: Mapping,
    ) -> None:
        self._me = me
        self._settings = settings
        self._out = out
        self._steps = steps
        self._finishing = finishing
        self._mapping = mapping
        finishing.hearer = self
        self._prefix = blake2b(me.encode(), digest_size=8).digest()
        self._begun = 0
        self._running: dict[TransactionId, Transaction] = {}
        self._of_ticket: dict[int, Transaction] = {}
        self._ended: dict[TransactionId, str] = {}
        self._patience_ns = settings.limits.call_timeout_ms * MILLISECOND
        self._unmapped: dict[TransactionId, tuple[int, int]] = {}
        """Those that wait for a newer row of a partition before they ask for their first lock again."""
        self._partitions = list(range(settings.partitions.count))
        self._size = 0
        """Bytes that all transactions keep."""
        self._size_most = settings.limits.bounded(settings.limits.waiting_bytes)

    # -- for others

    def runs(self, transaction: TransactionId) -> bool:
        """Whether it was begun here and is not over."""
        return transaction in self._running

    @property
    def running(self) -> int:
        """How many are not over."""
        return len(self._running)

    @property
    def oldest_ms(self) -> int:
        """The age of the oldest of them; 0 when there is none."""
        first = next(iter(self._running.values()), None)
        return (self._out.now_ns - first.began_ns) // MILLISECOND if first is not None else 0

    def told(self) -> list[RunningTransaction]:
        """All of them, the oldest first."""
        now_ns = self._out.now_ns
        return [
            RunningTransaction(
                each.id,
                self._me,
                each.phase.value,
                (now_ns - each.began_ns) // MILLISECOND,
                (each.deadline_ns - each.began_ns) // MILLISECOND,
                each.optimistic,
                each.label,
                list(each.entries)[:SHOWN_KEYS],
                len(each.entries),
                sorted({entry.partition for entry in each.entries.values()}),
                each.topology,
            )
            for each in self._running.values()
        ]

    # -- orders

    def begin(self, order: BeginTransaction, reply: Reply) -> None:
        """Begin one; answered by its id."""
        if len(self._running) >= RUNNING_MAX:
            why = f"{RUNNING_MAX} transactions run on this member already"
            reply(TransactionAnswer(TransactionFate.NOT_DONE, why=why))
            return
        reply(TransactionAnswer(TransactionFate.DONE, self._begin(order).id))

    def _begin(self, order: BeginTransaction) -> Transaction:
        self._begun += 1
        transaction = self._prefix + self._begun.to_bytes(8, "big")
        chosen = self._settings.transactions
        timeout_ms = min(max(0, order.timeout_ms) or chosen.timeout_ms, chosen.timeout_max_ms)
        now_ns = self._out.now_ns
        begun = self._running[transaction] = Transaction(
            transaction,
            now_ns,
            now_ns + timeout_ms * MILLISECOND,
            order.optimistic,
            order.repeatable,
            order.label[:LABEL_MAX],
        )
        self._watch()
        return begun

    def operate(self, order: OperateIn, reply: Reply) -> None:
        """Do something in a transaction; what comes meanwhile waits for its turn."""
        transaction = self._active(order.transaction, reply)
        if transaction is None:
            return
        if transaction.operation is not None:
            transaction.queue.append((order, reply))
            return
        transaction.operation, transaction.reply = order, reply
        self._operate(transaction)

    def _active(self, wanted: TransactionId, reply: Reply) -> Transaction | None:
        transaction = self._running.get(wanted)
        if transaction is not None and transaction.phase is TransactionPhase.ACTIVE:
            return transaction
        why = transaction.why if transaction is not None else self._ended.get(wanted)
        if why:
            reply(TransactionAnswer(TransactionFate.ROLLED_BACK, why=why))
        else:
            reply(
                TransactionAnswer(
                    TransactionFate.NOT_ACTIVE, why="there is no such transaction, or it is over"
                )
            )
        return None

    def store_together(self, order: StoreTogether, reply: Reply) -> None:
        """Begin one that stores these entries, and commit it."""
        if not self._takes_part(order.map):
            reply(TransactionAnswer(TransactionFate.NOT_DONE, why=NOT_TRANSACTIONAL.format(order.map)))
            return
        if self._is_crowded(order):
            why = "the transactions of this member keep as much as they may just now (limits.waiting_bytes)"
            reply(TransactionAnswer(TransactionFate.ROLLED_BACK, why=why))
            return
        transaction = self._begin(BeginTransaction(optimistic=True, label=order.label))
        for request in order.requests():
            why = self._request_problem(request) or self._size_problem(transaction, request)
            if why:
                self._give_up(transaction, why)
                reply(TransactionAnswer(TransactionFate.NOT_DONE, why=why))
                return
            partition = partition_of(request.key, request.key_hash, self._settings.partitions.count)
            entry = transaction.entries.setdefault((request.map, request.key), TouchedEntry(partition))
            self._grow(transaction, ENTRY_BYTES + len(request.key) + len(request.value))
            _, entry.write = change_in(request, None, self._lifetimes(request))
        self.commit(transaction.id, reply)

    def _is_crowded(self, order: StoreTogether) -> bool:
        """Whether there would be room for it at another time (transactions/C-6)."""
        size = ENTRY_BYTES * len(order.keys) + sum(map(len, (*order.keys, *order.values)))
        return len(self._running) >= RUNNING_MAX or (bool(self._size) and self._size + size > self._size_most)

    # -- one operation

    def _operate(self, transaction: Transaction) -> None:
        """Answer it, or find out first what the entry is."""
        order = transaction.operation
        assert order is not None, "there is something to do"
        request = order.request
        if why := self._request_problem(request):
            self._refuse(transaction, why)
        elif not self._takes_part(request.map):
            self._refuse(transaction, NOT_TRANSACTIONAL.format(request.map))
        elif request.op in WHOLE:
            self._whole(transaction, request)
        elif why := self._size_problem(transaction, request):
            self._refuse(transaction, why)
        else:
            self._keyed(transaction, order)

    def _takes_part(self, name: str) -> bool:
        return not name.startswith(INTERNAL) and self._settings.map(name).takes_part

    def _request_problem(self, request: Request) -> str:
        """Why no transaction can do this; empty when one can."""
        limits = self._settings.limits
        if request.op not in KEYED and request.op not in WHOLE_IN:
            return f"{request.op.name} is not done in a transaction"
        if len(request.key) > limits.key_bytes:
            return f"the key has {len(request.key)} bytes; limits.key_bytes is {limits.key_bytes}"
        if len(request.value) > limits.value_bytes:
            return f"the value has {len(request.value)} bytes; limits.value_bytes is {limits.value_bytes}"
        whole = request.op in WHOLE_IN
        key_of = partition_of(request.key, request.key_hash, self._settings.partitions.count)
        there = self._partitions if whole else [key_of]
        refused = self._steps.rejection(msgspec.structs.replace(request, partitions=there))
        return f"{refused.status.name}: {refused.detail}" if refused is not None else ""

    def _size_problem(self, transaction: Transaction, request: Request) -> str:
        """transactions/C-6"""
        size = ENTRY_BYTES + len(request.key) + len(request.value)
        limits = self._settings.limits
        if len(transaction.entries) >= KEYS_MAX:
            return f"a transaction touches at most {KEYS_MAX} entries"
        if transaction.size + size > limits.frame_bytes:
            return f"a transaction keeps at most {limits.frame_bytes} bytes (limits.frame_bytes)"
        if self._size + size > self._size_most:
            return (
                f"the transactions of this member keep {self._size_most} bytes already (limits.waiting_bytes)"
            )
        return ""

    def _grow(self, transaction: Transaction, by: int) -> None:
        transaction.size += by
        self._size += by
        assert self._size >= 0, "no more is given back than was kept"

    def _refuse(self, transaction: Transaction, why: str) -> None:
        self._reply(transaction, TransactionAnswer(TransactionFate.NOT_DONE, why=why))

    def _reply(self, transaction: Transaction, answer: TransactionAnswer) -> None:
        """The operation is over; the next may begin."""
        reply, transaction.reply, transaction.operation = transaction.reply, None, None
        assert reply is not None, "somebody has asked"
        reply(answer)
        if transaction.queue:
            transaction.operation, transaction.reply = transaction.queue.popleft()
            self._operate(transaction)

    def _keyed(self, transaction: Transaction, order: OperateIn) -> None:
        request = order.request
        place = (request.map, request.key)
        entry = transaction.entries.get(place)
        if entry is None:
            count = self._settings.partitions.count
            entry = TouchedEntry(partition_of(request.key, request.key_hash, count))
        changes = request.op not in (Op.GET, Op.CONTAINS_KEY) or order.for_update
        if entry.write is not None:
            self._carry_out(transaction, entry)
        elif transaction.optimistic:
            blind = request.op is Op.SET
            if entry.known or blind:
                self._carry_out(transaction, entry)
            else:
                self._read(transaction, entry)
        elif entry.locked:
            self._carry_out(transaction, entry)
        elif changes or transaction.repeatable:
            self._lock(transaction, place, entry)
        else:
            self._read(transaction, entry)

    def _carry_out(self, transaction: Transaction, entry: TouchedEntry) -> None:
        order = transaction.operation
        assert order is not None, "there is something to do"
        request = order.request
        place = (request.map, request.key)
        answer, write = change_in(request, entry.present, self._lifetimes(request))
        if write is not None:
            self._grow(transaction, len(write.value or b"") - len((entry.write and entry.write.value) or b""))
            entry.write = write
        if (entry.locked or transaction.optimistic) and transaction.entries.get(place) is not entry:
            self._grow(transaction, ENTRY_BYTES + len(place[1]) + len(entry.value or b""))
            transaction.entries[place] = entry
        self._reply(transaction, TransactionAnswer(TransactionFate.DONE, answer))

    def _lifetimes(self, request: Request) -> tuple[int, int]:
        chosen = self._settings.map(request.map)
        ttl_ms = chosen.ttl_ms if request.ttl_ms == DEFAULT_TTL else request.ttl_ms
        idle_ms = chosen.max_idle_ms if request.max_idle_ms == DEFAULT_TTL else request.max_idle_ms
        return ttl_ms, idle_ms

    def _lock(self, transaction: Transaction, place: EntryKey, entry: TouchedEntry) -> None:
        left_ms = (transaction.deadline_ns - self._out.now_ns) // MILLISECOND
        wait_ms = max(1, min(self._settings.transactions.lock_wait_ms, left_ms))
        transaction.locking = entry.partition
        mapped = self._map(transaction, entry.partition)
        step = LockKeys(transaction.id, self._me, [place], wait_ms, mapped)
        self._expect(transaction, self._steps.send(step, entry.partition, self))

    def _map(self, transaction: Transaction, partition: int) -> MappedOn:
        mapped = self._mapping.of(partition, holds=transaction.holds)
        if not transaction.holds:
            transaction.topology = mapped.topology
        return mapped

    def _read(self, transaction: Transaction, entry: TouchedEntry) -> None:
        order = transaction.operation
        assert order is not None, "there is something to do"
        request = order.request
        read = Request(Op.GET, request.map, [entry.partition], key=request.key, key_hash=request.key_hash)
        self._expect(transaction, self._steps.ask(read, self))

    def _whole(self, transaction: Transaction, request: Request) -> None:
        op = Op.ENTRIES if request.op in (Op.VALUES, Op.ENTRIES, Op.CONTAINS_VALUE) else Op.KEYS
        self._expect(transaction, self._steps.ask(Request(op, request.map, self._partitions), self))

    def _expect(self, transaction: Transaction, ticket: int) -> None:
        transaction.ticket = ticket
        self._of_ticket[ticket] = transaction

    def on_outcome(self, ticket: int, outcome: Outcome) -> None:
        """Something has come of an operation, or of a prepare."""
        transaction = self._of_ticket.pop(ticket)
        if ticket in transaction.steps:
            self._prepared(transaction, transaction.steps.pop(ticket), outcome)
        else:
            assert ticket == transaction.ticket, "one operation at a time"
            self._heard(transaction, outcome)

    def _heard(self, transaction: Transaction, outcome: Outcome) -> None:
        order = transaction.operation
        assert order is not None, "it was asked for"
        request = order.request
        if transaction.locking >= 0:
            self._locked(transaction, request, outcome)
        elif outcome.status is not Status.OK:
            self._refuse(transaction, outcome.detail or outcome.status.name)
        elif request.op in WHOLE:
            writes = [each.write for each in transaction.entries.values() if each.write is not None]
            value = whole_in(request, outcome.value, [one for one in writes if one.map == request.map])
            self._reply(transaction, TransactionAnswer(TransactionFate.DONE, value))
        else:
            value = outcome.value
            assert value is None or isinstance(value, bytes), "an entry is bytes, or none"
            partition = partition_of(request.key, request.key_hash, self._settings.partitions.count)
            self._carry_out(transaction, TouchedEntry(partition, known=True, value=value))

    def _locked(self, transaction: Transaction, request: Request, outcome: Outcome) -> None:
        result = result_of(outcome)
        partition = transaction.locking
        if result is not None and result.fate is StepFate.DONE:
            transaction.locking = -1
            transaction.holds = True
            entry = TouchedEntry(partition, locked=True, value=result.values[0])
            self._carry_out(transaction, entry)
            return
        if result is not None and result.fate is StepFate.REMAP:
            # It holds nothing there. The operation begins anew when this member knows who leads the partition.
            transaction.locking = -1
            self._unmapped[transaction.id] = partition, result.row
            self._steps.wake(REMAP_NS)
            return
        if result is None:
            why = f"an entry could not be locked: {outcome.detail or outcome.status.name}"
        elif result.fate is StepFate.LOCKED:
            wait_ms = self._settings.transactions.lock_wait_ms
            held = f"transaction {result.holder.hex()} held a lock for longer than {wait_ms} ms"
            why = f"{held} (transactions.lock_wait_ms)"
        else:
            why = f"an entry could not be locked: {result.fate.name} {result.why}".rstrip()
        self._give_up(transaction, why)

    # -- rollback

    def roll_back(self, wanted: TransactionId, why: str, reply: Reply | None) -> None:
        """Nothing of it is to be done. One that is being prepared is not stopped any more (transactions/C-5)."""
        transaction = self._running.get(wanted)
        if transaction is None or transaction.phase is not TransactionPhase.ACTIVE:
            if reply is not None:
                reply(self._no_rollback(wanted, transaction))
            return
        self._give_up(transaction, why[:WHY_MAX] or "its owner rolled it back")
        if reply is not None:
            reply(TransactionAnswer(TransactionFate.DONE))

    def _no_rollback(self, wanted: TransactionId, transaction: Transaction | None) -> TransactionAnswer:
        if wanted in self._ended:
            return TransactionAnswer(TransactionFate.DONE, why=self._ended[wanted])
        if transaction is None:
            return TransactionAnswer(
                TransactionFate.NOT_ACTIVE, why="there is no such transaction, or it is over"
            )
        if transaction.phase is TransactionPhase.ROLLING_BACK:
            return TransactionAnswer(TransactionFate.DONE, why=transaction.why)
        return TransactionAnswer(TransactionFate.NOT_DONE, why=f"it is {transaction.phase.value}")

    def _give_up(self, transaction: Transaction, why: str) -> None:
        """Roll it back, and tell whoever waits for it."""
        transaction.phase, transaction.why = TransactionPhase.ROLLING_BACK, why
        for reply in [transaction.reply, *(reply for _, reply in transaction.queue)]:
            if reply is not None:
                reply(TransactionAnswer(TransactionFate.ROLLED_BACK, why=why))
        transaction.reply = transaction.operation = None
        transaction.queue.clear()
        self._steps.drop(transaction.ticket)
        self._of_ticket.pop(transaction.ticket, None)
        self._release(transaction)

    def _release(self, transaction: Transaction) -> None:
        """Every branch lets go of what the transaction holds there."""
        for ticket in transaction.steps:
            self._steps.drop(ticket)
            del self._of_ticket[ticket]
        fenced = set(transaction.doubted) | set(transaction.steps.values())
        transaction.steps.clear()
        if transaction.locking >= 0:
            fenced.add(transaction.locking)
        partitions = transaction.partitions | fenced | set(transaction.participants)
        self._finishing.roll_back(transaction.id, self._me, sorted(partitions), frozenset(fenced))

    # -- commit

    def commit(self, wanted: TransactionId, reply: Reply) -> None:
        """Do all of it: prepare every branch (transactions/C-3)."""
        transaction = self._active(wanted, reply)
        if transaction is None:
            return
        if transaction.operation is not None:
            reply(TransactionAnswer(TransactionFate.NOT_DONE, why="an operation of it is under way"))
            return
        transaction.reply = reply
        transaction.phase = TransactionPhase.PREPARING
        transaction.answer_by_ns = self._out.now_ns + self._patience_ns
        branches = self._branches(transaction)
        if not branches:
            self._done(transaction)
            return
        participants = transaction.participants = sorted(branches)
        for partition, (writes, seen) in branches.items():
            transaction.prepares[partition] = PrepareBranch(
                transaction.id,
                self._me,
                participants,
                writes,
                seen,
                not transaction.optimistic,
                self._map(transaction, partition),
            )
        self._prepare(transaction)

    def _branches(
        self, transaction: Transaction
    ) -> dict[int, tuple[list[TransactionalWrite], list[ValueSeen]]]:
        """What is to be written in each partition, and must be found there."""
        branches: dict[int, tuple[list[TransactionalWrite], list[ValueSeen]]] = {}
        for (name, key), entry in transaction.entries.items():
            if entry.write is None and not entry.known:
                continue
            writes, expected = branches.setdefault(entry.partition, ([], []))
            if entry.write is not None:
                writes.append(entry.write)
            if entry.known:
                expected.append(ValueSeen(name, key, entry.value))
        return branches

    def _prepare(self, transaction: Transaction) -> None:
        under_way = set(transaction.steps.values())
        for partition, step in list(transaction.prepares.items()):
            if partition in under_way:
                continue
            alone = len(step.participants) == 1
            request_id = transaction.id + b"1" if alone and self._settings.replication.request_ids else b""
            ticket = self._steps.send(step, partition, self, request_id=request_id)
            transaction.steps[ticket] = partition
            self._of_ticket[ticket] = transaction

    def _prepared(self, transaction: Transaction, partition: int, outcome: Outcome) -> None:
        """A branch is prepared, or is not."""
        result = result_of(outcome)
        if transaction.phase is TransactionPhase.ROLLING_BACK:
            if result is None:
                transaction.doubted.add(partition)
            if not transaction.steps:
                self._release(transaction)
            return
        assert transaction.phase is TransactionPhase.PREPARING, "in no other phase prepares are under way"
        if result is None and (outcome.status is Status.UNKNOWN or partition in transaction.doubted):
            transaction.doubted.add(partition)
            self._steps.wake(AGAIN_NS)
        elif result is not None and result.fate is StepFate.REMAP:
            # Nobody waits for it there, so it is not hurried: `_late` asks again, of whoever leads the partition then.
            mapped = self._map(transaction, partition)
            transaction.prepares[partition] = structs.replace(transaction.prepares[partition], mapped=mapped)
            self._steps.wake(REMAP_NS)
        elif _is_prepared(result):
            transaction.holds = True
            # What was in doubt is not any more, but an earlier try may still be on its way.
            del transaction.prepares[partition]
            if not transaction.prepares:
                self._all_prepared(transaction)
        elif self._alone(transaction) and partition in transaction.doubted:
            # An earlier try may have done all of it, and nothing there remembers.
            self._doubtful(transaction, "nobody can say whether it was committed")
        else:
            transaction.why = _rollback_reason(result, outcome)
            self._rolled_back(transaction)

    def _alone(self, transaction: Transaction) -> bool:
        return len(transaction.participants) == 1

    def _all_prepared(self, transaction: Transaction) -> None:
        if self._alone(transaction):
            self._done(transaction)
            return
        transaction.phase = TransactionPhase.COMMITTING
        everywhere = sorted(transaction.partitions.union(transaction.participants))
        self._finishing.commit(transaction.id, self._me, everywhere, frozenset(transaction.doubted))

    def _rolled_back(self, transaction: Transaction) -> None:
        transaction.phase = TransactionPhase.ROLLING_BACK
        self._answer(transaction, TransactionFate.ROLLED_BACK, transaction.why)
        if not transaction.steps:
            # Else the other branches have not answered: when they have, none can be prepared later.
            self._release(transaction)

    def _doubtful(self, transaction: Transaction, why: str) -> None:
        """Nobody here can say whether it was done: its caller hears that, and what it holds is released."""
        self._answer(transaction, TransactionFate.UNKNOWN, why)
        transaction.phase = TransactionPhase.ROLLING_BACK
        self._release(transaction)

    def _done(self, transaction: Transaction) -> None:
        """All that it writes is there. Where it holds locks alone they are released."""
        self._answer(transaction, TransactionFate.DONE)
        transaction.phase = TransactionPhase.COMMITTING
        locked = transaction.partitions.difference(transaction.participants)
        self._finishing.roll_back(transaction.id, self._me, sorted(locked), frozenset())

    def _answer(self, transaction: Transaction, fate: TransactionFate, why: str = "") -> None:
        reply, transaction.reply = transaction.reply, None
        assert reply is not None, "who commits is answered once"
        reply(TransactionAnswer(fate, why=why))

    def on_finished(self, transaction: TransactionId, *, committed: bool) -> None:
        """Every branch of one has its outcome."""
        running = self._running.get(transaction)
        if running is None:
            return
        if running.reply is not None:
            assert committed, "who waits for one that is rolled back was told so, or that it is in doubt"
            self._answer(running, TransactionFate.DONE)
        self._end(running)

    def _end(self, transaction: Transaction) -> None:
        del self._running[transaction.id]
        self._grow(transaction, -transaction.size)
        if transaction.why:
            self._ended[transaction.id] = transaction.why
            while len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    # -- from time to time

    def _watch(self) -> None:
        self._steps.wake(TICK_NS)

    def on_timer(self) -> None:
        """Whose time is over? What is to be asked again?"""
        now_ns = self._out.now_ns
        self._map_again()
        for transaction in list(self._running.values()):
            if transaction.phase is TransactionPhase.ACTIVE and now_ns >= transaction.deadline_ns:
                took_ms = (now_ns - transaction.began_ns) // MILLISECOND
                self._give_up(transaction, f"it did not end within its timeout: {took_ms} ms have passed")
            elif transaction.phase is TransactionPhase.PREPARING:
                self._late(transaction, now_ns)
            elif transaction.steps and transaction.answer_by_ns <= now_ns:
                self._release(transaction)
            waits = transaction.reply is not None and transaction.phase is not TransactionPhase.ACTIVE
            if waits and transaction.answer_by_ns <= now_ns:
                self._answer(
                    transaction,
                    TransactionFate.UNKNOWN,
                    f"some partition cannot be reached; the transaction is {transaction.phase.value}, and will "
                    "be done whole or not at all",
                )
        if self._running:
            self._watch()

    def _map_again(self) -> None:
        """Whoever was sent back begins anew, when this member knows of the change."""
        for one, (partition, row) in list(self._unmapped.items()):
            transaction = self._running.get(one)
            if transaction is None or transaction.operation is None:
                del self._unmapped[one]
            elif self._mapping.knows(partition, row):
                del self._unmapped[one]
                self._operate(transaction)
        if self._unmapped:
            self._steps.wake(REMAP_NS)

    def _late(self, transaction: Transaction, now_ns: int) -> None:
        if now_ns < transaction.answer_by_ns:
            self._prepare(transaction)
        elif self._alone(transaction):
            self._doubtful(
                transaction, "nobody can say whether it was committed: its partition did not answer"
            )
        else:
            # Some branch has not said whether it is prepared: the branches decide (transactions/F-1).
            for ticket in transaction.steps:
                self._steps.drop(ticket)
                del self._of_ticket[ticket]
            transaction.steps.clear()
            transaction.phase = TransactionPhase.IN_DOUBT
            self._finishing.ask(transaction.id, self._me, transaction.participants)

    def removed(self) -> None:
        """This member is in no cluster any more: the others end what it has begun."""
        why = "the member that ran it was removed from its cluster"
        for transaction in list(self._running.values()):
            fate = (
                TransactionFate.ROLLED_BACK
                if transaction.phase is TransactionPhase.ACTIVE
                else TransactionFate.UNKNOWN
            )
            for reply in [transaction.reply, *(reply for _, reply in transaction.queue)]:
                if reply is not None:
                    reply(TransactionAnswer(fate, why=why))
            transaction.why = why
            self._end(transaction)
        for ticket in self._of_ticket:
            self._steps.drop(ticket)
        self._of_ticket.clear()


def _is_prepared(result: StepResult | None) -> bool:
    """Whether a partition says that its branch is prepared."""
    return result is not None and result.fate is StepFate.DONE


def _rollback_reason(result: StepResult | None, outcome: Outcome) -> str:
    if result is None:
        return f"it could not be prepared: {outcome.detail or outcome.status.name}"
    match result.fate:
        case StepFate.CHANGED:
            return f"an entry of map {result.why!r} that it has read was changed by somebody else"
        case StepFate.LOCKED:
            return f"transaction {result.holder.hex()} has locked an entry that it has read or written"
        case StepFate.NOT_HELD:
            return "it does not hold its locks any more: a partition was lost, or its time was over"
        case fate:
            return f"it could not be prepared: {fate.name} {result.why}".rstrip()


__all__ = ["Coordinator", "Transaction", "TransactionPhase"]
