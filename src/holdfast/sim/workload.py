"""What simulated clients do: write unique values, read, remove, compare and set; and remember what they were told."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.check.durability import Read, Write
from holdfast.core.machine import MILLISECOND, SECOND
from holdfast.core.placement.key import partition_of
from holdfast.core.store.operations import Op, Outcome, Request, Status
from holdfast.sim.cluster import Cluster
from holdfast.sim.world import Process, World

MAP = "ledger"
PATIENCE_NS = 20 * SECOND


def wire_key(key: str) -> bytes:
    """The key as a client would send it: a serialised string."""
    text = key.encode()
    return b"\xff\xff\xff\xf5" + len(text).to_bytes(4, "big") + text


class Client:
    """One client: one operation at a time, to whichever member it likes."""

    def __init__(self, name: str, world: World, cluster: Cluster, keys: int, think_ns: int) -> None:
        self.name = name
        self.world = world
        self.cluster = cluster
        self.keys = [f"k{index}" for index in range(keys)]
        self.think_ns = think_ns
        self.random = random.Random(f"{world.random.random()}/{name}")
        self.writes: list[Write] = []
        self.reads: list[Read] = []
        self.running = True
        self._count = 0
        self._turn = 0
        self.waiting = False

    def start(self) -> None:
        """Begin."""
        self.world.after(self.random.randint(0, self.think_ns), self._next)

    def _next(self) -> None:
        if not self.running:
            return
        living = self.cluster.living()
        if not living:
            self.world.after(SECOND, self._next)
            return
        process = self.random.choice(living)
        key = self.random.choice(self.keys)
        dice = self.random.random()
        if dice < 0.25:
            self._read(process, key)
            return
        self._count += 1
        value = f"{self.name}.{self._count}"
        if dice < 0.75:
            op = self.random.choice([Op.SET, Op.PUT])
            self._write(process, op, key, value)
        elif dice < 0.85:
            self._write(process, Op.DELETE, key, None)
        else:
            self._write(process, Op.PUT_IF_ABSENT, key, value)

    def _request(self, op: Op, key: str, value: str | None) -> Request:
        raw = wire_key(key)
        partition = partition_of(raw, 0, self.cluster.settings.partitions.count)
        return Request(op, MAP, [partition], raw, value.encode() if value else b"")

    def _write(self, process: Process, op: Op, key: str, value: str | None) -> None:
        write = Write(key, value, self.world.now_ns)

        def told(outcome: Outcome) -> None:
            write.end = self.world.now_ns
            if outcome.status is Status.OK:
                # A put-if-absent that found a value, and a removal of nothing, have written nothing.
                wrote = not (op is Op.PUT_IF_ABSENT and outcome.value is not None)
                wrote = wrote and not (op is Op.DELETE and outcome.value is False)
                write.outcome = "ok" if wrote else "refused"
            else:
                write.outcome = "unknown" if outcome.status is Status.UNKNOWN else "refused"

        self.writes.append(write)
        self._call(process, self._request(op, key, value), told)

    def _read(self, process: Process, key: str) -> None:
        start = self.world.now_ns

        def told(outcome: Outcome) -> None:
            if outcome.status is Status.OK:
                value = outcome.value.decode() if isinstance(outcome.value, bytes) else None
                self.reads.append(Read(key, value, start, self.world.now_ns))

        self._call(process, self._request(Op.GET, key, None), told)

    def _call(self, process: Process, request: Request, told: Callable[[Outcome], None]) -> None:
        """Send a request over a client's connection, which is as slow as the network but does not lose."""
        self._turn += 1
        turn = self._turn
        self.waiting = True
        low, high = self.world.weather.delay_ns

        def arrive() -> None:
            def run() -> None:
                process.driver.execute(request, done)

            process.whenever_awake(lambda: process.step(run))

        def done(outcome: Outcome) -> None:
            if not process.dead:
                self.world.after(self.random.randint(low, high), lambda: finish(outcome))

        def finish(outcome: Outcome | None) -> None:
            if turn != self._turn or not self.waiting:
                return
            self.waiting = False
            if outcome is not None:
                self.world.trace(self.name, repr((outcome.status, outcome.value)).encode())
                told(outcome)
            self.world.after(self.random.randint(self.think_ns // 2, self.think_ns), self._next)

        self.world.after(self.random.randint(low, high), arrive)
        # A client gives up at last: what it asked for is unknown to it.
        self.world.after(PATIENCE_NS, lambda: finish(None))


def think_time(random_: random.Random) -> int:
    """How long the clients of a run rest between operations, at the most."""
    return random_.choice([10, 30, 60]) * MILLISECOND
