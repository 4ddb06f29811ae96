"""What simulated clients do: write unique values, some for a while only, read, remove, clear; through requests and
through the data lane, one by one and in bursts; and remember what they were told.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

from holdfast.check.durability import Read, Touch, Write
from holdfast.config import Settings
from holdfast.core.machine import MILLISECOND, SECOND
from holdfast.core.placement.key import partition_of
from holdfast.core.store.operations import DEFAULT_TTL, EntryEvent, Op, Outcome, Request, Status, Value
from holdfast.sim.cluster import Cluster
from holdfast.sim.marks import ANSWER
from holdfast.sim.world import Process, World

MAP = "ledger"
DEEP = "deep"
"""A map with one backup more than the others, in the runs that have it: every other key lives there."""
LOOSE = "loose"
"""A map with async backups only, in the runs that have it."""
MOST_KEYS = 20
TTLS_MS = (200, 1000, 4000)
LONG_TTL_MS = 3_600_000
"""Of every third key, in the place of the longest of these: no run ends it, so it must be there at the end."""
BURST_KEYS = 4
"""Bursts write to few keys, so that some of them write one twice."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What the clients of one run are like. Shares are of all operations."""

    keys: int
    think_ns: int
    """How long a client rests between operations, at the most."""
    patience_ns: int
    """After how long it gives up: what it asked for is unknown to it."""
    bursts: float
    burst_writes: int
    ttl: float
    """The share of writes with a time to live."""
    lane: float
    """How often a client that has found a partition's primary writes through the data lane."""
    clears: float

    @classmethod
    def drawn(cls, draw: random.Random) -> Habits:
        """Habits of one client of one run."""
        bursty = draw.random() < 0.15
        return cls(
            keys=draw.choice([2, 8, MOST_KEYS]),
            think_ns=draw.choice([15, 30, 60]) * MILLISECOND,
            patience_ns=draw.choice([2, 5, 20, 75]) * SECOND,
            bursts=0.5 if bursty else 0.15,
            burst_writes=draw.choice([20, 40]) if bursty else 8,
            ttl=draw.choice([0.0, 0.0, 0.1, 0.5]),
            lane=draw.choice([0.0, 0.5, 1.0]),
            clears=draw.choice([0.0, 0.0, 0.005]),
        )


def map_of(key: str, settings: Settings) -> str:
    """The map in which a key of the judged workload lives."""
    return DEEP if DEEP in settings.maps and int(key[1:]) % 2 else MAP


def universe(settings: Settings) -> dict[int, list[str]]:
    """Every key that is ever written, by partition: those of all clients, and one at least for each partition."""
    keys: dict[int, list[str]] = {partition: [] for partition in range(settings.partitions.count)}
    for number in count():
        key = f"k{number}"
        here = keys[partition_of(wire_key(key), 0, settings.partitions.count)]
        if number < MOST_KEYS or not here:
            here.append(key)
        elif all(keys.values()):
            break
    return keys


def wire_key(key: str) -> bytes:
    """The key as a client would send it: a serialised string."""
    text = key.encode()
    return b"\xff\xff\xff\xf5" + len(text).to_bytes(4, "big") + text


