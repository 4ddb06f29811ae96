"""Requests that come in fragments, put together again.

A fragment is a message of its own. Its first frame holds a number that its request has on this connection, and says by
its flags whether it is the first or the last one; what follows are frames of the request.

- server/N-4: All requests that are not whole take no more room together than one request may: one whose fragments make
  it more is refused, and the rest of it is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from holdfast.errors import ProtocolError, TooLarge
from holdfast.wire.hazelcast_frames import (
    BEGIN_FRAGMENT,
    END_FRAGMENT,
    FIRST_REQUEST_FRAME_BYTES,
    FRAME,
    HEADER_BYTES,
    IS_FINAL,
    UNFRAGMENTED,
)

OPEN_MAX = 64
"""Requests of one connection that may be in the middle of coming at the same time."""

_NUMBER = Struct("<q")


@dataclass(slots=True)
class _Coming:
    """A request of which some fragments have come."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    refused: bool = False


class RequestTooLarge(TooLarge):
    """The request that a fragment belongs to is too large; `head` is the request's first frame."""

    def __init__(self, reason: str, head: bytes) -> None:
        super().__init__(reason)
        self.head = head


class Fragments:
    """What has come of the requests of one connection that are not whole yet."""

    __slots__ = ("_coming", "_limit", "held")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes that a request may have, and all together that are not whole."""
        self._coming: dict[int, _Coming] = {}
        self._limit = limit
        self.held = 0
        """Bytes of requests that are not whole."""

    def take(self, data: bytes, start: int, end: int) -> bytes | None:
        """The fragment `data[start:end]` has come; answers the request if it is whole now. Raises ProtocolError, and
        RequestTooLarge once for a request.
        """
        length, flags = FRAME.unpack_from(data, start)
        (number,) = _NUMBER.unpack_from(data, start + HEADER_BYTES)
        if flags & BEGIN_FRAGMENT:
            if number in self._coming:
                raise ProtocolError(f"a second request begins as number {number}, which is not whole yet")
            if len(self._coming) >= OPEN_MAX:
                raise ProtocolError(f"more than {OPEN_MAX} requests are in the middle of coming")
            self._coming[number] = _Coming()
        coming = self._coming.get(number)
        if coming is None:
            raise ProtocolError(f"a fragment of a request, number {number}, that has not begun")
        if not coming.refused:
            self._add(coming, data[start + length : end])
        if not flags & END_FRAGMENT:
            return None
        del self._coming[number]
        self.held -= coming.size
        return None if coming.refused else _joined(coming.parts)

    def _add(self, coming: _Coming, part: bytes) -> None:
        if not part:
            raise ProtocolError("a fragment is empty")
        if not coming.parts and len(part) < FIRST_REQUEST_FRAME_BYTES:
            raise ProtocolError("the first fragment of a request lacks its first frame")
        if self.held + len(part) > self._limit:
            head = (coming.parts or [part])[0][:FIRST_REQUEST_FRAME_BYTES]
            self.held -= coming.size
            coming.parts.clear()
            coming.size, coming.refused = 0, True
            raise RequestTooLarge(f"its fragments are larger than the limit of {self._limit} bytes", head)
        coming.parts.append(part)
        coming.size += len(part)
        self.held += len(part)


def _joined(parts: list[bytes]) -> bytes:
    """The request as if it had come whole: only its last frame is final."""
    whole = bytearray()
    for number, part in enumerate(parts):
        begin = len(whole)
        whole += part
        if number < len(parts) - 1:
            last = _last_frame(whole, begin)
            length, flags = FRAME.unpack_from(whole, last)
            FRAME.pack_into(whole, last, length, flags & ~IS_FINAL)
    length, flags = FRAME.unpack_from(whole, 0)
    FRAME.pack_into(whole, 0, length, flags | UNFRAGMENTED)
    return bytes(whole)


def _last_frame(data: bytearray, at: int) -> int:
    """Where the last of the whole frames from `at` on begins."""
    while True:
        length = FRAME.unpack_from(data, at)[0]
        if at + length >= len(data):
            return at
        at += length
