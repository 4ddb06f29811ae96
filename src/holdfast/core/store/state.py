"""The state of a replica: it applies updates, and is sent, compared, written down and observed.

Each kind of object in partitions has its own (`map_state`, `service_state`). A state knows nothing of replication:
counters, terms and targets belong to its `Replica`. Only `apply` changes it, in the order of the updates, the same on
every member; the effect of an operation is decided before.

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
        """Keys have changed since the last call, from these values (None: not there) to what `entries` holds now."""

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
        """The value of a key before it changes, for listeners and change streams."""

    def hash_word(self, key: bytes) -> int:
        """The partition-hash word that the key carries; 0: none."""

    def settle(self) -> None:
        """Some updates were applied: observers may be notified."""

    def all_used(self, now_ns: int) -> None:
        """Count entries with a maximum idle time as used now: their last use is unknown."""

    # -- another copy of it

    def start_from(self, base: Self) -> None:
        """Begin with the content of `base`; the two states are independent from now on."""

    def size(self) -> int:
        """How many entries or pieces a full transfer sends; 0: unknown."""

    def portion(self, of: Numbered, ranges: frozenset[int] | None) -> Portion | None:
        """The part to send for these key ranges (None: all); None: nothing. `of` numbers the updates."""

    def receiver(self) -> Receiver:
        """The receiver that fills this new state."""

    def with_remaining_ttl(self, record: Record, now_ns: int) -> Record:
        """An earlier update as it is sent now, with the rest of its times."""

    def write_to(self, taken: MapSnapshot, now_ns: int) -> None:
        """Write all content into the columns of a checkpoint."""

    def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
        """Fill this new state from a checkpoint of this moment."""

    # -- comparing

    def compared(self) -> int:
        """64 bits over the content, equal for equal content. May be kept up to date from the first call on,
        which costs something for each change.
        """

    def not_compared(self) -> None:
        """Stop keeping what `compared` needs."""

    def range_digests(self) -> Sequence[int]:
        """64 bits for each key range, computed from the content; at most 64 of them, always the same number. One means
        that the state has no ranges and is compared as a whole.
        """

    def digest(self) -> int:
        """64 bits over the content, computed from it; equal for equal content."""

    def damaged(self, *, adopt: bool) -> list[int]:
        """Key ranges whose content differs from the effect of the updates, where that can be detected;
        `adopt`: count it as right from now on.
        """


class HostedState(State, Protocol):
    """A state that decides its requests itself: every kind but maps, whose operations are `map_operations`."""

    def decide(self, request: Request) -> Decision | Wait:
        """Decide a question or a call, without changing anything."""
