"""The state of a service in a partition, defined by its author (docs/services.md)."""

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
    """A service's state in one partition on one member; only updates change it.

    The same updates in the same order must lead to the same state and the same answers on every member, so an update
    may use only itself and the state: no clock, no random number, no order of a set. No method may raise.
    """

    def apply(self, update: bytes) -> bytes:
        """Called once for each update, in one order, on the primary and on every backup. The result goes to the caller;
        on a backup it is dropped. An impossible update is reported in the result.
        """

    def ask(self, question: bytes) -> bytes:
        """Called on the primary; changes nothing."""

    def supply(self) -> Iterable[bytes]:
        """Pieces from which `receive` builds an equal share, in this order.

        The iterable is consumed later, between updates: collect what updates could change before the first piece, which
        is requested at once. Equal states give equal pieces, so that copies can be compared.
        """

    def receive(self, piece: bytes) -> None:
        """The share is new before the first piece."""


@runtime_checkable
class DecidingShare(Protocol):
    """A share that is asked before it is changed: it can answer without a change, or make a caller wait."""

    def decide(self, update: bytes) -> tuple[bytes, bytes | None] | Wait:
        """The answer for its caller, and the update to `apply` in its place, here and on the backups (None: no change);
        or that it has to wait.

        Called on the primary; must not change anything. A waiting update is decided again after each change of the
        partition's services and maps, in the order of arrival, and once more after its longest wait.
        """


@runtime_checkable
class RangedShare(Protocol):
    """A share whose content falls into ranges, so that only differing ranges need be sent.

    The effect of an update on a range depends on the content of that range alone.
    """

    def range_digests(self) -> Sequence[int]:
        """64 bits for each range, equal for equal content; 1 to 64 of them, always the same number."""

    def supply_ranges(self, ranges: frozenset[int]) -> Iterable[bytes]: ...

    def forget_ranges(self, ranges: frozenset[int]) -> None: ...


class WrittenShare:
    """The written form of a share whose service is not opened yet: pieces, and later updates. It answers nothing."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._updates: list[bytes] = []

    def apply(self, update: bytes) -> bytes:
        self._updates.append(update)
        return b""

    def ask(self, question: bytes) -> bytes:
        return b""

    def supply(self) -> Iterable[bytes]:
        return [*self._pieces, *self._updates]

    def receive(self, piece: bytes) -> None:
        self._pieces.append(piece)


class ServiceState(PieceState):
    __slots__ = ("_deciding", "share")

    def __init__(self, share: Share) -> None:
        self.share = share
        # Here, and not for each update: to compare a share with a protocol takes some 30 µs.
        self._deciding = share if isinstance(share, DecidingShare) else None

    def decide(self, request: Request) -> Decision | Wait:
        if request.op is Op.ASK:
            return Decision(self.share.ask(request.value))
        if self._deciding is None:
            return Decision(updates=[Update(Change.CALL, b"", request.value)], applied_answers=True)
        found = self._deciding.decide(request.value)
        if isinstance(found, Wait):
            return found
        answer, update = found
        return Decision(answer, () if update is None else [Update(Change.CALL, b"", update)])

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        return self.share.apply(record.value)

    def pieces(self, ranges: frozenset[int] | None) -> Iterable[bytes]:
        if ranges is None:
            return self.share.supply()
        assert isinstance(self.share, RangedShare), "only a ranged share is asked for ranges"
        return self.share.supply_ranges(ranges)

    def begin_ranges(self, ranges: frozenset[int]) -> None:
        """Ranges that do not exist here are ignored: another member named them."""
        if isinstance(self.share, RangedShare):
            self.share.forget_ranges(ranges & frozenset(range(len(self.share.range_digests()))))

    def receive(self, piece: bytes) -> None:
        self.share.receive(piece)

    def start_from(self, base: ServiceState) -> None:
        assert base.share is not self.share, "the two shares are different objects"
        for piece in base.share.supply():
            self.share.receive(piece)

    def range_digests(self) -> Sequence[int]:
        if not isinstance(self.share, RangedShare):
            return [self.digest()]
        digests = self.share.range_digests()
        if not 1 <= len(digests) <= RANGES:
            raise InvariantBroken(f"a share has 1 to {RANGES} ranges, and not {len(digests)}")
        return digests

    def compared(self) -> int:
        if not isinstance(self.share, RangedShare):
            return self.digest()
        words = [(word & _WORD).to_bytes(8, "big") for word in self.range_digests()]
        return int(mmh3.hash64(b"".join(words), signed=False)[0])


class WrittenState(ServiceState):
    """State of a service that was read from disk and that no service has opened yet."""

    __slots__ = ("_taken", "_taken_ns", "_updates")

    def __init__(self) -> None:
        super().__init__(WrittenShare())
        self._taken: MapSnapshot | None = None
        """Only the state that wrote it knows the format."""
        self._taken_ns = 0
        """When it was written, in this member's monotonic time (journal/R-6)."""
        self._updates: list[tuple[Record, int]] = []

    def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
        assert self._taken is None and not self._updates, "a checkpoint is read into a new state"
        super().read_from(taken, at_ns)
        self._taken, self._taken_ns = taken, at_ns

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        self._updates.append((record, now_ns))
        return super().apply(record, now_ns)

    def open_as(self, state: State) -> None:
        """Fill a new state from it, with the original times, so that times to live continue."""
        assert state is not self, "the state is opened as another one"
        if self._taken is not None:
            state.read_from(self._taken, self._taken_ns)
        for record, at_ns in self._updates:
            state.apply(record, at_ns)
