"""A map for asyncio programs. Values are written and read by `holdfast.serialization.serializers`.

Every operation raises Refused (certainly not applied) or Unknown (possibly applied); reads never raise Unknown. A
cancelled operation may have been applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from mmh3 import mmh3_32_sintdigest as murmur3

from holdfast.aio.entry_listening import EntryListening
from holdfast.aio.event_listening import KEEP, Listened
from holdfast.aio.map_lock import MapLock, owned_form
from holdfast.aio.member_line import MemberLine
from holdfast.client_core import message_decoding as views
from holdfast.client_core import request_forms as forms
from holdfast.client_core.answer_stream import OtherAnswer
from holdfast.client_core.near_cache import ABSENT, NearCache
from holdfast.client_core.request_forms import AIM, FOREVER, STEP, THREAD, RequestForm, last
from holdfast.client_core.retries import LineBroken
from holdfast.core.model.keys import LOWEST_INT32, SEED, partition_of, partitions_of
from holdfast.core.model.operations import LIFETIME_MS_MAX, MAP_NAME_MAX
from holdfast.errors import ConfigError, ProtocolError, raise_worst
from holdfast.serialization.entry_changes import EntryChange
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, LONG, data, message, text
from holdfast.wire.hazelcast.named_processors import write_processor
from holdfast.wire.values import STRING

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
LOAD = b"\x01"
TEXT = STRING.to_bytes(4, "big", signed=True)
AT_ONCE = 5000
PIECE_BYTES = 1 << 20
"""Keys, and bytes, of one request about several entries."""


class Asking(Listened, Protocol):
    route: list[MemberLine | None]

    @property
    def partition_count(self) -> int: ...

    async def ask(self, form: RequestForm, partition: int, rest: bytes) -> Any:
        """See `Client.ask`."""

    async def ask_each(self, form: RequestForm, asked: Sequence[tuple[int, bytes]]) -> list[Any]:
        """See `Client.ask_each`."""

    def next_thread(self) -> int:
        """See `Client.next_thread`."""


class Map(Generic[K, V]):
    """One map of one client. `K` and `V` are for type checkers: `flights: Map[str, int] = client.map("flights")`."""

    def __init__(self, client: Asking, name: str, near: NearCache | None = None) -> None:
        """Raises ConfigError for an invalid name."""
        self.name = checked_name(name)
        self.near_cache = near
        self._client = client
        self.serializers = client.serializers
        self._dump, self._dump_value = client.serializers.dump_key, client.serializers.dump_value
        self._load = client.serializers.load
        self._value: Callable[[bytes | None], V | None] = client.serializers.load
        named = self._named = text(name)
        self._named_last = message([named])
        self._get = forms.form(forms.GET, THREAD, named)
        self._contains = forms.form(forms.CONTAINS_KEY, THREAD, named)
        self._put = forms.form(forms.PUT, FOREVER, named)
        self._set = forms.form(forms.SET, FOREVER, named)
        self._put_if_absent = forms.form(forms.PUT_IF_ABSENT, FOREVER, named)
        self._replace = forms.form(forms.REPLACE, THREAD, named)
        self._replace_if_same = forms.form(forms.REPLACE_IF_SAME, THREAD, named)
        self._remove = forms.form(forms.REMOVE, THREAD, named)
        self._remove_if_same = forms.form(forms.REMOVE_IF_SAME, THREAD, named)
        self._delete = forms.form(forms.DELETE, THREAD, named)
        self._get_all = forms.form(forms.GET_ALL, b"", named)
        self._put_all = forms.form(forms.PUT_ALL, LOAD, named)

    # -- one entry

    async def get(self, key: K) -> V | None:
        stored = self._dump(key)
        client = self._client
        hashed = murmur3(stored[4:], SEED)
        count = client.partition_count
        partition = abs(hashed) % count if count and hashed != LOWEST_INT32 else self._partition(stored)
        if self.near_cache is not None:
            return await self._get_near(self.near_cache, stored, partition)
        line = client.route[partition] if 0 <= partition < len(client.route) else None
        if line is None or not line.ready:
            return self._value(await client.ask(self._get, partition, last(stored)))
        # Does the work of `ask` without another coroutine, because this is the most frequent operation.
        stream, out, form = line.stream, line.out, self._get
        stream.count = correlation = stream.count + STEP
        correlation |= form.code
        future = line.pending[correlation] = line.loop.create_future()
        if not out:
            line.loop.call_soon(line.flush)
        out += (form.begins, AIM.pack(correlation, partition), form.goes_on, last(stored))
        try:
            found = await future
            if found is not None and found[:4] == TEXT:
                value: V = found[8:].decode()
                return value
            return self._value(found)
        except (OtherAnswer, LineBroken):
            return self._value(await client.ask(form, partition, last(stored)))
        except asyncio.CancelledError:
            line.pending.pop(correlation, None)
            raise
        except UnicodeDecodeError as broken:
            raise ProtocolError(f"a stored text is broken: {broken}") from broken

    async def _get_near(self, near: NearCache, stored: bytes, partition: int) -> V | None:
        found = near.get(stored)
        binary = near.options.in_memory_format == "binary"
        if found is not ABSENT:
            return self._value(found) if binary else found  # type: ignore[arg-type, return-value]
        token = near.reserve(stored, partition)
        try:
            answer = await self._client.ask(self._get, partition, last(stored))
            value = self._value(answer)
            near.keep(stored, token, answer if binary else value)
        finally:
            near.release(stored, token)
        return value

    async def contains_key(self, key: K) -> bool:
        stored = self._dump(key)
        near = self.near_cache
        if near is not None and near.get(stored) is not ABSENT:
            return True
        return bool(await self._client.ask(self._contains, self._partition(stored), last(stored)))

    async def set(self, key: K, value: V, *, ttl_s: float | None = None) -> None:
        """Store a value for `ttl_s` seconds (None: as the map is configured, 0: for ever)."""
        stored = self._dump(key)
        form = self._set if ttl_s is None else forms.form(forms.SET, lasting(ttl_s), self._named)
        rest = data(stored) + last(self._dump_value(value))
        await self._write(form, stored, rest)

    async def put(self, key: K, value: V, *, ttl_s: float | None = None) -> V | None:
        """Store a value; returns the previous one, or None. `ttl_s` as for `set`."""
        stored = self._dump(key)
        form = self._put if ttl_s is None else forms.form(forms.PUT, lasting(ttl_s), self._named)
        return self._value(await self._write(form, stored, data(stored) + last(self._dump_value(value))))

    async def put_if_absent(self, key: K, value: V, *, ttl_s: float | None = None) -> V | None:
        """Store a value if the key has none; returns the existing one, or None if it was stored. `ttl_s` as for
        `set`.
        """
        stored = self._dump(key)
        fixed = FOREVER if ttl_s is None else lasting(ttl_s)
        form = self._put_if_absent if ttl_s is None else forms.form(forms.PUT_IF_ABSENT, fixed, self._named)
        return self._value(await self._write(form, stored, data(stored) + last(self._dump_value(value))))

    async def replace(self, key: K, value: V) -> V | None:
        """Store a value if the key has one; returns the previous one, or None if nothing was stored."""
        stored = self._dump(key)
        rest = data(stored) + last(self._dump_value(value))
        return self._value(await self._write(self._replace, stored, rest))

    async def replace_if_same(self, key: K, old: V, new: V) -> bool:
        """Store `new` if the value is `old`; returns whether it was stored."""
        stored = self._dump(key)
        rest = data(stored) + data(self._dump_value(old)) + last(self._dump_value(new))
        return bool(await self._write(self._replace_if_same, stored, rest))

    async def remove(self, key: K) -> V | None:
        stored = self._dump(key)
        return self._value(await self._write(self._remove, stored, last(stored)))

    async def remove_if_same(self, key: K, value: V) -> bool:
        """Remove a key if its value is this one; returns whether it was removed."""
        stored = self._dump(key)
        rest = data(stored) + last(self._dump_value(value))
        return bool(await self._write(self._remove_if_same, stored, rest))

    async def delete(self, key: K) -> None:
        stored = self._dump(key)
        await self._write(self._delete, stored, last(stored))

    async def set_ttl(self, key: K, ttl_s: float) -> bool:
        """Set the remaining life of an entry to `ttl_s` seconds (0: for ever); returns whether it exists."""
        stored = self._dump(key)
        form = forms.form(forms.SET_TTL, milliseconds(ttl_s), self._named)
        return bool(await self._write(form, stored, last(stored)))

    async def execute(self, key: K, processor: str, argument: object = None) -> Any:
        """Run an entry processor of the members (`[processors.NAME]`) on the entry; returns its result. No other change
        of the entry happens meanwhile. Raises ProcessorFailed if the function failed, and nothing was changed.
        """
        stored = self._dump(key)
        given = b"" if argument is None else self.serializers.dump(argument)
        form = forms.form(forms.EXECUTE_ON_KEY, THREAD, self._named)
        rest = data(write_processor(processor, given)) + last(stored)
        return self._load(views.value_or_none(await self._write(form, stored, rest)))

    async def _write(self, form: RequestForm, stored: bytes, rest: bytes) -> Any:
        form = owned_form(form, self._client)
        near = self.near_cache
        if near is None:
            return await self._client.ask(form, self._partition(stored), rest)
        near.forget((stored,))
        try:
            return await self._client.ask(form, self._partition(stored), rest)
        finally:
            near.forget((stored,))

    # -- several

    async def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        """The entries of those keys that have values. Not a snapshot: each partition is read by itself."""
        load = self._load
        found = await self.get_stored(map(self._dump, keys))
        return {load(key): load(value) for key, value in found.items()}

    async def get_stored(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        parts: dict[int, list[bytes]] = {}
        known = list(dict.fromkeys(keys))
        for partition, stored in zip(self._partitions(known), known, strict=True):
            parts.setdefault(partition, []).append(stored)
        asked = [
            (partition, listed(held[begin : begin + AT_ONCE]))
            for partition, held in parts.items()
            for begin in range(0, len(held), AT_ONCE)
        ]
        found: dict[bytes, bytes] = {}
        for answer in await self._client.ask_each(self._get_all, asked):
            if isinstance(answer, BaseException):
                raise answer
            flat = views.pairs(answer)
            found.update(zip(flat[::2], flat[1::2], strict=True))
        return found

    async def put_all(
        self, entries: Mapping[K, V] | Iterable[tuple[K, V]], *, ttl_s: float | None = None
    ) -> None:
        """Store entries, each by itself; `ttl_s` as for `set`. Raises Refused if none was stored, Unknown if
        some may be.
        """
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        stored = [(self._dump(key), self._dump_value(value)) for key, value in pairs]
        if ttl_s is None:
            await self.put_stored(stored)
            return
        # The protocol's put_all has no time to live: send a request for each entry, all at once.
        form = forms.form(forms.SET, lasting(ttl_s), self._named)
        await self._each(self._write(form, key, data(key) + last(value)) for key, value in stored)

    async def delete_all(self, keys: Iterable[K]) -> None:
        """Remove keys, each by itself. Raises as `put_all` does."""
        stored = [self._dump(key) for key in keys]
        await self._each(self._write(self._delete, key, last(key)) for key in stored)

    async def _each(self, requests: Iterable[Coroutine[Any, Any, Any]]) -> None:
        told: list[Any] = []
        for some in batched_by(requests, AT_ONCE):
            told += await asyncio.gather(*some, return_exceptions=True)
        raise_worst(told)

    async def put_stored(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        parts: dict[int, list[bytes]] = {}
        known = list(entries)
        keys = [key for key, _ in known]
        for partition, entry in zip(self._partitions(keys), known, strict=True):
            parts.setdefault(partition, []).extend(entry)
        if self.near_cache is not None:
            self.near_cache.forget(keys)
        asked = [(partition, listed(piece)) for partition, flat in parts.items() for piece in _pieces(flat)]
        try:
            told = await self._client.ask_each(self._put_all, asked)
        finally:
            if self.near_cache is not None:
                self.near_cache.forget(keys)
        raise_worst(told)

    async def get_many(self, keys: pa.Array[Any], value_type: pa.DataType | None = None) -> pa.Array[Any]:
        """See `holdfast.aio.arrays.get_many`."""
        from holdfast.aio.arrays import get_many

        return await get_many(self, keys, value_type)

    async def put_many(self, keys: pa.Array[Any], values: pa.Array[Any]) -> None:
        """See `holdfast.aio.arrays.put_many`."""
        from holdfast.aio.arrays import put_many

        await put_many(self, keys, values)

    async def size(self) -> int:
        return views.count_in(await self._whole(forms.SIZE))

    async def is_empty(self) -> bool:
        return views.truth(await self._whole(forms.IS_EMPTY))

    async def keys(self) -> list[K]:
        """All keys; not a snapshot."""
        return list(map(self._load, views.values(await self._whole(forms.KEYS))))

    async def values(self) -> list[V]:
        """All values; not a snapshot."""
        return list(map(self._load, views.values(await self._whole(forms.VALUES))))

    async def entries(self) -> list[tuple[K, V]]:
        """All entries; not a snapshot."""
        flat = list(map(self._load, views.pairs(await self._whole(forms.ENTRIES))))
        return list(zip(flat[::2], flat[1::2], strict=True))

    async def clear(self) -> None:
        near = self.near_cache
        try:
            await self._whole(forms.CLEAR)
        finally:
            if near is not None:
                near.clear()

    async def _whole(self, kind: int) -> bytes:
        answer: bytes = await self._client.ask(forms.form(kind, b""), -1, self._named_last)
        return answer

    # -- locks

    def lock(self, key: K, *, lease_s: float | None = None) -> MapLock:
        """A lock on the entry of this key, whether there is one or not; entering the block waits for it without end.

            async with accounts.lock("ann", lease_s=10):
                await accounts.set("ann", await accounts.get("ann") - 5)

        Others that change the entry wait meanwhile. `lease_s`: the lock ends by itself after so long (None: when it is
        released, or the client has been without a connection for seconds). Leaving the block raises Refused if the lock
        had ended before: others may have changed the entry.

        The task that entered the block is the owner. It may lock the entry again. Writes of tasks that the block starts
        are the owner's, too. A task that is cancelled while it waits releases the lock when it comes. Raises
        TypeError, ValueError; entering raises Refused, and Unknown: then the entry may be locked, until its lease
        ends or the client is closed.
        """
        return self._lock(key, lease_s, None)

    def try_lock(self, key: K, *, timeout_s: float = 0, lease_s: float | None = None) -> MapLock:
        """Like `lock`, but it waits no longer than `timeout_s`. The block is entered in any case, and gets whether the
        entry is locked.

            async with accounts.try_lock("ann", timeout_s=1) as locked:
                if locked:
                    ...
        """
        return self._lock(key, lease_s, timeout_s)

    def _lock(self, key: K, lease_s: float | None, timeout_s: float | None) -> MapLock:
        stored = self._dump(key)
        partition = self._partition(stored)
        return MapLock(self._client, self._named, stored, partition, lease_s=lease_s, timeout_s=timeout_s)

    async def is_locked(self, key: K) -> bool:
        """Whether any owner has locked the entry."""
        stored = self._dump(key)
        form = forms.form(forms.IS_LOCKED, b"", self._named)
        return views.truth(await self._client.ask(form, self._partition(stored), last(stored)))

    # -- listening

    async def listen(
        self,
        heard: Callable[[EntryChange], None] | None = None,
        *,
        key: K | None = None,
        include_value: bool = True,
        keep: int = KEEP,
    ) -> EntryListening:
        """Listen to changes from now on: `heard` is called with each change, or they are iterated over.

        `key`: only changes of this key. `include_value`: whether changes have values. `keep`: most changes that
        wait for iteration. See `EntryListening`.
        """
        stored = None if key is None else self._dump(key)
        return await EntryListening(
            self.name, self._client, heard, keep, key=stored, include_value=include_value
        ).begin()

    def _partition(self, stored: bytes) -> int:
        count = self._client.partition_count
        return partition_of(stored, 0, count) if count else -1

    def _partitions(self, stored: list[bytes]) -> list[int]:
        count = self._client.partition_count
        return partitions_of(stored, count) if count else [-1] * len(stored)


def checked_name(name: str) -> str:
    """The name of a map. Raises ConfigError for an invalid one."""
    given: object = name  # Callers without a type checker pass anything.
    if not isinstance(given, str) or not 1 <= len(given) <= MAP_NAME_MAX:
        raise ConfigError(f"{name!r} cannot be a map's name: it is a text of 1 to {MAP_NAME_MAX} characters")
    return name


def listed(stored: list[bytes]) -> bytes:
    """The frames of a list that ends a message."""
    return b"".join((BEGIN, *map(data, stored), _LAST))


_LAST = message([END])


def _pieces(flat: list[bytes]) -> Iterator[list[bytes]]:
    begin = size = 0
    for at in range(0, len(flat), 2):
        size += len(flat[at]) + len(flat[at + 1])
        if size >= PIECE_BYTES or at + 2 - begin >= 2 * AT_ONCE:
            yield flat[begin : at + 2]
            begin, size = at + 2, 0
    if begin < len(flat):
        yield flat[begin:]


def batched_by(of: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(of)
    while some := list(islice(rest, size)):
        yield some


def lasting(ttl_s: float) -> bytes:
    """Thread id and time to live as parameters. Raises TypeError, ValueError."""
    return THREAD + milliseconds(ttl_s)


def milliseconds(ttl_s: float) -> bytes:
    """Raises TypeError, ValueError."""
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float):
        raise TypeError(f"ttl_s is a number of seconds, not {type(ttl_s).__name__}")
    if not 0 <= ttl_s <= LIFETIME_MS_MAX / 1000:
        raise ValueError(f"ttl_s is 0 (for ever) or more seconds, not {ttl_s!r}")
    return LONG.pack(round(ttl_s * 1000) or (1 if ttl_s else 0))