class Client:
    """One client: one operation, or one burst, at a time, to whichever member it likes."""

    def __init__(self, name: str, world: World, cluster: Cluster, habits: Habits) -> None:
        self.name = name
        self.world = world
        self.cluster = cluster
        self.habits = habits
        self.keys = [f"k{index}" for index in range(habits.keys)]
        self.random = random.Random(f"{world.random.random()}/{name}")
        self.writes: list[Write] = []
        self.touches: list[Touch] = []
        self.reads: list[Read] = []
        self.running = True
        self.waiting = False
        self._count = 0
        self._turn = 0

    def start(self) -> None:
        """Begin."""
        self.world.after(self.random.randint(0, self.habits.think_ns), self._next)

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
        if self.random.random() < self.habits.bursts:
            self._burst(process, self.keys[:BURST_KEYS])
        elif LOOSE in self.cluster.settings.maps and self.random.random() < 0.2:
            self._loose(process, key)
        elif self.random.random() < self.habits.clears:
            self._clear(process)
        elif dice < 0.25:
            self._read(process, key)
        elif dice < 0.70:
            self._write(process, self.random.choice([Op.SET, Op.PUT]), key)
        elif dice < 0.80:
            self._write(process, Op.DELETE, key)
        elif dice < 0.95 or not self.habits.ttl:
            self._write(process, Op.PUT_IF_ABSENT, key)
        else:
            self._touch(process, key)

    # -- what is asked for

    def _partition(self, key: str) -> int:
        return partition_of(wire_key(key), 0, self.cluster.settings.partitions.count)

    def _request(self, op: Op, key: str, value: str | None = None, ttl_ms: int = DEFAULT_TTL) -> Request:
        name = map_of(key, self.cluster.settings)
        raw = value.encode() if value else b""
        return Request(op, name, [self._partition(key)], wire_key(key), raw, ttl_ms=ttl_ms)

    def _value(self) -> str:
        self._count += 1
        return f"{self.name}.{self._count}"

    def _ttl_ms(self, key: str) -> int:
        """A time to live for this key."""
        ttl_ms = self.random.choice(TTLS_MS)
        return LONG_TTL_MS if ttl_ms == max(TTLS_MS) and int(key[1:]) % 3 == 0 else ttl_ms

    def _new_write(self, op: Op, key: str) -> tuple[Write, Request]:
        """A write, noted before it is sent."""
        value = None if op is Op.DELETE else self._value()
        write = Write(key, value, self.world.now_ns)
        ttl_ms = DEFAULT_TTL
        if value is not None and self.random.random() < self.habits.ttl:
            ttl_ms = self._ttl_ms(key)
            write.ttl = ttl_ms * MILLISECOND
        self.writes.append(write)
        return write, self._request(op, key, value, ttl_ms)

    def _write(self, process: Process, op: Op, key: str) -> None:
        write, request = self._new_write(op, key)

        def told(outcome: Outcome) -> None:
            write.end = self.world.now_ns
            # A put-if-absent that found a value, and a removal of nothing, have written nothing.
            idle = (op is Op.PUT_IF_ABSENT and outcome.value is not None) or outcome.value is False
            write.outcome = "refused" if idle and outcome.status is Status.OK else _word(outcome)

        self._call(process, request, told)

    def _touch(self, process: Process, key: str) -> None:
        """Give a key a new time to live."""
        ttl_ms = self._ttl_ms(key)
        touch = Touch(key, ttl_ms * MILLISECOND, self.world.now_ns)
        self.touches.append(touch)

        def told(outcome: Outcome) -> None:
            touch.end = self.world.now_ns
            touch.outcome = "refused" if outcome.value is False else _word(outcome)

        self._call(process, self._request(Op.SET_TTL, key, ttl_ms=ttl_ms), told)

    def _clear(self, process: Process) -> None:
        """Clear a map: a removal of each of its keys, whoever writes it."""
        settings = self.cluster.settings
        name = map_of(self.random.choice(self.keys), settings)
        keys = [key for here in universe(settings).values() for key in here]
        removals = [Write(key, None, self.world.now_ns) for key in keys if map_of(key, settings) == name]
        self.writes += removals

        def told(outcome: Outcome) -> None:
            for removal in removals:
                removal.end = self.world.now_ns
                removal.outcome = _word(outcome)

        self._call(process, Request(Op.CLEAR, name, list(range(settings.partitions.count))), told)

    def _read(self, process: Process, key: str) -> None:
        start = self.world.now_ns

        def told(outcome: Outcome) -> None:
            if outcome.status is Status.OK:
                value = outcome.value.decode() if isinstance(outcome.value, bytes) else None
                self.reads.append(Read(key, value, start, self.world.now_ns))

        self._call(process, self._request(Op.GET, key), told)

    def _loose(self, process: Process, key: str) -> None:
        """A write with async backups only: what may be lost of it is not judged, but all copies must end alike."""
        request = Request(Op.SET, LOOSE, [self._partition(key)], wire_key(key), self._value().encode())
        self._call(process, request, lambda outcome: None)

    def _call(self, process: Process, request: Request, told: Callable[[Outcome], None]) -> None:
        """Send one request."""

        def act(done: Callable[[Outcome], None]) -> None:
            if self.random.random() < self.habits.lane:
                self._session(process, [(request, done)])
            else:
                process.driver.execute(request, done)

        self._converse(process, 1, lambda answer: act(partial(answer, told)))

    def surge(self, process: Process, partition: int) -> None:
        """At once, writes to one partition; whatever is still waited for becomes unknown."""
        self._burst(process, universe(self.cluster.settings)[partition], at_once=True)

    def _burst(self, process: Process, keys: list[str], *, at_once: bool = False) -> None:
        """Several writes that reach the member in one read buffer, some of the same key."""
        writes = []
        for _ in range(self.random.randint(2, self.habits.burst_writes)):
            op = Op.SET if self.random.random() < 0.9 else Op.DELETE
            writes.append((op, *self._new_write(op, self.random.choice(keys))))

        def told(op: Op, write: Write, outcome: Outcome) -> None:
            write.end = self.world.now_ns
            write.outcome = "refused" if outcome.value is False and op is Op.DELETE else _word(outcome)

        def act(answer: Callable[[Callable[[Outcome], None], Outcome], None]) -> None:
            self._session(
                process,
                [(request, partial(answer, partial(told, op, write))) for op, write, request in writes],
            )

        self._converse(process, len(writes), act, at_once=at_once)

    # -- connections

    def _session(self, process: Process, requests: list[tuple[Request, Callable[[Outcome], None]]]) -> None:
        """One read buffer, as a session works on it: entries of partitions that this member serves go through the
        data lane, the rest takes the general way; all that it causes leaves at the end of the turn.
        """
        driver = process.driver
        lane = driver.member.lane
        driver.enter()
        unsealed: list[tuple[Callable[[Outcome], None], Value]] = []

        def seal() -> None:
            answers = list(unsealed)
            unsealed.clear()

            def settle(known: bool) -> None:
                for done, value in answers:
                    done(Outcome(Status.OK, value) if known else Outcome(Status.UNKNOWN))

            lane.seal(settle)

        for request, done in requests:
            copy = lane.serving[request.partitions[0]]
            direct = copy is not None and self.random.random() < self.habits.lane
            if copy is not None and direct and request.op is Op.SET:
                lane.set(copy, request.map, request.key, request.value, request.ttl_ms, DEFAULT_TTL, 0)
                unsealed.append((done, None))
            elif copy is not None and direct and request.op is Op.DELETE:
                unsealed.append((done, lane.remove(copy, request.map, request.key) is not None))
            elif copy is not None and direct and request.op is Op.GET:
                # This may find that the entry has ended and take it out, so it is answered like a write.
                unsealed.append((done, lane.read(copy, request.map, request.key)))
                if lane.confirms_reads and lane.confirmed(request.map):
                    lane.rest_on(copy, request.map)
            else:
                seal()
                driver.execute(request, done)
        seal()
        driver.leave_lane()

    def _converse(
        self,
        process: Process,
        missing: int,
        act: Callable[[Callable[[Callable[[Outcome], None], Outcome], None]], None],
        *,
        at_once: bool = False,
    ) -> None:
        """Send over a client's connection, which is as slow as the network but does not lose, and wait for so many
        answers. `act` is done on the member; it answers through the function that it is given.
        """
        self._turn += 1
        turn = self._turn
        self.waiting = True
        low, high = self.world.weather.delay_ns

        def answer(told: Callable[[Outcome], None], outcome: Outcome) -> None:
            if not process.dead:
                self.world.after(self.random.randint(low, high), partial(hear, told, outcome))

        def hear(told: Callable[[Outcome], None], outcome: Outcome) -> None:
            nonlocal missing
            if turn != self._turn or not self.waiting:
                return
            self.world.trace(self.name, repr((outcome.status, outcome.value)).encode())
            self.world.marks.hit(ANSWER + outcome.status.name)
            told(outcome)
            missing -= 1
            if not missing:
                finish()

        def finish() -> None:
            if turn != self._turn or not self.waiting:
                return
            self.waiting = False
            think_ns = self.habits.think_ns
            self.world.after(self.random.randint(think_ns // 2, think_ns), self._next)

        def arrive() -> None:
            process.whenever_awake(lambda: process.step(lambda: act(answer)))

        self.world.after(0 if at_once else self.random.randint(low, high), arrive)
        # A client gives up at last: what it asked for is unknown to it.
        self.world.after(self.habits.patience_ns, finish)


class Ear:
    """A session that listens to all changes of a map, now on this member and then on that, or forgets to stop."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.random = random.Random(f"{world.random.random()}/ear")
        self.running = True
        self.heard = 0

    def start(self) -> None:
        """Begin."""
        self.world.after(self.random.randint(SECOND, 10 * SECOND), self._listen)

    def _listen(self) -> None:
        if not self.running:
            return
        living = self.cluster.living()
        if living:
            process = self.random.choice(living)
            process.whenever_awake(lambda: process.step(lambda: self._on(process)))
        self.world.after(self.random.randint(2 * SECOND, 10 * SECOND), self._listen)

    def _on(self, process: Process) -> None:
        driver = process.driver
        driver.enter()
        end = driver.member.listeners.add(MAP, None, self._hear, local_only=False)
        driver.leave_lane()

        def off() -> None:
            driver.enter()
            end()
            driver.leave_lane()

        if self.random.random() < 0.8:
            length_ns = self.random.randint(SECOND, 8 * SECOND)
            self.world.after(length_ns, lambda: process.whenever_awake(lambda: process.step(off)))

    def _hear(self, event: EntryEvent) -> None:
        self.heard += 1


def _word(outcome: Outcome) -> str:
    """What an answer says of a write."""
    if outcome.status is Status.OK:
        return "ok"
    return "unknown" if outcome.status is Status.UNKNOWN else "refused"
