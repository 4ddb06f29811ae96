"""Messages with many small parts, and the time for which they block a member's event loop.

A message of 16 MB may have 2.6 million frames, lists or names. `python -m holdfast_lab fuzz` sends such messages, and
`holdfast_lab.bench.turns` measures each of them. The figure is the processor time of a member between two answers to
another client: an upper bound of the longest turn. On a busy machine several turns count as one, so it may be many
times that.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from holdfast.actions.configure import Configure
from holdfast.actions.show_status import ShowStatus
from holdfast.client.action_messages import request_of
from holdfast.config.client_tls import ClientTls
from holdfast.wire import own
from holdfast.wire.hazelcast import hazelcast_frames as hz
from holdfast.wire.values import to_stored
from holdfast_lab.fuzz.secured import connected

Make = Callable[[int], bytes]

PAUSE_S: Final = 0.002
PATIENCE_S: Final = 60.0
EMPTY: Final = hz.frame(b"")
KEY: Final = hz.data(to_stored("k"))
MAP: Final = hz.text("crowd")
CORRELATION: Final = 9


def _request(kind: int, *frames: bytes, fixed: bytes = b"") -> bytes:
    head = struct.pack("<iqi", kind, CORRELATION, -1) + fixed
    first = hz.FRAME.pack(hz.HEADER_BYTES + len(head), hz.UNFRAGMENTED) + head
    return hz.message([first, *frames])


def _times(part: bytes, size: int) -> bytes:
    return part * max(1, size // len(part))


def _each(make: Callable[[int], bytes], size: int) -> bytes:
    count = max(1, size // len(make(10**6)))
    return b"".join(map(make, range(10**6, 10**6 + count)))


def _key(number: int) -> bytes:
    return hz.data(to_stored(number))


def _schema(fields: bytes) -> bytes:
    return hz.BEGIN + hz.text("c") + hz.BEGIN + fields + hz.END + hz.END


def _named_schema(number: int) -> bytes:
    return hz.BEGIN + hz.text(f"c{number}") + hz.BEGIN + hz.END + hz.END


_FIELD = hz.BEGIN + hz.frame(hz.INT.pack(5)) + hz.text("f") + hz.END
_PING = _request(0x000B00)


def _put_all(size: int) -> bytes:
    return _request(0x012C00, MAP, hz.BEGIN, _each(lambda at: _key(at) + KEY, size), hz.END)


def _fragments(size: int) -> bytes:
    rest = _times(EMPTY, size)
    first = _request(0x012300, MAP, hz.BEGIN)
    number = hz.FRAME.pack(hz.FIRST_FRAGMENT_FRAME_BYTES, hz.BEGIN_FRAGMENT) + hz.LONG.pack(1)
    last = hz.FRAME.pack(hz.FIRST_FRAGMENT_FRAME_BYTES, hz.END_FRAGMENT) + hz.LONG.pack(1)
    return number + first + last + rest + hz.message([hz.END])


CLIENT_CROWDS: Final[Mapping[str, Make]] = MappingProxyType(
    {
        "getAll, empty frames": lambda size: _request(0x012300, MAP, hz.BEGIN, _times(EMPTY, size), hz.END),
        "getAll, one key": lambda size: _request(0x012300, MAP, hz.BEGIN, _times(KEY, size), hz.END),
        "getAll, many keys": lambda size: _request(0x012300, MAP, hz.BEGIN, _each(_key, size), hz.END),
        "getAll, in fragments": _fragments,
        "putAll": _put_all,
        "sendAllSchemas": lambda size: _request(0x001500, hz.BEGIN, _each(_named_schema, size), hz.END),
        "sendSchema, many fields": lambda size: _request(
            0x001300, _schema(_times(_FIELD, size))[: -len(hz.END)], hz.END
        ),
        "createProxies": lambda size: _request(
            0x000E00,
            hz.BEGIN,
            _each(lambda at: hz.text(f"x{at % 50}") + hz.text("hz:impl:mapService"), size),
            hz.END,
        ),
        "near-cache names": lambda size: _request(
            0x013D00, hz.BEGIN, _times(MAP, size), hz.END, fixed=bytes(17)
        ),
        "ping, frames behind": lambda size: _request(0x000B00, _times(EMPTY, size), EMPTY),
        "pings": lambda size: _times(_PING, size),
        "getEntryView": lambda size: _times(_request(0x011D00, MAP, KEY, fixed=bytes(8)), size),
        "putIfAbsent": lambda size: _times(_request(0x010E00, MAP, KEY, KEY, fixed=bytes(16)), size),
    }
)


def _list(count: int, part: bytes) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + part * count


def _question(tag: int, *parts: bytes) -> bytes:
    body = bytes((0x90 | 2 + len(parts), tag, 1)) + b"".join(parts)
    return struct.pack("<I", len(body)) + body


def _rows(size: int) -> bytes:
    rows = min(own.ROWS_MAX, size // 30)
    keys = [to_stored(number) for number in range(rows)]
    return own.frame(own.PutColumns(1, "crowd", [0], [rows], own.ColumnBatch.of(keys, keys)))


OWN_CROWDS: Final[Mapping[str, Make]] = MappingProxyType(
    {
        "empty lists": lambda size: _question(2, b"\xc2", _list(size, b"\x90")),
        "settings": lambda size: own.frame(
            request_of(1, Configure({str(at): "" for at in range(size // 8)}), 1)
        ),
        "rows": _rows,
        "rows without bytes": lambda size: own.frame(
            own.PutColumns(
                1, "crowd", [0], [1], own.ColumnBatch(size // 8, bytes(size // 2), b"", bytes(size // 2), b"")
            )
        ),
        "tables": lambda size: _times(own.frame(own.AskTable(1)), min(size, 100_000)),
        "scans": lambda size: _times(
            own.frame(own.Scan(1, "crowd", 1, rows_max=65_536, bytes_max=1 << 22)), min(size, 100_000)
        ),
        "statuses": lambda size: _times(own.frame(request_of(1, ShowStatus(), 5)), min(size, 20_000)),
    }
)

_POST = b"POST /v1/actions/configure HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
HTTP_CROWDS: Final[Mapping[str, Make]] = MappingProxyType(
    {
        "chunks of one byte": lambda size: (
            _POST + b"Transfer-Encoding: chunked\r\n\r\n" + _times(b"1\r\nx\r\n", size)
        ),
        "chunks, nothing there": lambda size: (
            b"POST /nothing HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            + _times(b"1\r\nx\r\n", size)
        ),
        "headers": lambda size: b"GET /status HTTP/1.1\r\nHost: a\r\n" + _times(b"a:\r\n", size) + b"\r\n",
        "lists": lambda size: (
            _POST + b"Content-Length: %d\r\n\r\n" % min(size, 262_143) + _times(b"[],", min(size, 262_143))
        ),
        "requests": lambda size: _times(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n", min(size, 60_000)),
    }
)


class TurnMeter:
    """A client with cheap requests that measures a member's processor time between two answers."""

    def __init__(self, pid: int, address: tuple[str, int], tls: ClientTls | None = None) -> None:
        self._times = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self._address = address
        self._tls = tls
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._longest_ns = 0
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _processor_ns(self) -> int:
        return int(self._times.read_text(encoding="ascii").split()[0])

    def _live(self) -> None:
        frames = own.Frames(1 << 20)
        with suppress(OSError, ValueError), connected(self._address, PATIENCE_S, self._tls) as connection:
            connection.sendall(own.PREAMBLE + own.frame(own.Hello(1, own.VERSION, operates=True)))
            self._answer(connection, frames)
            before_ns = self._processor_ns()
            while not self._over.is_set():
                connection.sendall(own.frame(own.Watch(2)))
                self._answer(connection, frames)
                now_ns = self._processor_ns()
                with self._lock:
                    self._longest_ns = max(self._longest_ns, now_ns - before_ns)
                before_ns = now_ns
                time.sleep(PAUSE_S)

    @staticmethod
    def _answer(connection: socket.socket, frames: own.Frames) -> None:
        while frames.take() is None:
            piece = connection.recv(1 << 16)
            if not piece:
                raise ConnectionResetError("closed")
            frames.feed(piece)

    def take_ms(self) -> float:
        """Longest time between two answers since the last call, in milliseconds of processor time."""
        with self._lock:
            longest_ns, self._longest_ns = self._longest_ns, 0
        return longest_ns / 1e6

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)
