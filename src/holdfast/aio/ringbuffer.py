"""A ringbuffer for asyncio programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar

from holdfast.client_core import message_decoding as views
from holdfast.client_core import request_forms as forms
from holdfast.client_core.request_forms import RequestForm, last
from holdfast.core.model.collections import partition_of_name
from holdfast.core.model.operations import MAP_NAME_MAX
from holdfast.errors import ConfigError, ProtocolError
from holdfast.serialization.serializers import Serializers
from holdfast.wire.hazelcast.hazelcast_frames import INT, LONG, NULL, RESPONSE, message, text

V = TypeVar("V")
_REPLACE_OLDEST = INT.pack(0)
_READ = Struct("<qii")
_FOUND = Struct("<iq")
_AT_ONCE = 100


class Asking(Protocol):
    serializers: Serializers

    @property
    def partition_count(self) -> int: ...

    async def ask(self, form: RequestForm, partition: int, rest: bytes) -> Any:
        """See `Client.ask`."""


class Ringbuffer(Generic[V]):
    """One ringbuffer of one client; `V` is for type checkers. Items have the sequences 0, 1, 2, …

    Operations raise Refused; `add` also raises Unknown: the item may have been added. A read that is cancelled while it
    waits stays at the member until the next item comes, or the connection ends.

        log: Ringbuffer[str] = client.ringbuffer("log")
        first = await log.add("started")
        async for sequence, item in log.read_from(first):
            print(sequence, item)
    """

    def __init__(self, client: Asking, name: str) -> None:
        """Raises ConfigError for an invalid name."""
        given: object = name  # Callers without a type checker pass anything.
        if not isinstance(given, str) or not 1 <= len(given) <= MAP_NAME_MAX:
            raise ConfigError(
                f"{name!r} cannot be a ringbuffer's name: it is a text of 1 to {MAP_NAME_MAX} characters"
            )
        self.name = name
        self._client = client
        self._named = text(name)
        self._named_last = message([self._named])
        self._read_last = message([self._named, NULL])

    async def add(self, item: V) -> int:
        """Add an item; a full ringbuffer replaces its oldest one. Returns the sequence. Raises TypeError."""
        stored = self._client.serializers.dump_value(item)
        form = forms.form(forms.RING_ADD, _REPLACE_OLDEST, self._named)
        return _number(await self._ask(form, last(stored)))

    async def head_sequence(self) -> int:
        """Sequence of the oldest item; one more than the tail if there are none."""
        return _number(await self._ask(forms.form(forms.RING_HEAD, b""), self._named_last))

    async def tail_sequence(self) -> int:
        """Sequence of the newest item; -1 before the first one."""
        return _number(await self._ask(forms.form(forms.RING_TAIL, b""), self._named_last))

    async def read_one(self, sequence: int) -> V:
        """The item of a sequence; wait for it if it is the next one. Raises Refused if it is gone, or further ahead."""
        form = forms.form(forms.RING_READ_ONE, LONG.pack(sequence))
        found: V = self._client.serializers.load(views.value_or_none(await self._ask(form, self._named_last)))
        return found

    async def read_many(self, start: int, least: int = 1, most: int = _AT_ONCE) -> list[tuple[int, V]]:
        """Up to `most` items with their sequences, beginning with `start`; wait for `least`. Begins with the oldest
        item if that one is gone. Members return up to 1,000 items, and may return fewer than `least`.
        """
        form = forms.form(forms.RING_READ_MANY, _READ.pack(start, least, most))
        whole = await self._ask(form, self._read_last)
        following = views.fixed_part(whole, RESPONSE.size, _FOUND)[1]
        items = views.values(whole)
        load = self._client.serializers.load
        return [(following - len(items) + place, load(item)) for place, item in enumerate(items)]

    async def read_from(self, start: int) -> AsyncIterator[tuple[int, V]]:
        """Sequences and items from `start` on, without end. After items that were replaced before they were read, the
        sequence is higher by more than one.
        """
        while True:
            found = await self.read_many(start)
            for sequence, item in found:
                if sequence < start:
                    raise ProtocolError(f"sequence {sequence} came twice")
                start = sequence + 1
                yield sequence, item

    async def _ask(self, form: RequestForm, rest: bytes) -> bytes:
        partition = partition_of_name(self.name, self._client.partition_count or 1)
        answer: bytes = await self._client.ask(form, partition, rest)
        return answer


def _number(whole: bytes) -> int:
    return views.fixed_part(whole, RESPONSE.size, LONG)[0]
