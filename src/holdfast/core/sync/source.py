"""The primary's side of a migration, and of bringing a replica up to date: supplying a partition's content (H3, H5).

The content always comes from the primary, also when a backup moves. Writes go on meanwhile:

- sync/S-1: From the moment the destination has answered the first, empty chunk, every record goes to it too, and
  no write of the partition is acknowledged without it (rule 2).
- sync/S-2: Only when the primary itself changes do writes stop: for the last chunk, after every write before it is
  acknowledged.
- sync/S-3: The source keeps everything until a committed row says otherwise (rule 6).
- sync/S-4: What does not fit is refused by name, or waits (`MIGRATION_REQUESTS`, `REPAIRS`). An answer to a supply
  that has ended, or to no chunk that is on its way, has no effect. A refusal of the destination ends the supply, and a
  migration is refused to the master. A supply that ends here while the row stays is called off: its receiver hears of
  it, and drops what it has of it.
- sync/S-5: One chunk is under way for each supply, and at most `parallel` supplies at once. A chunk has at most
  `partitions.chunk_bytes`, or one entry. Of all supplies together at most `partitions.flight_bytes` are not yet
  acknowledged, or one chunk; a chunk that would be too much waits, and those behind it.
- sync/S-6: The receiver may hear once more of writes that were made before the content was taken, and not of what has
  undone them since. The first chunk says at which update counters the content begins: what was recorded up to them is
  in the content, or over.
- sync/S-7: The answer to the empty chunk says what the receiver has. Of each map only what it misses is sent, if that
  is known (`migration.choice`); what memory does not hold any more is asked of the journal first. The reason is told.
- sync/S-8: A repair of a replica that is in office beside its primary gives way to a migration.
- sync/S-9: Writes do not stand still for longer than about `DRAIN_NS` before the last chunk: when a backup does not
  acknowledge what was written before, the migration is refused, and tried again later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from holdfast.config import Settings
from holdfast.core.cluster.standing import Standing
from holdfast.core.machine import HistoryRead, Outbox, ReadHistory
from holdfast.core.messages import (
    Fill,
    Filled,
    FillEnded,
    FillEntries,
    FillRefused,
    MigrationReady,
    MigrationRefused,
    MigrationRequest,
)
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.lifecycle import Case, Cases, Handling
from holdfast.core.model.migration_step import Migration
from holdfast.core.model.notices import (
    AssignmentChanged,
    HandoverBegan,
    HandoverEnded,
    PartitionDrained,
    ReplicaDiffers,
    ViewInstalled,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Record
from holdfast.core.model.sync_request import Base, Demand, How
from holdfast.core.model.timers import TimerName
from holdfast.core.placement.table_replication import TableReplication
from holdfast.core.replication.activation import Activation
from holdfast.core.replication.copies import Copies
from holdfast.core.replication.lane import Lane
from holdfast.core.services.hosting import Endpoint, MigrationEvent
from holdfast.core.store.digest import RangeDigests
from holdfast.core.store.replica import MapReplica, ServiceReplica
from holdfast.core.sync.choice import Choice, Mine, choose
from holdfast.core.sync.content import Chunk, Content, ContentPart, earlier_updates
from holdfast.core.sync.supply import (
    AWAITING,
    Supply,
    SupplyPhase,
    SupplyStep,
    SyncDone,
    aged,
    stretch,
    tell,
)

DRAIN_NS = 2 * SECOND
EMPTY = Chunk()


@dataclass(frozen=True, slots=True)
class RequestFound:
    """What the master's request for a migration finds at the member that it takes for the primary."""

    sender: MemberId
    request: MigrationRequest
    me: MemberId
    master: MemberId | None
    view: int
    """The number of this member's view."""
    row: Assignment
    outstanding: int
    """The version of a row that is stored and not committed; 0: none that is newer."""
    serves: bool
    moves: bool
    """Whether a migration of the partition is under way here."""


