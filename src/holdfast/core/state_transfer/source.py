"""The primary's side of migrations and repairs: it supplies the content of partitions (H3, H5).

The content always comes from the primary, also when a backup moves. Writes continue:

- state_transfer/S-1: As soon as the destination has answered the first, empty chunk, it gets every new record too, and
  no write of the partition is acknowledged without it (rule 2).
- state_transfer/S-2: Writes stop only if the primary itself changes: for the last chunk, after all writes before it are
  acknowledged.
- state_transfer/S-3: The source keeps everything until a committed assignment removes it (rule 6).
- state_transfer/S-4: Requests that do not fit are rejected with a reason, or wait (`MIGRATION_REQUESTS`, `REPAIRS`).
  Responses to a supply that has ended, or to no chunk in flight, have no effect. A rejection by the destination ends
  the supply; a migration is then rejected to the master. If a supply ends here while the assignment stays, the source
  notifies the receiver, which drops what it has got.
- state_transfer/S-5: Each supply has one chunk in flight, and at most `parallel` supplies run. A chunk has at most
  `partitions.chunk_bytes`, or one entry. All supplies together have at most `partitions.max_in_flight_bytes` in flight,
  or one chunk; a chunk beyond that waits, and so do those behind it. `TO_ONE_BYTES` limits those to one member in the
  same way; there only chunks to that member wait.
- state_transfer/S-6: Records older than the content may reach the receiver again, without those that undid them. The
  first chunk has the update counters at which the content begins; the receiver ignores records up to them.
- state_transfer/S-7: The response to the empty chunk lists what the receiver has. Only the missing part of each map is
  sent, if it is known (`state_transfer.delta_or_full`); updates that memory no longer has are first read from the
  journal.
- state_transfer/S-8: A repair of a replica while its primary serves gives way to a migration.
- state_transfer/S-9: Writes do not stop for longer than about `DRAIN_NS` before the last chunk: if a backup does not
  acknowledge earlier writes by then, the migration is rejected, and the master retries later.
- state_transfer/S-10: The locks of a partition whose primary changes are stored before writes stop, `LOCKS_AT_ONCE` in
  one step. Only the last ones, fewer than that, are stored when writes have stopped.

Example for state_transfer/S-6: a client sets x at counter 17 and removes it at 18, and then the content is taken: it
has no x, and says "from 18 on". Record 17, still on its way, would bring x back after the content.
"""

