"""The data lane: how sessions read and write entries of partitions that this member serves (DESIGN §3 and rule 2).

Sessions write through `set` and `remove`, entry by entry, with no event and no future, and end a read buffer
with `seal`. What then waits for whom is the affair of `acknowledgement`, who gets the records that of `targets`, and
what a change of the row does to both that of `assignment_changes`.

- primary_backup/E-1: What has ended is looked for in so many maps and entries at a time, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum, unique
from itertools import chain
from typing import NamedTuple, Protocol

import msgspec

from holdfast.config import TRANSACTIONS_MAP, Settings
from holdfast.core.journal.log import Log
from holdfast.core.machine import Outbox
from holdfast.core.model.decisions import Update
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import DEFAULT_TTL, EntryEvent, EventKind, Value
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transactions import locks_of_map
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.primary_backup.ack_batch import Completion, Written
from holdfast.core.primary_backup.assignment_changes import retarget
from holdfast.core.primary_backup.client_acks import ClientAcks
from holdfast.core.primary_backup.packed_puts_cy import PackedPuts
from holdfast.core.primary_backup.pending_acks import PendingAcks
from holdfast.core.primary_backup.replication_targets import ReplicationTargets
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica, MapReplica
from holdfast.core.store.request_ids import mark_of, naming

NAMES_KEPT = 1000
SWEPT_MAPS = 5000
"""Maps in partitions that one sweep looks at, at about: a millisecond's work."""


@unique
class Swept(IntEnum):
    """How far a sweep came."""

    ALL = 0
    SOME_ENTRIES = 1
    """There are more entries that have ended."""
    SOME_MAPS = 2
    """There are more maps to look at."""


class Ways(NamedTuple):
    """What of a member may be compiled."""

    entries: NewEntries = dict
    """Makes what maps keep entries in."""
    puts: PackedPuts = packed_puts_cy
    """The way of ordinary stores from there to the backups."""


PLAIN = Ways()


class EventSink(Protocol):
    """Who hears of every change of an entry of which somebody wants to hear."""

    listening: dict[str, int]
    """The maps of which somebody wants to hear."""

    def hear(self, event: EntryEvent) -> None:
        """This has happened to an entry, or to all of a map."""


class Awaited:
    """Where a copy stood when somebody began to wait for a change of it: of a map, a service, or any other state.

    Every change on a primary has a number. So writers do nothing for this, and nobody pays while nobody waits.
    """

    __slots__ = ("_stood", "copy")

    def __init__(self, copy: PartitionCopy) -> None:
        self.copy = copy
        self._stood = self._stands()

    def _stands(self) -> list[tuple[str, int]]:
        return [(held.name, held.counter) for held in self.copy]

    @property
    def changed(self) -> bool:
        """Whether it stands elsewhere now. A map that came into being is a change, too."""
        return self._stands() != self._stood


class Nobody:
    """Nobody hears."""

    def __init__(self) -> None:
        self.listening: dict[str, int] = {}

    def hear(self, event: EntryEvent) -> None:
        """Nothing comes of it."""


