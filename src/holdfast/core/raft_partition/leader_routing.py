"""Routing of requests on zones to the leader of the partition's group.

Each zone has a router of its own. Its assignments come from leaders, which announce themselves to all members. The
rules of `router` apply.

- raft_partition/R-1: When two members claim to lead a group, the one with the higher term is believed; if that member
  is gone, any other, since a reset starts terms again. A member that does not lead says so, and has applied nothing.
- raft_partition/R-2: When a new leader is known, it gets what the old one has not answered: reads, and changes with an
  id, which a group applies once. The old leader accepts these in their term only, however late they arrive, and does
  not keep them until it leads again. Example: member 1 leads in term 4 and gets change X, late. Member 2 leads in term
  5, has applied X, and has forgotten its id again. If member 1, leader in term 6, then accepted the late copy of X, the
  change would be applied twice.
- raft_partition/R-4: A member that begins or ends to lead a group lets near caches drop all maps of the zone. Example:
  member 1 leads and crashes before it sent the invalidation of key k; member 2, its successor, did not send it either.
  Or member 1 did not know that it was deposed, and answered reads (`reads = "local"`) after the new leader's changes.
- raft_partition/R-3: In a zone of N partitions, the group of partition p serves the client partitions p, p + N, p + 2N…
  of the cluster. Each has a copy and counters of its own, so scans, events and comparisons name client partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol, cast

import msgspec

from holdfast.config import Settings
from holdfast.core.messages import Answer, Forward, ZoneForward, ZoneLeaders
from holdfast.core.model.ids import SECOND, GroupNumber, MemberId, Token, group_of, place_of
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.open_operations import OpenOperation
from holdfast.core.model.operations import EntryEvent, EventKind, Outcome, Request, Status, Value
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.core.multiraft.group_host import GroupHost
from holdfast.core.multiraft.hosted_group import LeadChanged, ReplicaNotice
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import EventSink
from holdfast.core.raft.raft_state import LeaderElected
from holdfast.core.raft_partition.consensus_replication import ConsensusReplication
from holdfast.core.raft_partition.map_homes import MapHomes, OtherRouter, RoutedZone, ZoneEntries
from holdfast.core.raft_partition.session_expiry import SessionExpiry
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.raft_partition.zone_replicas import NOT_LEADING, SharedWithEngineOne, ZoneReplicas
from holdfast.core.routing.backup_reads import Neighbours
from holdfast.core.routing.pending import Asker, Peer, answer
from holdfast.core.routing.router import Router

UNANSWERED_NS = SECOND
"""After this time without an answer the replica here looks for its leader; a sleeping group has no heartbeats."""


class ReplicaWatcher(Protocol):
    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None: ...


class _NoOffers:
    def stored_assignment(self, partition: int) -> Assignment | None:
        return None


class _BatchUnderWay:
    """A batch of a session until all its parts are done."""

    __slots__ = ("_done", "_out", "_token", "_waiting")

    def __init__(self, out: Outbox, token: Token, batch: ZoneBatch) -> None:
        self._out = out
        self._token = token
        self._done = ZoneBatchDone()
        self._waiting = len(batch.changes) + bool(batch.reads)
        assert self._waiting, "a session asks for something"

    def changed(self, place: int, outcome: Outcome) -> None:
        if outcome.status is Status.OK:
            self._done.answers.append((place, cast("list[Value]", outcome.value)))
        else:
            self._done.failed.append((place, outcome))
        self._one_less()

    def lead_confirmed(self, *, confirmed: bool) -> None:
        if not confirmed:
            self._done.unconfirmed = NOT_LEADING
        self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        assert self._waiting >= 0, "of each partition it is told once"
        if not self._waiting:
            self._out.complete(self._token, self._done)


class LeaderRouting:
    """The known zones, and the replicas of their partitions on this member."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        groups: GroupHost,
        neighbours: Neighbours,
        event_sink: EventSink,
        other: OtherRouter,
        shared: SharedWithEngineOne,
        watcher: ReplicaWatcher,
    ) -> None:
        self._me = me
        self._settings = settings
        self._out = out
        self._neighbours = neighbours
        self._event_sink = event_sink
        self._waiting = other.waiting
        self._runs = other.runs
        self._refusals = other.refusals
        self._watcher = watcher
        self.listening = event_sink.listening
        self._groups = groups
        self._replicas = ZoneReplicas(settings, out, groups, self, shared)
        self.removed = self._replicas.removed
        self.homes = MapHomes(settings, out, other, self)
        self.zone_of = self.homes.zone_of
        self._zones = self.homes.zones
        self._by_name = self.homes.by_name
        self._clients: dict[GroupNumber, tuple[int, ZonePartition]] = {}
        self._led: dict[GroupNumber, int] = {}
        """Led here, with the term."""
        self._known: dict[GroupNumber, tuple[int, MemberId]] = {}
        """Highest known term and its leader; includes zones that are unknown here yet."""
        self._news: list[tuple[GroupNumber, int]] = []
        self._changed: set[int] = set()
        """Zones in which this member has begun or ended to lead a group in this step (raft_partition/R-4)."""
        self.numbered = 0
        """Highest zone number that was given out, by this member's copy of the metastore. None is given out again."""
        self._elected: set[GroupNumber] = set()
        """Led here; their state may not include all committed entries yet."""
        self.sessions = other.heartbeats = SessionExpiry(out, self.homes, settings.partitions.count)
        self.homes.change()

    # -- known zones

    @property
    def known(self) -> list[int]:
        return sorted(self._zones)

    @property
    def names(self) -> dict[str, int]:
        return dict(sorted(self._by_name.items()))

    @property
    def led(self) -> list[GroupNumber]:
        return sorted(self._led)

    def open_since(self, before_ns: int) -> Iterator[OpenOperation]:
        for number, (zone, replica) in self._clients.items():
            # Called twenty times a second, and most partitions wait for nothing.
            found = replica.proposals.oldest() if replica.proposals.placed else None
            if found is not None and found[1] <= before_ns and zone in self._zones:
                places = {f"zone {self._zones[zone].name}": (place_of(number)[1],)}
                yield OpenOperation(
                    ("zone", number), "writes", found[0], places, found[1], "a majority of the group"
                )
        for each in self._zones.values():
            yield from each.router.open_since(before_ns)

    def know(self, zone: int, name: str, partitions: int) -> None:
        found = self._zones.get(zone)
        if found is not None:
            del self._by_name[found.name]
            found.name = name
        else:
            rows = [Assignment()] * self._settings.partitions.count
            replication = ConsensusReplication(self._replicas)
            router = Router(
                self._me,
                self._settings,
                self._out,
                rows,
                replication,
                held={},
                neighbours=self._neighbours,
                offers=_NoOffers(),
                waiting=self._waiting,
                of_terms=True,
            )
            router.heartbeats = self.sessions
            router.runs = self._runs
            entries = ZoneEntries(zone, len(rows), rows)
            self._zones[zone] = RoutedZone(name, partitions, rows, replication, router, entries)
            router.refusals.follow(self._refusals)
        self._by_name[name] = zone
        self.homes.change()
        for number, (term, member) in sorted(self._known.items()):
            self._lead(number, term, member)

    def forget(self, zone: int) -> None:
        """The zone was dropped: answer the requests that wait for it."""
        found = self._zones.pop(zone, None)
        if found is None:
            return
        del self._by_name[found.name]
        for number in [number for number in self._known if place_of(number)[0] == zone]:
            del self._known[number]
        found.entries.serving[:] = [None] * len(found.rows)
        for replica in dict.fromkeys(found.replication.partitions.values()):
            replica.stop()
        found.router.end(f"zone {found.name!r} was dropped")

    def partition(self, number: GroupNumber) -> ZonePartition:
        """Created on first use. The zone must be known."""
        known = self._clients.get(number)
        if known is None:
            zone, partition = place_of(number)
            found = self._zones[zone]
            client = ZonePartition(number, found.served_by(partition) or [partition], self._replicas)
            found.replication.partitions.update(dict.fromkeys(found.served_by(partition), client))
            known = self._clients[number] = (zone, client)
        return known[1]

    def end(self, number: GroupNumber) -> None:
        known = self._clients.pop(number, None)
        if known is None:
            return
        zone, client = known
        client.stop()
        self._led.pop(number, None)
        found = self._zones.get(zone)
        if found is not None:
            for partition in client.partitions:
                found.replication.partitions.pop(partition, None)
            self._show(number)

    def on_marked(self, number: GroupNumber) -> None:
        self._show(number)

    def leader(self, number: GroupNumber) -> tuple[int, MemberId] | None:
        """Highest known term and its leader, for display."""
        return self._known.get(number)

    # -- copies

    def replica(self, name: str, partition: int) -> ZonePartition | None:
        zone = self.homes.zone_of(name)
        return self._zones[zone].replication.partitions.get(partition) if zone is not None else None

    def led_replica(self, name: str, partition: int) -> ZonePartition | None:
        """This member leads its group and has applied all that earlier leaders acknowledged."""
        return self._if_led(self.replica(name, partition))

    def replica_in(self, zone: str, partition: int) -> ZonePartition | None:
        """The replica on this member of a zone, whatever map is meant."""
        number = self._by_name.get(zone)
        return self._zones[number].replication.partitions.get(partition) if number is not None else None

    def led_in(self, zone: str, partition: int) -> ZonePartition | None:
        """The same, if this member leads its group and has applied all that earlier leaders acknowledged."""
        return self._if_led(self.replica_in(zone, partition))

    def _if_led(self, replica: ZonePartition | None) -> ZonePartition | None:
        if replica is None or not replica.leads or not self._groups.current(replica.number):
            return None
        return replica

    def replicas(self) -> Iterator[ZonePartition]:
        return (client for _, client in self._clients.values())

    def led_replicas(self) -> Iterator[tuple[str, ZonePartition]]:
        for number, client in self._clients.values():
            zone = self._zones.get(number)
            if zone is not None and self._if_led(client) is not None:
                yield zone.name, client

    # -- the fast path of sessions

    def entries(self, name: str) -> ZoneEntries | None:
        """The replicas of the map's zone for sessions; None: the map lives in no known zone."""
        zone = self.homes.zone_of(name)
        return self._zones[zone].entries if zone is not None else None

    def take(self, token: Token, batch: ZoneBatch) -> None:
        """The session gets a `ZoneBatchDone`."""
        under_way = _BatchUnderWay(self._out, token, batch)
        zone = self._zones.get(batch.zone)
        served = zone.entries.serving if zone is not None else []
        for place, (partition, changes) in enumerate(batch.changes):
            replica = served[partition] if served else None
            if zone is None or replica is None:
                under_way.changed(place, NOT_LEADING)
            else:
                zone.replication.change(partition, changes, partial(under_way.changed, place))
        if not batch.reads:
            return
        if zone is not None and all(
            _serves_reads(zone, self._groups, partition) for partition in batch.reads
        ):
            numbers = sorted({zone.replication.partitions[each].number for each in batch.reads})
            self._replicas.groups.rounds.wait(numbers, under_way)
        else:
            under_way.lead_confirmed(confirmed=False)

    def _show(self, number: GroupNumber) -> None:
        """Open or close the fast path to a group's replica."""
        zone, partition = place_of(number)
        found = self._zones.get(zone)
        if found is None:
            return
        for each in found.served_by(partition):
            replica = found.replication.partitions.get(each)
            open_ = (
                replica is not None
                and replica.leads
                and not found.router.refusals.any
                and self._replicas.groups.current(number)
                and found.serves_maps(self._out.level)
                and not replica.state.is_paused()
            )
            found.entries.serving[each] = replica if open_ else None

    # -- requests

    def execute(self, request: Request, asker: Asker) -> None:
        found = self.homes.find(request)
        if isinstance(found, Outcome):
            answer(self._out, asker, found)
        else:
            found.router.execute(request, asker)

    def on_forward(self, sender: MemberId, forward: Forward) -> None:
        found = self.homes.find(forward.request)
        if isinstance(found, Outcome):
            # The sender knows a newer or an older set of zones: it looks the map up again.
            answer(self._out, Peer(sender, forward.ticket), Outcome(Status.MOVED, None, found.detail))
        else:
            found.router.on_forward(sender, forward)

    def on_zone_forward(self, sender: MemberId, forward: ZoneForward) -> None:
        """Take a request that was sent to the leader of a term (raft_partition/R-2)."""
        found = self.homes.find(forward.request)
        if not isinstance(found, Outcome):
            [partition] = forward.request.partitions
            led = found.replication.partitions.get(partition)
            if not of_this_term(led.term if led is not None else 0, forward.term):
                found = NOT_LEADING
        if isinstance(found, Outcome):
            answer(self._out, Peer(sender, forward.ticket), Outcome(Status.MOVED, None, found.detail))
        else:
            found.router.on_forward(sender, Forward(forward.ticket, forward.request))

    def on_answer(self, sender: MemberId, message: Answer) -> bool:
        """Returns whether the answer belongs to a request of this router."""
        for zone in self._zones.values():
            if zone.router.awaits(message.ticket):
                zone.router.on_answer(sender, message)
                return True
        return False

    # -- leaders

    def hear(self, event: EntryEvent) -> None:
        """Only the leader notifies listeners."""
        self._event_sink.hear(msgspec.structs.replace(event, member=self._me))

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None:
        if isinstance(notice, LeaderElected):
            self._changed.add(place_of(number)[0])
            self._led[number] = notice.term
            self._elected.add(number)
            self._news.append((number, notice.term))
            self._hear_of(number, notice.term, self._me)
        elif isinstance(notice, LeadChanged):
            if number in self._led:
                self._changed.add(place_of(number)[0])
            if self._led.get(number, notice.term) != notice.term:
                del self._led[number]
            self._show(number)
        self._watcher.on_replica(number, notice)

    def on_leaders(self, sender: MemberId, message: ZoneLeaders) -> None:
        for number, term in message.groups:
            self._hear_of(number, term, sender)

    def _hear_of(self, number: GroupNumber, term: int, member: MemberId) -> None:
        known = self._known.get(number)
        if known is None or known[0] < term or not self._neighbours.is_member(known[1]):
            self._known[number] = (term, member)
            self._lead(number, term, member)

    def _lead(self, number: GroupNumber, term: int, member: MemberId) -> None:
        """raft_partition/R-1."""
        zone, partition = place_of(number)
        found = self._zones.get(zone)
        for each in found.served_by(partition) if found is not None else ():
            assert found is not None, "it has partitions"
            row = found.rows[each]
            if row.version >= term and (row.owner is None or self._neighbours.is_member(row.owner)):
                continue
            found.rows[each] = Assignment(term, (member,))
            found.router.superseded(each)
            found.router.served(each)

    # -- occasions

    def on_view(self, notice: ViewInstalled) -> None:
        """Announce leaders to new members, and redirect requests that were sent to members that have gone."""
        gone = set(notice.gone)
        for zone in self._zones.values():
            zone.router.askers_gone(gone)
            zone.router.members_gone(gone)
        if self._led:
            led = ZoneLeaders(sorted(self._led.items()))
            for member in sorted(notice.came):
                self._out.send(member, led)

    def restrict(self) -> None:
        """Apply the other router's limits again."""
        for zone in self._zones.values():
            refusals = zone.router.refusals
            refusals.follow(self._refusals)
            if refusals.any:
                zone.router.restrict()
        for number in self.led:
            self._show(number)

    def unread(self, member: MemberId, *, too_many: bool) -> None:
        for zone in self._zones.values():
            zone.router.unread(member, too_many=too_many)

    def on_timer(self) -> None:
        """Retry what could not be sent, and reject requests that have waited too long."""
        for number, zone in self._zones.items():
            zone.router.on_timer()
            for partition in sorted(
                {each % zone.partitions for each in zone.router.unanswered(UNANSWERED_NS)}
            ):
                self._replicas.groups.rouse(group_of(number, partition))

    def take_turns(self) -> None:
        for zone in self._zones.values():
            zone.router.gatherings.take_turns()

    def sweep(self) -> None:
        self._replicas.shares.renew()
        for zone in self._zones.values():
            zone.replication.sweep()
        self.sessions.sweep()

    @property
    def dirty(self) -> bool:
        """Whether anything waits for the end of the step."""
        replicas = self._replicas
        if self._news or replicas.again or replicas.unlocked or replicas.changed or self._changed:
            return True
        return any(zone.replication.dirty for zone in self._zones.values())

    def flush(self, members: Sequence[MemberId]) -> None:
        """End the step: hand requests to the groups, and announce new leaderships to these members."""
        for number in sorted(self._elected):
            if number not in self._led or self._replicas.groups.current(number):
                self._elected.discard(number)
                self._show(number)
        unlocked, self._replicas.unlocked = self._replicas.unlocked, []
        for number, partition in dict.fromkeys(unlocked):
            if (of_zone := self._zones.get(place_of(number)[0])) is not None:
                of_zone.router.changed(partition)
        items_changed, self._replicas.changed = self._replicas.changed, {}
        for number, partition, name, key in items_changed:
            if (of_zone := self._zones.get(place_of(number)[0])) is not None:
                of_zone.router.collection_changed(partition, name, key)
        for zone in self._zones.values():
            zone.replication.flush()
        again, self._replicas.again = self._replicas.again, set()
        for client in sorted(again, key=lambda one: one.number):
            client.flush()
        changed, self._changed = self._changed, set()
        for number in sorted(changed):
            self._invalidate_near_caches(number)
        if self._news:
            news, self._news = self._news, []
            for member in members:
                if member != self._me:
                    self._out.send(member, ZoneLeaders(news))

    def _invalidate_near_caches(self, zone: int) -> None:
        """raft_partition/R-4."""
        for name in list(self.listening):
            if self.homes.zone_of(name) == zone:
                self._event_sink.hear(EntryEvent(EventKind.INVALIDATED, name, self._me, group=str(zone)))

    @property
    def leftovers(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for zone in self._zones.values():
            counts = {**zone.router.leftovers, "requests at groups": zone.replication.waiting}
            for what, count in counts.items():
                found[f"zones: {what}"] = found.get(f"zones: {what}", 0) + count
        return found


def _serves_reads(zone: RoutedZone, groups: GroupHost, partition: int) -> bool:
    """Whether reads are served here: also while writes are rejected, for example because memory is short."""
    if zone.entries.serving[partition] is not None:
        return True
    replica = zone.replication.partitions.get(partition)
    return replica is not None and replica.leads and groups.current(replica.number)


def of_this_term(led: int, meant: int) -> bool:
    """Whether the leader of term `led` (0: none) may accept a request that was sent to the leader of term `meant`
    (raft_partition/R-2).
    """
    return 0 < led == meant