MIGRATION_REQUESTS: Final[Cases[RequestFound]] = Cases(
    "a request for a migration",
    (
        Case(
            "an older row or view than its own",
            lambda it: it.row.version < it.request.version or it.view < it.request.view,
            Handling.WAITS,
        ),
        Case(
            "a primary that is just taking office in the row that it starts from",
            lambda it: it.row.version == it.request.version and it.row.owner == it.me and not it.serves,
            Handling.WAITS,
        ),
        Case(
            "another master than who sent it",
            lambda it: it.sender != it.master,
            Handling.REFUSED,
            lambda it: f"the master is {it.master}",
        ),
        Case(
            "a newer row",
            lambda it: it.row.version > it.request.version,
            Handling.REFUSED,
            lambda it: f"the row is at version {it.row.version} here",
        ),
        Case(
            "another primary",
            lambda it: it.row.owner != it.me,
            Handling.REFUSED,
            lambda it: f"the primary is {it.row.owner}",
        ),
        Case(
            "a newer row that is stored and not committed",
            lambda it: bool(it.outstanding),
            Handling.REFUSED,
            lambda it: f"the decision on version {it.outstanding} is outstanding",
        ),
        Case(
            "a migration of the partition",
            lambda it: it.moves,
            Handling.REFUSED,
            lambda it: "the partition is being copied already",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RepairFound:
    """What the wish to fill a backup anew finds at its primary."""

    member: MemberId
    partition: int
    me: MemberId
    row: Assignment
    outstanding: int
    serves: bool
    moves: bool


REPAIRS: Final[Cases[RepairFound]] = Cases(
    "a wish to fill a backup anew",
    (
        Case(
            "another primary",
            lambda it: it.row.owner != it.me,
            Handling.REFUSED,
            lambda it: f"the primary is {it.row.owner}",
        ),
        Case(
            "a row in which the member is no backup",
            lambda it: it.member not in it.row.holding[1:],
            Handling.REFUSED,
            lambda it: f"{it.member} is no backup of partition {it.partition}",
        ),
        Case(
            "a primary that is just taking office",
            lambda it: not it.serves,
            Handling.REFUSED,
            lambda it: "the primary is just taking office",
        ),
        Case(
            "a migration of the partition",
            lambda it: it.moves,
            Handling.REFUSED,
            lambda it: "the partition is moving",
        ),
        Case(
            "a newer row that is stored and not committed",
            lambda it: bool(it.outstanding),
            Handling.REFUSED,
            lambda it: f"the decision on version {it.outstanding} is outstanding",
        ),
    ),
)


class Source:
    """Everything that this member supplies."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        copies: Copies,
        lane: Lane,
        *,
        membership: Standing,
        table_replication: TableReplication,
        activation: Activation,
        journal: bool = False,
    ) -> None:
        """`journal`: whether this member has one to be asked for older updates."""
        self._me = me
        self._out = out
        self._rows = rows
        self._copies = copies
        self._lane = lane
        self._membership = membership
        self._table_replication = table_replication
        self._activation = activation
        self._journal = journal
        self._reads: dict[int, tuple[Supply, MapReplica, int]] = {}
        """What the journal was asked for: by ticket the supply, the map, and up to which number."""
        self._read_tickets = 0
        self._chunk_bytes = settings.partitions.chunk_bytes
        self._flight_bytes = settings.partitions.flight_bytes
        self._parallel = settings.partitions.parallel_migrations
        self._tickets = 0
        self._running: dict[tuple[int, MemberId], Supply] = {}
        self._queue: deque[Supply] = deque()
        self._early: list[tuple[MemberId, MigrationRequest]] = []
        self._held_up: deque[Supply] = deque()
        """Supplies with a chunk that is ready."""
        self.flight = 0
        """Bytes that were sent and are not yet acknowledged."""
        self.bytes_sent = 0
        self.chunks_sent = 0
        self.bytes_history = self.bytes_ranges = self.bytes_full = 0
        """Of these: missed updates, key ranges that differed, and all else."""
        self.fills = dict.fromkeys(How, 0)
        """How many maps of partitions were brought up to date, by what was sent."""

    # -- what asks for a supply

    def on_request(self, sender: MemberId, request: MigrationRequest) -> None:
        """The master wants a migration of a partition whose primary this member is."""
        migration = request.migration
        partition = migration.partition
        found = RequestFound(
            sender,
            request,
            self._me,
            self._master(),
            self._view_number(),
            self._rows[partition],
            self._outstanding(partition),
            self._is_active(partition),
            any(s.partition == partition and not s.is_repair for s in self._running.values()),
        )
        handling, why = MIGRATION_REQUESTS.judge(found)
        if handling is Handling.WAITS:
            self._early.append((sender, request))
            return
        if handling is Handling.REFUSED:
            self._out.send(sender, MigrationRefused(request.view, partition, request.version, why))
            return
        for repair in [s for s in self._running.values() if s.partition == partition]:
            self._call_off(repair, "the partition is moving")
        supply = self._new(partition, MemberId(migration.destination), migration.destination_new)
        supply.migration = migration
        supply.master = sender
        if migration.source == self._me:
            self._copies.services.begin(
                MigrationEvent(partition, Endpoint.SOURCE, migration.source_current, migration.source_new)
            )
        self._start(supply)

    def _is_active(self, partition: int) -> bool:
        return partition in self._activation.active

    def _master(self) -> MemberId | None:
        return self._membership.master

    def _view_number(self) -> int:
        view = self._membership.view
        return view.number if view is not None else 0

    def _outstanding(self, partition: int) -> int:
        """The version of a row that is stored here and not committed; 0: none that is newer."""
        stored = self._table_replication.stored_assignment(partition)
        return stored.version if stored is not None and stored.version > self._rows[partition].version else 0

    def bring_up_to_date(self, notice: ReplicaDiffers) -> None:
        """Fill a replica of the row that holds something else; activation hears when it holds everything."""
        self._supply(notice.partition, notice.member)

    def refill(self, partition: int, member: MemberId, told: SyncDone, *, compare: bool = True) -> None:
        """Mend a backup while this member serves; writes go on. `compare`: its content may be wrong, too.

        The backup keeps its copy until the new one is complete. `told` hears "" then, or why that is not so.
        """
        found = RepairFound(
            member,
            partition,
            self._me,
            self._rows[partition],
            self._outstanding(partition),
            self._is_active(partition),
            self.moves(partition),
        )
        handling, why = REPAIRS.judge(found)
        if handling is Handling.REFUSED:
            told(why)
        else:
            supply = self._supply(partition, member, compare=compare)
            supply.told.append(told)

    def moves(self, partition: int) -> bool:
        """Whether a migration of this partition is under way here."""
        return any(s.partition == partition and s.migration is not None for s in self._running.values())

    def _supply(self, partition: int, member: MemberId, *, compare: bool = False) -> Supply:
        """The supply that fills this replica of the row: the one that is under way or waits, else a new one."""
        version = self._rows[partition].version
        for supply in [*self._running.values(), *self._queue]:
            if (supply.partition, supply.to, supply.version) == (partition, member, version):
                return supply
        supply = self._new(partition, member, self._rows[partition].index_of(member))
        supply.compare = compare
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
        supply.step(SupplyStep.STARTED)
        assert self._rows[supply.partition].owner == self._me, "the content comes from the primary"
        assert (supply.partition, supply.to) not in self._running, "one supply of a partition to a member"
        self._running[supply.partition, supply.to] = supply
        self._send(supply, EMPTY, last=False)

    def _send(self, supply: Supply, chunk: Chunk, *, last: bool) -> None:
        copy = self._copies.held[supply.partition]
        assert self._running.get((supply.partition, supply.to)) is supply, "only what is under way is sent"
        assert not supply.flight, "one chunk at a time (sync/S-5)"
        supply.flight = chunk.size
        self.flight += chunk.size
        self.bytes_sent += chunk.size
        self.bytes_history += chunk.sizes[How.HISTORY]
        self.bytes_ranges += chunk.sizes[How.RANGES]
        self.bytes_full += chunk.sizes[How.FULL]
        supply.bytes += chunk.size
        self.chunks_sent += 1
        joining = supply.migration is not None
        requests = copy.requests.encode() if last else b""
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
                chunk.plans,
                chunk.records,
                supply.compare and supply.sequence == 0,
                requests,
                chunk.earlier,
            ),
        )

    def on_filled(self, sender: MemberId, answer: Filled) -> None:
        """A chunk has arrived: send the next, or come to the end."""
        supply = self._running.get((answer.partition, sender))
        if supply is None or supply.ticket != answer.ticket or supply.sequence != answer.sequence:
            return
        if supply.version != self._rows[supply.partition].version or supply.phase not in AWAITING:
            return
        self._landed(supply)
        if supply.phase is SupplyPhase.CLOSING:
            supply.step(SupplyStep.HELD)
            self._arrived(supply)
            return
        supply.sequence += 1
        if supply.phase is SupplyPhase.OFFERED:
            supply.step(SupplyStep.ANSWERED)
            self._open(supply, answer.demand)
        else:
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
        self._lane.joining.pop(partition, None)
        self._copies.services.give_up(partition)
        if self._is_active(partition):
            self._out.tell(HandoverEnded(partition))
        master = self._master()
        if master is not None:
            self._out.send(master, MigrationRefused(self._view_number(), partition, supply.version, why))

    # -- what is sent

    def _open(self, supply: Supply, demand: Demand | None) -> None:
        """The receiver is ready: from now on it gets every record, and what it misses (sync/S-1, sync/S-7)."""
        copy = self._copies.held[supply.partition]
        if supply.migration is not None:
            self._lane.joining[supply.partition] = (supply.to, supply.index)
            self._lane.retarget(copy)
        supply.demand = demand
        for held in self._maps(supply):
            base = self._base(supply, held.name)
            choice = self._choose(supply, held, base, held.remembered_from)
            if choice.short and self._journal and held.journal != "off" and base is not None:
                self._read(supply, held, base)
            else:
                self._chosen(supply, held, choice)
        for share in self._shares(supply):
            self._choose_share(supply, share)
        if not supply.reading:
            self._begin(supply)

    def _shares(self, supply: Supply) -> list[ServiceReplica]:
        """The services of which the receiver will hold a share."""
        copy = self._copies.held[supply.partition]
        return [held for held in copy.services.values() if self._copies.wanted(held.name, supply.index)]

    def _choose_share(self, supply: Supply, held: ServiceReplica) -> None:
        """A share is sent as the updates that were missed, if memory has them; else, or if it may be wrong, whole."""
        base, demand = self._base(supply, held.name), supply.demand
        if base is None or demand is None or supply.compare or held.tail is None:
            return
        same_epoch = demand.epoch == self._copies.held[supply.partition].epoch
        mine = Mine(held.proven_lineage(), held.counter, 0, held.remembered_from)
        choice = choose(mine, base, same_epoch=same_epoch)
        if choice.how in (How.HISTORY, How.SAME):
            supply.choices[held.name] = choice
            supply.missed[held.name] = held.tail.since(choice.after) if choice.after < held.counter else []

    def _base(self, supply: Supply, name: str) -> Base | None:
        maps = supply.demand.maps if supply.demand is not None else []
        return next((base for base in maps if base.map == name), None)

    def _choose(self, supply: Supply, held: MapReplica, base: Base | None, starts: int) -> Choice:
        demand = supply.demand
        same_epoch = demand is None or demand.epoch == self._copies.held[supply.partition].epoch
        compared = base is not None and base.digests and base.lwm == held.counter
        if base is not None and compared and held.state.damaged(adopt=False):
            # The receiver holds what the updates have made; it must not get what has become of that here.
            self._out.note(
                "what the primary holds is damaged: holdfast repair",
                level="error",
                partition=supply.partition,
                map=held.name,
            )
            return Choice(How.SAME, "the primary's own content is damaged", base.lwm)
        digests = RangeDigests.digests(held.state.entries) if base is not None and base.digests else ()
        mine = Mine(held.proven_lineage(), held.counter, len(held.state.entries), starts, digests)
        return choose(mine, base, same_epoch=same_epoch)

    def _chosen(self, supply: Supply, held: MapReplica, choice: Choice) -> None:
        supply.choices[held.name] = choice
        if choice.how is not How.FULL and choice.after < held.counter and held.tail is not None:
            supply.missed[held.name] = held.tail.since(choice.after)

    def _read(self, supply: Supply, held: MapReplica, base: Base) -> None:
        """Ask the journal for what memory does not hold any more. What comes after now is sent as it is written."""
        self._read_tickets += 1
        supply.reading += 1
        self._reads[self._read_tickets] = (supply, held, held.counter)
        self._out.effects.append(
            ReadHistory(self._read_tickets, supply.partition, held.name, base.lwm, held.counter)
        )

    def on_history(self, event: HistoryRead) -> None:
        """The journal has answered: what it has, or from where on it would have."""
        asked = self._reads.pop(event.ticket, None)
        if asked is None:
            return
        supply, held, upto = asked
        supply.reading -= 1
        base = self._base(supply, held.name)
        records = stretch(event.records, base.lwm if base is not None else 0, upto)
        if records is not None and base is not None:
            choice = self._choose(supply, held, base, base.lwm)
            if choice.how is not How.FULL:
                supply.missed[held.name] = records
        else:
            starts = event.since if event.since >= 0 else held.remembered_from
            choice = self._choose(supply, held, base, max(starts, base.lwm + 1 if base is not None else 0))
        supply.choices[held.name] = choice
        assert supply.reading >= 0, "each question is answered once"
        if not supply.reading:
            self._begin(supply)

    def _begin(self, supply: Supply) -> None:
        """Everything is chosen: send it."""
        parts: list[ContentPart] = []
        for held in self._maps(supply):
            choice = supply.choices.get(held.name)
            earlier = earlier_updates(held, choice, self._base(supply, held.name))
            if choice is None:
                # It has come into being since.
                parts.append(ContentPart(held, earlier=earlier))
            else:
                self.fills[choice.how] += 1
                parts.append(
                    ContentPart(held, choice.how, choice.ranges, self._missed(supply, held), earlier)
                )
        services: list[ServiceReplica] = []
        for share in self._shares(supply):
            choice = supply.choices.get(share.name)
            if choice is None:
                services.append(share)
            else:
                self.fills[choice.how] += 1
                parts.append(ContentPart(share, choice.how, (), supply.missed.pop(share.name)))
        supply.content = Content(parts, services)
        self._next(supply)

    def _missed(self, supply: Supply, held: MapReplica) -> list[tuple[int, Record]] | None:
        """The updates that were missed; of times to live what is left of them."""
        missed = supply.missed.pop(held.name, None)
        if not missed or not held.state.expiries:
            return missed
        now_ns = self._out.now_ns
        return [(term, aged(record, held.state.expiries.get(record.key), now_ns)) for term, record in missed]

    def _maps(self, supply: Supply) -> list[MapReplica]:
        """The maps that the receiver will hold."""
        copy = self._copies.held[supply.partition]
        return [held for held in copy.maps.values() if self._copies.wanted(held.name, supply.index)]

    def _next(self, supply: Supply) -> None:
        assert supply.content is not None
        chunk = supply.content.chunk(min(self._chunk_bytes, self._flight_bytes), self._out.now_ns)
        if chunk is not None:
            supply.ready = chunk
            supply.step(SupplyStep.READY)
            self._held_up.append(supply)
            self._send_ready()
            return
        migration = supply.migration
        if migration is not None and migration.changes_primary:
            if self._out.now_ns - self._lane.waits_since(supply.partition) > DRAIN_NS:
                self._break_off(supply)
                return
            self._out.tell(HandoverBegan(supply.partition))
            if self._lane.unfinished(supply.partition):
                supply.step(SupplyStep.PAUSED)
                self._out.timer(TimerName.DRAINING, DRAIN_NS)
                return
        self._finish(supply)

    def _break_off(self, supply: Supply) -> None:
        """sync/S-9: somebody does not keep up, and the partition is not to stand still for that."""
        why = "a backup does not acknowledge what was written"
        self._call_off(supply, why)
        self._give_up(supply, why)
        self._next_in_queue()

    def on_draining(self) -> None:
        """Time to look which handovers wait for their backups for too long."""
        now_ns = self._out.now_ns
        for supply in self._draining():
            if now_ns - self._lane.waits_since(supply.partition) > DRAIN_NS:
                self._break_off(supply)
        if self._draining():
            self._out.timer(TimerName.DRAINING, DRAIN_NS)

    def _draining(self) -> list[Supply]:
        return [supply for supply in self._running.values() if supply.phase is SupplyPhase.DRAINING]

    def _send_ready(self) -> None:
        """Send the chunks that may go, first come, first served (sync/S-5)."""
        while self._held_up:
            supply = self._held_up[0]
            chunk = supply.ready
            if chunk is not None and supply.version == self._rows[supply.partition].version:
                if self.flight and self.flight + chunk.size > self._flight_bytes:
                    return
                supply.ready = None
                supply.step(SupplyStep.SENT)
                self._send(supply, chunk, last=False)
            self._held_up.popleft()

    def _finish(self, supply: Supply) -> None:
        """The last chunk: no entries, but the update counters that the content stands at."""
        last = Chunk()
        last.maps = [
            FillEntries(held.name, held.counter, lineage=list(held.lineage)) for held in self._maps(supply)
        ]
        supply.step(SupplyStep.LAST)
        self._send(supply, last, last=True)

    def on_drained(self, notice: PartitionDrained) -> None:
        """Every write before the last chunk is acknowledged."""
        partition = notice.partition
        for supply in self._draining():
            if supply.partition == partition and supply.version == self._rows[partition].version:
                self._finish(supply)

    def _arrived(self, supply: Supply) -> None:
        self._note(supply)
        if supply.migration is None:
            self._end(supply)
            self._activation.holds(supply.partition, supply.to)
            self._next_in_queue()
        else:
            self._report(supply)

    def _note(self, supply: Supply) -> None:
        """Tell what was sent, and why so much: of the map of which it was most."""
        if not supply.choices:
            return
        name, choice = max(supply.choices.items(), key=lambda item: item[1].how)
        usual = choice.how in (How.SAME, How.HISTORY) or supply.demand is None or not supply.demand.maps
        self._out.note(
            "replica synchronised",
            level="debug" if usual else "info",
            partition=supply.partition,
            to=supply.to,
            how=choice.how.name.lower(),
            map=name,
            why=choice.why,
            bytes=supply.bytes,
        )

    def _report(self, supply: Supply) -> None:
        master = self._master()
        if master is None:
            return
        self._out.send(master, MigrationReady(self._view_number(), supply.partition, supply.version))

    def _next_in_queue(self) -> None:
        while self._queue and len(self._running) < self._parallel:
            supply = self._queue.popleft()
            if supply.version != self._rows[supply.partition].version:
                self._drop(supply, "the row has changed")
            elif self.moves(supply.partition):
                self._drop(supply, "the partition is moving")
            else:
                self._start(supply)

    # -- what ends a supply

    def _end(self, supply: Supply, why: str = "") -> None:
        del self._running[supply.partition, supply.to]
        supply.ready = None
        supply.step(SupplyStep.ENDED)
        for ticket in [ticket for ticket, asked in self._reads.items() if asked[0] is supply]:
            del self._reads[ticket]
        self._landed(supply)
        tell(supply, why)

    def _drop(self, supply: Supply, why: str) -> None:
        """It ends before it began, or with this member's stay in the cluster."""
        supply.step(SupplyStep.ENDED)
        tell(supply, why)

    def _call_off(self, supply: Supply, why: str) -> None:
        """End it though the row stays as it is, so that nothing else would tell the receiver."""
        self._end(supply, why)
        self._out.send(supply.to, FillEnded(supply.partition, supply.version, supply.ticket, why))

    def _landed(self, supply: Supply) -> None:
        """What it had in flight is not any more."""
        self.flight -= supply.flight
        supply.flight = 0
        assert self.flight >= 0, "no more lands than was sent"
        self._send_ready()

    def on_assignment(self, notice: AssignmentChanged) -> None:
        """A committed row ends every supply of an older version, whatever became of it."""
        partition = notice.partition
        version = self._rows[partition].version
        for key, supply in list(self._running.items()):
            if key[0] == partition and supply.version != version:
                self._end(supply, "the row has changed")
        self._lane.joining.pop(partition, None)
        self._retry()
        self._next_in_queue()

    def _retry(self) -> None:
        if not self._early:
            return
        early, self._early = self._early, []
        for sender, request in early:
            self.on_request(sender, request)

    def became_primary(self) -> None:
        """This member serves a partition now: look again at what waited for that."""
        self._retry()

    def on_view(self, notice: ViewInstalled) -> None:
        """What was on its way to members that have gone, or have a new life, is lost.

        A migration to one of them stays, for its destination belongs to every acknowledgement until the master, who
        sees the same view, has raised the version.
        """
        if not notice.admitted:
            self._reset()
            return
        members = notice.gone | notice.came
        for key, supply in list(self._running.items()):
            if key[1] in members and supply.migration is None:
                self._end(supply, f"{key[1]} is gone")
            elif key[1] in members:
                self._landed(supply)
        self._retry()
        self._next_in_queue()

    def _reset(self) -> None:
        """This member was removed: nothing is on its way any more."""
        for supply in [*self._running.values(), *self._queue]:
            self._drop(supply, "this member was removed from the cluster")
        self._reads.clear()
        self._running.clear()
        self._held_up.clear()
        self.flight = 0
        self._queue.clear()
        self._early.clear()
        self._lane.joining.clear()

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "supplies": len(self._running) + len(self._queue),
            "early migration requests": len(self._early),
            "reads of history": len(self._reads),
        }

    def active(self) -> list[tuple[Migration, int]]:
        """The migrations in which this member is the primary, with the version that each starts from."""
        return [(s.migration, s.version) for s in self._running.values() if s.migration is not None]
