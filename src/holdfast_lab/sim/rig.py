"""A rig: a simulated cluster whose members, time, requests and packets a test controls directly.

Each test of one situation uses it (campaigns draw their faults by chance instead, see `run`). A subclass adds the
settings, the data and the judges of its subject:

    rig = Rig(World(1, None), simulated_settings(1, 7), hosts=3)
    rig.cluster.start(0, bootstrap=True)
    rig.until(rig.cluster.settled)
    lost = rig.block(lambda packet: isinstance(packet.message, Replicate))
    answers = rig.ask(rig.process(0), Op.SET, "k1", "v")    # its backups never receive this write
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast.config import Settings
from holdfast.core.member import Member
from holdfast.core.messages import Message
from holdfast.core.model.ids import SECOND, Address
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request
from holdfast.engine.link import HEADER
from holdfast.wire.codec import decode
from holdfast_lab.check import convergence
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import STRAIGHT, Process, World


class Packet(NamedTuple):
    sender: Process
    receiver: Process | None
    target: Address
    message: Message


class Rig:
    """A cluster without processes at first. Hosts are numbers; a host has one process at a time."""

    MAP = MAP

    def __init__(self, world: World, settings: Settings, hosts: int, **more: Any) -> None:
        self.world = world
        self.cluster = Cluster(world, settings, hosts, **more)
        self.settings = self.cluster.settings
        self.taps: list[Callable[[Packet], Sequence[int] | None]] = []
        """Each may decide about a packet: the delays of its copies (none: the packet is lost), or None."""
        world.tap = self._tap

    # -- members

    def process(self, host: int) -> Process:
        return self.world.processes[self.cluster.addresses[host]]

    def member(self, host: int) -> Member:
        return self.process(host).driver.member

    def host_of(self, process: Process) -> int:
        return self.cluster.addresses.index(process.address)

    def master(self) -> Process:
        return next(one for one in self.cluster.living() if one.picture.is_master)

    # -- time

    def wait(self, seconds: float) -> None:
        self.world.run_until(self.world.now_ns + round(seconds * SECOND))
        assert not self.world.failures, self.world.failures

    def until(self, reached: Callable[[], bool], seconds: float = 120, what: str = "") -> None:
        """Run until `reached()`. Raises AssertionError, with `what`, after so many simulated seconds."""
        self.world.run_until(self.world.now_ns + round(seconds * SECOND), stop=reached)
        assert not self.world.failures, self.world.failures
        assert reached(), (what, convergence.judge(self.cluster.pictures()))

    def until_answered(self, answers: Sequence[object], seconds: float) -> None:
        """Run until there is an answer, for so many simulated seconds at most: whether one came is for the caller to
        check. Simulating idle members is what most tests of one situation spend their time on.
        """
        self.world.run_until(self.world.now_ns + round(seconds * SECOND), stop=lambda: bool(answers))
        assert not self.world.failures, self.world.failures

    def at_rest(self) -> bool:
        return self.cluster.settled() and not any(
            member.under_way() or member.leaving for member in self.cluster.pictures()
        )

    # -- requests

    def partition(self, key: str) -> int:
        return partition_of(wire_key(key), 0, self.settings.partitions.count)

    def ask(self, process: Process, op: Op, key: str, value: str = "", name: str = "") -> list[Outcome]:
        answers: list[Outcome] = []
        request = Request(op, name or self.MAP, [self.partition(key)], wire_key(key), value.encode())
        process.step(partial(process.driver.execute, request, answers.append))
        return answers

    # -- packets

    def cut(self, source: Process, target: Process) -> None:
        self.world.weather.cut[source.host, target.host] = True

    def heal(self) -> None:
        self.world.weather.cut.clear()

    def _tap(self, source: Process, target: Address, data: bytes, linked: bool) -> Sequence[int]:
        payload = data[HEADER.size :] if linked else data
        if not payload or not self.taps:
            return STRAIGHT
        packet = Packet(source, self.world.processes.get(target), target, decode(payload))
        for tap in list(self.taps):
            if (copies := tap(packet)) is not None:
                return copies
        return STRAIGHT

    def seen(self, *kinds: type[Message]) -> list[Packet]:
        found: list[Packet] = []

        def tap(packet: Packet) -> None:
            if isinstance(packet.message, kinds):
                found.append(packet)

        self.taps.append(tap)
        return found

    def block(self, blocked: Callable[[Packet], bool]) -> Callable[[], None]:
        def tap(packet: Packet) -> Sequence[int] | None:
            return () if blocked(packet) else None

        self.taps.append(tap)
        return lambda: self.taps.remove(tap)

    def when(
        self, met: Callable[[Packet], bool], deed: Callable[[Packet], Sequence[int] | None]
    ) -> list[Packet]:
        found: list[Packet] = []

        def tap(packet: Packet) -> Sequence[int] | None:
            if found or not met(packet):
                return None
            found.append(packet)
            return deed(packet)

        self.taps.append(tap)
        return found
