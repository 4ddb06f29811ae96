"""A simulated cluster at rest, and the words to tell a story with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from holdfast.actions.set_state import SetState
from holdfast.config import Settings
from holdfast.core.events import ActionRequested
from holdfast.core.hosted_services import Service
from holdfast.core.model.levels import FeatureLevels
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast.core.model.views import ClusterState, View
from holdfast.core.store.replica import MapReplica, map_replica
from holdfast_lab.check import convergence
from holdfast_lab.check.durability import Write, judge_final
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.rig import Rig
from holdfast_lab.sim.world import Process, World


def settings(backups: int = 1, **changed: dict[str, Any]) -> Settings:
    """Simulated settings with some keys of some sections changed."""
    base = simulated_settings(backups, 7)
    sections = {
        section: msgspec.structs.replace(getattr(base, section), **keys) for section, keys in changed.items()
    }
    return msgspec.structs.replace(base, **sections)


def slots(process: Process) -> list[tuple[str | None, ...]]:
    return [row.replicas for row in process.driver.member.table.rows]


class Stage(Rig):
    """A cluster at rest, and the words to tell a story with."""

    def __init__(
        self,
        hosts: int,
        *,
        backups: int = 1,
        settings: Settings | None = None,
        spare: int = 0,
        rest: bool = True,
        services: Callable[[], Sequence[Service]] = list,
        named: bool = False,
        builds: Sequence[FeatureLevels] = (),
    ) -> None:
        """`spare` hosts more have an address, but no process yet. `named`: members are called as their hosts are.
        `builds`: what the Holdfast on each host can do.
        """
        settings = settings or simulated_settings(backups, 7)
        super().__init__(
            World(4711, None), settings, hosts + spare, services=services, named=named, builds=builds
        )
        self.processes = [self.cluster.start(0, bootstrap=True)]
        self.processes += [self.cluster.start(index) for index in range(1, hosts)]
        if rest:
            self.rest()

    def rest(self, seconds: float = 60) -> None:
        """Until all is well."""
        self.until(self.cluster.settled, seconds)
        self.wait(1)
        assert convergence.judge(self.cluster.pictures()) == []

    def put(self, process: Process, key: str, value: str) -> None:
        answers = self.ask(process, Op.SET, key, value)
        self.until_answered(answers, 1)
        assert [answer.status for answer in answers] == [Status.OK]

    def get(self, process: Process, key: str) -> str | None:
        answers = self.ask(process, Op.GET, key)
        self.until_answered(answers, 1)
        assert [answer.status for answer in answers] == [Status.OK], answers
        value = answers[0].value
        return value.decode() if isinstance(value, bytes) else None

    def owner_of(self, key: str) -> Process:
        """The process of the partition's primary."""
        row = self.processes[0].driver.member.table.rows[self.partition(key)]
        return next(process for process in self.processes if process.driver.member.me == row.owner)

    def lives(self, key: str) -> bool:
        """Whether the partition's primary is among the processes of the story."""
        row = self.processes[0].driver.member.table.rows[self.partition(key)]
        return any(process.driver.member.me == row.owner for process in self.processes)

    def backups_of(self, key: str) -> list[Process]:
        """Processes of its backups, hottest first."""
        row = self.processes[0].driver.member.table.rows[self.partition(key)]
        by_uuid = {process.driver.member.me: process for process in self.processes}
        return [by_uuid[uuid] for uuid in row.replicas[1:] if uuid is not None]

    def view(self) -> View:
        """The first process's view."""
        view = self.processes[0].driver.member.membership.view
        assert view is not None
        return view

    def isolate(self, one: Process) -> None:
        for other in self.processes:
            if other is not one:
                self.cut(one, other)
                self.cut(other, one)


def change(stage: Stage, state: ClusterState, *, through: int = 0) -> None:
    """Put the cluster into this state through one of its members."""
    process = stage.processes[through]
    process.step(lambda: process.driver.handle(ActionRequested(SetState(state))))
    stage.wait(3)
    for one in stage.cluster.living():
        assert one.driver.member.membership.cluster_state is state


# -- what a story ends with


def clean(stage: Stage, writes: Iterable[Write] = (), *, again: bool = True) -> None:
    """All is well: of every partition all copies hold the same updates, without a gap, of the same history, and the
    same content; what is there is what `writes` acknowledged; nothing moves, waits, or is left over. And `again`: the
    power of all hosts fails, everybody who was here starts with what the disks kept, and it is still so.
    """
    writes = list(writes)
    _clean_now(stage, writes)
    if again:
        hosts = [stage.cluster.addresses.index(process.address) for process in stage.cluster.running()]
        before = _contents(stage)
        stage.cluster.power_cut_everywhere()
        # Who comes back has to learn which hosts have no process.
        stage.world.weather.refusal = 1.0
        # Where the first seed is not there any more, the next one is ordered to form the cluster.
        first = hosts[0] or -1
        stage.processes = [stage.cluster.start(host, bootstrap=host == first) for host in hosts]
        _clean_now(stage, writes)
        assert _contents(stage) == before, "after a restart of everybody"


def _clean_now(stage: Stage, writes: list[Write]) -> None:
    stage.rest(120)
    members = stage.cluster.members()
    for partition, row in enumerate(members[0].table.rows):
        holding = [member for member in members if row.index_of(member.me) >= 0]
        wanted = min(len([m for m in members if not m.membership.info.lite]), stage.settings.holders())
        assert len(holding) >= wanted, f"partition {partition} has {len(holding)} copies"
        assert not row.behind
        owner = next(member for member in members if member.me == row.owner)
        for name, mine in owner.copies.held[partition].maps.items():
            for member in holding:
                if not member.copies.wanted(name, row.index_of(member.me)):
                    continue
                other = member.copies.held[partition].maps.get(name) or map_replica(name)
                assert other.updates.sequential, f"partition {partition}: gaps {other.updates.gaps()}"
                assert _proof(other) == _proof(mine), f"partition {partition}, {name}"
    assert [member.picture.under_way() for member in members] == [{}] * len(members)
    for _ in range(6):
        # Perhaps a look at the tables, as there is from time to time, is just on its way.
        if not (left := stage.cluster.leftovers()):
            break
        stage.wait(0.06)
    assert left == []
    found: dict[str, list[Outcome]] = {}
    for number, key in enumerate(sorted({write.key for write in writes})):
        living = stage.cluster.living()
        found[key] = stage.ask(living[number % len(living)], Op.GET, key)
    stage.wait(1)
    assert all([answer.status for answer in answers] == [Status.OK] for answers in found.values())
    values = {key: answers[0].value for key, answers in found.items()}
    final = {key: value.decode() if isinstance(value, bytes) else None for key, value in values.items()}
    assert judge_final(writes, final) == []
    assert not stage.world.failures, stage.world.failures


def _proof(held: MapReplica) -> tuple[int, int, list[tuple[int, int]], int, int]:
    """What a copy of a map holds, as numbers: its updates, their history, its content."""
    return (
        held.counter,
        held.updates.hwm,
        held.proven_lineage(),
        held.state.digest(),
        len(held.state.entries),
    )


def _contents(stage: Stage) -> dict[tuple[int, str], tuple[int, int]]:
    """Where each map of each partition stands, and the digest of its content."""
    return {
        (partition, name): (held.counter, held.state.digest())
        for member in stage.cluster.members()
        for partition, copy in member.copies.held.items()
        if member.table.rows[partition].owner == member.me
        for name, held in copy.maps.items()
        if held.counter
    }
