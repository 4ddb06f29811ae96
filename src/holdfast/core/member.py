"""One member: routes each event to the machine that owns it, and composes the machines.

The machines know each other only through what this module hands them. Reading order: `machine`, `cluster.membership`,
`placement.table_replication`, `migration.master`, `sync.source`, `sync.destination`, `replication.lane`,
`replication.copies`, `replication.activation`, `routing.router`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.config import Settings
from holdfast.core import messages as m
from holdfast.core.cluster.identity import Identity, Timing
from holdfast.core.cluster.membership import Membership
from holdfast.core.journal.log import Log
from holdfast.core.journal.recovery import Recovered
from holdfast.core.journal.snapshot import snapshot_of
from holdfast.core.listeners import Listeners
from holdfast.core.machine import (
    Announce,
    AnswersUnread,
    BackpressureChanged,
    Become,
    ChangesAsked,
    ChangeState,
    CheckpointDone,
    CheckpointWanted,
    ClientRequest,
    ClockSet,
    ClusterChanged,
    CollectorAdded,
    CutLeased,
    CutRequested,
    DeadDeclared,
    DiskRoom,
    Durable,
    Effect,
    Event,
    Heard,
    HistoryRead,
    LaneUsed,
    LeaveRequested,
    ListenerAdded,
    LossAccepted,
    MemoryRoom,
    Outbox,
    PeerSilent,
    Received,
    RefillRequested,
    Reply,
    SeedAbsent,
    Started,
    SubscriptionEnded,
    TimerFired,
)
from holdfast.core.member_picture import Picture
from holdfast.core.migration.master import Migrations
from holdfast.core.model.ids import MILLISECOND, Address, MemberId
from holdfast.core.model.journal_entries import Began, Seen
from holdfast.core.model.operations import Outcome, Status
from holdfast.core.model.partition_table import Assignment, Table
from holdfast.core.model.timers import TimerName
from holdfast.core.model.views import Intent, Room, View
from holdfast.core.placement.table_replication import TableReplication
from holdfast.core.replication.activation import Activation
from holdfast.core.replication.change_streams import ChangeStreams
from holdfast.core.replication.collectors import Collectors
from holdfast.core.replication.copies import Copies
from holdfast.core.replication.lane import Lane
from holdfast.core.replication.primary_copy import PrimaryCopy
from holdfast.core.routing.router import Router
from holdfast.core.safety import Safety
from holdfast.core.services.hosting import Service
from holdfast.core.sync.anti_entropy import Repair
from holdfast.core.sync.destination import DISK_FULL, MEMORY_FULL, Destination
from holdfast.core.sync.source import Source

SWEEP_NS = 500 * MILLISECOND
SWEEP_LIMIT = 100
MEMORY_SHORT = (
    "memory is nearly full: writes that store entries are refused until entries are removed, a member "
    "joins, or limits.memory_bytes is raised"
)
HAS_LEFT = Outcome(Status.CLOSING, None, "this member has left the cluster")
MEMORY_TIGHT = "memory is full: writes that store entries are refused, and no partition is moved here"


class Member:
    """A whole member, pure. Give it events, carry out its effects."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        services: Sequence[Service] = (),
        recovered: Recovered | None = None,
    ) -> None:
        """`settings` are those `with_services` makes of the services; `recovered` is what was found in its files."""
        self.me = identity.info.uuid
        self.settings = settings
        self.out = Outbox()
        self.log = Log(self.out, on=bool(settings.persistence.directory))
        self.table = Table(settings.partitions.count)
        rows = self.table.rows
        timing = Timing(
            settings.cluster.heartbeat_ms * MILLISECOND, settings.cluster.suspect_after_ms * MILLISECOND
        )
        majority = settings.cluster.quorum == "majority"
        self.membership = Membership(
            identity,
            timing,
            self.out,
            majority=majority,
            view_changed=self._view_changed,
            may_part=self._may_part,
            may_demote=self._may_demote,
            safe=lambda: not self.why_unsafe(),
            rounds=self._rounds,
            known_rows=self._known_rows,
        )
        self.migrations = Migrations(settings, self.out, self.membership, 1 + settings.replica_backups())
        self.lane = Lane(self.me, settings, self.out, self.log)
        self.lane.attach(rows)
        self.copies = Copies(self.me, settings, self.out, rows, self.log, services)
        self.copies.cuts.lane = self.lane
        self.recovered = recovered
        if recovered is not None:
            self.copies.revive(recovered.copies)
        self.destination = Destination(
            self.me,
            self.out,
            rows,
            self.copies,
            self.log,
            stored_assignment=self.stored_assignment,
            tail_bytes=settings.replication.tail_bytes,
        )
        self.replication = PrimaryCopy(settings, self.out, self.lane)
        self.router = Router(
            self.me,
            settings,
            self.out,
            rows,
            self.replication,
            held=self.copies.held,
            neighbours=self.membership,
            offers=self,
        )
        self.lane.backlog.changed = self._backlog_changed
        self.activation = Activation(
            self.me,
            self.out,
            rows,
            self.copies,
            fill=self._fill,
            serve=self._serve,
            when_durable=self.log.when_durable,
        )
        self.source = Source(
            self.me,
            settings,
            self.out,
            rows,
            self.copies,
            self.lane,
            is_active=lambda partition: partition in self.activation.active,
            stored_assignment=self.stored_assignment,
            pause=self._pause,
            resume=self._serve,
            filled=self.activation.holds,
            master=lambda: self.membership.master,
            view_number=lambda: self.membership.view.number if self.membership.view else 0,
            journal=self.log.on,
        )
        self.repair = Repair(
            self.me,
            settings,
            self.out,
            rows,
            self.copies,
            self.source,
            self.log,
            is_active=lambda partition: partition in self.activation.active,
            may_repair=lambda: self.membership.cluster_state.migrates,
        )
        self.table_replication = TableReplication(
            self.table,
            self.membership,
            self.out,
            applied=self._assignment_changed,
            committed=self.migrations.committed,
            gathered=self.migrations.gathered,
            became_current=self._became_current,
            active=self.source.active,
        )
        self.migrations.table_replication = self.table_replication
        self.table_replication.when_durable = self.log.when_durable
        self.destination.why_no_room = self._why_no_room
        self.membership.assigned = lambda: self.table.assigned
        self.membership.write_down = lambda view: self.log.note(Seen(view))
        self.changes = ChangeStreams(settings, self.out, self.lane, self.copies, journal=self.log.on)
        self.safety = Safety(
            settings,
            self.out,
            self.membership,
            self.table_replication,
            self.migrations,
            self.activation,
            self.lane,
        )
        self.listeners = Listeners(
            self.me, self.out, self.lane, lambda: [info.uuid for info in self.membership.members()]
        )
        self.collectors = Collectors(self.out, lambda: [info.uuid for info in self.membership.members()])
        self.copies.collected = self.collectors.tell
        if settings.replication.backup_acks == "client":
            self.lane.batches.collectors = self.collectors
        self.table_replication.event_log.listen(lambda news: self.out.effects.append(Announce(news)))
        self._changed = False
        self._known_departing: set[MemberId] = set()
        self.picture = Picture(
            self.me,
            self.out,
            membership=self.membership,
            table=self.table,
            table_replication=self.table_replication,
            migrations=self.migrations,
            copies=self.copies,
            lane=self.lane,
            router=self.router,
            activation=self.activation,
            source=self.source,
            destination=self.destination,
            repair=self.repair,
            changes=self.changes,
            listeners=self.listeners,
            safety=self.safety,
        )
        """What all this is now, for those who only look."""

    # -- the contract

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """One step: the effects of one event."""
        self.out.now_ns = now_ns
        handle = EVENTS.get(type(event))
        assert handle is not None, f"{type(event).__name__} is no event of a member"
        handle(self, event)
        return self._end_of_step()

    # -- events, by kind

    def on_start(self) -> None:
        """The member comes to life: it looks for the cluster."""
        self.membership.start()
        self.out.timer(TimerName.SWEEP, SWEEP_NS)
        self.repair.start()

    def on_clock(self, epoch_ms: int) -> None:
        """What the wall clock showed when time began."""
        self.out.epoch_ms = epoch_ms

    def on_silent(self, member: MemberId) -> None:
        """Nobody listens where a member was."""
        self.membership.detector.silent(member)
        self.membership.consider()

    def on_leave(self) -> None:
        """The operator wants this member to leave."""
        self.membership.leave()
        self._intents_changed()

    def on_become(self, intent: Intent) -> None:
        """The operator wants this member to be a lite one, or not."""
        self.membership.become(intent)
        self._intents_changed()

    def on_loss_accepted(self) -> None:
        """Who makes the table is told."""
        if self.membership.view is not None and self.membership.master is not None:
            self.out.send(self.membership.master, m.AcceptLoss(self.membership.view.number))

    def on_durable(self, event: Durable) -> None:
        """The journal has got on."""
        self.log.on_durable(event.number)
        self.membership.durable(event.reached)

    def on_history(self, event: HistoryRead) -> None:
        """The journal was read: for a replica, or for a change stream."""
        (self.source if event.ticket > 0 else self.changes).on_history(event)

    def on_disk_room(self, *, full: bool) -> None:
        """The disk is full, or has room again."""
        self.membership.note_full(full=full)
        self._restrict()

    def on_request(self, event: ClientRequest) -> None:
        """A session of this member wants something done."""
        if self.membership.has_left:
            self.out.complete(event.token, HAS_LEFT)
        else:
            self.router.execute(event.request, event.token)

    def on_cut(self, event: CutRequested) -> None:
        """A client wants a cut."""
        reply = Reply(self.out, event.token)
        cuts = self.copies.cuts
        cuts.take(event.cut, event.maps, event.partitions, event.lease_ms, reply, passive=event.passive)

    def on_unsubscribe(self, event: SubscriptionEnded) -> None:
        """A listener or collector has gone."""
        self.listeners.remove(event.token)
        self.collectors.remove(event.token)

    def on_memory_room(self, room: Room) -> None:
        """There is more or less room in memory."""
        before = self.membership.intents.short.get(self.me, Room.PLENTY)
        if room is before:
            return
        self.membership.note_room(room)
        if room > before:
            what = MEMORY_SHORT if room is Room.LITTLE else MEMORY_TIGHT
            self.out.note(what, level="warning", limit=self.settings.limits.memory_bytes)
        elif room is Room.PLENTY:
            self.out.note("there is room in memory again: writes that store entries are taken")
        else:
            self.out.note("there is room in memory for migrations again")
        self._short_changed()

    def _short_changed(self) -> None:
        """Somebody's memory has more or less room than before."""
        self._restrict()
        self.migrations.control()

    def _end_of_step(self) -> list[Effect]:
        self.repair.look()
        self.lane.flush()
        self.log.flush()
        self.activation.flush()
        self.listeners.flush()
        if self._changed:
            self._changed = False
            self.out.effects.append(ClusterChanged())
        return self.out.take()

    # -- messages and timers

    def on_received(self, sender: MemberId, message: m.Message) -> None:
        """Give a message that came over a link to the machine that it is for."""
        handle = MESSAGES.get(type(message))
        if handle is None:
            # Discovery travels without a link; over one it is a peer's mistake, and has no effect.
            self._out_of_place(message)
        else:
            handle(self, sender, message)

    def on_datagram(self, address: Address, message: m.Message) -> None:
        """Give a message that came without a link to the machine that it is for."""
        handle = DATAGRAMS.get(type(message))
        if handle is None:
            self._out_of_place(message)
        else:
            handle(self, address, message)

    def _out_of_place(self, message: m.Message) -> None:
        self.out.note("message out of place", level="warning", message=type(message).__name__)

    def on_replicated(self, sender: MemberId, message: m.Replicated) -> None:
        """A backup has acknowledged, and said what of a cut it does not keep."""
        if message.unkept:
            self.copies.cuts.not_kept(sender, message.unkept)
        self.lane.on_replicated(sender, message)

    def on_heartbeat(self, address: Address, message: m.Heartbeat) -> None:
        """A member says that it is there, and what it knows."""
        self.membership.on_heartbeat(address, message)
        sender = self.membership.member(message.uuid)
        if sender is not None and sender.life == message.life:
            self.table_replication.heard(sender.uuid, message.view, message.applied, message.known)
        if self.router.refusals.full.keys() != self.membership.intents.full:
            self._restrict()
        if self.router.refusals.short != self.membership.intents.short:
            self._short_changed()
        self._intents_changed()

    def on_timer(self, name: TimerName) -> None:
        """Give what is due to the machine that it is for."""
        handle = TIMERS.get(name)
        assert handle is not None, f"{name} is no timer of a member"
        handle(self)

    def on_sweep(self) -> None:
        """Remove what is over."""
        self._sweep()
        self.copies.sweep()
        self.changes.sweep()
        if self.copies.stale and self.table.assigned and not self.safety.why_cluster_unsafe():
            self.copies.drop_stale()
        self.out.timer(TimerName.SWEEP, SWEEP_NS)

    def write_out(self, partitions: tuple[int, ...]) -> None:
        """Write these partitions out, so that older parts of the journal are not needed any more."""
        for partition in partitions:
            staged = self.copies.staging.get(partition)
            # What is on the disk is the newer copy, once it is whole.
            whole = staged is not None and staged.complete
            copy = staged.copy if staged is not None and whole else self.copies.held.get(partition)
            taken = snapshot_of(copy, self.out) if copy is not None else None
            if taken is not None:
                self.log.checkpoint(taken, lambda well: None)
            elif copy is not None:
                self.log.note(Began(partition, copy.epoch))

    # -- what one machine's change means for the others

    def _may_part(self, member: MemberId) -> bool:
        return self.migrations.may_part(member)

    def _rounds(self) -> tuple[int, int]:
        return self.table_replication.rounds()

    def stored_assignment(self, partition: int) -> Assignment | None:
        """The row that is stored here and waits to be committed, if there is one."""
        return self.table_replication.stored_assignment(partition)

    def _known_rows(self) -> list[tuple[int, Assignment]]:
        return self.table_replication.known()

    def _fill(self, partition: int, member: MemberId) -> None:
        self.source.bring_up_to_date(partition, member)

    def _may_demote(self, member: MemberId) -> bool:
        return self.migrations.may_demote(member)

    def _intents_changed(self) -> None:
        departing = self.membership.departing
        if departing != self._known_departing:
            self._known_departing = departing
            self.migrations.departures_known()

    def _backlog_changed(self) -> None:
        self._show()
        self.out.effects.append(BackpressureChanged())

    def _view_changed(self, old: View | None, new: View | None) -> None:
        self._changed = True
        self.safety.changed()
        if new is not None:
            self.log.note(Seen(new))
        before = {(info.uuid, info.life) for info in old.members} if old else set()
        after = {(info.uuid, info.life) for info in new.members} if new else set()
        gone = {uuid for uuid, _ in before - after} - {self.me}
        came = {uuid for uuid, _ in after - before} - {self.me}
        self.router.askers_gone(gone)
        self.migrations.view_changed(old, new)
        self.router.refusals.passive = new is not None and not new.state.writes
        members = new.members if new is not None and not new.missing else []
        self.router.refusals.dataless = bool(members) and all(info.lite for info in members)
        self._restrict()
        if not self.membership.admitted:
            self._stop_serving()
        else:
            self.source.view_changed(gone | came)
            self.destination.view_changed(gone | came)
            self.repair.members_changed(gone | came)
            for partition, row in enumerate(self.table.rows):
                if (
                    row.owner == self.me
                    and came.intersection(row.replicas)
                    and self.table_replication.current
                ):
                    self._become_primary(partition)
        self._tell_holdings(old, new)
        self.table_replication.view_changed(old, new)
        self.listeners.members_changed(gone, came)
        self.collectors.members_changed(gone, came)
        self.router.members_gone(gone)
        self._known_departing = self.membership.departing

    def _tell_holdings(self, old: View | None, new: View | None) -> None:
        """Tell a new master what this member has brought back."""
        master = self.membership.master
        if new is None or master is None or not self.membership.admitted:
            return
        if old is not None and old.members and old.members[0].uuid == master:
            return
        if self.membership.info.returns or self.copies.stale:
            holdings = self._holdings(new.number)
            if master == self.me:
                self.migrations.returns.heard(self.me, holdings)
            else:
                self.out.send(master, holdings)

    def _holdings(self, view: int) -> m.Holdings:
        found = self.recovered
        uncertain = found.uncertain if found is not None else {}
        kept = [
            m.RetainedCopy(partition, copy.epoch, copy.counters(), partition not in uncertain)
            for partition, copy in sorted(self.copies.stale.items())
        ]
        if found is None or self.table.assigned:
            return m.Holdings(view, None, found.stores if found is not None else {}, [], kept)
        return m.Holdings(view, found.view, found.stores, sorted(found.rows.items()), kept)

    def _restrict(self) -> None:
        """While not every write may be taken, sessions find no copy to work on, and take the way through the router."""
        intents = self.membership.intents
        self.router.refusals.know(self.membership.members(), intents.full, intents.short)
        if self.router.refusals.any:
            self.router.restrict()
        self._show()

    def _show(self) -> None:
        for partition, copy in enumerate(self.lane.leading):
            self.lane.serving[partition] = None if self._hides(partition) else copy

    def _hides(self, partition: int) -> bool:
        """Whether sessions may not write to it through the data lane, because some writes must not be taken now."""
        refusals = self.router.refusals
        if refusals.passive or self.lane.backlog.refusing:
            return True
        if not refusals.full and not refusals.short:
            return False
        return any(
            one in refusals.full or one in refusals.short for one in self.table.rows[partition].replicas
        )

    def _sweep(self) -> None:
        """Remove what is over; also where memory is short, for there it is waited for."""
        refusals = self.router.refusals
        held_up = refusals.passive or refusals.full or self.lane.backlog.refusing
        self.lane.sweep(SWEEP_LIMIT, self.lane.serving if held_up else self.lane.leading)

    def _why_no_room(self) -> str:
        """Why this member cannot take another partition; empty when it can."""
        intents = self.membership.intents
        if self.me in intents.full:
            return DISK_FULL
        return MEMORY_FULL if intents.short.get(self.me) is Room.NONE else ""

    def _close(self, partition: int) -> None:
        copy = self.lane.leading[partition]
        if copy is not None:
            self.router.backup_reads.step_down(partition, copy)
        self.lane.serving[partition] = self.lane.leading[partition] = None

    def _stop_serving(self) -> None:
        """This member was removed: it keeps its copies, and serves none of them."""
        for partition in range(len(self.table.rows)):
            self._close(partition)
            self.activation.cancel(partition)
            self.lane.abandon(partition)
        for copy in self.copies.held.values():
            copy.term = 0
        self.source.reset()
        self.repair.reset()
        self.copies.services.removed()
        self.destination.removed()
        self.copies.removed()

    def _became_current(self) -> None:
        """The newest table is here, after coming (back) into the cluster: take office where it says so."""
        self.copies.returned()
        for partition, row in enumerate(self.table.rows):
            if row.owner == self.me and partition not in self.activation.active:
                self._become_primary(partition)

    def _become_primary(self, partition: int) -> None:
        self._close(partition)
        copy = self.copies.held[partition]
        if not copy.term:
            copy.term = self.table.rows[partition].version
            for held in copy:
                held.enter(copy.term)
        self.activation.begin(partition)

    def _assignment_changed(self, partition: int, old: Assignment, new: Assignment) -> None:
        self._changed = True
        self.safety.changed()
        self.log.assigned(partition, new)
        arrived = self.destination.assignment_changed(partition, old)
        copy = self.copies.assignment_changed(partition, old, new, arrived)
        if arrived is not None and copy is not arrived:
            self.destination.forget_on_disk(partition)
        self.source.assignment_changed(partition)
        self.repair.assignment_changed(partition)
        if new.owner != self.me:
            if copy is not None:
                copy.term = 0
            self._close(partition)
            self.activation.cancel(partition)
            self.lane.abandon(partition)
        elif partition in self.activation.active and old.owner == self.me and old.epoch == new.epoch:
            assert copy is not None
            self._serve(partition)
        elif self.table_replication.current:
            self._become_primary(partition)
        self.destination.retry(partition)
        self.copies.retry(partition)
        self.router.served(partition)

    def _serve(self, partition: int) -> None:
        copy = self.copies.held[partition]
        self.lane.leading[partition] = copy
        self.lane.serving[partition] = None if self._hides(partition) else copy
        self.lane.retarget(copy)
        self.router.served(partition)
        self.source.became_primary()

    def _pause(self, partition: int) -> None:
        self._close(partition)

    # -- for status and tests

    def why_unsafe(self) -> str:
        """Why a crash could cost something now; empty when the cluster, as far as this member knows, is safe."""
        return self.safety.why_unsafe()

    def why_unserved(self) -> str:
        """Which partitions have no owner that is here, and what that waits for; empty when all have one."""
        if not self.table.assigned:
            return self.why_unsafe() or "partitions are not assigned yet"
        ownerless = [p for p, row in enumerate(self.table.rows) if self.membership.member(row.owner) is None]
        return f"{len(ownerless)} partitions have no owner, first {ownerless[0]}" if ownerless else ""

    def why_kept(self) -> str:
        """What has to happen before this member, which wants to leave, may go; empty when nothing has."""
        if not self.membership.admitted:
            return ""
        return self.safety.why_silent() or self.migrations.why_kept(self.me)


