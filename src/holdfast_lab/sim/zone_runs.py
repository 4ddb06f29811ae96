"""Maps in a zone: the zone, its operator, and an observer of its groups."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from holdfast.actions.change_zone import AlterZone, CreateZone
from holdfast.actions.start_metastore import StartMetastore
from holdfast.config import Settings
from holdfast.config.schema import MapSettings, MetastoreSettings
from holdfast.core.events import ActionRequested
from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.metastore_founding import VOTERS
from holdfast.core.multiraft import group_host
from holdfast.core.raft.follower_progress import LogFlow
from holdfast.core.zones.descriptors import Adjustment, ClusterTopology, PlacementKind, ZoneSettings
from holdfast.core.zones.zone_keys import TOPOLOGY_KEY, KeysRead
from holdfast.errors import RequestError
from holdfast_lab.check.leader_tables import LeaderTables
from holdfast_lab.check.linearizability import Call
from holdfast_lab.check.zone_invariants import GroupsSeen, judge
from holdfast_lab.sim.cluster import PARITIES, PARITY, Cluster
from holdfast_lab.sim.kept_entries import KeptEntries
from holdfast_lab.sim.replacing import Replaced
from holdfast_lab.sim.world import Process, World

ZONE = "z"
ZONED = "zoned"
ZONE_NUMBER = 1
PARTITIONS_MOST = 31
"""More groups would make a run long, and find nothing more."""
SHARED = 0.4
"""Share of zones with fewer partitions than the cluster, whose groups serve several client partitions."""
LOOK_NS = 100 * MILLISECOND
AGAIN_NS = 500 * MILLISECOND
THERE_ALREADY = f"there is a zone {ZONE} already"
"""Error for a repeated order that an earlier try carried out."""
PATIENCE_NS = 5 * SECOND


def zone_drawn(
    seed: int, settings: Settings, *, changes_bytes: int = 0, started: bool = False, moves: bool = False
) -> tuple[Settings, ZoneSettings]:
    """`changes_bytes`: of the map in the zone. `started`: the metastore is not there from the beginning.
    `moves`: the map also lives outside, and is then read and kept as strictly.
    """
    draw = random.Random(f"{seed}/zones")
    partitions = settings.partitions
    if partitions.count > PARTITIONS_MOST:
        partitions = msgspec.structs.replace(partitions, count=draw.choice([7, PARTITIONS_MOST]))
    metastore = MetastoreSettings(
        voters=draw.choice([1, 3, 3, 5]), replace_after_ms=draw.choice([0, 1000, 5000])
    )
    if started:
        metastore = msgspec.structs.replace(metastore, voters=0)
    fewer = random.Random(f"{seed}/zone partitions")
    shares = fewer.random() < SHARED
    usual = settings.map("default")
    zoned = MapSettings(backups=usual.backups, raft_zone=ZONE, changes_bytes=changes_bytes)
    if moves:
        zoned = msgspec.structs.replace(zoned, reads="confirmed", journal=usual.journal)
    zone = ZoneSettings(
        ZONE,
        partitions=fewer.randint(1, partitions.count) if shares else partitions.count,
        replicas=draw.choice([1, 3, 3, 5]),
        scale_up_s=draw.choice([0, 0, 2]),
        scale_down_s=draw.choice([0, 1, 3]),
        adjustment=draw.choice(list(Adjustment)),
        placement=draw.choice(list(PlacementKind)),
    )
    maps = {**settings.maps, ZONED: zoned}
    return msgspec.structs.replace(settings, partitions=partitions, metastore=metastore, maps=maps), zone


def start_voters_drawn(seed: int) -> int:
    """Voters of the metastore that the operator starts while the cluster runs; 0: it is there from the
    beginning.
    """
    return random.Random(f"{seed}/metastore start").choice([0, 0, 1, 3, 3, 5])


class ZoneOperator:
    """Operator that starts the metastore if there is none, creates the zone, and alters both at times. Repeats orders
    until they are done.
    """

    def __init__(
        self, world: World, cluster: Cluster, zone: ZoneSettings, until_ns: int, start_voters: int = 0
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._zone = zone
        self._until_ns = until_ns
        self._random = random.Random(f"{world.seed}/zone operator")
        self._turn = 0
        self._due: list[dict[str, Any]] = []
        self._start_voters = start_voters
        self.created = False

    def start(self) -> None:
        self._cluster.orders_wait = True
        draw = self._random
        self._world.after(draw.randint(SECOND, 4 * SECOND), self._next)
        for _ in range(draw.randint(0, 3)):
            self._world.at(draw.randint(4 * SECOND, max(5 * SECOND, self._until_ns)), self._alter)
        if self._start_voters:
            votes = random.Random(f"{self._world.seed}/metastore voters")
            for _ in range(votes.randint(0, 2)):
                at_ns = votes.randint(4 * SECOND, max(5 * SECOND, self._until_ns))
                self._world.at(at_ns, partial(self._change_voters, votes.choice(VOTERS)))

    def _change_voters(self, voters: int) -> None:
        living = [process for process in self._cluster.living() if process.picture.admitted]
        if living and not self._start_voters:
            self._world.marks.hit("metastore: other voters")
            self._order_metastore(self._random.choice(living), voters)

    def _order_metastore(self, process: Process, voters: int) -> None:
        order = ActionRequested(StartMetastore(voters))
        process.whenever_awake(partial(process.step, partial(process.driver.handle, order)))

    def _start_metastore(self, process: Process) -> None:
        """Repeat the order until the member knows a leader, as the command does."""
        view = process.picture.view
        if view is not None and view.metastore is not None and process.picture.metastore_leader:
            self._world.log(f"METASTORE started: {view.metastore}")
            self._world.marks.hit("metastore: started by an order")
            self._start_voters = 0
            self._next()
        else:
            self._order_metastore(process, self._start_voters)
            self._world.after(SECOND, partial(self._given_up, self._turn))

    @property
    def waiting(self) -> bool:
        return not self.created or bool(self._due)

    def _alter(self) -> None:
        what = self._random.choice(
            ["replicas", "replicas", "placement", "adjustment", "scale_down_s", "filter"]
        )
        values: dict[str, list[Any]] = {
            "replicas": [1, 3, 5],
            "placement": list(PlacementKind),
            "adjustment": list(Adjustment),
            "scale_down_s": [0, 1, 3],
            "filter": ["", f"{PARITY}={PARITIES[0]}", f"{PARITY}={'|'.join(PARITIES)}"],
        }
        self._due.append({what: self._random.choice(values[what])})
        self._cluster.orders_wait = True
        if len(self._due) == 1 and self.created:
            self._next()

    def _next(self) -> None:
        if not self.waiting:
            return
        self._turn += 1
        living = [process for process in self._cluster.living() if process.picture.admitted]
        if living and self._start_voters:
            self._start_metastore(self._random.choice(living))
            return
        if living:
            process = self._random.choice(living)
            asking = partial(self._ask, process, self._turn)
            process.whenever_awake(partial(process.step, asking))
        self._world.after(PATIENCE_NS if living else AGAIN_NS, partial(self._given_up, self._turn))

    def _given_up(self, turn: int) -> None:
        if turn == self._turn:
            self._next()

    def _order(self) -> AlterZone | CreateZone:
        if self.created:
            return AlterZone(ZONE, **self._due[0])
        zone = self._zone
        return CreateZone(
            ZONE,
            partitions=zone.partitions,
            replicas=zone.replicas,
            scale_up_s=zone.scale_up_s,
            scale_down_s=zone.scale_down_s,
            adjustment=zone.adjustment,
            placement=zone.placement,
        )

    def _all_live(self, process: Process) -> bool:
        """Whether the zone would be placed on living members: the fault budget does not cover groups that
        never began, and with one replica nothing could move them away from a dead member.
        """
        read = KeysRead([process.picture.consensus.metastore.get(TOPOLOGY_KEY)], 0)
        topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        living = {one.picture.consensus.groups.me for one in self._cluster.living()}
        return topology.nodes <= living

    def _ask(self, process: Process, turn: int) -> None:
        if self.created or self._all_live(process):
            order = self._order()
            self._cluster.zone_is_founded = not self.created
            process.driver.act(order, partial(self._answered, turn))
        else:
            self.told(turn, done=False)

    def _answered(self, turn: int, answer: object) -> None:
        failed = isinstance(answer, RequestError)
        there = not self.created and str(answer).endswith(THERE_ALREADY)
        self.told(turn, done=not failed or there)

    def told(self, turn: int, *, done: bool) -> None:
        if turn != self._turn:
            return
        self._turn += 1
        self._cluster.zone_is_founded = False
        if not done:
            self._world.after(AGAIN_NS, self._next)
            return
        if not self.created:
            self.created = True
            self._world.log(f"ZONE created: {self._zone}")
        else:
            self._world.log(f"ZONE altered: {self._due.pop(0)}")
            self._world.marks.hit("zone altered")
        self._cluster.orders_wait = self.waiting
        self._next()


@contextmanager
def keeping_log_entries(entries: int) -> Iterator[None]:
    """Limit the applied entries that logs of Raft groups keep, for the block; 0: as in production."""
    replaced = Replaced()
    if entries:
        replaced.replace(group_host, "LOG_ENTRIES", lambda _: entries)  # type: ignore[arg-type, return-value]
    try:
        yield
    finally:
        replaced.end()


class ZoneWatch:
    def __init__(self, world: World, cluster: Cluster, operator: ZoneOperator, calls: Sequence[Call]) -> None:
        self._world = world
        self._cluster = cluster
        self._operator = operator
        self._looked_ns = 0
        self._rests = False
        self.seen = GroupsSeen()
        self._tables = LeaderTables(ZONED)
        self._kept = KeptEntries(calls)
        if cluster.disks:
            cluster.when_up.append(self._on_up)
            for process in cluster.running():
                process.when_dead.append(partial(self._on_dead, process))

    def _on_up(self, process: Process) -> None:
        if process.picture.consensus.groups.journal.found:
            self._world.marks.hit("zone: log over a restart")
        self._world.failures += self._kept.started(process.picture)
        process.when_dead.append(partial(self._on_dead, process))

    def _on_dead(self, process: Process) -> None:
        pictures = [member.picture for member in self._cluster.members()]
        self._kept.look([*pictures, process.picture], self._world.now_ns)

    def start(self) -> None:
        pictures = [member.picture for member in self._cluster.members()]
        before = self.seen.changes
        if self._cluster.disks:
            self._kept.look(pictures, self._world.now_ns)
        self._world.failures += self.seen.look(pictures)
        self._world.failures += self._tables.look(pictures)
        self._mark(pictures, self.seen.changes - before)
        self._world.after(LOOK_NS, self.start)

    def _mark(self, pictures: Sequence[MemberView], changes: int) -> None:
        marks = self._world.marks
        led = [
            hosted.group
            for picture in pictures
            for hosted in picture.consensus.groups.hosted.values()
            if hosted.group.leading is not None
        ]
        flows = [
            progress.flow for group in led if group.leading for progress in group.leading.progress.values()
        ]
        if changes:
            marks.hit("zone: another leader", changes)
        if any(group.configuration.joint for group in led):
            marks.hit("zone: joint")
        if LogFlow.SNAPSHOT in flows:
            marks.hit("zone: state sent")

    def at_rest(self) -> bool:
        if self._world.now_ns >= self._looked_ns + LOOK_NS:
            self._looked_ns = self._world.now_ns
            self._rests = not self._operator.waiting and not self.problems()
        return self._rests

    def problems(self) -> list[str]:
        if self._operator.waiting:
            return ["the operator waits for the metastore"]
        if any(process.picture.maps.changes.moves for process in self._cluster.living()):
            return ["a map is being moved"]
        pictures = self._cluster.pictures()
        return judge(pictures, ZONE_NUMBER) or self._tables.judge(pictures) if pictures else []
