"""A simulated cluster for the scenarios: members come, go and die; two maps with data; the oracle after each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.events import LeaveRequested
from holdfast.core.member import Member
from holdfast.core.messages import Message
from holdfast.core.model.ids import SECOND, Address
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.engine.link import HEADER
from holdfast.wire.codec import decode
from holdfast_lab.check import convergence
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.world import STRAIGHT, Process, World

NAMES = ("ledger", "deep")
"""Two maps, the second with one backup more."""


class Packet:
    """A packet that leaves, as a tap is shown it."""

    def __init__(self, sender: Process, receiver: Process | None, message: Message) -> None:
        self.sender = sender
        self.receiver = receiver
        self.message = message


class Scene:
    """The cluster. Hosts are numbers; a host has one process at a time."""

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
        self.world = World(seed, None)
        settings = simulated_settings(backups, partitions, chunk_bytes=chunk_bytes)
        changed = msgspec.structs.replace(settings.partitions, lost=lost, parallel_migrations=parallel)
        assert isinstance(changed, PartitionSettings)
        maps = {"default": MapSettings(backups=backups)}
        if deep:
            maps["deep"] = MapSettings(backups=min(6, backups + 1))
        self.names = NAMES if deep else NAMES[:1]
        self.settings: Settings = msgspec.structs.replace(settings, partitions=changed, maps=maps)
        self.cluster = Cluster(self.world, self.settings, 10)
        self.expected: dict[tuple[str, str], str] = {}
        self._turn = 0
        self.taps: list[Callable[[Packet], Sequence[int] | None]] = []
        self.world.tap = self._tap

    # -- members

    def start(self, *hosts: int, lite: bool = False) -> list[Process]:
        """Start processes; the very first one of a scene forms the cluster."""
        return [self.cluster.start(host, bootstrap=not self.world.processes, lite=lite) for host in hosts]

    def process(self, host: int) -> Process:
        return self.world.processes[self.cluster.addresses[host]]

    def member(self, host: int) -> Member:
        return self.process(host).driver.member

    def members(self) -> list[Member]:
        return self.cluster.members()

    def master(self) -> Process:
        return next(p for p in self.cluster.living() if p.driver.member.membership.is_master)

    def shut_down(self, *hosts: int) -> list[Process]:
        """Ask members to leave gracefully, all at once."""
        leaving = [self.process(host) for host in hosts]
        for process in leaving:
            process.step(partial(process.driver.handle, LeaveRequested()))
        return leaving

    def terminate(self, *hosts: int) -> None:
        """Kill processes at once."""
        for host in hosts:
            self.process(host).crash()

    # -- time

    def wait(self, seconds: float) -> None:
        self.world.run_until(self.world.now_ns + round(seconds * SECOND))
        assert not self.world.failures, self.world.failures

    def until(self, reached: Callable[[], bool], seconds: float = 120) -> None:
        self.world.run_until(self.world.now_ns + round(seconds * SECOND), stop=reached)
        assert not self.world.failures, self.world.failures
        assert reached(), convergence.judge(self.cluster.pictures())

    def rest(self, seconds: float = 120) -> None:
        """Until nothing is to be done any more, and nobody wants to leave."""
        self.until(self.at_rest, seconds)

    def at_rest(self) -> bool:
        members = self.members()
        return self.cluster.settled() and not any(
            member.picture.under_way() or member.membership.leaving for member in members
        )

    def returned(self, processes: Sequence[Process], seconds: float = 120) -> None:
        """Until these have left the cluster and ended."""
        self.until(lambda: all(process.driver.stopped for process in processes), seconds)

    # -- data

    def partition(self, key: str) -> int:
        return partition_of(wire_key(key), 0, self.settings.partitions.count)

    def key_in(self, partition: int) -> str:
        """A key of this partition."""
        return next(key for key in map("k{}".format, range(1000)) if self.partition(key) == partition)

    def ask(self, process: Process, op: Op, key: str, value: str = "", name: str = "ledger") -> list[Outcome]:
        """Send a request now; the answer comes into the list."""
        answers: list[Outcome] = []
        raw, partition = wire_key(key), self.partition(key)
        request = Request(op, name, [partition], raw, value.encode())
        process.step(partial(process.driver.execute, request, answers.append))
        return answers

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

    # -- packets

    def _tap(self, source: Process, target: Address, data: bytes, linked: bool) -> Sequence[int]:
        payload = data[HEADER.size :] if linked else data
        if not payload or not self.taps:
            return STRAIGHT
        packet = Packet(source, self.world.processes.get(target), decode(payload))
        for tap in list(self.taps):
            copies = tap(packet)
            if copies is not None:
                return copies
        return STRAIGHT

    def seen(self, *kinds: type[Message]) -> list[Packet]:
        """A list that will grow by every packet of these kinds, repeats of the link included."""
        found: list[Packet] = []

        def tap(packet: Packet) -> None:
            if isinstance(packet.message, kinds):
                found.append(packet)

        self.taps.append(tap)
        return found

    def block(self, blocked: Callable[[Packet], bool]) -> Callable[[], None]:
        """Let no such packet through, until the function that this answers is called."""

        def tap(packet: Packet) -> Sequence[int] | None:
            return () if blocked(packet) else None

        self.taps.append(tap)
        return lambda: self.taps.remove(tap)

    def when(
        self, met: Callable[[Packet], bool], deed: Callable[[Packet], Sequence[int] | None]
    ) -> list[Packet]:
        """Do this once, when the first such packet leaves; the packet comes into the list."""
        found: list[Packet] = []

        def tap(packet: Packet) -> Sequence[int] | None:
            if found or not met(packet):
                return None
            found.append(packet)
            return deed(packet)

        self.taps.append(tap)
        return found


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
