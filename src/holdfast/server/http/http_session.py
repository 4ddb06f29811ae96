"""One HTTP/1.1 connection: bytes in, requests out, responses in, bytes out. h11 parses and writes HTTP.

Requests of a connection are served one by one, each in its own turn of the loop, so hundreds of pipelined requests do
not delay other clients. Any error of the input ends this connection alone.

A request is decided by its head: route, size, origin, credentials. Its body is parsed only after that, because parsing
is expensive and anyone can send bodies. Example: before this rule, 260,000 chunks of one byte (1.6 MB) from a client
without a login took one turn of 5 s. The body of a rejected request is skipped unparsed; if its length is unknown, the
connection ends.

- server/H-1: A head has at most `HEAD_BYTES` in `LINES_MAX` lines; a body `BODY_BYTES` as sent, in `CHUNKS_MAX` chunks;
  pipelined input before the response `EARLY_BYTES`. More ends the connection.
- server/H-2: A request must arrive within `WHOLE_NS` of its first byte. A client that sends nothing for `IDLE_NS`, or
  does not read its response for `UNREAD_NS`, is disconnected.
- server/H-3: If credentials are required, clients without them get open routes only.
- server/H-4: No body is parsed before the head is accepted, and one turn of the loop parses at most `EVENTS_PER_TURN`
  pieces of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, unquote

import h11

from holdfast.core.model.ids import SECOND
from holdfast.errors import HoldfastError
from holdfast.server import access
from holdfast.server.audit_events import AuditEvent, AuditKind
from holdfast.server.http.browser_rules import HEADERS, is_own_name, origin_problem
from holdfast.server.http.http_messages import (
    EVENTS,
    BadRequest,
    HttpAnswer,
    HttpRequest,
    Stream,
    headers_of,
    login_of,
    text_answer,
)
from holdfast.server.http.routes import HttpMember, Route, Routes
from holdfast.server.logins import LoginAnswer
from holdfast.server.rights import EVERYTHING, Rights

HEAD_BYTES: Final = 16 * 1024
LINES_MAX: Final = 128
BODY_BYTES: Final = 256 * 1024
CHUNKS_MAX: Final = 1024
EARLY_BYTES: Final = 64 * 1024
EVENTS_PER_TURN: Final = 256
"""Chunks, or pieces of an unchunked body, parsed per turn; some ms."""
PIECE_BYTES: Final = 4096
"""Bytes of a body passed to h11 at a time."""
DRAINED_BYTES: Final = 1024 * 1024
"""Bytes read and dropped after a rejection, so that the client can read the response before the connection closes."""
VERSIONS: Final = (b"1.0", b"1.1")
WHOLE_NS: Final = 10 * SECOND
IDLE_NS: Final = 120 * SECOND
UNREAD_NS: Final = 30 * SECOND
DRAIN_NS: Final = 2 * SECOND
"""Time for a rejected client to stop sending."""
NOBODY: Final = Rights()
"""Rights on open routes, which must not check them."""
_HEAD_END: Final = re.compile(rb"\n\r?\n")


class HttpSession:
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
        """`close` gets the reason. `peer`: the client's address. `hosts`: names of this host. `secure`: whether the
        port uses TLS.
        """
        self._member = member
        self._grid = member.grid
        self._routes = routes
        self._send_bytes = send
        self._close = close
        self._peer = peer
        self._hosts = hosts
        self._secure = secure
        self._http = _connection()
        self._raw = bytearray()
        self._searched = 0
        """Bytes of it that contain no end of a head."""
        self._length = 0
        """Bytes of the body not parsed yet; negative: chunked, of unknown length."""
        self._accepted: tuple[Route, HttpRequest] | None = None
        """The request whose body is being read, after its head was accepted."""
        self._body: list[bytes] = []
        self._fed = 0
        """Parsed bytes of the body, as sent."""
        self._chunks = 0
        self._skip = 0
        """Bytes still to skip of a rejected request's body."""
        self._drained = -1
        """Bytes received since a rejection after which the connection ends; -1: none."""
        self._exchange: Exchange | None = None
        self._over = self._ended = self._queued = False
        self.paused = False
        """Whether the client does not read."""
        self._since_ns = self._grid.now_ns()
        """Beginning of the present wait: for a request, its rest, or the client to read."""
        self._partial = False
        """Whether a part of a request has arrived."""
        self._known: tuple[str, Rights] | None = None
        """The last valid credentials with their rights, to check them once per connection."""

    # -- input

    def receive(self, data: bytes) -> None:
        """Input; empty: the client sends no more."""
        if self._over:
            return
        if not data:
            self._ended = True
        if self._drained >= 0:
            self._drain(len(data))
            return
        if data and not self._partial and self._exchange is None:
            self._partial, self._since_ns = True, self._grid.now_ns()
        self._raw += data
        reads = self._exchange is None or self._accepted is not None
        if reads and not self._queued:
            self._look()
        self._bound_early()

    def _bound_early(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if self._length and self._fed + len(self._raw) > BODY_BYTES + EARLY_BYTES:
            exchange.answer(self._too_large())
        elif not self._length and len(self._raw) > EARLY_BYTES:
            self._end("it sends more than it is answered")
        elif self._ended and exchange.streams:
            self._end("it has gone")

    def go_on(self) -> None:
        """Serve pipelined input after a response, or continue with a body."""
        self._queued = False
        if not self._over and (self._exchange is None or self._accepted is not None):
            self._look()

    def _look(self) -> None:
        try:
            self._step_over()
            if self._accepted is None and not self._skip:
                self._take_head()
            self._take_body()
            if self._ended and not self._queued and (self._exchange is None or self._accepted is not None):
                self._end("it has gone")
        except h11.RemoteProtocolError as error:
            self._grid.report_client_event(
                "malformed HTTP requests", "malformed HTTP from %s: %s", self._peer, error
            )
            self._refuse(error.error_status_hint, "malformed HTTP/1.1 request")

    def _take_head(self) -> None:
        raw = self._raw
        if not raw:
            return
        found = _HEAD_END.search(raw, max(0, self._searched - 2), HEAD_BYTES)
        if found is None:
            self._searched = len(raw)
            if len(raw) >= HEAD_BYTES:
                self._refuse(431, f"the head of a request has at most {HEAD_BYTES} bytes")
                return
            if raw[0] > ord(" "):
                return
        head = bytes(raw[: found.end() if found else len(raw)])
        del raw[: len(head)]
        self._searched = 0
        if head.count(b"\n") > LINES_MAX:
            self._refuse(431, f"the head of a request has at most {LINES_MAX} lines")
            return
        self._http.receive_data(head)
        event = self._http.next_event()
        if isinstance(event, h11.Request):
            self._decide(event, head)

    def _decide(self, event: h11.Request, head: bytes) -> None:
        if event.http_version not in VERSIONS:
            self._refuse(505, "this port speaks HTTP/1.1")
            return
        try:
            headers = headers_of(event.headers, head)
        except BadRequest as error:
            self._refuse(400, str(error))
            return
        self._length = -1 if "transfer-encoding" in headers else int(headers.get("content-length", "0"))
        self._fed = self._chunks = 0
        if not self._length:
            ends = self._http.next_event()
            assert isinstance(ends, h11.EndOfMessage), "it has no body"
        target = event.target.decode("latin-1")
        path, _, query = target.partition("?")
        request = HttpRequest(
            event.method.decode("latin-1"),
            unquote(path),
            dict(parse_qsl(query, keep_blank_values=True, max_num_fields=100)) if _countable(query) else {},
            headers,
            b"",
            self._peer,
            NOBODY,
        )
        self._exchange = exchange = Exchange(self, event.method == b"HEAD")
        route = self._routes.find(request.method, request.path)
        if route is None:
            exchange.answer(self._not_found(request.path))
        elif self._length > BODY_BYTES:
            exchange.answer(self._too_large())
        elif access.is_open(route.name):
            self._accept(route, request, exchange)
        elif why := self._origin_problem(request):
            self._grid.report_client_event(
                "cross-origin HTTP requests", "HTTP request of %s refused: %s", self._peer, why
            )
            exchange.answer(text_answer(403, why))
        else:
            self._identify(route, request, exchange)

    def _accept(self, route: Route, request: HttpRequest, exchange: Exchange) -> None:
        if not self._length:
            self._whole()
            self._serve(route, request, exchange)
            return
        self._accepted, self._since_ns = (route, request), self._grid.now_ns()
        if self._http.they_are_waiting_for_100_continue:
            self._put(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))

    def _take_body(self) -> None:
        exchange = self._exchange
        if self._accepted is None or exchange is None:
            return
        for _ in range(EVENTS_PER_TURN):
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                piece = bytes(self._raw[:PIECE_BYTES])
                if not piece:
                    return
                del self._raw[:PIECE_BYTES]
                self._fed += len(piece)
                self._http.receive_data(piece)
            elif isinstance(event, h11.Data):
                self._body.append(bytes(event.data))
                self._chunks += event.chunk_start
                if self._fed > BODY_BYTES + PIECE_BYTES or self._chunks > CHUNKS_MAX:
                    exchange.answer(self._too_large())
                    return
            else:
                self._body_ends(exchange)
                return
        self._queue()

    def _body_ends(self, exchange: Exchange) -> None:
        behind = self._http.trailing_data[0]
        self._raw[:0] = behind
        self._fed -= len(behind)
        if self._fed > BODY_BYTES:
            exchange.answer(self._too_large())
            return
        assert self._accepted is not None, "a body is read of what was accepted"
        (route, request), self._accepted = self._accepted, None
        body = b"".join(self._body)
        self._whole()
        self._serve(route, replace(request, body=body), exchange)

    def _whole(self) -> None:
        self._length, self._partial, self._body = 0, False, []
        self._since_ns = self._grid.now_ns()

    def _too_large(self) -> HttpAnswer:
        return text_answer(413, f"a body has at most {BODY_BYTES} bytes, in at most {CHUNKS_MAX} chunks")

    def _step_over(self) -> None:
        gone = min(self._skip, len(self._raw))
        del self._raw[:gone]
        self._skip -= gone

    def _drain(self, size: int) -> None:
        """Drop input after a rejection, so that the client can read the response."""
        self._drained += size
        if self._ended or self._drained > DRAINED_BYTES:
            self._end("its request was refused")

    def _not_found(self, path: str) -> HttpAnswer:
        methods = self._routes.methods(path)
        if methods:
            return text_answer(405, f"this is served to {', '.join(methods)} alone", allow=", ".join(methods))
        return text_answer(404, "there is nothing of this name")

    def _origin_problem(self, request: HttpRequest) -> str:
        if not self._member.asks_credentials and not is_own_name(
            request.headers.get("host", ""), self._hosts
        ):
            return (
                "the request names this host by a name that is not known here: use its address, or add the name to "
                "http.allowed_hosts"
            )
        return origin_problem(request, secure=self._secure)

    # -- authentication

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
                if self._accepted is not None and self._raw:
                    self._queue()
            elif told.again:
                exchange.answer(text_answer(429, told.again, **{"retry-after": "2"}))
            else:
                exchange.answer(self._unknown("these credentials are wrong"))

        self._member.log_in(login, lambda: not exchange.gone, done)

    def _unknown(self, why: str) -> HttpAnswer:
        scheme = 'Basic realm="holdfast", charset="UTF-8"'
        return text_answer(401, why, **{"www-authenticate": scheme})

    def _permit(self, route: Route, request: HttpRequest, exchange: Exchange, rights: Rights) -> None:
        if why := access.route_rejection(rights, route.name):
            self._grid.audit(AuditEvent(AuditKind.REFUSED, rights.user, self._peer, route.name, why))
            exchange.answer(text_answer(403, why))
            return
        self._accept(route, replace(request, rights=rights), exchange)

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
        except Exception as error:  # noqa: BLE001  (the client gets it; one request ends)
            self._grid.faulty(f"HTTP {route.name}", error)
            exchange.fail()

    # -- output

    def write(self, exchange: Exchange, answer: HttpAnswer) -> None:
        if self._over or exchange is not self._exchange:
            return
        headers = {**HEADERS, "content-type": answer.kind, **answer.headers}
        headers["content-length"] = str(len(answer.body))
        if self._ends_with_answer:
            headers["connection"] = "close"
        data = self._http.send(_head(answer.status, headers))
        if not exchange.head_only:
            data = (data or b"") + (self._http.send(h11.Data(data=answer.body)) or b"")
        self._put((data or b"") + (self._http.send(h11.EndOfMessage()) or b""))
        self._next()

    def begin_stream(self, exchange: Exchange, kind: str, more: Mapping[str, str]) -> None:
        if self._over or exchange is not self._exchange:
            return
        headers = {**HEADERS, "content-type": kind, **more}
        self._put(self._http.send(_head(200, headers)))

    def write_more(self, exchange: Exchange, data: bytes) -> None:
        if not self._over and exchange is self._exchange and not exchange.head_only:
            self._put(self._http.send(h11.Data(data=data)))

    def end_stream(self, exchange: Exchange) -> None:
        if not self._over and exchange is self._exchange:
            self._put(self._http.send(h11.EndOfMessage()))
            self._next()

    def break_off(self, why: str) -> None:
        self._end(why)

    def _refuse(self, status: int, why: str) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = text_answer(status, why)
            headers = {**HEADERS, "content-type": answer.kind, "connection": "close"}
            headers["content-length"] = str(len(answer.body))
            said = self._http.send(_head(status, headers)) or b""
            try:
                said += self._http.send(h11.Data(data=answer.body)) or b""
            except h11.LocalProtocolError:
                pass  # A HEAD request, which gets no body.
            self._put(said)
        self._end(why)

    def _put(self, data: bytes | None) -> None:
        if data:
            self._send_bytes(data)

    def _next(self) -> None:
        self._exchange = self._accepted = None
        self._since_ns = self._grid.now_ns()
        if self._ends_with_answer:
            self._partial, self._drained = True, 0
            self._raw.clear()
            self._body = []
            return
        if self._http.our_state is h11.MUST_CLOSE or (self._ended and not self._raw):
            self._end("it wanted no more")
            return
        self._skip, self._length = self._length, 0
        self._step_over()
        self._http = _connection()
        self._partial = bool(self._raw)
        if self._partial and not self.paused:
            self._queue()

    @property
    def _ends_with_answer(self) -> bool:
        """Whether the unread body's end is unknown or too far, so that the connection must close."""
        return self._length < 0 or self._length > BODY_BYTES or (self._length > 0 and self._fed > 0)

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            self._member.soon(self.go_on)

    def pause(self) -> None:
        self.paused, self._since_ns = True, self._grid.now_ns()

    def resume(self) -> None:
        self.paused, self._since_ns = False, self._grid.now_ns()
        if self._exchange is not None:
            self._exchange.room()
        elif not self._over and self._partial:
            self._queue()

    # -- the end

    def close_reason(self) -> str:
        waited_ns = self._grid.now_ns() - self._since_ns
        if self.paused and waited_ns > UNREAD_NS:
            return "it does not read what it was answered"
        if self._drained >= 0 and waited_ns > DRAIN_NS:
            return "its request was refused, and it still sends"
        if self._exchange is not None and self._accepted is None:
            return ""
        if self._partial and waited_ns > WHOLE_NS:
            return "a request did not come whole in time"
        return "nothing came from it" if waited_ns > IDLE_NS else ""

    def _end(self, why: str) -> None:
        if not self._over:
            self.closed()
            self._close(why)

    def closed(self) -> None:
        self._over = True
        exchange, self._exchange, self._accepted = self._exchange, None, None
        self._body = []
        self._raw.clear()
        if exchange is not None:
            exchange.lose()


