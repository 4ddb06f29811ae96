"""The TLS of one accepted connection, without its socket: records in, content out, and back.

Records cost their receiver the same with or without content, and key updates cost more. So a client that sends nearly
empty records is disconnected, and content is delivered in one piece.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any, cast

from holdfast.server.door import ConnectionEvents

READ_BYTES = 256 * 1024
RECORD_BYTES = 17 * 1024
"""No record is longer."""
CONTENT_BYTES = READ_BYTES + RECORD_BYTES
"""More than one read completes. Example: 16 KB of a record have come, and a read of 256 KB brings the rest of it, 15
more and a short one: 272 KB of content. Nothing would fetch what was left of it, as the socket has no more.
"""
HOLLOW_BYTES = 32 * 1024
"""Allowed bytes beyond twice the content: a record adds 22 bytes to its content, and the smallest client message is
about as long. Part of one record has no content yet. Content is no credit for later, as what follows costs the same.
"""
FREE_BYTES = 128
"""So many bytes of each read do not count. With TLS 1.2 a ping of 22 bytes comes as 51, and a client may send nothing
else for days.
"""
SLICE_BYTES = 16 * 1024
"""So much is decrypted before nearly empty records are noticed: 256 KB of key updates take 90 to 180 ms."""
_ROOM = memoryview(bytearray(CONTENT_BYTES))


@dataclass(frozen=True, slots=True)
class Problem:
    kind: str
    line: str
    """For the log: a form for the peer and `more`."""
    more: tuple[object, ...] = ()

    def report(self, connection_log: ConnectionEvents, peer: str) -> None:
        connection_log.report(self.kind, self.line, peer, *self.more)


def broken(error: ssl.SSLError | MemoryError) -> Problem:
    why = "no memory is left" if isinstance(error, MemoryError) else error
    return Problem("broken TLS connections", "TLS connection from %s broke: %s", (why,))


class TlsRecords:
    __slots__ = ("_came", "_hollow_bytes", "_leaves", "_shaken", "ended", "object", "problem")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._came, self._leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self._came, self._leaves, server_side=True)
        self._shaken = False
        self._hollow_bytes = 0
        """Encrypted bytes received since the handshake that are not covered by content."""
        self.ended = False
        """Whether the peer has closed: no content follows."""
        self.problem: Problem | None = None
        """The reason to close the connection. Content before it is valid."""

    def put(self, data: bytes | memoryview) -> None:
        """These bytes have come."""
        self._came.write(data)
        if self._shaken:
            self._hollow_bytes += max(0, len(data) - FREE_BYTES)

    def shake_hands(self) -> bool:
        """Whether the handshake is complete. Raises SSLError, and whatever else a stranger's bytes can cause."""
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._shaken = True
        return True

    def fill(self, room: memoryview) -> int:
        """Decrypt into `room` what has come; returns the bytes. If they are fewer than it holds, no more follow, and
        `ended` and `problem` are up to date.
        """
        size = 0
        try:
            while size < len(room) and (self._came.pending or self.object.pending()):
                more = cast("int", self.object.read(len(room) - size, cast("bytearray", room[size:])))
                if not more:
                    self.ended = True
                    break
                size += more
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.problem = broken(error)
        self._hollow_bytes = max(0, self._hollow_bytes - 2 * size)
        if size < len(room) and self._hollow_bytes - self._came.pending > HOLLOW_BYTES:
            line = "TLS connection from %s closed: its records are nearly empty"
            self.problem = Problem("TLS connections closed: nearly empty records", line)
        return size

    def content(self) -> bytes:
        """At most `CONTENT_BYTES` of what has come; if fewer, no more follow."""
        return bytes(_ROOM[: self.fill(_ROOM)])

    def take(self, data: bytes) -> bytes:
        """All content that these bytes of one read complete; they are at most `READ_BYTES`."""
        size, view = 0, memoryview(data)
        for at in range(0, len(data) or 1, SLICE_BYTES):
            self.put(view[at : at + SLICE_BYTES])
            size += self.fill(_ROOM[size:])
            if self.ended or self.problem is not None:
                break
        assert size < CONTENT_BYTES, "nothing is left for the next read"
        return bytes(_ROOM[:size])

    def seal(self, data: bytes | bytearray | memoryview[Any]) -> bytes:
        """The records of this content, after messages of TLS itself. Raises SSLError."""
        gone = self.object.write(data) if data else 0
        while gone < len(data):
            gone += self.object.write(memoryview(data)[gone:])
        return self._leaves.read()

    def leaving(self) -> bytes:
        """Messages of TLS itself that must be sent: parts of the handshake, an alert, a key update."""
        return self._leaves.read() if self._leaves.pending else b""

    def farewell(self) -> bytes:
        """`close_notify`, after what must still be sent. The peer's own is not awaited."""
        try:
            self.object.unwrap()
        except ssl.SSLError:
            pass
        return self.leaving()
