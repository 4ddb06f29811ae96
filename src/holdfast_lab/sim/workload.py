"""Workload of simulated clients: every operation of a map, on thousands of keys, singly and in bursts,
through requests and the data lane, recorded for the judges.

Values are unique. Most keys are written only a few times. If the last write of a key was not seen yet, a
client mostly chooses an operation whose answer shows it, so that a lost write is noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from holdfast.config import Settings
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import DEFAULT_TTL, Op, Outcome, Request, Status, Value
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone, ZoneChanges, ZoneRequests, ZoneWrites
from holdfast.engine.driver import Driver
from holdfast_lab.sim.calls import Asked, Knowledge, asked, wire_key, wire_value
from holdfast_lab.sim.clients import client as clients
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.marks import ANSWER
from holdfast_lab.sim.shape import KEPT_SEEDS
from holdfast_lab.sim.world import Process, World
from holdfast_lab.sim.zone_runs import ZONED

MAP = "ledger"
DEEP = "deep"
"""A map with one more backup, in runs that have it: every other key is there."""
LOOSE = "loose"
SWEPT = "swept"
SURGE_KEYS = 12
SIDE_BY_SIDE = 4
"""Most calls of one burst on one key: the judge's possible orders grow fast."""
HOT_KEYS = 20
SWEPT_KEYS = 24
ZONED_KEYS = 40
ZONED_SHARE = 0.4
TIMED_KEYS = 60
TTLS_MS = (200, 1000, 4000)
LONG_TTL_MS = 3_600_000
"""Used for every third key in place of the longest one: no run ends it, so the entry must exist at the end."""
IDLE_MS = (500, 3000)
ZONED_IDLE_KEYS = 4
ZONED_IDLE_SHARE = 0.15
"""Share of such operations on the map in a zone, if the client uses idle times."""
RIVALS = 0.25
TOGETHER = 4

ANY: dict[Op, int] = {
    Op.SET: 30,
    Op.PUT: 30,
    Op.PUT_IF_ABSENT: 12,
    Op.REPLACE: 6,
    Op.REPLACE_IF_SAME: 10,
    Op.REMOVE: 6,
    Op.DELETE: 8,
    Op.REMOVE_IF_SAME: 5,
    Op.EVICT: 2,
    Op.TRY_PUT: 2,
    Op.TRY_REMOVE: 2,
    Op.GET: 12,
    Op.CONTAINS_KEY: 3,
    Op.ENTRY_VIEW: 3,
    Op.GET_ALL: 4,
    Op.PUT_ALL: 6,
}
SHOWING: dict[Op, int] = {
    Op.PUT: 30,
    Op.PUT_IF_ABSENT: 20,
    Op.REPLACE: 15,
    Op.REPLACE_IF_SAME: 10,
    Op.REMOVE: 12,
    Op.REMOVE_IF_SAME: 3,
    Op.GET: 20,
    Op.ENTRY_VIEW: 4,
    Op.GET_ALL: 4,
    Op.CONTAINS_KEY: 2,
}
SEVERAL = frozenset({Op.GET_ALL, Op.PUT_ALL})
READING = frozenset({Op.GET, Op.ENTRY_VIEW, Op.GET_ALL, Op.CONTAINS_KEY})
STORING = frozenset(
    {Op.SET, Op.PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REPLACE_IF_SAME, Op.TRY_PUT, Op.PUT_ALL}
)
TIMED = frozenset({Op.SET, Op.PUT, Op.PUT_IF_ABSENT, Op.SET_TTL})
COMPARING = frozenset({Op.REPLACE_IF_SAME, Op.REMOVE_IF_SAME})


