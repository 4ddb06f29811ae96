"""One member: composes the machines, and routes each event to the machine that owns it.

Machines know each other only through this module. Reading order: `membership.membership`,
`partition_table.table_replication`, `migration.migration_master`, `state_transfer.source`,
`state_transfer.destination`, `primary_backup.lane`, `primary_backup.local_replicas`,
`primary_backup.primary_activation`, `routing.router`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.config import Settings
from holdfast.core import effects, open_step
from holdfast.core import events as e
from holdfast.core import messages as m
from holdfast.core.consensus_host import ConsensusHost
from holdfast.core.hosted_services import Service
from holdfast.core.journal import log, recovery
from holdfast.core.map_moves.member_moves import MemberMoves
from holdfast.core.member_view import MemberView
from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.membership import Membership
from holdfast.core.migration.last_holder import LastHolder
from holdfast.core.migration.migration_master import MigrationMaster
from holdfast.core.migration.returning_members import ReturningMember
from holdfast.core.model import migration
from holdfast.core.model import notices as n
from holdfast.core.model.ids import GROUPS_FROM, MILLISECOND, Address, MemberId, Token
from holdfast.core.model.partition_table import Assignment, Table
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox, Reply
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.primary_backup.client_acks import ClientAcks
from holdfast.core.primary_backup.lane import PLAIN, Lane, Ways
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.primary_activation import PrimaryActivation
from holdfast.core.primary_backup.primary_copy import PrimaryCopy
from holdfast.core.routing.router import HAS_LEFT, Router, with_doubt
from holdfast.core.routing.serving import Serving
from holdfast.core.state_transfer.anti_entropy import AntiEntropy
from holdfast.core.state_transfer.destination import Destination
from holdfast.core.state_transfer.source import Source
from holdfast.core.streams.change_streams import ChangeStreams
from holdfast.core.streams.entry_listeners import EntryListeners
from holdfast.core.transactions.member_transactions import MemberTransactions

SWEEP_NS = 500 * MILLISECOND


def _no_reply(answer: object) -> None:
    """For an action that is not answered."""


class Member:
    """A whole member, pure: it takes events and returns effects."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        services: Sequence[Service] = (),
        recovered: recovery.Recovered | None = None,
        ways: Ways = PLAIN,
    ) -> None:
        """`settings`: made by `with_services`. `recovered`: content of its files. `ways`: plain or compiled parts."""
        self.me = identity.info.uuid
        self.out = Outbox(self)
        self.log = log.Log(self.out, on=bool(settings.persistence.directory))
        self.table = Table(settings.partitions.count)
        rows = self.table.rows
        timing = Timing.of(settings.cluster)
        majority = settings.cluster.quorum == "majority"
        self.membership = Membership(identity, timing, self.out, self, majority=majority, settings=settings)
        settings = self.settings = self.membership.maps.settings
        self.table_replication = TableReplication(
            self.table, settings, self.membership, self.out, self.log, self
        )
        self.exchanges = self.table_replication.exchanges
        self.listeners = EntryListeners(self.me, self.out, self.membership, rows)
        self.ack_clients = ClientAcks(self.out, self.membership)
        told_by_backups = settings.replication.backup_acks == "client"
        self.lane = Lane(
            self.me,
            settings,
            self.out,
            self.log,
            self.listeners,
            self.ack_clients if told_by_backups else None,
            ways.puts,
        )
        self.lane.attach(rows)
        self.copies = LocalReplicas(
            self.me,
            settings,
            self.out,
            rows,
            self.log,
            services,
            lane=self.lane,
            ack_clients=self.ack_clients,
            entries=ways.entries,
            puts=ways.puts,
        )
        self.copies.rely_on(self.membership.maps.proven, self.membership.maps)
        self.recovered = recovered
        if recovered is not None:
            self.copies.revive(recovered.copies)
        self.replication = PrimaryCopy(settings, self.out, self.lane, self.membership.maps)
        self.activation = PrimaryActivation(self.me, self.out, rows, self.copies, self.log)
        self.destination = Destination(
            self.me,
            self.out,
            rows,
            self.copies,
            self.log,
            membership=self.membership,
            table_replication=self.table_replication,
            tail_bytes=settings.replication.tail_bytes,
        )
        self.source = Source(
            self.me,
            settings,
            self.out,
            rows,
            self.copies,
            self.lane,
            membership=self.membership,
            table_replication=self.table_replication,
            activation=self.activation,
            journal=self.log.on,
        )
        self.repair = AntiEntropy(
            self.me,
            settings,
            self.out,
            rows,
            self.copies,
            self.source,
            self.log,
            membership=self.membership,
            activation=self.activation,
            lane=self.lane,
        )
        self.router = Router(
            self.me,
            settings,
            self.out,
            rows,
            self.replication,
            held=self.copies.held,
            neighbours=self.membership,
            offers=self.table_replication,
        )
        self.serving = Serving(
            self.me,
            settings,
            self.out,
            rows,
            self.membership,
            self.table_replication,
            self.copies,
            self.lane,
            self.activation,
            self.router,
        )
        self.serving.forward_frames(ways.frames)
        proven, replicas = self.membership.maps.proven, 1 + settings.replica_backups()
        self.migrations = MigrationMaster(proven, self.out, self.membership, self.table_replication, replicas)
        self.last_holder = LastHolder(self.me, settings, self.out, rows, self.membership, self.copies)
        self.brought_back = ReturningMember(
            self.out, self.membership, self.table, self.copies, recovered, self.migrations.returns
        )
        self.agreed = ConsensusHost(
            settings,
            self.out,
            self.log,
            self.membership,
            self.listeners,
            self.router,
            self.copies,
            rows,
            recovered.groups if recovered is not None else {},
        )
        self.transactions = MemberTransactions(
            self.me, settings, self.out, self.membership, self.agreed.branches, self.lane.leading, self.table
        )
        self.changes = ChangeStreams(settings, self.out, self.lane, journal=self.log.on)
        self.moves = _moves_of(self)
        self._changed = False
        self.open_step = open_step.OpenStep()
        self.picture = MemberView(
            self.out,
            membership=self.membership,
            table_replication=self.table_replication,
            migrations=self.migrations,
            copies=self.copies,
            lane=self.lane,
            router=self.router,
            source=self.source,
            destination=self.destination,
            repair=self.repair,
            changes=self.changes,
            listeners=self.listeners,
            activation=self.activation,
            agreed=self.agreed,
            transactions=self.transactions,
        )
        self.changes.attach(self.picture.copies)
        self.moves.attach(self.picture.copies, self.changes)

    # -- the contract

    def handle(self, event: e.Event, now_ns: int) -> list[effects.Effect]:
        self.out.now_ns = now_ns
        handle = EVENTS.get(type(event))
        assert handle is not None, f"{type(event).__name__} is not an event of a member"
        kind = type(event.message) if isinstance(event, e.Received) else type(event)
        more = isinstance(event, open_step.SHARING_EVENTS) and event.more
        if kind is not m.GroupMessages:
            self.agreed.end_messages()
        assert self.open_step.admits(kind), "an open step is ended before another event"
        handle(self, event)
        if not more:
            return self._end_of_step(self.open_step.end(kind))
        self.open_step.add(kind)
        if kind in open_step.REQUESTS:
            self.agreed.await_turn()
        if self.replication.must_wake:
            # Not at the end: the next request might take the lock that a waiting one has waited for.
            self.replication.wake()
        return self.out.take()

    def on_notice(self, notice: n.Notice) -> None:
        """Pass a machine's notice to its receivers, at once and in the order of the table."""
        audience = NOTICES.get(type(notice))
        assert audience is not None, f"{type(notice).__name__} is not a notice of a member"
        for hear in audience:
            hear(self, notice)

    # -- events, by kind

    def on_start(self) -> None:
        self.agreed.on_start()
        self.membership.start()
        self.out.timer(TimerName.SWEEP, SWEEP_NS)
        self.repair.start()

    def on_clock(self, epoch_ms: int) -> None:
        self.out.epoch_ms = epoch_ms

    def on_silent(self, member: MemberId) -> None:
        self.membership.detector.silent(member)
        self.membership.consider()

    def on_action(self, event: e.ActionRequested) -> None:
        token = event.token
        event.action.apply(self, _no_reply if token is None else Reply(self.out, token))

    def accept_loss(self) -> None:
        """The operator's acceptance of missing members and files, for the master."""
        if self.membership.view is not None and self.membership.master is not None:
            self.out.send(self.membership.master, m.AcceptLoss(self.membership.view.number))

    def reset_lost(self, partitions: Sequence[int], maps: Sequence[str]) -> None:
        """The operator's reset of these lost partitions, for the master."""
        view = self.membership.view
        if view is not None and self.membership.master is not None:
            self.out.send(self.membership.master, m.ResetLost(view.number, list(partitions), list(maps)))

    def on_maps(self, notice: n.ViewInstalled) -> None:
        new, maps = notice.new, self.membership.maps
        if new is None or new.maps == maps.changes:
            return
        # Before the change, too: maps that were left over would be taken for filled ones.
        self.changes.on_moves(new.maps.moves)
        self._keep_maps()
        maps.change(new.maps, self.out, first=notice.old is None)
        self._keep_maps()
        self.lane.settings_changed()
        self.router.access.on_moves(new.maps.moves)
        self.agreed.zones.homes.change()
        self.migrations.resize(1 + self.settings.replica_backups())

    def _keep_maps(self) -> None:
        for partition in self.copies.held:
            self.copies.keep_maps_of(partition, self.table.rows[partition].index_of(self.me))

    def on_durable(self, event: e.Durable) -> None:
        self.log.on_durable(event.number)
        self.membership.durable(event.reached)

    def on_history(self, event: e.HistoryRead) -> None:
        (self.source if event.ticket > 0 else self.changes).on_history(event)

    def on_request(self, event: e.ClientRequest) -> None:
        if self.membership.has_left:
            self.out.complete(event.token, with_doubt(HAS_LEFT, event.doubt))
        else:
            self.agreed.zones.homes.submit(event.request, event.token, event.doubt)

    def on_zone_batches(self, event: e.ZoneBatches) -> None:
        for token, batch in event.batches:
            self.agreed.zones.take(token, batch)

    def on_forward(self, sender: MemberId, message: m.Forward) -> None:
        zones = self.agreed.zones
        (zones if zones.homes.holds(message.request) else self.router).on_forward(sender, message)

    def on_answer(self, sender: MemberId, message: m.Answer) -> None:
        if not self.agreed.zones.on_answer(sender, message):
            self.router.on_answer(sender, message)

    def on_route(self) -> None:
        self.router.on_timer()
        self.router.runs.on_timer()
        self.serving.forwarding.on_timer()
        self.agreed.zones.on_timer()

    def on_gather(self) -> None:
        self.router.gatherings.take_turns()
        self.agreed.zones.take_turns()

    def on_unread(self, event: e.AnswersUnread) -> None:
        self.router.unread(event.member, too_many=event.too_many)
        self.agreed.zones.unread(event.member, too_many=event.too_many)

    def on_checkpoint_wanted(self, event: e.CheckpointWanted) -> None:
        self.destination.write_out(tuple(each for each in event.partitions if each < GROUPS_FROM))
        for number in event.partitions:
            if number >= GROUPS_FROM:
                self.agreed.groups.journal.write_out(number)

    def on_cut(self, event: e.CutRequested) -> None:
        self.agreed.cutter.take(event, Reply(self.out, event.token))

    def on_unsubscribe(self, event: e.SubscriptionEnded) -> None:
        self.listeners.remove(event.token)
        self.ack_clients.remove(event.token)
        self.serving.lock_owners.connected.remove(event.token)

    def _end_of_step(self, kind: type) -> list[effects.Effect]:
        """`kind`: of the event, or of the message that was received."""
        self.repair.look()
        self.transactions.deliver()
        self.moves.deliver()
        if self.replication.must_wake:
            self.replication.wake()
            self.transactions.deliver()
        self.lane.flush()
        if kind is m.GroupMessages:
            self.agreed.gather_messages()
        elif kind in open_step.REQUESTS:
            self.agreed.gather()
        else:
            self.agreed.flush()
        self.log.flush()
        self.activation.flush()
        self.listeners.flush()
        self.transactions.wake_if_late()
        if self._changed:
            self._changed = False
            self.out.effects.append(effects.ClusterChanged())
        return self.out.take()

    # -- messages and timers

    def on_received(self, sender: MemberId, message: m.Message) -> None:
        handle = MESSAGES.get(type(message))
        if handle is None:
            # Discovery messages travel without a link; over a link they are a peer's mistake and have no effect.
            self._out_of_place(message)
        else:
            handle(self, sender, message)

    def on_datagram(self, address: Address, message: m.Message) -> None:
        handle = DATAGRAMS.get(type(message))
        if handle is None:
            self._out_of_place(message)
        else:
            handle(self, address, message)

    def _out_of_place(self, message: m.Message) -> None:
        self.out.note("unexpected message", level="warning", message=type(message).__name__)

    def on_replicated(self, sender: MemberId, message: m.Replicated) -> None:
        if message.unkept:
            self.copies.cuts.not_kept(sender, message.unkept)
        self.lane.on_replicated(sender, message)

    def on_timer(self, name: TimerName) -> None:
        handle = TIMERS.get(name)
        assert handle is not None, f"{name} is not a timer of a member"
        handle(self)

    def on_sweep(self) -> None:
        self.serving.sweep()
        self.copies.sweep()
        self.changes.sweep()
        self.repair.forgetting.sweep()
        self.repair.map_copies.sweep()
        self.agreed.sweep()
        self.transactions.sweep()
        self.moves.sweep()
        if self.copies.stale and self.table.assigned and not self.picture.cluster_unsafe_reason():
            self.copies.drop_stale()
        self.out.timer(TimerName.SWEEP, SWEEP_NS)

    def note_changed(self) -> None:
        """Members or assignments; reported at the end of the step."""
        self._changed = True
        self.picture.drop_cached_counts()

    # -- delegates of machines: `MembershipDelegate` and `TableDelegate`

    def can_leave(self, member: MemberId) -> bool:
        can_leave = self.migrations.can_leave(member) and self.agreed.can_leave(member)
        return can_leave and self.last_holder.has_waited()

    def may_demote(self, member: MemberId) -> bool:
        return self.migrations.may_demote(member)

    def copies_proven(self) -> bool:
        """As master: replicas hold what the present step of a change of maps wants."""
        return self.repair.map_copies.proven_by_all(self.picture.unsafe_reason(), self.table_replication)

    def unsafe_reason(self) -> str:
        """A crash could lose data now; empty: it could not, as far as this member knows."""
        return self.picture.unsafe_reason()

    def rounds(self) -> tuple[int, int]:
        """The last round of the table that is durable here, and the last that all members have."""
        return self.table_replication.rounds()

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        return self.table_replication.known()

    def is_assigned(self) -> bool:
        return self.table.assigned

    def waits_for_copies(self) -> bool:
        """As master: some partitions wait for members that hold them."""
        return bool(self.migrations.lost)

    def active_migrations(self) -> list[tuple[migration.Migration, int]]:
        return self.source.supplies.migrations()


