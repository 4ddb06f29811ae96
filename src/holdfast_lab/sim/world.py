"""The simulated world: a heap of future events, a faulty network, and processes that pause and die.

It is deterministic: a sequence number breaks ties of time, nothing iterates over a set, every random choice
comes from a stream of the seed, and a running hash over all events proves that a replay is the same run.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from zlib import crc32

from holdfast.core.effects import Note
from holdfast.core.events import PeerSilent, SeedAbsent
from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import MILLISECOND, Address, MemberId
from holdfast.core.primary_backup.lane import Ways
from holdfast.engine.driver import Driver
from holdfast.engine.ports import Disk
from holdfast.engine.recording import Recorder
from holdfast.server.hazelcast.frame_serving import PLAIN_WAYS
from holdfast_lab.sim.clocks import Clocks
from holdfast_lab.sim.marks import Marks

Story = Callable[[str], None]
Overhear = Callable[["Process", MemberId, bytes], None]
ECHO_NS = (1000 * MILLISECOND, 12_000 * MILLISECOND)
"""Delay of a packet's repetition: in another life of its receiver, but before the judgement."""
Tap = Callable[["Process", Address, bytes, bool], Sequence[int]]
"""Called with a packet: sender, target, bytes, and whether it travels over a link. Returns the extra delay in
nanoseconds of each copy that arrives; none: the packet is lost.
"""
STRAIGHT = (0,)


class Weather:
    def __init__(self) -> None:
        self.loss = 0.0
        self.twice = 0.0
        self.echo = 0.0
        self.refusal = 0.0
        self.delay_ns = (200_000, 2 * MILLISECOND)
        self.cut: dict[tuple[str, str], bool] = {}
        """Directed pairs of hosts without connection."""


class World:
    def __init__(self, seed: int, story: Story | None) -> None:
        self.now_ns = 0
        self.seed = seed
        self.random = random.Random(f"{seed}/world")
        self.weather = Weather()
        self.clocks = Clocks()
        self.story = story
        self.processes: dict[Address, Process] = {}
        self.hash = hashlib.blake2b(digest_size=16)
        self.events = 0
        self.marks = Marks()
        self.buffer_ns = 0
        """Packets of a sender that arrive within so long may be read together; 0: each is read alone."""
        self.buffers = random.Random(f"{seed}/buffers")
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.failures: list[str] = []
        self.overhearing: list[Overhear] = []
        self.recorder: Recorder | None = None
        self.ways: Ways = PLAIN_WAYS
        self.tap: Tap | None = None

    def at(self, time_ns: int, deed: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._heap, (max(time_ns, self.now_ns), self._sequence, deed))

    def after(self, delay_ns: int, deed: Callable[[], None]) -> None:
        self.at(self.now_ns + delay_ns, deed)

    def run_until(self, time_ns: int, stop: Callable[[], bool] | None = None) -> None:
        """Run events until that time, or until `stop` returns true (called every simulated 100 ms)."""
        next_look = self.now_ns
        while self._heap and self._heap[0][0] <= time_ns and not self.failures:
            if stop is not None and self._heap[0][0] >= next_look:
                if stop():
                    return
                next_look = self._heap[0][0] + 100 * MILLISECOND
            self.now_ns, _, deed = heappop(self._heap)
            self.events += 1
            deed()
        if not self.failures:
            self.now_ns = max(self.now_ns, time_ns)

    def log(self, text: str) -> None:
        self.hash.update(f"{self.now_ns} {text}\n".encode())
        if self.story is not None:
            self.story(f"{self.now_ns / 1e9:10.4f} {text}")

    def trace(self, text: str, data: bytes) -> None:
        self.hash.update(b"%d %d " % (self.now_ns, crc32(data)) + text.encode())

    def carry(
        self,
        source: Process,
        target: Address,
        data: bytes,
        arrive: Callable[[Process], None],
        refused: Callable[[], None] | None = None,
        *,
        linked: bool,
    ) -> None:
        """Transport a packet; it may be lost, doubled, delayed, overtaken, and arrive again much later."""
        for late_ns in STRAIGHT if self.tap is None else self.tap(source, target, data, linked):
            self._carry(source, target, data, arrive, refused, late_ns)

    def _carry(
        self,
        source: Process,
        target: Address,
        data: bytes,
        arrive: Callable[[Process], None],
        refused: Callable[[], None] | None,
        late_ns: int,
    ) -> None:
        weather, draw = self.weather, self.random
        if weather.cut.get((source.host, target.host)) or draw.random() < weather.loss:
            return
        low, high = weather.delay_ns

        def deliver() -> None:
            process = self.processes.get(target)
            if process is not None and process.up and not process.dead:
                self.trace(process.name, data)
                process.whenever_awake(lambda: arrive(process))
            elif refused is not None and weather.refusal and draw.random() < weather.refusal:
                self.after(low, refused)

        for _ in range(2 if draw.random() < weather.twice else 1):
            delay = draw.randint(low, high) if draw.random() < 0.95 else draw.randint(high, 8 * high)
            self.after(late_ns + delay, deliver)
        if weather.echo and draw.random() < weather.echo:
            self.after(draw.randint(*ECHO_NS), deliver)