@dataclass(frozen=True, slots=True)
class Habits:
    """Behaviour of one client. Shares are of all operations."""

    hot: float
    think_ns: int
    patience_ns: int
    bursts: float
    burst_writes: int
    ttl: float
    idle: float
    lane: float
    """How often a client at a partition's primary writes through the data lane."""
    sweeps: float
    large: float
    large_bytes: int

    @classmethod
    def drawn(cls, draw: random.Random, large_bytes: int = 0) -> Habits:
        bursty = draw.random() < 0.15
        return cls(
            hot=draw.choice([0.02, 0.1, 0.3]),
            think_ns=draw.choice([15, 30, 60]) * MILLISECOND,
            patience_ns=draw.choice([2, 5, 20, 75]) * SECOND,
            bursts=0.4 if bursty else 0.12,
            burst_writes=draw.choice([20, 40]) if bursty else 8,
            ttl=draw.choice([0.0, 0.05, 0.3]),
            idle=draw.choice([0.0, 0.03]),
            lane=draw.choice([0.0, 0.5, 1.0]),
            sweeps=draw.choice([0.0, 0.02, 0.05]),
            large=0.004 if large_bytes else 0.0,
            large_bytes=large_bytes,
        )


def is_idle(key: str) -> bool:
    """Whether the key's entries have a maximum idle time."""
    return key.startswith(("i", "zi"))


def map_of(key: str, settings: Settings) -> str:
    if key[0] == "s":
        return SWEPT
    if key[0] == "z":
        return ZONED
    return DEEP if DEEP in settings.maps and int(key[1:]) % 2 else MAP


class Keys:
    """Keys of a run: `k…` in all partitions; `t…` with a time to live; `i…` with a maximum idle time; `s…` of
    the swept map; `z…` of the map in a zone, `zi…` there with a maximum idle time.
    """

    def __init__(self, settings: Settings, most: int) -> None:
        self._partitions = settings.partitions.count
        self.cold: list[str] = []
        self.by_partition: list[list[str]] = [[] for _ in range(self._partitions)]
        missing = self._partitions * SURGE_KEYS
        for number in count():
            here = self.by_partition[self.partition(key := f"k{number}")]
            if number < most or len(here) < SURGE_KEYS:
                missing -= len(here) < SURGE_KEYS
                here.append(key)
                self.cold.append(key)
            elif not missing:
                break
        self.hot = self.cold[:HOT_KEYS]
        self.timed = [f"t{number}" for number in range(TIMED_KEYS)]
        self.idle = [f"i{number}" for number in range(HOT_KEYS)]
        self.swept = [f"s{number}" for number in range(SWEPT_KEYS)]
        self.zoned: list[str] = []
        if ZONED in settings.maps:
            self.zoned = [f"z{number}" for number in range(ZONED_KEYS)]
        self.zoned_idle = [f"zi{number}" for number in range(ZONED_IDLE_KEYS)] if self.zoned else []
        self.zoned_by_partition: dict[int, list[str]] = {}
        for key in self.zoned:
            self.zoned_by_partition.setdefault(self.partition(key), []).append(key)

    def partition(self, key: str) -> int:
        return partition_of(wire_key(key), 0, self._partitions)


