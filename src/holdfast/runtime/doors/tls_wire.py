"""TLS on a connection that somebody has opened to this member: a protocol to the loop, a transport to who is behind it.

The loop's own servers say nothing when they end a handshake, so that nobody finds out what was wrong with his
certificate; and nobody is shown what a connection begins with that has no TLS. Here a connection is told why it ends.

Until the handshake has ended a connection has one of `limits.unauthenticated_connections` places: for one more the
oldest of the address with the most is closed.

Records cost their receiver the same whether they carry much or nothing, and new keys cost it more. So whoever sends
records with next to nothing in them is disconnected; what has come is handed on as one piece, however many records it
was.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, cast

from holdfast.config.client_tls import handshake_problem
from holdfast.runtime.doors.strangers import Strangers
from holdfast.server.logins import net_of
from holdfast.server.quota import Quota
from holdfast.wire import doors

SILENT_S = 2.0
"""Who has not begun after so long is told what is spoken here: he may be waiting for this member to begin."""
READ_BYTES = 256 * 1024
RECORD_TYPE = doors.TLS[:1]
WITHOUT = "connections without TLS"
FAILED = "failed TLS handshakes"
BROKEN = "broken TLS connections"
HOLLOW = "TLS connections closed: nearly empty records"
HOLLOW_BYTES = 64 * 1024
"""So much more than what it carries may come on a connection beyond as much again: a small record is 22 bytes more than
its content, and the smallest message of a client is as long."""

log = logging.getLogger("holdfast")


class TlsDoor:
    """What all connections to one port have in common. The protocol factory of its server."""

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        context: Callable[[], ssl.SSLContext],
        strangers: Strangers,
        *,
        name: str,
        handshakes: int,
        handshake_s: float,
    ) -> None:
        """`make`: who serves a connection after its handshake. `context`: asked for each. `name`: of this door, for the
        log. `handshakes`: so many at a time, each within `handshake_s`.
        """
        self.make = make
        self.context = context
        self.strangers = strangers
        self.name = name
        self.handshake_s = handshake_s
        self._half_open: Quota[TlsWire] = Quota(handshakes)
        self.room = memoryview(bytearray(READ_BYTES))
        """Where what comes is put together for who has no room of his own."""

    def __call__(self) -> TlsWire:
        """For a connection that was taken."""
        return TlsWire(self)

    def knock(self, wire: TlsWire) -> None:
        """It is there."""
        oldest = self._half_open.add(wire, net_of(wire.peer))
        if oldest is not None:
            self.strangers.tell(
                "connections closed: too many in the TLS handshake",
                "connection of %s closed: limits.unauthenticated_connections are in the TLS handshake",
                oldest.peer,
            )
            oldest.abort()

    def passed(self, wire: TlsWire) -> None:
        """It has ended its handshake, or itself."""
        self._half_open.remove(wire)


class TlsWire(asyncio.Protocol, asyncio.Transport):
    """One connection."""

    def __init__(self, door: TlsDoor) -> None:
        super().__init__()
        self._door = door
        self._came, self._leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        """From the first byte on."""
        self._behind: asyncio.BaseProtocol | None = None
        """Who is behind it, from the end of the handshake on."""
        self._loop = asyncio.get_running_loop()
        self._plain: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._told = self._paused = self._ended = self._resuming = False
        self._came_bytes = self._given_bytes = 0
        """Since the handshake: what has come, and what was in it."""
        self.peer = ""
        """The address that it comes from."""

    # -- what the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast("asyncio.Transport", transport)
        self.peer = str((transport.get_extra_info("peername") or ("an unknown address",))[0])
        self._door.knock(self)
        patience_s = self._door.handshake_s
        self._timer = self._loop.call_later(min(SILENT_S, patience_s), self._silent)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        if self._tls is None and not self._begins(data):
            return
        self._came.write(data)
        if self._behind is None:
            self._shake_hands()
        else:
            self._came_bytes += len(data)
            self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._stop_timer()
        self._door.passed(self)
        if self._behind is not None:
            self._behind.connection_lost(exc)
        elif self._tls is not None:
            self._fails("it ended")

    def pause_writing(self) -> None:
        if self._behind is not None:
            self._behind.pause_writing()

    def resume_writing(self) -> None:
        if self._behind is not None:
            self._behind.resume_writing()

    # -- the handshake

    def _begins(self, data: bytes) -> bool:
        """Whether the other side begins with TLS; if not, it is told."""
        door = self._door
        self._stop_timer()
        if data.startswith(RECORD_TYPE):
            self._timer = self._loop.call_later(door.handshake_s, self._late)
            self._tls = door.context().wrap_bio(self._came, self._leaves, server_side=True)
            return True
        stranger = doors.who(data[:16])
        door.strangers.tell(
            WITHOUT,
            "%s came from %s without TLS to %s, which speaks nothing else (tls.certificate)",
            stranger or "somebody",
            self.peer,
            door.name,
        )
        self._turn_away(doors.NOT_HTTP if stranger == doors.HTTP else doors.TLS_ALERT)
        return False

    def _silent(self) -> None:
        self._door.strangers.tell(
            FAILED, "%s said nothing to %s, which speaks TLS", self.peer, self._door.name
        )
        self._turn_away(doors.TLS_ALERT)

    def _late(self) -> None:
        self._fails("it took too long")
        self.abort()

    def _turn_away(self, words: bytes) -> None:
        self._ended = True
        self._plain.write(words)
        self._plain.close()

    def _shake_hands(self) -> None:
        assert self._tls is not None, "it has begun"
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except Exception as error:  # noqa: BLE001  (whatever a stranger's bytes can do ends their connection alone)
            self._fails(handshake_problem(error) or str(error))
            self._end()
            return
        self._flush()
        self._stop_timer()
        self._door.passed(self)
        self._behind = self._door.make()
        self._behind.connection_made(self)
        self._read()

    def _fails(self, why: str) -> None:
        """Tell the log, once."""
        if not self._told:
            self._told = True
            self._door.strangers.tell(
                FAILED, "TLS handshake with %s at %s failed: %s", self.peer, self._door.name, why
            )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- what comes after it

    def _read(self) -> None:
        """Give what has come to who is behind this."""
        try:
            while not (self._paused or self._ended) and self._give():
                pass
        except ssl.SSLError as error:
            self._door.strangers.tell(BROKEN, "a TLS connection of %s broke: %s", self.peer, error)
            self._end()
            return
        if self._came_bytes - self._came.pending > 2 * self._given_bytes + HOLLOW_BYTES:
            self._door.strangers.tell(
                HOLLOW, "a TLS connection of %s ends: its records hold next to nothing", self.peer
            )
            self._end()
            return
        self._flush()  # TLS itself may have something to say.

    def _give(self) -> bool:
        """A room full of it; answers whether there may be more. Raises SSLError."""
        behind = self._behind
        if isinstance(behind, asyncio.BufferedProtocol):
            room = memoryview(cast("bytearray", behind.get_buffer(-1)))
            size, ended = self._fill(room)
            if size:
                behind.buffer_updated(size)
        else:
            room = self._door.room
            size, ended = self._fill(room)
            if size:
                cast("asyncio.Protocol", behind).data_received(bytes(room[:size]))
        self._given_bytes += size
        if ended:
            self.close()
        return size == len(room) and not ended

    def _fill(self, room: memoryview) -> tuple[int, bool]:
        """Bytes that were put there, and whether the other side has ended. Raises SSLError when there were none."""
        assert self._tls is not None, "it has begun"
        size = 0
        try:
            while size < len(room):
                more = cast("int", self._tls.read(len(room) - size, cast("bytearray", room[size:])))
                if not more:
                    return size, True
                size += more
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            if not size:
                raise
            # What came before it is good; the next look finds the same again.
            self._loop.call_soon(self._go_on)
        return size, False

    def _flush(self) -> None:
        if self._leaves.pending and not self._plain.is_closing():
            self._plain.write(self._leaves.read())

    def _end(self) -> None:
        """End it, after what TLS has to say of that."""
        self._ended = True
        self._flush()
        self._plain.close()

    # -- what is behind it says

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        """Send these, one after the other."""
        if self._ended or self._plain.is_closing():
            return
        assert self._tls is not None, "it has begun"
        try:
            for data in list_of_data:
                rest = memoryview(data)
                while rest:
                    rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            self._door.strangers.tell(BROKEN, "a TLS connection of %s broke: %s", self.peer, error)
            self._end()
            return
        self._flush()

    def close(self) -> None:
        if self._ended:
            return
        try:
            if self._tls is not None:
                self._tls.unwrap()
        except ssl.SSLError:
            pass  # Its answer is not waited for.
        self._end()

    def abort(self) -> None:
        self._ended = True
        self._plain.abort()

    def is_closing(self) -> bool:
        return self._ended or self._plain.is_closing()

    def pause_reading(self) -> None:
        self._paused = True
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        if not self._paused:
            return
        self._paused = False
        if not self._plain.is_closing():
            self._plain.resume_reading()
        if not self._resuming:
            self._resuming = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """What had come before reading was paused."""
        self._resuming = False
        if not self._ended:
            self._read()

    def get_write_buffer_size(self) -> int:
        return self._plain.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._plain.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls if name == "ssl_object" else self._plain.get_extra_info(name, default)
