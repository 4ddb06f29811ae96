"""Operations of a transaction before it ends: reads, locks and writes, one after the other (I3).

Operations that come while one is in progress are queued; their locks and values are requested at once (`locks_ahead`).

- transactions/C-1: A pessimistic transaction locks an entry before it changes it, and reads it under the lock.
- transactions/C-2: An optimistic transaction locks nothing. The values that it has read must be unchanged when it is
  prepared.
"""

from __future__ import annotations

import msgspec

from holdfast.config import INTERNAL, Settings
from holdfast.core.collections.ordered_steps import StepRefused
from holdfast.core.model.collections import (
    collection_of,
    is_in_one_partition,
    is_multimap,
    partition_of_name,
)
from holdfast.core.model.ids import MILLISECOND, PartitionId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import (
    COLLECTION_STEPS,
    DEFAULT_TTL,
    WHOLE,
    Op,
    Outcome,
    Request,
    Status,
    Value,
)
from holdfast.core.model.transaction_orders import OperateIn, TransactionAnswer, TransactionFate
from holdfast.core.model.transactions import (
    KEYS_MAX,
    BranchPlace,
    EntryKey,
    LockKeys,
    StepFate,
    TransactionId,
    holder_shown,
    split_place,
)
from holdfast.core.outbox import Outbox, Reply
from holdfast.core.transactions.branch_routing import BranchRouting
from holdfast.core.transactions.collection_operations import CollectionOperations, step_problem_in
from holdfast.core.transactions.locks_ahead import LocksAhead, OperationNeed, need_of
from holdfast.core.transactions.mapping import Mapping
from holdfast.core.transactions.own_writes import KEYED, WHOLE_IN, change_in, multimap_size_in, whole_in
from holdfast.core.transactions.running_transactions import ENTRY_BYTES, RunningTransactions
from holdfast.core.transactions.steps import REMAP_NS, Steps, result_of
from holdfast.core.transactions.transaction import CollectionStage, TouchedEntry, Transaction
from holdfast.core.transactions.two_phase_commit import TwoPhaseCommit