class Client:
    def __init__(
        self,
        name: str,
        world: World,
        cluster: Cluster,
        habits: Habits,
        keys: Keys,
        knowledge: Knowledge,
        wire: clients.Client | None = None,
    ) -> None:
        """`wire`: uses a protocol over connections; without it members are called directly."""
        self.name = name
        self.world = world
        self.cluster = cluster
        self.habits = habits
        self.keys = keys
        self.knowledge = knowledge
        self.wire = wire
        self.random = random.Random(f"{world.random.random()}/{name}")
        self._idle_random = random.Random(f"{world.seed}/{name}/zoned idle")
        self._uses_idle = world.seed >= KEPT_SEEDS and not cluster.mixed
        """The feature level may be too low for idle times in zones at first."""
        self.running = True
        self.waiting = False
        self._count = 0
        self._turn = 0
        self._last = keys.cold[0]

    def start(self) -> None:
        if self.wire is not None:
            self.wire.start()
        self.world.after(self.random.randint(0, self.habits.think_ns), self._next)

    def stop(self) -> None:
        self.running = False
        if self.wire is not None:
            self.wire.calm = True

    def hang_up(self) -> None:
        if self.wire is not None:
            self.wire.close()

    def _next(self) -> None:
        if not self.running:
            return
        living = self.cluster.living()
        if not living:
            self.world.after(SECOND, self._next)
            return
        process = self.random.choice(living)
        zoned = bool(self.keys.zoned) and self.random.random() < ZONED_SHARE
        if self.random.random() < self.habits.bursts:
            home = self.random.choice(
                list(self.keys.zoned_by_partition.values()) if zoned else self.keys.by_partition
            )
            self._send(process, self._burst(self.random.sample(home, min(len(home), TOGETHER))))
        elif zoned:
            key = self.random.choice(self.keys.zoned)
            if self.habits.idle and self._uses_idle and self._idle_random.random() < ZONED_IDLE_SHARE:
                self.world.marks.hit("zone: maximum idle time")
                key = self._idle_random.choice(self.keys.zoned_idle)
            self._send(process, [self._one(key)])
        elif LOOSE in self.cluster.settings.maps and self.random.random() < 0.1:
            self._loose(process)
        elif self.random.random() < self.habits.sweeps / 4:
            self._send(process, [self._sweep()])
        else:
            # Read soon what may expire soon.
            key = self._last if self._last[0] in "ti" and self.random.random() < 0.7 else self._key()
            self._last = key
            self._send(process, [self._one(key)])

    # -- requests

    def _key(self) -> str:
        dice, habits = self.random.random(), self.habits
        for share, keys in (
            (habits.hot, self.keys.hot),
            (habits.ttl, self.keys.timed),
            (habits.idle, self.keys.idle),
            (habits.sweeps, self.keys.swept),
        ):
            if dice < share:
                return self.random.choice(keys)
            dice -= share
        return self.random.choice(self.keys.cold)

    def _one(self, key: str) -> Asked:
        """An operation on this key; one that shows its value if that was not seen yet."""
        unseen = key in self.knowledge.unseen
        if key[0] == "t" and self.random.random() < 0.15:
            return self._ask(Op.SET_TTL, [key])
        weights = SHOWING if unseen else ANY
        op = self.random.choices([*weights], [*weights.values()])[0]
        keys = [key]
        if op in SEVERAL and key[0] in "kz" and not is_idle(key):
            partition = self.keys.partition(key)
            here = (
                self.keys.by_partition[partition]
                if key[0] == "k"
                else self.keys.zoned_by_partition[partition]
            )
            alike = [
                other
                for other in here
                if map_of(other, self.cluster.settings) == map_of(key, self.cluster.settings)
                and (op is Op.GET_ALL or other not in self.knowledge.unseen)
            ]
            keys = list(dict.fromkeys([key, *self.random.choices(alike or [key], k=TOGETHER - 1)]))
        return self._ask(op, keys)

    def _ask(self, op: Op, keys: list[str]) -> Asked:
        key, ttl_ms, idle_ms = keys[0], DEFAULT_TTL, DEFAULT_TTL
        names = [self._value() for _ in keys] if op in STORING else []
        if key[0] == "t" and op in TIMED:
            ttl_ms = self._ttl_ms(key)
        if is_idle(key) and op in TIMED and op is not Op.SET_TTL:
            idle_ms = self.random.choice(IDLE_MS)
        expected = None
        if op in COMPARING:
            known = self.knowledge.believed.get(key)
            expected = known if known is not None and self.random.random() < 0.9 else "never"
        several = [wire_key(one) for one in keys] if op in SEVERAL else []
        if op is Op.PUT_ALL:
            several = [
                part for one, name in zip(several, names, strict=True) for part in (one, wire_value(name))
            ]
        request = Request(
            op,
            map_of(key, self.cluster.settings),
            [self.keys.partition(key)],
            b"" if several else wire_key(key),
            wire_value(names[0]) if names and not several else b"",
            wire_value(expected) if expected is not None else b"",
            several,
            ttl_ms,
            idle_ms,
        )
        return asked(self.knowledge, request, keys, self.world.now_ns, self.name, names, expected)

    def _value(self) -> str:
        self._count += 1
        name = f"{self.name}.{self._count}"
        if self.habits.large and self.random.random() < self.habits.large:
            name += f"~{self.habits.large_bytes}"
        return name

    def _ttl_ms(self, key: str) -> int:
        ttl_ms = self.random.choice(TTLS_MS)
        return LONG_TTL_MS if ttl_ms == max(TTLS_MS) and int(key[1:]) % 3 == 0 else ttl_ms

    def _sweep(self) -> Asked:
        op = self.random.choice([Op.CLEAR, Op.EVICT_ALL, Op.ENTRIES, Op.ENTRIES, Op.ENTRIES])
        if op is Op.CLEAR and self._turn % 2:
            # Not drawn, so that other runs do not change.
            op = Op.DESTROY
        request = Request(op, SWEPT, list(range(self.cluster.settings.partitions.count)))
        return asked(self.knowledge, request, self.keys.swept, self.world.now_ns, self.name)

    def _burst(self, keys: Sequence[str]) -> list[Asked]:
        """Several requests that reach the member in one read buffer, some on the same key."""
        found: list[Asked] = []
        if keys[0] in self.knowledge.believed and self.random.random() < RIVALS:
            # Two compare with the same value: at most one may succeed.
            found += [self._ask(Op.REPLACE_IF_SAME, [keys[0]]) for _ in range(2)]
            keys = keys[1:] or keys
        most = min(self.habits.burst_writes, SIDE_BY_SIDE * len(keys))
        for key in self.random.sample(list(keys) * SIDE_BY_SIDE, self.random.randint(2, most)):
            if key in self.knowledge.unseen:
                op = self.random.choice([Op.PUT, Op.PUT, Op.PUT, Op.REMOVE])
            else:
                op = self.random.choice([Op.SET, Op.SET, Op.SET, Op.PUT, Op.DELETE])
            found.append(self._ask(op, [key]))
        return found

    def surge(self, process: Process, partition: int) -> None:
        self._send(process, self._burst(self.keys.by_partition[partition][:SURGE_KEYS]), at_once=True)

    def _loose(self, process: Process) -> None:
        """A write with async backups only: losses are not judged, but all copies must become equal."""
        key = self.random.choice(self.keys.hot)
        request = Request(Op.SET, LOOSE, [self.keys.partition(key)], wire_key(key), wire_value(self._value()))
        self._send(process, [Asked(request, [], [], self.knowledge)])

    # -- connections

    def _send(self, process: Process, deeds: list[Asked], *, at_once: bool = False) -> None:
        """Send over a connection, which is as slow as the network but loses nothing, and wait for the answers."""
        self._turn += 1
        turn, missing = self._turn, len(deeds)
        self.waiting = True
        low, high = self.world.weather.delay_ns

        def answer(deed: Asked, outcome: Outcome) -> None:
            if not process.dead:
                self.world.after(self.random.randint(low, high), partial(hear, deed, outcome))

        def hear(deed: Asked, outcome: Outcome) -> None:
            nonlocal missing
            if turn != self._turn or not self.waiting:
                return
            self.world.trace(self.name, repr((outcome.status, outcome.value)).encode())
            self.world.marks.hit(ANSWER + outcome.status.name)
            deed.told(outcome, self.world.now_ns)
            missing -= 1
            if not missing:
                finish()

        def finish() -> None:
            if turn != self._turn or not self.waiting:
                return
            self.waiting = False
            think_ns = self.habits.think_ns
            self.world.after(self.random.randint(think_ns // 2, think_ns), self._next)

        if self.wire is not None and all(deed.request.op in self.wire.OPS for deed in deeds):
            self.wire.ask([(deed.request, partial(hear, deed)) for deed in deeds])
            self.world.after(self.habits.patience_ns, finish)
            return

        def act() -> None:
            if len(deeds) == 1 and self.random.random() >= self.habits.lane:
                process.driver.execute(deeds[0].request, partial(answer, deeds[0]))
            else:
                self._session(process, [(deed.request, partial(answer, deed)) for deed in deeds])

        def arrive() -> None:
            process.whenever_awake(lambda: process.step(act))

        self.world.after(0 if at_once else self.random.randint(low, high), arrive)
        # After `patience_ns` the client gives up, with the outcome unknown.
        self.world.after(self.habits.patience_ns, finish)

    def _session(self, process: Process, requests: list[tuple[Request, Callable[[Outcome], None]]]) -> None:
        """Handle one read buffer like a session: entries of served partitions use the data lane, the rest
        takes the general way; all effects leave at the end of the turn.
        """
        driver = process.driver
        lane = driver.lane
        driver.enter()
        unsealed: list[tuple[Callable[[Outcome], None], Value]] = []
        zoned = _ZoneSession(driver)

        def seal() -> None:
            answers = list(unsealed)
            unsealed.clear()

            def settle(known: bool) -> None:
                for done, value in answers:
                    done(Outcome(Status.OK, value) if known else Outcome(Status.UNKNOWN))

            lane.close_batch(settle)

        for request, done in requests:
            if request.map == ZONED:
                if self.random.random() >= self.habits.lane or not zoned.take(request, done):
                    zoned.close()
                    if unsealed:
                        seal()
                    driver.execute(request, done)
                continue
            copy = lane.serving[request.partitions[0]]
            if copy is None or self.random.random() >= self.habits.lane:
                direct = False
            else:
                direct = True
                match request.op:
                    case Op.SET | Op.PUT:
                        old = lane.set(
                            copy,
                            request.map,
                            request.key,
                            request.value,
                            request.ttl_ms,
                            request.max_idle_ms,
                            0,
                        )
                        unsealed.append((done, old if request.op is Op.PUT else None))
                    case Op.REMOVE | Op.DELETE:
                        found = lane.remove(copy, request.map, request.key)
                        unsealed.append((done, found if request.op is Op.REMOVE else found is not None))
                    case Op.GET:
                        # This may find the entry expired and remove it, so it is answered like a write.
                        unsealed.append((done, lane.read(copy, request.map, request.key)))
                        if lane.confirms_reads and lane.confirmed(request.map):
                            lane.rest_on(copy, request.map)
                    case _:
                        direct = False
            if not direct:
                seal()
                driver.execute(request, done)
        seal()
        zoned.close()
        driver.leave_lane()


_PLAIN_WRITES = frozenset({Op.SET, Op.PUT, Op.REMOVE, Op.DELETE})
BATCHED = _PLAIN_WRITES | {
    Op.PUT_IF_ABSENT,
    Op.REPLACE,
    Op.REPLACE_IF_SAME,
    Op.REMOVE_IF_SAME,
    Op.SET_TTL,
    Op.EVICT,
    Op.TRY_PUT,
    Op.PUT_ALL,
}
"""Changes that sessions send to a zone in batches."""


def _changes(requests: Sequence[Request]) -> list[ZoneChanges]:
    """As a session forms them."""
    found: list[ZoneChanges] = []
    for request in requests:
        last = found[-1] if found else None
        if request.op not in _PLAIN_WRITES:
            if isinstance(last, ZoneRequests):
                last.requests.append(request)
            else:
                found.append(ZoneRequests([request]))
            continue
        value = request.value if request.op in (Op.SET, Op.PUT) else None
        write = (request.map, request.key, value, max(0, request.ttl_ms), 0)
        if isinstance(last, ZoneWrites):
            last.writes.append(write)
        else:
            found.append(ZoneWrites([write], request.partitions[0]))
    return found


class _ZoneSession:
    """The part of a read buffer for a zone's map."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._batch: ZoneBatch | None = None
        self._wrote: dict[int, list[tuple[Request, Callable[[Outcome], None]]]] = {}
        self._read: list[tuple[Request, Callable[[Outcome], None], Value]] = []

    def take(self, request: Request, done: Callable[[Outcome], None]) -> bool:
        entries, partition = self._driver.zone_entries(request.map), request.partitions[0]
        replica = entries.serving[partition] if entries is not None else None
        if entries is None or replica is None or request.max_idle_ms != DEFAULT_TTL:
            return False
        held = replica.state.copies[partition].maps.get(request.map)
        if request.op is Op.GET and held is not None and replica.must_log_use(held, request.key):
            return False
        if request.op is Op.GET:
            self._read.append((request, done, replica.look(partition, request.map, request.key)))
        elif request.op in BATCHED:
            self._wrote.setdefault(partition, []).append((request, done))
        else:
            return False
        if self._batch is None:
            self._batch = ZoneBatch(entries.zone)
        assert self._batch.zone == entries.zone, "the runs have one zone"
        if request.op is Op.GET and partition not in self._batch.reads:
            self._batch.reads.append(partition)
        return True

    def close(self) -> None:
        batch, wrote, read = self._batch, self._wrote, self._read
        if batch is None:
            return
        self._batch, self._wrote, self._read = None, {}, []
        batch.changes = [
            (partition, _changes([one for one, _ in changes])) for partition, changes in wrote.items()
        ]

        def told(result: ZoneBatchDone) -> None:
            for request, done, value in read:
                if result.unconfirmed is None:
                    done(Outcome(Status.OK, value))
                else:
                    self._driver.execute(request, done)
            lost, found = dict(result.failed), dict(result.answers)
            for place, changes in enumerate(wrote.values()):
                failed = lost.get(place)
                for at, (request, done) in enumerate(changes):
                    if failed is None:
                        value = found[place][at]
                        plain = {Op.SET: None, Op.DELETE: value is not None}
                        done(Outcome(Status.OK, plain.get(request.op, value)))
                    elif failed.status is Status.MOVED:
                        self._driver.execute(request, done)
                    else:
                        done(Outcome(Status.UNKNOWN, None, failed.detail))

        self._driver.zone_batch(batch, told)


class Auditor(Client):
    """Reads unseen values: all of them when the cluster is at rest, some in between."""

    AT_A_TIME = 40
    EVERY_NS = 250 * MILLISECOND

    def start(self) -> None:
        self._well = False
        self._due = 0
        self.world.after(SECOND, self._next)

    def _next(self) -> None:
        if not self.running:
            return
        well = self.cluster.settled()
        if well and not self._well:
            self._due = len(self.knowledge.unseen)
        elif self.random.random() < 0.1:
            self._due = max(self._due, self.AT_A_TIME)
        self._well = well
        keys = list(self.knowledge.unseen)[: min(self._due, self.AT_A_TIME)]
        living = self.cluster.living()
        if not keys or not living:
            self.world.after(self.EVERY_NS, self._next)
            return
        self._due -= len(keys)
        self._send(self.random.choice(living), [self._look(key) for key in keys])

    def _look(self, key: str) -> Asked:
        """A request whose answer is binding, and that changes nothing if the key has its known value."""
        chosen = self.cluster.settings.map(map_of(key, self.cluster.settings))
        if chosen.reads == "confirmed" or chosen.raft_zone:
            return self._ask(Op.GET, [key])
        absent = self.knowledge.believed.get(key, "") is None
        return self._ask(Op.REMOVE if absent else Op.PUT_IF_ABSENT, [key])
