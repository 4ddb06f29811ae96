"""The primary's side of a migration, and of bringing a replica up to date: supplying a partition's content (H3, H5).

The content always comes from the primary, also when a backup moves. Writes go on meanwhile:

- S-1: From the moment the destination has answered the first, empty chunk, every record goes to it too, and
  no write of the partition is acknowledged without it (rule 2).
- S-2: Only when the primary itself changes do writes stop: for the last chunk, after every write before it is
  acknowledged.
- S-3: The source keeps everything until a committed row says otherwise (rule 6).
- S-4: What a request or an answer finds here, and what comes of it:

      a request of a newer view or version     waits until this member is there too
      of a version at which it takes office     waits until it serves
      of somebody who is not the master here    refused
      of an older version, or not the primary   refused
      a newer row is stored, not committed      refused: the decision is outstanding
      the partition is being copied             refused
      an answer to a supply that has ended      has no effect
      a refusal of the destination              ends the supply, and a migration is refused to the master
      a repair, not in office, or it is moving  refused, in words

- S-5: One chunk is under way for each supply, and at most `parallel` supplies at once. A chunk has at most
  `partitions.chunk_bytes`, or one entry. Of all supplies together at most `partitions.flight_bytes` are not yet
  acknowledged, or one chunk; a chunk that would be too much waits, and those behind it.
- S-6: The receiver may hear once more of writes that were made before the content was taken, and not of what has undone
  them since. The first chunk says at which update counters the content begins: what was recorded up to them is in the
  content, or over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.config import Settings
from holdfast.core.machine import MemberId, Outbox
from holdfast.core.messages import (
    Fill,
    Filled,
    FillEntries,
    FillRefused,
    MigrationReady,
    MigrationRefused,
    MigrationRequest,
)
from holdfast.core.migration.content import Chunk, Content
from holdfast.core.migration.services import Endpoint, MigrationEvent
from holdfast.core.placement.migration import Migration
from holdfast.core.placement.table import Row
from holdfast.core.replication.copies import Copies
from holdfast.core.replication.lane import Lane
from holdfast.core.rules import Rules
from holdfast.core.store.partition import MapPartition

EMPTY = Chunk()


class Supply:
    """One partition on its way to one member."""

    __slots__ = (
        "content",
        "flight",
        "index",
        "last_sent",
        "master",
        "migration",
        "partition",
        "ready",
        "sequence",
        "ticket",
        "to",
        "told",
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
        self.content: Content | None = None
        self.ready: Chunk | None = None
        """A chunk that waits until it may go (S-5)."""
        self.flight = 0
        """Bytes of the chunk that is not yet acknowledged."""
        self.migration: Migration | None = None
        self.master: MemberId | None = None
        self.told: list[Callable[[str], None]] = []
        """Who wants to hear how it ends: "", or why the receiver was not filled."""


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
        stored_row: Callable[[int], Row | None],
        pause: Callable[[int], None],
        resume: Callable[[int], None],
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
        self._stored_row = stored_row
        self._pause = pause
        self._resume = resume
        self._filled = filled
        self._master = master
        self._view_number = view_number
        self._chunk_bytes = settings.partitions.chunk_bytes
        self._flight_bytes = settings.partitions.flight_bytes
        self._parallel = settings.partitions.parallel_migrations
        self._tickets = 0
        self._running: dict[tuple[int, MemberId], Supply] = {}
        self._queue: deque[Supply] = deque()
        self._early: list[tuple[MemberId, MigrationRequest]] = []
        self._draining: dict[int, Supply] = {}
        self._held_up: deque[Supply] = deque()
        """Supplies with a chunk that is ready."""
        self.flight = 0
        """Bytes that were sent and are not yet acknowledged."""
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
        if row.version == request.version and row.owner == self._me and not self._is_active(partition):
            # It is about to take office in the row that the migration starts from.
            self._early.append((sender, request))
            return
        why = self._why_not(sender, request)
        if why:
            self._out.send(sender, MigrationRefused(request.view, partition, request.version, why))
            return
        supply = self._new(partition, MemberId(migration.destination), migration.destination_new)
        supply.migration = migration
        supply.master = sender
        if migration.source == self._me:
            self._copies.services.begin(
                MigrationEvent(partition, Endpoint.SOURCE, migration.source_current, migration.source_new)
            )
        self._start(supply)

    def _why_not(self, sender: MemberId, request: MigrationRequest) -> str:
        """Why a migration cannot be started, in words; empty when it can."""
        partition = request.migration.partition
        row = self._rows[partition]
        if sender != self._master():
            return f"the master is {self._master()}"
        if row.version > request.version:
            return f"the row is at version {row.version} here"
        if row.owner != self._me:
            return f"the primary is {row.owner}"
        stored = self._stored_row(partition)
        if stored is not None and stored.version > row.version:
            return f"the decision on version {stored.version} is outstanding"
        if any(key[0] == partition for key in self._running):
            return "the partition is being copied already"
        return ""

    def bring_up_to_date(self, partition: int, member: MemberId) -> None:
        """Fill a replica of the row that holds something else; `filled` is called when it holds everything."""
        self._supply(partition, member)

    def refill(self, partition: int, member: MemberId, told: Callable[[str], None]) -> None:
        """Fill a backup anew while this member serves, because an operator says so; writes go on.

        The backup keeps its copy until the new one is complete. `told` hears "" then, or why that is not so.
        """
        why = self._why_not_refilled(partition, member)
        if why:
            told(why)
        else:
            self._supply(partition, member).told.append(told)

    def _why_not_refilled(self, partition: int, member: MemberId) -> str:
        row = self._rows[partition]
        if row.owner != self._me:
            return f"the primary is {row.owner}"
        if row.index_of(member) < 1:
            return f"{member} is no backup of partition {partition}"
        if not self._is_active(partition):
            return "the primary is just taking office"
        if self._moves(partition):
            return "the partition is moving"
        stored = self._stored_row(partition)
        if stored is not None and stored.version > row.version:
            return f"the decision on version {stored.version} is outstanding"
        return ""

    def _moves(self, partition: int) -> bool:
        return any(s.partition == partition and s.migration is not None for s in self._running.values())

    def _supply(self, partition: int, member: MemberId) -> Supply:
        """The supply that fills this replica of the row: the one that is under way or waits, else a new one."""
        version = self._rows[partition].version
        for supply in [*self._running.values(), *self._queue]:
            if (supply.partition, supply.to, supply.version) == (partition, member, version):
                return supply
        supply = self._new(partition, member, self._rows[partition].index_of(member))
        if len(self._running) >= self._parallel:
            self._queue.append(supply)
        else:
            self._start(supply)
        return supply

    def _new(self, partition: int, to: MemberId, index: int) -> Supply:
        self._tickets += 1
        return Supply(partition, self._rows[partition].version, to, index, self._tickets)

    # -- chunks

    def _start(self, supply: Supply) -> None:
        self._running[supply.partition, supply.to] = supply
        self._send(supply, EMPTY, last=False)

    def _send(self, supply: Supply, chunk: Chunk, *, last: bool) -> None:
        copy = self._copies.held[supply.partition]
        supply.last_sent = last
        supply.flight = chunk.size
        self.flight += chunk.size
        self.bytes_sent += chunk.size
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
                supply.index,
                chunk.maps,
                chunk.shares,
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
        self._landed(supply)
        if supply.last_sent:
            self._arrived(supply)
            return
        if supply.sequence == 0:
            self._open(supply)
        supply.sequence += 1
        self._next(supply)

    def on_fill_refused(self, sender: MemberId, refused: FillRefused) -> None:
        """The receiver does not take it: end the supply, and the migration with it, which has changed nothing yet."""
        supply = self._running.get((refused.partition, sender))
        if supply is None or supply.ticket != refused.ticket:
            return
        self._out.note(
            "supply refused", level="debug", partition=supply.partition, to=sender, why=refused.why
        )
        self._end(supply, refused.why)
        if supply.migration is not None and supply.version == self._rows[supply.partition].version:
            self._give_up(supply, refused.why)
        self._next_in_queue()

    def _give_up(self, supply: Supply, why: str) -> None:
        """Go on as before the migration, and tell the master."""
        partition = supply.partition
        self._draining.pop(partition, None)
        self._lane.joining.pop(partition, None)
        self._copies.services.give_up(partition)
        if self._is_active(partition):
            self._resume(partition)
        master = self._master()
        if master is not None:
            self._out.send(master, MigrationRefused(self._view_number(), partition, supply.version, why))

    def _open(self, supply: Supply) -> None:
        """The receiver is ready: from now on it gets every record, and the content as it is now (S-1)."""
        copy = self._copies.held[supply.partition]
        if supply.migration is not None:
            self._lane.joining[supply.partition] = (supply.to, supply.index)
            self._lane.retarget(copy)
        services = [held for held in copy.services.values() if self._copies.wanted(held.name, supply.index)]
        supply.content = Content(self._maps(supply), services)

    def _maps(self, supply: Supply) -> list[MapPartition]:
        """The maps that the receiver will hold."""
        copy = self._copies.held[supply.partition]
        return [held for held in copy.maps.values() if self._copies.wanted(held.name, supply.index)]

    def _next(self, supply: Supply) -> None:
        assert supply.content is not None
        chunk = supply.content.chunk(min(self._chunk_bytes, self._flight_bytes), self._out.now_ns)
        if chunk is not None:
            supply.ready = chunk
            self._held_up.append(supply)
            self._send_ready()
            return
        migration = supply.migration
        if migration is not None and migration.changes_primary:
            self._pause(supply.partition)
            if self._lane.unfinished(supply.partition):
                self._draining[supply.partition] = supply
                return
        self._finish(supply)

    def _send_ready(self) -> None:
        """Send the chunks that may go, first come, first served (S-5)."""
        while self._held_up:
            supply = self._held_up[0]
            chunk = supply.ready
            if chunk is not None and supply.version == self._rows[supply.partition].version:
                if self.flight and self.flight + chunk.size > self._flight_bytes:
                    return
                supply.ready = None
                self._send(supply, chunk, last=False)
            self._held_up.popleft()

    def _finish(self, supply: Supply) -> None:
        """The last chunk: no entries, but the update counters that the content stands at."""
        last = Chunk()
        last.maps = [
            FillEntries(held.name, held.counter, lineage=held.lineage) for held in self._maps(supply)
        ]
        self._send(supply, last, last=True)

    def _on_drained(self, partition: int) -> None:
        supply = self._draining.pop(partition, None)
        if supply is not None and supply.version == self._rows[partition].version:
            self._finish(supply)

    def _arrived(self, supply: Supply) -> None:
        if supply.migration is None:
            self._end(supply)
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
            if supply.version != self._rows[supply.partition].version:
                _tell(supply, "the row has changed")
            elif self._moves(supply.partition):
                _tell(supply, "the partition is moving")
            else:
                self._start(supply)

    # -- what ends a supply

    def _end(self, supply: Supply, why: str = "") -> None:
        del self._running[supply.partition, supply.to]
        supply.ready = None
        self._landed(supply)
        _tell(supply, why)

    def _landed(self, supply: Supply) -> None:
        """What it had in flight is not any more."""
        self.flight -= supply.flight
        supply.flight = 0
        self._send_ready()

    def row_changed(self, partition: int) -> None:
        """A committed row ends every supply of an older version, whatever became of it."""
        version = self._rows[partition].version
        for key, supply in list(self._running.items()):
            if key[0] == partition and supply.version != version:
                self._end(supply, "the row has changed")
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
        for key, supply in list(self._running.items()):
            if key[1] in members and supply.migration is None:
                self._end(supply, f"{key[1]} is gone")
            elif key[1] in members:
                self._landed(supply)
        self._retry()
        self._next_in_queue()

    def reset(self) -> None:
        """This member was removed: nothing is on its way any more."""
        for supply in [*self._running.values(), *self._queue]:
            _tell(supply, "this member was removed from the cluster")
        self._running.clear()
        self._held_up.clear()
        self.flight = 0
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


def _tell(supply: Supply, why: str) -> None:
    told, supply.told = supply.told, []
    for one in told:
        one(why)
