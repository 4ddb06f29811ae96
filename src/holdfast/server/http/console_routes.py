"""The routes of the console: its page, its data, and the commands that it sends.

The page and its files are public and contain nothing secret. Data and commands need the rights of the user who looks.

- server/C-1: Commands are authorized by `access` like those from anywhere else. A page hides buttons that its user may
  not press, but the check does not depend on that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from holdfast.actions.registry import ACTIONS
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.observe.cluster_events import ClusterEvents
from holdfast.server import access
from holdfast.server.audit_events import AuditEvent, AuditKind
from holdfast.server.http.action_routes import ActionForwarder
from holdfast.server.http.browser_rules import PAGE_POLICY
from holdfast.server.http.http_messages import (
    COMMENT,
    JSON,
    BadRequest,
    HttpAnswer,
    HttpRequest,
    Responder,
    Stream,
    event,
    json_answer,
    text_answer,
)
from holdfast.server.http.routes import HttpMember, Route
from holdfast.server.reserved import reserved_map_rejection
from holdfast.wire import own
from holdfast.wire.values import Serialized, from_stored, to_stored

AT_A_TIME: Final = 400
VALUE_SHOWN: Final = 20_000


class ConsoleFile(msgspec.Struct, frozen=True):
    body: bytes
    kind: str
    tag: str
    """Entity tag, which changes with the content."""


class ConsoleMember(ActionForwarder, Protocol):
    """The member's interface to the console, in addition to `HttpMember`."""

    @property
    def files(self) -> Mapping[str, ConsoleFile]: ...

    @property
    def cluster_events(self) -> ClusterEvents: ...

    def history(self, since: int, done: Callable[[bytes], None]) -> None:
        """Changes of the table after that number, as JSON (`observe.table_history`)."""

    def watch(self, heard: Callable[[str], None]) -> Callable[[], None]:
        """Call `heard` with `table`, `happened` or `beat` when there is something new of that kind; returns the
        function that unsubscribes.
        """

    def verify(self, request: HttpRequest, done: Callable[[dict[str, object]], None]) -> None:
        """Compare all copies with the requester's credentials. Raises BadRequest if a comparison is running."""


class _EntryAsked(msgspec.Struct, forbid_unknown_fields=True):
    map: str
    key: str
    kind: str = "string"
    """Type of the key: one of `KEYS`."""


def _hexadecimal(text: str) -> Serialized:
    data = bytes.fromhex(text)
    if len(data) < 4:
        raise ValueError("a stored key has 4 bytes at least")
    return Serialized(data)


KEYS: Final[Mapping[str, Callable[[str], bytes]]] = {
    "string": to_stored,
    "integer": lambda text: to_stored(int(text)),
    "long": lambda text: _long(int(text)),
    "json": lambda text: to_stored(msgspec.json.decode(text)),
    "stored": lambda text: to_stored(_hexadecimal(text)),
}


def _long(number: int) -> bytes:
    """Like Java's Long; most clients write numeric keys so."""
    return (-8).to_bytes(4, "big", signed=True) + number.to_bytes(8, "big", signed=True)


