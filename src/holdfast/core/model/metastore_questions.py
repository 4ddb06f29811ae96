"""What an operator asks the metastore, and what is answered. All of it is data that can travel."""

from __future__ import annotations

from typing import Final

import msgspec

ANSWER_BYTES: Final = 1 << 20
"""Keys and values in one answer, at about; who wants more asks again."""


class KeyAsked(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """What is this key, or what was it at a revision (0: now)?"""

    key: bytes
    revision: int = 0


class PrefixAsked(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Which keys begin like this and have a value, now or at a revision?"""

    prefix: bytes
    after: bytes = b""
    """Only keys behind this one: to go on where an answer has ended, with the revision of that answer."""
    revision: int = 0


class PutAsked(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Give a key a value."""

    key: bytes
    value: bytes
    if_revision: int | None = None
    """Only if this is its revision; 0: only if it is absent; None: whatever it is."""


class RemoveAsked(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Remove a key."""

    key: bytes
    if_revision: int | None = None
    """As of `PutAsked`."""


class KeyHistoryAsked(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """What has this key been, as far as that is known?"""

    key: bytes
    after: int = 0
    """Only what it has been after this revision: to go on where an answer has ended."""


class KeyChangesAsked(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """What has changed after a revision among the keys that begin like this? To watch is to ask again and again."""

    prefix: bytes
    after: int


class ResetAsked(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Let the replica of the member that is asked be the metastore from here on: most voters are gone for good."""


MetastoreQuestion = (
    KeyAsked | PrefixAsked | PutAsked | RemoveAsked | KeyHistoryAsked | KeyChangesAsked | ResetAsked
)


class KeyAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A key at a revision."""

    key: bytes
    value: bytes | None
    """None: absent."""
    revision: int
    """Since when; 0: it never was, as far as is known."""
    time_ms: int = 0
    """When that was, in a history or among changes: milliseconds since 1970."""


class MetastoreAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to any of them."""

    keys: list[KeyAnswer] = []
    revision: int = 0
    """As of which it is; of changes: up to which."""
    applied: bool = True
    """False: the key was not at the revision that was asked for; `keys` has what it is."""
    more: bool = False
    """Whether the answer ends before everything is told."""
    failed: str = ""
    """What has gone wrong, by the name of the error; empty: nothing."""
    why: str = ""
    """In words."""
