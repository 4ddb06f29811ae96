"""The primary's side of a migration, and of bringing a replica up to date: supplying a partition's content (H3, H5).

The content always comes from the primary, also when a backup moves. Writes go on meanwhile:

- state_transfer/S-1: From the moment the destination has answered the first, empty chunk, every record goes to it
  too, and no write of the partition is acknowledged without it (rule 2).
- state_transfer/S-2: Only when the primary itself changes do writes stop: for the last chunk, after every write
  before it is acknowledged.
- state_transfer/S-3: The source keeps everything until a committed row says otherwise (rule 6).
- state_transfer/S-4: What does not fit is refused by name, or waits (`MIGRATION_REQUESTS`, `REPAIRS`). An answer to a
  supply that has ended, or to no chunk that is on its way, has no effect. A refusal of the destination ends the
  supply, and a migration is refused to the master. A supply that ends here while the row stays is called off: its
  receiver hears of it, and drops what it has of it.
- state_transfer/S-5: One chunk is under way for each supply, and at most `parallel` supplies at once. A chunk has at
  most `partitions.chunk_bytes`, or one entry. Of all supplies together at most `partitions.max_in_flight_bytes` are
  not yet acknowledged, or one chunk; a chunk that would be too much waits, and those behind it. The same of
  `TO_ONE_BYTES` and of those to one member, where only those wait that go there, too.
- state_transfer/S-6: The receiver may hear once more of writes that were made before the content was taken, and not
  of what has undone them since. The first chunk says at which update counters the content begins: what was recorded
  up to them is in the content, or over.
- state_transfer/S-7: The answer to the empty chunk says what the receiver has. Of each map only what it misses is
  sent, if that is known (`state_transfer.delta_or_full`); what memory does not hold any more is asked of the journal
  first. The reason is told.
- state_transfer/S-8: A repair of a replica that is in office beside its primary gives way to a migration.
- state_transfer/S-9: Writes do not stand still for longer than about `DRAIN_NS` before the last chunk: when a backup
  does not acknowledge what was written before, the migration is refused, and tried again later.
"""

from __future__ import annotations

from collections import deque

