"""Parser for the answers of one connection, without I/O: bytes in, answers to their waiters and events out.

Bytes that break the protocol raise ProtocolError; the connection must then be closed.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Protocol

from holdfast.client_core.request_forms import EXPECTED, LAST_VALUE
from holdfast.errors import HoldfastError, ProtocolError
from holdfast.wire.hazelcast.hazelcast_frames import (
    EVENT,
    FRAME,
    HEADER_BYTES,
    IS_BACKUP_EVENT,
    IS_EVENT,
    IS_FINAL,
    IS_NULL,
    NO_HASH,
    RESPONSE,
    UNFRAGMENTED,
)

EVENTS = IS_EVENT | IS_BACKUP_EVENT
_ALONE = UNFRAGMENTED | IS_FINAL
_NULL = IS_FINAL | IS_NULL
_BOTH = Struct("<iHiqBiH")
"""First frame of an answer without fixed-size parameters, and the header of the second frame."""
_BOTH_BYTES = _BOTH.size
_HEAD_BYTES = RESPONSE.size
_VALUE_AT = _BOTH_BYTES + len(NO_HASH)
_SHORTEST_VALUE = FRAME.size + len(NO_HASH) + 4


class Waiting(Protocol):
    def done(self) -> bool:
        """Whether it waits no more."""

    def set_result(self, result: object, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None:
        """An answer of another type has arrived."""


class OtherAnswer(HoldfastError):
    def __init__(self, whole: bytes) -> None:
        super().__init__("an answer of another type")
        self.whole = whole


class AnswerStream:
    """Answers of one connection. `heard` is called with kind, correlation id and bytes of each event."""

    __slots__ = ("_heard", "_held", "_limit", "_scanned", "count", "pending")

    def __init__(self, limit: int, heard: Callable[[int, int, bytes], None]) -> None:
        self.count = 0
        """The latest correlation id, without the code of its form."""
        self.pending: dict[int, Waiting] = {}
        self._limit = limit
        self._heard = heard
        self._held = bytearray()
        self._scanned = 0
        """How much of `_held` was scanned: the offset of a frame."""

    def feed(self, data: bytes) -> None:
        """Raises ProtocolError."""
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
        at, size = 0, len(data)
        both, pending, expected = _BOTH.unpack_from, self.pending, EXPECTED
        found: object
        while True:
            if size - at >= _BOTH_BYTES:
                length, flags, kind, correlation, _, value_length, value_flags = both(data, at)
                code = correlation & 0xFF
                if kind == expected[code]:
                    if code > LAST_VALUE:
                        if flags == _ALONE and length <= _BOTH_BYTES and length >= _HEAD_BYTES:
                            waiting = pending.pop(correlation, None)
                            if waiting is None:
                                self._check_asked(correlation)
                            elif not waiting.done():
                                waiting.set_result(length > _HEAD_BYTES and data[at + _HEAD_BYTES] != 0)
                            at += length
                            continue
                    elif flags == UNFRAGMENTED and length == _HEAD_BYTES:
                        end = at + _HEAD_BYTES + value_length
                        if value_flags == IS_FINAL and value_length >= _SHORTEST_VALUE:
                            if end > size:
                                return at
                            found = data[at + _VALUE_AT : end]
                        elif value_flags == _NULL and value_length == HEADER_BYTES:
                            found = None
                        else:
                            raise ProtocolError("a value is cut short, or more than one")
                        waiting = pending.pop(correlation, None)
                        if waiting is None:
                            self._check_asked(correlation)
                        elif not waiting.done():
                            waiting.set_result(found)
                        at = end
                        continue
            end = self._end_of(data, at, at)
            if end < 0:
                return at
            self._hand_out(data[at:end])
            at = end

    def _is_whole(self) -> bool:
        """Raises ProtocolError."""
        return self._end_of(self._held, 0, self._scanned) >= 0

    def _end_of(self, data: bytes | bytearray, start: int, at: int) -> int:
        """-1 if the message is incomplete; then `_scanned` says how much was scanned."""
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
            code = correlation & 0xFF
            if not code:
                waiting.set_result(whole)
            elif kind == EXPECTED[code] and code > LAST_VALUE:
                # A short answer at the end of a buffer, which `_take` could not read at once.
                waiting.set_result(length > _HEAD_BYTES and whole[_HEAD_BYTES] != 0)
            else:
                waiting.set_exception(OtherAnswer(whole))

    def _check_asked(self, correlation: int) -> None:
        """The waiter may have given up; but raise ProtocolError if no request had this id."""
        if not 0 < correlation >> 8 <= self.count >> 8:
            raise ProtocolError(f"an answer to request {correlation}, which was never sent")
