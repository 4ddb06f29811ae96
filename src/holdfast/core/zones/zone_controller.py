"""What does a member do for zones? It follows the metastore, drives triggers and groups, and runs its replicas.

Everything is worked off by its state, not by what was told: a change of a key, a notice of a group or a timer only says
what to look at again. Each piece of work is read → transition → one guarded invoke; a race that was lost is read again.

- zones/A-17: Of one piece of work one step is under way at a time; an answer to a step that is over has no effect.
- zones/A-18: Triggers are run by the member that leads the metastore's group alone, and all of them again when it is
  elected: what was lost with its predecessor is made up for.
- zones/A-24: Only so many answers of the metastore are waited for at a time, and only so many of the groups that this
  member leads change their peers: what moves leaves room for requests. Groups go before triggers.
- zones/A-19: What fails is repeated, ever more slowly, for ever; after ten times somebody is told.
- zones/A-26: Only so many groups that begin here are without a leader at a time; the next ones begin, in the order of
  their partitions, when these have one or have waited for long. So a new zone of 271 partitions on members that get
  little of their processors is begun piece by piece: with all groups at once each misses the heartbeats of all others,
  elections follow elections, and nothing else of the members is served meanwhile.
- zones/A-27: Only so many replicas are looked at in one step, the next ones in a step of their own: so what belongs to
  other maps is done in between, however many partitions zones have.
- zones/A-20: Peers are changed, and completions told, by a member that leads the group, by what it has read from the
  metastore's leader; never by its own copy of the metastore.
- zones/A-22: A replica in doubt is taken out of its group first (`switch_reduce`), and begins anew when that is done,
  or its group's leader says that it is not in the group.
- zones/A-21: A trigger does not overtake a reset that was asked for before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final, Protocol

import msgspec

from holdfast.core.metastore.invoke import Branch, Invoked, MetastoreEntry, PutKey
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_state import CaughtUp, ChangeApplied, ChangeFailed, GroupNotice, LeaderElected
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.zones.adjusting import (
    LeaderDuty,
    LocalCopy,
    ReplicaDuty,
    assignments_of,
    cancellable,
    cancelled,
    change_failed,
    leader_duty,
    replica_duty,
    try_catch_up_finish,
    without_doubted,
)
from holdfast.core.zones.assignments import Assignments, ChainLink, Node, PartitionKeys
from holdfast.core.zones.data_nodes import data_nodes_changes, data_nodes_of, leavers_gone, topology_changed
from holdfast.core.zones.descriptors import (
    NEVER,
    Adjustment,
    ClusterTopology,
    PlacementKind,
    ZoneDescriptor,
)
from holdfast.core.zones.rendezvous import EvenLayout, even_layout, placed, preference
from holdfast.core.zones.transitions import (
    Consistency,
    LocalReplica,
    NoVoters,
    ResetRequest,
    Result,
    configuration_applied,
    reduce_changed,
    reset,
    update_pending,
)
from holdfast.core.zones.zone_keys import (
    IDS_KEY,
    TOPOLOGY_KEY,
    ZONE_PREFIX,
    KeysRead,
    changes_to,
    encoded,
    part_key,
    part_keys,
    part_of,
    partition_keys,
    zone_key,
    zone_of,
)

RETRY_MS: Final = 200
"""After the first failure; twice that after each further one."""
RETRY_MOST_MS: Final = 10_000
ANSWER_MS: Final = 2_000
"""So long an answer of the metastore, or of a member, is waited for."""
ANSWERS_AT_ONCE: Final = 16
"""So many answers of the metastore are waited for at a time."""
CHANGES_AT_ONCE: Final = 4
"""So many groups of one leader change their peers at a time."""
LOOKS_AT_ONCE: Final = 32
"""At so many replicas of zones is looked in one step (zones/A-27)."""
STARTS_AT_ONCE: Final = 32
"""So many groups that begin here may be without a leader at a time,"""
START_MS: Final = 5_000
"""but each holds others up for no longer than that."""
TOLD_AFTER: Final = 10
"""Failures in a row."""
RESTS_MS: Final = 1 << 62
"""When work is due that waits for no time, but to be woken."""

Part = tuple[int, int]
"""A partition of a zone: both numbers."""


class RecoveryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody wants what is lost of a zone to be given up."""

    manual: bool
    partitions: tuple[int, ...] = ()
    """Empty: all of them."""


