"""The HTTP port of a member: its TCP connections and their limits (`server.http` is the protocol).

An error while a request is served closes its connection, and never stops the member. Modules for HTTP are
imported with the first connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

from holdfast.config import is_loopback
from holdfast.core.model.ids import Address
from holdfast.errors import ConfigError
from holdfast.runtime.doors.clients import keep_alive
from holdfast.runtime.doors.taken_ports import close, listen, loop_server, secured, serve
from holdfast.runtime.doors.tls import MemberTls
from holdfast.runtime.doors.tls_handshake import TlsEntrance
from holdfast.runtime.http.member_console import MemberConsole
from holdfast.runtime.http.member_http import HttpHost, MemberHttp
from holdfast.server.http.action_routes import ActionRoutes
from holdfast.server.http.console_routes import ConsoleRoutes
from holdfast.server.http.member_routes import MemberRoutes
from holdfast.server.http.routes import Routes
from holdfast.server.logins import net_of
from holdfast.server.quota import Quota
from holdfast.wire import doors

if TYPE_CHECKING:
    from holdfast.server.http.http_session import HttpSession

UNREAD_BYTES = 256 * 1024
"""With more unsent output than this, a connection is not served until all of it is sent."""
LOADED = (
    "holdfast.server.http.http_session",
    "holdfast.runtime.http.console_errands",
    "holdfast.runtime.http.console_files",
)
REST_S = 30.0
LOOK_S = 1.0

log = logging.getLogger("holdfast")


class HttpDoor:
    def __init__(self, host: HttpHost) -> None:
        self._host = host
        self._settings = host.settings.http
        self._server: asyncio.Server | None = None
        self._entrance: TlsEntrance | None = None
        """With TLS."""
        self._loop: asyncio.AbstractEventLoop
        self._member: MemberHttp
        self._console: MemberConsole | None = None
        self._routes: Routes
        self._wires: Quota[HttpWire] = Quota(self._settings.connections)
        self._timer: asyncio.TimerHandle | None = None
        self._loading: asyncio.Future[object] | None = None
        self.address: Address | None = None

    async def open(self, tls: MemberTls | None) -> None:
        """Raises ConfigError if the port was configured and is in use."""
        chosen = self._settings
        if not chosen.enabled:
            return
        self._loop = asyncio.get_running_loop()
        self._member = MemberHttp(self._host)
        self._console = MemberConsole(self._host, self._member.shown_to_others)
        self._routes = Routes(
            [
                *MemberRoutes(self._member).all(),
                *ActionRoutes(self._member, self._console).all(),
                *ConsoleRoutes(self._member, self._console).all(),
            ]
        )
        make: Callable[[], asyncio.BaseProtocol] = lambda: HttpWire(self)  # noqa: E731
        if tls is not None:
            limits = self._host.settings.limits
            entrance = self._entrance = TlsEntrance(
                lambda: tls.contexts.clients,
                self._host.connection_log,
                name=doors.HTTP_PORT,
                handshakes=min(limits.unauthenticated_connections, chosen.connections),
                handshake_s=limits.auth_timeout_ms / 1000,
            )
            make = secured(make, entrance)
        given = self._host.settings.is_given("http.port")
        try:
            self._server, port = await listen(
                partial(_serving, make), chosen.host, chosen.port, given=given, key="http.port"
            )
        except ConfigError as error:
            if given:
                raise
            log.warning("no HTTP port: %s", error)
            return
        public = self._host.settings.member.public_host
        self.address = Address(chosen.host if not public or is_loopback(chosen.host) else public, port)
        log.info("HTTP at %s://%s", "https" if self._entrance else "http", self.address)

    def begin(self) -> None:
        if self._console is not None and self.address is not None:
            self._console.begin()

    async def close_port(self) -> None:
        if self._server is not None:
            await close(self._server)

    async def close(self) -> None:
        await self.close_port()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._console is not None:
            self._console.close()
        for wire in list(self._wires):
            wire.close("the member is shutting down")
        if self._entrance is not None:
            self._entrance.close()
        if self._server is not None:
            self._member.close()

    @property
    def connections(self) -> int:
        return len(self._wires)

    # -- calls of its connections

    def accept(self, wire: HttpWire) -> None:
        """Admit a new connection, and close the oldest if there are too many."""
        oldest = self._wires.add(wire, net_of(wire.peer))
        if oldest is not None:
            self.tell(
                "HTTP connections closed: too many",
                "HTTP connection from %s closed: the limit http.connections is reached",
                oldest.peer,
            )
            oldest.abort()
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)
        if self._loading is None:
            # Takes some ms in a thread, during which the member keeps running.
            self._loading = self._loop.run_in_executor(self._member.threads, _load)
        if not self._loading.done():
            wire.wait(self._loading)

    def gone(self, wire: HttpWire) -> None:
        self._wires.remove(wire)

    def session_of(self, wire: HttpWire) -> HttpSession:
        from holdfast.server.http.http_session import HttpSession

        return HttpSession(
            self._member,
            self._routes,
            wire.write,
            wire.close,
            peer=wire.peer,
            hosts=tuple(name.lower() for name in self._settings.allowed_hosts),
            secure=self._entrance is not None,
        )

    def tell(self, kind: str, line: str, *said: object) -> None:
        self._host.connection_log.report(kind, line, *said)

    def time(self) -> float:
        return self._loop.time()

    def faulty(self, error: Exception) -> None:
        self._host.faulty("HTTP", error)

    def _look(self) -> None:
        self._timer = None
        for wire in list(self._wires):
            wire.look()
        if len(self._wires):
            self._timer = self._loop.call_later(LOOK_S, self._look)


def _load() -> None:
    for name in LOADED:
        import_module(name)


async def _serving(make: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Server:
    server = await loop_server(make, host, port)
    await serve(server)
    return server


class HttpWire(asyncio.Protocol):
    """One connection. Callbacks of the loop must not raise: that would stop the member."""

    def __init__(self, door: HttpDoor) -> None:
        self._door = door
        self._session: HttpSession | None = None
        self._transport: asyncio.Transport | None = None
        self._ends_s = 0.0
        """When a closing connection is aborted if the peer has not read its output."""
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = str((transport.get_extra_info("peername") or ("an unknown address",))[0])
        self._transport.set_write_buffer_limits(high=UNREAD_BYTES, low=0)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock)
        self._guarded(lambda: self._door.accept(self))

    def wait(self, ready: asyncio.Future[object]) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
            ready.add_done_callback(self._on_ready)

    def _on_ready(self, ready: asyncio.Future[object]) -> None:
        if not ready.cancelled():
            ready.exception()  # Mark it as retrieved; the next import raises it again.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._session is None:
            stranger = doors.who(data[:16])
            if stranger and stranger != doors.HTTP:
                self._reject_protocol(stranger)
                return
        self._guarded(lambda: self._begun().receive(data))

    def eof_received(self) -> bool:
        self._guarded(lambda: self._begun().receive(b""))
        return self._transport is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._door.gone(self)
        session, self._session = self._session, None
        if session is not None:
            self._guarded(session.closed)

    def pause_writing(self) -> None:
        if self._session is not None:
            self._guarded(self._session.pause)

    def resume_writing(self) -> None:
        if self._session is not None:
            self._guarded(self._session.resume)

    def look(self) -> None:
        if self._transport is not None and self._transport.is_closing():
            if self._door.time() > self._ends_s:
                self.abort()
            return
        self._guarded(lambda: self._end_if(self._begun().close_reason()))

    def _end_if(self, why: str) -> None:
        if why:
            self._door.tell(
                "HTTP connections closed: timed out",
                "HTTP connection of %s closed: %s",
                self.peer,
                why,
            )
            self.abort()

    def _begun(self) -> HttpSession:
        if self._session is None:
            self._session = self._door.session_of(self)
        return self._session

    def _reject_protocol(self, stranger: str) -> None:
        self._door.tell(
            "connections to the wrong port", "%s came to %s, and was turned away", stranger, doors.HTTP_PORT
        )
        self.write(doors.TLS_ALERT if stranger == doors.A_TLS_CLIENT else doors.ONLY_HTTP)
        self.close("this port speaks HTTP")

    def _guarded(self, deed: Callable[[], None]) -> None:
        try:
            deed()
        except Exception as error:  # noqa: BLE001  (a client's bytes can end only its own connection)
            self._door.faulty(error)
            self.abort()

    # -- calls of the session

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self, why: str) -> None:
        """Close after pending output; `look` aborts if the peer does not read it."""
        if self._transport is not None and not self._transport.is_closing():
            self._ends_s = self._door.time() + REST_S
            log.debug("HTTP connection of %s closed: %s", self.peer, why)
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
