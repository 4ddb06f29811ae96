"""Records: the updates that replicas exchange, single or packed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum, unique
from itertools import accumulate, chain, pairwise
from operator import add
from struct import Struct, pack, unpack
from typing import Literal

import msgspec

from holdfast.core.model.ids import MILLISECOND

FOREVER = 0
JournalMode = Literal["off", "sync", "lazy"]
"""Not journalled; durable before its updates count as held; or durable some time later."""


@unique
class Change(IntEnum):
    SET = 1
    REMOVE = 2
    EXPIRY = 3
    """Set a new time to live for a key; its value stays."""
    CLEAR = 4
    CALL = 5
    """A service applies `value`."""
    PIN = 6
    """Each live copy keeps the present content of the map (`core.primary_backup.cuts`). `key` is the id of
    the cut, `ttl_ms` its lease.
    """
    BEGIN = 7
    """The map begins again, empty: replicas drop its earlier content (`core.state_transfer.forgetting`)."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One update of one map (or service) in one partition, with its update counter."""

    map: str
    counter: int
    change: Change
    key: bytes = b""
    value: bytes = b""
    ttl_ms: int = FOREVER
    max_idle_ms: int = FOREVER
    key_hash: int = 0
    request: bytes = b""
    """In the last record of a request with an id: its mark (`core.store.request_ids`). With a change stream
    the name of a transaction precedes it.
    """
    old: bytes | None = None
    """The former value, in a map with a change stream; None: there was none."""
    time_ms: int = 0
    """With a change stream: milliseconds since 1970 by the primary's clock."""


def after_wait(record: Record, waited_ns: int) -> Record:
    """The record with the rest of its time to live. Example: update 19 gives an entry 60 s, and waits 25 s
    for update 18. Applied with 60 s, the entry would end 85 s after it was written.
    """
    if not record.ttl_ms or record.change is Change.PIN:
        return record
    return msgspec.structs.replace(record, ttl_ms=rest_of(record.ttl_ms, waited_ns))


