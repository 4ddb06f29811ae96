"""What comes back on one connection: bytes in, a buffer at a time; answers to who waits for them, and events, out.

It knows no socket. What breaks the protocol raises ProtocolError; then the connection is of no use any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.aio.request_forms import EXPECTED, LAST_VALUE
from holdfast.errors import HoldfastError, ProtocolError
from holdfast.wire.hazelcast_frames import (
    EVENT,
    FRAME,
    HEADER_BYTES,
    IS_BACKUP_EVENT,
    IS_EVENT,
    IS_FINAL,
    IS_NULL,
    RESPONSE,
    UNFRAGMENTED,
)

EVENTS = IS_EVENT | IS_BACKUP_EVENT
_ALONE = UNFRAGMENTED | IS_FINAL
_HASH_END = FRAME.size + 4
_SHORTEST_VALUE = _HASH_END + 4
_HEAD_BYTES = RESPONSE.size


class Waiting(Protocol):
    """Who waits for an answer: a future, or what a thread waits on."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, result: object, /) -> None:
        """This is the answer."""

    def set_exception(self, error: BaseException, /) -> None:
        """There is none of the kind that was asked for."""


class OtherAnswer(HoldfastError):
    """An answer of another type than was asked for; most often an error."""

    def __init__(self, whole: bytes) -> None:
        super().__init__("an answer of another type")
        self.whole = whole


class AnswerStream:
    """The answers of one connection. `heard` is given the kind, correlation id and bytes of each event."""

    __slots__ = ("_heard", "_held", "_limit", "_scanned", "count", "pending")

    def __init__(self, limit: int, heard: Callable[[int, int, bytes], None]) -> None:
        """`limit`: bytes of the longest message that is taken."""
        self.count = 0
        """The correlation id that was given out last, without its form."""
        self.pending: dict[int, Waiting] = {}
        """By correlation id."""
        self._limit = limit
        self._heard = heard
        self._held = bytearray()
        """The beginning of a message that has not come whole."""
        self._scanned = 0
        """How much of that was looked at: where a frame begins."""

    def feed(self, data: bytes) -> None:
        """Take what has come. Raises ProtocolError."""
        if self._held:
            self._held += data
            if not self._is_whole():
                return
            data = bytes(self._held)
            self._held.clear()
        self._scanned = 0
        start = self._take(data)
        if start < len(data):
            self._held += memoryview(data)[start:]
            self._is_whole()

    def _take(self, data: bytes) -> int:
        """Hand out all complete messages; answers where the first incomplete one begins."""
        at, size = 0, len(data)
        head, frame, pending = RESPONSE.unpack_from, FRAME.unpack_from, self.pending
        while size - at >= _HEAD_BYTES:
            length, flags, kind, correlation, _ = head(data, at)
            code = correlation & 0xFF
            second = at + length
            found: object
            if kind == EXPECTED[code] and length >= _HEAD_BYTES:
                if flags == UNFRAGMENTED and code <= LAST_VALUE:
                    if second + HEADER_BYTES > size:
                        break
                    length, flags = frame(data, second)
                    end = second + length
                    if flags & IS_FINAL and length >= HEADER_BYTES:
                        if end > size:
                            break
                        if length >= _SHORTEST_VALUE:
                            found = data[second + _HASH_END : end]
                        elif flags & IS_NULL:
                            found = None
                        else:
                            raise ProtocolError("a value is cut short")
                        waiting = pending.pop(correlation, None)
                        if waiting is None:
                            self._check_asked(correlation)
                        elif not waiting.done():
                            waiting.set_result(found)
                        at = end
                        continue
                elif flags == _ALONE and code > LAST_VALUE:
                    if second > size:
                        break
                    waiting = pending.pop(correlation, None)
                    if waiting is None:
                        self._check_asked(correlation)
                    elif not waiting.done():
                        waiting.set_result(length > _HEAD_BYTES and data[at + _HEAD_BYTES] != 0)
                    at = second
                    continue
            end = self._end_of(data, at, at)
            if end < 0:
                break
            self._hand_out(bytes(data[at:end]))
            at = end
        return at

    def _is_whole(self) -> bool:
        """Whether what is held has a complete message in it. Raises ProtocolError."""
        return self._end_of(self._held, 0, self._scanned) >= 0

    def _end_of(self, data: bytes | bytearray, start: int, at: int) -> int:
        """Where the message ends, -1 if that has not come: then `_scanned` is how much of it was looked at."""
        size = len(data)
        while size - at >= HEADER_BYTES:
            length, flags = FRAME.unpack_from(data, at)
            if length < HEADER_BYTES:
                raise ProtocolError(f"a frame of {length} bytes cannot be")
            if at == start and (length < _HEAD_BYTES or flags & UNFRAGMENTED != UNFRAGMENTED):
                raise ProtocolError("no message begins with such a frame")
            if at + length - start > self._limit:
                raise ProtocolError(f"the message is larger than the limit of {self._limit} bytes")
            if at + length > size:
                break
            at += length
            if flags & IS_FINAL:
                return at
        self._scanned = at - start
        return -1

    def _hand_out(self, whole: bytes) -> None:
        length, flags, kind, correlation, _ = RESPONSE.unpack_from(whole)
        if flags & EVENTS:
            if length < EVENT.size:
                raise ProtocolError("an event without a header")
            self._heard(kind, correlation, whole)
            return
        waiting = self.pending.pop(correlation, None)
        if waiting is None:
            self._check_asked(correlation)
        elif not waiting.done():
            if correlation & 0xFF:
                waiting.set_exception(OtherAnswer(whole))
            else:
                waiting.set_result(whole)

    def _check_asked(self, correlation: int) -> None:
        """Nobody waits for it, which may be because who asked has gone. Raises ProtocolError if nobody ever asked."""
        if not 0 < correlation >> 8 <= self.count >> 8:
            raise ProtocolError(f"an answer to request {correlation}, which was never sent")
