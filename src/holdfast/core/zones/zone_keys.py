"""Keys and values of zones in the metastore; no other module knows their format.

    zones/ids                              the number of the newest zone
    zones/topology                         the members of the cluster
    zones/places                           names and addresses of members, also of data nodes that have gone
    zones/name/NAME                        the number of the zone with this name
    zones/zone/ID/descriptor               the zone's settings
    zones/zone/ID/history, up, down        its data nodes, and the timers of those that join or leave
    zones/zone/ID/layout                   its even layout, if it has one
    zones/zone/ID/recovery                 the last request to reset it
    zones/part/ID/PARTITION/stable ...     the assignments of a partition

A value is JSON with sorted keys: `{"of": ..., "v": 1}`. A value of a newer version is rejected.

- zones/A-6: A write that depends on keys is applied only if all of these keys are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec

from holdfast.core.metastore.invoke import AllOf, If, Leaf, MetastoreEntry, PutKey, RemoveKey, unchanged
from holdfast.core.zones.assignments import Assignments, ChainLink, PartitionKeys, TargetLock

FORMAT: Final = 1
REMEMBERED: Final = 8_192
"""Cached values, and partitions with cached keys: the same ones are read again and again."""

ZONES: Final = b"zones/"
IDS_KEY: Final = b"zones/ids"
TOPOLOGY_KEY: Final = b"zones/topology"
PLACES_KEY: Final = b"zones/places"
ZONE_PREFIX: Final = b"zones/zone/"
PART_PREFIX: Final = b"zones/part/"

Value = TypeVar("Value")
KeyWrite = PutKey | RemoveKey


class UnknownFormat(ValueError):
    """A value of the metastore is damaged, or was written by a newer version."""


class _Versioned(msgspec.Struct):
    of: msgspec.Raw
    v: int


def encoded(value: object) -> bytes:
    """Equal values have equal bytes."""
    inner = msgspec.json.encode(value, order="sorted")
    return b'{"of":%b,"v":%d}' % (inner, FORMAT)


def decoded(data: bytes, kind: type[Value]) -> Value:
    """Decode a value. It may be shared: do not modify it. Raises UnknownFormat."""
    found: Value = _decoded(data, cast("Any", kind))
    return found


@lru_cache(REMEMBERED)
def _decoded(data: bytes, kind: type[Any]) -> Any:
    try:
        found = msgspec.json.decode(data, type=_Versioned)
        if found.v != FORMAT:
            raise UnknownFormat(f"a value has format {found.v}, and {FORMAT} is known here")
        return msgspec.json.decode(found.of, type=kind)
    except msgspec.DecodeError as error:
        raise UnknownFormat(f"{data[:80]!r} is no value of a zone: {error}") from error


# -- spelling


def name_key(name: str) -> bytes:
    return b"zones/name/" + name.encode()


def zone_key(zone: int, field: str) -> bytes:
    return ZONE_PREFIX + b"%08d/" % zone + field.encode()


def part_prefix(zone: int) -> bytes:
    return PART_PREFIX + b"%08d/" % zone


def part_key(zone: int, partition: int, field: str) -> bytes:
    return part_prefix(zone) + b"%05d/" % partition + field.encode()


def zone_of(key: bytes) -> tuple[int, str] | None:
    """The zone and the field of a key; None: it is not one of a zone."""
    if not key.startswith(ZONE_PREFIX):
        return None
    number, _, field = key.removeprefix(ZONE_PREFIX).partition(b"/")
    return int(number), field.decode()


def part_of(key: bytes) -> tuple[int, int, str] | None:
    """The zone, the partition and the field of a key; None: it is not one of a partition."""
    if not key.startswith(PART_PREFIX):
        return None
    zone, partition, field = key.removeprefix(PART_PREFIX).split(b"/")
    return int(zone), int(partition), field.decode()


# -- what was read


class KeysRead:
    """Entries of one read. It records which of them the caller used, so that its write is guarded by them
    (zones/A-6).
    """

    def __init__(self, entries: Iterable[MetastoreEntry], revision: int = 0) -> None:
        """Keys without an entry do not exist. `revision`: 0: unknown."""
        self._entries = {entry.key: entry for entry in entries}
        self._looked: dict[bytes, MetastoreEntry] = {}
        self.revision = revision

    def again(self) -> KeysRead:
        """The same entries; none of them is used yet."""
        read = KeysRead((), self.revision)
        read._entries = self._entries
        return read

    def use_all(self, reads: Iterable[KeysRead]) -> None:
        """Use the entries that `reads` have used, so that one write guards them together. `reads` share these entries
        (`again`).
        """
        for read in reads:
            for key in read.used:
                self.entry(key)

    @property
    def used(self) -> list[bytes]:
        return list(self._looked)

    def entry(self, key: bytes) -> MetastoreEntry:
        """The entry of a key. It guards the write from now on."""
        found = self._entries.get(key) or MetastoreEntry(key)
        self._looked[key] = found
        return found

    def value(self, key: bytes, kind: type[Value]) -> Value | None:
        """The value of a key, decoded. Raises UnknownFormat."""
        data = self.entry(key).value
        return None if data is None else decoded(data, kind)

    def guarded(self, changes: Sequence[KeyWrite]) -> If:
        """Make the changes if all used entries are unchanged (answer 1), else none (answer 0)."""
        still = tuple(unchanged(self._looked[key]) for key in sorted(self._looked))
        return If(AllOf(still), Leaf(tuple(changes), 1), Leaf())


# -- the assignments of a partition

PART_FIELDS: Final[dict[str, tuple[str, Any]]] = {
    "stable": ("stable", Assignments),
    "pending": ("pending", tuple[Assignments, ...]),
    "planned": ("planned", Assignments),
    "trigger": ("trigger", int),
    "reduce": ("switch_reduce", Assignments),
    "append": ("switch_append", Assignments),
    "chain": ("chain", tuple[ChainLink, ...]),
    "lock": ("lock", TargetLock),
    "generation": ("generation", int),
}
"""Field in keys -> field of `PartitionKeys`, and its type."""


@lru_cache(REMEMBERED)
def part_keys(zone: int, partition: int) -> tuple[bytes, ...]:
    return tuple(part_key(zone, partition, field) for field in PART_FIELDS)


def partition_keys(read: KeysRead, zone: int, partition: int) -> PartitionKeys:
    """Read the keys of a partition. Raises UnknownFormat."""
    found = {
        name: read.value(key, kind)
        for key, (name, kind) in zip(part_keys(zone, partition), PART_FIELDS.values(), strict=True)
    }
    return PartitionKeys(**{name: value for name, value in found.items() if value is not None})


def changes_to(zone: int, partition: int, before: PartitionKeys, after: PartitionKeys) -> list[KeyWrite]:
    """The writes that turn `before` into `after`. Empty values are removed."""
    changes: list[KeyWrite] = []
    for field, (name, _) in PART_FIELDS.items():
        now, then = getattr(before, name), getattr(after, name)
        if now == then:
            continue
        key = part_key(zone, partition, field)
        empty = then is None or then == ()
        changes.append(RemoveKey(key) if empty else PutKey(key, encoded(then)))
    return changes
