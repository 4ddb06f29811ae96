"""The Raft part of a member: its Raft groups, the metastore, and the zones.

The *metastore* is a replicated key-value store with revisions, like etcd. A *zone* is a set of partitions that are Raft
groups; the metastore says which members hold them.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config import Settings
from holdfast.core.effects import EndTurn
from holdfast.core.journal.log import Log
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.membership.lost_majority import recovery_advice
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import ZoneStates
from holdfast.core.metastore.metastore import Metastore
from holdfast.core.metastore.metastore_voters import MetastoreVoters
from holdfast.core.metastore.operator_questions import OperatorQuestions
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND, GroupNumber, MemberId
from holdfast.core.model.levels import STARTS_METASTORE
from holdfast.core.model.member_status import MetastoreReplica, ZoneStatus
from holdfast.core.model.metastore_answers import MetastoreRevision
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.zone_answers import KnownLeaders
from holdfast.core.multiraft.group_host import LOG_BYTES, GroupHost
from holdfast.core.multiraft.hosted_group import GroupClient, ReplicaNotice
from holdfast.core.outbox import Outbox, ReplyTarget
from holdfast.core.primary_backup.lane import EventSink
from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.raft_partition.branch_access import BranchAccess
from holdfast.core.raft_partition.cutter import Cutter
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.raft_partition.zone_replicas import SharedWithEngineOne
from holdfast.core.routing.router import Router
from holdfast.core.zones.zone_host import ZoneHost
from holdfast.core.zones.zone_orders import ZoneOrders
from holdfast.core.zones.zone_view import ZoneView
from holdfast.errors import NotReady, Refused, Unsupported

OFF = (
    "this cluster has no metastore, and so no zones. Start one, while the cluster is used: holdfast metastore start "
    "--voters 3"
)

ROUNDS = 8
"""Iterations in a step, at most. An entry that a group applies can lead to new input for groups, such as a command for
the metastore; what is left waits for the next step.
"""


class _AdvisedReply:
    __slots__ = ("_host", "_reply")

    def __init__(self, reply: ReplyTarget, host: ConsensusHost) -> None:
        self._reply = reply
        self._host = host

    def __call__(self, answer: object) -> None:
        if isinstance(answer, NotReady) and (advice := self._host.recovery_advice()):
            answer = NotReady(f"{answer}; {advice}")
        self._reply(answer)


class ConsensusHost:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        log: Log,
        membership: MembershipStatus,
        event_sink: EventSink,
        router: Router,
        shared: SharedWithEngineOne,
        rows: Sequence[Assignment],
        recovered: dict[GroupNumber, RecoveredGroup],
    ) -> None:
        """`router`: that of all other maps. `rows`: the partition table."""
        self._configured = settings.metastore.voters > 0
        self._on = self._configured or METASTORE_GROUP in recovered
        """The cluster has a metastore, as far as this member knows."""
        self._out = out
        self._turn_ends = False
        """`EndTurn` was requested for this turn of the event loop."""
        self._messages_wait = False
        """Groups have got messages on which they have not acted yet."""
        self._membership = membership
        self.groups = GroupHost(
            membership.info,
            out,
            log,
            self,
            recovered,
            patience_ns=settings.limits.call_timeout_ms * MILLISECOND,
            log_bytes=max(LOG_BYTES, settings.replication.tail_bytes),
        )
        self.groups.transfers.bound_flight(settings.partitions.max_in_flight_bytes)
        self.voters = MetastoreVoters(out, settings.metastore, membership, self.groups)
        self.metastore = Metastore(membership.me.encode(), out, self.groups)
        self.metastore.watch(self.voters)
        self.zones = LeaderRouting(
            membership.me, settings, out, self.groups, membership, event_sink, router, shared, self
        )
        self.branches = BranchAccess(out, router, self.zones)
        self.cutter = Cutter(out, shared.cuts, self.zones)
        self.zone_host = ZoneHost(out, membership, self.metastore, self.groups, self.zones, rows)
        self.view = ZoneView(membership, self.metastore, self.groups, self.zones)
        self.questions = OperatorQuestions(self.metastore)
        self.zone_orders = ZoneOrders(settings, out, membership, self.metastore, self.view)
        self._departing: frozenset[str] = frozenset()

    def open_group(self, number: GroupNumber) -> GroupClient | None:
        return self.metastore if self._on and number == METASTORE_GROUP else None

    def can_leave(self, member: MemberId) -> bool:
        return self.voters.can_leave(member) and self.zone_host.can_leave(member)

    def on_start(self) -> None:
        """The replica of the metastore in this member's files."""
        if self._on and METASTORE_GROUP in self.groups.journal.found:
            self.groups.start(METASTORE_GROUP, Configuration(), self.metastore)

    def on_view(self, notice: ViewInstalled) -> None:
        """The view with the founding starts the metastore; later ones change its voters."""
        self.groups.on_view(notice)
        self.zones.on_view(notice)
        self._on = self._has_metastore(notice)
        begin = self.voters.first_configuration(notice)
        if not self._on:
            return
        if begin is not None:
            self.groups.start(METASTORE_GROUP, begin, self.metastore)
        self.voters.look()
        self.zone_host.topology.on_members()

    def _has_metastore(self, notice: ViewInstalled) -> bool:
        view = notice.new
        if view is None or METASTORE_GROUP in {*self.groups.hosted, *self.groups.journal.found}:
            return self._on
        return view.metastore is not None or (self._configured and view.level < STARTS_METASTORE)

    # -- requests of operators

    def advised(self, reply: ReplyTarget) -> ReplyTarget | None:
        """Adds advice to the reply. None: there is no metastore, and the request is rejected."""
        if self._on:
            return _AdvisedReply(reply, self)
        reply(Unsupported(OFF))
        return None

    def zone_leaders(self) -> KnownLeaders:
        return KnownLeaders(self.groups.me, self.view.names(), self.view.leaders(), self.zone_host.troubles)

    def reset_metastore(self, reply: ReplyTarget) -> None:
        """Make this member's replica the metastore. Answered by a `MetastoreRevision`."""
        reason = self.voters.reset()
        reply(Refused(reason) if reason else MetastoreRevision(self.metastore.status.revision))

    def on_states(self, sender: MemberId, message: ZoneStates) -> None:
        self.zone_host.on_states(sender, message)
        self.zone_orders.on_states(sender, message)

    # -- status

    def _metastore_leader(self) -> NodeId | None:
        """None: unknown, or absent. A member that does not vote does not notice when the leader is gone, so the view is
        checked.
        """
        lead = self.groups.lead(METASTORE_GROUP)
        return lead if lead is not None and self.groups.member(lead) is not None else None

    def metastore_replica(self) -> MetastoreReplica | None:
        if not self._on:
            return None
        names, configuration, status = self.view.names(), self.voters.configuration, self.metastore.status
        leader = self._metastore_leader()

        def called(nodes: frozenset[NodeId]) -> list[str]:
            return sorted(names.get(node, node) for node in nodes)

        return MetastoreReplica(
            leader="" if leader is None else names.get(leader, leader),
            voters=[] if configuration is None else called(configuration.voters),
            learners=[] if configuration is None else called(configuration.learners),
            revision=status.revision,
            compacted=status.compacted,
            time_ms=status.time_ms,
            keys=status.keys,
            history_bytes=status.history_bytes,
            pending=status.under_way,
        )

    def zone_statuses(self) -> list[ZoneStatus]:
        return [self.view.summary(zone) for zone in self.view.zones()]

    def unsafe_reason(self) -> str:
        """A crash could make metastore or zones lose data or availability now; empty: it could not."""
        if not self._on:
            return ""
        if self._metastore_leader() is None:
            lost = self.voters.recovery_advice()
            return f"the metastore has no leader{f'; {lost}' if lost else ', as far as this member knows'}"
        if lacking := self.voters.lacking:
            return f"the metastore lacks {lacking} of its voters: other members replace them first"
        return self.view.unsafe_reason()

    def recovery_advice(self) -> str:
        """Advice for when a majority is lost; empty: none is lost, as far as this member knows."""
        if not self._on:
            return ""
        if silent := recovery_advice(self._membership, self._out.now_ns):
            return silent
        if self._metastore_leader() is None:
            lost = self.voters.recovery_advice()
            return f"the metastore has no leader; {lost}" if lost else ""
        return self.view.recovery_advice()

    def leave_blocker(self, member: MemberId) -> str:
        """The metastore or a zone needs the member; empty: neither does."""
        if not self.voters.can_leave(member):
            return "it is a voter of the metastore; another member has to become one first"
        return self.zone_host.leave_blocker(member)

    @property
    def leftovers(self) -> dict[str, int]:
        machines = (self.groups, self.metastore, self.zones, self.cutter, self.questions, self.zone_orders)
        return {what: count for machine in machines for what, count in machine.leftovers.items()}

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None:
        self.zone_host.on_replica(number, notice)

    def gather(self) -> None:
        """End a step that brought a request. Groups get their input at the end of the turn, so that all requests of the
        turn share log entries.
        """
        if not self.await_turn():
            self.flush()

    def await_turn(self) -> bool:
        """Whether zones have input, which waits for the end of the turn."""
        dirty = self._on and self.zones.dirty
        if dirty and not self._turn_ends:
            self._turn_ends = True
            self._out.effects.append(EndTurn())
        return dirty

    def gather_messages(self) -> None:
        """End a step that brought messages of groups. Successive ones of a turn are handled as if they had come in one
        packet. Example: acknowledgements of 90 groups arrive in 40 packets. The messages that they cause leave in one
        packet for each member, not in 40.
        """
        if self._on and not self._messages_wait:
            self._messages_wait = True
            self._turn_ends = True
            self._out.effects.append(EndTurn(with_buffer=True))

    def end_messages(self) -> None:
        """Something else is handled next: the groups act on their messages."""
        if self._messages_wait:
            self._messages_wait = False
            self.groups.flush()

    def on_turn_ended(self) -> None:
        self._turn_ends = False

    def flush(self) -> None:
        """End a step: pass new input to the groups, and process what they return."""
        if not self._on:
            return
        self._messages_wait = False
        if self.metastore.unsent:
            self.metastore.flush()
        self.groups.flush()
        for _ in range(ROUNDS):
            if not self.zones.dirty and not self.metastore.unsent:
                break
            self.metastore.flush()
            self.zones.flush([info.uuid for info in self._membership.members()])
            self.groups.flush()

    def sweep(self) -> None:
        """Called about twice a second."""
        if self._on:
            self.metastore.on_timer()
            self.zone_host.sweep()
            self.zone_orders.sweep()
        self.zones.sweep()

    def look_at_departing(self) -> None:
        if self._on:
            departing = frozenset(self._membership.departing)
            if departing != self._departing:
                self._departing = departing
                self.voters.look()
                self.zone_host.topology.on_members()