def _connection() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)


def _head(status: int, headers: Mapping[str, str]) -> h11.Response:
    return h11.Response(status_code=status, headers=list(headers.items()), reason=HTTPStatus(status).phrase)


def _countable(query: str) -> bool:
    return query.count("&") < 100


class Exchange:
    def __init__(self, session: HttpSession, head_only: bool) -> None:
        self._session = session
        self.head_only = head_only
        self._answered = self._gone = self._begun = self._missed = False
        self.streams = False
        self._on_closed: list[Callable[[], None]] = []
        self._on_room: list[Callable[[], None]] = []

    @property
    def gone(self) -> bool:
        return self._gone

    @property
    def closed(self) -> bool:
        return self._gone or not self.streams

    def answer(self, answer: HttpAnswer) -> None:
        assert not self._answered, "a request is answered once"
        self._answered = True
        self._session.write(self, answer)
        self._gone = True

    def fail(self) -> None:
        """Respond to an internal error, or break off a response that has begun."""
        if self._answered:
            self._session.break_off("an error inside the member")
        else:
            self.answer(text_answer(500, "an error inside this member: its log has it"))

    def stream(self, kind: str = EVENTS, headers: Mapping[str, str] | None = None) -> Stream:
        assert not self._answered, "a request is answered once"
        self._answered = self.streams = True
        self._session.begin_stream(self, kind, headers or {})
        if self.head_only:
            self.end()
        return self

    def send(self, data: bytes) -> bool:
        if self.closed:
            return False
        if self._session.paused:
            self._missed = True
            return False
        if data:
            self._session.write_more(self, data)
        return True

    def end(self) -> None:
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
        if self._missed and not self.closed:
            self._missed = False
            for tell in list(self._on_room):
                tell()

    def lose(self) -> None:
        if not self._gone:
            self._gone, self.streams = True, False
            told, self._on_closed = self._on_closed, []
            for tell in told:
                tell()
