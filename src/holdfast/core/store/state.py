"""What does a replica hold? A state: it applies changes, and is told, compared and followed through what is here.

Every kind of object that is kept in partitions has its own (`map_state`, `service_state`). A state knows nothing of how
it is replicated: counters, terms and targets are the affair of its `Replica`. It changes by `apply` alone, in the order
of the updates, the same on every member; what an operation does to it is decided before, without changing it.
"""

from __future__ import annotations

from typing import Protocol, Self

from holdfast.core.model.records import Record


class Observer(Protocol):
    """Who has to know what a state held before a change: digests, pins of cuts, an index. None of these may raise."""

    def absorb(self, touched: dict[bytes, bytes | None], entries: dict[bytes, bytes]) -> None:
        """These keys have changed since it was told last, from what is given (None: the key was not there) to what the
        entries hold now.
        """

    def complete(self, entries: dict[bytes, bytes]) -> bool:
        """All entries, which are these, are about to go; changes until now have been absorbed. Answers whether it goes
        on, with none.
        """


class State(Protocol):
    """What an object holds of one partition on one member."""

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        """Do as a record says: on a backup, on the primary of what was decided there, and of what was written down.

        What it answers goes to the caller if nothing was known before (`Decision.applied_answers`).
        """

    def former(self, key: bytes) -> bytes | None:
        """What is there of a key, before it changes: for listeners and change streams."""

    def hash_word(self, key: bytes) -> int:
        """The partition-hash word that the key carries; 0: none."""

    def start_from(self, base: Self) -> None:
        """Hold what `base` holds, on the way to something newer; both go their own ways from now on."""

    def settle(self) -> None:
        """Some changes have been applied: whoever observes them may be told."""

    def compared(self) -> int:
        """64 bits over all that is held, the same for equal content. It may be kept up to date from the first time on,
        at some cost for each change.
        """

    def not_compared(self) -> None:
        """Nobody will compare it: nothing need be kept up to date for that."""

    def damaged(self, *, adopt: bool) -> list[int]:
        """Key ranges whose content is not what the changes have made of it, as far as that can be told; `adopt`: count
        it as it is from now on.
        """