from __future__ import annotations

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
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.levels import PACKED
from holdfast.core.model.lifecycle import Handling
from holdfast.core.model.notices import (
    AssignmentChanged,
    HandoverBegan,
    HandoverEnded,
    HandoverNear,
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
from holdfast.core.state_transfer.supply import (
    AWAITING,
    Supply,
    SupplyPhase,
    SupplyStep,
    SyncDone,
    notify_end,
)
from holdfast.core.state_transfer.supply_flow import SupplyFlow
from holdfast.core.state_transfer.supply_requests import (
    MIGRATION_REQUESTS,
    REPAIRS,
    RepairFound,
    RequestFound,
)
from holdfast.core.state_transfer.supply_schedule import SupplySchedule
from holdfast.core.store.chunk import Chunk
from holdfast.core.store.key_locks import LOCKS_AT_ONCE

DRAIN_NS = 2 * SECOND
BEHIND_NS = 10 * MILLISECOND
"""While the oldest write of a partition waits for longer, no further locks of it are stored."""
LOOK_NS = 2 * MILLISECOND
EMPTY = Chunk()


class Source:
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
        """`journal`: this member has one, with older updates."""
        self._me = me
        self._out = out
        self._rows = rows
        self._copies = copies
        self._lane = lane
        self._membership = membership
        self._table_replication = table_replication
        self._activation = activation
        self.selection = Selection(out, copies, journal=journal)
        self._chunk_bytes_most = self._chunk_bytes = settings.partitions.chunk_bytes
        self.flow = SupplyFlow(rows, settings.partitions.max_in_flight_bytes)
        self.bound_flight(settings.partitions.max_in_flight_bytes)
        self.supplies = SupplySchedule(me, rows, settings.partitions.parallel_migrations)
        self._early: list[tuple[MemberId, MigrationRequest]] = []

    def bound_flight(self, max_in_flight_bytes: int) -> None:
        """A lower limit makes migrations slower, and delays clients less."""
        self.flow.most = max_in_flight_bytes
        self._chunk_bytes = min(self._chunk_bytes_most, max_in_flight_bytes)

    # -- requests for a supply

    def on_request(self, sender: MemberId, request: MigrationRequest) -> None:
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
            any(not supply.is_repair for supply in self.supplies.of_partition(partition)),
        )
        handling, why = MIGRATION_REQUESTS.judge(found)
        if handling is Handling.WAITS:
            self._early.append((sender, request))
            return
        if handling is Handling.REFUSED:
            self._out.send(sender, MigrationRefused(request.view, partition, request.version, why))
            return
        for repair in self.supplies.of_partition(partition):
            self._call_off(repair, "the partition is moving")
        supply = self.supplies.new(partition, MemberId(migration.destination), migration.destination_new)
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
        """Version of a newer assignment that is stored here and not committed; 0: none."""
        stored = self._table_replication.stored_assignment(partition)
        return stored.version if stored is not None and stored.version > self._rows[partition].version else 0

    def bring_up_to_date(self, notice: ReplicaDiffers) -> None:
        """`PrimaryActivation.holds` follows."""
        self._supply(notice.partition, notice.member)

    def refill(self, partition: int, member: MemberId, done: SyncDone, *, compare: bool = True) -> None:
        """While this member serves. `compare`: the backup's content may be wrong as well. The backup keeps its copy
        until the new one is complete. `done` is called with "", or with the reason for a failure.
        """
        found = RepairFound(
            member,
            partition,
            self._me,
            self._rows[partition],
            self._outstanding(partition),
            self._is_active(partition),
            self.supplies.is_moving(partition),
        )
        handling, why = REPAIRS.judge(found)
        if handling is Handling.REFUSED:
            done(why)
        else:
            supply = self._supply(partition, member, compare=compare)
            supply.on_end.append(done)

    def _supply(self, partition: int, member: MemberId, *, compare: bool = False) -> Supply:
        """A running or queued one, else a new one."""
        if (known := self.supplies.find(partition, member)) is not None:
            return known
        supply = self.supplies.new(partition, member, self._rows[partition].index_of(member))
        supply.compare = compare
        if self.supplies.has_room:
            self._start(supply)
        else:
            self.supplies.queue.append(supply)
        return supply

    # -- chunks

    def _start(self, supply: Supply) -> None:
        supply.step(SupplyStep.STARTED)
        assert self._rows[supply.partition].owner == self._me, "the content comes from the primary"
        assert (supply.partition, supply.to) not in self.supplies.running, (
            "one supply of a partition to a member"
        )
        self.supplies.running[supply.partition, supply.to] = supply
        self._send(supply, EMPTY, last=False)

    def _send(self, supply: Supply, chunk: Chunk, *, last: bool) -> None:
        copy = self._copies.held[supply.partition]
        assert self.supplies.running.get((supply.partition, supply.to)) is supply, (
            "only a running supply sends"
        )
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
                self._out.now_ns - supply.paused_since_ns if supply.paused_since_ns is not None else 0,
            ),
        )

    def on_filled(self, sender: MemberId, answer: Filled) -> None:
        """Send the next chunk, or finish."""
        supply = self.supplies.running.get((answer.partition, sender))
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
        """End the supply and its migration, which has changed nothing yet."""
        supply = self.supplies.running.get((refused.partition, sender))
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
        """Undo the preparations of a migration, and reject it to the master."""
        partition = supply.partition
        assert self.supplies.running.get((partition, supply.to)) is not supply, "it has ended before"
        self._lane.joining.pop(partition, None)
        self._copies.services.give_up(partition)
        if self._is_active(partition):
            self._out.notify(HandoverEnded(partition))
        master = self._master()
        if master is not None:
            self._out.send(master, MigrationRefused(self._view_number(), partition, supply.version, why))

    # -- the content

    def _open(self, supply: Supply, demand: Demand | None) -> None:
        """Begin to send new records (state_transfer/S-1), and the content that the receiver lacks
        (state_transfer/S-7).
        """
        copy = self._copies.held[supply.partition]
        assert supply.phase is SupplyPhase.CHOOSING, "the receiver has listed what it has"
        if supply.migration is not None:
            assert supply.partition not in self._lane.joining, "one migration of a partition"
            self._lane.joining[supply.partition] = (supply.to, supply.index)
            self._lane.retarget(copy)
        if self.selection.begin(supply, demand):
            self._next(supply)

    def on_history(self, event: HistoryRead) -> None:
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
        if supply.migration is not None and supply.migration.changes_primary:
            self._hand_over(supply)
        else:
            self._finish(supply)

    def _hand_over(self, supply: Supply) -> None:
        """Stop writes, when few locks are left to store (state_transfer/S-10)."""
        partition = supply.partition
        waits_ns = self._out.now_ns - self._lane.batches.waits_since(partition)
        if waits_ns > DRAIN_NS:
            self._break_off(supply)
            return
        if supply.phase is SupplyPhase.STORING and waits_ns > BEHIND_NS:
            # Writes would stop until the backups have all slices.
            self._out.timer(TimerName.LOCKS, LOOK_NS)
            return
        many = self._copies.held[partition].locks.unstored > LOCKS_AT_ONCE
        if many and self._lane.leading[partition] is not None:
            supply.step(SupplyStep.LOCKED)
            self._out.notify(HandoverNear(partition, LOCKS_AT_ONCE))
            self._out.timer(TimerName.LOCKS, 0)
            return
        supply.paused_since_ns = self._out.now_ns
        self._out.notify(HandoverBegan(partition))
        if self._lane.unfinished(partition):
            supply.step(SupplyStep.PAUSED)
            self._out.timer(TimerName.DRAINING, DRAIN_NS)
        else:
            self._finish(supply)

    def on_locks(self) -> None:
        """One slice of one partition, so that a step stays short."""
        storing = self.supplies.storing()
        if not storing:
            return
        self._hand_over(storing[0])
        if storing[0].phase is not SupplyPhase.STORING and storing[1:]:
            self._out.timer(TimerName.LOCKS, 0)

    def _break_off(self, supply: Supply) -> None:
        """state_transfer/S-9: clients have waited long enough."""
        why = "a backup does not acknowledge what was written"
        self._call_off(supply, why)
        self._give_up(supply, why)
        self._next_in_queue()

    def on_draining(self) -> None:
        """Abort handovers that have waited for a backup for too long."""
        now_ns = self._out.now_ns
        for supply in self.supplies.draining():
            if now_ns - self._lane.batches.waits_since(supply.partition) > DRAIN_NS:
                self._break_off(supply)
        if self.supplies.draining():
            self._out.timer(TimerName.DRAINING, DRAIN_NS)

    def _send_ready(self) -> None:
        """Where there is room, first come, first served (state_transfer/S-5)."""
        while (ready := self.flow.next()) is not None:
            supply, chunk = ready
            supply.step(SupplyStep.SENT)
            self._send(supply, chunk, last=False)

    def _finish(self, supply: Supply) -> None:
        """The last chunk has no entries, but the update counters of the complete content."""
        last = Chunk()
        last.maps = [
            FillEntries(held.name, held.counter, lineage=list(held.lineage))
            for held in self.selection.replicas(supply)
            if held.state.keyed
        ]
        supply.step(SupplyStep.LAST)
        self._send(supply, last, last=True)

    def on_drained(self, notice: PartitionDrained) -> None:
        """All earlier writes are acknowledged: send the last chunk."""
        partition = notice.partition
        for supply in self.supplies.draining():
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
        """Record, for the map that needed most, how the replica was filled and why."""
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
        while self.supplies.queue and self.supplies.has_room:
            supply = self.supplies.queue.popleft()
            if supply.version != self._rows[supply.partition].version:
                self._drop(supply, "the row has changed")
            elif self.supplies.is_moving(supply.partition):
                self._drop(supply, "the partition is moving")
            else:
                self._start(supply)

    # -- the end of a supply

    def _end(self, supply: Supply, why: str = "") -> None:
        assert self.supplies.running.get((supply.partition, supply.to)) is supply, (
            "only a running supply ends"
        )
        del self.supplies.running[supply.partition, supply.to]
        supply.ready = None
        if supply.phase is SupplyPhase.STORING or supply.paused_since_ns is not None:
            self._end_storing(supply.partition)
        supply.step(SupplyStep.ENDED)
        self.selection.forget(supply)
        self._landed(supply)
        assert not supply.flight, "an ended supply has nothing in flight"
        notify_end(supply, why)

    def _end_storing(self, partition: int) -> None:
        copy = self._copies.held.get(partition)
        if copy is not None:
            copy.locks.end_storing()

    def _drop(self, supply: Supply, why: str) -> None:
        """End a supply that has not begun, or of a member that was removed."""
        supply.step(SupplyStep.ENDED)
        notify_end(supply, why)

    def _call_off(self, supply: Supply, why: str) -> None:
        """Notify the receiver, which no new assignment would notify."""
        self._end(supply, why)
        self._out.send(supply.to, FillEnded(supply.partition, supply.version, supply.ticket, why))

    def _landed(self, supply: Supply) -> None:
        """Its chunk is no longer in flight: send others that have waited for room."""
        self.flow.lands(supply)
        self._send_ready()

    def on_assignment(self, notice: AssignmentChanged) -> None:
        """End all supplies of older versions, complete or not."""
        partition = notice.partition
        version = self._rows[partition].version
        for key, supply in list(self.supplies.running.items()):
            if key[0] == partition and supply.version != version:
                self._end(supply, "the row has changed")
        assert all(
            key[0] != partition or one.version == version for key, one in self.supplies.running.items()
        ), "an assignment ends all supplies of older versions"
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
        self._retry()

    def on_view(self, notice: ViewInstalled) -> None:
        """End repairs of members that have gone or have a new life: chunks in flight to them are lost. A migration to
        one of them stays: its destination must acknowledge every write until the master, which sees the same view,
        raises the version of the assignment.
        """
        if not notice.admitted:
            self._reset()
            return
        members = notice.gone | notice.came
        for key, supply in list(self.supplies.running.items()):
            if key[1] in members and supply.migration is None:
                self._end(supply, f"{key[1]} is gone")
            elif key[1] in members:
                self._landed(supply)
        self._retry()
        self._next_in_queue()

    def _reset(self) -> None:
        for supply in [*self.supplies.running.values(), *self.supplies.queue]:
            self._drop(supply, "this member was removed from the cluster")
        self.selection.reset()
        self.supplies.clear()
        self.flow.reset()
        self._early.clear()
        self._lane.joining.clear()
        assert not self.flow.flight, "nothing is in flight any more"

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "supplies": self.supplies.leftovers,
            "early migration requests": len(self._early),
            "reads of history": self.selection.outstanding,
        }
