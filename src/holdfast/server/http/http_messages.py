"""A request over HTTP, an answer, and how a handler answers: at once, later, or bit by bit."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from holdfast.server.logins import Login
from holdfast.server.rights import Rights

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream; charset=utf-8"
TOKEN_USER: Final = "token"  # noqa: S105  (the name of a user)
"""Under this name a browser, which can only give a name and a password, gives a token."""


ONCE: Final = frozenset(
    {
        *("authorization", "content-length", "content-type", "expect", "host", "last-event-id", "origin"),
        *("sec-fetch-mode", "sec-fetch-site", "transfer-encoding"),
    }
)
"""Headers that a request has once. If two differ, what stands before this member may have gone by the other one."""


class BadRequest(Exception):
    """The request cannot be carried out as it is; the message says why, and is told."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, whole."""

    method: str
    path: str
    """Decoded, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Decoded; of a name that is there twice the last value."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By their names in lower case; of those of `ONCE` there is one."""
    body: bytes = b""
    peer: str = ""
    """The address that it comes from."""
    rights: Rights = field(default_factory=Rights)
    """Of who asks. On open routes those of nobody in particular: ask nothing of them there."""

    def json(self) -> object:
        """The body as JSON. Raises BadRequest."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is no JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One answer, whole."""

    status: int
    body: bytes
    kind: str = TEXT
    """Its content type."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers, and those that are to be other than usual (`browser_rules.HEADERS`); names in lower case."""


def headers_of(pairs: Iterable[tuple[bytes, bytes]], head: bytes) -> dict[str, str]:
    """The headers of a request, by their names in lower case; a list that comes in several is put together. `head`: the
    head as it came, in which equal headers are still two. Raises BadRequest.
    """
    names = [line.partition(b":")[0].strip().lower().decode("latin-1") for line in head.split(b"\n")[1:]]
    for name in ONCE:
        if names.count(name) > 1:
            raise BadRequest(f"the header {name} is there more than once: send it once")
    headers: dict[str, str] = {}
    for name, value in ((name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs):
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def text_answer(status: int, text: str, **headers: str) -> HttpAnswer:
    """Words for people, as one line."""
    return HttpAnswer(status, text.encode() + b"\n", TEXT, headers)


def json_answer(content: object, status: int = 200) -> HttpAnswer:
    """Plain data."""
    return HttpAnswer(status, msgspec.json.encode(content), JSON)


class Stream(Protocol):
    """An answer that goes on: of server-sent events, say."""

    @property
    def closed(self) -> bool:
        """Whether nobody reads it any more."""

    def send(self, data: bytes) -> bool:
        """Send some more. False: it was not sent, for the other side has not read what it has; send the newest later
        (`on_room`), or nothing. An event that tells the state anew can be left out so.
        """

    def end(self) -> None:
        """That was all."""

    def on_room(self, tell: Callable[[], None]) -> None:
        """Call this each time that the other side has read everything after something was not sent."""

    def on_closed(self, tell: Callable[[], None]) -> None:
        """Call this once when it is over, whoever has ended it; at once if it is."""


class Responder(Protocol):
    """How a handler answers one request: with one of these, once, now or later."""

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""

    def answer(self, answer: HttpAnswer) -> None:
        """Answer as a whole."""

    def stream(self, kind: str = EVENTS, headers: Mapping[str, str] | None = None) -> Stream:
        """Answer with status 200, and what will be sent. Over when either side ends it."""


RouteHandler = Callable[[HttpRequest, Responder], None]
"""Serves one request. It returns at once: what takes long is done in turns, or by somebody else. A BadRequest that it
raises is answered with status 400, an error of `holdfast.errors` with 409; any other is told to the log, and answered
with 500.
"""


def event(name: str, content: object) -> bytes:
    """One server-sent event with data as JSON."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"


COMMENT: Final = b":\n\n"
"""Is no event: sent now and again, it shows that somebody is there."""


def login_of(header: str, peer: str) -> Login | None:
    """What an Authorization header says; None: nothing that is known. `peer`: the address that it comes from."""
    scheme, _, rest = header.partition(" ")
    rest = rest.strip()
    match scheme.lower():
        case "bearer":
            return Login(token=rest.encode(), address=peer)
        case "basic":
            try:
                # As bytes: `b64decode` raises a plain ValueError for a text that is not ASCII.
                name, colon, password = b64decode(rest.encode(), validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return None
            if not colon:
                return None
            return Login(username=name, password=password, address=peer)
        case _:
            return None
