"""A socket of the poll until its TLS handshake is complete."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from holdfast.runtime.doors.tls_handshake import TlsEntrance, TlsHandshake
from holdfast.runtime.doors.tls_records import TlsRecords

READ_BYTES = 16 * 1024


class HandshakingSocket:
    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        entrance: TlsEntrance,
        done: Callable[[HandshakingSocket, TlsRecords], None],
        closed: Callable[[HandshakingSocket], None],
    ) -> None:
        """Exactly one of `done` and `closed` is called."""
        self.sock = sock
        self.peer = peer
        self._done = done
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._read)
        self._handshake = TlsHandshake(entrance, self, peer, self._finish)

    def _read(self) -> None:
        try:
            data = self.sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._handshake.feed(data)
        else:
            self.close()

    def _finish(self, records: TlsRecords) -> None:
        self._loop.remove_reader(self.sock.fileno())
        self._done(self, records)

    def write(self, data: bytes) -> None:
        """All at once: a handshake is shorter than the buffer of a new socket."""
        try:
            gone = self.sock.send(data)
        except OSError:
            gone = -1
        if gone < len(data):
            self.abort()

    def close(self) -> None:
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock.fileno())
            self.sock.close()
            self._handshake.lost()
            self._closed(self)

    def abort(self) -> None:
        self.close()
