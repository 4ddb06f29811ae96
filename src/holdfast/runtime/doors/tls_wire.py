"""TLS on connections of the loop: a protocol for the loop, and a transport for the protocol above.

Closing needs care in both directions. Data that a peer sent before an error or a `close_notify` is valid, and is
delivered first. `close_notify` must leave before the socket closes: without it the peer must suspect that an attacker
cut the response short. The peer's own `close_notify` is not awaited: a silent peer would hold the socket.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from holdfast.runtime.doors.tls_handshake import TlsEntrance, TlsHandshake
from holdfast.runtime.doors.tls_records import CONTENT_BYTES, READ_BYTES, SLICE_BYTES, TlsRecords, broken


class TlsWire(asyncio.Protocol, asyncio.Transport):
    def __init__(self, entrance: TlsEntrance, make: Callable[[], asyncio.BaseProtocol]) -> None:
        """`make`: makes the protocol above, after the handshake."""
        super().__init__()
        self._entrance = entrance
        self._make = make
        self._records: TlsRecords | None = None
        self._behind: asyncio.BaseProtocol | None = None
        self._loop = asyncio.get_running_loop()
        self._plain: asyncio.Transport
        self._handshake: TlsHandshake
        self._paused = self._ended = self._resuming = False

    # -- calls of the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast("asyncio.Transport", transport)
        peer = str((transport.get_extra_info("peername") or ("an unknown address",))[0])
        self._handshake = TlsHandshake(self._entrance, self._plain, peer, self._open)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        if self._records is None:
            self._handshake.feed(data)
            return
        # Other members have shown a certificate; strangers might send nothing but empty records.
        step = READ_BYTES if isinstance(self._behind, asyncio.BufferedProtocol) else SLICE_BYTES
        view = memoryview(data)
        for at in range(0, len(data), step):
            self._records.put(view[at : at + step])
            self._read()
            if self.is_closing():
                return

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        if self._behind is not None:
            self._behind.connection_lost(exc)
        else:
            self._handshake.lost()

    def pause_writing(self) -> None:
        if self._behind is not None:
            self._behind.pause_writing()

    def resume_writing(self) -> None:
        if self._behind is not None:
            self._behind.resume_writing()

    def _open(self, records: TlsRecords) -> None:
        self._records = records
        self._behind = self._make()
        self._behind.connection_made(self)
        self._read()

    # -- after the handshake

    def _read(self) -> None:
        while not (self._paused or self._ended) and self._give():
            pass
        if self._records is not None and self._records.problem is not None:
            self._records.problem.report(self._entrance.connection_log, self._handshake.peer)
            self._end()
        else:
            self._flush()  # TLS may have produced a response, such as a key update.

    def _give(self) -> bool:
        """Deliver one buffer; returns whether there may be more."""
        behind, records = self._behind, self._records
        assert records is not None, "it has begun"
        if isinstance(behind, asyncio.BufferedProtocol):
            room = memoryview(cast("bytearray", behind.get_buffer(-1)))
            most, size = len(room), records.fill(room)
            if size:
                behind.buffer_updated(size)
        else:
            content = records.content()
            most, size = CONTENT_BYTES, len(content)
            if size:
                cast("asyncio.Protocol", behind).data_received(content)
        if records.ended:
            self.close()
        return size == most and not records.ended

    def _flush(self) -> None:
        if self._records is None or self._plain.is_closing():
            return
        if leaving := self._records.leaving():
            self._plain.write(leaving)

    def _end(self) -> None:
        self._ended = True
        self._flush()
        self._plain.close()

    # -- calls of the protocol above

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self._ended or self._plain.is_closing():
            return
        assert self._records is not None, "it has begun"
        try:
            sealed = b"".join([self._records.seal(memoryview(each).cast("B")) for each in list_of_data])
        except (ssl.SSLError, MemoryError) as error:
            broken(error).report(self._entrance.connection_log, self._handshake.peer)
            self._end()
            return
        if sealed:
            self._plain.write(sealed)

    def close(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._records is not None and not self._plain.is_closing():
            self._plain.write(self._records.farewell())
        self._plain.close()

    def abort(self) -> None:
        self._ended = True
        self._plain.abort()

    def is_closing(self) -> bool:
        return self._ended or self._plain.is_closing()

    def pause_reading(self) -> None:
        self._paused = True
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        if not self._paused:
            return
        self._paused = False
        if not self._plain.is_closing():
            self._plain.resume_reading()
        if not self._resuming:
            self._resuming = True
            self._loop.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        self._resuming = False
        if not self._ended:
            self._read()

    def get_write_buffer_size(self) -> int:
        return self._plain.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._plain.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._records.object if self._records is not None else default
        return self._plain.get_extra_info(name, default)