MESSAGES: dict[type[m.Message], Callable[[Member, MemberId, Any], object]] = {
    m.Replicate: lambda member, sender, message: member.copies.on_replicate(sender, message),
    m.Replicated: lambda member, sender, message: member.on_replicated(sender, message),
    m.Forward: lambda member, sender, message: member.router.on_forward(sender, message),
    m.Answer: lambda member, sender, message: member.router.on_answer(sender, message),
    m.Fill: lambda member, sender, message: member.destination.on_fill(sender, message),
    m.FillEnded: lambda member, sender, message: member.destination.on_fill_ended(sender, message),
    m.Filled: lambda member, sender, message: member.source.on_filled(sender, message),
    m.FillRefused: lambda member, sender, message: member.source.on_fill_refused(sender, message),
    m.Summary: lambda member, sender, message: member.repair.on_summary(sender, message),
    m.RepairWanted: lambda member, sender, message: member.repair.on_wanted(sender, message),
    m.Enlist: lambda member, sender, message: member.copies.on_enlist(sender, message),
    m.Enlisted: lambda member, sender, message: member.activation.on_enlisted(sender, message),
    m.MigrationRequest: lambda member, sender, message: member.source.on_request(sender, message),
    m.MigrationReady: lambda member, sender, message: member.migrations.on_ready(sender, message),
    m.MigrationRefused: lambda member, sender, message: member.migrations.on_refused(sender, message),
    m.Subscribe: lambda member, sender, message: member.listeners.on_subscribe(sender, message),
    m.Events: lambda member, _, message: member.listeners.on_events(message),
    m.Collecting: lambda member, sender, message: member.collectors.on_collecting(sender, message),
    m.TableOffer: lambda member, sender, message: member.table_replication.on_offer(sender, message),
    m.TableStored: lambda member, sender, message: member.table_replication.on_stored(sender, message),
    m.TableCommit: lambda member, sender, message: member.table_replication.on_commit(sender, message),
    m.TableFetch: lambda member, sender, message: member.table_replication.on_fetch(sender, message),
    m.TableReport: lambda member, sender, message: member.table_replication.on_report(sender, message),
    m.TableCheck: lambda member, sender, message: member.table_replication.on_check(sender, message),
    m.TableDiffers: lambda member, sender, message: member.table_replication.on_differs(sender, message),
    m.StateWanted: lambda member, sender, message: member.membership.on_state_wanted(sender, message),
    m.Holdings: lambda member, sender, message: member.migrations.returned(sender, message),
    m.AcceptLoss: lambda member, _, __: member.migrations.accept_loss(),
    m.DeclareDead: lambda member, _, message: member.membership.on_declare_dead(message),
    m.Prepare: lambda member, sender, message: member.membership.agreement.on_prepare(sender, message),
    m.Promise: lambda member, sender, message: member.membership.agreement.on_promise(sender, message),
    m.Accept: lambda member, sender, message: member.membership.agreement.on_accept(sender, message),
    m.Accepted: lambda member, sender, message: member.membership.agreement.on_accepted(sender, message),
    m.Declined: lambda member, sender, message: member.membership.agreement.on_declined(sender, message),
}
"""What comes over a link: whose it is."""
DATAGRAMS: dict[type[m.Message], Callable[[Member, Address, Any], object]] = {
    m.Heartbeat: lambda member, address, message: member.on_heartbeat(address, message),
    m.JoinRequest: lambda member, address, message: member.membership.on_join_request(address, message),
    m.JoinAnswer: lambda member, address, message: member.membership.on_join_answer(address, message),
    m.ViewDecided: lambda member, _, message: member.membership.on_view(message),
}
"""What comes without one."""
TIMERS: dict[TimerName, Callable[[Member], object]] = {
    TimerName.JOIN: lambda member: member.membership.on_timer(TimerName.JOIN),
    TimerName.HEARTBEAT: lambda member: member.membership.on_timer(TimerName.HEARTBEAT),
    TimerName.PART: lambda member: member.membership.on_timer(TimerName.PART),
    TimerName.PROPOSE: lambda member: member.membership.on_timer(TimerName.PROPOSE),
    TimerName.PART_LOOK: lambda member: member.membership.consider(),
    TimerName.TABLE: lambda member: member.table_replication.on_timer(),
    TimerName.PLAN: lambda member: member.migrations.on_timer(TimerName.PLAN),
    TimerName.PLANNING: lambda member: member.migrations.go_on_planning(),
    TimerName.DELAY: lambda member: member.migrations.on_timer(TimerName.DELAY),
    TimerName.DRAINING: lambda member: member.source.on_draining(),
    TimerName.REFILL: lambda member: member.destination.on_timer(),
    TimerName.REPAIR: lambda member: member.repair.on_timer(),
    TimerName.BACKUPS: lambda member: member.lane.on_timer(),
    TimerName.ROUTE: lambda member: member.router.on_timer(),
    TimerName.GATHER: lambda member: member.router.gatherings.take_turns(),
    TimerName.CLEAR: lambda member: member.replication.on_timer(),
    TimerName.SWEEP: lambda member: member.on_sweep(),
}
"""What is due."""
EVENTS: dict[type[Event], Callable[[Member, Any], object]] = {
    Received: lambda member, event: member.on_received(event.sender, event.message),
    Heard: lambda member, event: member.on_datagram(event.address, event.message),
    TimerFired: lambda member, event: member.on_timer(event.name),
    ClientRequest: Member.on_request,
    LaneUsed: lambda member, event: None,
    Durable: lambda member, event: member.on_durable(event),
    CheckpointDone: lambda member, event: member.log.on_checkpoint(event.ticket, well=event.well),
    CheckpointWanted: lambda member, event: member.write_out(event.partitions),
    HistoryRead: lambda member, event: member.on_history(event),
    DiskRoom: lambda member, event: member.on_disk_room(full=event.full),
    MemoryRoom: lambda member, event: member.on_memory_room(event.room),
    Started: lambda member, event: member.on_start(),
    ClockSet: lambda member, event: member.on_clock(event.epoch_ms),
    PeerSilent: lambda member, event: member.on_silent(event.member),
    SeedAbsent: lambda member, event: member.membership.seed_absent(event.address),
    AnswersUnread: lambda member, event: member.router.unread(event.member, too_many=event.too_many),
    RefillRequested: lambda member, event: member.source.refill(
        event.partition, event.member, Reply(member.out, event.token)
    ),
    CutRequested: lambda member, event: member.on_cut(event),
    CutLeased: lambda member, event: member.out.complete(
        event.token, member.copies.cuts.hold(event.cut, event.lease_ms)
    ),
    ChangesAsked: lambda member, event: member.changes.ask(event.asked, Reply(member.out, event.token)),
    ListenerAdded: lambda member, event: member.listeners.add(
        event.token, event.map, event.key, local_only=event.local_only
    ),
    CollectorAdded: lambda member, event: member.collectors.add(event.token, event.client),
    SubscriptionEnded: lambda member, event: member.on_unsubscribe(event),
    LeaveRequested: lambda member, event: member.on_leave(),
    Become: lambda member, event: member.on_become(event.wish),
    ChangeState: lambda member, event: member.membership.order(event.state, ending=event.ending),
    DeadDeclared: lambda member, event: member.membership.declare_dead(set(event.members)),
    LossAccepted: lambda member, event: member.on_loss_accepted(),
}
"""What happens to a member: whose it is."""
