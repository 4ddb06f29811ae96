"""Entries of a CP group, as they are stored."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from holdfast.core.model.cp import NO_SESSION

DESTROYED = b""
"""The value of an object that was destroyed. It stays, so that no client uses an object that others know to be gone."""


class LongEntry(msgspec.Struct, frozen=True, array_like=True):
    value: int = 0


class ReferenceEntry(msgspec.Struct, frozen=True, array_like=True):
    value: bytes | None = None


class LatchEntry(msgspec.Struct, frozen=True, array_like=True):
    count: int = 0
    round: int = 0
    """How often the count was set."""
    past: list[bytes] = []
    """Ids of the last calls in this round."""


class LockEntry(msgspec.Struct, frozen=True, array_like=True):
    fence: int = 0
    """That of the owner, or else of the last owner."""
    session: int = NO_SESSION
    thread: int = 0
    uids: list[bytes] = []
    """Ids of the calls by which the owner holds it, one for each time."""
    spent: list[bytes] = []
    """Ids of the last calls that acquired it and are released again."""
    unlocked: list[tuple[bytes, bool]] = []
    """Ids of the last calls that released it, and whether it was still locked then."""


class SemaphoreEntry(msgspec.Struct, frozen=True, array_like=True):
    is_initialised: bool = False
    available: int = 0
    held: dict[int, int] = {}
    """Permits of sessions that hold some."""
    past: list[tuple[bytes, int]] = []
    """Ids of the last calls, with their answers."""


class SessionEntry(msgspec.Struct, frozen=True, array_like=True):
    ttl_ms: int = 0
    client: bytes = b""
    """Name of the client."""
    closing: bool = False
    """It is closed, and more of what it holds is to be released."""
    owner: bytes = b""
    """The client that created it; empty: a member did (cp/S-4)."""


class NumbersEntry(msgspec.Struct, frozen=True, array_like=True):
    session: int = 0
    thread: int = 0


CpEntry = LongEntry | ReferenceEntry | LatchEntry | LockEntry | SemaphoreEntry | SessionEntry | NumbersEntry
E = TypeVar("E", bound=CpEntry)
encode_entry = msgspec.msgpack.Encoder().encode


def decode_entry(kind: type[E], stored: bytes | None) -> E:
    """An object that was not stored is new. Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(stored, type=kind) if stored else kind()
