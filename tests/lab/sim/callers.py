"""A simulated cluster under faults whose clients speak in bytes; what they are told is noted and judged."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import msgspec

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import DEFAULT_TTL, Op, Outcome, Request, Status
from holdfast_lab.check.durability import Read, Write, judge_final, judge_reads
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.clients.client import REPEATED, Client, Manners, Told
from holdfast_lab.sim.clients.hazelcast import HazelcastClient
from holdfast_lab.sim.clients.own_client import OwnClient
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.faults import Faults
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import World

PARTITIONS = 7
KEYS = 40
WRITES = (Op.SET, Op.SET, Op.PUT, Op.DELETE, Op.PUT_IF_ABSENT)


def request(
    op: Op, key: str, value: str = "", *, partitions: int = PARTITIONS, ttl_ms: int = DEFAULT_TTL
) -> Request:
    raw = wire_key(key)
    return Request(op, MAP, [partition_of(raw, 0, partitions)], raw, value.encode(), ttl_ms=ttl_ms)


@dataclass
class Caller:
    """Uses one client: bursts of reads and writes of unique values, and what it was told."""

    client: Client
    random: random.Random
    running: bool = True
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    told: Counter[int] = field(default_factory=Counter)
    """How often it was told of each request."""
    asked: int = 0

    def start(self) -> None:
        self.client.start()
        self._next()

    def _next(self) -> None:
        if not self.running:
            return
        world = self.client.world
        if self.client.waiting < 100:
            burst = 1 if self.random.random() < 0.7 else self.random.randint(2, 20)
            self.client.ask([self._one() for _ in range(burst)])
        world.after(self.random.randint(10, 60) * MILLISECOND, self._next)

    def _one(self) -> tuple[Request, Told]:
        self.asked += 1
        number, now_ns = self.asked, self.client.world.now_ns
        key = f"k{self.random.randrange(KEYS)}"
        if self.random.random() < 0.3:
            return request(Op.GET, key), partial(self._read, number, key, now_ns)
        op = self.random.choice(WRITES)
        value = None if op is Op.DELETE else f"{self.client.name}.{number}"
        write = Write(key, value, now_ns)
        self.writes.append(write)
        return request(op, key, value or ""), partial(self._wrote, number, op, write)

    def _read(self, number: int, key: str, start: int, outcome: Outcome) -> None:
        self.told[number] += 1
        if outcome.status is Status.OK:
            value = outcome.value.decode() if isinstance(outcome.value, bytes) else None
            self.reads.append(Read(key, value, start, self.client.world.now_ns))

    def _wrote(self, number: int, op: Op, write: Write, outcome: Outcome) -> None:
        self.told[number] += 1
        write.end = self.client.world.now_ns
        idle = (op is Op.PUT_IF_ABSENT and outcome.value is not None) or outcome.value is False
        if outcome.status is Status.OK:
            # What an earlier try has written may have been read before it was lost with its primary.
            doubtful = outcome.detail.startswith(REPEATED)
            write.outcome = ("unknown" if doubtful else "refused") if idle else "ok"
        else:
            write.outcome = "unknown" if outcome.status is Status.UNKNOWN else "refused"


class Scene:
    """One seed."""

    def __init__(
        self,
        seed: int,
        kinds: tuple[type[Client], ...] = (HazelcastClient, OwnClient),
        *,
        acks: str = "owner",
        manners: Manners | None = None,
        hosts: int = 4,
        power_cuts: int = 0,
    ) -> None:
        self.world = World(seed, None)
        base = simulated_settings(1, PARTITIONS, journal="sync" if power_cuts else "off")
        settings = msgspec.structs.replace(
            base, replication=msgspec.structs.replace(base.replication, backup_acks=acks)
        )
        self.cluster = Cluster(self.world, settings, hosts + 1)
        self.doors = Doors(self.world, self.cluster)
        draw = random.Random(f"{seed}/callers")
        self.callers = [
            Caller(
                kind(
                    f"{kind.KIND}{n}",
                    self.world,
                    self.doors,
                    random.Random(f"{seed}/{kind.KIND}{n}"),
                    manners,
                ),
                random.Random(f"{seed}/caller{kind.KIND}{n}"),
            )
            for kind in kinds
            for n in range(2)
        ]
        self.cluster.start(0, bootstrap=True)
        for index in range(1, hosts):
            self.world.after(draw.randint(0, 2 * SECOND), partial(self.cluster.start, index))
        self.seed = seed
        self.power_cuts = power_cuts

    def play(self, seconds: int = 15) -> None:
        """With faults, and then without."""
        world = self.world
        for caller in self.callers:
            caller.start()
        faults = Faults(self.seed, world, self.cluster, seconds * SECOND, power_cuts=self.power_cuts)
        faults.start()
        world.run_until(seconds * SECOND)
        faults.end()
        for caller in self.callers:
            caller.client.calm = True
        world.run_until(
            world.now_ns + (60 if self.power_cuts else 8) * SECOND, stop=lambda: not faults.power_cuts_due
        )
        world.run_until(world.now_ns + 8 * SECOND)
        for caller in self.callers:
            caller.running = False
        world.run_until(world.now_ns + 180 * SECOND, stop=self._over)
        world.run_until(world.now_ns + 2 * SECOND)

    def _over(self) -> bool:
        return self.cluster.settled() and not any(caller.client.waiting for caller in self.callers)

    def problems(self) -> list[str]:
        """What is wrong with what the callers were told."""
        found = list(self.world.failures)
        for caller in self.callers:
            wrong = [n for n in range(1, caller.asked + 1) if caller.told[n] != 1]
            if wrong:
                found.append(f"{caller.client.name}: of {wrong} it was not told once")
        if found:
            return found
        if not self._over():
            return ["not at rest"]
        final: dict[str, str | None] = {}
        client = next(caller.client for caller in self.callers)

        def told(key: str, outcome: Outcome) -> None:
            if outcome.status is Status.OK:
                final[key] = outcome.value.decode() if isinstance(outcome.value, bytes) else None

        keys = sorted({write.key for caller in self.callers for write in caller.writes})
        client.ask([(request(Op.GET, key), partial(told, key)) for key in keys])
        self.world.run_until(self.world.now_ns + 20 * SECOND, stop=lambda: not client.waiting)
        if len(final) != len(keys):
            return ["the final reads were not answered"]
        writes = [write for caller in self.callers for write in caller.writes]
        reads = [read for caller in self.callers for read in caller.reads]
        return judge_final(writes, final) + judge_reads(writes, reads)

    def counts(self) -> Counter[str]:
        """Of all clients, and of the doors."""
        return sum((caller.client.counts for caller in self.callers), Counter(self.doors.counts))
