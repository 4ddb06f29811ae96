"""One connection over HTTP/1.1: bytes in, requests out, answers in, bytes out. How to read and write HTTP is h11's.

Requests of a connection are served one after the other, each in a turn of the loop of its own: who sends hundreds at
once keeps nobody else waiting. Whatever is wrong with what comes ends this connection alone.

- server/H-1: A request's head is at most `HEAD_BYTES`, its body `BODY_BYTES`, and what comes before it is answered
  `EARLY_BYTES`; more, and the connection ends.
- server/H-2: A request comes whole within `WHOLE_NS` of its first byte. Who sends nothing for `IDLE_NS`, or does not
  read for `UNREAD_NS` what he was answered, is closed.
- server/H-3: Nothing but open routes is served to somebody who has not shown who he is, where that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, unquote

import h11

from holdfast.core.model.ids import SECOND
from holdfast.errors import HoldfastError
from holdfast.server import access
from holdfast.server.audit_events import AuditEvent, AuditKind
from holdfast.server.http.browser_rules import HEADERS, is_own_name, why_strange
from holdfast.server.http.http_messages import (
    EVENTS,
    BadRequest,
    HttpAnswer,
    HttpRequest,
    Stream,
    login_of,
    text_answer,
)
from holdfast.server.http.routes import HttpMember, Route, Routes
from holdfast.server.logins import LoginAnswer
from holdfast.server.rights import EVERYTHING, Rights

HEAD_BYTES: Final = 16 * 1024
BODY_BYTES: Final = 256 * 1024
EARLY_BYTES: Final = 64 * 1024
VERSIONS: Final = (b"1.0", b"1.1")
WHOLE_NS: Final = 10 * SECOND
IDLE_NS: Final = 120 * SECOND
UNREAD_NS: Final = 30 * SECOND
NOBODY: Final = Rights()
"""Whose rights the requests to open routes have: these ask nothing of them."""


class HttpSession:
    """One connection."""

    def __init__(
        self,
        member: HttpMember,
        routes: Routes,
        send: Callable[[bytes], None],
        close: Callable[[str], None],
        *,
        peer: str,
        hosts: tuple[str, ...] = (),
        secure: bool = False,
    ) -> None:
        """`close` is told why. `peer`: the address that it comes from. `hosts`: names by which this door is reached.
        `secure`: whether it speaks TLS.
        """
        self._member = member
        self._grid = member.grid
        self._routes = routes
        self._send_bytes = send
        self._close = close
        self._peer = peer
        self._hosts = hosts
        self._secure = secure
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._head: h11.Request | None = None
        self._body: list[bytes] = []
        self._size = 0
        """Bytes of the body so far."""
        self._exchange: Exchange | None = None
        """The request that is being served."""
        self._over = self._ended = self._queued = False
        self.paused = False
        """Whether the other side does not read what was sent."""
        self._since_ns = self._grid.now_ns()
        """Since when this is waited for: for a request, for the rest of one, or for what was answered to be read."""
        self._partial = False
        """Whether a request has begun to come."""
        self._known: tuple[str, Rights] | None = None
        """The last credentials that were right, and whose rights these give."""

    # -- what comes

    def receive(self, data: bytes) -> None:
        """Some bytes; none: the other side sends no more."""
        if self._over:
            return
        if data and not self._partial and self._exchange is None:
            self._partial, self._since_ns = True, self._grid.now_ns()
        try:
            self._http.receive_data(data)
        except h11.RemoteProtocolError:
            self._end("it went on after it had ended")
            return
        self._ended = self._ended or not data
        if self._exchange is None and not self._queued:
            self._look()
        elif len(self._http.trailing_data[0]) > EARLY_BYTES:
            self._end("it sends more than it is answered")
        elif self._ended and self._exchange is not None and self._exchange.streams:
            self._end("it has gone")

    def go_on(self) -> None:
        """Serve what had come before the last answer."""
        self._queued = False
        if not self._over and self._exchange is None:
            self._look()

    def _look(self) -> None:
        """See what has come, up to one whole request."""
        try:
            while True:
                event = self._http.next_event()
                match event:
                    case h11.Request():
                        if event.http_version not in VERSIONS:
                            self._refuse(505, "this door speaks HTTP/1.1")
                            return
                        self._begins(event)
                    case h11.Data():
                        self._size += len(event.data)
                        if self._size > BODY_BYTES:
                            self._refuse(413, f"the body has more than {BODY_BYTES} bytes")
                            return
                        self._body.append(bytes(event.data))
                    case h11.EndOfMessage():
                        self._whole()
                        return
                    case h11.ConnectionClosed():
                        self._end("it has gone")
                        return
                    case _:
                        return
        except h11.RemoteProtocolError as error:
            self._grid.knocked(
                "HTTP connections that made no sense", "HTTP of %s made no sense: %s", self._peer, error
            )
            self._refuse(error.error_status_hint, "this is no HTTP/1.1 that is understood here")

    def _begins(self, head: h11.Request) -> None:
        self._head, self._body, self._size = head, [], 0
        if self._http.they_are_waiting_for_100_continue:
            self._put(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))

    def _whole(self) -> None:
        """A request is whole: whose is it, and may he?"""
        assert self._head is not None, "it begins with its head"
        head, self._head = self._head, None
        self._partial = False
        self._since_ns = self._grid.now_ns()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        target = head.target.decode("latin-1")
        path, _, query = target.partition("?")
        request = HttpRequest(
            head.method.decode("latin-1"),
            unquote(path),
            dict(parse_qsl(query, keep_blank_values=True, max_num_fields=100)) if _countable(query) else {},
            headers,
            b"".join(self._body),
            self._peer,
            NOBODY,
        )
        self._body = []
        self._exchange = exchange = Exchange(self, head.method == b"HEAD")
        route = self._routes.find(request.method, request.path)
        if route is None:
            exchange.answer(self._not_found(request.path))
        elif access.is_open(route.name):
            self._serve(route, request, exchange)
        elif why := self._why_strange(request):
            self._grid.knocked(
                "HTTP requests from strange pages", "HTTP request of %s refused: %s", self._peer, why
            )
            exchange.answer(text_answer(403, why))
        else:
            self._identify(route, request, exchange)

    def _not_found(self, path: str) -> HttpAnswer:
        methods = self._routes.methods(path)
        if methods:
            return text_answer(405, f"this is served to {', '.join(methods)} alone", allow=", ".join(methods))
        return text_answer(404, "there is nothing of this name")

    def _why_strange(self, request: HttpRequest) -> str:
        if not self._member.asks_credentials and not is_own_name(
            request.headers.get("host", ""), self._hosts
        ):
            return (
                "the request names this host by a name that is not known here: use its address, or add the name to "
                "http.hosts"
            )
        return why_strange(request, secure=self._secure)

    # -- who it is

    def _identify(self, route: Route, request: HttpRequest, exchange: Exchange) -> None:
        if not self._member.asks_credentials:
            self._permit(route, request, exchange, EVERYTHING)
            return
        header = request.headers.get("authorization", "")
        if self._known is not None and self._known[0] == header:
            self._permit(route, request, exchange, self._known[1])
            return
        login = login_of(header, self._peer)
        if login is None:
            exchange.answer(self._unknown("credentials are needed here"))
            return

        def done(told: LoginAnswer) -> None:
            if exchange.gone:
                return
            if told.rights is not None:
                self._known = (header, told.rights)
                self._permit(route, request, exchange, told.rights)
            elif told.again:
                exchange.answer(text_answer(429, told.again, **{"retry-after": "2"}))
            else:
                exchange.answer(self._unknown("these credentials are wrong"))

        self._member.log_in(login, lambda: not exchange.gone, done)

    def _unknown(self, why: str) -> HttpAnswer:
        scheme = 'Basic realm="holdfast", charset="UTF-8"'
        return text_answer(401, why, **{"www-authenticate": scheme})

    def _permit(self, route: Route, request: HttpRequest, exchange: Exchange, rights: Rights) -> None:
        if why := access.why_not_route(rights, route.name):
            self._grid.audit(AuditEvent(AuditKind.REFUSED, rights.user, self._peer, route.name, why))
            exchange.answer(text_answer(403, why))
            return
        whose = HttpRequest(
            request.method, request.path, request.query, request.headers, request.body, request.peer, rights
        )
        self._serve(route, whose, exchange)

    def _serve(self, route: Route, request: HttpRequest, exchange: Exchange) -> None:
        if not (self._member.started or access.is_open(route.name)):
            exchange.answer(text_answer(503, "this member is starting, or has ended"))
            return
        try:
            route.handler(request, exchange)
        except BadRequest as error:
            exchange.answer(text_answer(400, str(error)))
        except HoldfastError as error:
            exchange.answer(text_answer(409, str(error)))
        except Exception as error:  # noqa: BLE001  (it is told, and ends one request)
            self._grid.faulty(f"HTTP {route.name}", error)
            exchange.fail()

    # -- what leaves

    def write(self, exchange: Exchange, answer: HttpAnswer) -> None:
        """The whole answer of the request that is being served."""
        if self._over or exchange is not self._exchange:
            return
        headers = {**HEADERS, "content-type": answer.kind, **answer.headers}
        headers["content-length"] = str(len(answer.body))
        data = self._http.send(_head(answer.status, headers))
        if not exchange.head_only:
            data = (data or b"") + (self._http.send(h11.Data(data=answer.body)) or b"")
        self._put((data or b"") + (self._http.send(h11.EndOfMessage()) or b""))
        self._next()

    def begin_stream(self, exchange: Exchange, kind: str, more: Mapping[str, str]) -> None:
        """The head of an answer that goes on."""
        if self._over or exchange is not self._exchange:
            return
        headers = {**HEADERS, "content-type": kind, **more}
        self._put(self._http.send(_head(200, headers)))

    def write_more(self, exchange: Exchange, data: bytes) -> None:
        """More of such an answer."""
        if not self._over and exchange is self._exchange and not exchange.head_only:
            self._put(self._http.send(h11.Data(data=data)))

    def end_stream(self, exchange: Exchange) -> None:
        """Its end."""
        if not self._over and exchange is self._exchange:
            self._put(self._http.send(h11.EndOfMessage()))
            self._next()

    def break_off(self, why: str) -> None:
        """What was begun cannot be ended as it should."""
        self._end(why)

    def _refuse(self, status: int, why: str) -> None:
        """Say what is wrong, if that can still be said, and end."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = text_answer(status, why)
            headers = {**HEADERS, "content-type": answer.kind, "connection": "close"}
            headers["content-length"] = str(len(answer.body))
            said = self._http.send(_head(status, headers)) or b""
            try:
                said += self._http.send(h11.Data(data=answer.body)) or b""
            except h11.LocalProtocolError:
                pass  # It was HEAD, of which nobody had come to know.
            self._put(said)
        self._end(why)

    def _put(self, data: bytes | None) -> None:
        if data:
            self._send_bytes(data)

    def _next(self) -> None:
        """An answer has left: the next request, in another turn."""
        self._exchange = None
        self._since_ns = self._grid.now_ns()
        if self._http.our_state is h11.MUST_CLOSE or (self._ended and not self._http.trailing_data[0]):
            self._end("it wanted no more")
            return
        self._http.start_next_cycle()
        self._partial = bool(self._http.trailing_data[0])
        if self._partial and not self.paused:
            self._queue()

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            self._member.soon(self.go_on)

    def pause(self) -> None:
        """The other side does not read what was sent."""
        self.paused, self._since_ns = True, self._grid.now_ns()

    def resume(self) -> None:
        """It has read what was sent."""
        self.paused, self._since_ns = False, self._grid.now_ns()
        if self._exchange is not None:
            self._exchange.room()
        elif not self._over and self._partial:
            self._queue()

    # -- the end

    def why_over(self) -> str:
        """Why this connection has to end now, because of what has not come; empty: it has not."""
        waited_ns = self._grid.now_ns() - self._since_ns
        if self.paused and waited_ns > UNREAD_NS:
            return "it does not read what it was answered"
        if self._exchange is not None:
            return ""
        if self._partial and waited_ns > WHOLE_NS:
            return "a request did not come whole in time"
        return "nothing came from it" if waited_ns > IDLE_NS else ""

    def _end(self, why: str) -> None:
        if not self._over:
            self.closed()
            self._close(why)

    def closed(self) -> None:
        """The connection is gone."""
        self._over = True
        exchange, self._exchange = self._exchange, None
        self._body = []
        if exchange is not None:
            exchange.lose()


