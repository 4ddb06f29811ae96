"""The state of a replica: it applies updates, and is sent, compared, written down and observed.

A state knows nothing of replication (`Replica`). Only `apply` changes it, in the order of the updates, the same on
every member.

A state is *keyed* when each update changes one key and contains all of its new value. Its content can be sent while it
changes, and updates may be applied before or after the entries that they concern. Example: a map. Any other state is
sent as of one moment: earlier updates are in its pieces, later ones wait for all of them (`piece_state`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.journal_entries import MapSnapshot
from holdfast.core.model.operations import Request
from holdfast.core.model.records import Record
from holdfast.core.store.chunk import Numbered, Portion, Receiver
from holdfast.core.store.entry_mapping import Entries


class Observer(Protocol):
    """Gets the former content of a state when it changes: digests, pins of cuts, an index. No method may raise."""

    def absorb(self, touched: dict[bytes, bytes | None], entries: Entries) -> None:
        """Former values since the last call (None: not there); `entries` holds the new ones."""

    def complete(self, entries: Entries) -> bool:
        """All entries are about to go; earlier changes were absorbed. Returns whether it keeps observing."""


class State(Protocol):
    @property
    def keyed(self) -> bool:
        """Whether each update changes one key, and contains its whole new value."""

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        """Apply a record: on a backup, on the primary that decided it, or from the journal.

        The result goes to the caller if the answer was not known before (`Decision.applied_answers`).
        """

    def former(self, key: bytes) -> bytes | None:
        """The value before a change, for listeners and change streams."""

    def hash_word(self, key: bytes) -> int:
        """0: none."""

    def settle(self) -> None:
        """Observers may be notified."""

    def all_used(self, now_ns: int) -> None:
        """Count entries with a maximum idle time as used now: their last use is unknown."""

    # -- another copy of it

    def start_from(self, base: Self) -> None:
        """The two states are independent from now on."""

    def size(self) -> int:
        """Entries or pieces of a full transfer; 0: unknown."""

    def portion(self, of: Numbered, ranges: frozenset[int] | None) -> Portion | None:
        """The content of these key ranges (None: all); None: nothing. `of` numbers the updates."""

    def receiver(self) -> Receiver:
        """The receiver that fills this new state."""

    def with_remaining_ttl(self, record: Record, now_ns: int) -> Record:
        """An earlier update, with the rest of its times."""

    def write_to(self, taken: MapSnapshot, now_ns: int) -> None:
        """All content, into the columns of a checkpoint."""

    def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
        """This state is new; `at_ns`: when the checkpoint was written."""

    # -- comparing

    def compared(self) -> int:
        """64 bits, equal for equal content. May be kept up to date from the first call on, which costs something for
        each change.
        """

    def not_compared(self) -> None:
        """Stop keeping what `compared` needs."""

    def range_digests(self) -> Sequence[int]:
        """64 bits for each key range, computed from the content; at most 64 of them, always the same number. One: the
        state is compared as a whole.
        """

    def digest(self) -> int:
        """64 bits, computed from the content."""

    def damaged(self, *, adopt: bool) -> list[int]:
        """Key ranges whose content differs from the effect of the updates, where that can be detected; `adopt`: count
        it as right.
        """


class HostedState(State, Protocol):
    """A state that decides its requests itself: every kind but maps, whose operations are `map_operations`."""

    def decide(self, request: Request) -> Decision | Wait:
        """Decide a request without changing anything."""
