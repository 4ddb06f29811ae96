"""Maps of the in-process API.

flights: Map[str, dict[str, int]] = member.map("flights")
await flights.put("UA1545", {"minutes": 227}, ttl_s=3600)
async for flight, known in flights.entries():
    print(flight, known["minutes"])
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.operations import (
    DEFAULT_TTL,
    LIFETIME_MS_MAX,
    EntryEvent,
    Op,
    Request,
    Value,
    bytes_of,
    too_long,
)
from holdfast.core.model.processors import ProcessorCall, encode_call
from holdfast.errors import ConfigError, Refused, RequestError, TooLarge, raise_worst
from holdfast.runtime.in_process.bulk_turns import (
    ENTRY_BYTES,
    PIECE,
    PORTION,
    REQUEST,
    SMALL_AT_ONCE,
    BulkTurns,
    cost_of,
    work_off,
)
from holdfast.runtime.in_process.member_requests import ask, careful
from holdfast.runtime.node import Node
from holdfast.serialization import ChangeKind, EntryChange, Serialized, Serializers

K = TypeVar("K")
V = TypeVar("V")
Item_co = TypeVar("Item_co", covariant=True)
All_co = TypeVar("All_co", covariant=True)

WINDOW_BYTES = 8 << 20
"""Serialized data that a bulk write holds at a time."""
PAGE_ROWS, PAGE_BYTES = 250, 1 << 20
FIRST_ROWS = 8


def milliseconds(seconds: float | None) -> int:
    """Raises ValueError for an invalid lifetime."""
    if seconds is None:
        return DEFAULT_TTL
    if not 0 <= seconds <= LIFETIME_MS_MAX / 1000:
        raise ValueError(f"a lifetime of {seconds} s: it is 0 (for ever) to {LIFETIME_MS_MAX // 1000}")
    return max(1, round(seconds * 1000)) if seconds else 0


class Listed(Generic[Item_co, All_co]):
    """The content of a map: `await` returns all of it, `async for` yields it page by page in bounded memory. See `Map`
    for the guarantees during concurrent changes.
    """

    def __init__(
        self,
        everything: Callable[[], Coroutine[Any, Any, All_co]],
        one_by_one: Callable[[], AsyncIterator[Item_co]],
    ) -> None:
        self._everything = everything
        self._one_by_one = one_by_one

    def __await__(self) -> Generator[Any, None, All_co]:
        return self._everything().__await__()

    def __aiter__(self) -> AsyncIterator[Item_co]:
        return self._one_by_one()


class Map(Generic[K, V]):
    """A named map, partitioned over the cluster. `holdfast.Serializers` converts keys and values.

    Calls raise `Refused` or a subclass if they were certainly not applied, and `Unknown` if they may have been.

    An iteration (`async for key in map`, or over `keys()`, `values()`, `entries()`) returns every key that exists
    throughout exactly once, with a value that it had during the iteration, and possibly keys that are added or removed
    meanwhile. It never repeats a key. In memory are the keys of one partition, and one page of values.
    """

    def __init__(self, node: Node, name: str, serializers: Serializers, turns: BulkTurns) -> None:
        self._node = node
        self.name = name
        self._dump, self._load = serializers.dump, serializers.load
        self._turns = turns

    async def _on_key(
        self,
        op: Op,
        key: object,
        value: object = None,
        *,
        expected: object = None,
        ttl_s: float | None = None,
        max_idle_s: float | None = None,
    ) -> Value:
        raw = self._dump(key)
        partition = partition_of(raw, 0, self._node.partition_count)
        stored = self._dump(value) if value is not None else b""
        wanted = self._dump(expected) if expected is not None else b""
        ttl_ms, max_idle_ms = milliseconds(ttl_s), milliseconds(max_idle_s)
        return await ask(
            self._node, Request(op, self.name, [partition], raw, stored, wanted, [], ttl_ms, max_idle_ms)
        )

    async def _on_all(self, op: Op, value: object = None) -> Value:
        partitions = list(range(self._node.partition_count))
        stored = self._dump(value) if value is not None else b""
        return await ask(self._node, Request(op, self.name, partitions, value=stored))

    def _plain(self, value: Value) -> Any:
        return self._load(value) if isinstance(value, bytes) else None

    # -- one entry

    async def get(self, key: K) -> V | None:
        found: V | None = self._plain(await self._on_key(Op.GET, key))
        return found

    async def put(
        self, key: K, value: V, *, ttl_s: float | None = None, max_idle_s: float | None = None
    ) -> V | None:
        """Store and return the old value. `ttl_s` and `max_idle_s` in seconds; None: the map's setting, 0: no limit."""
        old: V | None = self._plain(
            await self._on_key(Op.PUT, key, given(value), ttl_s=ttl_s, max_idle_s=max_idle_s)
        )
        return old

    async def set(
        self, key: K, value: V, *, ttl_s: float | None = None, max_idle_s: float | None = None
    ) -> None:
        await self._on_key(Op.SET, key, given(value), ttl_s=ttl_s, max_idle_s=max_idle_s)

    async def put_if_absent(
        self, key: K, value: V, *, ttl_s: float | None = None, max_idle_s: float | None = None
    ) -> V | None:
        """Store if the key is absent; returns the present value, or None."""
        present: V | None = self._plain(
            await self._on_key(Op.PUT_IF_ABSENT, key, given(value), ttl_s=ttl_s, max_idle_s=max_idle_s)
        )
        return present

    async def execute(self, key: K, processor: str, argument: object = None) -> Any:
        """Run an entry processor (`[processors.NAME]`) on the entry, where it lives; returns its result. No other
        change of the entry happens meanwhile. Raises ProcessorFailed if the function failed, and nothing was changed.
        """
        node = self._node
        chosen = node.collections.processors.get(processor)
        if chosen is None:
            raise ConfigError(f"there is no entry processor {processor!r}: set [processors.{processor}]")
        if node.level < STRUCTURES:
            raise Refused(
                f"entry processors need feature level {STRUCTURES}, and the cluster has {node.level}"
            )
        given = b"" if argument is None else self._dump(argument)
        call = encode_call(ProcessorCall(processor, given, limit_ms=chosen.time_limit_ms))
        raw = self._dump(key)
        partition = partition_of(raw, 0, node.partition_count)
        return self._plain(await ask(node, Request(Op.PROCESS, self.name, [partition], raw, call)))

    async def replace(self, key: K, value: V) -> V | None:
        """Store if the key is present; returns the old value, or None."""
        old: V | None = self._plain(await self._on_key(Op.REPLACE, key, given(value)))
        return old

    async def replace_if_same(self, key: K, expected: V, value: V) -> bool:
        """Store if the present value equals `expected`; returns whether it did."""
        return bool(await self._on_key(Op.REPLACE_IF_SAME, key, given(value), expected=given(expected)))

    async def remove(self, key: K) -> V | None:
        """Remove; returns the old value, or None."""
        old: V | None = self._plain(await self._on_key(Op.REMOVE, key))
        return old

    async def remove_if_same(self, key: K, expected: V) -> bool:
        """Remove if the present value equals `expected`; returns whether it did."""
        return bool(await self._on_key(Op.REMOVE_IF_SAME, key, expected=given(expected)))

    async def delete(self, key: K) -> bool:
        """Remove; returns whether the key was present."""
        return bool(await self._on_key(Op.DELETE, key))

    async def contains_key(self, key: K) -> bool:
        return bool(await self._on_key(Op.CONTAINS_KEY, key))

    async def contains_value(self, value: V) -> bool:
        return bool(await self._on_all(Op.CONTAINS_VALUE, given(value)))

    async def set_ttl(self, key: K, ttl_s: float) -> bool:
        """Set a time to live, counted from now; 0: no limit. Returns whether the key was present."""
        return bool(await self._on_key(Op.SET_TTL, key, ttl_s=ttl_s))

    async def evict(self, key: K) -> bool:
        """Remove, reported to listeners as an eviction; returns whether the key was present."""
        return bool(await self._on_key(Op.EVICT, key))

    # -- many entries, in slices between which the event loop runs

    async def put_all(
        self,
        entries: Mapping[K, V] | Iterable[tuple[K, V]],
        *,
        ttl_s: float | None = None,
        max_idle_s: float | None = None,
    ) -> None:
        """Store many entries; not atomic. Iterables are consumed as fast as they are stored, so any number is possible.
        Do not change them meanwhile; keys should be unique.

        Raises Refused if none was stored, Unknown if some may have been.
        """
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        lifetimes = milliseconds(ttl_s), milliseconds(max_idle_s)
        written = ((self._dump(key), self._dump(given(value))) for key, value in pairs)
        told: list[RequestError | None] = []
        more = True
        while more:
            pieces, more = await self._pieces(written)

            async def store(partition: int, items: list[bytes]) -> None:
                await self._turns.take(REQUEST + cost_of(items, len(items) // 2))
                await ask(
                    self._node,
                    Request(
                        Op.PUT_ALL, self.name, [partition], b"", b"", b"", items, lifetimes[0], lifetimes[1]
                    ),
                )

            told += await work_off(store(*piece) for piece in pieces)
            raise_worst(told)

    async def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        """Those of these keys that are present, with values. Raises TypeError for keys that are lists or
        dictionaries.
        """
        found: dict[K, V] = {}
        written = ((self._dump(key),) for key in keys)

        async def read(partition: int, items: list[bytes]) -> None:
            await self._turns.take(REQUEST + cost_of(items, len(items)))
            try:
                answer = await ask(self._node, Request(Op.GET_ALL, self.name, [partition], items=items))
            except TooLarge:
                if len(items) == 1:
                    raise
                half = len(items) // 2
                await read(partition, items[:half])
                await read(partition, items[half:])
                return
            async for page in self._loaded(answer, 2):
                found.update(zip(page[::2], page[1::2], strict=True))

        await self._for_each_piece(written, read)
        return found

    async def remove_all(self, keys: Iterable[K]) -> int:
        """Remove these keys, each separately; returns how many were present. Raises Refused if none was removed,
        Unknown if some may have been.
        """
        removed = 0

        async def remove(partition: int, raw: bytes) -> None:
            nonlocal removed
            await self._turns.take(REQUEST)
            there = await ask(self._node, Request(Op.DELETE, self.name, [partition], raw))
            removed += bool(there)

        told: list[RequestError | None] = []
        written, more = ((self._dump(key),) for key in keys), True
        while more:
            pieces, more = await self._pieces(written)
            told += await work_off(
                (remove(partition, raw) for partition, some in pieces for raw in some), SMALL_AT_ONCE
            )
            raise_worst(told)
        return removed

    async def _for_each_piece(
        self,
        written: Iterator[tuple[bytes, ...]],
        do: Callable[[int, list[bytes]], Coroutine[None, None, None]],
    ) -> None:
        more = True
        while more:
            pieces, more = await self._pieces(written)
            raise_first(await work_off(do(*piece) for piece in pieces))

    async def _pieces(
        self, written: Iterator[tuple[bytes, ...]]
    ) -> tuple[list[tuple[int, list[bytes]]], bool]:
        """Entries (or keys) grouped by partition into requests, and whether the window is full and more may
        follow.
        """
        parts: dict[int, tuple[list[bytes], int]] = {}
        pieces: list[tuple[int, list[bytes]]] = []
        count = self._node.partition_count
        size = spent = 0
        more = False
        for entry in written:
            one = sum(map(len, entry))
            size += one
            cost = 1 + one // ENTRY_BYTES
            partition = partition_of(entry[0], 0, count)
            items, so_far = parts.get(partition) or ([], 0)
            items += entry
            if so_far + cost >= PIECE:
                pieces.append((partition, items))
                parts.pop(partition, None)
            else:
                parts[partition] = items, so_far + cost
            spent += cost
            if spent >= PORTION:
                await self._turns.take(spent)
                spent = 0
                if size >= WINDOW_BYTES:
                    more = True
                    break
        pieces += ((partition, items) for partition, (items, _) in parts.items())
        return pieces, more

    async def _loaded(self, answer: Value, step: int) -> AsyncIterator[list[Any]]:
        stored = [one for one in answer if isinstance(one, bytes)] if isinstance(answer, list) else []
        assert len(stored) % step == 0, "an answer lists whole entries"
        begin = cost = 0
        for at in range(0, len(stored), step):
            cost += cost_of(stored[at : at + step], 1)
            if cost >= PIECE or at + step == len(stored):
                await self._turns.take(cost)
                yield list(map(self._load, stored[begin : at + step]))
                begin, cost = at + step, 0

    # -- all entries

    async def size(self) -> int:
        """Not a snapshot."""
        answer = await self._on_all(Op.SIZE)
        return answer if isinstance(answer, int) else 0

    async def is_empty(self) -> bool:
        return bool(await self._on_all(Op.IS_EMPTY))

    async def clear(self) -> None:
        await self._on_all(Op.CLEAR)

    def keys(self) -> Listed[K, list[K]]:
        """All keys: `await` for a list, or iterate. Raises TooLarge if a list would exceed `limits.answer_bytes`."""

        async def everything() -> list[K]:
            found: list[K] = []
            await self._list(Op.KEYS, 1, found.extend)
            return found

        return Listed(everything, self.__aiter__)

    def values(self) -> Listed[V, list[V]]:
        """All values, like `keys`."""

        async def everything() -> list[V]:
            found: list[V] = []
            await self._list(Op.VALUES, 1, found.extend)
            return found

        async def one_by_one() -> AsyncIterator[V]:
            async for page in self._pages():
                for value in page[1::2]:
                    yield value

        return Listed(everything, one_by_one)

    def entries(self) -> Listed[tuple[K, V], dict[K, V]]:
        """All entries, as a dictionary or one by one, like `keys`. Raises TypeError for keys that are lists or
        dictionaries.
        """

        async def everything() -> dict[K, V]:
            found: dict[K, V] = {}
            await self._list(
                Op.ENTRIES, 2, lambda page: found.update(zip(page[::2], page[1::2], strict=True))
            )
            return found

        async def one_by_one() -> AsyncIterator[tuple[K, V]]:
            async for page in self._pages():
                for pair in zip(page[::2], page[1::2], strict=True):
                    yield pair

        return Listed(everything, one_by_one)

    async def __aiter__(self) -> AsyncIterator[K]:
        for partition in range(self._node.partition_count):
            async for page in self._loaded(await self._of_partition(Op.KEYS, partition), 1):
                for key in page:
                    yield key

    async def _of_partition(self, op: Op, partition: int) -> Value:
        await self._turns.take(REQUEST)
        return await ask(self._node, Request(op, self.name, [partition]))

    async def _list(self, op: Op, step: int, take_in: Callable[[list[Any]], None]) -> None:
        limit, size = self._node.settings.limits.answer_bytes, 0

        async def share(partition: int) -> None:
            nonlocal size
            answer = await self._of_partition(op, partition)
            size += bytes_of(answer)
            if size > limit:
                raise TooLarge(f"{too_long(limit)}, or iterate: `async for … in map.{op.name.lower()}()`")
            async for page in self._loaded(answer, step):
                take_in(page)

        raise_first(await work_off(share(partition) for partition in range(self._node.partition_count)))

    async def _pages(self) -> AsyncIterator[list[Any]]:
        rows = FIRST_ROWS
        for partition in range(self._node.partition_count):
            answer = await self._of_partition(Op.KEYS, partition)
            keys = [key for key in answer if isinstance(key, bytes)] if isinstance(answer, list) else []
            at = 0
            while at < len(keys):
                some = keys[at : at + rows]
                await self._turns.take(REQUEST + len(some))
                try:
                    found = await ask(self._node, Request(Op.GET_ALL, self.name, [partition], items=some))
                except TooLarge:
                    if rows == 1:
                        raise
                    rows = max(1, rows // 2)
                    continue
                at += len(some)
                async for page in self._loaded(found, 2):
                    yield page
                per_row = bytes_of(found) // len(some) + 1
                rows = max(1, min(PAGE_ROWS, 2 * rows, PAGE_BYTES // per_row))

    # -- listening

    def listen(
        self,
        heard: Callable[[EntryChange], None],
        *,
        key: K | None = None,
        include_value: bool = True,
    ) -> Callable[[], None]:
        """Call `heard` after each change on any member, in order for each key; returns the function that unsubscribes.
        `key`: only changes of this key. An error in `heard` goes to the event loop's exception handler.
        """
        self._node.check_here()
        raw = None if key is None else self._dump(key)
        told = careful(self._node, heard)

        def change(event: EntryEvent) -> None:
            value, old = (event.value, event.old) if include_value else (None, None)
            told(
                EntryChange(
                    ChangeKind(event.kind),
                    self._of_event(event.key),
                    self._of_event(value),
                    self._of_event(old),
                    event.count,
                    event.member,
                )
            )

        return self._node.listen(self.name, key=raw, local_only=False, on_event=change)

    def _of_event(self, stored: bytes | None) -> Any:
        try:
            return self._load(stored)
        except Exception:  # noqa: BLE001 - what others have stored, and how the program reads it, ends no listener
            return Serialized(stored or b"")


def raise_first(told: Iterable[RequestError | None]) -> None:
    for error in told:
        if error is not None:
            raise error


def given(value: V) -> V:
    """Raises TypeError for None."""
    if value is None:
        raise TypeError("None cannot be a value of a map; remove the entry instead")
    return value
