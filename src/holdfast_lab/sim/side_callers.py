"""Callers beside the clients of maps, in runs that have them: of a service, an entry processor, and structures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core.model.ids import SECOND
from holdfast_lab.sim import cp_user, eviction_user, lock_user, processor_user, queueing, structures, tally
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.cp_user import CpUser
from holdfast_lab.sim.eviction_user import EvictionUser
from holdfast_lab.sim.lock_user import LockUser
from holdfast_lab.sim.processor_user import ProcessorUser
from holdfast_lab.sim.queueing import QueueUser
from holdfast_lab.sim.shape import Shape
from holdfast_lab.sim.structures import StructureUser
from holdfast_lab.sim.tally import Tally, Teller
from holdfast_lab.sim.world import World


class SideCallers:
    def __init__(
        self,
        tellers: Sequence[Teller] = (),
        queue_users: Sequence[QueueUser] = (),
        structure_users: Sequence[StructureUser] = (),
        lock_users: Sequence[LockUser] = (),
        cp_users: Sequence[CpUser] = (),
        eviction_users: Sequence[EvictionUser] = (),
        processor_users: Sequence[ProcessorUser] = (),
    ) -> None:
        self._tellers = tellers
        self._queue_users = queue_users
        self._structure_users = structure_users
        self._lock_users = lock_users
        self._cp_users = cp_users
        self._eviction_users = eviction_users
        self._processor_users = processor_users
        self._callers: list[
            Teller | QueueUser | StructureUser | LockUser | CpUser | EvictionUser | ProcessorUser
        ] = []
        self._callers += [*tellers, *queue_users, *structure_users, *lock_users, *cp_users, *eviction_users]
        self._callers += processor_users

    def start(self) -> None:
        for caller in self._callers:
            caller.start()

    @property
    def waiting(self) -> bool:
        return any(caller.waiting for caller in self._callers)

    def stop(self) -> None:
        for caller in self._callers:
            caller.running = False

    def problems(self, cluster: Cluster) -> list[str]:
        """Errors in a cluster at rest."""
        self._let_sessions_end(cluster)
        members, lost = cluster.pictures(), {partition for partition, _ in cluster.lost}
        problems = tally.judge(members, self._tellers, lost) if self._tellers else []
        problems += lock_user.judge(self._lock_users, sorted(lost))
        problems += queueing.judge(members, self._queue_users, lost) if self._queue_users else []
        problems += structures.judge(members, self._structure_users, lost) if self._structure_users else []
        if self._eviction_users:
            begun_again = lost | {partition for partition, _ in cluster.zone_lost}
            problems += eviction_user.judge_users(members, self._eviction_users, begun_again)
        if self._processor_users:
            problems += processor_user.judge(members, self._processor_users, lost)
        return problems + (cp_user.judge(members, self._cp_users, lost) if self._cp_users else [])

    def _let_sessions_end(self, cluster: Cluster) -> None:
        """A new leader waits a whole time to live before it closes any."""
        short = [user.ttl_ns for user in self._cp_users if user.is_short]
        if short:
            cluster.world.run_until(cluster.world.now_ns + 3 * max(short) + 5 * SECOND)

    @property
    def figures(self) -> dict[str, int | float]:
        found: dict[str, int | float] = {}
        if self._queue_users:
            found["queue_items_delivered"] = sum(user.delivered for user in self._queue_users)
        if self._structure_users:
            found["structure_calls_answered"] = sum(user.answered for user in self._structure_users)
        if self._lock_users:
            found["locks_held"] = sum(len(user.holds) for user in self._lock_users)
        if self._processor_users:
            found["processors_run"] = sum(user.answered for user in self._processor_users)
        if self._cp_users:
            found["cp_sessions_ended"] = sum(user.ended for user in self._cp_users)
            found["cp_additions"] = sum(len(user.additions) for user in self._cp_users)
            found["cp_holdings"] = sum(
                len(held) for user in self._cp_users for held in user.holdings.values()
            )
        if self._eviction_users:
            found["eviction_calls_answered"] = sum(user.answered for user in self._eviction_users)
        return found


def hosted_services(shape: Shape) -> Callable[[], list[Tally]]:
    """Makes the services of each member."""
    backups = shape.service_backups
    return (lambda: [Tally(backups)]) if backups is not None else list


def side_callers(world: World, cluster: Cluster, shape: Shape, tell_ns: int) -> SideCallers:
    """They begin at once."""
    tellers: list[Teller] = []
    if shape.service_backups is not None:
        partitions = range(shape.settings.partitions.count)
        tellers = [Teller(index, world, cluster, partitions, tell_ns) for index in range(2)]
    count = queueing.USERS if shape.has_queue(world.seed) else 0
    queue_users = [QueueUser(index, world, cluster) for index in range(count)]
    count = structures.USERS if shape.has_structures(world.seed) else 0
    structure_users = [StructureUser(index, world, cluster) for index in range(count)]
    count = lock_user.USERS if shape.has_lock(world.seed) else 0
    lock_users = [LockUser(index, world, cluster) for index in range(count)]
    count = cp_user.USERS if shape.has_cp(world.seed) else 0
    ttl_ms = shape.session_ttl_ms(world.seed) or cp_user.TTL_MS
    cp_users = [CpUser(index, world, cluster, ttl_ms, clocks_err=shape.clocks) for index in range(count)]
    count = eviction_user.USERS if shape.has_eviction else 0
    eviction_users = [EvictionUser(index, world, cluster) for index in range(count)]
    count = processor_user.USERS if shape.has_processors(world.seed) else 0
    processor_users = [ProcessorUser(index, world, cluster) for index in range(count)]
    found = SideCallers(
        tellers, queue_users, structure_users, lock_users, cp_users, eviction_users, processor_users
    )
    found.start()
    return found
