"""More voters of a zone's groups are destroyed than must be survived, and an operator resets the zone.

Only partitions of the zone's maps whose group has lost its majority may lose anything. They have no leader
before the reset. Afterwards all are served, and a reader of changes continues or learns that it needs a
snapshot.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from holdfast.actions.change_zone import ResetZone
from holdfast.core.membership.view_agreement import is_quorum
from holdfast.core.model.ids import METASTORE_GROUP, SECOND, GroupNumber
from holdfast.core.raft.configuration import NodeId
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World
from holdfast_lab.sim.zone_runs import ZONE, ZONED

TRIES = 20
VICTIMS_MOST = 3
AGAIN_NS = 3 * SECOND


class ZoneLoss:
    def __init__(self, world: World, cluster: Cluster, draw: random.Random) -> None:
        self._world = world
        self._cluster = cluster
        self._random = draw
        self._away: list[int] = []
        self.lost: list[int] = []

    def strike(self) -> bool:
        cluster = self._cluster
        if cluster.orders_wait or cluster.groups_move():
            return False
        victims = self._choose()
        if not victims:
            return False
        self.lost = self._partitions_of(victims)
        names = ", ".join(process.name for process in victims)
        self._world.log(f"ZONE LOSS {names} die, with the majority of partitions {self.lost}")
        cluster.zone_lost += [(partition, self._world.now_ns) for partition in self.lost]
        self._away = [cluster.addresses.index(process.address) for process in victims]
        for process in victims:
            process.crash()
        return True

    def _choose(self) -> list[Process]:
        living = [process for process in self._cluster.living() if process.picture.admitted]
        for count in range(1, min(VICTIMS_MOST, len(living) - 1) + 1):
            for _ in range(TRIES):
                chosen = self._random.sample(living, count)
                if self._harms_zones_only(living, chosen):
                    return chosen
        return []

    def _harms_zones_only(self, living: Sequence[Process], chosen: Sequence[Process]) -> bool:
        cluster = self._cluster
        rest = [process for process in living if process not in chosen]
        alive = {process.driver.member.me for process in rest}
        groups = list(self._without_majority(_nodes(chosen)))
        if not groups or METASTORE_GROUP in groups or all(process.picture.info.lite for process in rest):
            return False
        everyone = cluster.members()
        views = [view for process in living if (view := process.picture.view) is not None]
        return (
            not any(member.picture.proposing for member in everyone)
            and all(is_quorum(view, alive) for view in views)
            and cluster.copies_elsewhere(everyone, alive, set())
        )

    def _without_majority(self, gone: Collection[NodeId]) -> Iterator[GroupNumber]:
        for member in self._cluster.members():
            for number, hosted in member.picture.consensus.groups.hosted.items():
                voters = hosted.group.configuration.sets
                if hosted.group.leading is not None and any(
                    2 * len(some.difference(gone)) <= len(some) for some in voters if some
                ):
                    yield number

    def _partitions_of(self, victims: Sequence[Process]) -> list[int]:
        found: set[int] = set()
        lost = set(self._without_majority(_nodes(victims)))
        for member in self._cluster.members():
            for number, hosted in member.picture.consensus.groups.hosted.items():
                if number in lost and isinstance(hosted.client, ZonePartition):
                    found.update(hosted.client.partitions)
        return sorted(found)

    def noticed(self) -> bool:
        here = {member.me for member in self._cluster.members()}
        return all(
            {info.uuid for info in member.picture.members()} <= here for member in self._cluster.members()
        )

    def led(self) -> set[int]:
        pictures = self._cluster.pictures()
        partitions = range(self._cluster.settings.partitions.count)
        return {
            partition
            for partition in partitions
            if any(picture.copies.led(ZONED, partition) is not None for picture in pictures)
        }

    def served(self) -> bool:
        return len(self.led()) == self._cluster.settings.partitions.count

    def reset(self) -> None:
        living = [process for process in self._cluster.living() if process.picture.admitted]
        if living and not self.served():
            process = self._random.choice(living)
            order = partial(process.driver.act, ResetZone(ZONE), lambda _: None)
            process.whenever_awake(partial(process.step, order))
            self._world.after(AGAIN_NS, self.reset)

    def restart(self) -> None:
        for index in self._away:
            if self._cluster.is_free(index):
                self._cluster.start(index)


def _nodes(processes: Sequence[Process]) -> set[NodeId]:
    return {process.picture.consensus.groups.me for process in processes}