class ConsoleRoutes:
    def __init__(self, member: HttpMember, console: ConsoleMember) -> None:
        self._member = member
        self._console = console

    def all(self) -> list[Route]:
        return [
            Route("GET", "/console", self.page),
            Route("GET", "/console/*", self.file),
            Route("GET", "/console/api/me", self.me),
            Route("GET", "/console/api/history", self.history),
            Route("GET", "/console/api/events", self.events),
            Route("POST", "/console/api/verify", self.verify),
            Route("POST", "/console/api/entry", self.entry),
        ]

    # -- the page

    def page(self, request: HttpRequest, responder: Responder) -> None:
        self._serve("console.html", request, responder)

    def file(self, request: HttpRequest, responder: Responder) -> None:
        self._serve(request.path.removeprefix("/console/"), request, responder)

    def _serve(self, name: str, request: HttpRequest, responder: Responder) -> None:
        found = self._console.files.get(name)
        if found is None:
            responder.answer(text_answer(404, "there is nothing of this name"))
            return
        # The browser revalidates each file, so a page never mixes files of two releases.
        headers = {
            "cache-control": "no-cache",
            "content-security-policy": PAGE_POLICY,
            "etag": found.tag,
        }
        same = found.tag in request.headers.get("if-none-match", "")
        responder.answer(HttpAnswer(304 if same else 200, b"" if same else found.body, found.kind, headers))

    # -- what it shows

    def me(self, request: HttpRequest, responder: Responder) -> None:
        grid = self._member.grid
        rights = request.rights
        may = {
            name: rights.may_somewhere(kind.declared.permission, kind.declared.kind)
            for name, kind in ACTIONS.items()
        }
        may["verify"] = not access.question_rejection(rights, _VERIFY, ())
        may["look"] = may["status"]
        may["watch"] = not access.route_rejection(rights, "GET /console/api/events")
        told = {
            "user": rights.user,
            "asks": self._member.asks_credentials,
            "may": may,
            "uuid": grid.member_uuid,
            "cluster": grid.cluster_name,
            "partitions": grid.partition_count,
        }
        responder.answer(json_answer(told))

    def history(self, request: HttpRequest, responder: Responder) -> None:
        try:
            since = int(request.query.get("since", "-1"))
        except ValueError:
            raise BadRequest("since is the number of a change") from None
        self._console.history(since, lambda body: responder.answer(HttpAnswer(200, body, JSON)))

    def events(self, request: HttpRequest, responder: Responder) -> None:
        try:
            since = int(request.headers.get("last-event-id", request.query.get("since", "0")))
        except ValueError:
            raise BadRequest("since is the number of an event") from None
        _Listener(self._console, responder.stream(), since)

    # -- commands

    def verify(self, request: HttpRequest, responder: Responder) -> None:
        if self._permits(request, _VERIFY, "VERIFY", responder):
            self._console.verify(request, lambda told: responder.answer(json_answer(told)))

    def _permits(self, request: HttpRequest, question: own.Question, what: str, responder: Responder) -> bool:
        """Authorize and audit a command (server/C-1)."""
        grid, rights = self._member.grid, request.rights
        if why := access.question_rejection(rights, question, ()):
            grid.audit(AuditEvent(AuditKind.REFUSED, rights.user, request.peer, what, why))
            responder.answer(text_answer(403, why))
            return False
        grid.audit(AuditEvent(AuditKind.ORDER, rights.user, request.peer, what))
        return True

    # -- entries

    def entry(self, request: HttpRequest, responder: Responder) -> None:
        """One entry of a map: `{"map": NAME, "key": TEXT, "kind": "string"}`."""
        grid, rights = self._member.grid, request.rights
        try:
            asked = msgspec.convert(request.json(), _EntryAsked)
        except msgspec.ValidationError as error:
            raise BadRequest(f"this is no question for an entry: {error}") from None
        if asked.kind not in KEYS:
            raise BadRequest(f"a key is one of {', '.join(KEYS)}")
        try:
            key = KEYS[asked.kind](asked.key)
        except (ValueError, TypeError, OverflowError, RecursionError, msgspec.DecodeError) as error:
            raise BadRequest(f"the key is no {asked.kind}: {error}") from None
        partition = partition_of(key, 0, grid.partition_count)
        wanted = Request(Op.GET, asked.map, [partition], key)
        question = own.Execute(1, wanted)
        if why := access.question_rejection(rights, question, ()):
            grid.audit(AuditEvent(AuditKind.REFUSED, rights.user, request.peer, "GET", why))
            responder.answer(text_answer(403, why))
            return
        if grid.zone_of(asked.map):
            raise BadRequest("the map lives in a zone: it is read by clients alone")
        if why := reserved_map_rejection(wanted):
            raise BadRequest(why)
        replicas = [uuid or "" for uuid in grid.row(partition).replicas]
        grid.execute(
            wanted,
            lambda outcome: responder.answer(_entry_answer(outcome, partition, replicas)),
        )


_VERIFY: Final = own.AskDigests(1, [], None)


def _entry_answer(outcome: Outcome, partition: int, replicas: list[str]) -> HttpAnswer:
    told: dict[str, Any] = {"partition": partition, "replicas": replicas}
    if outcome.status is not Status.OK:
        why = f"{outcome.status.name.lower().replace('_', ' ')}: {outcome.detail}"
        return json_answer({**told, "reason": why}, 409)
    if not isinstance(outcome.value, bytes):
        return json_answer({**told, "found": False})
    return json_answer({**told, "found": True, **shown(outcome.value)})


def shown(stored: bytes) -> dict[str, object]:
    try:
        value = from_stored(stored)
    except (ValueError, IndexError, msgspec.DecodeError):
        value = Serialized(stored)
    kind, text = type(value).__name__, ""
    match value:
        case None:
            kind, text = "null", "null"
        case Serialized():
            kind, text = f"of type {value.type_id}, which only its writer knows", stored.hex(" ")
        case bytes():
            text = value.hex(" ")
        case str():
            kind, text = "text", value
        case dict() | list():
            kind, text = "JSON", msgspec.json.format(msgspec.json.encode(value)).decode()
        case _:
            text = str(value)
    return {"kind": kind, "bytes": len(stored), "text": text[:VALUE_SHOWN], "cut": len(text) > VALUE_SHOWN}


class _Listener:
    """One open page. Its unread events are kept once for all pages, and bounded (observe/E-1)."""

    def __init__(self, console: ConsoleMember, stream: Stream, since: int) -> None:
        self._console = console
        self._stream = stream
        cluster_events = console.cluster_events
        self._sent = since if 0 <= since <= cluster_events.number else 0
        stream.on_room(self._catch_up)
        stream.on_closed(console.watch(self._heard))
        self._catch_up()

    def _heard(self, what: str) -> None:
        match what:
            case "happened":
                self._send_events()
            case "table":
                self._stream.send(event("table", {}))
            case _:
                self._stream.send(COMMENT)

    def _catch_up(self) -> None:
        self._stream.send(event("table", {}))
        self._send_events()

    def _send_events(self) -> None:
        cluster_events = self._console.cluster_events
        while self._sent < cluster_events.number:
            some, missed = cluster_events.since(self._sent, AT_A_TIME)
            last = some[-1].number
            told = event("happened", {"missed": missed, "lines": some})
            if not self._stream.send(b"id: " + str(last).encode() + b"\n" + told):
                return
            self._sent = last
