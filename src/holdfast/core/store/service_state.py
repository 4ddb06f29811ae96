"""What a service holds of a partition: whatever its user writes it to hold (docs/services.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

import mmh3

from holdfast.core.model.decisions import Decision, Update, Wait
from holdfast.core.model.journal_entries import MapSnapshot
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.records import Change, Record
from holdfast.core.store.digest import RANGES
from holdfast.core.store.piece_state import PieceState
from holdfast.core.store.state import State
from holdfast.errors import InvariantBroken

_WORD = 0xFFFF_FFFF_FFFF_FFFF


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
        services and maps, in the order in which they came, and once when it has waited long enough.
        """


@runtime_checkable
class RangedShare(Protocol):
    """A share whose content falls into ranges, so that of a copy that differs only some need be sent again.

    What an update does to a range depends on what this range holds, and on nothing that others do.
    """

    def range_digests(self) -> Sequence[int]:
        """64 bits for each range, the same for equal content; 1 to 64 of them, and always as many."""

    def supply_ranges(self, ranges: frozenset[int]) -> Iterable[bytes]:
        """What these ranges hold, as pieces; the same rules as for `supply`."""

    def forget_ranges(self, ranges: frozenset[int]) -> None:
        """Hold nothing of these ranges any more: their pieces are given to `receive` next."""


class WrittenShare:
    """What was written down of a share, by a member that is not here yet to open one: its pieces, and what came after.

    It answers nothing.
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


class ServiceState(PieceState):
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

    def pieces(self, ranges: frozenset[int] | None) -> Iterable[bytes]:
        """What the share supplies."""
        if ranges is None:
            return self.share.supply()
        assert isinstance(self.share, RangedShare), "only who has ranges is asked for some"
        return self.share.supply_ranges(ranges)

    def begin_ranges(self, ranges: frozenset[int]) -> None:
        """The share forgets them. What another member says of ranges that there are not means nothing."""
        if isinstance(self.share, RangedShare):
            self.share.forget_ranges(ranges & frozenset(range(len(self.share.range_digests()))))

    def receive(self, piece: bytes) -> None:
        """The share takes it."""
        self.share.receive(piece)

    def start_from(self, base: ServiceState) -> None:
        """Hold what `base` holds."""
        assert base.share is not self.share, "both go their own ways from now on"
        for piece in base.share.supply():
            self.share.receive(piece)

    def range_digests(self) -> Sequence[int]:
        """Those of the share, if it has ranges; else one, of all its pieces."""
        if not isinstance(self.share, RangedShare):
            return [self.digest()]
        digests = self.share.range_digests()
        if not 1 <= len(digests) <= RANGES:
            raise InvariantBroken(f"a share has 1 to {RANGES} ranges, and not {len(digests)}")
        return digests

    def compared(self) -> int:
        """64 bits over the digests of its ranges, if it has some, else over its pieces."""
        if not isinstance(self.share, RangedShare):
            return self.digest()
        words = [(word & _WORD).to_bytes(8, "big") for word in self.range_digests()]
        return int(mmh3.hash64(b"".join(words), signed=False)[0])


class WrittenState(ServiceState):
    """What was written down of a service, as the state of a replica that nobody has opened yet."""

    __slots__ = ("_taken", "_taken_ns", "_updates")

    def __init__(self) -> None:
        super().__init__(WrittenShare())
        self._taken: MapSnapshot | None = None
        """As it was written, whatever that means to the state that wrote it."""
        self._taken_ns = 0
        """When it was written down, in this member's monotonic time (journal/R-6)."""
        self._updates: list[tuple[Record, int]] = []
        """What came after, and when."""

    def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
        """Keep it as it is."""
        assert self._taken is None and not self._updates, "a checkpoint is what a state begins with"
        super().read_from(taken, at_ns)
        self._taken, self._taken_ns = taken, at_ns

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        """Keep it for who opens it."""
        self._updates.append((record, now_ns))
        return super().apply(record, now_ns)

    def open_as(self, state: State) -> None:
        """Make this state, which is new, hold it: all of it as of its own time, so that times to live go on."""
        assert state is not self, "it is handed to another one"
        if self._taken is not None:
            state.read_from(self._taken, self._taken_ns)
        for record, at_ns in self._updates:
            state.apply(record, at_ns)
