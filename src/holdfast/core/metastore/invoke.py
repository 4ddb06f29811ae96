"""Entries of the metastore, conditions on them, and invokes (J1).

An *invoke* is a tree of `If`. Exactly one of its leaves is applied, atomically, and its number is the answer. All
changes of one invoke have the same *revision*, the next number of the metastore.
"""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec


class MetastoreEntry(msgspec.Struct, frozen=True, array_like=True):
    key: bytes
    value: bytes | None = None
    """None: the key does not exist, or no longer."""
    revision: int = 0
    """The last change; 0: the key never existed."""

    @property
    def exists(self) -> bool:
        return self.value is not None


@unique
class Subject(IntEnum):
    VALUE = 0
    """Compared as bytes; the value of an absent key is less than any other."""
    REVISION = 1


@unique
class Comparison(IntEnum):
    EQUAL = 0
    NOT_EQUAL = 1
    LESS = 2
    LESS_OR_EQUAL = 3
    GREATER = 4
    GREATER_OR_EQUAL = 5


class Exists(msgspec.Struct, frozen=True, array_like=True, tag=0):
    key: bytes


class Absent(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The key has no value: it never had one, or was removed."""

    key: bytes


class Removed(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The key was removed, and the metastore still knows that."""

    key: bytes


class Compare(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Compare the value or the revision of a key with `than`. A revision is positive and has eight bytes, big-endian
    (`revision_bytes`); use `Absent` for a key without one.
    """

    key: bytes
    subject: Subject
    how: Comparison
    than: bytes


class AllOf(msgspec.Struct, frozen=True, array_like=True, tag=4):
    conditions: tuple[Condition, ...]


class AnyOf(msgspec.Struct, frozen=True, array_like=True, tag=5):
    conditions: tuple[Condition, ...]


Condition = Exists | Absent | Removed | Compare | AllOf | AnyOf


class PutKey(msgspec.Struct, frozen=True, array_like=True, tag=0):
    key: bytes
    value: bytes


class RemoveKey(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Remove the key; no effect if it does not exist."""

    key: bytes


class Leaf(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Changes, each to a different key, and the answer."""

    changes: tuple[PutKey | RemoveKey, ...] = ()
    answer: int = 0


class If(msgspec.Struct, frozen=True, array_like=True, tag=1):
    condition: Condition
    then: Branch
    otherwise: Branch


Branch = Leaf | If


class Invoked(msgspec.Struct, frozen=True, array_like=True):
    answer: int
    """Number of the applied leaf."""
    revision: int
    """After the invoke; a new one if anything changed."""


def revision_bytes(revision: int) -> bytes:
    assert revision > 0, "what never was has no revision"
    return revision.to_bytes(8, "big")


def unchanged(entry: MetastoreEntry) -> Condition:
    if entry.exists:
        return Compare(entry.key, Subject.REVISION, Comparison.EQUAL, revision_bytes(entry.revision))
    return Absent(entry.key)