class Lane:
    """Writes of this member as primary. Implements `server.grid.Lane`."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        log: Log,
        ears: EventSink | None = None,
        collectors: ClientAcks | None = None,
        puts: PackedPuts = packed_puts_cy,
    ) -> None:
        """`collectors`: the clients that wait for backups themselves; None when all waiting is done here. `puts`: the
        way of what is packed.
        """
        self._me = me
        self._settings = settings
        self._out = out
        self.confirms_reads = any(chosen.reads == "confirmed" for chosen in settings.maps.values())
        """Whether there are maps whose reads are confirmed."""
        self.locks_entries = settings.transactional
        """Whether there are maps whose entries transactions may lock."""
        self._swept = 0
        """The partition with which the next sweep begins."""
        self._unswept = 0
        """How many are left of a round of sweeps in which many maps are looked at; 0: the next one begins a round."""
        self._locks_begin: dict[str, bytes] = {}
        """How the keys begin under which the locks of a map's entries are kept, by its name."""
        self.serving: list[PartitionCopy | None] = [None] * settings.partitions.count
        """For sessions: the copies that may be read and written here."""
        self.leading: list[PartitionCopy | None] = [None] * settings.partitions.count
        """The copies of which this member is the serving primary. While the cluster is passive `serving` is empty, and
        these are read through the router, which refuses writes."""
        ears = ears or Nobody()
        self.listening = ears.listening
        self.heard = ears.hear
        self._defaults: dict[str, tuple[int, int]] = {}
        self.awaited: dict[int, Awaited] = {}
        """Partitions that somebody waits to see changed (`PrimaryCopy.wake`)."""
        self.open_records: list[Written] = []
        """Of the buffer that is being worked on."""
        self.open_puts: list[MapReplica] = []
        """Those to whose unsent stores that buffer has added."""
        self._resting: dict[tuple[int, str], AnyReplica | None] = {}
        """Partitions and maps that answers of that buffer rest on, without having changed anything."""
        self.targets = ReplicationTargets(settings, journal=log.on)
        """To whom the records go."""
        self.joining = self.targets.joining
        self.batches = PendingAcks(settings, out, log, self.targets, collectors, puts)
        """What was sealed, and waits."""
        self.backlog = self.batches.backlog
        self.flush = self.batches.flush
        self.on_timer = self.batches.on_timer
        self.on_replicated = self.batches.on_replicated
        self.when_held = self.batches.when_held
        self.unfinished = self.batches.unfinished
        self.batches_of = self.batches.batches_of
        self.waits_since = self.batches.waits_since

    def attach(self, rows: list[Assignment]) -> None:
        """Use these rows (the member's table) to know the backups of a partition."""
        self.targets.rows = rows

    # -- reads and writes of entries: the hot path

    def read(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        """The entry's value, or None; counts as a use of it."""
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
        """Store an entry and queue its record; answers the old value, None if absent or expired."""
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
        """What the member takes for the time, by which entries end."""
        return self._out.now_ns

    def record(self, copy: PartitionCopy, held: AnyReplica, record: Record) -> None:
        """Queue the record of a change that was made and counted."""
        unsent = held.unsent
        if unsent is not None and unsent.sizes:
            # What was stored before comes before it (store/U-1).
            partition, end = copy.partition, record.counter - 1
            closed = unsent.take_closed(held, end)
            if closed is not None:
                self.batches.unsent.append((partition, held, closed))
            if unsent.sizes:
                self.open_records.append((partition, held, unsent.take(held, end)))
        self.open_records.append((copy.partition, held, record))

    def remove(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        """Take an entry out and queue the record; answers the old value."""
        held = copy.maps.get(name)
        if held is None or key not in held.state.entries:
            self.rest_on(copy, name)
            return None
        if held.state.expiries and held.state.expired(key, self._out.now_ns):
            self._expire(copy, held, key)
            return None
        return self.take_out(copy, held, key, EventKind.REMOVED)

    def rest_on(self, copy: PartitionCopy, name: str) -> None:
        """An answer of this buffer changes nothing in this map, and rests on what is there: it waits all the same."""
        self._resting[copy.partition, name] = copy.maps.get(name)

    def rest_on_service(self, copy: PartitionCopy, name: str) -> None:
        """The same of a service."""
        self._resting[copy.partition, name] = copy.services.get(name)

    def confirmed(self, name: str) -> bool:
        """Whether reads of this map are confirmed: to be asked only if those of some map are (`confirms_reads`)."""
        return self._settings.object(name).reads == "confirmed"

    def locked(self, copy: PartitionCopy, name: str, key: bytes) -> bool:
        """Whether a transaction has locked the entry: then the general way waits until it is over. To be asked before
        each write, if there are maps with locks at all (`locks_entries`).
        """
        held = copy.maps.get(TRANSACTIONS_MAP)
        if held is None or not held.state.entries:
            return False
        begins = self._locks_begin.get(name)
        if begins is None:
            if len(self._locks_begin) >= NAMES_KEPT:
                self._locks_begin.clear()
            begins = self._locks_begin[name] = locks_of_map(name)
        return begins + key in held.state.entries

    def take_out(self, copy: PartitionCopy, held: MapReplica, key: bytes, kind: EventKind) -> bytes | None:
        """Remove an entry for the reason `kind`."""
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
        """Count a change other than a store, and queue its record. `old`: what the entry was, if it is none now."""
        number = held.updates.next()
        if held.recorded:
            told = (b"", old, self._out.wall_ms()) if held.changes else ()
            record = Record(held.name, number, change, key, b"", ttl_ms, max_idle_ms, 0, *told)
            self.record(copy, held, record)

    def carry_out(self, copy: PartitionCopy, held: AnyReplica, update: Update) -> bytes | None:
        """Number what was decided, apply it, and queue the record; answers what applying it answers."""
        state, key, change = held.state, update.key, update.change
        kind = None
        if self.listening:
            # All that listeners hear of a service is what was done to it.
            kind = EventKind.UPDATED if change is Change.CALL else update.kind
        old = state.former(key) if kind is not None or held.changes else None
        key_hash = state.hash_word(key) if kind is not None else 0
        assert change is not Change.CLEAR or not held.changes, "of this change streams would tell nobody"
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
            self.heard(EntryEvent(kind, held.name, self._me, key, value, old, 1, word, number, copy.term))
        elif change is Change.CLEAR and held.name in self.listening:
            self.heard(
                EntryEvent(EventKind.INVALIDATED, held.name, self._me, sequence=number, term=copy.term)
            )
        return applied

    def tell_taken(self) -> None:
        """This member has a partition from now on: near caches may have missed what the primary before it has done, and
        may hold what nobody ever acknowledged.
        """
        for name in list(self.listening):
            self.heard(EntryEvent(EventKind.INVALIDATED, name, self._me))

    @property
    def opened(self) -> int:
        """How many records are in the open buffer."""
        return len(self.open_records)

    def remember(self, copy: PartitionCopy, request_id: bytes, value: Value, since: int) -> None:
        """A request is applied and answers this: remember it, and let the last of its records, those after the first
        `since` of the open buffer, tell the others.
        """
        mark = mark_of(request_id, value)
        copy.requests.note(mark)
        if len(self.open_records) > since:
            partition, held, record = self.open_records[-1]
            assert isinstance(record, Record), "whoever has an id makes records"
            self.open_records[-1] = (
                partition,
                held,
                msgspec.structs.replace(record, request=record.request + mark),
            )

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
        """Tell the listeners of the map, if there are any."""
        if held.name in self.listening:
            word = key_hash or (held.state.hashes.get(key, 0) if key is not None and held.state.hashes else 0)
            term = held.lineage[-1][0] if held.lineage else 0
            self.heard(
                EntryEvent(kind, held.name, self._me, key, value, old, count, word, held.updates.lwm, term)
            )

    def open(self, copy: PartitionCopy, name: str) -> MapReplica:
        """The map's share of a partition, with its backups known. Where maps were forgotten it begins after them, by a
        record of its own: backups may still hold a map of this name, or have nothing (store/R-1).
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
        """The map's own time to live and maximum idle time, in ms."""
        return self._defaults.get(name) or self._default_expiry(name)

    def _default_expiry(self, name: str) -> tuple[int, int]:
        chosen = self._settings.map(name)
        if len(self._defaults) >= NAMES_KEPT:
            self._defaults.clear()
        pair = self._defaults[name] = (chosen.ttl_ms, chosen.max_idle_ms)
        return pair

    def sweep(self, limit: int, copies: Sequence[PartitionCopy | None] | None = None) -> Swept:
        """Look at up to `limit` entries that may have ended, and remove those whose time is over; seals its own batch.
        The next sweep goes on where this one came to its limit, or had looked at enough maps (primary_backup/E-1).

        `copies`: those that are looked at, instead of all that sessions may write to.
        """
        if copies is None:
            copies = self.serving
        now_ns, maps = self._out.now_ns, 0
        swept = Swept.ALL
        for left in range(self._unswept or len(copies), 0, -1):
            if maps >= SWEPT_MAPS:
                self._unswept, swept = left, Swept.SOME_MAPS
                break
            copy = copies[self._swept]
            if copy is not None:
                maps += len(copy.maps)
                more = False
                for held in copy.maps.values():
                    if held.state.may_end(now_ns):
                        limit -= self.expire(copy, held, limit)
                        more = held.state.may_end(now_ns)
                if more or limit <= 0:
                    self._unswept, swept = 0, Swept.SOME_ENTRIES
                    break
            self._swept = (self._swept + 1) % len(copies)
        else:
            self._unswept = 0
        self.close_batch(lambda known: None)
        return swept

    def expire(self, copy: PartitionCopy, held: MapReplica, limit: int) -> int:
        """Remove the entries of a map whose time is over, of up to `limit` that are looked at; answers how many are."""
        ended, looked = held.state.endings.due(self._out.now_ns, limit)
        for key in ended:
            self._expire(copy, held, key)
        return looked

    # -- batches: what leaves this lane, and what is known of it (`acknowledgement`)

    @property
    def settled(self) -> bool:
        """Whether the open buffer has nothing to be sent, written down or confirmed."""
        return not self.open_records and not self.open_puts and not self._resting

    def close_batch(self, done: Completion) -> None:
        """End a read buffer: `done` is called when every sync backup holds what was written since the last seal, and
        has confirmed what the other answers rest on.
        """
        records, puts, resting = self.open_records, self.open_puts, self._resting
        if records or resting:
            self._begin_buffer()
        elif puts:
            self.open_puts = []
        else:
            done(True)
            return
        self.batches.close_batch(records, puts, resting, done)

    def close_batch_for(self, done: Completion, client: bytes, correlations: list[int]) -> None:
        """The same for requests of a client that collects acknowledgements itself. If all backups can tell it, `done`
        is called at once, while `acks` says how many will.
        """
        records, puts, resting = self.open_records, self.open_puts, self._resting
        if not records and not puts and not resting:
            done(True)
            return
        self._begin_buffer()
        self.batches.close_batch_for(records, puts, resting, done, client, correlations)

    def _begin_buffer(self) -> None:
        if self.open_records:
            self.open_records = []
        if self.open_puts:
            self.open_puts = []
        if self._resting:
            self._resting = {}

    @property
    def acks(self) -> int:
        """While callers are told: how many backups will tell the client."""
        return self.batches.acks

    @property
    def unknown_because(self) -> str:
        """While callers are told that an outcome is unknown: why."""
        return self.batches.unknown_because

    def retarget(self, copy: PartitionCopy) -> None:
        """The row or the destination changed while this member is primary (`assignment_changes`)."""
        retarget(copy, self.targets, self.batches, self._out)

    def abandon(self, partition: int) -> None:
        """This member is no longer the partition's primary (primary_backup/P-3)."""
        self.batches.abandon(partition)

    @property
    def unsent(self) -> Iterable[Written]:
        """What has been written since the last flush."""
        return chain(self.batches.unsent, self.open_records)

    @property
    def waiting(self) -> int:
        """Batches that wait for backups."""
        return self.batches.waiting

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "records of an open buffer": len(self.open_records) + len(self.open_puts) + len(self._resting),
            **self.batches.leftovers,
            "destinations of migrations": len(self.joining),
        }
