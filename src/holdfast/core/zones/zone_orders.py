"""Orders of operators about zones: guarded invokes, retried if others changed the keys first.

- zones/Z-5: An order is decided by what the metastore's leader knew after the order arrived, and is applied only if the
  keys are still the same. It is applied once, or rejected with a reason.
- zones/Z-6: The members of a zone are not chosen before the metastore knows the current view. Just after a cluster has
  formed, or a member has joined, it does not.
- zones/Z-7: A zone keeps its name while a map moves into it or out of it. Members would learn the new name at different
  times, and send steps of the move, which name the zone, to different places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import msgspec

from holdfast.config import Settings
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import ZoneStates, ZoneStatesAsked
from holdfast.core.metastore.invoke import Branch, If, Invoked, MetastoreEntry, PutKey
from holdfast.core.metastore.metastore import Metastore, Ticket
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.zone_answers import (
    ReplicaTold,
    ZoneChanged,
    ZoneDetails,
    ZoneList,
    ZonePartitionTold,
)
from holdfast.core.multiraft.group_host import node_of
from holdfast.core.outbox import Outbox, ReplyTarget
from holdfast.core.raft.configuration import NodeId
from holdfast.core.zones import descriptors
from holdfast.core.zones.data_nodes import data_nodes_changes, data_nodes_of, gone_given_up
from holdfast.core.zones.descriptors import (
    ClusterTopology,
    ZoneDescriptor,
    ZoneRefused,
    ZoneSettings,
    checked,
)
from holdfast.core.zones.zone_commands import (
    ZONE_FIELDS,
    altered,
    created,
    creation_keys,
    dropped,
    found_zone,
    renamed,
)
from holdfast.core.zones.zone_keys import TOPOLOGY_KEY, KeysRead, UnknownFormat, encoded, name_key, zone_key
from holdfast.core.zones.zone_resets import RecoveryRequest
from holdfast.core.zones.zone_view import ZoneView
from holdfast.errors import NotReady, Refused, RequestError, TooLarge

TRIES: Final = 8
"""Attempts against concurrent writes."""
STATES_NS: Final = 1500 * MILLISECOND
"""Timeout for reports of replicas."""
MEMBERS_NS: Final = 10_000 * MILLISECOND
"""Until the metastore knows the view."""
PARTITIONS_MOST: Final = 6000
"""More could not be dropped in one invoke."""


class Decide(Protocol):
    def __call__(self) -> tuple[Branch, object] | None:
        """Returns the invoke, and the answer for when it is applied. None: it was a question, and has been answered."""


@dataclass(slots=True)
class _Given:
    decide: Decide
    reply: ReplyTarget
    since_ns: int
    needs_members: bool = False
    """zones/Z-6."""
    tries: int = 0
    answer: object = None
    """Once the invoke is applied."""


@dataclass(slots=True)
class _Showing:
    zone: int
    reply: ReplyTarget
    answer: ZoneDetails
    since_ns: int
    waits: set[MemberId]
    replicas: dict[int, list[ReplicaTold]] = field(default_factory=dict)


class ZoneOrders:
    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        membership: MembershipStatus,
        metastore: Metastore,
        view: ZoneView,
    ) -> None:
        self._count = settings.partitions.count
        self._out = out
        self._membership = membership
        self._metastore = metastore
        self._view = view
        self._given: dict[Ticket, _Given] = {}
        self._early: list[_Given] = []
        """Orders that wait until the metastore knows the view (zones/Z-6)."""
        self._showing: list[_Showing] = []

    def create(self, name: str, settings: Mapping[str, object], reply: ReplyTarget) -> None:
        """Answered by a `ZoneChanged`."""
        self._begin(partial(self._create, name, settings), reply, needs_members=True)

    def alter(self, name: str, settings: Mapping[str, object], reply: ReplyTarget) -> None:
        """Answered by a `ZoneChanged`."""
        self._begin(partial(self._alter, name, settings), reply, needs_members=True)

    def rename(self, name: str, wanted: str, reply: ReplyTarget) -> None:
        self._begin(partial(self._rename, name, wanted), reply)

    def drop(self, name: str, reply: ReplyTarget) -> None:
        self._begin(lambda: (dropped(self._read(name), name)[1], None), reply)

    def reset(self, name: str, partitions: Sequence[int], reply: ReplyTarget) -> None:
        """Let these partitions (none: all) continue without a lost majority."""
        self._begin(partial(self._reset, name, partitions), reply, needs_members=True)

    def list_zones(self, reply: ReplyTarget) -> None:
        """Answered by a `ZoneList`."""

        def answer() -> None:
            reply(ZoneList([self._view.summary(zone) for zone in self._view.zones()]))

        self._begin(answer, reply)

    def show(self, name: str, reply: ReplyTarget) -> None:
        """Answered by a `ZoneDetails`."""
        self._begin(lambda: self._show(found_zone(self._read(name), name), reply), reply)

    def _begin(
        self,
        decide: Decide,
        reply: ReplyTarget,
        *,
        needs_members: bool = False,
    ) -> None:
        self._look(_Given(decide, reply, self._out.now_ns, needs_members))

    def _look(self, given: _Given) -> None:
        """Read from the leader first: then this copy is as new as any answer given before."""
        self._given[self._metastore.read((), self)] = given

    # -- answers of the metastore

    def on_read(self, ticket: Ticket, entries: list[MetastoreEntry], revision: int) -> None:
        """Decide the order: this copy is new enough now (zones/Z-5)."""
        given = self._given.pop(ticket)
        if given.needs_members and not self._knows_members():
            self._early.append(given)
            return
        try:
            if (decided := given.decide()) is not None:
                branch, given.answer = decided
                self._given[self._metastore.invoke(branch, self)] = given
        except (ZoneRefused, UnknownFormat) as refused:
            given.reply(Refused(str(refused)))
        except TooLarge as error:
            given.reply(error)

    def on_invoked(self, ticket: Ticket, invoked: Invoked) -> None:
        given = self._given.pop(ticket)
        if invoked.answer:
            given.reply(given.answer)
            return
        given.tries += 1
        if given.tries < TRIES:
            self._look(given)
        else:
            why = f"the same zones were changed {TRIES} times by other commands; nothing was done: try again"
            given.reply(NotReady(why))

    def on_failed(self, ticket: Ticket, error: RequestError) -> None:
        self._given.pop(ticket).reply(error)

    # -- orders

    def _rename(self, name: str, wanted: str) -> tuple[Branch, None]:
        """zones/Z-7."""
        view = self._membership.view
        for moving, move in sorted(view.maps.moves.items()) if view is not None else ():
            if name in (move.source, move.target):
                raise ZoneRefused(
                    f"zone {name}: the map {moving!r} is moving {'out of' if name == move.source else 'into'} it, by "
                    f"its name: wait until it has moved, or cancel that: holdfast map move {moving} --cancel"
                )
        return renamed(self._read(name, wanted), name, wanted)[1], None

    def _knows_members(self) -> bool:
        """Whether the metastore knows the current view (zones/Z-6)."""
        known = self._read().value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        return self._membership.view is None or known.view >= self._membership.view.number

    def _read(self, *names: str) -> KeysRead:
        keys = [*creation_keys(ZoneSettings("")), *(name_key(name) for name in names)]
        for zone in self._view.zones():
            if zone.settings.name in names:
                keys += [zone_key(zone.id, field) for field in ZONE_FIELDS]
        return KeysRead([self._metastore.get(key) for key in keys], self._metastore.keyspace.revision)

    def _create(self, name: str, given: Mapping[str, object]) -> tuple[Branch, ZoneChanged]:
        settings = ZoneSettings(name, partitions=self._count, scale_down_s=descriptors.SCALE_DOWN_S)
        settings = msgspec.structs.replace(settings, **given)
        _must_be_droppable(settings)
        read = self._read(name)
        zone, branch = created(read, settings, self._out.wall_ms())
        return branch, self._changed(zone.settings, read)

    def _alter(self, name: str, given: Mapping[str, object]) -> tuple[Branch, ZoneChanged]:
        read = self._read(name)
        zone, branch = altered(read, name, given, self._out.wall_ms())
        return branch, self._changed(zone.settings, read)

    def _reset(self, name: str, partitions: Sequence[int]) -> tuple[Branch, None]:
        return _reset(self._read(name), name, partitions, self._out.wall_ms()), None

    def _changed(self, settings: ZoneSettings, read: KeysRead) -> ZoneChanged:
        return ZoneChanged(settings.partitions, settings.replicas, self._warnings(settings, read))

    def _warnings(self, settings: ZoneSettings, read: KeysRead) -> list[str]:
        warnings = checked(settings)
        nodes = settings.taken(read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology())
        if len(nodes) < settings.replicas:
            warnings.append(
                f"zone {settings.name}: {len(nodes)} members may hold its replicas: a partition has so many until "
                f"there are {settings.replicas} members"
            )
        if settings.partitions > self._count:
            warnings.append(
                f"zone {settings.name}: it has {settings.partitions} partitions, so no map can live in it: a zone for "
                f"maps has at most as many as the cluster, {self._count}"
            )
        return warnings

    # -- showing

    def _show(self, zone: ZoneDescriptor, reply: ReplyTarget) -> None:
        members = [info.uuid for info in self._membership.members()]
        answer = ZoneDetails(
            self._view.summary(zone), self._view.names(), self._view.partition_summaries(zone)
        )
        self._showing.append(_Showing(zone.id, reply, answer, self._out.now_ns, set(members)))
        for member in members:
            self._out.send(member, ZoneStatesAsked(zone.id))

    def on_states(self, sender: MemberId, message: ZoneStates) -> None:
        info = self._membership.member(sender)
        for showing in list(self._showing):
            if showing.zone != message.zone or sender not in showing.waits:
                continue
            showing.waits.discard(sender)
            if info is not None:
                _add(showing.replicas, node_of(info), message)
            if not showing.waits:
                self._shown(showing)

    def _shown(self, showing: _Showing) -> None:
        self._showing.remove(showing)
        partitions = [
            msgspec.structs.replace(one, replicas=_lagging(one, showing.replicas.get(one.partition, [])))
            for one in showing.answer.partitions
        ]
        showing.reply(msgspec.structs.replace(showing.answer, partitions=partitions))

    def sweep(self) -> None:
        """Stop waiting for overdue members, and retry orders that came too early."""
        for showing in list(self._showing):
            if self._out.now_ns - showing.since_ns >= STATES_NS:
                self._shown(showing)
        early, self._early = self._early, []
        for given in early:
            if self._out.now_ns - given.since_ns < MEMBERS_NS:
                self._look(given)
            else:
                why = (
                    "the metastore does not know the members of the cluster yet; nothing was done: try again"
                )
                given.reply(NotReady(why))

    @property
    def leftovers(self) -> dict[str, int]:
        return {"orders about zones": len(self._given) + len(self._early) + len(self._showing)}


def _add(replicas: dict[int, list[ReplicaTold]], node: NodeId, message: ZoneStates) -> None:
    for partition, state, index, learner in message.replicas:
        replicas.setdefault(partition, []).append(ReplicaTold(node, state, index, learner))


def _lagging(one: ZonePartitionTold, replicas: list[ReplicaTold]) -> list[ReplicaTold]:
    """Add the lag of each replica behind the leader, if that has reported."""
    led = next((replica.index for replica in replicas if replica.node == one.leader), 0)
    return [msgspec.structs.replace(replica, lag=max(0, led - replica.index)) for replica in replicas]


def _must_be_droppable(settings: ZoneSettings) -> None:
    if settings.partitions > PARTITIONS_MOST:
        raise ZoneRefused(
            f"zone {settings.name}: partitions is {settings.partitions}, not 1 to {PARTITIONS_MOST}"
        )


def _reset(read: KeysRead, name: str, partitions: Sequence[int], now_ms: int) -> If:
    """Reset these partitions. Absent members lose their place as data nodes; otherwise the next member to join would
    trigger a move to them, which would wait for ever.
    """
    zone = found_zone(read, name)
    count = zone.settings.partitions
    if not all(0 <= partition < count for partition in partitions):
        raise ZoneRefused(f"zone {name}: partitions are 0 to {count - 1}")
    key = zone_key(zone.id, "recovery")
    read.entry(key)
    chosen = tuple(sorted(set(partitions)))
    topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
    takes = zone.settings.taken(topology)
    if not takes:
        raise ZoneRefused(
            f"zone {name}: none of the {len(topology.members)} present members passes its filter, so none could hold a "
            f'partition: widen the filter first, for example to all members: holdfast zone alter {name} --filter ""'
        )
    before = data_nodes_of(read, zone.id)
    after = gone_given_up(before, takes, now_ms)
    changes = [
        PutKey(key, encoded(RecoveryRequest(manual=True, partitions=chosen))),
        *data_nodes_changes(zone.id, before, after),
    ]
    return read.guarded(changes)
