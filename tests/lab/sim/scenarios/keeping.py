"""A simulated cluster whose members keep files, for stories in which they stop, and come back with what they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, TypedDict

import msgspec
from tests.lab.sim.stage import Stage

from holdfast.actions.drain import Drain
from holdfast.config import PartitionSettings, PersistenceSettings, Settings
from holdfast.core.events import ActionRequested
from holdfast.core.messages import Fill, Message
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import FeatureLevels
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast_lab.check.durability import Write
from holdfast_lab.check.linearizability import STILL, Call, changed_nothing
from holdfast_lab.sim.calls import Knowledge, wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.rig import Packet
from holdfast_lab.sim.workload import MAP, Client, Habits, Keys

PARTITION = 3
"""Where a story takes place."""
PARTITIONS = 7
End = Literal["kill", "power cut"]
ENDS: tuple[End, ...] = ("kill", "power cut")


class Files(TypedDict, total=False):
    """Sizes of files."""

    segment_bytes: int
    checkpoint_bytes: int
    history_bytes: int


class Forgetful(Files):
    """How much of the past is known."""

    tail_bytes: int


NO_HISTORY: Forgetful = {"tail_bytes": 0, "history_bytes": 0, "segment_bytes": 4096, "checkpoint_bytes": 4096}
"""What is not needed for a restart is not kept, neither in memory nor in the journal."""


def kept(
    backups: int = 1,
    *,
    tail_bytes: int = 65_536,
    history_bytes: int = 1_000_000,
    checkpoint_bytes: int = 1_000_000,
    segment_bytes: int = 16_384,
    chunk_bytes: int = 4096,
    anti_entropy_ms: int = 0,
    lost: Literal["wait", "accept"] = "wait",
    delay_ms: int = 0,
) -> Settings:
    """Settings of a cluster in which every acknowledged write is on disks."""
    found = simulated_settings(
        backups,
        PARTITIONS,
        chunk_bytes=chunk_bytes,
        journal="sync",
        persistence=PersistenceSettings(
            directory="disk",
            segment_bytes=segment_bytes,
            checkpoint_bytes=checkpoint_bytes,
            history_bytes=history_bytes,
        ),
        tail_bytes=tail_bytes,
        anti_entropy_ms=anti_entropy_ms,
    )
    changed = msgspec.structs.replace(found.partitions, lost=lost, rebalance_delay_ms=delay_ms)
    assert isinstance(changed, PartitionSettings)
    return msgspec.structs.replace(found, partitions=changed)


def _written(call: Call) -> Write:
    """The call as the table replication has it: one that changed nothing has written nothing."""
    outcome = "refused" if changed_nothing(call) else call.outcome.value
    return Write(call.key, call.argument, call.start, call.end, outcome)


def keys_in(partition: int, count: int, first: int = 0) -> list[str]:
    """So many keys of one partition, leaving out the first ones."""
    found = [
        key
        for key in map("k{}".format, range(PARTITIONS * 4 * (first + count) + 200))
        if at(key) == partition
    ]
    assert len(found) >= first + count
    return found[first : first + count]


def at(key: str) -> int:
    """The partition of a key."""
    return partition_of(wire_key(key), 0, PARTITIONS)


class Keeping(Stage):
    """The cluster. Hosts are numbers; a host has one disk, and one process after the other."""

    def __init__(
        self,
        hosts: int,
        settings: Settings,
        *,
        spare: int = 0,
        rest: bool = True,
        named: bool = False,
        builds: Sequence[FeatureLevels] = (),
    ) -> None:
        self.told: list[str] = []
        """The story, as members tell it."""
        self.writes: list[Write] = []
        self._count = 0
        super().__init__(hosts, settings=settings, spare=spare, rest=rest, named=named, builds=builds)
        self.world.story = self.told.append

    # -- members

    def master_host(self) -> int:
        return self.host_of(self.master())

    def holders(self, partition: int = PARTITION) -> list[int]:
        """The hosts that hold a partition, its primary first."""
        replicas = self.processes[0].driver.member.table.rows[partition].holding
        hosts = {process.driver.member.me: self.host_of(process) for process in self.cluster.living()}
        return [hosts[uuid] for uuid in replicas if uuid in hosts]

    def end(self, how: End, *hosts: int) -> None:
        """Kill processes, or cut the power of their hosts; all at once."""
        for host in hosts:
            if how == "kill":
                self.process(host).crash()
            else:
                self.cluster.power_cut(self.process(host))
        self.processes = self.cluster.running()

    def end_all(self, how: End) -> list[int]:
        """Kill everybody, or cut everybody's power; answers who it was."""
        hosts = [self.host_of(process) for process in self.cluster.running()]
        (self.cluster.kill_everywhere if how == "kill" else self.cluster.power_cut_everywhere)()
        # Who comes back has to learn which hosts have no process.
        self.world.weather.refusal = 1.0
        self.processes = []
        return hosts

    def leave(self, *hosts: int, seconds: float = 60) -> None:
        """Stop members gracefully, all at once."""
        leaving = [self.process(host) for host in hosts]
        for process in leaving:
            process.step(partial(process.driver.handle, ActionRequested(Drain())))
        self.until(lambda: all(process.dead for process in leaving), seconds)
        self.processes = self.cluster.running()

    def start(self, *hosts: int, lite: bool = False, by_order: bool = False) -> None:
        """Start processes; `by_order`: the first of them forms the cluster without asking who else is there."""
        for host in hosts:
            self.cluster.start(host, lite=lite, bootstrap=by_order and host == hosts[0])
        self.processes = self.cluster.running()

    def gone(self, *hosts: int) -> None:
        """Wait until everybody knows that these are not members any more, and all is well without them."""
        dead = {self.member(host).me for host in hosts}
        self.until(
            lambda: all(
                member.membership.view is not None
                and dead.isdisjoint(info.uuid for info in member.membership.view.members)
                for member in self.cluster.members()
            )
        )
        self.calm()

    def calm(self, seconds: float = 120) -> None:
        """Until nobody has anything to do but what clients ask for."""
        self.until(self.cluster.settled, seconds)

    # -- data

    def send(self, op: Op, key: str, *, host: int | None = None) -> list[Outcome]:
        """Write a new value to a key, or remove it; the answer comes into the list, and is noted."""
        self._count += 1
        value = f"v{self._count}".ljust(20, ".") if op is not Op.DELETE else None
        write = Write(key, value, self.world.now_ns)
        self.writes.append(write)
        answers: list[Outcome] = []
        living = self.cluster.living()
        process = living[self._count % len(living)] if host is None else self.process(host)

        def told(outcome: Outcome) -> None:
            answers.append(outcome)
            write.end = self.world.now_ns
            if outcome.status is Status.OK:
                write.outcome = "ok" if outcome.value is not False else "refused"
            elif outcome.status is not Status.UNKNOWN:
                write.outcome = "refused"

        request = Request(op, MAP, [at(key)], wire_key(key), value.encode() if value else b"")
        process.step(partial(process.driver.execute, request, told))
        return answers

    def write(self, keys: Iterable[str], op: Op = Op.SET, *, host: int | None = None) -> None:
        """Write to all these keys; all must be acknowledged."""
        answers = [self.send(op, key, host=host) for key in keys]
        self.until(lambda: all(answers), 30)
        assert {answer.status for each in answers for answer in each} == {Status.OK}

    def everywhere(self, count: int = 3) -> list[str]:
        """Write some keys of every partition; answers which."""
        keys = [key for partition in range(PARTITIONS) for key in keys_in(partition, count)]
        self.write(keys)
        return keys

    def counter(self, host: int, partition: int = PARTITION) -> int:
        copy = self.member(host).copies.held.get(partition)
        return copy.maps[MAP].counter if copy is not None and MAP in copy.maps else 0

    # -- clients that write all the time

    def load(self, clients: int = 2, keys: int = 14) -> Callable[[], None]:
        """Clients write, read and remove from now on; answers what stops them, and notes their writes."""
        habits = Habits(
            hot=0.0,
            think_ns=40 * MILLISECOND,
            patience_ns=20 * SECOND,
            bursts=0.1,
            burst_writes=6,
            ttl=0.0,
            idle=0.0,
            lane=0.5,
            sweeps=0.0,
            large=0.0,
            large_bytes=0,
        )
        names, knowledge = Keys(self.settings, keys), Knowledge()
        crowd = [
            Client(f"c{len(self.writes)}.{n}", self.world, self.cluster, habits, names, knowledge)
            for n in range(clients)
        ]
        for client in crowd:
            client.start()

        def stop() -> None:
            for client in crowd:
                client.running = False
            self.until(lambda: not any(client.waiting for client in crowd))
            written = [_written(call) for call in knowledge.calls if call.operation not in STILL]
            assert sum(write.outcome == "ok" for write in written) > 10, "there was a load"
            self.writes += written

        return stop

    # -- what was sent

    def synchronised(self, host: int, partition: int = PARTITION) -> list[tuple[str, str]]:
        """How a partition was brought up to date on the present member of a host, each time, and why so."""
        mark = f"replica synchronised partition={partition} to={self.member(host).me} "
        lines = [line.split(mark)[1] for line in self.told if mark in line]
        found = []
        for line in lines:
            assert f" map={MAP} " in line, line
            found.append(
                (line.split()[0].removeprefix("how="), line.split("reason=")[1].rsplit(" bytes=", 1)[0])
            )
        return found

    # -- packets

    def lose_first(self, met: Callable[[Packet], bool], deed: Callable[[Packet], object]) -> list[Packet]:
        """Do this once, when the first such packet is about to leave, which is lost; it comes into the list."""

        def lose(packet: Packet) -> Sequence[int]:
            deed(packet)
            return ()

        return self.when(met, lose)

    def filling(self, host: int, partition: int = PARTITION) -> Callable[[Packet], bool]:
        """Whether a packet is one that brings content of the partition to this host."""

        def met(packet: Packet) -> bool:
            return (
                packet.target == self.cluster.addresses[host]
                and isinstance(packet.message, Fill)
                and packet.message.partition == partition
                and packet.message.sequence > 0
            )

        return met

    def hold_up(self, host: int, partition: int = PARTITION) -> tuple[list[Message], Callable[[], None]]:
        """Let no content of the partition reach this host; answers what was held up, and what ends it."""
        held: list[Message] = []
        filling = self.filling(host, partition)

        def hold(packet: Packet) -> bool:
            if not filling(packet):
                return False
            held.append(packet.message)
            return True

        return held, self.block(hold)
