"""A connection between a client and a member's process: two byte streams, ordered and without loss while it
lives.

Bytes are delayed, arrive in other pieces, wait while a process is paused or the network is cut, and leave no
faster than the other side reads. A connection can break at any time, with data in flight.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.server.door import ClientConnection
from holdfast_lab.sim.world import Process, World

BLOCKED_LOOK_NS = 100 * MILLISECOND
DISCOVERED_NS = (1 * SECOND, 8 * SECOND)
"""When a client learns of a vanished host, if it does not find out by itself."""
LOW_PART = 4
"""A paused writer may resume when so small a part of the limit is unsent."""


class Pipe:
    def __init__(
        self,
        world: World,
        draw: random.Random,
        *,
        window: int,
        choppy: float,
        blocked: Callable[[], bool],
        awake: Callable[[Callable[[], None]], None],
        deliver: Callable[[bytes], None],
        ended: Callable[[], None],
        relieved: Callable[[], None] = lambda: None,
    ) -> None:
        """`window`: bytes that may be in flight or unread. `choppy`: how often a read buffer ends at a random
        place. `blocked`: whether nothing passes now. `awake`: runs a function in the reader's time.
        `deliver`: gets read buffers; `ended` is called after the last one. `relieved`: some bytes have left.
        """
        self._world = world
        self._random = draw
        self._window = window
        self._choppy = choppy
        self._blocked = blocked
        self._awake = awake
        self._deliver = deliver
        self._ended = ended
        self._relieved = relieved
        self.unsent = bytearray()
        self.reading = True
        self._sky: deque[bytearray | None] = deque()
        self._flying = 0
        self._last_ns = 0
        self._arrived = bytearray()
        self._closing = self._over = self._woken = self._cut = False

    def write(self, data: bytes) -> None:
        if not self._cut and not self._closing:
            self.unsent += data
            self._push()

    def close(self) -> None:
        if not self._closing and not self._cut:
            self._closing = True
            self._push()

    def cut(self) -> None:
        self._cut = True
        self.unsent.clear()
        self._arrived.clear()

    def read_or_not(self, reading: bool) -> None:
        self.reading = reading
        self._wake()

    def _push(self) -> None:
        if self._cut:
            return
        room = self._window - self._flying - len(self._arrived)
        if self.unsent and room > 0:
            piece = self.unsent[:room]
            del self.unsent[:room]
            self._flying += len(piece)
            self._fly(piece)
            self._relieved()
        if self._closing and not self.unsent and not self._over:
            self._over = True
            self._fly(None)

    def _fly(self, piece: bytearray | None) -> None:
        at_ns = max(self._last_ns, self._world.now_ns + self._random.randint(*self._world.weather.delay_ns))
        if piece is not None and self._sky and self._sky[-1] is not None and at_ns == self._last_ns:
            self._sky[-1] += piece
            return
        self._sky.append(piece)
        self._last_ns = at_ns
        self._world.at(at_ns, self._land)

    def _land(self) -> None:
        if self._cut:
            return
        if self._blocked():
            self._world.after(BLOCKED_LOOK_NS, self._land)
            return
        piece = self._sky[0]
        if piece is not None:
            self._flying -= len(piece)
            self._arrived += piece
            self._sky.popleft()
        self._wake()

    def _wake(self) -> None:
        if self.reading and not self._woken and not self._cut and (self._arrived or self._at_end()):
            self._woken = True
            self._awake(self._read)

    def _at_end(self) -> bool:
        return bool(self._sky) and self._sky[0] is None

    def _read(self) -> None:
        self._woken = False
        if self._cut or not self.reading:
            return
        arrived = self._arrived
        if arrived:
            size = (
                len(arrived)
                if self._random.random() >= self._choppy
                else self._random.randint(1, len(arrived))
            )
            data = bytes(arrived[:size])
            del arrived[:size]
            self._deliver(data)
            self._push()
            if self._arrived or self._at_end():
                self._world.after(self._random.randint(0, self._world.weather.delay_ns[0]), self._wake)
        elif self._at_end():
            self._cut = True
            self._ended()


class ClientEnd(Protocol):
    def received(self, data: bytes) -> None: ...

    def lost(self) -> None:
        """The connection is gone, or was never made. Called once."""


class Stream:
    """One connection: the client's side, and the member's transport (`server.door.Transport`)."""

    def __init__(
        self,
        world: World,
        draw: random.Random,
        client: str,
        host: str,
        end: ClientEnd,
        *,
        window: int,
        choppy: float,
    ) -> None:
        self._world = world
        self._random = draw
        self.client = client
        self.host = host
        self._end = end
        self._process: Process | None = None
        self._connection: ClientConnection | None = None
        self._high = 1 << 62
        self._full = self._closing = self._lost = False
        cut = world.weather.cut
        self._in = Pipe(
            world,
            draw,
            window=window,
            choppy=choppy,
            blocked=lambda: bool(cut.get((client, host))),
            awake=self._on_member,
            deliver=self._receive,
            ended=self.close,
        )
        self._in.reading = False
        self._out = Pipe(
            world,
            draw,
            window=window,
            choppy=choppy,
            blocked=lambda: bool(cut.get((host, client))),
            awake=lambda deed: deed(),
            deliver=self._answered,
            ended=self._gone,
            relieved=self._relieved,
        )

    # -- the client's side

    def send(self, data: bytes) -> None:
        self._in.write(data)

    def hang_up(self) -> None:
        self._out.cut()
        self._in.close()
        self._lost = True

    def stall(self, stalled: bool) -> None:
        self._out.read_or_not(not stalled)

    def reset(self) -> None:
        """The connection breaks; each side learns of it after a while."""
        self._closing = True
        self._in.cut()
        self._out.cut()
        self._later(self._gone)
        self._on_member(self._end_connection)

    def _answered(self, data: bytes) -> None:
        self._world.trace(self.client, data)
        self._end.received(data)

    def _gone(self) -> None:
        if not self._lost:
            self._lost = True
            self._end.lost()

    def _later(self, deed: Callable[[], None]) -> None:
        self._world.after(self._random.randint(*self._world.weather.delay_ns), deed)

    # -- the member's side

    def reach(self, process: Process) -> None:
        self._process = process
        process.when_dead.append(self._died)

    def accept(self, make: Callable[[], ClientConnection]) -> None:
        if not self._closing:
            self._connection = make()
            self._connection.begin(self, self.client)
            self._in.read_or_not(True)

    def _on_member(self, deed: Callable[[], None]) -> None:
        process = self._process
        if process is not None:
            process.whenever_awake(partial(process.step, deed))

    def _receive(self, data: bytes) -> None:
        if self._connection is not None and self._process is not None:
            self._world.trace(self._process.name, data)
            self._connection.data_received(data)

    def _died(self) -> None:
        """Written bytes may still arrive, or be lost; or the whole host vanishes silently."""
        self._in.cut()
        self._connection = None
        dice = self._random.random()
        if dice < 0.6:
            self._out.close()
        else:
            self._out.cut()
            low, high = DISCOVERED_NS if dice < 0.75 else self._world.weather.delay_ns
            self._world.after(self._random.randint(low, high), self._gone)

    def _end_connection(self) -> None:
        connection, self._connection = self._connection, None
        if self._process is not None and self._died in self._process.when_dead:
            self._process.when_dead.remove(self._died)
        if connection is not None:
            self._closing = True
            connection.connection_lost(None)

    def _relieved(self) -> None:
        if self._full and len(self._out.unsent) <= self._high // LOW_PART:
            self._full = False
            self._on_member(self._resume_writing)
        if self._closing and not self._out.unsent:
            self._on_member(self._end_connection)

    def _resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    def write(self, data: bytes) -> None:
        if self._closing or (self._process is not None and self._process.dies_here()):
            return
        self._out.write(data)
        if len(self._out.unsent) > self._high and not self._full and self._connection is not None:
            self._full = True
            self._connection.pause_writing()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._in.cut()
            self._out.close()
            if not self._out.unsent and self._process is not None:
                self._process.soon(self._end_connection)

    def abort(self) -> None:
        self._closing = True
        self._in.cut()
        self._out.cut()
        self._later(self._gone)
        if self._process is not None:
            self._process.soon(self._end_connection)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._in.read_or_not(False)

    def resume_reading(self) -> None:
        self._in.read_or_not(True)

    def get_write_buffer_size(self) -> int:
        return len(self._out.unsent)

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high
