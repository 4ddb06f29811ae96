"""What does a replica hold? A state: it applies changes, and is told, compared, written down and followed.

Every kind of object that is kept in partitions has its own (`map_state`, `service_state`). A state knows nothing of how
it is replicated: counters, terms and targets are the affair of its `Replica`. It changes by `apply` alone, in the order
of the updates, the same on every member; what an operation does to it is decided before, without changing it.

A state is *keyed* when each update changes one key, and says all of what that holds then. Its content can be sent while
it changes, and updates be taken before or after the entries that they are of. Any other state is sent as it was at one
moment; what came before that is in it, and what came after waits for all of it (`pieces`).
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
    """Who has to know what a state held before a change: digests, pins of cuts, an index. None of these may raise."""

    def absorb(self, touched: dict[bytes, bytes | None], entries: Entries) -> None:
        """These keys have changed since it was told last, from what is given (None: the key was not there) to what the
        entries hold now.
        """

    def complete(self, entries: Entries) -> bool:
        """All entries, which are these, are about to go; changes until now have been absorbed. Answers whether it goes
        on, with none.
        """


class State(Protocol):
    """What an object holds of one partition on one member."""

    @property
    def keyed(self) -> bool:
        """Whether each update changes one key, and says what that holds then."""

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        """Do as a record says: on a backup, on the primary of what was decided there, and of what was written down.

        What it answers goes to the caller if nothing was known before (`Decision.applied_answers`).
        """

    def former(self, key: bytes) -> bytes | None:
        """What is there of a key, before it changes: for listeners and change streams."""

    def hash_word(self, key: bytes) -> int:
        """The partition-hash word that the key carries; 0: none."""

    def settle(self) -> None:
        """Some changes have been applied: whoever observes them may be told."""

    def all_used(self, now_ns: int) -> None:
        """Of what ends when it was not used for long nobody knows how long that was: it counts as used now."""

    # -- another copy of it

    def start_from(self, base: Self) -> None:
        """Hold what `base` holds, on the way to something newer; both go their own ways from now on."""

    def size(self) -> int:
        """How many entries or pieces are sent when all is; 0: nobody has counted."""

    def portion(self, of: Numbered, ranges: frozenset[int] | None) -> Portion | None:
        """What is sent of these key ranges, or (None) of all; None: nothing need be. `of` numbers its updates."""

    def receiver(self) -> Receiver:
        """What this state, which is new, takes such portions with."""

    def as_told(self, record: Record, now_ns: int) -> Record:
        """An update of before as it is told now: what is left of its times."""

    def write_to(self, taken: MapSnapshot, now_ns: int) -> None:
        """Put all that is held into the columns of a checkpoint."""

    def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
        """Hold, being new, what was written into a checkpoint at this moment."""

    # -- comparing

    def compared(self) -> int:
        """64 bits over all that is held, the same for equal content. It may be kept up to date from the first time on,
        at some cost for each change.
        """

    def not_compared(self) -> None:
        """Nobody will compare it: nothing need be kept up to date for that."""

    def range_digests(self) -> Sequence[int]:
        """64 bits for each key range, counted anew; at most 64 of them, and always as many. One: it has no ranges, and
        is compared as a whole.
        """

    def digest(self) -> int:
        """64 bits over all that is held, counted anew, the same for equal content."""

    def damaged(self, *, adopt: bool) -> list[int]:
        """Key ranges whose content is not what the changes have made of it, as far as that can be told; `adopt`: count
        it as it is from now on.
        """


class HostedState(State, Protocol):
    """A state that decides itself what comes of a request: all but a map's, whose operations are `map_operations`."""

    def decide(self, request: Request) -> Decision | Wait:
        """What comes of a question or of a call, without changing anything."""