class TransactionOperations:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        steps: Steps,
        mapping: Mapping,
        running: RunningTransactions,
        commits: TwoPhaseCommit,
        routing: BranchRouting,
    ) -> None:
        self._settings = settings
        self._out = out
        self._steps = steps
        self._mapping = mapping
        self._running = running
        self._commits = commits
        self._routing = routing
        self._unmapped: dict[TransactionId, tuple[int, int]] = {}
        """They wait for a newer assignment of a partition before they request their first lock again."""
        self._partitions = list(range(settings.partitions.count))
        self._ahead = LocksAhead(steps, mapping, running, commits)
        self._collections = CollectionOperations(settings, out, steps, running, self)

    def operate(self, order: OperateIn, reply: Reply) -> None:
        """Operations that come in between are queued."""
        transaction = self._running.active(order.transaction, reply)
        if transaction is None:
            return
        if transaction.operation is not None:
            transaction.queue.append((order, reply))
            if not is_in_one_partition(order.request.map) and not self._problem(transaction, order.request):
                self._ahead.ask(transaction, order, self.place(order.request), self)
            return
        transaction.operation, transaction.reply = order, reply
        self._operate(transaction)

    def _operate(self, transaction: Transaction) -> None:
        """Ask a partition first where that is needed."""
        order = transaction.operation
        assert order is not None, "an operation is in progress"
        request = order.request
        if why := self._problem(transaction, request):
            self.refuse(transaction, why)
        elif request.op in WHOLE:
            self._whole(transaction, request)
        elif is_in_one_partition(request.map):
            self._collections.operate(transaction, request)
        else:
            self._keyed(transaction, order)

    def _problem(self, transaction: Transaction, request: Request) -> str:
        if why := self.request_problem(request) or self.map_problem(request.map):
            return why
        return "" if request.op in WHOLE else self.size_problem(transaction, request)

    def map_problem(self, name: str) -> str:
        """Why no transaction may read or change the map; empty: it may. All requests of transactions pass here, before
        anything of theirs is carried out.
        """
        chosen = self._settings.map(name)
        if collection_of(name) is not None:
            return self._collections.problem(name)
        if name.startswith(INTERNAL):
            why = "it is Holdfast's own"
        elif not chosen.transactional:
            why = f"maps.{name}.transactional (or maps.default.transactional) is false"
        elif chosen.raft_zone:
            why = self._routing.zone_problem(chosen.raft_zone)
        else:
            return ""
        if not why:
            return ""
        return f"the map {name!r} takes no part in transactions: {why}"

    def request_problem(self, request: Request) -> str:
        """Why no transaction can do this; empty: one can."""
        limits = self._settings.limits
        if request.op in COLLECTION_STEPS:
            if why := step_problem_in(request):
                return why
        elif request.op not in KEYED and request.op not in WHOLE_IN:
            return f"{request.op.name} is not done in a transaction"
        if len(request.key) > limits.key_bytes:
            return f"the key has {len(request.key)} bytes; limits.key_bytes is {limits.key_bytes}"
        if len(request.value) > limits.value_bytes:
            return f"the value has {len(request.value)} bytes; limits.value_bytes is {limits.value_bytes}"
        there = self._partitions if request.op in WHOLE_IN else [self._partition(request)]
        refused = self._steps.rejection(msgspec.structs.replace(request, partitions=there))
        return f"{refused.status.name}: {refused.detail}" if refused is not None else ""

    def size_problem(self, transaction: Transaction, request: Request) -> str:
        """See transactions/C-6; empty: none."""
        size = ENTRY_BYTES + len(request.key) + len(request.value) + sum(map(len, request.items))
        limits = self._settings.limits
        if len(transaction.entries) >= KEYS_MAX:
            return f"a transaction touches at most {KEYS_MAX} entries"
        if transaction.size + size > limits.frame_bytes:
            return f"a transaction keeps at most {limits.frame_bytes} bytes (limits.frame_bytes)"
        most = self._running.size_most
        if self._running.size + size > most:
            return f"the transactions of this member keep {most} bytes already (limits.waiting_bytes)"
        return ""

    # -- for operations on collections as well

    def refuse(self, transaction: Transaction, why: str) -> None:
        order = transaction.operation
        assert order is not None, "an operation is in progress"
        # A later operation does not see a value that was read for this one.
        transaction.ahead.pop((order.request.map, order.request.key), None)
        self.reply(transaction, TransactionAnswer(TransactionFate.NOT_DONE, why=why))

    def reply(self, transaction: Transaction, answer: TransactionAnswer) -> None:
        reply, transaction.reply, transaction.operation = transaction.reply, None, None
        transaction.stage, transaction.waits_until_ns = CollectionStage.NONE, 0
        assert reply is not None, "the operation has a caller"
        reply(answer)
        if transaction.queue:
            transaction.operation, transaction.reply = transaction.queue.popleft()
            self._operate(transaction)

    def place(self, request: Request) -> BranchPlace:
        """Where the entry of a keyed request is, or the collection of a step."""
        return self._mapping.place(request.map, self._partition(request))

    def _partition(self, request: Request) -> PartitionId:
        count = self._settings.partitions.count
        if (named := collection_of(request.map)) is not None and not named[0].is_spread:
            return partition_of_name(named[1], count)
        return partition_of(request.key, request.key_hash, count)

    def _keyed(self, transaction: Transaction, order: OperateIn) -> None:
        request = order.request
        place = (request.map, request.key)
        entry = transaction.entries.get(place)
        if entry is None:
            entry = TouchedEntry(self.place(request))
        need = need_of(transaction, order)
        if need is OperationNeed.NOTHING:
            self._carry_out(transaction, entry)
        elif self._ahead.is_open(transaction, place, need):
            transaction.awaits = place
        elif need is OperationNeed.LOCK:
            self.lock(transaction, place, entry)
        elif (ahead := transaction.ahead.pop(place, None)) is not None:
            self._carry_out(transaction, TouchedEntry(entry.partition, known=True, value=ahead.value))
        else:
            self._read(transaction, entry)

    def _carry_out(self, transaction: Transaction, entry: TouchedEntry) -> None:
        order = transaction.operation
        assert order is not None, "an operation is in progress"
        request = order.request
        place = (request.map, request.key)
        refused, answer, write = "", None, None
        try:
            answer, write = change_in(request, entry.present, self.lifetimes(request))
        except StepRefused as error:
            refused = str(error)
        if write is not None:
            self._running.grow(
                transaction, len(write.value or b"") - len((entry.write and entry.write.value) or b"")
            )
            entry.write = write
        if (entry.locked or transaction.optimistic) and transaction.entries.get(place) is not entry:
            self._running.grow(transaction, ENTRY_BYTES + len(place[1]) + len(entry.value or b""))
            transaction.entries[place] = entry
        if refused:
            self.refuse(transaction, refused)
        else:
            self.reply(transaction, TransactionAnswer(TransactionFate.DONE, answer))

    def lifetimes(self, request: Request) -> tuple[int, int]:
        ttl_ms, idle_ms = self._settings.map(request.map).lifetimes
        return (
            ttl_ms if request.ttl_ms == DEFAULT_TTL else request.ttl_ms,
            idle_ms if request.max_idle_ms == DEFAULT_TTL else request.max_idle_ms,
        )

    def lock(self, transaction: Transaction, place: EntryKey, entry: TouchedEntry) -> None:
        left_ms = (transaction.deadline_ns - self._out.now_ns) // MILLISECOND
        wait_ms = max(1, min(self._settings.transactions.lock_wait_ms, left_ms))
        transaction.locking, transaction.lock_wait_ms = entry.partition, wait_ms
        mapped = transaction.map_by(self._mapping, entry.partition)
        step = LockKeys(transaction.id, self._running.me, [place], wait_ms, mapped)
        self.expect(transaction, self._steps.send(step, entry.partition, self))

    def _read(self, transaction: Transaction, entry: TouchedEntry) -> None:
        order = transaction.operation
        assert order is not None, "an operation is in progress"
        request = order.request
        _, partition = split_place(entry.partition)
        read = Request(Op.GET, request.map, [partition], key=request.key, key_hash=request.key_hash)
        self.expect(transaction, self._steps.ask(read, self))

    def _whole(self, transaction: Transaction, request: Request) -> None:
        op = Op.ENTRIES if request.op in (Op.VALUES, Op.ENTRIES, Op.CONTAINS_VALUE) else Op.KEYS
        if is_multimap(request.map):
            op = Op.SIZE
        self.expect(transaction, self._steps.ask(Request(op, request.map, self._partitions), self))

    def expect(self, transaction: Transaction, ticket: int) -> None:
        transaction.ticket = ticket
        self._running.of_ticket[ticket] = transaction

    def on_outcome(self, ticket: int, outcome: Outcome) -> None:
        transaction = self._running.of_ticket.pop(ticket)
        if ticket in transaction.ahead_of:
            place = self._ahead.answered(transaction, ticket, outcome)
            if transaction.awaits == place and transaction.operation is not None:
                transaction.awaits = None
                self._operate(transaction)
            return
        assert ticket == transaction.ticket, "one operation at a time"
        self._on_answer(transaction, outcome)

    def _on_answer(self, transaction: Transaction, outcome: Outcome) -> None:
        order = transaction.operation
        assert order is not None, "an operation is in progress"
        request = order.request
        if transaction.locking >= 0:
            self._locked(transaction, request, outcome)
        elif outcome.status is not Status.OK:
            self.refuse(transaction, outcome.detail or outcome.status.name)
        elif is_in_one_partition(request.map):
            self._collections.on_answer(transaction, request, outcome.value)
        elif request.op in WHOLE:
            written = [
                each for (name, _), each in transaction.entries.items() if name == request.map and each.write
            ]
            if is_multimap(request.map):
                found: Value = multimap_size_in(outcome.value, written)
            else:
                found = whole_in(request, outcome.value, [each.write for each in written if each.write])
            self.reply(transaction, TransactionAnswer(TransactionFate.DONE, found))
        else:
            value = outcome.value
            assert value is None or isinstance(value, bytes), "an entry is bytes, or none"
            self._carry_out(transaction, TouchedEntry(self.place(request), known=True, value=value))

    def _locked(self, transaction: Transaction, request: Request, outcome: Outcome) -> None:
        result = result_of(outcome)
        partition = transaction.locking
        if result is not None and result.fate is StepFate.DONE:
            transaction.locking = -1
            transaction.holds = True
            entry = TouchedEntry(partition, locked=True, value=result.values[0])
            if is_in_one_partition(request.map):
                self._collections.locked(transaction, request, entry)
            else:
                self._carry_out(transaction, entry)
            return
        if result is not None and result.fate is StepFate.REMAP:
            # It holds nothing there. The operation starts again when this member knows the partition's new primary.
            transaction.locking = -1
            self._unmapped[transaction.id] = partition, result.row
            self._steps.wake(REMAP_NS)
            return
        if result is None:
            why = f"an entry could not be locked: {outcome.detail or outcome.status.name}"
        elif result.fate is StepFate.LOCKED:
            wait_ms = transaction.lock_wait_ms
            is_whole = wait_ms == self._settings.transactions.lock_wait_ms
            limit = "transactions.lock_wait_ms" if is_whole else "the rest of this transaction's timeout"
            why = f"{holder_shown(result.holder)} held a lock for longer than {wait_ms} ms ({limit})"
        else:
            why = f"an entry could not be locked: {result.fate.name} {result.why}".rstrip()
        self._commits.give_up(transaction, why)

    def map_again(self) -> None:
        """Start operations that were sent back again, if this member knows the newer assignment by now."""
        for one, (partition, row) in list(self._unmapped.items()):
            transaction = self._running.by_id.get(one)
            if transaction is None or transaction.operation is None:
                del self._unmapped[one]
            elif self._mapping.knows(partition, row):
                del self._unmapped[one]
                self._operate(transaction)
        if self._unmapped:
            self._steps.wake(REMAP_NS)
