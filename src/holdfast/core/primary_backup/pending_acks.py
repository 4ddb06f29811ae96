"""What waits for backups? Batches of records, and their acknowledgement (H8; DESIGN rule 2).

`flush` sends the records of all buffers that were sealed since the last one, as one message per backup. Buffers that
wait for the same members make one batch; its callers hear when every sync backup, and the destination of a running
migration of those partitions, holds it.

- primary_backup/P-1: A batch is done when, for each of its partitions, every member that the *present* row wants has
  said that it holds it (`assignment_changes`).
- primary_backup/P-4: What a map with journal = "sync" has written is durable here, too, before it is acknowledged.
- primary_backup/P-5: What is not acknowledged after `replication.backup_timeout_ms` is unknown, and said to be,
  with the reason. The batch stays until all hold it, so that copies become equal.
- primary_backup/P-6: What is kept for backups is bounded (`backlog`).
- primary_backup/P-7: An answer that changed nothing (a remove that finds nothing, a compare that fails) waits like a
  write: until what it may have seen is acknowledged, and until every sync backup has confirmed, after the answer was
  made, that it still follows this primary. The next primary is one of these backups, or was filled by one that had
  learnt the new row, so the answer was true when it was made. It takes no clock. Reads wait too, of maps with `reads =
  "confirmed"`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice

from holdfast.config import Settings
from holdfast.core.journal.log import Log
from holdfast.core.machine import Outbox
from holdfast.core.messages import Ack, Replicate, Replicated, Section
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.levels import PACKED
from holdfast.core.model.notices import PartitionDrained
from holdfast.core.model.open_operations import Followed, OpenOperation
from holdfast.core.model.records import Puts, Record, Recorded, as_puts, one_by_one
from holdfast.core.model.timer_name import TimerName
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.primary_backup.ack_batch import (
    NOBODY,
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
"""How often within `replication.backup_timeout_ms` it is looked whose backups are late; at least every half
second.
"""
LOOKED_AT = 300
"""Batches that are looked at to find those that have waited for long: the oldest."""
FRESH = 4
"""Of those that were not seen before only so many at one look, for it is gone through all that is in them."""
LOST_OFFICE = "this member lost the partition before its backups had acknowledged"
LOOK_MIN_NS, LOOK_MAX_NS = 1 * MILLISECOND, 500 * MILLISECOND
Resting = dict[tuple[int, str], AnyReplica | None]
"""Partitions and maps that the answers of a buffer rest on, without having changed anything."""


class _Leaving:
    """What a flush does with the records of a turn."""

    __slots__ = ("stored", "to", "written")

    def __init__(self) -> None:
        self.to: dict[str, Sections] = {}
        """What goes to each member, by partition."""
        self.written: dict[int, list[Record]] = {}
        """What is to be written down here, by partition,"""
        self.stored: list[tuple[int, int, Puts]] = []
        """and the packed stores of it, with partition and term."""


class PendingAcks:
    """What this member has written as primary, and who does not hold it yet."""

    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        log: Log,
        targets: ReplicationTargets,
        collectors: ClientAcks | None = None,
        puts: PackedPuts = packed_puts_cy,
    ) -> None:
        """`collectors`: the clients that wait for backups themselves; None when all waiting is done here. `puts`: the
        way of what is packed.
        """
        self._puts = puts
        self._out = out
        self._log = log
        self._targets = targets
        self._rests: AckBatch | None = None
        """What all answers of this turn that rest on something wait for."""
        self._rested: dict[int, AckBatch] = {}
        """Partition -> the youngest open batch of such answers."""
        self._turn_began = 0
        """The number of the last batch of the turn before."""
        self.unsent: list[Written] = []
        """Of the buffers since the last flush, in the order of the writes of each map and partition."""
        self._unsent_puts: list[MapReplica] = []
        """What comes after these."""
        self._joinable: dict[tuple[str, ...], AckBatch] = {}
        """Batches that a buffer sealed before the next flush may still join, by the members they go to."""
        self.unsent_batches: list[int] = []
        """Numbers of the batches since the last flush."""
        self._number = 0
        self._waiting: dict[int, AckBatch] = {}
        self._of_partition: dict[int, dict[int, AckBatch]] = {}
        self._tail_bytes = settings.replication.tail_bytes
        self.backlog = Backlog(settings.limits, out)
        self._telling: deque[tuple[list[Completion], bool, str]] = deque()
        """What callers are told just now, and what is to be told after that."""
        self.unknown_because = ""
        """While callers are told that an outcome is unknown: why."""
        self.collectors = collectors
        self._acks: dict[str, list[Ack]] = {}
        """Of the buffers since the last flush: whom each backup is to tell."""
        self.acks = 0
        """While callers are told: how many backups will tell the client."""
        self._timeout_ns = settings.replication.backup_timeout_ms * MILLISECOND
        self._look_ns = max(LOOK_MIN_NS, min(LOOK_MAX_NS, self._timeout_ns // LOOKS))
        self._timer = False

    # -- a buffer ends

    def close_batch(
        self, records: list[Written], puts: list[MapReplica], resting: Resting, done: Completion
    ) -> None:
        """A read buffer has ended, with these records and stores, or answers that rest on something: `done` is called
        when every sync backup holds all that was written, and has confirmed what the other answers rest on.
        """
        if records:
            self.unsent += records
        rests = self._rest(resting) if resting else None
        if not records and not puts:
            if rests is None:
                done(True)
            else:
                rests.told.append(done)
            return
        targets = (puts[0] if puts else records[0][1]).targets
        if len(records) + len(puts) > 1:
            several = {held.targets for held in puts}
            if records:
                several.update([held.targets for _, held, _ in records])
            if len(several) > 1:
                targets = tuple(sorted(NOBODY.union(*several)))
        batch = self._joinable.get(targets) or self._begin(targets)
        size = self._add_records(batch, records) if records else 0
        if puts:
            size += self._puts.close(batch, puts, self._of_partition, self._unsent_puts, self.backlog.slow)
        batch.size += size
        backlog = self.backlog
        backlog.bytes += size
        if backlog.bytes > backlog.most:
            backlog.grown()
        held_up = batch.need or batch.courtesy or not batch.on_disk
        if rests is not None:
            when_all_done([rests, batch] if held_up else [rests], done, self._out.now_ns)
        elif held_up:
            batch.told.append(done)
        else:
            done(True)

    def _add_records(self, batch: AckBatch, records: list[Written]) -> int:
        """Have the batch wait for these; answers their bytes."""
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
                    # Nothing of the batch has left: whoever holds the map is waited for already.
                    continue
            batch.wait_for(partition, held, slow)
            if held.journal == "sync" and batch.on_disk:
                batch.wait_for_disk()
        return size

    def _take_puts(self) -> None:
        """What compiled code has stored in buffers that have ended is written down as what was written."""
        puts, self._unsent_puts = self._unsent_puts, []
        unsent = self.unsent
        for held in puts:
            each = held.unsent
            assert each is not None, "they were added to it"
            taken = each.take_closed(held, held.updates.hwm)
            if taken is not None:
                unsent.append((each.partition, held, taken))

    def _rest(self, resting: Resting) -> AckBatch | None:
        """Ask the sync backups of what this buffer's answers rest on. Returns what these wait for, if for anything.

        All answers of a turn share one batch. It comes after the youngest one that rests on the same partition, and
        after what was written since: so what has to be linked does not grow with what waits.
        """
        rests = self._rests
        asked: list[tuple[int, str, frozenset[str]]] = []
        links: list[AckBatch] = []
        waits = durable = False
        for (partition, name), held in resting.items():
            before = self._rested.get(partition)
            since = before.since if before is not None else 0
            if before is not None and before is not rests:
                links.append(before)
            for batch in reversed(self._of_partition.get(partition, {}).values()):
                if batch.number <= since:
                    break
                if batch.open and not batch.resting:
                    links.append(batch)
            sync = held.sync if held is not None else self._targets.followers(partition, name)[1]
            asked.append((partition, name, sync))
            waits = waits or bool(sync)
            # What this member has applied as a backup is perhaps not on its disk yet.
            durable = durable or (held is not None and held.journal == "sync")
        if not waits and not durable and not links:
            return None
        if rests is None:
            self._number += 1
            rests = self._rests = self._waiting[self._number] = AckBatch(self._number, self._out.now_ns)
            rests.since = self._turn_began
            self.unsent_batches.append(self._number)
        assert rests.number in self._waiting, "nothing waits for what has ended"
        assert rests.number > rests.since, "it is of this turn"
        if durable:
            rests.wait_for_disk()
        for partition, name, sync in asked:
            rests.rest_on(partition, name, sync)
            rests.records.setdefault(partition, [])
            self._of_partition.setdefault(partition, {})[rests.number] = rests
            self._rested[partition] = rests
        for batch in links:
            self._come_after(rests, batch)
        size = RECORD_BYTES * len(asked)
        rests.size += size
        self.backlog.bytes += size
        if self.backlog.bytes > self.backlog.most:
            self.backlog.grown()
        return rests

    def _come_after(self, rests: AckBatch, batch: AckBatch) -> None:
        """Let answers wait for a batch that they may have seen."""
        if batch.number in rests.links:
            return
        assert batch.number != rests.number, "nothing comes after itself"
        assert batch.open, "only what is open is waited for"
        rests.links.add(batch.number)
        rests.after += 1

        def told(known: bool) -> None:
            if rests.number in self._waiting:
                rests.after -= 1
                assert rests.after >= 0, "each batch ends once"
                if known:
                    self.look(rests)
                else:
                    self._unconfirmed(rests, self.unknown_because)

        when_all_done([batch], told, self._out.now_ns)

    def _unconfirmed(self, rests: AckBatch, why: str) -> None:
        """Tell these callers that nobody can say whether what was found still holds; there is nothing to deliver."""
        self._tell(rests, known=False, why=why)
        if rests.number in self._waiting:
            rests.need.clear()
            self._finish(rests)

    def close_batch_for(
        self,
        records: list[Written],
        puts: list[MapReplica],
        resting: Resting,
        done: Completion,
        client: bytes,
        correlations: list[int],
    ) -> None:
        """The same for requests of a client that collects acknowledgements itself. If all backups can tell it, `done`
        is called at once, while `acks` says how many will.
        """
        backups: dict[str, set[int]] = {}
        places = [(partition, held) for partition, held, _ in records]
        places += [(held.unsent.partition, held) for held in puts if held.unsent is not None]
        for partition, held in places:
            for member in held.sync:
                backups.setdefault(member, set()).add(partition)
        durable = any(held.journal == "sync" for _, held in places)
        collectors = self.collectors
        if collectors is None or not backups or durable or resting or not collectors.reached(client, backups):
            self.close_batch(records, puts, resting, done)
            return
        self.close_batch(records, puts, resting, lambda known: None)
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
        """Send the records of the sealed buffers, one message to each member that wants any."""
        self._rests, self._turn_began = None, self._number
        leaving = _Leaving()
        if self._unsent_puts:
            if not self.unsent and self._out.does(PACKED):
                targets = self._targets
                self._unsent_puts = self._puts.lay_out(
                    self._unsent_puts,
                    targets.rows,
                    targets.terms,
                    self._tail_bytes,
                    leaving.to,
                    leaving.stored,
                )
            if self._unsent_puts:
                self._take_puts()
        if not self.unsent and not self.unsent_batches:
            return
        records, self.unsent = self.unsent, []
        numbers, self.unsent_batches = self.unsent_batches, []
        rows, terms = self._targets.rows, self._targets.terms
        self._joinable.clear()
        if records:
            self._lay_out(records, leaving)
        batches = [batch for number in numbers if (batch := self._waiting.get(number)) is not None]
        for batch in batches:
            for partition in batch.resting:
                for target, waited in batch.need.items():
                    if partition in waited:
                        # A section without records: whoever still follows this primary says so.
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
        """Remember these records, and say where they go."""
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
        """Tell the callers of whom a backup has not acknowledged in time (primary_backup/P-5)."""
        self._timer = False
        asked_before_ns = self._out.now_ns - self._timeout_ns
        overdue = [batch for batch in self._waiting.values() if batch.asked_ns <= asked_before_ns]
        for batch in overdue:
            if (batch.told or batch.courtesy) and batch.number in self._waiting:
                self._overdue(batch)
        if overdue:
            self.backlog.refuse()
        if self._waiting:
            self._timer = True
            self._out.timer(TimerName.BACKUPS, self._look_ns)

    def _overdue(self, batch: AckBatch) -> None:
        for member, partitions in batch.courtesy.items():
            # Nobody has promised the callers to wait for an async backup.
            batch.late.setdefault(member, set()).update(partitions)
        batch.courtesy.clear()
        self._charge(batch)
        if batch.open:
            why = f"not acknowledged within {self._timeout_ns / SECOND:g} s: {batch.missing()}"
            if batch.resting:
                self._unconfirmed(batch, why)
            else:
                self._tell(batch, known=False, why=why)
        else:
            self.look(batch)

    def _tell(self, batch: AckBatch, *, known: bool, why: str = "") -> None:
        """Answer the callers. Other batches may wait for this one, and further ones for these, in a row of any length:
        what they tell is told after it, not from within.
        """
        told, batch.told = batch.told, []
        if not told:
            return
        self._joinable.clear()
        telling = self._telling
        telling.append((told, known, why))
        if len(telling) > 1:
            return
        try:
            while telling:
                told, known, self.unknown_because = telling[0]
                for done in told:
                    done(known)
                telling.popleft()
        finally:
            telling.clear()

    def _charge(self, batch: AckBatch) -> None:
        """Count the batch in the backlog of those async backups that do not hold it yet, and of no others."""
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
        """A backup holds these partitions' records of these batches."""
        for number in message.batches:
            batch = self._waiting.get(number)
            if batch is None:
                continue
            for waits in (batch.need, batch.courtesy, batch.late):
                parts = waits.get(sender)
                if parts is not None:
                    parts.difference_update(message.partitions)
                    if not parts:
                        del waits[sender]
            self.look(batch)

    def look(self, batch: AckBatch) -> None:
        """Tell the callers when nobody they wait for is missing, and end the batch when nobody at all is."""
        if batch.late or batch.charged:
            self._charge(batch)
        if batch.need or batch.courtesy or not batch.on_disk or batch.after:
            return
        if batch.told:
            self._tell(batch, known=True)
        if not batch.late and batch.number in self._waiting:
            self._finish(batch)

    def _finish(self, batch: AckBatch) -> None:
        if self._rests is batch:
            # The same turn may still bring answers that rest on something: they need a batch that is open.
            self._rests = None
        assert not batch.told, "nobody waits for what has ended"
        assert not batch.need and not batch.courtesy, "whoever is waited for has it, or is not waited for"
        self._joinable.clear()
        del self._waiting[batch.number]
        if batch.charged:
            self._charge(batch)
        backlog = self.backlog
        backlog.bytes -= batch.size
        assert backlog.bytes >= 0, "no more is taken away than was kept (primary_backup/P-6)"
        if backlog.crowded:
            backlog.eased()
        for partition in batch.resting:
            self._rested_no_more(partition, batch)
        assert not batch.charged, "what has ended is in nobody's backlog"
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
        """The last unfinished batch of a partition is done: a handover may wait for that."""
        assert partition not in self._of_partition, "nothing of it waits any more"
        if partition in self._targets.joining:
            self._out.tell(PartitionDrained(partition))

    def _rested_no_more(self, partition: int, batch: AckBatch) -> None:
        if self._rested.get(partition) is batch:
            del self._rested[partition]

    # -- rows change

    def again(self, partition: int) -> list[AckBatch]:
        """The batches of a partition whose row has changed: its records go out again, so nothing joins them now."""
        batches = list(self._of_partition.get(partition, {}).values())
        if batches:
            self._take_puts()
            self._joinable.clear()
        return batches

    def abandon(self, partition: int) -> None:
        """This member is no longer the partition's primary (primary_backup/P-3): what is unfinished there is unknown.
        What else is in its batches goes on waiting.
        """
        for batch in list(self._of_partition.get(partition, {}).values()):
            self._tell(batch, known=False, why=LOST_OFFICE)
            if batch.number not in self._waiting:
                continue  # Answers that rested on what was just given up.
            batch.forget(partition)
            if batch.resting.pop(partition, None) is not None:
                self._rested_no_more(partition, batch)
            del batch.records[partition], self._of_partition[partition][batch.number]
            self.look(batch)
        assert not self._of_partition.get(partition), "nothing of it waits any more (primary_backup/P-3)"
        if self._of_partition.pop(partition, None) is not None:
            self.drained(partition)

    def when_held(self, partition: int, request_id: bytes, done: Completion) -> None:
        """Call `done` when everybody who must hold the records of a request that was applied before does."""
        for batch in self._of_partition.get(partition, {}).values():
            if (batch.need or batch.courtesy or not batch.on_disk) and any(
                isinstance(update, Record) and id_of(update.request) == request_id
                for _, update in batch.records[partition]
            ):
                batch.told.append(done)
                batch.asked_ns = self._out.now_ns
                return
        # This member may have applied it as a backup, and not have it on its disk yet.
        self._log.when_durable(lambda: done(True))

    # -- what waits

    def waits_since(self, partition: int) -> int:
        """Since when the oldest batch of the partition waits; now, when none does."""
        batches = self._of_partition.get(partition, {}).values()
        return min((batch.since_ns for batch in batches), default=self._out.now_ns)

    def unfinished(self, partition: int) -> bool:
        """Whether some batch of the partition waits for a backup."""
        return partition in self._of_partition

    def batches_of(self, partition: int) -> Collection[AckBatch]:
        """The batches of the partition that somebody has not acknowledged yet, oldest first."""
        return self._of_partition.get(partition, {}).values()

    @property
    def oldest_ns(self) -> int | None:
        """Since when the oldest batch waits for its backups; None when none does."""
        return next((batch.since_ns for batch in self._waiting.values()), None)

    def open_since(self, before_ns: int, followed: Followed) -> Iterator[OpenOperation]:
        """What callers wait for that was written, or rested on, before then; oldest first."""
        fresh = 0
        for batch in islice(self._waiting.values(), LOOKED_AT):
            if batch.since_ns > before_ns:
                break
            if not batch.told or not batch.open:
                continue
            known = followed.get((("batch", batch.number), batch.since_ns))
            if known is not None:
                yield known
            elif fresh < FRESH:
                fresh += 1
                yield batch.told_of()

    @property
    def waiting(self) -> int:
        """Batches that wait for backups."""
        return len(self._waiting)

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "records not sent": len(self.unsent)
            + len(self._unsent_puts)
            + len(self.unsent_batches)
            + len(self._joinable),
            "batches": len(self._waiting) + len(self._of_partition) + len(self._rested),
        }


def _together(part: list[Recorded], *, packed: bool) -> tuple[Puts | None, list[Record]]:
    """What was done to one map and partition, in the order of the counter: as packed stores, if it may and can be, or
    one by one.
    """
    if packed and len(part) == 1 and isinstance(part[0], Puts):
        return part[0], []
    records = one_by_one(part)
    puts = as_puts(records) if packed else None
    return puts, [] if puts is not None else records
