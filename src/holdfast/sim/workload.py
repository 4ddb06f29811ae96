"""What simulated clients do: write unique values, read, remove, compare and set; and remember what they were told."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from holdfast.check.durability import Read, Write
from holdfast.config import Settings
from holdfast.core.machine import MILLISECOND, SECOND
from holdfast.core.placement.key import partition_of
from holdfast.core.store.operations import Op, Outcome, Request, Status
from holdfast.sim.cluster import Cluster
from holdfast.sim.world import Process, World

MAP = "ledger"
DEEP = "deep"
"""A map with one backup more than the others, in the runs that have it: every other key lives there."""
LOOSE = "loose"
"""A map with async backups only, in the runs that have it."""
PATIENCE_NS = 20 * SECOND


def map_of(key: str, settings: Settings) -> str:
    """The map in which a key of the judged workload lives."""
    return DEEP if DEEP in settings.maps and int(key[1:]) % 2 else MAP


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
        if self.random.random() < 0.15:
            self._burst(process)
            return
        if LOOSE in self.cluster.settings.maps and self.random.random() < 0.2:
            self._loose(process, key)
            return
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
        return Request(
            op, map_of(key, self.cluster.settings), [partition], raw, value.encode() if value else b""
        )

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

    def _loose(self, process: Process, key: str) -> None:
        """A write with async backups only: what may be lost of it is not judged, but all copies must end alike."""
        raw = wire_key(key)
        partition = partition_of(raw, 0, self.cluster.settings.partitions.count)
        self._count += 1
        request = Request(Op.SET, LOOSE, [partition], raw, f"{self.name}.{self._count}".encode())
        self._call(process, request, lambda outcome: None)

    def _burst(self, process: Process) -> None:
        """Several writes that reach the member in one read buffer, some of the same key."""
        self._turn += 1
        turn = self._turn
        self.waiting = True
        writes: list[tuple[Write, Request]] = []
        for _ in range(self.random.randint(2, 8)):
            self._count += 1
            key, value = self.random.choice(self.keys[:4]), f"{self.name}.{self._count}"
            write = Write(key, value, self.world.now_ns)
            self.writes.append(write)
            writes.append((write, self._request(Op.SET, key, value)))
        missing = len(writes)
        low, high = self.world.weather.delay_ns

        def arrive() -> None:
            process.whenever_awake(lambda: process.step(run))

        def run() -> None:
            # Through one step of the driver, as a session does: every effect of the burst is shuffled together.
            driver = process.driver
            driver.enter()
            for write, request in writes:
                driver.member.router.execute(request, partial(done, write))
            driver.leave_lane()

        def done(write: Write, outcome: Outcome) -> None:
            if not process.dead:
                self.world.after(self.random.randint(low, high), lambda: told(write, outcome))

        def told(write: Write, outcome: Outcome) -> None:
            nonlocal missing
            if turn != self._turn or not self.waiting:
                return
            write.end = self.world.now_ns
            status = outcome.status
            write.outcome = (
                "ok" if status is Status.OK else "unknown" if status is Status.UNKNOWN else "refused"
            )
            missing -= 1
            if not missing:
                finish()

        def finish() -> None:
            if turn != self._turn or not self.waiting:
                return
            self.waiting = False
            self.world.after(self.random.randint(self.think_ns // 2, self.think_ns), self._next)

        self.world.after(self.random.randint(low, high), arrive)
        self.world.after(PATIENCE_NS, finish)

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