def _withdraw(member: Member, token: Token) -> None:
    for router in _routers(member):
        router.withdraw(token)


def _withdraw_forwarded(member: Member, sender: MemberId, message: m.Withdrawals) -> None:
    for router in _routers(member):
        router.on_withdrawals(sender, message)


def _routers(member: Member) -> list[Router]:
    return [member.router, *(zone.router for zone in member.agreed.zones.homes.zones.values())]


MESSAGES: dict[type[m.Message], Callable[[Member, MemberId, Any], object]] = {
    m.Replicate: lambda member, sender, message: member.copies.on_replicate(sender, message),
    m.Replicated: lambda member, sender, message: member.on_replicated(sender, message),
    m.Forward: lambda member, sender, message: member.on_forward(sender, message),
    m.Answer: lambda member, sender, message: member.on_answer(sender, message),
    m.Fill: lambda member, sender, message: member.destination.on_fill(sender, message),
    m.FillEnded: lambda member, sender, message: member.destination.on_fill_ended(sender, message),
    m.Filled: lambda member, sender, message: member.source.on_filled(sender, message),
    m.FillRefused: lambda member, sender, message: member.source.on_fill_refused(sender, message),
    m.Summary: lambda member, sender, message: member.repair.on_summary(sender, message),
    m.ForgetMaps: lambda member, sender, message: member.repair.forgetting.on_forget(sender, message),
    m.RepairWanted: lambda member, sender, message: member.repair.on_wanted(sender, message),
    m.Enlist: lambda member, sender, message: member.copies.on_enlist(sender, message),
    m.Enlisted: lambda member, sender, message: member.activation.on_enlisted(sender, message),
    m.MigrationRequest: lambda member, sender, message: member.source.on_request(sender, message),
    m.MigrationReady: lambda member, sender, message: member.migrations.on_ready(sender, message),
    m.MigrationRefused: lambda member, sender, message: member.migrations.on_refused(sender, message),
    m.Withdrawals: _withdraw_forwarded,
    m.ClientsAsked: lambda member, sender, message: member.serving.lock_owners.on_asked(sender, message),
    m.ClientsConnected: lambda member, sender, message: member.serving.lock_owners.on_connected(
        sender, message
    ),
    m.ForwardFrames: lambda member, sender, message: member.serving.forwarding.on_frames(sender, message),
    m.FramesAnswer: lambda member, sender, message: member.serving.forwarding.on_answer(sender, message),
    m.Subscribe: lambda member, sender, message: member.listeners.on_subscribe(sender, message),
    m.Events: lambda member, _, message: member.listeners.on_events(message),
    m.Collecting: lambda member, sender, message: member.ack_clients.on_collecting(sender, message),
    m.TableOffer: lambda member, sender, message: member.table_replication.on_offer(sender, message),
    m.TableStored: lambda member, sender, message: member.table_replication.on_stored(sender, message),
    m.TableCommit: lambda member, sender, message: member.table_replication.on_commit(sender, message),
    m.TableFetch: lambda member, sender, message: member.table_replication.on_fetch(sender, message),
    m.TableReport: lambda member, sender, message: member.table_replication.on_report(sender, message),
    m.TableCheck: lambda member, sender, message: member.table_replication.on_check(sender, message),
    m.TableDiffers: lambda member, sender, message: member.table_replication.on_differs(sender, message),
    m.StateWanted: lambda member, sender, message: member.membership.orders.on_state_wanted(sender, message),
    m.Holdings: lambda member, sender, message: member.migrations.on_inventory(sender, message),
    m.AcceptLoss: lambda member, _, __: member.migrations.accept_loss(),
    m.ResetLost: lambda member, _, message: member.migrations.reset_lost(message.partitions, message.maps),
    m.BaselineWanted: lambda member, _, message: member.membership.orders.on_baseline_wanted(message),
    m.LevelWanted: lambda member, _, message: member.membership.orders.on_level_wanted(message),
    m.MetastoreWanted: lambda member, _, message: member.membership.metastore_orders.on_wanted(message),
    m.MapChangeWanted: lambda member, _, message: member.membership.map_orders.on_wanted(message),
    m.MapChangeAsked: lambda member, sender, message: member.membership.map_orders.on_asked(sender, message),
    m.MapChangeJudged: lambda member, sender, message: member.membership.map_orders.on_judged(
        sender, message
    ),
    m.MapMoveReport: lambda member, sender, message: member.moves.on_report(sender, message),
    m.MapChangeRefused: lambda member, _, message: member.membership.map_orders.on_refused(message),
    m.EvictMembersWithoutMajority: lambda member, _, message: (
        member.membership.evictions.on_evict_members_without_majority(message)
    ),
    m.EvictMembers: lambda member, _, message: member.membership.evictions.on_evict_members(message),
    m.GroupMessages: lambda member, sender, message: member.agreed.groups.on_messages(sender, message),
    m.GroupState: lambda member, sender, message: member.agreed.groups.on_state(sender, message),
    m.GroupStateTaken: lambda member, sender, message: member.agreed.groups.transfers.on_state_taken(
        sender, message
    ),
    m.GroupStateWanted: lambda member, sender, message: member.agreed.groups.transfers.on_wanted(
        sender, message
    ),
    m.LeadAsked: lambda member, sender, message: member.agreed.groups.rounds.on_asked(sender, message),
    m.LeadConfirmed: lambda member, sender, message: member.agreed.groups.rounds.on_confirmed(
        sender, message
    ),
    m.ZoneForward: lambda member, sender, message: member.agreed.zones.on_zone_forward(sender, message),
    m.ZoneLeaders: lambda member, sender, message: member.agreed.zones.on_leaders(sender, message),
    m.ZoneStatesAsked: lambda member, sender, message: member.agreed.zone_host.on_states_asked(
        sender, message
    ),
    m.ZoneStates: lambda member, sender, message: member.agreed.on_states(sender, message),
    m.LocksAwaited: lambda member, sender, message: member.transactions.on_awaited(sender, message),
    m.DeadlockFound: lambda member, sender, message: member.transactions.on_deadlock(sender, message),
    m.OwnersAsked: lambda member, sender, message: member.transactions.on_owners_asked(sender, message),
    m.OwnersGone: lambda member, sender, message: member.transactions.on_owners_gone(sender, message),
    m.Prepare: lambda member, sender, message: member.membership.agreement.on_prepare(sender, message),
    m.Promise: lambda member, sender, message: member.membership.agreement.on_promise(sender, message),
    m.Accept: lambda member, sender, message: member.membership.agreement.on_accept(sender, message),
    m.Accepted: lambda member, sender, message: member.membership.agreement.on_accepted(sender, message),
    m.Declined: lambda member, sender, message: member.membership.agreement.on_declined(sender, message),
}
"""Over a link."""
DATAGRAMS: dict[type[m.Message], Callable[[Member, Address, Any], object]] = {
    m.Heartbeat: lambda member, address, message: member.membership.on_heartbeat(address, message),
    m.JoinRequest: lambda member, address, message: member.membership.on_join_request(address, message),
    m.JoinAnswer: lambda member, address, message: member.membership.on_join_answer(address, message),
    m.ViewDecided: lambda member, _, message: member.membership.on_view(message),
}
TIMERS: dict[TimerName, Callable[[Member], object]] = {
    TimerName.JOIN: lambda member: member.membership.on_timer(TimerName.JOIN),
    TimerName.HEARTBEAT: lambda member: member.membership.on_timer(TimerName.HEARTBEAT),
    TimerName.PART: lambda member: member.membership.on_timer(TimerName.PART),
    TimerName.PROPOSE: lambda member: member.membership.on_timer(TimerName.PROPOSE),
    TimerName.PART_LOOK: lambda member: member.membership.consider(),
    TimerName.LEAVE_GATE: lambda member: member.serving.leave_gate.update(member.picture),
    TimerName.TABLE: lambda member: member.table_replication.on_timer(),
    TimerName.PLAN: lambda member: member.migrations.on_timer(TimerName.PLAN),
    TimerName.PLANNING: lambda member: member.migrations.go_on_planning(),
    TimerName.DELAY: lambda member: member.migrations.on_timer(TimerName.DELAY),
    TimerName.DRAINING: lambda member: member.source.on_draining(),
    TimerName.LOCKS: lambda member: member.source.on_locks(),
    TimerName.RESTORE: lambda member: member.activation.on_locks(),
    TimerName.REFILL: lambda member: member.destination.on_timer(),
    TimerName.REPAIR: lambda member: member.repair.on_timer(),
    TimerName.BACKUPS: lambda member: member.lane.on_timer(),
    TimerName.ROUTE: lambda member: member.on_route(),
    TimerName.GATHER: lambda member: member.on_gather(),
    TimerName.CLEAR: lambda member: member.replication.on_timer(),
    TimerName.FORGET: lambda member: member.repair.forgetting.on_timer(),
    TimerName.GROUPS: lambda member: member.agreed.groups.on_timer(),
    TimerName.GROUPS_MORE: lambda member: member.agreed.groups.on_more(),
    TimerName.READ_ROUNDS: lambda member: member.agreed.groups.rounds.on_timer(),
    TimerName.METASTORE_VOTERS: lambda member: member.agreed.voters.on_timer(),
    TimerName.ZONES: lambda member: member.agreed.zone_host.on_timer(),
    TimerName.ZONES_MORE: lambda member: member.agreed.zone_host.on_more(),
    TimerName.TRANSACTIONS: lambda member: member.transactions.on_timer(),
    TimerName.MOVES: lambda member: member.moves.on_timer(),
    TimerName.LOCK_OWNERS: lambda member: member.serving.lock_owners.on_timer(),
    TimerName.SWEEP: lambda member: member.on_sweep(),
    TimerName.EXPIRY: lambda member: member.serving.sweep(),
}
EVENTS: dict[type[e.Event], Callable[[Member, Any], object]] = {
    e.Received: lambda member, event: member.on_received(event.sender, event.message),
    e.Heard: lambda member, event: member.on_datagram(event.address, event.message),
    e.TimerFired: lambda member, event: member.on_timer(event.name),
    e.ClientRequest: Member.on_request,
    e.RequestWithdrawn: lambda member, event: _withdraw(member, event.token),
    e.ProcessorEnded: lambda member, event: member.router.runs.on_ended(event.run, event.result),
    e.ZoneBatches: Member.on_zone_batches,
    e.FramesForwarded: lambda member, event: member.serving.forwarding.take(event.parts),
    e.StepEnded: lambda member, event: None,
    e.TurnEnded: lambda member, event: member.agreed.on_turn_ended(),
    e.Durable: lambda member, event: member.on_durable(event),
    e.CheckpointDone: lambda member, event: member.log.on_checkpoint(event.ticket, well=event.well),
    e.CheckpointWanted: lambda member, event: member.on_checkpoint_wanted(event),
    e.HistoryRead: lambda member, event: member.on_history(event),
    e.DiskRoom: lambda member, event: member.membership.note_full(full=event.full),
    e.MemoryRoom: lambda member, event: member.serving.on_memory_room(event.room),
    e.Started: lambda member, event: member.on_start(),
    e.ClockSet: lambda member, event: member.on_clock(event.epoch_ms),
    e.PeerSilent: lambda member, event: member.on_silent(event.member),
    e.SeedAbsent: lambda member, event: member.membership.joining.seed_absent(event.address),
    e.SeedBehind: lambda member, event: member.membership.joining.seed_behind(event.address, event.members),
    e.AnswersUnread: lambda member, event: member.on_unread(event),
    e.CutRequested: lambda member, event: member.on_cut(event),
    e.CutLeased: lambda member, event: member.out.complete(
        event.token, member.copies.cuts.hold(event.cut, event.lease_ms)
    ),
    e.ChangesAsked: lambda member, event: member.changes.ask(event.asked, Reply(member.out, event.token)),
    e.TransactionAsked: lambda member, event: member.transactions.take(
        event.order, Reply(member.out, event.token)
    ),
    e.ListenerAdded: lambda member, event: member.listeners.add(
        event.token,
        event.map,
        event.key,
        local_only=event.local_only,
        invalidations=event.invalidations,
    ),
    e.ClientConnected: lambda member, event: member.serving.lock_owners.connected.add(
        event.token, event.client
    ),
    e.CollectorAdded: lambda member, event: member.ack_clients.add(event.token, event.client),
    e.MapDestroyed: lambda member, event: member.listeners.destroy(event.map),
    e.SubscriptionEnded: lambda member, event: member.on_unsubscribe(event),
    e.ActionRequested: Member.on_action,
    e.ActionWithdrawn: lambda member, event: event.action.withdraw(member),
    e.FlightBounded: lambda member, event: _bound_flight(member, event.bytes),
}