class ZoneStore(Protocol):
    """The metastore, as zones use it."""

    def get(self, key: bytes) -> MetastoreEntry:
        """As it is here, by now."""

    def scan(self, prefix: bytes) -> Sequence[MetastoreEntry]:
        """The keys that exist here, by now."""

    def read(self, keys: Sequence[bytes]) -> int:
        """What the leader knows; answers a ticket for `on_read`."""

    def invoke(self, branch: Branch) -> int:
        """Answers a ticket for `on_invoked`."""

    @property
    def leads(self) -> bool:
        """Whether this member leads the metastore's group."""


class ZoneGroups(Protocol):
    """The groups of this member, as zones use them. Those that need a leader raise ProposalRefused."""

    def copy(self, part: Part) -> LocalCopy | None:
        """What there is of a partition here."""

    def copies(self) -> Sequence[Part]:
        """All of which there is something here, sorted."""

    def found(self, part: Part, configuration: Configuration) -> None:
        """Begin a group, or this member's part of it."""

    def join(self, part: Part) -> None:
        """Run a replica, with what there is here; with nothing it waits for a leader."""

    def halt(self, part: Part) -> None:
        """Run it no more, and keep what is there."""

    def destroy(self, part: Part) -> None:
        """Run it no more, and keep nothing."""

    def in_doubt(self, part: Part) -> bool:
        """Whether there is a replica here that cannot run: its files may lack what it has promised."""

    def has_leader(self, part: Part) -> bool:
        """Whether the replica here knows who leads."""

    def term(self, part: Part) -> int | None:
        """The term in which this member leads; None: it does not."""

    def change_peers(self, part: Part, term: int, target: Assignments, token: int) -> ChangeAnswer:
        """See `Group.change_peers`; it asks before it joins anybody (zones/A-12)."""

    def agree_change(self, part: Part, term: int, token: int) -> bool:
        """See `Group.agree_change`."""

    def cancel_change(self, part: Part, term: int, token: int) -> bool:
        """See `Group.cancel_change`."""

    def reset(self, part: Part, voters: Sequence[Node], token: int) -> ChangeAnswer:
        """See `Group.reset`."""


class ZoneWorld(Protocol):
    """What else the controller needs of its member."""

    def jitter(self, most_ms: int) -> int:
        """A part of this time, at random."""

    def ask_replicas(self, node: Node, zone: int) -> None:
        """Ask a member for the states of its replicas; `on_replicas` is told, perhaps."""

    def failing(self, part: Part, attempts: int, why: str) -> None:
        """Somebody should look at it: the failure handler."""


@unique
class WorkKind(StrEnum):
    """Pieces of work."""

    DATA_NODES = "data nodes"
    TRIGGER = "trigger"
    GROUP = "group"
    DOUBT = "a replica in doubt"


ZoneWork = tuple[WorkKind, int, int]
"""Its kind, the zone, and the partition (-1: none)."""


@dataclass(slots=True)
class _Step:
    """How far a piece of work is."""

    due_ms: int
    ticket: int | None = None
    """Of the answer that is waited for."""
    then: str = ""
    """What the invoke that is under way was for."""
    attempts: int = 0
    why: str = ""
    """Why the last one has failed."""


@dataclass(slots=True)
class _Told:
    """What a group has told of its change, and that is not worked off."""

    applied: ChangeApplied | None = None
    caught_up: int = 0
    """The token of the target that may be joined; 0: none."""
    failed: bool = False


