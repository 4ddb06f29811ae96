"""Entry listeners: changes of a map, sent by the members that made them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Self
from uuid import UUID

from holdfast.aio.member_line import MemberLine
from holdfast.aio.subscriptions import Subscriptions
from holdfast.client_core.message_decoding import fixed_part, reader_of
from holdfast.client_core.request_forms import LISTEN, LISTEN_TO_KEY, RequestForm, form
from holdfast.errors import HoldfastError, ProtocolError
from holdfast.serialization.entry_changes import ChangeKind, EntryChange
from holdfast.wire.hazelcast.hazelcast_frames import EVENT, IS_NULL, data, message, text
from holdfast.wire.values import Serialized

_WISHES = Struct("<?i?")
_FIXED = Struct("<i17si")


ALL = sum(ChangeKind)


@lru_cache(maxsize=64)
def _uuid(raw: bytes) -> str:
    """The protocol writes a null flag and two halves, each with its last byte first."""
    return "" if raw[0] else str(UUID(bytes=raw[8:0:-1] + raw[:8:-1]))


class ListenerLags(HoldfastError):
    """More changes arrived than `keep` allows to wait for iteration: some were dropped, and the listener has ended."""


class EntryListening:
    """Changes of one map, in order for each key. An asynchronous iterator and context manager; a `Subscriber`.

    Each change is reported once, by the member that made it. Changes are missed while a member is not
    connected; then there is one change of kind `MISSED`.

        async with await flights.listen() as changes:
            async for change in changes:
                print(change.kind, change.key)
    """

    def __init__(
        self,
        name: str,
        key: bytes | None,
        load: Callable[[bytes | None], Any],
        subscriptions: Subscriptions,
        told: Callable[[EntryChange], None] | None,
        keep: int,
        *,
        include_value: bool,
    ) -> None:
        self.name = name
        self._key = key
        self._load = load
        self._subscriptions = subscriptions
        self._told = told
        self._include_value = include_value
        self._keep = keep
        self._changes: deque[EntryChange] = deque()
        self._more = asyncio.Event()
        self._ended = False
        self._lags = False

    def request(self) -> tuple[RequestForm, bytes]:
        """Each member reports changes of its own partitions."""
        wishes = _WISHES.pack(self._include_value, ALL, True)
        if self._key is None:
            return form(LISTEN, wishes), message([text(self.name)])
        return form(LISTEN_TO_KEY, wishes), message([text(self.name), data(self._key)])

    def begun(self, line: MemberLine, again: bool) -> None:
        """The member reports changes from now on; a later connection has missed some before."""
        if again:
            self._tell(EntryChange(ChangeKind.MISSED))

    def lost(self, line: MemberLine) -> None:
        """MISSED is reported when the next connection has registered."""

    def closed(self) -> None:
        """Iteration ends."""
        self._ended = True
        self._more.set()

    def heard(self, line: MemberLine, kind: int, whole: bytes) -> None:
        """Raises ProtocolError."""
        number, member, count = fixed_part(whole, EVENT.size, _FIXED)
        frames = reader_of(whole)
        key, value, old = (self._value(frames.next()) for _ in range(3))
        try:
            what = ChangeKind(number)
        except ValueError:
            return  # A kind that was not requested.
        self._tell(EntryChange(what, key, value, old, count, _uuid(member)))

    def _value(self, found: tuple[int, bytes]) -> Any:
        flags, payload = found
        if flags & IS_NULL:
            return None
        if len(payload) < 8:
            raise ProtocolError("a value is cut short")
        try:
            return self._load(payload[4:])
        except Exception:  # noqa: BLE001 - what others have stored, and how the user reads it, ends no connection
            return Serialized(payload[4:])

    def _tell(self, change: EntryChange) -> None:
        if self._ended:
            return
        if self._told is not None:
            try:
                self._told(change)
            except Exception as error:  # noqa: BLE001 - the user's own function must not end a connection
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a listener of holdfast.aio failed", "exception": error}
                )
            return
        if len(self._changes) >= self._keep:
            self._lags = self._ended = True
        else:
            self._changes.append(change)
        self._more.set()

    # -- iterating

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EntryChange:
        """The next change. Raises ListenerLags after the kept ones if too many arrived."""
        while not self._changes:
            if self._lags:
                self._lags = False
                await self.close()
                raise ListenerLags(f"more than {self._keep} changes of {self.name!r} waited to be read")
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        return self._changes.popleft()

    async def close(self) -> None:
        self.closed()
        await self._subscriptions.end(self, self.name, lambda error: None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
