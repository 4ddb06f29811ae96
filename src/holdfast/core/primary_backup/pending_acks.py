"""Pending acknowledgements: batches of records that wait for backups (H8; DESIGN rule 2).

`flush` sends the records of all ended read buffers as one message to each backup. Buffers that wait for the same
members share a batch. Its callers are answered when every sync backup, and the destination of a running migration, has
acknowledged it.

- primary_backup/P-1: A batch is done when, for each of its partitions, every member that the *present* assignment wants
  has acknowledged it (`assignment_changes`). Example: primary 1 has update 18 and its sync backup 2 has not. If 1
  answered the client now and crashed, an acknowledged write would be lost.
- primary_backup/P-4: Writes to a map with journal = "sync" are durable here, too, before they are acknowledged.
- primary_backup/P-5: A write that is not acknowledged after `replication.backup_timeout_ms` has an unknown outcome and
  is reported as unknown, with the reason. The batch stays until all hold it, so that the copies become equal.
- primary_backup/P-6: The bytes that are kept for backups are bounded (`backlog`).
- primary_backup/P-7: An answer that changed nothing (a remove that finds nothing, a compare that fails) waits for a
  *read barrier*: until all writes that it may have seen are acknowledged, and every sync backup has confirmed, after
  the answer was made, that it still follows this primary. Reads of maps with `reads = "confirmed"` wait, too.

Why a read needs the barrier: primary 1 is cut off from members 2 and 3, which evict it. Member 2 becomes primary and
acknowledges update 18. Member 1 would still answer a read with update 17. It asks its sync backup 2 first, with an
empty section at its version. Member 2 is at a newer version and does not acknowledge (primary_backup/B-1), so the read
times out. This needs no clock: the next primary is one of the sync backups, or was filled by one that had learnt the
new assignment. If all of them confirm after the answer was made, no newer primary existed then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice

from holdfast.config import Settings
from holdfast.core.journal.log import Log
from holdfast.core.messages import Ack, Replicate, Replicated, Section
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.levels import PACKED
from holdfast.core.model.notices import PartitionDrained
from holdfast.core.model.open_operations import Followed, OpenOperation
from holdfast.core.model.records import Puts, Record, Recorded, as_puts, one_by_one
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.primary_backup.ack_batch import (
    NO_MEMBERS,
    AckBatch,
    Completion,
    Written,
    by_map,
    when_all_done,
)
from holdfast.core.primary_backup.backlog import RECORD_BYTES, Backlog
from holdfast.core.primary_backup.client_acks import ClientAcks
from holdfast.core.primary_backup.packed_puts_cy import PackedPuts, Sections
from holdfast.core.primary_backup.replication_targets import ReplicationTargets
from holdfast.core.store.replica import AnyReplica, MapReplica
from holdfast.core.store.request_ids import id_of

LOOKS = 8
"""Checks for late backups within `replication.backup_timeout_ms`; at least one every half second."""
LOOKED_AT = 300
"""The search for slow operations examines this number of batches, the oldest ones."""
FRESH = 4
"""One search describes this number of batches that have no description yet: that takes time for every record."""
LOST_OFFICE = "this member lost the partition before its backups had acknowledged"
LOOK_MIN_NS, LOOK_MAX_NS = 1 * MILLISECOND, 500 * MILLISECOND
PendingReads = dict[tuple[int, str], AnyReplica | None]
"""Partitions and maps that answers of a buffer have read without changing them."""


class _Leaving:
    __slots__ = ("stored", "to", "written")

    def __init__(self) -> None:
        self.to: dict[str, Sections] = {}
        self.written: dict[int, list[Record]] = {}
        self.stored: list[tuple[int, int, Puts]] = []


class PendingAcks:
    """Updates of this member as primary that are not acknowledged by all backups."""

    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        log: Log,
        targets: ReplicationTargets,
        ack_clients: ClientAcks | None = None,
        puts: PackedPuts = packed_puts_cy,
    ) -> None:
        """`ack_clients`: clients that collect acknowledgements of backups themselves; None: none do."""
        self._puts = puts
        self.are_sound = puts.are_sound if puts is not packed_puts_cy else None
        """Compiled code that checks packed stores of other members; None: there is none."""
        self._out = out
        self._log = log
        self._targets = targets
        self._barrier: AckBatch | None = None
        """Barrier of this turn: all its answers share one batch."""
        self._barriers: dict[int, AckBatch] = {}
        """The youngest open barrier of each partition."""
        self._turn_began = 0
        """Number of the last batch of the previous turn."""
        self.unsent: list[Written] = []
        """Updates since the last flush; those of each map and partition in the order of the writes."""
        self.unsent_puts: list[MapReplica] = []
        """Replicas whose packed puts follow `unsent`."""
        self._settled = False
        """Whether some of these updates may be in no batch."""
        self._joinable: dict[tuple[str, ...], AckBatch] = {}
        """Batches that further buffers may join until the next flush, by the members that they go to."""
        self.unsent_batches: list[int] = []
        self._number = 0
        self._waiting: dict[int, AckBatch] = {}
        self._of_partition: dict[int, dict[int, AckBatch]] = {}
        self._tail_bytes = settings.replication.tail_bytes
        self.backlog = Backlog(settings.limits, out)
        self._answering: deque[tuple[list[Completion], bool, str]] = deque()
        """Callbacks that are running, and those to be called next, with `known` and the reason."""
        self.unknown_because = ""
        self.ack_clients = ack_clients
        self._acks: dict[str, list[Ack]] = {}
        """By backup: clients to be notified about buffers since the last flush."""
        self.acks = 0
        self._timeout_ns = settings.replication.backup_timeout_ms * MILLISECOND
        self._look_ns = max(LOOK_MIN_NS, min(LOOK_MAX_NS, self._timeout_ns // LOOKS))
        self._timer = False

    # -- a buffer ends

    def settle(self, records: list[Written], puts: list[MapReplica]) -> bool:
        """End a read buffer if its responses need not wait for its updates. Otherwise do nothing, and return False."""
        for held in puts:
            if held.targets or held.journal == "sync":
                return False
        for _, of, _ in records:
            if of.targets or of.journal == "sync":
                return False
        self._settled = True
        self.unsent += records
        if puts:
            self._puts.settle(puts, self.unsent_puts)
        return True

    def end_puts(self, puts: list[MapReplica]) -> AckBatch | bool:
        """End a read buffer of stored entries, if all of them are for the same members. Returns the batch that it has
        joined, which gets the callback; True: its responses need not wait; False: nothing was done.
        """
        targets = self._puts.targets_of(puts)
        if targets is None:
            return False
        if not targets:
            self._settled = True
            self._puts.settle(puts, self.unsent_puts)
            return True
        batch = self._joinable.get(targets) or self._begin(targets)
        backlog = self.backlog
        size = self._puts.close(batch, puts, self._of_partition, self.unsent_puts, backlog.slow)
        batch.size += size
        backlog.bytes += size
        if backlog.bytes > backlog.most:
            backlog.grown()
        return batch if batch.need or batch.slow_async or not batch.on_disk else True

    def close_batch(
        self, records: list[Written], puts: list[MapReplica], reads: PendingReads, done: Completion
    ) -> None:
        """`done` is called when every sync backup holds these records and puts, and has confirmed what the responses in
        `reads` have read.
        """
        if records:
            self.unsent += records
        barrier = self._add_barrier(reads) if reads else None
        if not records and not puts:
            if barrier is None:
                done(True)
            else:
                barrier.callbacks.append(done)
            return
        targets = (puts[0] if puts else records[0][1]).targets
        if len(records) + len(puts) > 1:
            several = {held.targets for held in puts}
            if records:
                several.update([held.targets for _, held, _ in records])
            if len(several) > 1:
                targets = tuple(sorted(NO_MEMBERS.union(*several)))
        batch = self._joinable.get(targets) or self._begin(targets)
        size = self._add_records(batch, records) if records else 0
        if puts:
            size += self._puts.close(batch, puts, self._of_partition, self.unsent_puts, self.backlog.slow)
        batch.size += size
        backlog = self.backlog
        backlog.bytes += size
        if backlog.bytes > backlog.most:
            backlog.grown()
        held_up = batch.need or batch.slow_async or not batch.on_disk
        if barrier is not None:
            when_all_done([barrier, batch] if held_up else [barrier], done, self._out.now_ns)
        elif held_up:
            batch.callbacks.append(done)
        else:
            done(True)

    def _add_records(self, batch: AckBatch, records: list[Written]) -> int:
        slow, parts = self.backlog.slow, batch.records
        size = 0
        for partition, held, update in records:
            if isinstance(update, Puts):
                size += RECORD_BYTES * update.count + len(update.data)
            else:
                size += RECORD_BYTES + len(update.key) + len(update.value)
                if held.changes:
                    size += len(update.old or b"")
            part = parts.get(partition)
            if part is None:
                parts[partition] = [(held, update)]
                self._of_partition.setdefault(partition, {})[batch.number] = batch
            else:
                waited = bool(part) and part[-1][0] is held
                part.append((held, update))
                if waited:
                    # Nothing was sent yet, so the batch already waits for all members that get records of this replica.
                    continue
            batch.wait_for(partition, held, slow)
            if held.journal == "sync" and batch.on_disk:
                batch.wait_for_disk()
        return size

    def _take_puts(self) -> None:
        puts, self.unsent_puts = self.unsent_puts, []
        unsent = self.unsent
        for held in puts:
            each = held.unsent
            assert each is not None, "a replica with unsent puts has a buffer"
            taken = each.take_closed(held, held.updates.hwm)
            if taken is not None:
                unsent.append((each.partition, held, taken))

    def _add_barrier(self, reads: PendingReads) -> AckBatch | None:
        """Returns the read barrier that confirms these reads, if one is needed. All responses of a turn share one. For
        each partition it follows the youngest earlier barrier and the batches since, so the number of links does not
        grow with the number of open batches.
        """
        barrier = self._barrier
        asked: list[tuple[int, str, frozenset[str]]] = []
        links: list[AckBatch] = []
        waits = durable = False
        for (partition, name), held in reads.items():
            before = self._barriers.get(partition)
            since = before.since if before is not None else 0
            if before is not None and before is not barrier:
                links.append(before)
            for batch in reversed(self._of_partition.get(partition, {}).values()):
                if batch.number <= since:
                    break
                if batch.open and not batch.pending_reads:
                    links.append(batch)
            sync = held.sync if held is not None else self._targets.confirming(partition, name)
            asked.append((partition, name, sync))
            waits = waits or bool(sync)
            # Updates applied here as a backup may not be on this disk yet.
            durable = durable or (held is not None and held.journal == "sync")
        if not waits and not durable and not links:
            return None
        if barrier is None:
            self._number += 1
            barrier = self._barrier = self._waiting[self._number] = AckBatch(self._number, self._out.now_ns)
            barrier.since = self._turn_began
            self.unsent_batches.append(self._number)
        assert barrier.number in self._waiting, "the read barrier is open"
        assert barrier.number > barrier.since, "the read barrier is of this turn"
        if durable:
            barrier.wait_for_disk()
        for partition, name, sync in asked:
            barrier.add_read(partition, name, sync)
            barrier.records.setdefault(partition, [])
            self._of_partition.setdefault(partition, {})[barrier.number] = barrier
            self._barriers[partition] = barrier
        for batch in links:
            self._link(barrier, batch)
        size = RECORD_BYTES * len(asked)
        barrier.size += size
        self.backlog.bytes += size
        if self.backlog.bytes > self.backlog.most:
            self.backlog.grown()
        return barrier

    def _link(self, barrier: AckBatch, batch: AckBatch) -> None:
        """Let the barrier wait for this batch, whose records its answers may have seen."""
        if batch.number in barrier.links:
            return
        assert batch.number != barrier.number, "a read barrier does not wait for itself"
        assert batch.open, "a read barrier waits for open batches only"
        barrier.links.add(batch.number)
        barrier.open_links += 1

        def linked_done(known: bool) -> None:
            if barrier.number in self._waiting:
                barrier.open_links -= 1
                assert barrier.open_links >= 0, "each batch ends once"
                if known:
                    self.look(barrier)
                else:
                    self._unconfirmed(barrier, self.unknown_because)

        when_all_done([batch], linked_done, self._out.now_ns)

    def _unconfirmed(self, barrier: AckBatch, why: str) -> None:
        """End a barrier that could not be confirmed; it has no records to deliver."""
        self._answer(barrier, known=False, why=why)
        if barrier.number in self._waiting:
            barrier.need.clear()
            self._finish(barrier)

    def close_batch_for(
        self,
        records: list[Written],
        puts: list[MapReplica],
        reads: PendingReads,
        done: Completion,
        client: bytes,
        correlations: list[int],
    ) -> None:
        backups: dict[str, set[int]] = {}
        places = [(partition, held) for partition, held, _ in records]
        places += [(held.unsent.partition, held) for held in puts if held.unsent is not None]
        for partition, held in places:
            for member in held.sync:
                backups.setdefault(member, set()).add(partition)
        durable = any(held.journal == "sync" for _, held in places)
        ack_clients = self.ack_clients
        if ack_clients is None or not backups or durable or reads or not ack_clients.reached(client, backups):
            self.close_batch(records, puts, reads, done)
            return
        self.close_batch(records, puts, reads, lambda known: None)
        for member, partitions in backups.items():
            self._acks.setdefault(member, []).append(Ack(client, correlations, sorted(partitions)))
        self.acks = len(backups)
        done(True)
        self.acks = 0

    def _begin(self, targets: tuple[str, ...]) -> AckBatch:
        self._number += 1
        assert self._number not in self._waiting, "a number names one batch"
        batch = AckBatch(self._number, self._out.now_ns)
        self._joinable[targets] = self._waiting[self._number] = batch
        self.unsent_batches.append(self._number)
        return batch

    def flush(self) -> None:
        self._barrier, self._turn_began = None, self._number
        self._settled = False
        leaving = _Leaving()
        if self.unsent_puts:
            if not self.unsent and self._out.does(PACKED):
                targets = self._targets
                self.unsent_puts = self._puts.lay_out(
                    self.unsent_puts,
                    targets.rows,
                    targets.terms,
                    self._tail_bytes,
                    leaving.to,
                    leaving.stored,
                )
            if self.unsent_puts:
                self._take_puts()
        if not self.unsent and not self.unsent_batches and not leaving.stored:
            return
        records, self.unsent = self.unsent, []
        numbers, self.unsent_batches = self.unsent_batches, []
        rows, terms = self._targets.rows, self._targets.terms
        self._joinable.clear()
        if records:
            self._lay_out(records, leaving)
        batches = [batch for number in numbers if (batch := self._waiting.get(number)) is not None]
        for batch in batches:
            for partition in batch.pending_reads:
                for target, waited in batch.need.items():
                    if partition in waited:
                        # An empty section: a backup that still follows this primary acknowledges it.
                        leaving.to.setdefault(target, {}).setdefault(
                            partition, Section(partition, rows[partition].version, [], terms[partition])
                        )
        for target, sections in leaving.to.items():
            message = Replicate(numbers, list(sections.values()), self._acks.get(target, []))
            self._out.send(MemberId(target), message)
        self._acks.clear()
        durable = any(not batch.on_disk for batch in batches)
        for partition, part in leaving.written.items():
            self._log.wrote(partition, terms[partition], part, urgent=durable)
        if leaving.stored:
            self._log.stored(leaving.stored, urgent=durable)
        if durable:
            self._log.when_durable(lambda: self._on_disk(batches))
        for batch in batches:
            if batch.number in self._waiting:
                self.look(batch)
        if self._waiting and not self._timer:
            self._timer = True
            self._out.timer(TimerName.BACKUPS, self._look_ns)

    def _lay_out(self, records: list[Written], leaving: _Leaving) -> None:
        rows, terms, limit = self._targets.rows, self._targets.terms, self._tail_bytes
        packs = self._out.does(PACKED)
        for (partition, held), part in by_map(records).items():
            term = terms[partition]
            puts, rest = _together(part, packed=packs and not held.changes)
            if puts is not None:
                held.keep_puts(term, puts, limit)
            else:
                held.keep(term, rest, held.changes or limit)
            held.state.settle()
            if held.journal != "off":
                if puts is not None:
                    leaving.stored.append((partition, term, puts))
                else:
                    leaving.written.setdefault(partition, []).extend(rest)
            for target in held.targets:
                sections = leaving.to.get(target)
                if sections is None:
                    sections = leaving.to[target] = {}
                section = sections.get(partition)
                if section is not None:
                    section.records.extend(rest)
                    if puts is not None:
                        section.puts.append(puts)
                else:
                    version = rows[partition].version
                    sections[partition] = Section(
                        partition, version, rest.copy(), term, [] if puts is None else [puts]
                    )

    def on_timer(self) -> None:
        """Report unknown outcomes (primary_backup/P-5)."""
        self._timer = False
        asked_before_ns = self._out.now_ns - self._timeout_ns
        overdue = [batch for batch in self._waiting.values() if batch.asked_ns <= asked_before_ns]
        for batch in overdue:
            if (batch.callbacks or batch.slow_async) and batch.number in self._waiting:
                self._overdue(batch)
        if overdue:
            self.backlog.refuse()
        if self._waiting:
            self._timer = True
            self._out.timer(TimerName.BACKUPS, self._look_ns)

    def _overdue(self, batch: AckBatch) -> None:
        for member, partitions in batch.slow_async.items():
            # Callers were never promised that an async backup holds their writes.
            batch.late.setdefault(member, set()).update(partitions)
        batch.slow_async.clear()
        self._charge(batch)
        if batch.open:
            why = f"not acknowledged within {self._timeout_ns / SECOND:g} s: {batch.missing()}"
            if batch.pending_reads:
                self._unconfirmed(batch, why)
            else:
                self._answer(batch, known=False, why=why)
        else:
            self.look(batch)

    def _answer(self, batch: AckBatch, *, known: bool, why: str = "") -> None:
        """Call the callbacks of a batch. A callback may finish another batch, and so on in a chain of any length, so
        the callbacks of that batch are queued.
        """
        callbacks, batch.callbacks = batch.callbacks, []
        if not callbacks:
            return
        self._joinable.clear()
        answering = self._answering
        answering.append((callbacks, known, why))
        if len(answering) > 1:
            return
        try:
            while answering:
                callbacks, known, self.unknown_because = answering[0]
                for done in callbacks:
                    done(known)
                answering.popleft()
        finally:
            answering.clear()

    def _charge(self, batch: AckBatch) -> None:
        """Count the batch in the backlog of exactly those async backups that do not hold it yet."""
        members = tuple(batch.late) if batch.number in self._waiting else ()
        if members != batch.charged:
            for member in batch.charged:
                self.backlog.late(member, -batch.size)
            for member in members:
                self.backlog.late(member, batch.size)
            batch.charged = members

    def _on_disk(self, batches: list[AckBatch]) -> None:
        for batch in batches:
            batch.on_disk = True
            if batch.number in self._waiting:
                self.look(batch)

    def on_replicated(self, sender: MemberId, message: Replicated) -> None:
        for number in message.batches:
            batch = self._waiting.get(number)
            if batch is None:
                continue
            for waits in (batch.need, batch.slow_async, batch.late):
                parts = waits.get(sender)
                if parts is not None:
                    parts.difference_update(message.partitions)
                    if not parts:
                        del waits[sender]
            self.look(batch)

    def look(self, batch: AckBatch) -> None:
        """Answer the callers of a batch that has the acknowledgements they need; end it if it has all."""
        if batch.late or batch.charged:
            self._charge(batch)
        if batch.need or batch.slow_async or not batch.on_disk or batch.open_links:
            return
        if batch.callbacks:
            self._answer(batch, known=True)
        if not batch.late and batch.number in self._waiting:
            self._finish(batch)

    def _finish(self, batch: AckBatch) -> None:
        if self._barrier is batch:
            self._barrier = None
        assert not batch.callbacks, "no caller waits for an ended batch"
        assert not batch.need and not batch.slow_async, "an ended batch waits for no backup"
        self._joinable.clear()
        del self._waiting[batch.number]
        if batch.charged:
            self._charge(batch)
        backlog = self.backlog
        backlog.bytes -= batch.size
        assert backlog.bytes >= 0, "only counted bytes are released (primary_backup/P-6)"
        if backlog.crowded:
            backlog.eased()
        for partition in batch.pending_reads:
            self._drop_barrier(partition, batch)
        assert not batch.charged, "an ended batch is in no backlog"
        number, of_partitions = batch.number, self._of_partition
        empty: list[int] = []
        for partition in batch.records:
            of_partition = of_partitions[partition]
            del of_partition[number]
            if not of_partition:
                del of_partitions[partition]
                empty.append(partition)
        for partition in empty:
            self.drained(partition)

    def drained(self, partition: int) -> None:
        """No batch of the partition is open any more; a handover may wait for that."""
        assert partition not in self._of_partition, "no batch of the partition is open"
        if partition in self._targets.joining:
            self._out.notify(PartitionDrained(partition))

    def _drop_barrier(self, partition: int, batch: AckBatch) -> None:
        if self._barriers.get(partition) is batch:
            del self._barriers[partition]

    # -- assignments change

    def to_resend(self, partition: int) -> list[AckBatch]:
        """The open batches of a partition whose assignment has changed. No buffer joins them any more."""
        if self._settled:
            self._add_settled(partition)
        batches = list(self._of_partition.get(partition, {}).values())
        if batches:
            self._take_puts()
            self._joinable.clear()
        return batches

    def _add_settled(self, partition: int) -> None:
        """Put the unsent updates of a partition into a batch, also settled ones.

        Example: update 18 of a map without backups is settled, and a backup joins before the turn ends. Resent batches
        with update 19 must not reach it before update 18 does.
        """
        self._take_puts()
        unsent = [(held, update) for of, held, update in self.unsent if of == partition]
        if unsent:
            batch = self._begin(())
            batch.records[partition] = unsent
            self._of_partition.setdefault(partition, {})[batch.number] = batch

    def abandon(self, partition: int) -> None:
        """Report unknown outcomes, because this member is no longer the primary (primary_backup/P-3). Other partitions
        of its batches keep waiting.
        """
        for batch in list(self._of_partition.get(partition, {}).values()):
            self._answer(batch, known=False, why=LOST_OFFICE)
            if batch.number not in self._waiting:
                continue  # A read barrier that followed an abandoned batch, and is answered.
            batch.forget(partition)
            if batch.pending_reads.pop(partition, None) is not None:
                self._drop_barrier(partition, batch)
            del batch.records[partition], self._of_partition[partition][batch.number]
            self.look(batch)
        assert not self._of_partition.get(partition), "no batch of the partition is open (primary_backup/P-3)"
        if self._of_partition.pop(partition, None) is not None:
            self.drained(partition)

    def when_held(self, partition: int, request_id: bytes, done: Completion) -> None:
        """Call `done` when the records of an earlier request are acknowledged."""
        for batch in self._of_partition.get(partition, {}).values():
            if (batch.need or batch.slow_async or not batch.on_disk) and any(
                isinstance(update, Record) and id_of(update.request) == request_id
                for _, update in batch.records[partition]
            ):
                batch.callbacks.append(done)
                batch.asked_ns = self._out.now_ns
                return
        # This member may have applied it as a backup, and its disk may not have it yet.
        self._log.when_durable(lambda: done(True))

    # -- status

    def waits_since(self, partition: int) -> int:
        batches = self._of_partition.get(partition, {}).values()
        return min((batch.since_ns for batch in batches), default=self._out.now_ns)

    def unfinished(self, partition: int) -> bool:
        return partition in self._of_partition

    def batches_of(self, partition: int) -> Collection[AckBatch]:
        return self._of_partition.get(partition, {}).values()

    @property
    def oldest_ns(self) -> int | None:
        return next((batch.since_ns for batch in self._waiting.values()), None)

    def open_since(self, before_ns: int, followed: Followed) -> Iterator[OpenOperation]:
        """The operations whose callers have waited since before `before_ns`, the oldest first."""
        fresh = 0
        for batch in islice(self._waiting.values(), LOOKED_AT):
            if batch.since_ns > before_ns:
                break
            if not batch.callbacks or not batch.open:
                continue
            known = followed.get((("batch", batch.number), batch.since_ns))
            if known is not None:
                yield known
            elif fresh < FRESH:
                fresh += 1
                yield batch.operation()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "records not sent": len(self.unsent)
            + len(self.unsent_puts)
            + len(self.unsent_batches)
            + len(self._joinable),
            "batches": len(self._waiting) + len(self._of_partition) + len(self._barriers),
        }


def _together(part: list[Recorded], *, packed: bool) -> tuple[Puts | None, list[Record]]:
    """Updates of one map and partition, in the order of the counter: packed if that is allowed and possible."""
    if packed and len(part) == 1 and isinstance(part[0], Puts):
        return part[0], []
    records = one_by_one(part)
    puts = as_puts(records) if packed else None
    return puts, [] if puts is not None else records
