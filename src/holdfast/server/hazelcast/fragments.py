"""Reassembly of requests that arrive in fragments.

A fragment is a message. Its first frame has a number that identifies the request on this connection, and flags for the
first and last fragment; frames of the request follow.

- server/N-4: All incomplete requests together take no more memory than one request may. One that exceeds the limit is
  rejected, and its remaining fragments are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from holdfast.errors import ProtocolError, TooLarge
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN_FRAGMENT,
    END_FRAGMENT,
    FIRST_REQUEST_FRAME_BYTES,
    FRAME,
    HEADER_BYTES,
    IS_FINAL,
    UNFRAGMENTED,
    check_first_frame,
)

OPEN_MAX = 64

_NUMBER = Struct("<q")


@dataclass(slots=True)
class _Coming:
    parts: list[bytes | memoryview] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    """Offset of the last frame in each part."""
    size: int = 0
    refused: bool = False


class RequestTooLarge(TooLarge):
    """`head` is the first frame of the request that is too large."""

    def __init__(self, reason: str, head: bytes) -> None:
        super().__init__(reason)
        self.head = head


class Fragments:
    __slots__ = ("_coming", "_limit", "held")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes of a request, and of all incomplete ones."""
        self._coming: dict[int, _Coming] = {}
        self._limit = limit
        self.held = 0

    def take(self, data: bytes, start: int, last: int, end: int) -> bytes | None:
        """Add the fragment `data[start:end]` with its last frame at `last`. Returns the request if it is complete.
        Raises ProtocolError, and RequestTooLarge once per request.
        """
        length, flags = FRAME.unpack_from(data, start)
        (number,) = _NUMBER.unpack_from(data, start + HEADER_BYTES)
        if flags & BEGIN_FRAGMENT:
            if number in self._coming:
                raise ProtocolError(f"a second request begins as number {number}, which is incomplete")
            if len(self._coming) >= OPEN_MAX:
                raise ProtocolError(f"more than {OPEN_MAX} requests are in the middle of coming")
            self._coming[number] = _Coming()
        coming = self._coming.get(number)
        if coming is None:
            raise ProtocolError(f"a fragment of a request, number {number}, that has not begun")
        if not coming.refused:
            self._add(coming, _part(data, start + length, end), last - start - length)
        if not flags & END_FRAGMENT:
            return None
        del self._coming[number]
        self.held -= coming.size
        return None if coming.refused else _joined(coming)

    def _add(self, coming: _Coming, part: bytes | memoryview, last: int) -> None:
        if not part:
            raise ProtocolError("a fragment is empty")
        if not coming.parts and len(part) < FIRST_REQUEST_FRAME_BYTES:
            raise ProtocolError("the first fragment of a request lacks its first frame")
        if self.held + len(part) > self._limit:
            head = bytes((coming.parts or [part])[0][:FIRST_REQUEST_FRAME_BYTES])
            self.held -= coming.size
            coming.parts.clear()
            coming.lasts.clear()
            coming.size, coming.refused = 0, True
            raise RequestTooLarge(f"its fragments are larger than the limit of {self._limit} bytes", head)
        coming.parts.append(part)
        coming.lasts.append(last)
        coming.size += len(part)
        self.held += len(part)


def _part(data: bytes, begin: int, end: int) -> bytes | memoryview:
    """A part of the buffer: a view if it is most of it, because copying takes some ms."""
    if end - begin > len(data) // 2:
        return memoryview(data)[begin:end]
    return data[begin:end]


def _joined(coming: _Coming) -> bytes:
    """The request as one message: only its last frame is final. Copies once."""
    length, flags = FRAME.unpack_from(coming.parts[0])
    check_first_frame(length, flags | UNFRAGMENTED)
    pieces: list[bytes | memoryview] = []
    for number, (part, last) in enumerate(zip(coming.parts, coming.lasts, strict=True)):
        headers = {0: UNFRAGMENTED} if not number else {}
        if number < len(coming.parts) - 1:
            headers[last] = headers.get(last, 0)
        begin = 0
        for at, more in headers.items():
            size, flags = FRAME.unpack_from(part, at)
            if number < len(coming.parts) - 1 and at == last:
                flags &= ~IS_FINAL
            pieces += (part[begin:at], FRAME.pack(size, flags | more))
            begin = at + HEADER_BYTES
        pieces.append(part[begin:])
    return b"".join(pieces)
