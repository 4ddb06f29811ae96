"""What an operation answers, and what it changes: decided by looking, before anything has changed.

A decision is made by a pure function of a state and a request. Whoever replicates chooses when: a primary that numbers
its own updates decides at once, one that must agree on an order first decides when that is known. Then every replica
applies the updates, and the caller hears the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.core.model.operations import EventKind, Value
from holdfast.core.model.records import FOREVER, Change


class Update(msgspec.Struct, frozen=True, gc=False):
    """One change that was decided: a record that has no number yet."""

    change: Change
    key: bytes = b""
    value: bytes = b""
    ttl_ms: int = FOREVER
    max_idle_ms: int = FOREVER
    key_hash: int = 0
    kind: EventKind | None = None
    """What listeners hear; None: nothing, or of all at once."""
    map: str = ""
    """Of which map it is; empty: of the one that the request names."""
    transaction: bytes = b""
    """The transaction that it is part of, for change streams."""


class Decision(msgspec.Struct, frozen=True):
    """What comes of a request."""

    answer: Value = None
    updates: Sequence[Update] = ()
    """In this order. None: nothing changes."""
    used: Sequence[bytes] = ()
    """Entries that count as used now, which only the member that decides need know."""
    applied_answers: bool = False
    """Whether the answer is what applying the last update answers, and not known before."""


class Wait(NamedTuple):
    """The state has to change first: the request is tried again then, or when it has waited long enough."""

    ms: int
    """How long it may wait at most, counted from when it came."""
    answer: bytes | None = None
    """What it answers when it has waited so long, and still would have to."""
    refused: str = ""
    """Then it is refused instead, for this reason; empty: it answers."""
    waiter: bytes = b""
    """The transaction that waits, if one does."""
    holder: bytes = b""
    """The transaction that it waits for, if it waits for one."""
    key: tuple[str, bytes] = ("", b"")
    """The map and the key that this one has locked."""
