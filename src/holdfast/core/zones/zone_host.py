"""Connects the zone controller with the metastore, the groups and other members.

- zones/Z-2: A member does not leave while the assignments of a zone name it, unless all members leave.
- zones/Z-3: No replica is started or destroyed before this member's copy of the metastore is known to be as new as the
  leader's was. After a restart it is older: by revision 90 of 100 a partition may look unassigned whose only copy is
  here.
- zones/Z-4: The leader of a group transfers its leadership to the member that the partition table names as the owner of
  the partition, if that member votes and has the whole log. Clients go to the owner first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import ZoneStates, ZoneStatesAsked
from holdfast.core.metastore.invoke import Branch, Invoked, MetastoreEntry
from holdfast.core.metastore.metastore import KeyChange, Metastore
from holdfast.core.model.ids import MILLISECOND, GroupNumber, MemberId, place_of
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.zone_answers import TroubleTold
from holdfast.core.multiraft.group_host import GroupHost, node_of
from holdfast.core.multiraft.hosted_group import LeadChanged, ReplicaNotice
from holdfast.core.outbox import Outbox
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.zones.assignments import Node
from holdfast.core.zones.descriptors import ZoneDescriptor
from holdfast.core.zones.local_zone_groups import LocalZoneGroups
from holdfast.core.zones.replica_duties import LOOKS_AT_ONCE
from holdfast.core.zones.topology_writer import TopologyWriter
from holdfast.core.zones.transitions import LocalReplica, LocalState
from holdfast.core.zones.zone_controller import ZoneController
from holdfast.core.zones.zone_keys import (
    IDS_KEY,
    TOPOLOGY_KEY,
    ZONE_PREFIX,
    ZONES,
    KeysRead,
    part_of,
    part_prefix,
    partition_keys,
    zone_of,
)
from holdfast.core.zones.zone_ports import Part
from holdfast.errors import RequestError

TICK_NS = 100 * MILLISECOND
"""While there is work; otherwise `sweep` calls twice a second."""
HAND_OVER_NS = 1000 * MILLISECOND
"""Interval of the checks for zones/Z-4."""
CATCHING_UP = 100
"""Committed entries to apply."""


class ZoneHost:
    """The zones on one member: `ZoneStore` and `ZoneWorld` of its controller. A part is a partition of a zone."""

    def __init__(
        self,
        out: Outbox,
        standing: MembershipStatus,
        metastore: Metastore,
        groups: GroupHost,
        routing: LeaderRouting,
        rows: Sequence[Assignment],
    ) -> None:
        """`rows`: the partition table."""
        self._out = out
        self._rows = rows
        self._looked_ns = 0
        """Time of the last check for zones/Z-4."""
        self._to_hand_over: deque[GroupNumber] = deque()
        """Groups that this check has not reached yet."""
        self._standing = standing
        self._metastore = metastore
        self._groups = groups
        self._routing = routing
        self._replicas = LocalZoneGroups(groups, routing)
        self._controller = ZoneController(groups.me, self, self._replicas, self)
        self.topology = TopologyWriter(standing, metastore, groups)
        self._begun = False
        """This copy of the metastore is new enough to act (zones/Z-3)."""
        self._beginning: int | None = None
        """Ticket of the read that confirms it."""
        self._ticking = False
        self._draws = 0
        self._time_ms = 0
        self._told_ns = out.now_ns
        """Monotonic."""
        metastore.watch(self, prefix=ZONES)

    def _now_ms(self) -> int:
        """The time since 1970. It rises even while the wall clock is set back."""
        passed_ms = (self._out.now_ns - self._told_ns) // MILLISECOND
        self._told_ns += passed_ms * MILLISECOND
        self._time_ms = max(self._time_ms + passed_ms, self._out.wall_ms())
        return self._time_ms

    # -- `ZoneStore`

    def get(self, key: bytes) -> MetastoreEntry:
        return self._metastore.get(key)

    def scan(self, prefix: bytes) -> Sequence[MetastoreEntry]:
        return self._metastore.scan(prefix)

    def read(self, keys: Sequence[bytes]) -> int:
        return self._metastore.read(keys, self)

    def invoke(self, branch: Branch) -> int:
        return self._metastore.invoke(branch, self)

    @property
    def leads(self) -> bool:
        return self.topology.leads

    # -- notices of the metastore

    def on_watch_begins(self, revision: int) -> None:
        """The metastore's state has arrived, perhaps in place of another one."""
        zones = {}
        for entry in self._metastore.scan(ZONE_PREFIX):
            if (found := _descriptor(entry)) is not None:
                zones[found.id] = found
        given = _number(self._metastore.get(IDS_KEY))
        for zone in self._routing.known:
            # The zone was dropped, unless this state is older than the zone.
            if zone not in zones and zone <= given:
                self._routing.forget(zone)
        for zone, found in sorted(zones.items()):
            self._routing.know(zone, found.settings.name, found.settings.partitions)
        self._routing.numbered = given
        if not self._begun:
            self._beginning = self._metastore.read([TOPOLOGY_KEY], self)
        else:
            self._controller.begin(self._now_ms())
        self._tick_soon()

    def on_changes(self, revision: int, time_ms: int, changes: Sequence[KeyChange]) -> bool:
        given = self._routing.numbered
        for before, after in changes:
            if after.key == IDS_KEY:
                given = _number(after)
            if (named := zone_of(after.key)) is None or named[1] != "descriptor":
                continue
            if (found := _descriptor(after)) is not None:
                self._routing.know(found.id, found.settings.name, found.settings.partitions)
            elif before.exists:
                self._routing.forget(named[0])
        self._routing.numbered = given  # Last, because a zone and its number are created by one change.
        if self._begun:
            self._controller.on_changes(self._now_ms(), changes)
        self._tick_soon()
        return True

    def on_leading(self, term: int | None) -> None:
        self.topology.on_leading(term)

    def on_read(self, ticket: int, entries: list[MetastoreEntry], revision: int) -> None:
        if ticket == self._beginning:
            self._beginning, self._begun = None, True
            self._controller.begin(self._now_ms())
            self._tick_soon()
        else:
            self._controller.on_read(ticket, entries, revision)

    def on_invoked(self, ticket: int, invoked: Invoked) -> None:
        self._controller.on_invoked(ticket, invoked)

    def on_failed(self, ticket: int, error: RequestError) -> None:
        """Read again to confirm this copy. The controller repeats its own requests after a while."""
        if ticket == self._beginning:
            self._beginning = self._metastore.read([TOPOLOGY_KEY], self)

    # -- members that leave

    def can_leave(self, member: MemberId) -> bool:
        """Whether no zone needs this member, by this member's copy of the metastore (zones/Z-2)."""
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
        """The reason why a member cannot leave yet, with the next step; empty: none."""
        info = self._standing.member(member)
        if info is None or self.can_leave(member):
            return ""
        held = self._held(node_of(info))
        which = ", ".join(
            f"{count} of zone {name}" for name, zone in self._routing.names.items() if (count := held[zone])
        )
        return f"partitions still have a replica here ({which}); they move to other members first"

    def held_by(self, node: Node) -> int:
        """The number of partitions whose assignments name this node."""
        return sum(self._held(node).values())

    def _held(self, node: Node) -> dict[int, int]:
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

    # -- replicas

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None:
        if self._begun and not isinstance(notice, LeadChanged):
            self._controller.on_notice(self._now_ms(), place_of(number), notice)
        self._tick_soon()

    # -- `ZoneWorld`, and other members

    def jitter(self, most_ms: int) -> int:
        """A pseudo-random part of this time, which differs by member and by call."""
        self._draws += 1
        word = blake2b(f"{self._groups.me}/{self._draws}".encode(), digest_size=8).digest()
        return int.from_bytes(word, "big") % max(1, most_ms)

    def ask_replicas(self, node: Node, zone: int) -> None:
        member = self._groups.member(node)
        if member is not None:
            self._out.send(member, ZoneStatesAsked(zone))

    def on_states_asked(self, sender: MemberId, message: ZoneStatesAsked) -> None:
        replicas: list[tuple[int, str, int, bool]] = []
        configurations: list[tuple[int, list[str], list[str], int]] = []
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
            known = hosted.group.configuration
            replicas.append((partition, state.value, log.last, not known.votes(self._groups.me)))
            if known.voters:
                configurations.append((partition, sorted(known.voters), sorted(known.outgoing), known.token))
        self._out.send(sender, ZoneStates(message.zone, replicas, configurations))

    def on_states(self, sender: MemberId, message: ZoneStates) -> None:
        info = self._standing.member(sender)
        if info is not None:
            known = {
                partition: (tuple(voters), tuple(outgoing), token)
                for partition, voters, outgoing, token in message.configurations
            }
            states = {
                partition: LocalReplica(LocalState(state), index, learner, *known.get(partition, ()))
                for partition, state, index, learner in message.replicas
            }
            self._controller.on_replicas(node_of(info), message.zone, states)

    def failing(self, part: Part, attempts: int, why: str) -> None:
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
        return [TroubleTold(*trouble) for trouble in self._controller.queue.troubles]

    # -- time

    def _tick_soon(self) -> None:
        if self._begun and self._controller.has_more:
            self._out.timer(TimerName.ZONES_MORE, 0)
        if not self._ticking and self._begun and (self._to_hand_over or not self._controller.rests):
            self._ticking = True
            self._out.timer(TimerName.ZONES, TICK_NS)

    def on_timer(self) -> None:
        self._ticking = False
        self._tick()

    def sweep(self) -> None:
        """Run a tick for zones at rest, about twice a second."""
        if not self._ticking and (self._routing.known or self._replicas.copies()):
            self._tick()

    def _tick(self) -> None:
        if self._begun:
            self._controller.on_tick(self._now_ms())
            if self._out.now_ns - self._looked_ns >= HAND_OVER_NS and not self._to_hand_over:
                self._looked_ns = self._out.now_ns
                self._to_hand_over.extend(self._routing.led)
            self._hand_over()
        self._tick_soon()

    def on_more(self) -> None:
        if self._begun:
            self._controller.go_on(self._now_ms())
        self._tick_soon()

    def _hand_over(self) -> None:
        """Transfer the leadership of a few groups at each tick to the owners of their partitions (zones/Z-4)."""
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
            replica = hosted.client
            assert isinstance(replica, ZonePartition), "the groups of zones have such clients"
            if node == self._groups.me and group.rests:
                replica.locks.leaving = False
            elif node != self._groups.me and votes and whole and group.rests:
                if replica.store_locks():
                    self._groups.running(number).transfer(node)
                else:
                    self._to_hand_over.append(number)


def _number(entry: MetastoreEntry) -> int:
    """Highest zone number that was given out."""
    return KeysRead([entry], 0).value(IDS_KEY, int) or 0


def _descriptor(entry: MetastoreEntry) -> ZoneDescriptor | None:
    named = zone_of(entry.key)
    if named is None or named[1] != "descriptor" or not entry.exists:
        return None
    return KeysRead([entry], 0).value(entry.key, ZoneDescriptor)