def _moves_of(member: Member) -> MemberMoves:
    membership, partitions = member.membership, member.settings.partitions.count
    zones, maps, near_caches = member.agreed.zones.homes, member.membership.maps, member.listeners
    moves = MemberMoves(member.out, membership, partitions, zones, maps, near_caches, membership)
    maps.attach(moves)
    return moves


def _bound_flight(member: Member, max_in_flight_bytes: int) -> None:
    member.source.bound_flight(max_in_flight_bytes)
    member.agreed.groups.transfers.bound_flight(max_in_flight_bytes)


NOTICES: dict[type[n.Notice], tuple[Callable[[Member, Any], object], ...]] = {
    n.ViewInstalled: (
        lambda member, it: member.note_changed(),
        lambda member, it: member.exchanges.on_view(it),
        lambda member, it: member.on_maps(it),
        lambda member, it: member.repair.map_copies.on_view(it),
        lambda member, it: member.log.on_view(it),
        lambda member, it: member.last_holder.on_view(it.new),
        lambda member, it: member.agreed.on_view(it),
        lambda member, it: member.router.askers_gone(set(it.gone)),
        lambda member, it: member.serving.forwarding.askers_gone(set(it.gone)),
        lambda member, it: member.migrations.on_view(it),
        lambda member, it: member.serving.on_view(it),
        lambda member, it: member.agreed.zones.restrict(),
        lambda member, it: member.source.on_view(it),
        lambda member, it: member.copies.on_view(it),
        lambda member, it: member.destination.on_view(it),
        lambda member, it: member.repair.on_view(it),
        lambda member, it: member.serving.on_returned(it),
        lambda member, it: member.activation.on_view(it),
        lambda member, it: member.brought_back.on_view(it),
        lambda member, it: member.table_replication.on_view(it),
        lambda member, it: member.listeners.on_view(it),
        lambda member, it: member.ack_clients.on_view(it),
        lambda member, it: member.serving.lock_owners.on_view(),
        lambda member, it: member.router.members_gone(set(it.gone)),
        lambda member, it: member.serving.forwarding.members_gone(set(it.gone)),
        lambda member, it: member.transactions.on_view(it),
        lambda member, it: member.migrations.note_departing(),
        lambda member, it: member.moves.on_view(it),
        lambda member, it: member.serving.leave_gate.update(member.picture),
    ),
    n.BeatHeard: (
        lambda member, it: member.table_replication.on_beat(it),
        lambda member, it: member.repair.map_copies.on_beat(it),
        lambda member, it: member.serving.on_beat(),
        lambda member, it: member.migrations.look_at_departing(),
        lambda member, it: member.agreed.look_at_departing(),
    ),
    n.IntentsChanged: (
        lambda member, it: member.serving.leave_gate.update(member.picture),
        lambda member, it: member.migrations.look_at_departing(),
        lambda member, it: member.agreed.look_at_departing(),
    ),
    n.DiskRoomChanged: (
        lambda member, it: member.serving.restrict(),
        lambda member, it: member.agreed.zones.restrict(),
    ),
    n.MemoryRoomChanged: (
        lambda member, it: member.serving.restrict(),
        lambda member, it: member.agreed.zones.restrict(),
        lambda member, it: member.migrations.control(),
    ),
    n.FilesHeardOf: (lambda member, it: member.log.on_files(it),),
    n.AssignmentChanged: (
        lambda member, it: member.note_changed(),
        lambda member, it: member.exchanges.on_assignment(it),
        lambda member, it: member.log.on_assignment(it),
        lambda member, it: member.destination.on_assignment(it),
        lambda member, it: member.source.on_assignment(it),
        lambda member, it: member.repair.on_assignment(it),
        lambda member, it: member.repair.map_copies.on_assignment(it),
        lambda member, it: member.serving.on_assignment(it),
        lambda member, it: member.destination.retry(it.partition),
        lambda member, it: member.copies.retry(it.partition),
        lambda member, it: member.serving.forwarding.look(it.partition),
        lambda member, it: member.router.served(it.partition),
    ),
    n.TableCurrent: (
        lambda member, it: member.copies.returned(),
        lambda member, it: member.serving.on_current(),
    ),
    n.TableGathered: (lambda member, it: member.migrations.on_gathered(it),),
    n.RoundCommitted: (lambda member, it: member.migrations.on_committed(it),),
    n.RoundDurable: (lambda member, it: member.table_replication.on_durable(it),),
    n.CopyDurable: (lambda member, it: member.activation.on_durable(it),),
    n.ActivationBegan: (lambda member, it: member.exchanges.on_activation(it),),
    n.ReplicaDiffers: (lambda member, it: member.source.bring_up_to_date(it),),
    n.LeadershipTaken: (
        lambda member, it: member.exchanges.on_leadership(it),
        lambda member, it: member.serving.take(it.partition),
    ),
    n.ServingBegan: (
        lambda member, it: member.exchanges.on_serving(it),
        lambda member, it: member.router.served(it.partition),
        lambda member, it: member.source.became_primary(),
        lambda member, it: member.transactions.on_served(it.partition),
        lambda member, it: member.serving.lock_owners.on_served(it.partition),
    ),
    n.HandoverNear: (lambda member, it: member.replication.store_locks(it.partition, it.most),),
    n.HandoverBegan: (
        lambda member, it: member.replication.store_locks(it.partition),
        lambda member, it: member.serving.on_handover(it),
    ),
    n.HandoverEnded: (lambda member, it: member.serving.serve(it.partition),),
    n.PartitionDrained: (lambda member, it: member.source.on_drained(it),),
    n.LastChunkReceived: (lambda member, it: member.exchanges.on_last_chunk(it),),
    n.ReplicaWhole: (lambda member, it: member.destination.on_whole(it),),
    n.RecordsTaken: (lambda member, it: member.repair.on_records(it),),
    n.MapEmptied: (lambda member, it: member.repair.forgetting.on_emptied(it),),
    n.LockAwaited: (lambda member, it: member.transactions.deadlocks.look_soon(),),
    n.LockEnded: (lambda member, it: member.replication.on_lock_ended(it),),
    n.EntryLocked: (lambda member, it: member.serving.lock_owners.on_locked(it.client),),
    n.MapMarked: (lambda member, it: member.serving.on_marked(it.partition),),
    n.MapForgotten: (lambda member, it: member.router.backup_reads.positions.forget(it.partition, it.name),),
    n.BacklogChanged: (lambda member, it: member.serving.on_backlog(),),
    n.CheckpointEnded: (
        lambda member, it: member.destination.on_checkpoint(it),
        lambda member, it: member.agreed.groups.on_checkpoint(it),
    ),
    n.GroupsWritten: (lambda member, it: member.agreed.groups.journal.on_written(it),),
}
