"""TLS handshakes of accepted connections.

asyncio's own TLS servers close failed handshakes silently. Here the reason is logged, and a client that speaks no TLS
gets a reply. During the handshake each connection occupies one of `limits.unauthenticated_connections` places; when all
are taken, the oldest connection of the address with the most is closed.

The alert after a failed handshake must leave before the socket closes: without it the client sees a bare reset and
cannot report "unknown CA".
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

from holdfast.config.client_tls import handshake_problem
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.runtime.doors.tls_records import TlsRecords
from holdfast.server.logins import net_of
from holdfast.server.quota import Quota
from holdfast.wire import doors

SILENT_S = 2.0
"""A peer that sends nothing for this long gets an alert: it may be waiting for this side to begin."""
RECORD_TYPE = doors.TLS[:1]
WITHOUT = "connections without TLS"
FAILED = "failed TLS handshakes"


class PlainTransport(Protocol):
    def write(self, data: bytes, /) -> None: ...

    def close(self) -> None:
        """Send what is written, then close."""

    def abort(self) -> None: ...


class TlsEntrance:
    """One port that accepts only TLS."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        connection_log: ConnectionLog,
        *,
        name: str,
        handshakes: int,
        handshake_s: float,
    ) -> None:
        """`context`: called for each connection. `name`: of this port, for the log. `handshakes`: at most so many at a
        time, each within `handshake_s`.
        """
        self.context = context
        self.connection_log = connection_log
        self.name = name
        self.handshake_s = handshake_s
        self._half_open: Quota[TlsHandshake] = Quota(handshakes)

    def admit(self, handshake: TlsHandshake) -> None:
        """Admit a new connection, and close the oldest if there are too many."""
        oldest = self._half_open.add(handshake, net_of(handshake.peer))
        if oldest is not None:
            self.connection_log.report(
                "connections closed: too many in the TLS handshake",
                "connection of %s closed: limits.unauthenticated_connections are in the TLS handshake",
                oldest.peer,
            )
            oldest.abort()

    def close(self) -> None:
        """The port is closed: end the connections that are still in the handshake."""
        for handshake in list(self._half_open):
            handshake.abort()

    def release(self, handshake: TlsHandshake) -> None:
        self._half_open.remove(handshake)


class TlsHandshake:
    def __init__(
        self,
        entrance: TlsEntrance,
        plain: PlainTransport,
        peer: str,
        done: Callable[[TlsRecords], None],
    ) -> None:
        """`done`: called once the handshake is complete; content may have come already."""
        self._entrance = entrance
        self._plain = plain
        self.peer = peer
        self._done = done
        self._records: TlsRecords | None = None
        self._over = self._reported = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(min(SILENT_S, entrance.handshake_s), self._silent)
        entrance.admit(self)

    def feed(self, data: bytes) -> None:
        if self._over:
            return
        records = self._records
        if records is None:
            if not data.startswith(RECORD_TYPE):
                self._answer_stranger(data)
                return
            self._timer.cancel()
            self._timer = self._loop.call_later(self._entrance.handshake_s, self._late)
        try:
            if records is None:
                records = self._records = TlsRecords(self._entrance.context())
            records.put(data)
            done = records.shake_hands()
        except Exception as error:  # noqa: BLE001  (whatever a stranger's bytes can do ends their connection alone)
            self._fails(handshake_problem(error) or str(error))
            self._over = True
            if records is not None:
                self._plain.write(records.leaving())
            self._plain.close()
            return
        if answer := records.leaving():
            self._plain.write(answer)
        if done and not self._over:
            self._end()
            self._done(records)

    def lost(self) -> None:
        """The connection has ended."""
        if self._records is not None and not self._over:
            self._fails("it ended")
        self._end()

    def abort(self) -> None:
        self._over = True
        self._plain.abort()

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        self._entrance.release(self)

    def _answer_stranger(self, data: bytes) -> None:
        """The first bytes are not TLS: reply and close."""
        stranger = doors.who(data[:16])
        self._entrance.connection_log.report(
            WITHOUT,
            "%s from %s without TLS at %s, which accepts only TLS (tls.certificate)",
            stranger or "a client",
            self.peer,
            self._entrance.name,
        )
        self._reject(doors.NOT_HTTP if stranger == doors.HTTP else doors.TLS_ALERT)

    def _silent(self) -> None:
        self._entrance.connection_log.report(
            FAILED, "%s sent nothing to %s, which uses TLS", self.peer, self._entrance.name
        )
        self._reject(doors.TLS_ALERT)

    def _late(self) -> None:
        self._fails("it took too long")
        self.abort()

    def _reject(self, words: bytes) -> None:
        self._over = True
        self._timer.cancel()
        self._plain.write(words)
        self._plain.close()

    def _fails(self, why: str) -> None:
        if not self._reported:
            self._reported = True
            self._entrance.connection_log.report(
                FAILED, "TLS handshake with %s at %s failed: %s", self.peer, self._entrance.name, why
            )
