"""The updates that replicas exchange."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum, unique
from itertools import accumulate, chain, pairwise
from operator import add
from struct import Struct, pack, unpack
from typing import Literal

import msgspec

FOREVER = 0
"""No time to live, no maximum idle time."""
JournalMode = Literal["off", "sync", "lazy"]
"""Of a map: not at all; written down before its updates count as held; or some time after."""


@unique
class Change(IntEnum):
    """The closed set of updates that replicas exchange."""

    SET = 1
    REMOVE = 2
    EXPIRY = 3
    """Set a new time to live for a key, value untouched."""
    CLEAR = 4
    CALL = 5
    """An update of a service: its share does as `value` says."""
    PIN = 6
    """Nothing changes: whoever applies it as a live copy keeps what the map holds now (`core.primary_backup.cuts`). The
    key is the id of the cut, `ttl_ms` its lease."""
    BEGIN = 7
    """The map begins again, empty, at this counter: replicas drop what they hold of it from before it was forgotten
    (`core.state_transfer.forgetting`)."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One update of one map (or service) in one partition: what the primary did, at this value of its counter."""

    map: str
    counter: int
    change: Change
    key: bytes = b""
    value: bytes = b""
    ttl_ms: int = FOREVER
    max_idle_ms: int = FOREVER
    key_hash: int = 0
    request: bytes = b""
    """With the last record of a request that has an id: its mark (`core.store.request_ids`). In a map with a change
    stream, what a transaction has done names that before it."""
    old: bytes | None = None
    """Of a map with a change stream: what the entry was; None when it was not there."""
    time_ms: int = 0
    """Of a map with a change stream: when it was, in milliseconds since 1970 by the primary's clock."""


class Puts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ordinary stores of one map in one partition, which follow each other: the same as records with `Change.SET`, a
    key and a value, and nothing else. Packed they are sent, applied and remembered together, with no object for each.
    """

    map: str
    start: int
    """They are the updates start + 1, start + 2…"""
    sizes: bytes
    """Of each the bytes of its key and of its value: two u32, the lowest byte first."""
    data: bytes
    """Of each its key and its value, one after the other."""

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.sizes) // PAIR_BYTES

    @property
    def end(self) -> int:
        """The number of the last one."""
        return self.start + len(self.sizes) // PAIR_BYTES

    @property
    def whole(self) -> bool:
        """Whether the sizes are those of what there is. Of what came from elsewhere nobody knows that before."""
        sizes = self.sizes
        return len(sizes) % PAIR_BYTES == 0 and sum(_numbers_in(sizes)) == len(self.data)

    def columns(self) -> tuple[list[bytes], list[bytes]]:
        """Their keys and their values."""
        data = self.data
        parts = [data[begin:end] for begin, end in pairwise(accumulate(_numbers_in(self.sizes), initial=0))]
        return parts[::2], parts[1::2]

    def keys(self) -> list[bytes]:
        """Their keys alone."""
        data = self.data
        ends = list(accumulate(_numbers_in(self.sizes), initial=0))
        return [data[begin:end] for begin, end in zip(ends[:-1:2], ends[1::2], strict=True)]

    def records(self) -> list[Record]:
        """The same, one by one."""
        name, change = self.map, Change.SET
        return [
            Record(name, counter, change, key, value)
            for counter, (key, value) in enumerate(zip(*self.columns(), strict=True), self.start + 1)
        ]


PACKED_MOST = 4096
"""Bytes of a value from which on it travels as a record: so it is one object, which message, tail and store share."""
PAIR_BYTES = 8
"""Bytes of the sizes of one key and one value."""
Recorded = Record | Puts
"""One update, or several that follow each other."""


def pair_lengths(sizes: bytes | bytearray) -> list[int]:
    """Of each store with these sizes the bytes of key and value together."""
    numbers = _numbers_in(sizes)
    return list(map(add, numbers[::2], numbers[1::2]))


FEW = 32
"""Stores that most packed ones are at most: how their sizes are read is not made up each time."""
_NUMBERS = [Struct(f"<{count}I").unpack for count in range(2 * FEW + 1)]


def _numbers_in(sizes: bytes | bytearray) -> tuple[int, ...]:
    count = len(sizes) // 4
    return _NUMBERS[count](sizes) if count <= 2 * FEW else unpack(f"<{count}I", sizes)


def pack_puts(name: str, start: int, keys: Sequence[bytes], values: Sequence[bytes]) -> Puts:
    """Stores of these keys, with these values, which are as many."""
    parts = list(chain.from_iterable(zip(keys, values, strict=True)))
    return Puts(name, start, pack(f"<{len(parts)}I", *map(len, parts)), b"".join(parts))


def as_puts(records: Sequence[Record]) -> Puts | None:
    """These records, which are of one map and follow each other, packed; None when one says more, or is long."""
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
    """These updates, each as a record."""
    found: list[Record] = []
    for update in updates:
        if isinstance(update, Record):
            found.append(update)
        else:
            found += update.records()
    return found
