"""The vocabulary of the metastore: entries, conditions on them, and what is done when these hold (J1).

An *invoke* is a tree of `If`. Exactly one of its leaves is carried out, at once and whole; its number is the answer.
All that one invoke writes has one *revision*: the next number of the whole metastore.
"""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec


class MetastoreEntry(msgspec.Struct, frozen=True, array_like=True):
    """A key as it is, or was, at a revision."""

    key: bytes
    value: bytes | None = None
    """None: there is no such key (any more)."""
    revision: int = 0
    """Which change has made it so; 0: the key never was."""

    @property
    def exists(self) -> bool:
        """Whether the key has a value."""
        return self.value is not None


@unique
class Subject(IntEnum):
    """What of an entry is looked at."""

    VALUE = 0
    """Bytes, compared as bytes are; of a key that does not exist: less than any."""
    REVISION = 1


@unique
class Comparison(IntEnum):
    """How it has to stand to what the condition says."""

    EQUAL = 0
    NOT_EQUAL = 1
    LESS = 2
    LESS_OR_EQUAL = 3
    GREATER = 4
    GREATER_OR_EQUAL = 5


class Exists(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The key has a value."""

    key: bytes


class Absent(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The key has no value: it never had one, or was removed."""

    key: bytes


class Removed(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The key was removed, and this is still known."""

    key: bytes


class Compare(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The value, or the revision, of a key stands like this to what is given. A revision is given as eight bytes, big
    end first (`revision_bytes`), and is positive: that a key is not there is asked by `Absent`.
    """

    key: bytes
    subject: Subject
    how: Comparison
    than: bytes


class AllOf(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Every one of these holds."""

    conditions: tuple[Condition, ...]


class AnyOf(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """One of these holds, at least."""

    conditions: tuple[Condition, ...]


Condition = Exists | Absent | Removed | Compare | AllOf | AnyOf


class PutKey(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The key has this value from now on."""

    key: bytes
    value: bytes


class RemoveKey(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The key has no value from now on. Of one that has none nothing is changed."""

    key: bytes


class Leaf(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """What is done, and the number that is answered. No key is named twice."""

    changes: tuple[PutKey | RemoveKey, ...] = ()
    answer: int = 0


class If(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """One of two, by a condition."""

    condition: Condition
    then: Branch
    otherwise: Branch


Branch = Leaf | If


class Invoked(msgspec.Struct, frozen=True, array_like=True):
    """What has come of an invoke."""

    answer: int
    """The number of its leaf."""
    revision: int
    """That of the metastore after it: a new one if it has changed anything."""


def revision_bytes(revision: int) -> bytes:
    """A revision as conditions have it."""
    assert revision > 0, "what never was has no revision"
    return revision.to_bytes(8, "big")


def unchanged(entry: MetastoreEntry) -> Condition:
    """The key is still as it was when this entry was read."""
    if entry.exists:
        return Compare(entry.key, Subject.REVISION, Comparison.EQUAL, revision_bytes(entry.revision))
    return Absent(entry.key)
