"""Requests of operators to the metastore, and their response, as plain data."""

from __future__ import annotations

from typing import Final

import msgspec

ANSWER_BYTES: Final = 1 << 20
"""Approximate bytes of keys and values in one response; ask again for the rest."""


class KeyAsked(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The value of a key, now or at a revision (0: now)."""

    key: bytes
    revision: int = 0


class PrefixAsked(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The keys with this prefix that have a value, now or at a revision."""

    prefix: bytes
    after: bytes = b""
    """Only keys after this one, to continue a response that was cut off; use the revision of that response."""
    revision: int = 0


class PutAsked(msgspec.Struct, frozen=True, array_like=True, tag=2):
    key: bytes
    value: bytes
    if_revision: int | None = None
    """Only if this is the key's revision; 0: only if it is absent; None: in any case."""


class RemoveAsked(msgspec.Struct, frozen=True, array_like=True, tag=3):
    key: bytes
    if_revision: int | None = None
    """As in `PutAsked`."""


class KeyHistoryAsked(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The earlier values of this key, as far as they are known."""

    key: bytes
    after: int = 0
    """Only later revisions, to continue a response that was cut off."""


class KeyChangesAsked(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The changes after a revision of keys with this prefix. A watch repeats this request."""

    prefix: bytes
    after: int


class ResetAsked(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Make the replica of the receiving member the metastore: most voters are gone for good."""


MetastoreQuestion = (
    KeyAsked | PrefixAsked | PutAsked | RemoveAsked | KeyHistoryAsked | KeyChangesAsked | ResetAsked
)


class KeyAnswer(msgspec.Struct, frozen=True, array_like=True):
    key: bytes
    value: bytes | None
    """None: absent."""
    revision: int
    """The revision of its last change; 0: it never had a value, as far as is known."""
    time_ms: int = 0
    """When it changed, in histories and changes: milliseconds since 1970."""


class MetastoreAnswer(msgspec.Struct, frozen=True, array_like=True):
    keys: list[KeyAnswer] = []
    revision: int = 0
    """The revision of the response; for changes: the last one that it covers."""
    applied: bool = True
    """False: the key was not at the requested revision; `keys` has its present state."""
    more: bool = False
    """Whether the response was cut off."""
    failed: str = ""
    why: str = ""
