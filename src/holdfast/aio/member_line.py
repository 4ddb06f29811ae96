"""One connection to one member: requests out, a loop turn at a time; answers in, a buffer at a time.

What a member sends that breaks the protocol ends this connection, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from holdfast.errors import HoldfastError, ProtocolError
from holdfast.wire.hazelcast_frames import (
    EVENT,
    FRAME,
    HEADER_BYTES,
    IS_BACKUP_EVENT,
    IS_EVENT,
    IS_FINAL,
    REQUEST,
    RESPONSE,
    UNFRAGMENTED,
)

EVENTS = IS_EVENT | IS_BACKUP_EVENT
_HEAD = RESPONSE
"""Length, flags, type and correlation id, which answers and events begin with alike, and a byte."""


class LineBroken(HoldfastError):
    """The connection ended while an answer was awaited: the request may have been applied."""


class LineClosed(HoldfastError):
    """The connection had ended before the request was sent: it was not applied."""


class MemberLine(asyncio.Protocol):
    """One connection. `heard` is given the kind, correlation id and bytes of each event, `lost` is told of the end."""

    def __init__(
        self, limit: int, heard: Callable[[int, int, bytes], None], lost: Callable[[MemberLine], None]
    ) -> None:
        self.member = b""
        """UUID of the member, as the protocol writes it; known once it has let us in."""
        self.address = ("", 0)
        self.loop = asyncio.get_running_loop()
        self.ended = ""
        """Why the connection has ended; empty while it lives."""
        self.heard_s = self.said_s = self.loop.time()
        self.room = asyncio.Event()
        """Unset while the member takes in less than is sent to it."""
        self.room.set()
        self.pending: dict[int, asyncio.Future[bytes]] = {}
        self._limit = limit
        self._heard = heard
        self._lost = lost
        self._correlation = 0
        self._out: list[bytes] = []
        self._came = bytearray()
        self._scanned = 0
        self._transport: asyncio.Transport | None = None

    # -- requests

    def begin(
        self, first_bytes: int, flags: int, kind: int, partition: int, rest: bytes
    ) -> tuple[int, asyncio.Future[bytes]]:
        """Send a request at the end of this loop turn, with all others of the turn.

        `first_bytes` is the length of its first frame; `rest` all that comes after the header. Raises LineClosed.
        """
        if self.ended:
            raise LineClosed(self.ended)
        self._correlation = correlation = self._correlation + 1
        future: asyncio.Future[bytes] = self.loop.create_future()
        self.pending[correlation] = future
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out.append(REQUEST.pack(first_bytes, flags, kind, correlation, partition) + rest)
        return correlation, future

    def greet(self, preamble: bytes) -> None:
        """Say what comes before all requests."""
        self._out.append(preamble)
        self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._transport is not None and self._out:
            self._transport.write(b"".join(self._out))
            self.said_s = self.loop.time()
        self._out.clear()

    # -- what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self.end(
            f"the connection to {self.address[0]}:{self.address[1]} ended" + (f" ({exc})" if exc else "")
        )

    def pause_writing(self) -> None:
        """Much is still to be taken in by the member."""
        self.room.clear()

    def resume_writing(self) -> None:
        """It has taken it in."""
        self.room.set()

    def data_received(self, data: bytes) -> None:
        """Hand each complete message to who waits for it."""
        self.heard_s = self.loop.time()
        try:
            if self._came:
                self._came += data
                start = self._take(self._came, self._scanned)
                del self._came[:start]
            else:
                start = self._take(data, 0)
                if start < len(data):
                    self._came += data[start:] if start else data
            self._scanned -= start
        except ProtocolError as broken:
            self.end(f"{self.address[0]}:{self.address[1]} sent what is no answer of this protocol: {broken}")

    def _take(self, data: bytes | bytearray, at: int) -> int:
        """Take the complete messages; answers where the first incomplete one begins."""
        start, size = 0, len(data)
        pending = self.pending
        while size - at >= HEADER_BYTES:
            length, flags = FRAME.unpack_from(data, at)
            if length < HEADER_BYTES:
                raise ProtocolError(f"a frame of {length} bytes cannot be")
            if at == start and (length < RESPONSE.size or flags & UNFRAGMENTED != UNFRAGMENTED):
                raise ProtocolError("no message begins with such a frame")
            if at + length - start > self._limit:
                raise ProtocolError(f"the message is larger than the limit of {self._limit} bytes")
            if at + length > size:
                break
            at += length
            if not flags & IS_FINAL:
                continue
            _, flags, kind, correlation, _ = _HEAD.unpack_from(data, start)
            if flags & EVENTS:
                self._event(kind, correlation, bytes(data[start:at]))
            else:
                future = pending.pop(correlation, None)
                if future is not None:
                    if not future.done():
                        future.set_result(bytes(data[start:at]))
                elif not 0 < correlation <= self._correlation:
                    raise ProtocolError(f"an answer to request {correlation}, which was never sent")
            start = at
        self._scanned = at
        return start

    def _event(self, kind: int, correlation: int, whole: bytes) -> None:
        if FRAME.unpack_from(whole)[0] < EVENT.size:
            raise ProtocolError("an event without a header")
        self._heard(kind, correlation, whole)

    # -- the end

    def end(self, why: str) -> None:
        """Close the connection; whoever waits for an answer gets LineBroken."""
        if self.ended:
            return
        self.ended = why
        if self._transport is not None:
            self._transport.abort()
        waiting, self.pending = self.pending, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LineBroken(why))
        self._out.clear()
        self.room.set()
        self._lost(self)
