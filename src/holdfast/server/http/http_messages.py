"""HTTP requests and responses, and how a handler responds: at once, later, or as a stream."""

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
"""A browser, which can send only a name and a password, sends a token as the password of this name."""


ONCE: Final = frozenset(
    {
        *("authorization", "content-length", "content-type", "expect", "host", "last-event-id", "origin"),
        *("sec-fetch-mode", "sec-fetch-site", "transfer-encoding"),
    }
)
"""Headers that may appear once. With two, a proxy before this member may have checked the other one (request
smuggling)."""


class BadRequest(Exception):
    """Status 400; the message is sent to the client."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    """Decoded, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Decoded; the last value of a repeated name."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case; those of `ONCE` are unique."""
    body: bytes = b""
    peer: str = ""
    rights: Rights = field(default_factory=Rights)
    """Rights of the user; none on open routes, which must not check them."""

    def json(self) -> object:
        """Raises BadRequest."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is no JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: bytes
    kind: str = TEXT
    """Content type."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers, or replacements of the defaults (`browser_rules.HEADERS`); names in lower case."""


def headers_of(pairs: Iterable[tuple[bytes, bytes]], head: bytes) -> dict[str, str]:
    """Headers by name in lower case, repeated ones joined. `head`: the raw head, in which duplicates can be counted.
    Raises BadRequest.
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
    return HttpAnswer(status, text.encode() + b"\n", TEXT, headers)


def json_answer(content: object, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, msgspec.json.encode(content), JSON)


class Stream(Protocol):
    """A response that continues, for example with server-sent events."""

    @property
    def closed(self) -> bool: ...

    def send(self, data: bytes) -> bool:
        """Send more. Returns False if it was not sent, because the client has not read earlier data: send newer data
        later (`on_room`), or nothing. An event with the complete state can be skipped that way.
        """

    def end(self) -> None: ...

    def on_room(self, tell: Callable[[], None]) -> None:
        """Call this each time that the client has read everything after data was not sent."""

    def on_closed(self, tell: Callable[[], None]) -> None:
        """Call this once when the stream ends, from either side; immediately if it has ended."""


class Responder(Protocol):
    """How a handler responds to one request: with exactly one of these, now or later."""

    @property
    def gone(self) -> bool: ...

    def answer(self, answer: HttpAnswer) -> None: ...

    def stream(self, kind: str = EVENTS, headers: Mapping[str, str] | None = None) -> Stream: ...


RouteHandler = Callable[[HttpRequest, Responder], None]
"""Handles one request, and returns at once: long work runs in slices or elsewhere. BadRequest becomes status 400,
errors of `holdfast.errors` 409; any other error is logged and becomes 500.
"""


def event(name: str, content: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"


COMMENT: Final = b":\n\n"
"""Not an event; sent regularly as a sign of life."""


def login_of(header: str, peer: str) -> Login | None:
    """Credentials of an Authorization header, or None. `peer`: the client's address."""
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