class ZoneController:
    """One member's part in all zones."""

    def __init__(self, me: Node, store: ZoneStore, groups: ZoneGroups, world: ZoneWorld) -> None:
        self.me = me
        self._store = store
        self._groups = groups
        self._world = world
        self._now = 0
        self._work: dict[ZoneWork, _Step] = {}
        self._of_ticket: dict[int, ZoneWork] = {}
        """Whose answers are waited for."""
        self._woken: set[ZoneWork] = set()
        """What has something to do, before its time. All of it is in `_work`."""
        self._changing: dict[Part, int] = {}
        """Groups that change their peers, and the terms in which this member leads them."""
        self._queued: dict[Part, None] = {}
        """Groups that are to change theirs when another one has, in this order."""
        self._starting: dict[Part, int] = {}
        """Groups that have begun here and have no leader yet: until when others wait for them."""
        self._told: dict[Part, _Told] = {}
        self._to_look: dict[Part, None] = {}
        """Partitions whose replica here is to be looked at, in this order (zones/A-27)."""
        self._unsettled: set[Part] = set()
        """Partitions whose replica here may have another duty soon, without any change of a key."""
        self._reported: set[Part] = set()
        """Replicas in doubt here that were seen in `switch_reduce`: when they are there no more the group has been
        without them, or has been reset.
        """
        self._led = False
        self._states: dict[int, dict[Node, Mapping[int, LocalReplica]]] = {}
        """Zone -> what members have said of their replicas."""
        self._asked: dict[int, int] = {}
        """Zone -> since when that is asked for."""
        self._short_since: dict[int, int] = {}
        """Zone of high availability -> since when a partition has no quorum."""

    # -- what happens

    def begin(self, now_ms: int) -> None:
        """The metastore's state is here: run what is to run, and clean up what a life before this one has left."""
        self._now = now_ms
        parts = {part for part in map(part_of_entry, self._store.scan(b"zones/part/")) if part is not None}
        self._look_at(parts | set(self._groups.copies()))

    def on_changes(self, now_ms: int, changes: Sequence[tuple[MetastoreEntry, MetastoreEntry]]) -> None:
        """A revision of the metastore has arrived here."""
        self._now = now_ms
        local: set[Part] = set()
        dropped: set[int] = set()
        for _, entry in changes:
            if (part := part_of(entry.key)) is not None:
                local.add(part[:2])
                if part[2] in ("stable", "reduce"):
                    self._wake((WorkKind.TRIGGER, *part[:2]))
                if part[2] in ("pending", "planned", "reduce"):
                    self._wake((WorkKind.GROUP, *part[:2]))
                    self._step((WorkKind.GROUP, *part[:2])).attempts = 0
            elif (zone := zone_of(entry.key)) is not None:
                if zone[1] == "descriptor" and entry.value is None:
                    dropped.add(zone[0])
                self._wake_zone(*zone)
            elif entry.key == TOPOLOGY_KEY:
                for number in self._zones():
                    self._wake_zone(number, "topology")
        self._look_at(local)
        self._go()
        for number in sorted(dropped):
            self._forget_zone(number)

    def on_notice(self, now_ms: int, part: Part, notice: GroupNotice) -> None:
        """A group of this member tells something."""
        self._now = now_ms
        told = self._told.setdefault(part, _Told())
        work = (WorkKind.GROUP, *part)
        match notice:
            case LeaderElected():
                self._told[part] = _Told()
                self._forget(work)
                self._changed(part)
            case ChangeApplied():
                self._changed(part)
                told.applied = notice
                self._step(work).attempts = 0
            case CaughtUp(token):
                told.caught_up = token
            case ChangeFailed(_, why):
                self._changed(part)
                if self._groups.term(part) is None:
                    return  # Who leads now knows better.
                told.failed = True
                self._failed(work, why)
        self._wake(work)
        self._go()

    def on_tick(self, now_ms: int) -> None:
        """Some time has passed: about ten times a second."""
        self._now = now_ms
        leads = self._store.leads
        if leads and not self._led:
            for zone in self._zones():
                self._wake_zone(zone, "descriptor")
        self._led = leads
        if leads:
            for zone in self._zones():
                self._watch_quorums(zone)
        self._starting = {
            part: until_ms
            for part, until_ms in self._starting.items()
            if until_ms > now_ms and not self._groups.has_leader(part)
        }
        self._look_at(self._unsettled)
        for part in [part for part, term in self._changing.items() if self._groups.term(part) != term]:
            self._changed(part)
        self._change_next()
        # Most of what was done once rests: to sort all of it ten times a second would be what it costs.
        self._woken.update(work for work, step in self._work.items() if step.due_ms <= self._now)
        self._go()

    def on_read(self, ticket: int, entries: Sequence[MetastoreEntry], revision: int) -> None:
        """The metastore's leader has answered a read (zones/A-17)."""
        found = self._answered(ticket)
        if found is None:
            return
        work, step = found
        read = KeysRead(entries, revision)
        if work[0] is WorkKind.DATA_NODES:
            self._data_nodes(work, step, read)
        elif work[0] is WorkKind.TRIGGER:
            self._trigger(work, step, read)
        elif work[0] is WorkKind.DOUBT:
            self._doubt(work, step, read)
        else:
            self._group(work, step, read)
        self._go()

    def on_invoked(self, ticket: int, invoked: Invoked) -> None:
        """An invoke was carried out (zones/A-17)."""
        found = self._answered(ticket)
        if found is None:
            return
        work, step = found
        if not invoked.answer or work[0] is WorkKind.DATA_NODES:
            self._wake(work)  # A timer may still run, which nothing else tells of.
        elif work[0] is WorkKind.GROUP:
            self._group_written((work[1], work[2]), step)
        self._go()

    def on_replicas(self, node: Node, zone: int, states: Mapping[int, LocalReplica]) -> None:
        """A member says how its replicas of a zone are."""
        if zone in self._asked:
            self._states.setdefault(zone, {})[node] = states

    # -- work

    def _answered(self, ticket: int) -> tuple[ZoneWork, _Step] | None:
        """The step that has waited for this answer, and waits no more; None: none does (zones/A-17)."""
        work = self._of_ticket.pop(ticket, None)
        if work is None:
            return None
        step = self._work[work]
        assert step.ticket == ticket, "a step that is over has given its ticket back"
        step.ticket, step.due_ms = None, RESTS_MS
        return work, step

    def _zones(self) -> list[int]:
        found = [zone_of(entry.key) for entry in self._store.scan(ZONE_PREFIX)]
        return sorted(one[0] for one in found if one is not None and one[1] == "descriptor")

    def _step(self, work: ZoneWork) -> _Step:
        return self._work.setdefault(work, _Step(self._now))

    def _wake(self, work: ZoneWork) -> None:
        self._step(work)
        self._woken.add(work)

    def _forget(self, work: ZoneWork) -> None:
        self._woken.discard(work)
        step = self._work.pop(work, None)
        if step is not None and step.ticket is not None:
            self._of_ticket.pop(step.ticket, None)

    def _forget_zone(self, number: int) -> None:
        """The zone was dropped: keep nothing of it but replicas that are in doubt here."""
        for work in [one for one in self._work if one[1] == number and one[0] is not WorkKind.DOUBT]:
            self._forget(work)
        self._asked.pop(number, None)
        self._states.pop(number, None)
        self._short_since.pop(number, None)
        for part in [part for part in self._told if part[0] == number and self._groups.copy(part) is None]:
            del self._told[part]

    def _wake_zone(self, zone: int, field: str) -> None:
        """Something of a zone has changed that its triggers go by (zones/A-18)."""
        if not self._store.leads:
            return
        if field in ("descriptor", "topology", "up", "down"):
            self._wake((WorkKind.DATA_NODES, zone, -1))
        descriptor = self._local(zone)
        for partition in range(descriptor.settings.partitions if descriptor is not None else 0):
            self._wake((WorkKind.TRIGGER, zone, partition))

    def _local(self, zone: int) -> ZoneDescriptor | None:
        entries = [self._store.get(zone_key(zone, "descriptor"))]
        return KeysRead(entries).value(zone_key(zone, "descriptor"), ZoneDescriptor)

    def _go(self) -> None:
        """Begin the next step of whatever needs one (zones/A-24)."""
        for work in sorted(self._woken):
            step = self._work[work]
            asking = step.ticket is not None
            if asking and step.due_ms > self._now:
                continue
            if step.attempts and self._now < step.due_ms < RESTS_MS:
                self._woken.discard(work)  # It has failed, and is repeated in time.
                continue
            if self._is_idle(work):
                self._forget(work)
                continue
            if not asking and len(self._of_ticket) >= ANSWERS_AT_ONCE:
                continue  # Not `break`: further on may be one whose answer is late, and is asked for again.
            self._woken.discard(work)
            self._await(work, step, self._store.read(_keys_of(work)))

    def _is_idle(self, work: ZoneWork) -> bool:
        """Whether this is not, or is no more, this member's work."""
        if work[0] in (WorkKind.DATA_NODES, WorkKind.TRIGGER):
            return not self._store.leads
        return work[0] is WorkKind.GROUP and self._groups.term(work[1:]) is None

    def _await(self, work: ZoneWork, step: _Step, ticket: int) -> None:
        if step.ticket is not None:
            self._of_ticket.pop(step.ticket, None)
        step.ticket = ticket
        step.due_ms = self._now + ANSWER_MS + self._world.jitter(ANSWER_MS)
        self._of_ticket[ticket] = work

    def _invoke(self, work: ZoneWork, step: _Step, branch: Branch, then: str = "") -> None:
        step.then = then
        self._await(work, step, self._store.invoke(branch))

    def _failed(self, work: ZoneWork, why: str) -> None:
        """zones/A-19."""
        step = self._step(work)
        step.attempts += 1
        step.why = why
        wait = min(RETRY_MS << min(step.attempts - 1, 10), RETRY_MOST_MS)
        step.due_ms = self._now + wait + self._world.jitter(wait)
        if step.attempts % TOLD_AFTER == 0:
            self._world.failing((work[1], work[2]), step.attempts, why)

    @property
    def troubles(self) -> list[tuple[int, int, int, str]]:
        """What fails so often that the failure handler was told: zone, partition (-1: all), attempts, why."""
        return [
            (work[1], work[2], step.attempts, step.why)
            for work, step in sorted(self._work.items())
            if step.attempts >= TOLD_AFTER
        ]

    def _again_in(self, step: _Step, wait_ms: int) -> None:
        step.due_ms = self._now + wait_ms + self._world.jitter(wait_ms)

    # -- data nodes

    def _data_nodes(self, work: ZoneWork, step: _Step, read: KeysRead) -> None:
        zone = read.value(zone_key(work[1], "descriptor"), ZoneDescriptor)
        if zone is None:
            self._forget(work)
            return
        settings = zone.settings
        topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        before = data_nodes_of(read, zone.id)
        after = leavers_gone(before, topology.leaving, self._now)
        after = topology_changed(after, settings, settings.taken(topology), self._now)
        changes = data_nodes_changes(zone.id, before, after)
        nodes = after.latest
        if settings.placement is PlacementKind.EVEN and nodes:
            layout = read.value(zone_key(zone.id, "layout"), EvenLayout)
            if layout is None or not layout.fits(nodes, settings):
                then = even_layout(layout, topology, nodes, settings)
                changes.append(PutKey(zone_key(zone.id, "layout"), encoded(then)))
        if changes:
            self._invoke(work, step, read.guarded(changes))
        elif after.next_ms is not None:
            step.due_ms = after.next_ms

    # -- triggers

    def _trigger(self, work: ZoneWork, step: _Step, read: KeysRead) -> None:
        _, number, partition = work
        zone = read.value(zone_key(number, "descriptor"), ZoneDescriptor)
        nodes = data_nodes_of(read, number).latest
        if zone is None or not nodes or partition >= zone.settings.partitions:
            self._forget(work)
            return
        before = partition_keys(read, number, partition)
        wanted = read.value(zone_key(number, "recovery"), RecoveryRequest)
        asked = read.entry(zone_key(number, "recovery")).revision
        due = asked > (before.trigger or 0)
        if wanted is not None and due and partition in (wanted.partitions or (partition,)):
            found = self._reset(zone, partition, before, wanted, read)
            if found is None:
                self._again_in(step, RETRY_MS)
                return
            if found[0] is Result.PENDING_KEY_UPDATED:
                self._invoke(work, step, read.guarded(changes_to(number, partition, before, found[1])))
                return
        after = self._updated(zone, partition, before, nodes, read)
        if after != before:
            self._invoke(work, step, read.guarded(changes_to(number, partition, before, after)))

    def _placed(
        self, zone: ZoneDescriptor, partition: int, nodes: frozenset[Node], read: KeysRead
    ) -> Assignments:
        layout = read.value(zone_key(zone.id, "layout"), EvenLayout)
        return placed(nodes, partition, zone.settings, layout)

    def _updated(
        self,
        zone: ZoneDescriptor,
        partition: int,
        before: PartitionKeys,
        nodes: frozenset[Node],
        read: KeysRead,
    ) -> PartitionKeys:
        """What the trigger makes of the keys. Its time is the revision of the newest of what it goes by."""
        settings = zone.settings
        layout = read.value(zone_key(zone.id, "layout"), EvenLayout)
        if settings.placement is PlacementKind.EVEN and not (layout and layout.fits(nodes, settings)):
            return before  # It is made first, and then looked at again.
        calculated = self._placed(zone, partition, nodes, read)
        if before.switch_reduce is not None and before.stable is not None and not before.pending:
            return self._reduced(
                before, calculated, read.entry(part_key(zone.id, partition, "reduce")).revision
            )
        if before.stable is None and not before.pending:
            chain = (ChainLink(calculated),) if settings.consistency is Consistency.HIGH_AVAILABILITY else ()
            return msgspec.structs.replace(before, stable=calculated, chain=chain)
        topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        causes = [zone_key(zone.id, field) for field in ("descriptor", "history", "layout")]
        if settings.consistency is Consistency.HIGH_AVAILABILITY:
            causes.append(TOPOLOGY_KEY)
        event = max(read.entry(key).revision for key in causes)
        asked = read.entry(zone_key(zone.id, "recovery")).revision
        if settings.consistency is Consistency.HIGH_AVAILABILITY and before.trigger == asked:
            # The reset was the last event: what it has overwritten, or overtaken, is made up for when it is done.
            event = event if before.pending else read.revision
        if before.trigger is None and event <= _oldest(read, zone, partition):
            return before
        try:
            _, after = update_pending(
                before,
                calculated=calculated,
                known_stable=before.stable,
                event_ts=event,
                assignments_ts=event,
                consistency=settings.consistency,
                alive=topology.nodes,
                replaces=settings.adjustment is Adjustment.REPLACE,
            )
        except NoVoters:
            return before
        return after

    def _reduced(self, before: PartitionKeys, calculated: Assignments, revision: int) -> PartitionKeys:
        """Take replicas in doubt out of the group; where nobody would be left an operator has to decide."""
        assert before.switch_reduce is not None, "somebody is in doubt"
        try:
            _, after = reduce_changed(
                before,
                reduce=before.switch_reduce,
                calculated=calculated,
                event_ts=revision,
                assignments_ts=revision,
            )
        except NoVoters:
            return before
        return after

    def _reset(
        self,
        zone: ZoneDescriptor,
        partition: int,
        before: PartitionKeys,
        wanted: RecoveryRequest,
        read: KeysRead,
    ) -> tuple[Result, PartitionKeys] | None:
        """What a reset makes of the keys; None: not everybody has said yet what it has (zones/A-21)."""
        settings = zone.settings
        topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        asked = read.entry(zone_key(zone.id, "recovery")).revision
        states = self._gathered(zone.id, topology)
        if states is None:
            return None
        alive = settings.taken(topology)
        layout = read.value(zone_key(zone.id, "layout"), EvenLayout)
        order = preference(alive | (before.stable or Assignments()).nodes, partition, layout)
        request = ResetRequest(
            wanted.manual,
            topology.nodes,
            alive,
            {node: of[partition] for node, of in sorted(states.items()) if partition in of},
            order,
            settings.voters_needed,
            settings.replicas,
            settings.consensus,
            read.entry(part_key(zone.id, partition, "pending")).revision > asked,
            asked,
            asked,
        )
        result, after = reset(before, request)
        # Who is in doubt, and is not given up by this, says so again.
        return result, msgspec.structs.replace(after, switch_reduce=None, switch_append=None)

    def _gathered(
        self, zone: int, topology: ClusterTopology
    ) -> Mapping[Node, Mapping[int, LocalReplica]] | None:
        since = self._asked.get(zone)
        states = self._states.get(zone, {})
        if since is None or self._now - since > 2 * ANSWER_MS:
            self._asked[zone] = self._now
            self._states[zone] = {}
            for member in topology.members:
                self._world.ask_replicas(member.node, zone)
            return None
        whole = topology.nodes <= states.keys()
        return states if whole or self._now - since >= ANSWER_MS else None

    def _watch_quorums(self, number: int) -> None:
        """Ask for a reset of a zone of high availability where a quorum has been away for too long."""
        zone = self._local(number)
        if zone is None or zone.settings.consistency is not Consistency.HIGH_AVAILABILITY:
            return
        settings = zone.settings
        entry = self._store.get(TOPOLOGY_KEY)
        topology = KeysRead([entry]).value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        short = False
        for partition in range(settings.partitions):
            key = part_key(number, partition, "stable")
            stable = KeysRead([self._store.get(key)]).value(key, Assignments)
            key = part_key(number, partition, "pending")
            pending = KeysRead([self._store.get(key)]).value(key, tuple[Assignments, ...])
            if stable is not None and not (pending and pending[0].force):
                short |= len(set(stable.peers) & topology.nodes) < min(
                    settings.voters_needed, len(stable.peers)
                )
        if not short:
            self._short_since.pop(number, None)
            return
        since = self._short_since.setdefault(number, self._now)
        if settings.reset_after_s < NEVER and self._now - since >= 1000 * settings.reset_after_s:
            self._short_since[number] = self._now + ANSWER_MS
            read = KeysRead([entry, self._store.get(zone_key(number, "recovery"))])
            read.entry(TOPOLOGY_KEY)
            read.entry(zone_key(number, "recovery"))
            wanted = PutKey(zone_key(number, "recovery"), encoded(RecoveryRequest(manual=False)))
            self._store.invoke(read.guarded([wanted]))

    # -- groups that this member leads

    def _group(self, work: ZoneWork, step: _Step, read: KeysRead) -> None:
        """zones/A-20."""
        part = work[1:]
        term, copy = self._groups.term(part), self._groups.copy(part)
        zone = read.value(zone_key(part[0], "descriptor"), ZoneDescriptor)
        if term is None or copy is None or zone is None:
            self._forget(work)
            return
        before = partition_keys(read, *part)
        if copy.generation < before.generation:
            self._forget(work)  # It leads a group that was given up (zones/A-23).
            return
        revision = read.entry(part_key(*part, "pending")).revision
        told = self._told.setdefault(part, _Told())
        if self._completed(work, step, zone, before, revision, read):
            return
        if told.failed and before.lock is not None:
            told.failed = False
            after = change_failed(before, term=term)
            self._invoke(work, step, read.guarded(changes_to(*part, before, after)))
            return
        may, after = try_catch_up_finish(before, token=told.caught_up, pending_revision=revision, term=term)
        if may:
            lock = [PutKey(part_key(*part, "lock"), encoded(after.lock))]
            self._invoke(work, step, read.guarded(lock), "agree")
            return
        after = without_doubted(before, copy.configuration)
        if after != before:
            self._invoke(work, step, read.guarded(changes_to(*part, before, after)))
            return
        self._drive(work, step, zone, before, copy, term, revision, read)

    def _completed(
        self,
        work: ZoneWork,
        step: _Step,
        zone: ZoneDescriptor,
        before: PartitionKeys,
        revision: int,
        read: KeysRead,
    ) -> bool:
        """Tell the metastore what configuration the group has; whether there is anything to tell."""
        part = work[1:]
        notice = self._told[part].applied
        if notice is None or notice.configuration.token != revision:
            return False
        nodes = data_nodes_of(read, zone.id).latest
        result, after = configuration_applied(
            before,
            applied=assignments_of(notice.configuration),
            calculated=self._placed(zone, part[1], nodes, read),
            term=notice.term,
            index=notice.index,
        )
        if result is Result.IGNORED_NOT_PENDING:
            return False
        if before.pending[0].force:
            after = msgspec.structs.replace(after, generation=revision)
        self._invoke(work, step, read.guarded(changes_to(*part, before, after)))
        return True

    def _drive(
        self,
        work: ZoneWork,
        step: _Step,
        zone: ZoneDescriptor,
        before: PartitionKeys,
        copy: LocalCopy,
        term: int,
        revision: int,
        read: KeysRead,
    ) -> None:
        """Bring the group to the head of pending."""
        part = work[1:]
        cancels = zone.settings.adjustment is Adjustment.CANCEL
        duty = leader_duty(before, copy.configuration, pending_revision=revision, cancels=cancels)
        if duty is LeaderDuty.NOTHING:
            return
        head = before.pending[0]
        if head.force and copy.configuration.token != revision:
            return  # The reset is not done.
        try:
            if duty is LeaderDuty.CANCEL and self._groups.cancel_change(part, term, revision):
                self._changed(part)
                after = cancelled(before, token=revision, pending_revision=revision)
                assert cancellable(before), "something waits"
                self._invoke(work, step, read.guarded(changes_to(*part, before, after)))
                return
            if not self._may_change(part, term):
                return
            answer = self._groups.change_peers(part, term, head, revision)
        except ProposalRefused:
            self._changed(part)
            return  # It does not lead any more.
        if answer not in (ChangeAnswer.STARTED, ChangeAnswer.REPLACED):
            self._changed(part)
        if answer is ChangeAnswer.BUSY:
            self._again_in(step, RETRY_MS)
        elif answer in (ChangeAnswer.STARTED, ChangeAnswer.REPLACED):
            # What comes of it is told; should that be lost, it is asked for again.
            self._again_in(step, RETRY_MOST_MS)

    def _may_change(self, part: Part, term: int) -> bool:
        """Whether this group may change its peers now; if not, its turn comes (zones/A-24)."""
        if part not in self._changing and len(self._changing) >= CHANGES_AT_ONCE:
            self._queued[part] = None
            return False
        self._changing[part] = term
        return True

    def _changed(self, part: Part) -> None:
        """This group does not change its peers any more: the next one may."""
        if self._changing.pop(part, None) is not None:
            self._change_next()

    def _change_next(self) -> None:
        """Look at as many of those whose turn it is as may change now; one that need not any more leaves its place."""
        for part in list(self._queued)[: CHANGES_AT_ONCE - len(self._changing)]:
            del self._queued[part]
            self._wake((WorkKind.GROUP, *part))

    def _group_written(self, part: Part, step: _Step) -> None:
        told = self._told.setdefault(part, _Told())
        if step.then == "agree":
            term, token, told.caught_up = self._groups.term(part), told.caught_up, 0
            # What has caught up may be gone again.
            if term is not None and self._groups.agree_change(part, term, token):
                return
        self._wake((WorkKind.GROUP, *part))

    # -- replicas of this member

    def _doubt(self, work: ZoneWork, step: _Step, read: KeysRead) -> None:
        """zones/A-22."""
        part = work[1:]
        if not self._groups.in_doubt(part):
            self._forget(work)
            return
        keys = partition_keys(read, *part)
        reduce = keys.switch_reduce or Assignments()
        named = keys.stable is not None and self.me in keys.stable.nodes
        if self.me in reduce.nodes:
            self._reported.add(part)
        elif part in self._reported or not (named or any(self.me in one.nodes for one in keys.pending)):
            self._reported.discard(part)
            self._destroy(part)
            self._forget(work)
            self._look_local(part)
        elif keys.stable is not None:
            after = msgspec.structs.replace(keys, switch_reduce=reduce.with_(Assignments((self.me,))))
            self._invoke(work, step, read.guarded(changes_to(*part, keys, after)))

    def _local_duty(
        self, part: Part, keys: PartitionKeys, copy: LocalCopy | None, read: KeysRead
    ) -> ReplicaDuty:
        if part[0] > (read.value(IDS_KEY, int) or 0):
            # What is known here is older than the zone: that it has no keys yet does not say that it was dropped.
            return ReplicaDuty.NONE if copy is None else ReplicaDuty.RUN
        return replica_duty(
            self.me,
            keys,
            copy,
            stable_revision=read.entry(part_key(*part, "stable")).revision,
            pending_revision=read.entry(part_key(*part, "pending")).revision,
        )

    def _begin_group(self, part: Part, stable: Assignments) -> None:
        """Begin a group, or this member's part of it, as soon as there is a place (zones/A-26)."""
        if len(self._starting) < STARTS_AT_ONCE:
            self._starting[part] = self._now + START_MS
            self._groups.found(
                part, Configuration(frozenset(stable.peers), learners=frozenset(stable.learners))
            )

    @property
    def has_more(self) -> bool:
        """Whether `go_on` is to be called, in a step of its own (zones/A-27)."""
        return bool(self._to_look)

    def go_on(self, now_ms: int) -> None:
        """Look at the next replicas."""
        self._now = now_ms
        self._look_at(())

    def _look_at(self, parts: Iterable[Part]) -> None:
        """Look at the replicas of these partitions, and of those that wait, some now, the others later (zones/A-27)."""
        self._to_look.update(dict.fromkeys(sorted(parts)))
        for part in list(self._to_look)[:LOOKS_AT_ONCE]:
            del self._to_look[part]
            self._look_local(part)

    def _look_local(self, part: Part) -> None:
        """Do what the keys say about the replica here."""
        read = KeysRead([self._store.get(key) for key in (*part_keys(*part), IDS_KEY)])
        keys = partition_keys(read, *part)
        copy = self._groups.copy(part)
        duty = self._local_duty(part, keys, copy, read)
        if duty is ReplicaDuty.FOUND:
            self._begin_group(part, keys.stable or Assignments())
        elif duty is ReplicaDuty.JOIN or (duty is ReplicaDuty.RUN and copy is not None and not copy.running):
            self._groups.join(part)
        elif duty is ReplicaDuty.RESET:
            if self._groups.in_doubt(part):
                self._groups.destroy(part)  # Nobody has more: it is given up.
                copy = None
            if copy is None or not copy.running:
                self._groups.join(part)
            token = read.entry(part_key(*part, "pending")).revision
            self._groups.reset(part, keys.pending[0].peers, token)
        elif duty is ReplicaDuty.STOP and copy is not None and copy.running:
            self._groups.halt(part)
        elif duty is ReplicaDuty.DESTROY:
            self._destroy(part)
        if self._groups.in_doubt(part):
            self._wake((WorkKind.DOUBT, *part))
        stays = duty is ReplicaDuty.RUN and copy is not None and copy.running
        stays &= not keys.pending and keys.stable is not None and self.me in keys.stable.nodes
        if stays or duty is ReplicaDuty.NONE:
            self._unsettled.discard(part)
        else:
            self._unsettled.add(part)

    def _destroy(self, part: Part) -> None:
        """Nothing of the replica stays, and nothing that its group has told."""
        self._groups.destroy(part)
        self._starting.pop(part, None)
        self._told.pop(part, None)


def part_of_entry(entry: MetastoreEntry) -> Part | None:
    """The partition that an entry is of."""
    found = part_of(entry.key)
    return None if found is None else found[:2]


def _oldest(read: KeysRead, zone: ZoneDescriptor, partition: int) -> int:
    """The revision at which the first assignments of a partition were written, while it has these."""
    entry = read.entry(part_key(zone.id, partition, "stable"))
    return entry.revision


def _keys_of(work: ZoneWork) -> list[bytes]:
    """What has to be read for a piece of work."""
    kind, zone, partition = work
    keys = [TOPOLOGY_KEY]
    keys += [zone_key(zone, field) for field in ("descriptor", "history", "up", "down", "layout", "recovery")]
    return keys if kind is WorkKind.DATA_NODES else [*keys, *part_keys(zone, partition)]