def rest_of(ttl_ms: int, waited_ns: int) -> int:
    """At least 1 ms, because 0 means no end."""
    return max(1, ttl_ms - waited_ns // MILLISECOND) if ttl_ms else ttl_ms


class Puts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive plain stores in one map and partition: the same as SET records with only a key and a value.

    They are sent, applied and remembered together, without an object for each (`primary_backup.packed_puts_cy` has an
    example).
    """

    map: str
    start: int
    """They are the updates start + 1, start + 2…"""
    sizes: bytes
    """For each store the bytes of its key and its value: two u32, little-endian."""
    data: bytes

    @property
    def count(self) -> int:
        return len(self.sizes) // PAIR_BYTES

    @property
    def end(self) -> int:
        return self.start + len(self.sizes) // PAIR_BYTES

    @property
    def whole(self) -> bool:
        sizes = self.sizes
        return len(sizes) % PAIR_BYTES == 0 and sum(_numbers_in(sizes)) == len(self.data)

    def columns(self) -> tuple[list[bytes], list[bytes]]:
        data = self.data
        parts = [data[begin:end] for begin, end in pairwise(accumulate(_numbers_in(self.sizes), initial=0))]
        return parts[::2], parts[1::2]

    def keys(self) -> list[bytes]:
        data = self.data
        ends = list(accumulate(_numbers_in(self.sizes), initial=0))
        return [data[begin:end] for begin, end in zip(ends[:-1:2], ends[1::2], strict=True)]

    def records(self) -> list[Record]:
        name, change = self.map, Change.SET
        return [
            Record(name, counter, change, key, value)
            for counter, (key, value) in enumerate(zip(*self.columns(), strict=True), self.start + 1)
        ]

    def lengths(self) -> list[int]:
        """Bytes of `data` of each update."""
        numbers = _numbers_in(self.sizes)
        return list(map(add, numbers[::2], numbers[1::2]))

    def cut(self, first: int, upto: int) -> Puts:
        """The updates after the first `first`, up to the one with number `upto`."""
        begin, end = self._bounds(first, upto)
        sizes = self.sizes[first * PAIR_BYTES : upto * PAIR_BYTES]
        return Puts(self.map, self.start + first, sizes, self.data[begin:end])

    def _bounds(self, first: int, upto: int) -> tuple[int, int]:
        lengths = self.lengths()
        return sum(lengths[:first]), sum(lengths[:upto])


class Changes(Puts, frozen=True, array_like=True, gc=False):
    """Consecutive updates of a map with a change stream, as they wait in memory: SET and REMOVE records with former
    values and times. Backups and the journal get them as records.

    In `data` the former value, if any, follows key and value.
    """

    notes: bytes
    """For each update a `NOTE`."""

    def records(self) -> list[Record]:
        name, data = self.map, self.data
        found: list[Record] = []
        at, counter = 0, self.start
        numbers = iter(_numbers_in(self.sizes))
        for key_size, value_size, note in zip(numbers, numbers, NOTE.iter_unpack(self.notes), strict=True):
            change, old_size, time_ms, ttl_ms, max_idle_ms = note
            value_at = at + key_size
            end = value_at + value_size
            key, value, at = data[at:value_at], data[value_at:end], end + max(old_size, 0)
            old = None if old_size < 0 else data[end:at]
            counter += 1
            found.append(
                Record(name, counter, Change(change), key, value, ttl_ms, max_idle_ms, 0, b"", old, time_ms)
            )
        return found

    def lengths(self) -> list[int]:
        old_sizes = [max(old_size, 0) for _, old_size, *_ in NOTE.iter_unpack(self.notes)]
        return list(map(add, super().lengths(), old_sizes))

    def cut(self, first: int, upto: int) -> Changes:
        begin, end = self._bounds(first, upto)
        return Changes(
            self.map,
            self.start + first,
            self.sizes[first * PAIR_BYTES : upto * PAIR_BYTES],
            self.data[begin:end],
            self.notes[first * NOTE_BYTES : upto * NOTE_BYTES],
        )


NO_FORMER = -1
NOTE = Struct("<iiqqq")
"""Change, bytes of the former value (`NO_FORMER`: there was none), time, time to live and maximum idle time in ms."""
NOTE_BYTES = NOTE.size
PACKED_MOST = 4096
"""A longer value travels as a record: one object that message, tail and state share."""
PAIR_BYTES = 8
Recorded = Record | Puts


FEW = 32
"""Most packed puts have at most so many stores; the parsers of their sizes are made once."""
_NUMBERS = [Struct(f"<{count}I").unpack for count in range(2 * FEW + 1)]


def _numbers_in(sizes: bytes | bytearray) -> tuple[int, ...]:
    count = len(sizes) // 4
    return _NUMBERS[count](sizes) if count <= 2 * FEW else unpack(f"<{count}I", sizes)


def pack_puts(name: str, start: int, keys: Sequence[bytes], values: Sequence[bytes]) -> Puts:
    parts = list(chain.from_iterable(zip(keys, values, strict=True)))
    return Puts(name, start, pack(f"<{len(parts)}I", *map(len, parts)), b"".join(parts))


def as_puts(records: Sequence[Record]) -> Puts | None:
    """Pack consecutive records of one map; None if one of them has more than a key and a value, or is large."""
    put = Change.SET
    keys: list[bytes] = []
    values: list[bytes] = []
    for record in records:
        if (
            record.change is not put
            or record.ttl_ms
            or record.max_idle_ms
            or record.key_hash
            or record.request
            or record.time_ms
            or record.old is not None
            or len(record.value) >= PACKED_MOST
        ):
            return None
        keys.append(record.key)
        values.append(record.value)
    first = records[0]
    assert records[-1].counter - first.counter == len(records) - 1, "they follow each other"
    return pack_puts(first.map, first.counter - 1, keys, values)


def one_by_one(updates: Iterable[Recorded]) -> list[Record]:
    found: list[Record] = []
    for update in updates:
        if isinstance(update, Record):
            found.append(update)
        else:
            found += update.records()
    return found
