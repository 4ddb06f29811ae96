"""What a service holds of a partition: whatever its user writes it to hold (docs/services.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import mmh3

from holdfast.core.model.decisions import Decision, Update, Wait
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.records import Change, Record


class Share(Protocol):
    """What a service holds of one partition on one member: a state that only updates change.

    The same updates in the same order must lead to the same state and the same answers on every member, so an update
    may use nothing but itself and the state: no clock, no random number, no order of a set. None of these may raise.
    """

    def apply(self, update: bytes) -> bytes:
        """Change the state; called once for each update, in one order, on the primary and on every backup.

        What it answers goes to the caller; on a backup it is dropped. An update that cannot be done is answered so.
        """

    def ask(self, question: bytes) -> bytes:
        """Answer something without changing the state; called on the primary."""

    def supply(self) -> Iterable[bytes]:
        """The state, as pieces that a new share is made of with `receive`, in this order.

        What is answered is walked through later, between updates: gather first what they would change, and yield
        then. The first piece is asked for at once. Equal states give equal pieces, so that copies can be compared.
        """

    def receive(self, piece: bytes) -> None:
        """Take the next piece; the share was new before the first."""


@runtime_checkable
class DecidingShare(Protocol):
    """A share that also looks before it is changed: so it can answer without a change, or let a caller wait for one."""

    def decide(self, update: bytes) -> tuple[bytes, bytes | None] | Wait:
        """What comes of this update: what its caller is answered, and the update that `apply` is given in its place,
        here and on the backups; None: nothing changes. Or that it has to wait.

        Called on the primary, and changes nothing. Who waits is asked for again after each change of this partition's
        services, in the order in which they came, and once when it has waited long enough.
        """


class WrittenShare:
    """What was written down of a share, by a member that is not here yet to open one: its pieces, and what came after.

    It answers nothing, and becomes the share of a service with `open_with`.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._updates: list[bytes] = []

    def apply(self, update: bytes) -> bytes:
        """One more update."""
        self._updates.append(update)
        return b""

    def ask(self, question: bytes) -> bytes:
        """Nobody asks it."""
        return b""

    def supply(self) -> Iterable[bytes]:
        """The pieces; there are no updates after them in what is compared."""
        return [*self._pieces, *self._updates]

    def receive(self, piece: bytes) -> None:
        """One more piece."""
        self._pieces.append(piece)

    def open_with(self, share: Share) -> Share:
        """Make this share, which is new, hold it."""
        for piece in self._pieces:
            share.receive(piece)
        for update in self._updates:
            share.apply(update)
        return share


class ServiceState:
    """A service's share of one partition, as the state of a replica."""

    __slots__ = ("share",)

    def __init__(self, share: Share) -> None:
        self.share = share

    def decide(self, request: Request) -> Decision | Wait:
        """What comes of a question, or of an update."""
        if request.op is Op.ASK:
            return Decision(self.share.ask(request.value))
        if not isinstance(self.share, DecidingShare):
            return Decision(updates=[Update(Change.CALL, b"", request.value)], applied_answers=True)
        found = self.share.decide(request.value)
        if isinstance(found, Wait):
            return found
        answer, update = found
        return Decision(answer, () if update is None else [Update(Change.CALL, b"", update)])

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        """Do as a primary's record says; answers what the share does."""
        return self.share.apply(record.value)

    def former(self, key: bytes) -> bytes | None:
        """A share has no keys."""
        return None

    def hash_word(self, key: bytes) -> int:
        """A share has no keys."""
        return 0

    def start_from(self, base: ServiceState) -> None:
        """Hold what `base` holds."""
        for piece in base.share.supply():
            self.share.receive(piece)

    def settle(self) -> None:
        """Nobody observes."""

    def compared(self) -> int:
        """64 bits over the pieces of the share."""
        return self.digest()

    def not_compared(self) -> None:
        """Nothing is kept up to date for that."""

    def damaged(self, *, adopt: bool) -> list[int]:
        """That cannot be told."""
        return []

    def digest(self) -> int:
        """64 bits over the pieces of the share, the same for equal content."""
        pieces = [len(piece).to_bytes(4, "big") + piece for piece in self.share.supply()]
        return int(mmh3.hash64(b"".join(pieces), signed=False)[0]) if pieces else 0
