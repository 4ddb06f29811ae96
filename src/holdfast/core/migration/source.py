"""The primary's side of a migration, and of bringing a replica up to date: supplying a partition's content (H3, H5).

The content always comes from the primary, also when a backup moves. Writes go on meanwhile:

- S-1: From the moment the destination has answered the first, empty chunk, every record goes to it too, and
  no write of the partition is acknowledged without it (rule 2).
- S-2: Only when the primary itself changes do writes stop: for the last chunk, after every write before it is
  acknowledged.
- S-3: The source keeps everything until a committed row says otherwise (rule 6).
- S-4: One chunk of at most `partitions.chunk_bytes` is under way for each supply, and at most `parallel`
  supplies at once.
- S-5: The receiver may hear once more of writes that were made before the content was taken, and not of what has
  undone them since. The first chunk says at which update counters the content begins: what was recorded up to them
  is in the content, or over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from holdfast.config import Settings
from holdfast.core.machine import MemberId, Outbox
from holdfast.core.messages import (
    Fill,
    Filled,
    FillEntries,
    MigrationReady,
    MigrationRefused,
    MigrationRequest,
)
from holdfast.core.placement.migration import Migration
from holdfast.core.placement.table import Row
from holdfast.core.replication.copies import Copies
from holdfast.core.replication.lane import Lane
from holdfast.core.rules import Rules
from holdfast.core.store.partition import MapPartition

ENTRY_OVERHEAD = 16
"""What an entry costs in a chunk besides its bytes."""


class Supply:
    """One partition on its way to one member."""

    __slots__ = (
        "index",
        "keys",
        "last_sent",
        "master",
        "migration",
        "partition",
        "sequence",
        "ticket",
        "to",
        "version",
    )

    def __init__(self, partition: int, version: int, to: MemberId, index: int, ticket: int) -> None:
        self.partition = partition
        self.version = version
        self.to = to
        self.index = index
        """The replica index that the receiver will have: it gets the maps that such a replica holds."""
        self.ticket = ticket
        self.sequence = 0
        self.last_sent = False
        self.keys: Iterator[tuple[MapPartition, bytes]] = iter(())
        self.migration: Migration | None = None
        self.master: MemberId | None = None


class Source:
    """Everything that this member supplies."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rules: Rules,
        rows: list[Row],
        copies: Copies,
        lane: Lane,
        *,
        is_active: Callable[[int], bool],
        pause: Callable[[int], None],
        filled: Callable[[int, MemberId], None],
        master: Callable[[], MemberId | None],
        view_number: Callable[[], int],
    ) -> None:
        self._me = me
        self._out = out
        self._rules = rules
        self._rows = rows
        self._copies = copies
        self._lane = lane
        self._is_active = is_active
        self._pause = pause
        self._filled = filled
        self._master = master
        self._view_number = view_number
        self._chunk_bytes = settings.partitions.chunk_bytes
        self._parallel = settings.partitions.parallel_migrations
        self._tickets = 0
        self._running: dict[tuple[int, MemberId], Supply] = {}
        self._queue: deque[Supply] = deque()
        self._early: list[tuple[MemberId, MigrationRequest]] = []
        self._draining: dict[int, Supply] = {}
        self.bytes_sent = 0
        self.chunks_sent = 0
        lane.drained = self._on_drained

    # -- what asks for a supply

    def on_request(self, sender: MemberId, request: MigrationRequest) -> None:
        """The master wants a migration of a partition whose primary this member is."""
        migration = request.migration
        partition = migration.partition
        row = self._rows[partition]
        if row.version < request.version or self._view_number() < request.view:
            self._early.append((sender, request))
            return
        if sender != self._master():
            return
        if row.version == request.version and row.owner == self._me and not self._is_active(partition):
            # It is about to take office in the row that the migration starts from.
            self._early.append((sender, request))
            return
        why = ""
        if row.version > request.version:
            why = f"the row is at version {row.version} here"
        elif row.owner != self._me:
            why = f"the primary is {row.owner}"
        elif any(key[0] == partition for key in self._running):
            why = "the partition is being copied already"
        if why:
            self._out.send(sender, MigrationRefused(request.view, partition, request.version, why))
            return
        supply = self._new(partition, MemberId(migration.destination), migration.destination_new)
        supply.migration = migration
        supply.master = sender
        self._start(supply)

    def bring_up_to_date(self, partition: int, member: MemberId) -> None:
        """Fill a replica of the row that holds something else; `filled` is called when it holds everything."""
        if (partition, member) in self._running:
            return
        supply = self._new(partition, member, self._rows[partition].index_of(member))
        if len(self._running) >= self._parallel:
            self._queue.append(supply)
        else:
            self._start(supply)

    def _new(self, partition: int, to: MemberId, index: int) -> Supply:
        self._tickets += 1
        return Supply(partition, self._rows[partition].version, to, index, self._tickets)

    # -- chunks

    def _start(self, supply: Supply) -> None:
        self._running[supply.partition, supply.to] = supply
        self._send(supply, [], last=False)

    def _send(self, supply: Supply, maps: list[FillEntries], *, last: bool) -> None:
        copy = self._copies.held[supply.partition]
        supply.last_sent = last
        self.chunks_sent += 1
        joining = supply.migration is not None
        self._out.send(
            supply.to,
            Fill(
                supply.partition,
                supply.version,
                supply.ticket,
                supply.sequence,
                last,
                copy.epoch,
                joining,
                maps,
            ),
        )
        if joining and not self._rules.holds("copy-complete"):
            self._report(supply)

    def on_filled(self, sender: MemberId, answer: Filled) -> None:
        """A chunk has arrived: send the next, or come to the end."""
        supply = self._running.get((answer.partition, sender))
        if supply is None or supply.ticket != answer.ticket or supply.sequence != answer.sequence:
            return
        if supply.version != self._rows[supply.partition].version:
            return
        if supply.last_sent:
            self._arrived(supply)
            return
        if supply.sequence == 0:
            self._open(supply)
        supply.sequence += 1
        self._next(supply)

    def _open(self, supply: Supply) -> None:
        """The receiver is ready: from now on it gets every record, and the content as it is now (S-1)."""
        copy = self._copies.held[supply.partition]
        if supply.migration is not None:
            self._lane.joining[supply.partition] = (supply.to, supply.index)
            self._lane.retarget(copy)
        keys = [(held, list(held.entries)) for held in self._wanted(supply)]
        supply.keys = ((held, key) for held, names in keys for key in names)

    def _wanted(self, supply: Supply) -> list[MapPartition]:
        """The maps that the receiver is to hold."""
        copy = self._copies.held[supply.partition]
        return [held for held in copy if self._copies.wanted(held.name, supply.index)]

    def _next(self, supply: Supply) -> None:
        maps = self._chunk(supply)
        if maps:
            self._send(supply, maps, last=False)
            return
        migration = supply.migration
        if migration is not None and migration.changes_primary:
            self._pause(supply.partition)
            if self._lane.unfinished(supply.partition):
                self._draining[supply.partition] = supply
                return
        self._finish(supply)

    def _finish(self, supply: Supply) -> None:
        """The last chunk: no entries, but the update counters that the content stands at."""
        counters = [FillEntries(held.name, held.counter, []) for held in self._wanted(supply)]
        self._send(supply, counters, last=True)

    def _on_drained(self, partition: int) -> None:
        supply = self._draining.pop(partition, None)
        if supply is not None and supply.version == self._rows[partition].version:
            self._finish(supply)

    def _chunk(self, supply: Supply) -> list[FillEntries]:
        """The next entries, up to the size of a chunk; nothing when all have been sent.

        The first chunk names every map, with the update counter at which its content is taken (S-5).
        """
        now_ns = self._out.now_ns
        gathered: dict[str, FillEntries] = {}
        if supply.sequence == 1:
            for held in self._wanted(supply):
                gathered[held.name] = FillEntries(held.name, held.counter, [])
        size = 0
        for held, key in supply.keys:
            value = held.entries.get(key)
            if value is None:
                continue
            ttl_ms = max_idle_ms = 0
            expiry = held.expiries.get(key) if held.expiries else None
            if expiry is not None:
                ttl_ms, max_idle_ms = expiry.remaining_ttl_ms(now_ns), expiry.max_idle_ms
            part = gathered.get(held.name)
            if part is None:
                part = gathered[held.name] = FillEntries(held.name, held.counter, [])
            part.entries.append((key, value, ttl_ms, max_idle_ms, held.hashes.get(key, 0)))
            size += len(key) + len(value) + ENTRY_OVERHEAD
            if size >= self._chunk_bytes:
                break
        self.bytes_sent += size
        return list(gathered.values())

    def _arrived(self, supply: Supply) -> None:
        if supply.migration is None:
            del self._running[supply.partition, supply.to]
            self._filled(supply.partition, supply.to)
            self._next_in_queue()
        elif self._rules.holds("copy-complete"):
            self._report(supply)

    def _report(self, supply: Supply) -> None:
        master = self._master()
        if master is None:
            return
        self._out.send(master, MigrationReady(self._view_number(), supply.partition, supply.version))
        if not self._rules.holds("forget-last") and supply.migration is not None:
            self._copies.held[supply.partition].maps.clear()

    def _next_in_queue(self) -> None:
        while self._queue and len(self._running) < self._parallel:
            supply = self._queue.popleft()
            if supply.version == self._rows[supply.partition].version:
                self._start(supply)

    # -- what ends a supply

    def row_changed(self, partition: int) -> None:
        """A committed row ends every supply of an older version, whatever became of it."""
        version = self._rows[partition].version
        for key, supply in list(self._running.items()):
            if key[0] == partition and supply.version != version:
                del self._running[key]
        self._draining.pop(partition, None)
        self._lane.joining.pop(partition, None)
        self._retry()
        self._next_in_queue()

    def _retry(self) -> None:
        if not self._early:
            return
        early, self._early = self._early, []
        for sender, request in early:
            self.on_request(sender, request)

    def took_office(self) -> None:
        """This member serves a partition now: look again at what waited for that."""
        self._retry()

    def view_changed(self, members: set[MemberId]) -> None:
        """These members have gone, or have a new life: what was on its way to them is lost.

        A migration to one of them stays, for its destination belongs to every acknowledgement until the master, who
        sees the same view, has raised the version.
        """
        for key in [
            key for key, supply in self._running.items() if key[1] in members and supply.migration is None
        ]:
            del self._running[key]
        self._retry()
        self._next_in_queue()

    def reset(self) -> None:
        """This member was removed: nothing is on its way any more."""
        self._running.clear()
        self._queue.clear()
        self._draining.clear()
        self._early.clear()
        self._lane.joining.clear()

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "supplies": len(self._running) + len(self._queue) + len(self._draining),
            "early migration requests": len(self._early),
        }

    def active(self) -> list[tuple[Migration, int]]:
        """The migrations in which this member is the primary, with the version that each starts from."""
        return [(s.migration, s.version) for s in self._running.values() if s.migration is not None]