def _head(status: int, headers: Mapping[str, str]) -> h11.Response:
    return h11.Response(status_code=status, headers=list(headers.items()), reason=HTTPStatus(status).phrase)


def _countable(query: str) -> bool:
    return query.count("&") < 100


class Exchange:
    """A request and its answer: what a handler answers by (`http_messages.Responder`), and its stream."""

    def __init__(self, session: HttpSession, head_only: bool) -> None:
        self._session = session
        self.head_only = head_only
        self._answered = self._gone = self._begun = self._missed = False
        self.streams = False
        """Whether the answer goes on."""
        self._on_closed: list[Callable[[], None]] = []
        self._on_room: list[Callable[[], None]] = []

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._gone

    @property
    def closed(self) -> bool:
        """The same, of a stream; also when it has ended."""
        return self._gone or not self.streams

    def answer(self, answer: HttpAnswer) -> None:
        """The whole answer."""
        assert not self._answered, "a request is answered once"
        self._answered = True
        self._session.write(self, answer)
        self._gone = True

    def fail(self) -> None:
        """An error inside the member: say so, if nothing was said."""
        if self._answered:
            self._session.break_off("an error inside the member")
        else:
            self.answer(text_answer(500, "an error inside this member: its log has it"))

    def stream(self, kind: str = EVENTS, headers: Mapping[str, str] | None = None) -> Stream:
        """An answer that goes on."""
        assert not self._answered, "a request is answered once"
        self._answered = self.streams = True
        self._session.begin_stream(self, kind, headers or {})
        if self.head_only:
            self.end()
        return self

    def send(self, data: bytes) -> bool:
        """Some more of it, if the other side has read what it has."""
        if self.closed:
            return False
        if self._session.paused:
            self._missed = True
            return False
        if data:
            self._session.write_more(self, data)
        return True

    def end(self) -> None:
        """That was all."""
        if not self.closed:
            self._session.end_stream(self)
            self.lose()

    def on_room(self, tell: Callable[[], None]) -> None:
        self._on_room.append(tell)

    def on_closed(self, tell: Callable[[], None]) -> None:
        if self.closed:
            tell()
        else:
            self._on_closed.append(tell)

    def room(self) -> None:
        """The other side has read everything."""
        if self._missed and not self.closed:
            self._missed = False
            for tell in list(self._on_room):
                tell()

    def lose(self) -> None:
        """Nobody waits for any more."""
        if not self._gone:
            self._gone, self.streams = True, False
            told, self._on_closed = self._on_closed, []
            for tell in told:
                tell()
