"""TLS on accepted connections: a protocol for the loop, and a transport for the protocol above.

asyncio's own TLS servers close failed handshakes silently. Here the reason is logged, and a client that speaks no TLS
gets a reply. During the handshake each connection occupies one of `limits.unauthenticated_connections` places; when all
are taken, the oldest connection of the address with the most is closed.

Records cost their receiver the same with or without content, and key updates cost more. So a client that sends nearly
empty records is disconnected, and content is delivered in one piece.

Closing needs care in both directions. Data that a peer sent before an error or a `close_notify` is valid, and is
delivered first (`_fill`). Two messages must leave before the socket closes: the alert after a failed handshake, without
which the client sees a bare reset and cannot report "unknown CA"; and `close_notify`, without which it must suspect
that an attacker cut the response short. The peer's own `close_notify` is not awaited: a silent peer would hold the
socket.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, cast

from holdfast.config.client_tls import handshake_problem
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.server.logins import net_of
from holdfast.server.quota import Quota
from holdfast.wire import doors

SILENT_S = 2.0
"""A peer that sends nothing for this long gets an alert: it may be waiting for this side to begin."""
READ_BYTES = 256 * 1024
RECORD_TYPE = doors.TLS[:1]
WITHOUT = "connections without TLS"
FAILED = "failed TLS handshakes"
BROKEN = "broken TLS connections"
HOLLOW = "TLS connections closed: nearly empty records"
HOLLOW_BYTES = 64 * 1024
"""Allowed bytes beyond twice the content: a record adds 22 bytes to its content, and the smallest client
message is about as long.
"""

log = logging.getLogger("holdfast")


class TlsDoor:
    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        context: Callable[[], ssl.SSLContext],
        connection_log: ConnectionLog,
        *,
        name: str,
        handshakes: int,
        handshake_s: float,
    ) -> None:
        """`make`: makes the protocol above, after the handshake. `context`: called for each connection.
        `name`: of this port, for the log. `handshakes`: at most so many at a time, each within `handshake_s`.
        """
        self.make = make
        self.context = context
        self.connection_log = connection_log
        self.name = name
        self.handshake_s = handshake_s
        self._half_open: Quota[TlsWire] = Quota(handshakes)
        self.room = memoryview(bytearray(READ_BYTES))

    def __call__(self) -> TlsWire:
        return TlsWire(self)

    def accept(self, wire: TlsWire) -> None:
        """Admit a new connection, and close the oldest if there are too many."""
        oldest = self._half_open.add(wire, net_of(wire.peer))
        if oldest is not None:
            self.connection_log.report(
                "connections closed: too many in the TLS handshake",
                "connection of %s closed: limits.unauthenticated_connections are in the TLS handshake",
                oldest.peer,
            )
            oldest.abort()

    def passed(self, wire: TlsWire) -> None:
        self._half_open.remove(wire)


class TlsWire(asyncio.Protocol, asyncio.Transport):
    def __init__(self, door: TlsDoor) -> None:
        super().__init__()
        self._door = door
        self._came, self._leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._behind: asyncio.BaseProtocol | None = None
        self._loop = asyncio.get_running_loop()
        self._plain: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._told = self._paused = self._ended = self._resuming = False
        self._came_bytes = self._given_bytes = 0
        """Since the handshake: encrypted bytes received, and their content."""
        self.peer = ""

    # -- calls of the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast("asyncio.Transport", transport)
        self.peer = str((transport.get_extra_info("peername") or ("an unknown address",))[0])
        self._door.accept(self)
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
        """Whether the first bytes are TLS; otherwise replies and closes."""
        door = self._door
        self._stop_timer()
        if data.startswith(RECORD_TYPE):
            self._timer = self._loop.call_later(door.handshake_s, self._late)
            self._tls = door.context().wrap_bio(self._came, self._leaves, server_side=True)
            return True
        stranger = doors.who(data[:16])
        door.connection_log.report(
            WITHOUT,
            "%s from %s without TLS at %s, which accepts only TLS (tls.certificate)",
            stranger or "a client",
            self.peer,
            door.name,
        )
        self._reject(doors.NOT_HTTP if stranger == doors.HTTP else doors.TLS_ALERT)
        return False

    def _silent(self) -> None:
        self._door.connection_log.report(
            FAILED, "%s sent nothing to %s, which uses TLS", self.peer, self._door.name
        )
        self._reject(doors.TLS_ALERT)

    def _late(self) -> None:
        self._fails("it took too long")
        self.abort()

    def _reject(self, words: bytes) -> None:
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
        if not self._told:
            self._told = True
            self._door.connection_log.report(
                FAILED, "TLS handshake with %s at %s failed: %s", self.peer, self._door.name, why
            )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- after the handshake

    def _read(self) -> None:
        try:
            while not (self._paused or self._ended) and self._give():
                pass
        except ssl.SSLError as error:
            self._door.connection_log.report(BROKEN, "TLS connection from %s broke: %s", self.peer, error)
            self._end()
            return
        if self._came_bytes - self._came.pending > 2 * self._given_bytes + HOLLOW_BYTES:
            self._door.connection_log.report(
                HOLLOW, "TLS connection from %s closed: its records are nearly empty", self.peer
            )
            self._end()
            return
        self._flush()  # TLS may have produced a response, such as a key update.

    def _give(self) -> bool:
        """Deliver one buffer; returns whether there may be more. Raises SSLError."""
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
        """Decrypt into `room`: bytes, and whether the peer has closed. Raises SSLError if there were none."""
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
            # Deliver what came before the error; the next read meets it again.
            self._loop.call_soon(self._run_slice)
        return size, False

    def _flush(self) -> None:
        if self._leaves.pending and not self._plain.is_closing():
            self._plain.write(self._leaves.read())

    def _end(self) -> None:
        self._ended = True
        self._flush()
        self._plain.close()

    # -- calls of the protocol above

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self._ended or self._plain.is_closing():
            return
        assert self._tls is not None, "it has begun"
        try:
            for data in list_of_data:
                rest = memoryview(data)
                while rest:
                    rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            self._door.connection_log.report(BROKEN, "TLS connection from %s broke: %s", self.peer, error)
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
            pass  # The peer's close_notify is not awaited.
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
            self._loop.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        self._resuming = False
        if not self._ended:
            self._read()

    def get_write_buffer_size(self) -> int:
        return self._plain.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._plain.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls if name == "ssl_object" else self._plain.get_extra_info(name, default)
