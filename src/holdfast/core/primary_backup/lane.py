"""The data lane: the fast path of reads and writes of entries in partitions that this member serves (DESIGN rule 2).

Sessions call `read`, `set` and `remove` without events or futures, and end a read buffer with `close_batch`.

Example: a client's read buffer holds put(a, 1) and get(b). `set` stores a, numbers the update 18 and queues its record;
`read` returns b. `close_batch` waits for the backups of update 18. At the end of the event-loop turn `flush` sends it,
with the updates of all other buffers, as one message to each backup. When these have acknowledged, the buffer's
callback sends both answers.

- primary_backup/E-1: One sweep looks for expired entries in a bounded number of maps and entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum, unique
from itertools import chain
from typing import NamedTuple, Protocol

import msgspec

from holdfast.config import MOVES_MAP, Settings
from holdfast.core.journal.log import Log
from holdfast.core.model.decisions import Update
from holdfast.core.model.forwarded_frames import FrameServer, MapAccess
from holdfast.core.model.ids import MemberId
from holdfast.core.model.map_locks import guarded_map
from holdfast.core.model.notices import LockEnded
from holdfast.core.model.operations import DEFAULT_TTL, EntryEvent, EventKind, Value, WrittenRow
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transactions import locks_of_map
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.operations.map_operations import new_ttl
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.primary_backup.ack_batch import AckBatch, Completion, Written
from holdfast.core.primary_backup.assignment_changes import retarget
from holdfast.core.primary_backup.client_acks import ClientAcks
from holdfast.core.primary_backup.packed_puts_cy import PackedPuts
from holdfast.core.primary_backup.pending_acks import PendingAcks
from holdfast.core.primary_backup.primary_evictions import MOST, PrimaryEvictions
from holdfast.core.primary_backup.replication_targets import ANY_MAP, ReplicationTargets
from holdfast.core.primary_backup.shared_steps import SharedSteps
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.move_marks import marks_in
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica, MapReplica
from holdfast.core.store.request_ids import mark_of, naming

NAMES_KEPT = 1000
SWEPT_MAPS = 5000
"""Map replicas in one sweep, approximately: a millisecond of work."""


@unique
class Swept(IntEnum):
    ALL = 0
    SOME_ENTRIES = 1
    SOME_MAPS = 2


class NewFrameServer(Protocol):
    def __call__(self, lane: Lane, access: MapAccess, settings: Settings, /) -> FrameServer: ...


class Ways(NamedTuple):
    """Parts of a member that exist as plain Python and compiled."""

    entries: NewEntries = dict
    puts: PackedPuts = packed_puts_cy
    frames: NewFrameServer | None = None
    """Serves forwarded frames with the data lane, which is in `server`; None: the member forwards and serves none."""


PLAIN = Ways()


class EventSink(Protocol):
    """Gets the events of entries in maps that have listeners."""

    listening: dict[str, int]

    def hear(self, event: EntryEvent) -> None: ...

    def hear_written(self, name: str, rows: list[WrittenRow]) -> None:
        """The same for entries that compiled code has written."""


class Awaited:
    """The position of a copy when a request began to wait for a change of it.

    Every change on a primary is counted, so writers do nothing for waiting requests.
    """

    __slots__ = ("_stood", "copy")

    def __init__(self, copy: PartitionCopy) -> None:
        self.copy = copy
        self._stood = self._stands()

    def _stands(self) -> list[tuple[str, int]]:
        return [("", self.copy.locks.changes), *((held.name, held.counter) for held in self.copy)]

    @property
    def changed(self) -> bool:
        """Whether the copy has changed since. A new map is a change, too."""
        return self._stands() != self._stood


class NoEvents:
    def __init__(self) -> None:
        self.listening: dict[str, int] = {}

    def hear(self, event: EntryEvent) -> None: ...

    def hear_written(self, name: str, rows: list[WrittenRow]) -> None: ...


class Lane:
    """Writes of this member as primary. Implements `engine.entry_lane.EntryLane`."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        log: Log,
        events: EventSink | None = None,
        ack_clients: ClientAcks | None = None,
        puts: PackedPuts = packed_puts_cy,
    ) -> None:
        """`ack_clients`: clients that collect acknowledgements of backups themselves; None: none do."""
        self.me = me
        self._settings = settings
        self._out = out
        self.steps = SharedSteps()
        self.confirms_reads = any(chosen.reads == "confirmed" for chosen in settings.maps.values())
        self._swept = 0
        """Where the next sweep begins."""
        self._unswept = 0
        """In a round of sweeps; 0: the next sweep begins a round."""
        self._locks_begin: dict[str, bytes] = {}
        self.serving: list[PartitionCopy | None] = [None] * settings.partitions.count
        """Copies that sessions may read and write."""
        self.leading: list[PartitionCopy | None] = [None] * settings.partitions.count
        """Copies that this member serves as primary. While the cluster is passive `serving` is empty, and these are
        read through the router, which rejects writes.
        """
        events = events or NoEvents()
        self.listening = events.listening
        self.heard = events.hear
        self.report = events.hear_written
        self.wall_ms = out.wall_ms
        self._defaults: dict[str, tuple[int, int]] = {}
        self.awaited: dict[int, Awaited] = {}
        """See `PrimaryCopy.wake`."""
        self.open_records: list[Written] = []
        self.open_puts: list[MapReplica] = []
        """Replicas to whose unsent puts that buffer has added."""
        self._reads: dict[tuple[int, str], AnyReplica | None] = {}
        """The partitions and maps that answers of that buffer have read without changing them."""
        self.evictions = PrimaryEvictions(settings, self)
        self.targets = ReplicationTargets(settings, journal=log.on)
        self.joining = self.targets.joining
        self.batches = PendingAcks(settings, out, log, self.targets, ack_clients, puts)
        self.backlog = self.batches.backlog
        self.flush = self.batches.flush
        self.on_timer = self.batches.on_timer
        self.on_replicated = self.batches.on_replicated
        self.when_held = self.batches.when_held
        self.unfinished = self.batches.unfinished
        self.batches_of = self.batches.batches_of

    def attach(self, rows: list[Assignment]) -> None:
        self.targets.rows = rows

    # -- reads and writes of entries: the hot path

    def read(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        """The value of an entry. For its idle time, that is a use."""
        held = copy.maps.get(name)
        if held is None:
            return None
        state = held.state
        if state.expiries and state.expired(key, self._out.now_ns):
            self._expire(copy, held, key)
            return None
        return state.entries.get(key)

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
        held = copy.maps.get(name)
        if held is None:
            held = self.open(copy, name)
        if ttl_ms == DEFAULT_TTL or max_idle_ms == DEFAULT_TTL:
            ttl_default, idle_default = self._defaults.get(name) or self._default_expiry(name)
            ttl_ms = ttl_default if ttl_ms == DEFAULT_TTL else ttl_ms
            max_idle_ms = idle_default if max_idle_ms == DEFAULT_TTL else max_idle_ms
        state = held.state
        entries = state.entries
        if state.expiries and state.expired(key, self._out.now_ns):
            self._expire(copy, held, key)
        old = entries.get(key)
        if ttl_ms or max_idle_ms or key_hash or state.expiries:
            state.store(key, value, ttl_ms, max_idle_ms, key_hash, self._out.now_ns)
        else:
            touched = state.touched
            if touched is not None and key not in touched:
                touched[key] = old
            entries[key] = value
        number = held.updates.next()
        if held.recorded:
            if held.changes:
                now_ms = self._out.wall_ms()
                record = Record(
                    name, number, Change.SET, key, value, ttl_ms, max_idle_ms, key_hash, b"", old, now_ms
                )
            else:
                record = Record(name, number, Change.SET, key, value, ttl_ms, max_idle_ms, key_hash)
            self.record(copy, held, record)
        if self.listening:
            kind = EventKind.ADDED if old is None else EventKind.UPDATED
            self.emit(kind, held, key, value, old)
        return old

    @property
    def now_ns(self) -> int:
        return self._out.now_ns

    def record(self, copy: PartitionCopy, held: AnyReplica, record: Record) -> None:
        unsent = held.unsent
        if unsent is not None and unsent.sizes:
            # Puts that were stored before this record have lower counters (store/U-1).
            partition, end = copy.partition, record.counter - 1
            closed = unsent.take_closed(held, end)
            if closed is not None:
                self.batches.unsent.append((partition, held, closed))
            if unsent.sizes:
                self.open_records.append((partition, held, unsent.take(held, end)))
        self.open_records.append((copy.partition, held, record))

    def remove(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        held = copy.maps.get(name)
        if held is None or key not in held.state.entries:
            self.rest_on(copy, name)
            return None
        if held.state.expiries and held.state.expired(key, self._out.now_ns):
            self._expire(copy, held, key)
            return None
        return self.take_out(copy, held, key, EventKind.REMOVED)

    def evict(self, copy: PartitionCopy, name: str, key: bytes) -> None:
        """Remove an entry that is present; listeners learn that it was evicted."""
        self.take_out(copy, copy.maps[name], key, EventKind.EVICTED)

    def set_ttl(self, copy: PartitionCopy, name: str, key: bytes, ttl_ms: int) -> None:
        """Change the time to live of a present entry."""
        held = copy.maps[name]
        self.carry_out(copy, held, new_ttl(held.state, key, ttl_ms))

    def rest_on(self, copy: PartitionCopy, name: str) -> None:
        """Let the buffer wait for a read barrier, because an answer has read this map without a change
        (primary_backup/P-7).
        """
        self._reads[copy.partition, name] = copy.maps.get(name)

    def rest_on_service(self, copy: PartitionCopy, name: str) -> None:
        self._reads[copy.partition, name] = copy.services.get(name)

    def rest_on_writes(self, copy: PartitionCopy) -> None:
        """Let the buffer wait until the writes of this partition that an answer may show are acknowledged."""
        self._reads[copy.partition, ANY_MAP] = None

    def confirmed(self, name: str) -> bool:
        """Whether reads of this map wait until they are confirmed. Ask only if `confirms_reads`."""
        return self._settings.object(name).reads == "confirmed"

    def locked(self, copy: PartitionCopy, name: str, key: bytes) -> bool:
        """Whether a transaction or a client has locked the entry; the router then decides whether the request has to
        wait. Ask before each write, if `copy.locks.closed`.
        """
        locks = copy.locks
        if not locks.closed:
            return False
        begins = self._locks_begin.get(name)
        if begins is None:
            if len(self._locks_begin) >= NAMES_KEPT:
                self._locks_begin.clear()
            begins = self._locks_begin[name] = locks_of_map(name)
        return begins + key in locks.held or locks.has_locked(name, key)

    def take_out(self, copy: PartitionCopy, held: MapReplica, key: bytes, kind: EventKind) -> bytes | None:
        state = held.state
        if key not in state.entries:
            return None
        key_hash = state.hashes.get(key, 0)
        old = state.drop(key)
        self.log(copy, held, Change.REMOVE, key, old=old)
        if self.listening:
            self.emit(kind, held, key, None, old, key_hash)
        return old

    def _expire(self, copy: PartitionCopy, held: MapReplica, key: bytes) -> None:
        self.take_out(copy, held, key, EventKind.EXPIRED)
        self.evictions.removed.expired.add(held.name, 1)
        if guarded_map(held.name):
            self._out.notify(LockEnded(copy.partition, held.name, key))

    def log(
        self,
        copy: PartitionCopy,
        held: MapReplica,
        change: Change,
        key: bytes = b"",
        *,
        ttl_ms: int = 0,
        max_idle_ms: int = 0,
        old: bytes | None = None,
    ) -> None:
        """Number and record an update other than a set. `old`: the former value of a removed entry."""
        number = held.updates.next()
        if held.recorded:
            extra = (b"", old, self._out.wall_ms()) if held.changes else ()
            record = Record(held.name, number, change, key, b"", ttl_ms, max_idle_ms, 0, *extra)
            self.record(copy, held, record)

    def carry_out(
        self, copy: PartitionCopy, held: AnyReplica, update: Update, *, moves: bool = False
    ) -> bytes | None:
        """Number, apply and record it; returns the result. `moves`: a step of the map's move to this copy, whose change
        stream has no readers yet.
        """
        state, key, change = held.state, update.key, update.change
        kind = None
        if self.listening:
            kind = EventKind.UPDATED if change is Change.CALL else update.kind
        old = state.former(key) if kind is not None or held.changes else None
        key_hash = state.hash_word(key) if kind is not None else 0
        assert change is not Change.CLEAR or not held.changes or moves, (
            "change streams cannot report a CLEAR, except of a map that moves"
        )
        number = held.updates.next()
        record = Record(
            held.name, number, change, key, update.value, update.ttl_ms, update.max_idle_ms, update.key_hash
        )
        applied = state.apply(record, self._out.now_ns)
        if held.recorded:
            if held.changes:
                known = old if change in (Change.SET, Change.REMOVE) else None
                record = msgspec.structs.replace(
                    record, request=naming(update.transaction), old=known, time_ms=self._out.wall_ms()
                )
            self.record(copy, held, record)
        if kind is not None and held.name in self.listening:
            tells = change in (Change.SET, Change.CALL)
            value = update.value if tells else old if change is Change.EXPIRY else None
            word = update.key_hash or key_hash
            self.heard(EntryEvent(kind, held.name, self.me, key, value, old, 1, word, number, copy.term))
        elif change is Change.CLEAR and held.name in self.listening:
            self.heard(EntryEvent(EventKind.INVALIDATED, held.name, self.me, sequence=number, term=copy.term))
        return applied

    def invalidate_near_caches(self) -> None:
        """Invalidate whole maps in near caches, because this member is a new primary: they may have missed events, and
        may hold values that were never acknowledged.
        """
        for name in list(self.listening):
            self.heard(EntryEvent(EventKind.INVALIDATED, name, self.me))

    @property
    def opened(self) -> int:
        return len(self.open_records)

    def remember(
        self,
        copy: PartitionCopy,
        request_id: bytes,
        value: Value,
        since: int,
        *,
        several: bool = False,
        kept: bool = False,
    ) -> None:
        """Remember the response to a request with an id. Its last record, after the first `since` of the open buffer,
        carries the response to the backups.

        `several`: it has written to several maps; then it is the last record of the map with the most copies. Example:
        a transaction writes to a map with a backup, then to a journalled one without. If the record of the second map
        carried the response, a crash would lose it, and the backup would not recognise the repeated commit.

        `kept`: see `mark_of`.
        """
        mark = mark_of(request_id, value, kept=kept)
        copy.requests.note(mark)
        records = self.open_records
        if len(records) > since:
            at = len(records) - 1
            if several:
                at = max(range(since, len(records)), key=lambda one: (len(records[one][1].targets), one))
            partition, held, record = records[at]
            assert isinstance(record, Record), "a request with an id makes records"
            records[at] = partition, held, msgspec.structs.replace(record, request=record.request + mark)

    def emit(
        self,
        kind: EventKind,
        held: MapReplica,
        key: bytes | None,
        value: bytes | None,
        old: bytes | None,
        key_hash: int = 0,
        *,
        count: int = 1,
    ) -> None:
        if held.name in self.listening:
            word = key_hash or (held.state.hashes.get(key, 0) if key is not None and held.state.hashes else 0)
            term = held.lineage[-1][0] if held.lineage else 0
            self.heard(
                EntryEvent(kind, held.name, self.me, key, value, old, count, word, held.updates.lwm, term)
            )

    def open(self, copy: PartitionCopy, name: str) -> MapReplica:
        """Open a map. After maps were forgotten, a new one begins above them with a BEGIN record: backups may still
        hold an old map of this name, or nothing (store/R-1).
        """
        begins = copy.forgotten_to if name not in copy.maps else 0
        held = copy.open(name)
        if begins:
            held.updates = UpdateCounter(begins)
        held.enter(copy.term)
        self.targets.aim(copy.partition, held)
        if begins:
            self.log(copy, held, Change.BEGIN)
        return held

    def lifetimes(self, name: str) -> tuple[int, int]:
        return self._defaults.get(name) or self._default_expiry(name)

    def _default_expiry(self, name: str) -> tuple[int, int]:
        if len(self._defaults) >= NAMES_KEPT:
            self._defaults.clear()
        pair = self._defaults[name] = self._settings.map(name).lifetimes
        return pair

    def sweep(self, limit: int, copies: Sequence[PartitionCopy | None] | None = None) -> Swept:
        """Remove expired entries, examining up to `limit`, and entries above the limits of their maps, and close the
        batch. The next sweep continues from there (primary_backup/E-1). `copies`: instead of all that sessions may
        write to.
        """
        if copies is None:
            copies = self.serving
        now_ns, maps = self._out.now_ns, 0
        swept = Swept.ALL
        evictions = self.evictions
        if not self._unswept:
            evictions.renew()
        evictions.has_room = True  # The sweep itself evicts.
        for left in range(self._unswept or len(copies), 0, -1):
            if maps >= SWEPT_MAPS:
                self._unswept, swept = left, Swept.SOME_MAPS
                break
            copy = copies[self._swept]
            if copy is not None:
                maps += len(copy.maps)
                more = False
                # For a map that is moving the other engine's leader may decide expiry.
                moving = marks_in(copy.maps) if MOVES_MAP in copy.maps else ()
                for held in copy.maps.values():
                    if held.state.may_end(now_ns) and held.name not in moving:
                        limit -= self.expire(copy, held, limit)
                        more = held.state.may_end(now_ns)
                    if held.evicts and limit > 0:
                        evicted = evictions.evict(copy, held, min(limit, MOST))
                        limit -= evicted
                        more = more or evicted == MOST
                if more or limit <= 0:
                    self._unswept, swept = 0, Swept.SOME_ENTRIES
                    break
            self._swept = (self._swept + 1) % len(copies)
        else:
            self._unswept = 0
        self.close_batch(lambda known: None)
        return swept

    def expire(self, copy: PartitionCopy, held: MapReplica, limit: int) -> int:
        """Remove the entries that have expired, looking at `limit` at most; returns how many it has looked at."""
        ended, looked = held.state.endings.due(self._out.now_ns, limit)
        for key in ended:
            self._expire(copy, held, key)
        return looked

    # -- batches: what leaves this lane (`pending_acks`)

    def settle(self) -> bool:
        """Close the batch if no response has to wait: for a backup, the disk, or a read barrier. Returns whether that
        was so.
        """
        if self.evictions.on:
            self.evictions.make_room()
        records, puts = self.open_records, self.open_puts
        if self._reads or ((records or puts) and not self.batches.settle(records, puts)):
            return False
        self._begin_buffer()
        return True

    def end_buffer(self) -> AckBatch | bool:
        """Close the batch in the usual case. Returns the batch to whose callbacks the caller adds its own, so that the
        buffers of a turn can share one; True: no response has to wait; False: it is not closed, use `close_batch`.
        """
        if self.evictions.on:
            self.evictions.make_room()
        if self.open_records or self._reads or not self.open_puts:
            return self.settle()
        ended = self.batches.end_puts(self.open_puts)
        if ended is not False:
            self.open_puts = []
            self.evictions.has_room = False
        return ended

    def close_batch(self, done: Completion) -> None:
        """`done` is called when every sync backup has acknowledged the writes of this read buffer, and has confirmed
        what its other responses have read.
        """
        if self.evictions.on:
            self.evictions.make_room()
        records, puts, reads = self.open_records, self.open_puts, self._reads
        if records or reads:
            self._begin_buffer()
        elif puts:
            self.open_puts = []
            self.evictions.has_room = False
        else:
            self.evictions.has_room = False
            done(True)
            return
        self.batches.close_batch(records, puts, reads, done)

    def close_batch_for(self, done: Completion, client: bytes, correlations: list[int]) -> None:
        """Close the batch of a client that collects acknowledgements itself. If all backups can reach it, `done` is
        called at once, while `acks` is their number.
        """
        if self.evictions.on:
            self.evictions.make_room()
        records, puts, reads = self.open_records, self.open_puts, self._reads
        if not records and not puts and not reads:
            self.evictions.has_room = False
            done(True)
            return
        self._begin_buffer()
        self.batches.close_batch_for(records, puts, reads, done, client, correlations)

    def _begin_buffer(self) -> None:
        self.evictions.has_room = False
        if self.open_records:
            self.open_records = []
        if self.open_puts:
            self.open_puts = []
        if self._reads:
            self._reads = {}

    @property
    def acks(self) -> int:
        """The number of backups that will notify the client, during a `done` callback."""
        return self.batches.acks

    @property
    def unknown_because(self) -> str:
        """The reason for an unknown outcome, during a `done(False)` callback."""
        return self.batches.unknown_because

    def settings_changed(self) -> None:
        self._defaults.clear()
        self.evictions.renew()
        for copy in self.leading:
            if copy is not None:
                self.retarget(copy)

    def retarget(self, copy: PartitionCopy) -> None:
        retarget(copy, self.targets, self.batches, self._out)

    def abandon(self, partition: int) -> None:
        self.batches.abandon(partition)

    @property
    def unsent(self) -> Iterable[Written]:
        return chain(self.batches.unsent, self.open_records)

    @property
    def waiting(self) -> int:
        return self.batches.waiting

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "records of an open buffer": len(self.open_records) + len(self.open_puts) + len(self._reads),
            **self.batches.leftovers,
            "destinations of migrations": len(self.joining),
        }