from holdfast.config import Settings
from holdfast.core.events import HistoryRead
from holdfast.core.hosted_services import Endpoint, MigrationEvent
from holdfast.core.membership.membership_status import MembershipStatus
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
from holdfast.core.model.levels import PACKED
from holdfast.core.model.lifecycle import Handling
from holdfast.core.model.migration import Migration
from holdfast.core.model.notices import (
    AssignmentChanged,
    HandoverBegan,
    HandoverEnded,
    PartitionDrained,
    ReplicaDiffers,
    ViewInstalled,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.sync_request import Demand, How
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.primary_activation import PrimaryActivation
from holdfast.core.state_transfer.selection import Selection
from holdfast.core.state_transfer.supply import AWAITING, Supply, SupplyPhase, SupplyStep, SyncDone, tell
from holdfast.core.state_transfer.supply_flow import SupplyFlow
from holdfast.core.state_transfer.supply_requests import (
    MIGRATION_REQUESTS,
    REPAIRS,
    RepairFound,
    RequestFound,
)
from holdfast.core.store.chunk import Chunk

DRAIN_NS = 2 * SECOND
EMPTY = Chunk()


class Source:
    """Everything that this member supplies."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        copies: LocalReplicas,
        lane: Lane,
        *,
        membership: MembershipStatus,
        table_replication: TableReplication,
        activation: PrimaryActivation,
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
        self.selection = Selection(out, copies, journal=journal)
        """What each receiver is sent."""
        self._chunk_bytes_most = self._chunk_bytes = settings.partitions.chunk_bytes
        self.flow = SupplyFlow(rows, settings.partitions.max_in_flight_bytes)
        """What is on its way of all this."""
        self.bound_flight(settings.partitions.max_in_flight_bytes)
        self._parallel = settings.partitions.parallel_migrations
        self._tickets = 0
        self._running: dict[tuple[int, MemberId], Supply] = {}
        self._queue: deque[Supply] = deque()
        self._early: list[tuple[MemberId, MigrationRequest]] = []

    def bound_flight(self, max_in_flight_bytes: int) -> None:
        """Let no more than this be on its way from now on: what is lower is slower, and clients wait less meanwhile."""
        self.flow.most = max_in_flight_bytes
        self._chunk_bytes = min(self._chunk_bytes_most, max_in_flight_bytes)

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

    def supplies(self, partition: int) -> bool:
        """Whether anything of this partition is being supplied, or is to be."""
        return any(s.partition == partition for s in (*self._running.values(), *self._queue))

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
        assert to != self._me, "nobody supplies itself"
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
        self.flow.leaves(supply, chunk)
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
            "supply refused", level="debug", partition=supply.partition, to=sender, reason=refused.why
        )
        self._end(supply, refused.why)
        if supply.migration is not None and supply.version == self._rows[supply.partition].version:
            self._give_up(supply, refused.why)
        self._next_in_queue()

    def _give_up(self, supply: Supply, why: str) -> None:
        """Go on as before the migration, and tell the master."""
        partition = supply.partition
        assert self._running.get((partition, supply.to)) is not supply, "it has ended before"
        self._lane.joining.pop(partition, None)
        self._copies.services.give_up(partition)
        if self._is_active(partition):
            self._out.tell(HandoverEnded(partition))
        master = self._master()
        if master is not None:
            self._out.send(master, MigrationRefused(self._view_number(), partition, supply.version, why))

    # -- what is sent

    def _open(self, supply: Supply, demand: Demand | None) -> None:
        """The receiver is ready: from now on it gets every record, and what it misses (state_transfer/S-1,
        state_transfer/S-7).
        """
        copy = self._copies.held[supply.partition]
        assert supply.phase is SupplyPhase.CHOOSING, "what the receiver has is known"
        if supply.migration is not None:
            assert supply.partition not in self._lane.joining, "one migration of a partition"
            self._lane.joining[supply.partition] = (supply.to, supply.index)
            self._lane.retarget(copy)
        if self.selection.begin(supply, demand):
            self._next(supply)

    def on_history(self, event: HistoryRead) -> None:
        """The journal has answered; what waited for all that was asked can go on."""
        supply = self.selection.on_history(event)
        if supply is not None:
            self._next(supply)

    def _next(self, supply: Supply) -> None:
        assert supply.content is not None
        packs = self._out.does(PACKED)
        chunk = supply.content.chunk(self._chunk_bytes, self._out.now_ns, packs=packs)
        if chunk is not None:
            self.flow.hold(supply, chunk)
            supply.step(SupplyStep.READY)
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
        """state_transfer/S-9: somebody does not keep up, and the partition is not to stand still for that."""
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
        """Send the chunks that may go, first come, first served (state_transfer/S-5)."""
        while (ready := self.flow.next()) is not None:
            supply, chunk = ready
            supply.step(SupplyStep.SENT)
            self._send(supply, chunk, last=False)

    def _finish(self, supply: Supply) -> None:
        """The last chunk: no entries, but the update counters that the content stands at."""
        last = Chunk()
        last.maps = [
            FillEntries(held.name, held.counter, lineage=list(held.lineage))
            for held in self.selection.replicas(supply)
            if held.state.keyed
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
        assert supply.phase is SupplyPhase.ARRIVED, "the receiver holds everything"
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
            reason=choice.why,
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
        assert self._running.get((supply.partition, supply.to)) is supply, "only what is under way ends"
        del self._running[supply.partition, supply.to]
        supply.ready = None
        supply.step(SupplyStep.ENDED)
        self.selection.forget(supply)
        self._landed(supply)
        assert not supply.flight, "what has ended has nothing on its way"
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
        self.flow.lands(supply)
        self._send_ready()

    def on_assignment(self, notice: AssignmentChanged) -> None:
        """A committed row ends every supply of an older version, whatever became of it."""
        partition = notice.partition
        version = self._rows[partition].version
        for key, supply in list(self._running.items()):
            if key[0] == partition and supply.version != version:
                self._end(supply, "the row has changed")
        assert all(key[0] != partition or one.version == version for key, one in self._running.items()), (
            "a row ends every supply of an older version"
        )
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
        self.selection.reset()
        self._running.clear()
        self.flow.reset()
        self._queue.clear()
        self._early.clear()
        self._lane.joining.clear()
        assert not self.flow.flight, "nothing is on its way any more"

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "supplies": len(self._running) + len(self._queue),
            "early migration requests": len(self._early),
            "reads of history": self.selection.outstanding,
        }

    def active(self) -> list[tuple[Migration, int]]:
        """The migrations in which this member is the primary, with the version that each starts from."""
        return [(s.migration, s.version) for s in self._running.values() if s.migration is not None]
