"""One connection to one member: requests out, a loop turn at a time; answers in, a buffer at a time.

What a member sends that breaks the protocol ends this connection, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from holdfast.aio.answer_stream import AnswerStream
from holdfast.aio.request_forms import AIM, STEP, RequestForm
from holdfast.config.addresses import format_address
from holdfast.errors import HoldfastError, ProtocolError
from holdfast.wire import doors

Listener = Callable[[int, bytes], None]
"""Is given the type and the bytes of each event of its registration."""


class LineBroken(HoldfastError):
    """The connection ended while an answer was awaited: the request may have been applied."""


class LineClosed(HoldfastError):
    """The connection had ended before the request was sent: it was not applied."""


class WrongPort(LineBroken):
    """Something else than a client port answers at this address, and will the next time too."""


class MemberLine(asyncio.Protocol):
    """One connection. `heard` is given the kind and bytes of each event that is of no registration; `lost` is told of
    the end.
    """

    def __init__(
        self, limit: int, heard: Callable[[int, bytes], None], lost: Callable[[MemberLine], None]
    ) -> None:
        self.member = b""
        """UUID of the member, as the protocol writes it; known once it has let us in."""
        self.address = ("", 0)
        self.loop = asyncio.get_running_loop()
        self.ended = ""
        """Why the connection has ended; empty while it lives."""
        self.heard_s = self.said_s = self.loop.time()
        self.ready = True
        """Whether a request can leave now: unset when it has ended, and while the member takes in less than is sent."""
        self.room = asyncio.Event()
        """Unset while the member takes in less than is sent to it."""
        self.room.set()
        self._listeners: dict[int, Listener] = {}
        """By the correlation id of the registration."""
        self.stream = AnswerStream(limit, self._event)
        self.pending = cast("dict[int, asyncio.Future[Any]]", self.stream.pending)
        self.out: list[bytes] = []
        """Pieces of what leaves at the end of this turn. Who adds the first one has `flush` called."""
        self._answered = False
        """Whether any bytes have come. The first ones tell whether this is the port of something else."""
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
        """Events of this registration are for this listener."""
        self._listeners[correlation] = listener

    def unlisten(self, correlation: int) -> None:
        """Nobody is told of events of this registration any more."""
        self._listeners.pop(correlation, None)

    @property
    def listening(self) -> int:
        """How many registrations there are."""
        return len(self._listeners)

    def greet(self, preamble: bytes) -> None:
        """Say what comes before all requests."""
        self.out.append(preamble)
        self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Let everything leave."""
        if self._transport is not None and self.out:
            self._transport.write(b"".join(self.out))
            self.said_s = self.loop.time()
        self.out.clear()

    # -- what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self.end(f"the connection to {format_address(*self.address)} ended" + (f" ({exc})" if exc else ""))

    def pause_writing(self) -> None:
        """Much is still to be taken in by the member."""
        self.ready = False
        self.room.clear()

    def resume_writing(self) -> None:
        """It has taken it in."""
        self.ready = not self.ended
        self.room.set()

    def data_received(self, data: bytes) -> None:
        """Hand each complete message to who waits for it."""
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
            self.end(f"{format_address(*self.address)} sent what is no answer of this protocol: {broken}")

    def _event(self, kind: int, correlation: int, whole: bytes) -> None:
        listener = self._listeners.get(correlation)
        if listener is not None:
            listener(kind, whole)
        else:
            self._heard(kind, whole)

    # -- the end

    def socket_number(self) -> int:
        """As the system counts them; -1 when there is none."""
        found = self._transport.get_extra_info("socket") if self._transport is not None else None
        return found.fileno() if found is not None else -1

    def end(self, why: str, error: type[LineBroken] = LineBroken) -> None:
        """Close the connection; requests that wait for an answer raise `error`."""
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
