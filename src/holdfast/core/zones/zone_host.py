"""A member's part in zones: its controller, and what that one needs of the metastore, of groups and of other members.

- zones/Z-1: Who is in the cluster is written into the metastore by the member that leads its group, never an older
  view over a newer one.
- zones/Z-2: A member does not leave while the assignments of a zone name it, unless everybody leaves.
- zones/Z-3: Nothing is begun or destroyed by what is here of the metastore before it is known to be as new as what its
  leader has: a restart begins with a part of it.
- zones/Z-4: Who leads a group hands it over to the member that the cluster's table names as the owner of the
  partition, if that one votes and has the whole log: clients go there first, for they know nothing of groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import ZoneStates, ZoneStatesAsked
from holdfast.core.metastore.invoke import Branch, Invoked, MetastoreEntry, PutKey
from holdfast.core.metastore.metastore import KeyChange, Metastore
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND, GroupNumber, MemberId, group_of, place_of
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.zone_questions import TroubleTold
from holdfast.core.multiraft.group_host import GroupHost, node_of
from holdfast.core.multiraft.hosted_group import LeadChanged, ReplicaNotice
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.zones.adjusting import LocalCopy
from holdfast.core.zones.assignments import Assignments, Node
from holdfast.core.zones.descriptors import ClusterTopology, DataMember, ZoneDescriptor
from holdfast.core.zones.replica_duties import LOOKS_AT_ONCE
from holdfast.core.zones.transitions import LocalReplica, LocalState
from holdfast.core.zones.zone_controller import ZoneController
from holdfast.core.zones.zone_keys import (
    IDS_KEY,
    TOPOLOGY_KEY,
    ZONE_PREFIX,
    ZONES,
    KeysRead,
    encoded,
    part_of,
    part_prefix,
    partition_keys,
    zone_of,
)
from holdfast.core.zones.zone_ports import Part
from holdfast.errors import RequestError

TICK_NS = 100 * MILLISECOND
HAND_OVER_NS = 1000 * MILLISECOND
"""How often it is looked who should lead."""
CATCHING_UP = 100
"""A replica that has so many entries to apply is behind."""


class ZoneHost:
    """Zones, on one member. What the controller calls a part is a partition of a zone."""

    def __init__(
        self,
        out: Outbox,
        standing: MembershipStatus,
        metastore: Metastore,
        groups: GroupHost,
        routing: LeaderRouting,
        rows: Sequence[Assignment],
    ) -> None:
        """`rows`: the cluster's table."""
        self._out = out
        self._rows = rows
        self._looked_ns = 0
        self._to_hand_over: deque[GroupNumber] = deque()
        """Groups of which it is to be seen whether another member should lead them."""
        """When it was looked last who should lead."""
        self._standing = standing
        self._metastore = metastore
        self._groups = groups
        self._routing = routing
        self._controller = ZoneController(groups.me, self, self, self)
        self._leading = False
        self._begun = False
        """Whether what is here of the metastore may be gone by (zones/Z-3)."""
        self._beginning: int | None = None
        """The ticket of the read that tells."""
        self._ticking = False
        self._topology: int | None = None
        """The ticket of the read, or of the invoke, that brings the topology up to date."""
        self._stale = False
        """Whether another view has come since that was begun."""
        self._unusable: set[Part] = set()
        """Replicas in the files that cannot be started: told once."""
        self._draws = 0
        self._time_ms = 0
        self._told_ns = out.now_ns
        """When that was the time, by this member's own clock."""
        metastore.watch(self, prefix=ZONES)

    def _now_ms(self) -> int:
        """By this member's calendar; it never goes back, nor does it stand still when somebody sets the clock back."""
        passed_ms = (self._out.now_ns - self._told_ns) // MILLISECOND
        self._told_ns += passed_ms * MILLISECOND
        self._time_ms = max(self._time_ms + passed_ms, self._out.wall_ms())
        return self._time_ms

    # -- the metastore, as the controller uses it

    def get(self, key: bytes) -> MetastoreEntry:
        """As it is here, by now."""
        return self._metastore.get(key)

    def scan(self, prefix: bytes) -> Sequence[MetastoreEntry]:
        """The keys that exist here, by now."""
        return self._metastore.scan(prefix)

    def read(self, keys: Sequence[bytes]) -> int:
        """What the leader knows."""
        return self._metastore.read(keys, self)

    def invoke(self, branch: Branch) -> int:
        """Carry this out."""
        return self._metastore.invoke(branch, self)

    @property
    def leads(self) -> bool:
        """Whether this member leads the metastore's group."""
        return self._leading and self._groups.term(METASTORE_GROUP) is not None

    # -- what the metastore tells

    def on_watch_begins(self, revision: int) -> None:
        """Its state is here: perhaps anew, with another past."""
        zones = {}
        for entry in self._metastore.scan(ZONE_PREFIX):
            if (found := _descriptor(entry)) is not None:
                zones[found.id] = found
        given = KeysRead([self._metastore.get(IDS_KEY)], revision).value(IDS_KEY, int) or 0
        for zone in self._routing.known:
            # A state that is older than the zone does not say that it was dropped.
            if zone not in zones and zone <= given:
                self._routing.forget(zone)
        for zone, found in sorted(zones.items()):
            self._routing.know(zone, found.settings.name, found.settings.partitions)
        if not self._begun:
            self._beginning = self._metastore.read([TOPOLOGY_KEY], self)
        else:
            self._controller.begin(self._now_ms())
        self._tick_soon()

    def on_changes(self, revision: int, time_ms: int, changes: Sequence[KeyChange]) -> bool:
        """A revision has arrived here."""
        for before, after in changes:
            if (named := zone_of(after.key)) is None or named[1] != "descriptor":
                continue
            if (found := _descriptor(after)) is not None:
                self._routing.know(found.id, found.settings.name, found.settings.partitions)
            elif before.exists:
                self._routing.forget(named[0])
        if self._begun:
            self._controller.on_changes(self._now_ms(), changes)
        self._tick_soon()
        return True

    def on_leading(self, term: int | None) -> None:
        """This member leads the metastore's group, or does no more."""
        self._leading = term is not None
        self.on_members()

    def on_read(self, ticket: int, entries: list[MetastoreEntry], revision: int) -> None:
        """What the leader knows."""
        if ticket == self._topology:
            self._topology = None
            self._write_topology(entries, revision)
        elif ticket == self._beginning:
            self._beginning, self._begun = None, True
            self._controller.begin(self._now_ms())
            self._tick_soon()
        else:
            self._controller.on_read(ticket, entries, revision)

    def on_invoked(self, ticket: int, invoked: Invoked) -> None:
        """It was carried out."""
        if ticket == self._topology:
            self._topology = None
            if self._stale or not invoked.answer:
                self.on_members()
        else:
            self._controller.on_invoked(ticket, invoked)

    def on_failed(self, ticket: int, error: RequestError) -> None:
        """Nothing will come of it: the controller asks again when it has waited long enough."""
        if ticket == self._topology:
            self._topology = None
            self.on_members()
        elif ticket == self._beginning:
            self._beginning = self._metastore.read([TOPOLOGY_KEY], self)

    # -- who is in the cluster: rule zones/Z-1

    def on_members(self) -> None:
        """Members, or what they want to become, are others: who leads the metastore says so there."""
        self._stale = True
        if self.leads and self._standing.view is not None and self._topology is None:
            self._topology = self._metastore.read([TOPOLOGY_KEY], self)

    def _write_topology(self, entries: Sequence[MetastoreEntry], revision: int) -> None:
        view = self._standing.view
        if not self.leads or view is None:
            return
        read = KeysRead(entries, revision)
        known = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        self._stale = False
        departing = self._standing.departing
        members = [
            DataMember(node_of(info), info.group, info.described())
            for info in view.members
            if view.may_hold(info)
        ]
        leaving = sorted(node_of(info) for info in view.members if info.uuid in departing)
        members.sort(key=lambda member: member.node)
        wanted = ClusterTopology(view.number, tuple(members), tuple(leaving))
        if known == wanted or known.view > wanted.view:
            return
        self._topology = self._metastore.invoke(read.guarded([PutKey(TOPOLOGY_KEY, encoded(wanted))]), self)

    def may_part(self, member: MemberId) -> bool:
        """Whether no zone needs this member, as far as is known here (zones/Z-2)."""
        info = self._standing.member(member)
        if info is None or not self._routing.known:
            return True
        departing = self._standing.departing
        if not any(
            self._standing.may_hold(other) and other.uuid not in departing
            for other in self._standing.members()
        ):
            return True
        return not self.held_by(node_of(info))

    def leave_blocker(self, member: MemberId) -> str:
        """Which zones need this member, and what helps; empty: none."""
        info = self._standing.member(member)
        if info is None or self.may_part(member):
            return ""
        held = self._held(node_of(info))
        which = ", ".join(
            f"{count} of zone {name}" for name, zone in self._routing.names.items() if (count := held[zone])
        )
        return f"partitions still have a replica here ({which}); they move to other members first"

    def held_by(self, node: Node) -> int:
        """How many partitions' assignments name this node, as far as is known here."""
        return sum(self._held(node).values())

    def _held(self, node: Node) -> dict[int, int]:
        """The same, of each zone."""
        held: dict[int, int] = {}
        for zone in self._routing.known:
            entries: dict[int, list[MetastoreEntry]] = {}
            for entry in self._metastore.scan(part_prefix(zone)):
                if (found := part_of(entry.key)) is not None:
                    entries.setdefault(found[1], []).append(entry)
            held[zone] = 0
            for partition, of in entries.items():
                keys = partition_keys(KeysRead(of, 0), zone, partition)
                named = [*keys.pending, *(each for each in (keys.stable, keys.planned) if each is not None)]
                held[zone] += any(node in each.nodes for each in named)
        return held

    # -- groups, as the controller uses them

    def copy(self, part: Part) -> LocalCopy | None:
        """What there is of a partition here."""
        number = group_of(*part)
        hosted = self._groups.hosted.get(number)
        if hosted is not None:
            return LocalCopy(not hosted.halted, hosted.group.configuration, hosted.group.generation)
        if part in self._unusable:
            return LocalCopy(True, Configuration())
        if number not in self._groups.journal.found:
            return None
        try:
            kept = self._groups.journal.peek(number)
        except msgspec.DecodeError:
            return LocalCopy(False, Configuration())
        return LocalCopy(False, kept.log().configuration, kept.hard.generation)

    def copies(self) -> Sequence[Part]:
        """All of which there is something here, sorted."""
        numbers = {*self._groups.hosted, *self._groups.journal.found} - {METASTORE_GROUP}
        return [place_of(number) for number in sorted(numbers)]

    def found(self, part: Part, configuration: Configuration) -> None:
        """Begin a group, or this member's part of it."""
        self._start(part, configuration)

    def join(self, part: Part) -> None:
        """Run a replica, with what there is here."""
        if group_of(*part) in self._groups.hosted:
            self._groups.resume(group_of(*part))
        else:
            self._start(part, Configuration())

    def _start(self, part: Part, configuration: Configuration) -> None:
        number = group_of(*part)
        if part[0] not in self._routing.known:
            return
        if self._groups.start(number, configuration, self._routing.partition(number)) is None:
            self._unusable.add(part)

    def halt(self, part: Part) -> None:
        """Run it no more, and keep what is there."""
        self._groups.halt(group_of(*part))

    def destroy(self, part: Part) -> None:
        """Run it no more, and keep nothing."""
        number = group_of(*part)
        self._unusable.discard(part)
        self._groups.stop(number)
        self._routing.end(number)

    def has_leader(self, part: Part) -> bool:
        """Whether the replica here knows who leads."""
        return self._groups.lead(group_of(*part)) is not None

    def in_doubt(self, part: Part) -> bool:
        """Whether there is a replica in the files that cannot run."""
        return part in self._unusable

    def term(self, part: Part) -> int | None:
        """The term in which this member leads; None: it does not."""
        return self._groups.term(group_of(*part))

    def change_peers(self, part: Part, term: int, target: Assignments, token: int) -> ChangeAnswer:
        """See `Group.change_peers`."""
        number = group_of(*part)
        return self._groups.running(number).change_peers(
            term, target.peers, target.learners, token, asks=True
        )

    def agree_change(self, part: Part, term: int, token: int) -> bool:
        """See `Group.agree_change`."""
        return self._groups.running(group_of(*part)).agree_change(term, token)

    def cancel_change(self, part: Part, term: int, token: int) -> bool:
        """See `Group.cancel_change`."""
        return self._groups.running(group_of(*part)).cancel_change(term, token)

    def reset(self, part: Part, voters: Sequence[Node], token: int) -> ChangeAnswer:
        """See `Group.reset`."""
        # Revisions of the metastore rise, and nearly always faster than the terms of one group.
        return self._groups.running(group_of(*part)).reset(voters, token, term=token)

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None:
        """Something has happened to a group that has a replica here."""
        if self._begun and not isinstance(notice, LeadChanged):
            self._controller.on_notice(self._now_ms(), place_of(number), notice)
        self._tick_soon()

    # -- the rest of the member

    def jitter(self, most_ms: int) -> int:
        """Another part of this time for each member, and each time."""
        self._draws += 1
        word = blake2b(f"{self._groups.me}/{self._draws}".encode(), digest_size=8).digest()
        return int.from_bytes(word, "big") % max(1, most_ms)

    def ask_replicas(self, node: Node, zone: int) -> None:
        """Ask a member for the states of its replicas."""
        member = self._groups.member(node)
        if member is not None:
            self._out.send(member, ZoneStatesAsked(zone))

    def on_states_asked(self, sender: MemberId, message: ZoneStatesAsked) -> None:
        """Another member wants to know."""
        replicas: list[tuple[int, str, int, bool]] = []
        for number, hosted in sorted(self._groups.hosted.items()):
            zone, partition = place_of(number)
            if zone != message.zone or hosted.halted:
                continue
            log = hosted.group.log
            state = LocalState.HEALTHY
            if log.snapshot is not None or not log.last:
                state = (
                    LocalState.INSTALLING_SNAPSHOT if log.snapshot is not None else LocalState.INITIALIZING
                )
            elif log.committed - log.applied >= CATCHING_UP:
                state = LocalState.CATCHING_UP
            learner = not hosted.group.configuration.votes(self._groups.me)
            replicas.append((partition, state.value, log.last, learner))
        self._out.send(sender, ZoneStates(message.zone, replicas))

    def on_states(self, sender: MemberId, message: ZoneStates) -> None:
        """Another member says how its replicas are."""
        info = self._standing.member(sender)
        if info is not None:
            states = {
                partition: LocalReplica(LocalState(state), index, learner)
                for partition, state, index, learner in message.replicas
            }
            self._controller.on_replicas(node_of(info), message.zone, states)

    def failing(self, part: Part, attempts: int, why: str) -> None:
        """Somebody should look at it."""
        self._out.note(
            "zone partition is stuck",
            "error",
            zone=part[0],
            partition=part[1],
            attempts=attempts,
            reason=why,
        )

    @property
    def troubles(self) -> list[TroubleTold]:
        """What this member fails to do again and again, for looking."""
        return [TroubleTold(*trouble) for trouble in self._controller.queue.troubles]

    # -- time

    def _tick_soon(self) -> None:
        if self._begun and self._controller.has_more:
            self._out.timer(TimerName.ZONES_MORE, 0)
        if not self._ticking and (self._routing.known or self.copies()):
            self._ticking = True
            self._out.timer(TimerName.ZONES, TICK_NS)

    def on_timer(self) -> None:
        """Some time has passed."""
        self._ticking = False
        if self._begun:
            self._controller.on_tick(self._now_ms())
            if self._out.now_ns - self._looked_ns >= HAND_OVER_NS and not self._to_hand_over:
                self._looked_ns = self._out.now_ns
                self._to_hand_over.extend(self._routing.led)
            self._hand_over()
        self._tick_soon()

    def on_more(self) -> None:
        """The next replicas of zones are looked at."""
        if self._begun:
            self._controller.go_on(self._now_ms())
        self._tick_soon()

    def _hand_over(self) -> None:
        """zones/Z-4, for a few groups at each tick."""
        for _ in range(min(len(self._to_hand_over), LOOKS_AT_ONCE)):
            number = self._to_hand_over.popleft()
            partition = place_of(number)[1]
            owner = (
                self._standing.member(self._rows[partition].owner) if partition < len(self._rows) else None
            )
            hosted = self._groups.hosted.get(number)
            if owner is None or hosted is None or hosted.group.leading is None:
                continue
            node, group = node_of(owner), hosted.group
            votes = not group.configuration.joint and node in group.configuration.voters
            progress = hosted.group.leading.progress.get(node)
            whole = progress is not None and progress.match == group.log.last
            if node != self._groups.me and votes and whole and group.rests:
                self._groups.running(number).transfer(node)


def _descriptor(entry: MetastoreEntry) -> ZoneDescriptor | None:
    """The zone that an entry describes; None: it describes none."""
    named = zone_of(entry.key)
    if named is None or named[1] != "descriptor" or not entry.exists:
        return None
    return KeysRead([entry], 0).value(entry.key, ZoneDescriptor)