class Process:
    def __init__(self, world: World, name: str, address: Address) -> None:
        self.world = world
        self.name = name
        self.host = address.host
        self.address = address
        self.up = False
        self.dead = False
        self.when_dead: list[Callable[[], None]] = []
        self.left = False
        self.ended_because = ""
        self.awake_at_ns = 0
        self.driver: Driver
        self.disk: Disk | None = None
        self.doomed = False
        self._random = random.Random(f"{world.random.random()}/{name}")
        self._peers: dict[MemberId, Address] = {}
        self._buffers: dict[MemberId, list[bytes]] = {}
        self._clock = world.clocks.of(self.host)
        self._wake_ns = 1 << 62
        self._crash_in: int | None = None
        self._strike: Callable[[], None] = self.crash

    @property
    def picture(self) -> MemberView:
        return self.driver.member.picture

    # -- ports

    def now_ns(self) -> int:
        return self._clock.now_ns(self.world.now_ns)

    def when(self, shown_ns: int) -> int:
        return self._clock.when(shown_ns)

    def wall_ms(self) -> int:
        return self._clock.wall_ms(self.world.now_ns)

    def jitter(self, limit_ns: int) -> int:
        return self._random.randint(0, limit_ns)

    def shuffle(self, effects: list[object]) -> None:
        self._random.shuffle(effects)

    def open(self, member: MemberId, address: Address) -> None:
        self._peers[member] = address

    def close(self, member: MemberId) -> None:
        self._peers.pop(member, None)

    def carry(self, member: MemberId, packet: bytes) -> None:
        if self.dies_here():
            return
        if self.world.overhearing:
            for overhear in list(self.world.overhearing):
                overhear(self, member, packet)
            if self.dead:
                return
        me = self.driver.member.me
        self.world.carry(
            self,
            self._peers[member],
            packet,
            lambda process: process.receive(me, packet),
            lambda: self.whenever_awake(lambda: self.step(lambda: self.driver.handle(PeerSilent(member)))),
            linked=True,
        )

    def receive(self, sender: MemberId, packet: bytes) -> None:
        """A packet has arrived: read it, alone or in some time with others of its sender."""
        world = self.world
        if not world.buffer_ns:
            self.step(partial(self.driver.packet, sender, packet))
            return
        buffer = self._buffers.setdefault(sender, [])
        buffer.append(packet)
        if len(buffer) == 1:
            delay_ns = world.buffers.randint(0, world.buffer_ns)
            world.after(delay_ns, lambda: self.whenever_awake(lambda: self._read_buffer(sender)))

    def _read_buffer(self, sender: MemberId) -> None:
        packets = self._buffers.pop(sender)
        if len(packets) > 1:
            self.world.marks.hit("packets read together")
        driver = self.driver
        # The buffer may end within another packet.
        last = packets[-1] if self.world.buffers.random() < 0.5 else None
        for packet in packets:
            self.step(partial(driver.packet, sender, packet, more=packet is not last))
        self.step(driver.end_buffer)

    def hold(self) -> None:
        """Each packet is on its way at once."""

    def release(self) -> None:
        """See `hold`."""

    def send_datagram(self, address: Address, data: bytes) -> None:
        if self.dies_here():
            return
        origin = self.address
        self.world.carry(
            self,
            address,
            data,
            lambda process: process.step(lambda: process.driver.datagram_received(origin, data)),
            # A member that looks for others, to recover from files, must learn that some have not started.
            partial(self._nobody_at, address) if self.disk is not None else None,
            linked=False,
        )

    def _nobody_at(self, address: Address) -> None:
        self.whenever_awake(lambda: self.step(lambda: self.driver.handle(SeedAbsent(address))))

    def note(self, note: Note) -> None:
        if not self.dead:
            fields = " ".join(f"{key}={value}" for key, value in note.fields.items())
            self.world.log(f"{self.name}: {note.kind} {fields}".rstrip())

    def stopped(self, why: str) -> None:
        self.world.log(f"{self.name}: ends: {why}")
        self.ended_because = why
        self.left = True
        self._end()

    def broken(self, why: str) -> None:
        if not self.dead:
            self.world.log(f"{self.name}: ends: {why}")
            self.ended_because = why
            self._end()

    def soon(self, deed: Callable[[], None]) -> None:
        self.world.after(0, lambda: self.whenever_awake(lambda: self.step(deed)))

    def wake_at(self, deadline_ns: int) -> None:
        at_ns = self._clock.when(deadline_ns)
        if at_ns < self._wake_ns or self._wake_ns < self.world.now_ns:
            self._wake_ns = at_ns
            self.world.at(at_ns, partial(self._wake, at_ns))

    def clock_jumped(self) -> None:
        """The clock of its host has jumped: run what is due by now."""
        if not self.dead and self.up:
            self.wake_at(self.now_ns())

    # -- life and death

    def _wake(self, at_ns: int) -> None:
        if self.dead or at_ns != self._wake_ns:
            # An earlier wakeup was requested since, and has happened.
            return

        def tick() -> None:
            self._wake_ns = 1 << 62
            self.step(self.driver.tick)

        self.whenever_awake(tick)

    def whenever_awake(self, deed: Callable[[], None]) -> None:
        if self.dead:
            return
        if self.awake_at_ns > self.world.now_ns:
            self.world.at(self.awake_at_ns, lambda: self.whenever_awake(deed))
        else:
            deed()

    def step(self, deed: Callable[[], None]) -> None:
        """Let the member act; a broken invariant ends the run."""
        if self.dead:
            return
        try:
            deed()
        except (
            Exception
        ) as error:  # the simulator reports every failure of the code under test, whatever it is
            self.world.log(f"{self.name}: {type(error).__name__}: {error}")
            self.world.failures.append(f"{self.name}: {type(error).__name__}: {error}")
            if self.world.story is not None:
                raise

    def crash_armed(self, packets: int, strike: Callable[[], None]) -> None:
        """Call `strike` after so many more sent packets and submitted groups of deeds: in the middle of the
        effects of a step.
        """
        self._crash_in, self._strike = packets or None, strike

    def dies_here(self) -> bool:
        """Something is about to leave this process: returns whether it is dead, perhaps since just now."""
        if self._crash_in is not None and not self.dead:
            self._crash_in -= 1
            if self._crash_in <= 0:
                self._crash_in = None
                self._strike()
        return self.dead

    def crash(self) -> None:
        if not self.dead:
            self.world.log(f"{self.name}: CRASH")
            self._end()

    def _end(self) -> None:
        self.dead = True
        told, self.when_dead = self.when_dead, []
        for tell in told:
            tell()
