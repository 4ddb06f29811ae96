"""A map, as an asyncio program uses it. Values are those that `holdfast.wire.values` stores.

Every operation raises Refused (certainly not applied) or Unknown (it may have been), and those that only read never
Unknown. One that is cancelled may have been applied.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

import msgspec

from holdfast.aio import member_views as views
from holdfast.aio.member_views import RequestForm
from holdfast.core.model.keys import partition_of
from holdfast.errors import ConfigError, ProtocolError, Refused, Unknown
from holdfast.wire.hazelcast_frames import BEGIN, END, FRAME, IS_FINAL, LONG, NO_HASH, data, message, text
from holdfast.wire.values import from_stored, to_stored

Answer = TypeVar("Answer")

THREAD = LONG.pack(1)
NO_TTL = -1
LOAD = b"\x01"
"""Of put_all: entries are loaded from a map store, where there is one."""


class Asking(Protocol):
    """What a map needs of its client."""

    @property
    def partition_count(self) -> int:
        """How many partitions the cluster has."""

    async def ask(
        self, form: RequestForm, rest: bytes, partition: int, decode: Callable[[bytes], Answer]
    ) -> Answer:
        """See `Client.ask`."""


class Map:
    """One map of one client."""

    def __init__(self, client: Asking, name: str) -> None:
        """See `Client.map`. Raises ConfigError for an empty name."""
        if not name:
            raise ConfigError("a map has a name")
        self.name = name
        self._client = client
        named = text(name)
        forever = THREAD + LONG.pack(NO_TTL)
        self._named_last = message([named])

        def form(
            kind: int, fixed: bytes = THREAD, *, reads: bool = False, before: bytes = named
        ) -> RequestForm:
            return RequestForm(kind, fixed, before, reads)

        self._form = form
        self._get = form(0x010200, reads=True)
        self._contains = form(0x010600, reads=True)
        self._put, self._set = form(0x010100, forever), form(0x010F00, forever)
        self._put_if_absent = form(0x010E00, forever)
        self._replace, self._replace_if_same = form(0x010400), form(0x010500)
        self._remove, self._delete = form(0x010300), form(0x010900)
        self._get_all, self._put_all = form(0x012300, b"", reads=True), form(0x012C00, LOAD)

    # -- one entry

    async def get(self, key: object) -> object:
        """The value of a key, or None."""
        stored = to_stored(key)
        client = self._client
        found = await client.ask(self._get, _last(stored), self._partition(stored), views.value_or_none)
        return _loaded(found)

    async def contains_key(self, key: object) -> bool:
        """Whether the key has a value."""
        stored = to_stored(key)
        return await self._client.ask(self._contains, _last(stored), self._partition(stored), views.truth)

    async def set(self, key: object, value: object, *, ttl_s: float | None = None) -> None:
        """Store a value, for `ttl_s` seconds (None: as the map is configured, 0: for ever)."""
        form = self._set if ttl_s is None else self._form(0x010F00, _lasting(ttl_s))
        stored = to_stored(key)
        rest = data(stored) + _last(_value(value))
        await self._client.ask(form, rest, self._partition(stored), views.nothing)

    async def put(self, key: object, value: object, *, ttl_s: float | None = None) -> object:
        """Store a value; answers the one before, or None. `ttl_s` as for `set`."""
        form = self._put if ttl_s is None else self._form(0x010100, _lasting(ttl_s))
        stored = to_stored(key)
        rest = data(stored) + _last(_value(value))
        return _loaded(await self._client.ask(form, rest, self._partition(stored), views.value_or_none))

    async def put_if_absent(self, key: object, value: object, *, ttl_s: float | None = None) -> object:
        """Store a value if the key has none; answers the one that it has, else None. `ttl_s` as for `set`."""
        form = self._put_if_absent if ttl_s is None else self._form(0x010E00, _lasting(ttl_s))
        stored = to_stored(key)
        rest = data(stored) + _last(_value(value))
        return _loaded(await self._client.ask(form, rest, self._partition(stored), views.value_or_none))

    async def replace(self, key: object, value: object) -> object:
        """Store a value if the key has one; answers the one before, or None when nothing was stored."""
        stored = to_stored(key)
        rest = data(stored) + _last(_value(value))
        found = await self._client.ask(self._replace, rest, self._partition(stored), views.value_or_none)
        return _loaded(found)

    async def replace_if_same(self, key: object, old: object, new: object) -> bool:
        """Store `new` if the value is `old`; answers whether it was."""
        stored = to_stored(key)
        rest = data(stored) + data(_value(old)) + _last(_value(new))
        return await self._client.ask(self._replace_if_same, rest, self._partition(stored), views.truth)

    async def remove(self, key: object) -> object:
        """Remove a key; answers the value it had, or None."""
        stored = to_stored(key)
        found = await self._client.ask(
            self._remove, _last(stored), self._partition(stored), views.value_or_none
        )
        return _loaded(found)

    async def delete(self, key: object) -> None:
        """Remove a key."""
        stored = to_stored(key)
        await self._client.ask(self._delete, _last(stored), self._partition(stored), views.nothing)

    # -- several

    async def get_all(self, keys: Iterable[object]) -> dict[object, object]:
        """The entries of those keys that have values. Not a snapshot: each partition answers for itself."""
        parts: dict[int, dict[bytes, None]] = {}
        for key in keys:
            stored = to_stored(key)
            parts.setdefault(self._partition(stored), {})[stored] = None
        asked = (
            self._client.ask(self._get_all, message([BEGIN, *map(data, held), END]), partition, views.pairs)
            for partition, held in parts.items()
        )
        found = await asyncio.gather(*asked)
        return {key: value for pairs in found for key, value in _pairs(pairs)}

    async def put_all(self, entries: Mapping[object, object] | Iterable[tuple[object, object]]) -> None:
        """Store entries, each by itself. Raises Refused if none was stored, Unknown if some may have been."""
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        parts: dict[int, list[bytes]] = {}
        for key, value in pairs:
            stored = to_stored(key)
            parts.setdefault(self._partition(stored), []).extend((stored, _value(value)))
        asked = (
            self._client.ask(self._put_all, message([BEGIN, *map(data, flat), END]), partition, views.nothing)
            for partition, flat in parts.items()
        )
        told = await asyncio.gather(*asked, return_exceptions=True)
        failed = [result for result in told if result is not None]
        if not failed:
            return
        if len(failed) == len(told) and all(isinstance(error, Refused) for error in failed):
            raise failed[0]
        first = failed[0]
        raise Unknown(
            f"{len(failed)} of {len(told)} partitions did not take their entries: {first}"
        ) from first

    async def size(self) -> int:
        """How many entries there are."""
        return await self._whole(0x012A00, views.number)

    async def is_empty(self) -> bool:
        """Whether there is none."""
        return await self._whole(0x012B00, views.truth)

    async def keys(self) -> list[object]:
        """All keys; not a snapshot."""
        return [_loaded(key) for key in await self._whole(0x012200, views.values)]

    async def values(self) -> list[object]:
        """All values; not a snapshot."""
        return [_loaded(value) for value in await self._whole(0x012400, views.values)]

    async def entries(self) -> list[tuple[object, object]]:
        """All entries; not a snapshot."""
        return _pairs(await self._whole(0x012500, views.pairs))

    async def clear(self) -> None:
        """Remove all entries."""
        await self._client.ask(self._form(0x012D00, b"", before=b""), self._named_last, -1, views.nothing)

    async def _whole(self, kind: int, decode: Callable[[bytes], Answer]) -> Answer:
        return await self._client.ask(
            self._form(kind, b"", reads=True, before=b""), self._named_last, -1, decode
        )

    def _partition(self, stored: bytes) -> int:
        count = self._client.partition_count
        return partition_of(stored, 0, count) if count else -1


def _last(stored: bytes) -> bytes:
    """A stored value as the last frame of a message."""
    return FRAME.pack(FRAME.size + len(NO_HASH) + len(stored), IS_FINAL) + NO_HASH + stored


def _value(value: object) -> bytes:
    if value is None:
        raise TypeError("None cannot be the value of a key: remove the key instead")
    return to_stored(value)


def _lasting(ttl_s: float) -> bytes:
    if ttl_s < 0:
        raise ValueError("ttl_s is 0 (for ever) or more seconds")
    return THREAD + LONG.pack(round(ttl_s * 1000) or (1 if ttl_s else 0))


def _loaded(stored: bytes | None) -> object:
    try:
        return None if stored is None else from_stored(stored)
    except (struct.error, ValueError, IndexError, msgspec.MsgspecError) as broken:
        raise ProtocolError(f"a stored value is broken: {broken}") from broken


def _pairs(flat: list[bytes]) -> list[tuple[object, object]]:
    return [(_loaded(key), _loaded(value)) for key, value in zip(flat[::2], flat[1::2], strict=True)]
