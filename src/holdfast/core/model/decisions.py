"""Decisions: the answer of an operation and the updates that it makes.

A decision is a pure function of a state and a request. A primary decides at once, a Raft group when the order
of the log is known. Every replica applies the updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.core.model.operations import EventKind, Value
from holdfast.core.model.records import FOREVER, Change
from holdfast.core.model.transactions import KeyLock, TransactionId


class Update(msgspec.Struct, frozen=True, gc=False):
    change: Change
    key: bytes = b""
    value: bytes = b""
    ttl_ms: int = FOREVER
    max_idle_ms: int = FOREVER
    key_hash: int = 0
    kind: EventKind | None = None
    """The event for listeners; None: none, or one for all entries."""
    map: str = ""
    transaction: bytes = b""


class LockChanges(NamedTuple):
    """The effect of a step on the locks of its partition, which its primary alone knows."""

    taken: Sequence[tuple[bytes, KeyLock]] = ()
    """With the `lock_key` of each entry."""
    released: TransactionId = b""
    """The transaction whose locks are released after that; empty: none."""


class Decision(msgspec.Struct, frozen=True):
    answer: Value = None
    updates: Sequence[Update] = ()
    used: Sequence[bytes] = ()
    """Entries that count as used now; only the deciding member needs to know."""
    applied_answers: bool = False
    """Whether the answer is the result of applying the last update."""
    locks: LockChanges | None = None
    unconfirmed: bool = False
    """Nothing rests on the answer, so without updates it waits for no read barrier (operations/T-5)."""
    confirmed: bool = False
    """The answer of a read waits for a read barrier, also if reads of the map do not."""
    refused: str = ""
    """Why it is rejected, having changed nothing; empty: it is not."""
    published: Sequence[bytes] = ()
    """Messages for the listeners of a topic."""
    repeatable: bool = False
    """The state shows that the request was applied, so its id need not be remembered (operations/T-7)."""


class Wait(NamedTuple):
    """The state has to change first: the request is decided again then, or at the end of its wait."""

    ms: int
    answer: Value = None
    """The answer if it still has to wait then."""
    refused: str = ""
    """Why it is rejected then; empty: it is answered."""
    waiter: bytes = b""
    holder: bytes = b""
    key: tuple[str, bytes] = ("", b"")
    """The map and key that `holder` has locked."""
    need: int = 0
    """Nothing changes for it before the last sequence of its ringbuffer is this one."""
    start: int | None = None
    """It reads from this sequence on, because there is none as it was to start from; None: from there."""
