"""One asyncio connection to one member: requests leave once per loop turn, answers are read a buffer at a
time.

Bytes that break the protocol end this connection and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from holdfast.client_core.answer_stream import AnswerStream
from holdfast.client_core.request_forms import AIM, STEP, RequestForm
from holdfast.client_core.retries import LineBroken, LineClosed, WrongPort
from holdfast.config.addresses import format_address
from holdfast.errors import ProtocolError
from holdfast.wire import doors

Listener = Callable[[int, bytes], None]


class MemberLine(asyncio.Protocol):
    """One connection. `heard` gets this connection, and kind and bytes of each event without a registration; `lost` is
    called at its end.
    """

    def __init__(
        self, limit: int, heard: Callable[[MemberLine, int, bytes], None], lost: Callable[[MemberLine], None]
    ) -> None:
        self.member = b""
        """UUID as the protocol writes it; empty before authentication."""
        self.address = ("", 0)
        self.loop = asyncio.get_running_loop()
        self.ended = ""
        """Reason for the end of the connection; empty while it is open."""
        self.heard_s = self.said_s = self.loop.time()
        self.ready = True
        """Whether a request can be sent now: false after the end, and while the send buffer is full."""
        self.room = asyncio.Event()
        self.room.set()
        self._listeners: dict[int, Listener] = {}
        self.stream = AnswerStream(limit, self._event)
        self.pending = cast("dict[int, asyncio.Future[Any]]", self.stream.pending)
        self.out: list[bytes] = []
        """Bytes to send at the end of this turn. The request that adds the first piece schedules `flush`."""
        self._answered = False
        """The first bytes show whether this is a client port."""
        self._heard = heard
        self._lost = lost
        self._transport: asyncio.Transport | None = None

    # -- requests

    def begin(self, form: RequestForm, partition: int, rest: bytes) -> tuple[int, asyncio.Future[Any]]:
        """Send a request at the end of this loop turn, with all others of the turn. Raises LineClosed."""
        if self.ended:
            raise LineClosed(self.ended)
        stream = self.stream
        stream.count = count = stream.count + STEP
        correlation = count | form.code
        future: asyncio.Future[Any] = self.loop.create_future()
        self.pending[correlation] = future
        if not self.out:
            self.loop.call_soon(self.flush)
        self.out += (form.begins, AIM.pack(correlation, partition), form.goes_on, rest)
        return correlation, future

    def listen(self, correlation: int, listener: Listener) -> None:
        self._listeners[correlation] = listener

    def unlisten(self, correlation: int) -> None:
        self._listeners.pop(correlation, None)

    @property
    def listening(self) -> int:
        return len(self._listeners)

    def greet(self, preamble: bytes) -> None:
        self.out.append(preamble)
        self.loop.call_soon(self.flush)

    def flush(self) -> None:
        if self._transport is not None and self.out:
            self._transport.write(b"".join(self.out))
            self.said_s = self.loop.time()
        self.out.clear()

    # -- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(f"the connection to {format_address(*self.address)} ended" + (f" ({exc})" if exc else ""))

    def pause_writing(self) -> None:
        self.ready = False
        self.room.clear()

    def resume_writing(self) -> None:
        self.ready = not self.ended
        self.room.set()

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return
        self.heard_s = self.loop.time()
        if not self._answered:
            self._answered = True
            if wrong := doors.wrong_port(format_address(*self.address), data, "tls="):
                self.end(wrong, WrongPort)
                return
        try:
            self.stream.feed(data)
        except ProtocolError as broken:
            self.end(f"{format_address(*self.address)} sent an invalid response: {broken}")

    def _event(self, kind: int, correlation: int, whole: bytes) -> None:
        listener = self._listeners.get(correlation)
        if listener is not None:
            listener(kind, whole)
        else:
            self._heard(self, kind, whole)

    # -- the end

    def socket_number(self) -> int:
        found = self._transport.get_extra_info("socket") if self._transport is not None else None
        return found.fileno() if found is not None else -1

    def end(self, why: str, error: type[LineBroken] = LineBroken) -> None:
        if self.ended:
            return
        self.ended = why
        self.ready = False
        if self._transport is not None:
            self._transport.abort()
        waiting = list(self.pending.values())
        self.pending.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error(why))
        self.out.clear()
        self._listeners.clear()
        self.room.set()
        self._lost(self)
