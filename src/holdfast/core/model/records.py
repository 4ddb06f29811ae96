"""The updates that replicas exchange."""

from __future__ import annotations

from enum import IntEnum, unique
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
    """Nothing changes: whoever applies it as a live copy keeps what the map holds now (`core.replication.cuts`). The
    key is the id of the cut, `ttl_ms` its lease."""


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
    key and a value, and nothing else. As columns they are sent, applied and remembered together, with no object for
    each.
    """

    map: str
    start: int
    """They are the updates start + 1, start + 2…"""
    keys: list[bytes]
    values: list[bytes]
    """As many as keys. Neither list is ever changed."""

    @property
    def end(self) -> int:
        """The number of the last one."""
        return self.start + len(self.keys)

    def records(self) -> list[Record]:
        """The same, one by one."""
        name, change = self.map, Change.SET
        return [
            Record(name, counter, change, key, value)
            for counter, (key, value) in enumerate(zip(self.keys, self.values, strict=True), self.start + 1)
        ]


def as_puts(records: list[Record]) -> Puts | None:
    """These records, which are of one map and follow each other, as columns; None when one of them says more."""
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
        ):
            return None
        keys.append(record.key)
        values.append(record.value)
    first = records[0]
    assert records[-1].counter - first.counter == len(records) - 1, "they follow each other"
    return Puts(first.map, first.counter - 1, keys, values)
