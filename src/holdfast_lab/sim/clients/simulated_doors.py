"""Client ports of simulated processes, and the network to them. Door, sessions and grid are the real ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from holdfast.actions.operator_action import ActionDone, OperatorAction
from holdfast.core.model.forwarded_frames import ForwardedDone, ForwardedPart
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.operations import Outcome, Request
from holdfast.engine.driver import DriverForwards
from holdfast.server.door import ClientConnection, Door, DoorMember, DoorOptions
from holdfast.server.member_grid import MemberGrid
from holdfast.wire import own
from holdfast_lab.sim.clients.streams import Stream
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

SPENT_NS = (0, 0, 0, MILLISECOND, 30 * MILLISECOND)
"""Time that seems to pass between looks at the clock. No time passes in a simulated turn, so without it no
door would ever be late (server/D-3).
"""


class Timer:
    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Turns:
    def __init__(self, process: Process) -> None:
        self._process = process

    def call_soon(self, deed: Callable[[], object], /) -> object:
        """After everything else at this moment."""
        self._process.soon(lambda: _do(deed))
        return None

    def call_later(self, delay: float, deed: Callable[[], object], /) -> Timer:
        return self.call_at(self.time() + delay, deed)

    def call_at(self, when: float, deed: Callable[[], object], /) -> Timer:
        """At that time, or when the process is awake again."""
        timer = Timer()
        process = self._process

        def due() -> None:
            if not timer.cancelled:
                deed()

        process.world.at(
            process.when(round(when * SECOND)), lambda: process.whenever_awake(partial(process.step, due))
        )
        return timer

    def time(self) -> float:
        return self._process.now_ns() / SECOND


def _do(deed: Callable[[], object]) -> None:
    deed()


class ConnectionCounts:
    def __init__(self, counts: Counter[str]) -> None:
        self._connection_counts = counts

    def report(self, kind: str, line: str, /, *args: object) -> None:
        self._connection_counts[f"door: {kind}"] += 1

    def closed(self, why: str, /) -> None:
        self._connection_counts["connections closed by members"] += 1


class MarkedForwards(DriverForwards):
    def __init__(self, process: Process) -> None:
        super().__init__(process.driver)
        self._marks = process.world.marks

    def forward(self, part: ForwardedPart, done: Callable[[ForwardedDone], None]) -> None:
        marks = self._marks
        marks.hit("forwarded frames")

        def told(result: ForwardedDone) -> None:
            if result.doubtful:
                marks.hit("frames in doubt")
            elif result.again:
                marks.hit("frames skipped")
            done(result)

        super().forward(part, told)


class ProcessGrid(MemberGrid):
    def __init__(self, process: Process, loop: Turns, counts: ConnectionCounts) -> None:
        self.driver = process.driver
        self.member = process.driver.member
        self.lane = process.driver.lane
        super().__init__(self.member.settings, self.member.me)
        self._process = process
        self._loop = loop
        self._connection_counts = counts

    @property
    def clients_loop(self) -> Turns:
        return self._loop

    def now_ns(self) -> int:
        return self._process.now_ns()

    def wall_ms(self) -> int:
        return self._process.wall_ms()

    def rejection(self, request: Request, size: int = 0) -> Outcome | None:
        return self.member.picture.rejection_here(request)

    def act(self, action: OperatorAction, timeout_ms: int, done: ActionDone) -> None:
        done(own.Fate.REJECTED, "simulated members take no orders of clients")

    def faulty(self, kind: str, error: Exception) -> None:
        """No request may meet an error inside the member in a simulated run."""
        raise error

    def report_client_event(self, kind: str, line: str, *said: object) -> None:
        self._connection_counts.report(kind, line, *said)


class Doors:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.counts: Counter[str] = Counter()
        self._random = random.Random(f"{world.seed}/doors")
        self._doors: dict[Process, Door] = {}
        self._grids: dict[Process, ProcessGrid] = {}

    def hosts(self) -> list[str]:
        return [address.host for address in self.cluster.addresses]

    def process(self, host: str) -> Process | None:
        process = next((found for found in self.cluster.living() if found.host == host), None)
        return process if process is not None and not process.driver.stopped else None

    def grid(self, process: Process) -> ProcessGrid:
        grid = self._grids.get(process)
        if grid is None:
            grid = self._grids[process] = ProcessGrid(process, Turns(process), ConnectionCounts(self.counts))
        return grid

    def connect(self, stream: Stream) -> None:
        self.world.after(self._random.randint(*self.world.weather.delay_ns), partial(self._connect, stream))

    def _connect(self, stream: Stream) -> None:
        cut = self.world.weather.cut
        if cut.get((stream.client, stream.host)) or cut.get((stream.host, stream.client)):
            return  # The client gives up in the end.
        process = self.process(stream.host)
        if process is None:
            stream.reset()
            return

        def make() -> ClientConnection:
            self.counts["connections"] += 1
            return ClientConnection(self._door(process))

        # The system accepts connections even while the process is paused.
        stream.reach(process)
        process.whenever_awake(partial(process.step, lambda: stream.accept(make)))

    def _door(self, process: Process) -> Door:
        door = self._doors.get(process)
        if door is None:
            door = self._doors[process] = self._make(process)
        return door

    def _make(self, process: Process) -> Door:
        driver = process.driver
        settings = driver.member.settings
        spent_ns = 0

        def clock() -> int:
            nonlocal spent_ns
            spent_ns += self._random.choice(SPENT_NS)
            return self.world.now_ns + spent_ns

        grid = self.grid(process)
        door = Door(
            grid,
            settings.limits,
            grid.clients_loop,
            clock,
            ConnectionCounts(self.counts),
            DoorMember(
                driver.enter,
                driver.leave_lane,
                _raise,
                backlog=driver.member.picture.backlog,
                forwards=MarkedForwards(process),
            ),
            DoorOptions(
                request_ids=settings.replication.request_ids,
                client_acks=settings.replication.backup_acks == "client",
            ),
        )
        driver.callers.backpressure_changed = door.backlog_changed
        return door


def _raise(error: Exception) -> None:
    raise error
