"""A simulated cluster for the scenarios: members come, go and die; two maps with data; the oracle after each step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from holdfast.actions.drain import Drain
from holdfast.config import MapSettings, PartitionSettings
from holdfast.core.events import ActionRequested
from holdfast.core.member import Member
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast_lab.check import convergence
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.rig import Rig
from holdfast_lab.sim.world import Process, World

NAMES = ("ledger", "deep")
"""Two maps, the second with one backup more."""


class Scene(Rig):
    """A cluster of ten hosts with two maps and their expected content."""

    MAP = NAMES[0]

    def __init__(
        self,
        backups: int = 1,
        *,
        partitions: int = 11,
        seed: int = 1,
        lost: str = "wait",
        parallel: int = 3,
        chunk_bytes: int = 1024,
        deep: bool = True,
    ) -> None:
        settings = simulated_settings(backups, partitions, chunk_bytes=chunk_bytes)
        changed = msgspec.structs.replace(settings.partitions, lost=lost, parallel_migrations=parallel)
        assert isinstance(changed, PartitionSettings)
        maps = {"default": MapSettings(backups=backups)}
        if deep:
            maps["deep"] = MapSettings(backups=min(6, backups + 1))
        self.names = NAMES if deep else NAMES[:1]
        settings = msgspec.structs.replace(settings, partitions=changed, maps=maps)
        super().__init__(World(seed, None), settings, 10)
        self.expected: dict[tuple[str, str], str] = {}
        self._turn = 0

    # -- members

    def start(self, *hosts: int, lite: bool = False) -> list[Process]:
        """Start processes; the very first one of a scene forms the cluster."""
        return [self.cluster.start(host, bootstrap=not self.world.processes, lite=lite) for host in hosts]

    def members(self) -> list[Member]:
        return self.cluster.members()

    def shut_down(self, *hosts: int) -> list[Process]:
        """Ask members to leave gracefully, all at once."""
        leaving = [self.process(host) for host in hosts]
        for process in leaving:
            process.step(partial(process.driver.handle, ActionRequested(Drain())))
        return leaving

    def terminate(self, *hosts: int) -> None:
        """Kill processes at once."""
        for host in hosts:
            self.process(host).crash()

    # -- time

    def rest(self, seconds: float = 120) -> None:
        """Until nothing is to be done any more, and nobody wants to leave."""
        self.until(self.at_rest, seconds)

    def returned(self, processes: Sequence[Process], seconds: float = 120) -> None:
        """Until these have left the cluster and ended."""
        self.until(lambda: all(process.driver.stopped for process in processes), seconds)

    # -- data

    def key_in(self, partition: int) -> str:
        """A key of this partition."""
        return next(key for key in map("k{}".format, range(1000)) if self.partition(key) == partition)

    def fill(self, keys: int = 40, through: int | None = None) -> None:
        """Write each key of both maps once more; all must be acknowledged."""
        self._turn += 1
        living = self.cluster.living()
        answers: list[list[Outcome]] = []
        for number in range(keys):
            process = living[number % len(living)] if through is None else self.process(through)
            for name in self.names:
                key, value = f"k{number}", f"{self._turn}.{number}".ljust(100, ".")
                answers.append(self.ask(process, Op.SET, key, value, name))
                self.expected[name, key] = value
        self.until(lambda: all(answers), 60)
        assert {answer.status for each in answers for answer in each} == {Status.OK}

    def judge(self) -> None:
        """The universal oracle at rest, and every acknowledged write there."""
        self.rest()
        assert convergence.judge(self.cluster.pictures()) == []
        living = self.cluster.living()
        found = {
            (name, key): self.ask(living[number % len(living)], Op.GET, key, name=name)
            for number, (name, key) in enumerate(self.expected)
        }
        self.until(lambda: all(found.values()), 30)
        values = {which: answers[0].value for which, answers in found.items()}
        assert values == {which: value.encode() for which, value in self.expected.items()}

    def owners(self) -> dict[int, str]:
        """Partition -> name of the host that owns it, as the first living member knows it."""
        names = {p.driver.member.me: p.host for p in self.world.processes.values()}
        rows = self.members()[0].table.rows
        return {number: names[row.owner] for number, row in enumerate(rows) if row.owner is not None}


def row_history(process: Process, partition: int = 0) -> list[tuple[int, tuple[str | None, ...]]]:
    """A list that will grow by each row of the partition that the member applies: version and replicas."""
    rows = process.driver.member.table.rows
    told = [(rows[partition].version, tuple(rows[partition].replicas))]

    def look() -> None:
        row = rows[partition]
        if row.version != told[-1][0]:
            told.append((row.version, tuple(row.replicas)))

    process.driver.callers.watch(look)
    return told
