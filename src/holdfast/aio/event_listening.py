"""Events of one registration with the members: read by iteration, or passed to a function."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, Self, TypeVar

from holdfast.aio.member_line import MemberLine
from holdfast.aio.subscriptions import Subscriptions
from holdfast.client_core.request_forms import RequestForm
from holdfast.errors import HoldfastError, ProtocolError
from holdfast.serialization.serializers import Serializers
from holdfast.wire.hazelcast.hazelcast_frames import IS_NULL
from holdfast.wire.values import Serialized

E = TypeVar("E")
KEEP = 10_000
"""Most events that wait for iteration, unless the listener says otherwise."""


class ListenerLags(HoldfastError):
    """More events arrived than `keep` allows to wait for iteration: some were dropped, and the listener has ended."""


class Listened(Protocol):
    """The client of a listener."""

    serializers: Serializers
    subscriptions: Subscriptions

    def lines(self) -> list[MemberLine]: ...

    async def wait_connected(self) -> None:
        """See `Client.wait_connected`."""


class EventListening(ABC, Generic[E]):
    """Events of type `E`. An asynchronous iterator and context manager; a `Subscriber`."""

    unlisten: int
    """The kind of the request that ends a registration."""

    def __init__(self, name: str, client: Listened, on_event: Callable[[E], None] | None, keep: int) -> None:
        self.name = name
        self._client = client
        self._on_event = on_event
        self._keep = keep
        self._events: deque[E] = deque()
        self._more = asyncio.Event()
        self._ended = False
        self._lags = False

    async def begin(self) -> Self:
        """Register with all members. Raises HoldfastError if all reject it."""
        await self._client.wait_connected()
        await self._client.subscriptions.begin(self, self._client.lines())
        return self

    @abstractmethod
    def request(self) -> tuple[RequestForm, bytes]:
        """The registration request and its last frames."""

    @abstractmethod
    def begun(self, line: MemberLine, again: bool) -> None:
        """This member sends events from now on. `again`: there was a gap before."""

    @abstractmethod
    def heard(self, line: MemberLine, kind: int, whole: bytes) -> None:
        """Raises ProtocolError."""

    def lost(self, line: MemberLine) -> None:
        """The gap is reported when the next connection has registered."""

    def closed(self) -> None:
        """Iteration ends."""
        self._ended = True
        self._more.set()

    def value_in(self, found: tuple[int, bytes]) -> Any:
        """The value of a frame. Raises ProtocolError."""
        flags, payload = found
        if flags & IS_NULL:
            return None
        if len(payload) < 8:
            raise ProtocolError("a value is cut short")
        try:
            return self._client.serializers.load(payload[4:])
        except Exception:  # noqa: BLE001 - values of others, and how the user reads them, end no connection
            return Serialized(payload[4:])

    def report(self, event: E) -> None:
        """Pass an event to the function, or keep it for iteration."""
        if self._ended:
            return
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception as error:  # noqa: BLE001 - the user's own function must not end a connection
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a listener of holdfast.aio failed", "exception": error}
                )
            return
        if len(self._events) >= self._keep:
            self._lags = self._ended = True
        else:
            self._events.append(event)
        self._more.set()

    # -- iterating

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        """The next event. Raises ListenerLags after the kept ones if too many arrived."""
        while not self._events:
            if self._lags:
                self._lags = False
                await self.close()
                raise ListenerLags(f"more than {self._keep} events of {self.name!r} waited to be read")
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        return self._events.popleft()

    async def close(self) -> None:
        self.closed()
        await self._client.subscriptions.end(self, self.unlisten, self.name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
