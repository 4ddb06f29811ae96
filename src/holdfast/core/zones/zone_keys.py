"""How are the keys of zones spelled in the metastore, and what stands under them? The only module that knows.

    zones/ids                              the number of the zone that was created last
    zones/topology                         who is in the cluster
    zones/name/NAME                        the number of the zone with this name
    zones/zone/ID/descriptor               what the zone is to be like
    zones/zone/ID/history, up, down        who may hold its replicas, and who is about to
    zones/zone/ID/layout                   its even layout, where it wants one
    zones/zone/ID/recovery                 the last request to give up what is lost
    zones/part/ID/PARTITION/stable ...     the assignments of a partition

A value is JSON with sorted keys: `{"of": ..., "v": 1}`. Of a newer version than this one nothing is guessed.

- zones/A-6: Whatever is written by what was read is written only if all of that is still as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec

from holdfast.core.metastore.invoke import AllOf, If, Leaf, MetastoreEntry, PutKey, RemoveKey, unchanged
from holdfast.core.zones.assignments import Assignments, ChainLink, PartitionKeys, TargetLock

FORMAT: Final = 1
"""Of the values."""
REMEMBERED: Final = 8_192
"""So many values, and keys of so many partitions, are remembered: the same ones are looked at again and again."""

ZONES: Final = b"zones/"
IDS_KEY: Final = b"zones/ids"
TOPOLOGY_KEY: Final = b"zones/topology"
ZONE_PREFIX: Final = b"zones/zone/"
PART_PREFIX: Final = b"zones/part/"

Value = TypeVar("Value")


class UnknownFormat(ValueError):
    """A value of the metastore cannot be read: it is damaged, or was written by a newer version."""


class _Versioned(msgspec.Struct):
    of: msgspec.Raw
    v: int


def encoded(value: object) -> bytes:
    """The value as it stands in the metastore: the same bytes for the same value, always."""
    inner = msgspec.json.encode(value, order="sorted")
    return b'{"of":%b,"v":%d}' % (inner, FORMAT)


def decoded(data: bytes, kind: type[Value]) -> Value:
    """What stands there; not to be changed. Raises UnknownFormat."""
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
    """Where the number of the zone with this name stands."""
    return b"zones/name/" + name.encode()


def zone_key(zone: int, field: str) -> bytes:
    """Where something of a zone stands."""
    return ZONE_PREFIX + b"%08d/" % zone + field.encode()


def part_prefix(zone: int) -> bytes:
    """Where the assignments of all its partitions stand."""
    return PART_PREFIX + b"%08d/" % zone


def part_key(zone: int, partition: int, field: str) -> bytes:
    """Where something of a partition stands."""
    return part_prefix(zone) + b"%05d/" % partition + field.encode()


def zone_of(key: bytes) -> tuple[int, str] | None:
    """The zone and the field that a key is of; None: it is not of a zone."""
    if not key.startswith(ZONE_PREFIX):
        return None
    number, _, field = key.removeprefix(ZONE_PREFIX).partition(b"/")
    return int(number), field.decode()


def part_of(key: bytes) -> tuple[int, int, str] | None:
    """The zone, the partition and the field that a key is of; None: it is not of a partition."""
    if not key.startswith(PART_PREFIX):
        return None
    zone, partition, field = key.removeprefix(PART_PREFIX).split(b"/")
    return int(zone), int(partition), field.decode()


# -- what was read


class KeysRead:
    """Entries of one read, and which of them were looked at: these are what the answer rests on (zones/A-6)."""

    def __init__(self, entries: Iterable[MetastoreEntry], revision: int = 0) -> None:
        """What is not among the entries is not there. `revision`: as of which one this is so; 0: not known."""
        self._entries = {entry.key: entry for entry in entries}
        self._looked: dict[bytes, MetastoreEntry] = {}
        self.revision = revision

    def entry(self, key: bytes) -> MetastoreEntry:
        """The entry of a key, which the answer rests on from now on."""
        found = self._entries.get(key) or MetastoreEntry(key)
        self._looked[key] = found
        return found

    def value(self, key: bytes, kind: type[Value]) -> Value | None:
        """What stands there; None: nothing. Raises UnknownFormat."""
        data = self.entry(key).value
        return None if data is None else decoded(data, kind)

    def guarded(self, changes: Sequence[PutKey | RemoveKey]) -> If:
        """Do this if nothing has changed of what was looked at (answer 1), else nothing (answer 0)."""
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
"""How the fields of `PartitionKeys` are called in keys, and what stands there."""


@lru_cache(REMEMBERED)
def part_keys(zone: int, partition: int) -> tuple[bytes, ...]:
    """All keys of a partition, in the order of `PART_FIELDS`."""
    return tuple(part_key(zone, partition, field) for field in PART_FIELDS)


def partition_keys(read: KeysRead, zone: int, partition: int) -> PartitionKeys:
    """What was read of a partition. Raises UnknownFormat."""
    found = {
        name: read.value(key, kind)
        for key, (name, kind) in zip(part_keys(zone, partition), PART_FIELDS.values(), strict=True)
    }
    return PartitionKeys(**{name: value for name, value in found.items() if value is not None})


def changes_to(
    zone: int, partition: int, before: PartitionKeys, after: PartitionKeys
) -> list[PutKey | RemoveKey]:
    """What has to be written so that what was `before` is `after`; what is empty is not there."""
    changes: list[PutKey | RemoveKey] = []
    for field, (name, _) in PART_FIELDS.items():
        now, then = getattr(before, name), getattr(after, name)
        if now == then:
            continue
        key = part_key(zone, partition, field)
        empty = then is None or then == ()
        changes.append(RemoveKey(key) if empty else PutKey(key, encoded(then)))
    return changes
