"""The primary's side of replication: the data lane, batches and their acknowledgement (H8; DESIGN §3 and rule 2).

Sessions write through `set` and `remove`, entry by entry, with no event and no future, and end a read buffer
with `seal`. `flush` sends the records of all buffers that were sealed since the last one, as one message per
backup. Buffers that wait for the same members make one batch; `done` is called when every sync backup, and the
destination of a running migration of those partitions, holds it.

- replication/P-1: A batch is done when, for each of its partitions, every member that the *present* row wants has said
  that it holds it.
- replication/P-2: When a row changes and this member stays primary, unfinished records are sent again at the new
  version.
- replication/P-3: When this member is no longer primary, what is unfinished is unknown, and said to be.
- replication/P-4: What a map with journal = "sync" has written is durable here, too, before it is acknowledged.
- replication/P-5: What is not acknowledged after `replication.backup_timeout_ms` is unknown, and said to be, with the
  reason. The batch stays until all hold it, so that copies become equal.
- replication/P-6: What is kept for backups is bounded (`backlog`).
- replication/P-7: An answer that changed nothing (a remove that finds nothing, a compare that fails) waits like a
  write: until what it may have seen is acknowledged, and until every sync backup has confirmed, after the answer was
  made, that it still follows this primary. The next primary is one of these backups, or was filled by one that had
  learnt the new row, so the answer was true when it was made. It takes no clock. Reads wait too, of maps with `reads =
  "confirmed"`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import chain

import msgspec

from holdfast.config import Settings
from holdfast.core.journal.log import Log
from holdfast.core.machine import Outbox
from holdfast.core.messages import Ack, Replicate, Replicated, Section
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.operations import DEFAULT_TTL, EntryEvent, EventKind, Value
from holdfast.core.model.partition_table import Row
from holdfast.core.model.records import Change, Record
from holdfast.core.replication.ack_batch import NOBODY, Batch, Completion, Written, by_map, when_all_done
from holdfast.core.replication.backlog import RECORD_BYTES, Backlog
from holdfast.core.replication.collectors import Collectors
from holdfast.core.store.partition import FOLD_AT, MapPartition, PartitionCopy, ServicePartition
from holdfast.core.store.request_ids import id_of, mark_of

LOST_OFFICE = "this member lost the partition before its backups had acknowledged"
LOOKS = 8
"""How often within `replication.backup_timeout_ms` it is looked whose backups are late; at least every half second."""
LOOK_MIN_NS, LOOK_MAX_NS = 1 * MILLISECOND, 500 * MILLISECOND


class Lane:
    """Writes of this member as primary. Implements `server.grid.Lane`."""

    def __init__(self, me: MemberId, settings: Settings, out: Outbox, log: Log) -> None:
        self._me = me
        self._log = log
        self._settings = settings
        self._out = out
        self.confirms_reads = any(chosen.reads == "confirmed" for chosen in settings.maps.values())
        """Whether there are maps whose reads are confirmed."""
        self.serving: list[PartitionCopy | None] = [None] * settings.partitions.count
        """For sessions: the copies that may be read and written here."""
        self.in_office: list[PartitionCopy | None] = [None] * settings.partitions.count
        """The copies of which this member is the serving primary. While the cluster is passive `serving` is empty, and
        these are read through the router, which refuses writes."""
        self.listening: dict[str, int] = {}
        self.heard: Callable[[EntryEvent], None] = lambda event: None
        self.joining: dict[int, tuple[MemberId, int]] = {}
        """Partition -> the destination of its running migration and the index it will have (this member is the
        primary)."""
        self.drained: Callable[[int], None] = lambda partition: None
        """Told when the last unfinished batch of a partition is done."""
        self._defaults: dict[str, tuple[int, int]] = {}
        self._open: list[Written] = []
        """Of the buffer that is being worked on."""
        self._resting: dict[tuple[int, str], MapPartition | None] = {}
        """Partitions and maps that answers of that buffer rest on, without having changed anything."""
        self._rests: Batch | None = None
        """What all such answers of this turn wait for."""
        self._rested: dict[int, Batch] = {}
        """Partition -> the youngest open batch of such answers."""
        self._turn_began = 0
        """The number of the last batch of the turn before."""
        self.sealed: list[Written] = []
        """Of the buffers since the last flush, in the order of the writes."""
        self._joinable: dict[tuple[str, ...], Batch] = {}
        """Batches that a buffer sealed before the next flush may still join, by the members they go to."""
        self.unsent_batches: list[int] = []
        """Numbers of the batches since the last flush."""
        self._number = 0
        self._waiting: dict[int, Batch] = {}
        self._of_partition: dict[int, dict[int, Batch]] = {}
        self._tail_bytes = settings.replication.tail_bytes
        self._rows: list[Row] = []
        self._terms = [0] * settings.partitions.count
        """Of each partition that is served here: the version of the row with which this member took office."""
        self.backlog = Backlog(settings.limits)
        self._telling: deque[tuple[list[Completion], bool, str]] = deque()
        """What callers are told just now, and what is to be told after that."""
        self.unknown_because = ""
        """While callers are told that an outcome is unknown: why."""
        self.collectors: Collectors | None = None
        """The clients that wait for backups themselves; None when all waiting is done here."""
        self._acks: dict[str, list[Ack]] = {}
        """Of the buffers since the last flush: whom each backup is to tell."""
        self.acks = 0
        """While callers are told: how many backups will tell the client."""
        self._timeout_ns = settings.replication.backup_timeout_ms * MILLISECOND
        self._look_ns = max(LOOK_MIN_NS, min(LOOK_MAX_NS, self._timeout_ns // LOOKS))
        self._timer = False

    def attach(self, rows: list[Row]) -> None:
        """Use these rows (the member's table) to know the backups of a partition."""
        self._rows = rows

    # -- reads and writes of entries: the hot path

    def read(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        """The entry's value, or None; counts as a use of it."""
        held = copy.maps.get(name)
        if held is None:
            return None
        if held.expiries and held.expired(key, self._out.now_ns):
            self._expire(copy, held, key)
            return None
        return held.entries.get(key)

    def set(
        self,
        copy: PartitionCopy,
        name: str,
        key: bytes,
        value: bytes,
        ttl_ms: int,
        max_idle_ms: int,
        key_hash: int,
    ) -> bytes | None:
        """Store an entry and queue its record; answers the old value, None if absent or expired."""
        held = copy.maps.get(name)
        if held is None:
            held = self.open(copy, name)
        if ttl_ms == DEFAULT_TTL or max_idle_ms == DEFAULT_TTL:
            ttl_default, idle_default = self._defaults.get(name) or self._default_expiry(name)
            ttl_ms = ttl_default if ttl_ms == DEFAULT_TTL else ttl_ms
            max_idle_ms = idle_default if max_idle_ms == DEFAULT_TTL else max_idle_ms
        if held.expiries and held.expired(key, self._out.now_ns):
            self._expire(copy, held, key)
        old = held.entries.get(key)
        if ttl_ms or max_idle_ms or key_hash or held.expiries:
            held.store(key, value, ttl_ms, max_idle_ms, key_hash, self._out.now_ns)
        else:
            touched = held.touched
            if touched is not None and key not in touched:
                touched[key] = old
            held.entries[key] = value
        number = held.updates.next()
        if held.recorded:
            if held.changes:
                now_ms = self._out.wall_ms()
                record = Record(
                    name, number, Change.SET, key, value, ttl_ms, max_idle_ms, key_hash, b"", old, now_ms
                )
            else:
                record = Record(name, number, Change.SET, key, value, ttl_ms, max_idle_ms, key_hash)
            self._open.append((copy.partition, held, record))
        if self.listening:
            kind = EventKind.ADDED if old is None else EventKind.UPDATED
            self.emit(kind, held, key, value, old)
        return old

    def remove(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        """Take an entry out and queue the record; answers the old value."""
        held = copy.maps.get(name)
        if held is None or key not in held.entries:
            self.rest_on(copy, name)
            return None
        if held.expiries and held.expired(key, self._out.now_ns):
            self._expire(copy, held, key)
            return None
        return self.take_out(copy, held, key, EventKind.REMOVED)

    def rest_on(self, copy: PartitionCopy, name: str) -> None:
        """An answer of this buffer changes nothing in this map, and rests on what is there: it waits all the same."""
        self._resting[copy.partition, name] = copy.maps.get(name)

    def confirmed(self, name: str) -> bool:
        """Whether reads of this map are confirmed: to be asked only if those of some map are (`confirms_reads`)."""
        return self._settings.map(name).reads == "confirmed"

    def take_out(self, copy: PartitionCopy, held: MapPartition, key: bytes, kind: EventKind) -> bytes | None:
        """Remove an entry for the reason `kind`."""
        if key not in held.entries:
            return None
        key_hash = held.hashes.get(key, 0)
        old = held.drop(key)
        self.log(copy, held, Change.REMOVE, key, old=old)
        if self.listening:
            self.emit(kind, held, key, None, old, key_hash)
        return old

    def _expire(self, copy: PartitionCopy, held: MapPartition, key: bytes) -> None:
        self.take_out(copy, held, key, EventKind.EXPIRED)

    def log(
        self,
        copy: PartitionCopy,
        held: MapPartition,
        change: Change,
        key: bytes = b"",
        *,
        ttl_ms: int = 0,
        max_idle_ms: int = 0,
        old: bytes | None = None,
    ) -> None:
        """Count a change other than a store, and queue its record. `old`: what the entry was, if it is none now."""
        number = held.updates.next()
        if held.recorded:
            told = (b"", old, self._out.wall_ms()) if held.changes else ()
            record = Record(held.name, number, change, key, b"", ttl_ms, max_idle_ms, 0, *told)
            self._open.append((copy.partition, held, record))

    def call(self, copy: PartitionCopy, name: str, update: bytes) -> bytes | None:
        """Update a service's share and queue the record; answers what the service does, None if there is none."""
        held = copy.services.get(name)
        if held is None:
            return None
        answer = held.share.apply(update)
        number = held.updates.next()
        if held.recorded:
            self._open.append((copy.partition, held, Record(name, number, Change.CALL, b"", update)))
        return answer

    @property
    def opened(self) -> int:
        """How many records are in the open buffer."""
        return len(self._open)

    def remember(self, copy: PartitionCopy, request_id: bytes, value: Value, since: int) -> None:
        """A request is applied and answers this: remember it, and let the last of its records, those after the first
        `since` of the open buffer, tell the others.
        """
        mark = mark_of(request_id, value)
        copy.requests.note(mark)
        if len(self._open) > since:
            partition, held, record = self._open[-1]
            self._open[-1] = (partition, held, msgspec.structs.replace(record, request=mark))

    def when_held(self, partition: int, request_id: bytes, done: Completion) -> None:
        """Call `done` when everybody who must hold the records of a request that was applied before does."""
        for batch in self._of_partition.get(partition, {}).values():
            if (batch.need or batch.courtesy or not batch.on_disk) and any(
                id_of(record.request) == request_id for _, record in batch.records[partition]
            ):
                batch.told.append(done)
                batch.asked_ns = self._out.now_ns
                return
        # This member may have applied it as a backup, and not have it on its disk yet.
        self._log.when_durable(lambda: done(True))

    def emit(
        self,
        kind: EventKind,
        held: MapPartition,
        key: bytes | None,
        value: bytes | None,
        old: bytes | None,
        key_hash: int = 0,
        *,
        count: int = 1,
    ) -> None:
        """Tell the listeners of the map, if there are any."""
        if held.name in self.listening:
            word = key_hash or (held.hashes.get(key, 0) if key is not None and held.hashes else 0)
            self.heard(EntryEvent(kind, held.name, self._me, key, value, old, count, word))

    def open(self, copy: PartitionCopy, name: str) -> MapPartition:
        """The map's share of a partition, with its backups known."""
        held = copy.open(name)
        held.enter(copy.term)
        self._aim(copy.partition, held)
        return held

    def _default_expiry(self, name: str) -> tuple[int, int]:
        chosen = self._settings.map(name)
        pair = self._defaults[name] = (chosen.ttl_ms, chosen.max_idle_ms)
        return pair

    def sweep(self, limit: int, copies: Iterable[PartitionCopy | None] | None = None) -> None:
        """Remove entries whose time is over, up to `limit` in each map and partition; seals its own batch.

        `copies`: those that are looked at, instead of all that sessions may write to.
        """
        for copy in self.serving if copies is None else copies:
            if copy is None:
                continue
            for held in copy:
                if held.deadlines:
                    self.expire(copy, held, limit)
        self.seal(lambda known: None)

    def expire(self, copy: PartitionCopy, held: MapPartition, limit: int) -> None:
        """Remove up to `limit` entries of a map whose time is over."""
        for key in held.due(self._out.now_ns, limit):
            self._expire(copy, held, key)

    # -- batches

    def seal(self, done: Completion) -> None:
        """End a read buffer: `done` is called when every sync backup holds what was written since the last seal, and
        has confirmed what the other answers rest on.
        """
        records, resting = self._open, self._resting
        if not records and not resting:
            done(True)
            return
        self._open = []
        self.sealed += records
        rests = self._rest() if resting else None
        if not records:
            if rests is None:
                done(True)
            else:
                rests.told.append(done)
            return
        targets = records[0][1].targets
        if len(records) > 1:
            targets = tuple(sorted(NOBODY.union(*[held.targets for _, held, _ in records])))
        batch = self._joinable.get(targets) or self._begin(targets)
        backlog = self.backlog
        slow = backlog.slow
        size = RECORD_BYTES * len(records)
        for partition, held, record in records:
            size += len(record.key) + len(record.value)
            if held.changes:
                size += len(record.old or b"")
            part = batch.records.get(partition)
            if part is None:
                batch.records[partition] = [(held, record)]
                self._of_partition.setdefault(partition, {})[batch.number] = batch
            else:
                part.append((held, record))
            batch.wait_for(partition, held, slow)
            if held.journal == "sync" and batch.on_disk:
                batch.wait_for_disk()
        batch.size += size
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

    def _rest(self) -> Batch | None:
        """Ask the sync backups of what this buffer's answers rest on. Returns what these wait for, if for anything.

        All answers of a turn share one batch. It comes after the youngest one that rests on the same partition, and
        after what was written since: so what has to be linked does not grow with what waits.
        """
        resting, self._resting = self._resting, {}
        rests = self._rests
        asked: list[tuple[int, str, frozenset[str]]] = []
        links: list[Batch] = []
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
            sync = held.sync if held is not None else self._followers(partition, name)[1]
            asked.append((partition, name, sync))
            waits = waits or bool(sync)
            # What this member has applied as a backup is perhaps not on its disk yet.
            durable = durable or (held is not None and held.journal == "sync")
        if not waits and not durable and not links:
            return None
        if rests is None:
            self._number += 1
            rests = self._rests = self._waiting[self._number] = Batch(self._number, self._out.now_ns)
            rests.since = self._turn_began
            self.unsent_batches.append(self._number)
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

    def _come_after(self, rests: Batch, batch: Batch) -> None:
        """Let answers wait for a batch that they may have seen."""
        if batch.number in rests.links:
            return
        rests.links.add(batch.number)
        rests.after += 1

        def told(known: bool) -> None:
            if rests.number in self._waiting:
                rests.after -= 1
                if known:
                    self._look(rests)
                else:
                    self._unconfirmed(rests, self.unknown_because)

        when_all_done([batch], told, self._out.now_ns)

    def _unconfirmed(self, rests: Batch, why: str) -> None:
        """Tell these callers that nobody can say whether what was found still holds; there is nothing to deliver."""
        self._tell(rests, known=False, why=why)
        if rests.number in self._waiting:
            rests.need.clear()
            self._finish(rests)

    def seal_for(self, done: Completion, client: bytes, correlations: list[int]) -> None:
        """The same for requests of a client that collects acknowledgements itself. If all backups can tell it, `done`
        is called at once, while `acks` says how many will.
        """
        backups: dict[str, set[int]] = {}
        for partition, held, _ in self._open:
            for member in held.sync:
                backups.setdefault(member, set()).add(partition)
        durable = any(held.journal == "sync" for _, held, _ in self._open)
        collectors = self.collectors
        resting = bool(self._resting)
        if collectors is None or not backups or durable or resting or not collectors.reached(client, backups):
            self.seal(done)
            return
        self.seal(lambda known: None)
        for member, partitions in backups.items():
            self._acks.setdefault(member, []).append(Ack(client, correlations, sorted(partitions)))
        self.acks = len(backups)
        done(True)
        self.acks = 0

    def _begin(self, targets: tuple[str, ...]) -> Batch:
        self._number += 1
        batch = Batch(self._number, self._out.now_ns)
        self._joinable[targets] = self._waiting[self._number] = batch
        self.unsent_batches.append(self._number)
        return batch

    def flush(self) -> None:
        """Send the records of the sealed buffers, one message to each member that wants any."""
        records, self.sealed = self.sealed, []
        numbers, self.unsent_batches = self.unsent_batches, []
        self._rests, self._turn_began = None, self._number
        if not records and not numbers:
            return
        self._joinable.clear()
        outgoing: dict[str, dict[int, list[Record]]] = {}
        written: dict[int, list[Record]] = {}
        urgent = False
        for (partition, held), part in by_map(records).items():
            held.keep(self._terms[partition], part, held.changes or self._tail_bytes)
            if held.touched is not None and len(held.touched) >= FOLD_AT:
                held.fold()
            if held.journal != "off":
                written.setdefault(partition, []).extend(part)
                urgent = urgent or held.journal == "sync"
            for target in held.targets:
                outgoing.setdefault(target, {}).setdefault(partition, []).extend(part)
        batches = [batch for number in numbers if (batch := self._waiting.get(number)) is not None]
        for batch in batches:
            for partition in batch.resting:
                for target, waited in batch.need.items():
                    if partition in waited:
                        # A section without records: whoever still follows this primary says so.
                        outgoing.setdefault(target, {}).setdefault(partition, [])
        rows = self._rows
        for target, parts in outgoing.items():
            sections = [
                Section(partition, rows[partition].version, part, self._terms[partition])
                for partition, part in parts.items()
            ]
            self._out.send(MemberId(target), Replicate(numbers, sections, self._acks.get(target, [])))
        self._acks.clear()
        for partition, part in written.items():
            self._log.wrote(partition, self._terms[partition], part, urgent=urgent)
        if any(not batch.on_disk for batch in batches):
            self._log.when_durable(lambda: self._on_disk(batches))
        for batch in batches:
            if batch.number in self._waiting:
                self._look(batch)
        if self._waiting and not self._timer:
            self._timer = True
            self._out.timer("backups", self._look_ns)

    def on_timer(self) -> None:
        """Tell the callers of whom a backup has not acknowledged in time (replication/P-5)."""
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
            self._out.timer("backups", self._look_ns)

    def _overdue(self, batch: Batch) -> None:
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
            self._look(batch)

    def _tell(self, batch: Batch, *, known: bool, why: str = "") -> None:
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

    def _charge(self, batch: Batch) -> None:
        """Count the batch in the backlog of those async backups that do not hold it yet, and of no others."""
        members = tuple(batch.late) if batch.number in self._waiting else ()
        if members != batch.charged:
            for member in batch.charged:
                self.backlog.late(member, -batch.size)
            for member in members:
                self.backlog.late(member, batch.size)
            batch.charged = members

    def _on_disk(self, batches: list[Batch]) -> None:
        for batch in batches:
            batch.on_disk = True
            if batch.number in self._waiting:
                self._look(batch)

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
            self._look(batch)

    def _look(self, batch: Batch) -> None:
        """Tell the callers when nobody they wait for is missing, and end the batch when nobody at all is."""
        if batch.late or batch.charged:
            self._charge(batch)
        if batch.need or batch.courtesy or not batch.on_disk or batch.after:
            return
        if batch.told:
            self._tell(batch, known=True)
        if not batch.late and batch.number in self._waiting:
            self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        self._joinable.clear()
        del self._waiting[batch.number]
        if batch.charged:
            self._charge(batch)
        backlog = self.backlog
        backlog.bytes -= batch.size
        if backlog.crowded:
            backlog.eased()
        for partition in batch.resting:
            self._rested_no_more(partition, batch)
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

    def _rested_no_more(self, partition: int, batch: Batch) -> None:
        if self._rested.get(partition) is batch:
            del self._rested[partition]

    def waits_since(self, partition: int) -> int:
        """Since when the oldest batch of the partition waits; now, when none does."""
        batches = self._of_partition.get(partition, {}).values()
        return min((batch.since_ns for batch in batches), default=self._out.now_ns)

    def unfinished(self, partition: int) -> bool:
        """Whether some batch of the partition waits for a backup."""
        return partition in self._of_partition

    def batches_of(self, partition: int) -> Collection[Batch]:
        """The batches of the partition that somebody has not acknowledged yet, oldest first."""
        return self._of_partition.get(partition, {}).values()

    @property
    def unsent(self) -> Iterable[Written]:
        """What has been written since the last flush."""
        return chain(self.sealed, self._open)

    @property
    def oldest_ns(self) -> int | None:
        """Since when the oldest batch waits for its backups; None when none does."""
        return next((batch.since_ns for batch in self._waiting.values()), None)

    @property
    def waiting(self) -> int:
        """Batches that wait for backups."""
        return len(self._waiting)

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "records of an open buffer": len(self._open) + len(self._resting),
            "records not sent": len(self.sealed) + len(self.unsent_batches) + len(self._joinable),
            "batches": len(self._waiting) + len(self._of_partition) + len(self._rested),
            "destinations of migrations": len(self.joining),
        }

    # -- rows and destinations change

    def _aim(self, partition: int, held: MapPartition) -> None:
        """Find the members that records of this map and partition go to."""
        chosen = self._settings.map(held.name)
        targets, sync = self._followers(partition, held.name)
        held.targets, held.sync = targets, sync
        held.journal = chosen.journal if self._log.on and not isinstance(held, ServicePartition) else "off"
        held.changes = chosen.changes_bytes if not isinstance(held, ServicePartition) else 0
        # A backup that is missing now may come back, and is told then what it has missed.
        missed = bool(self._tail_bytes) and chosen.copies > 1 and self._rows[partition].version > 1
        held.recorded = bool(targets or held.changes) or held.journal != "off" or missed
        if not held.recorded:
            held.no_digests()

    def _followers(self, partition: int, name: str) -> tuple[tuple[str, ...], frozenset[str]]:
        """Who gets the records of a map in a partition that is served here, and who of them has to have them first."""
        chosen = self._settings.map(name)
        replicas = self._rows[partition].holding
        backups = replicas[1 : 1 + chosen.backups + chosen.async_backups]
        targets = [member for member in backups if member is not None]
        sync = {member for member in replicas[1 : 1 + chosen.backups] if member is not None}
        destination = self.joining.get(partition)
        if destination is not None and destination[1] <= chosen.copies - 1:
            _include(destination[0], targets, sync)
        return tuple(targets), frozenset(sync)

    def retarget(self, copy: PartitionCopy) -> None:
        """The row or the destination changed while this member is primary: replication/P-1 and replication/P-2."""
        partition = copy.partition
        self._terms[partition] = copy.term
        for held in copy:
            self._aim(partition, held)
        batches = list(self._of_partition.get(partition, {}).values())
        if not batches:
            return
        self._joinable.clear()
        again: dict[str, list[Record]] = {}
        for batch in batches:
            batch.forget(partition)
            for held, record in batch.records[partition]:
                batch.wait_for(partition, held, self.backlog.slow)
                for target in held.targets:
                    again.setdefault(target, []).append(record)
            for name in sorted(batch.resting.get(partition, ())):
                sync = self._followers(partition, name)[1]
                batch.rest_on(partition, name, sync)
                for target in sorted(sync):
                    again.setdefault(target, [])
        version = self._rows[partition].version
        numbers = [batch.number for batch in batches]
        for target, records in again.items():
            self._out.send(
                MemberId(target),
                Replicate(numbers, [Section(partition, version, records, self._terms[partition])]),
            )
        for batch in batches:
            self._look(batch)

    def abandon(self, partition: int) -> None:
        """This member is no longer the partition's primary: replication/P-3. What else is in its batches goes on
        waiting.
        """
        for batch in list(self._of_partition.get(partition, {}).values()):
            self._tell(batch, known=False, why=LOST_OFFICE)
            if batch.number not in self._waiting:
                continue  # Answers that rested on what was just given up.
            batch.forget(partition)
            if batch.resting.pop(partition, None) is not None:
                self._rested_no_more(partition, batch)
            del batch.records[partition], self._of_partition[partition][batch.number]
            self._look(batch)
        if self._of_partition.pop(partition, None) is not None:
            self.drained(partition)


def _include(destination: MemberId, targets: list[MemberId], sync: set[MemberId]) -> None:
    """replication/P-1: the destination of a running migration gets the records, too, and is waited for."""
    if destination not in targets:
        targets.append(destination)
    sync.add(destination)
