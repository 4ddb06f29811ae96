"""A state that is told in pieces, all of one moment: what such states have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import mmh3

from holdfast.core.messages import FillEntries, FillShare
from holdfast.core.model.journal_entries import MapSnapshot
from holdfast.core.model.records import Record
from holdfast.core.model.sync_request import How
from holdfast.core.store.chunk import ENTRY_OVERHEAD, Chunk, Numbered, Portion, Receiver

PLACE_BYTES = 8
"""Of the place of a piece in a checkpoint, which stands where the key of an entry does."""


class InPieces(Protocol):
    """What can be told in pieces."""

    def pieces(self, ranges: frozenset[int] | None) -> Iterable[bytes]:
        """What is held of these key ranges, or (None) of all, as it is now; walked through later."""

    def begin_ranges(self, ranges: frozenset[int]) -> None:
        """Hold nothing of these key ranges any more: their pieces come."""

    def receive(self, piece: bytes) -> None:
        """Take the next piece."""

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        """Carry out an update."""


class PiecePortion:
    """The pieces of a state, asked for when its turn comes, and the update counter that they tell of."""

    def __init__(self, state: InPieces, of: Numbered, ranges: frozenset[int] | None) -> None:
        self._state = state
        self._of = of
        self._ranges = ranges
        self._how = How.FULL if ranges is None else How.RANGES
        self._pieces: Iterator[bytes] | None = None
        self._next: bytes | None = None
        """One that is known, and was not sent yet."""
        self._counter = 0
        self._lineage: list[tuple[int, int]] = []

    def add_to(self, chunk: Chunk, limit: int, now_ns: int) -> bool:
        """Add what fits; answers whether that was the last."""
        if self._pieces is None:
            self._counter, self._lineage = self._of.counter, self._of.proven_lineage()
            self._pieces = iter(self._state.pieces(self._ranges))
            self._next = next(self._pieces, None)
        assert self._counter <= self._of.counter, "what is told of is held"
        pieces: list[bytes] = []
        while self._next is not None:
            size = len(self._next) + ENTRY_OVERHEAD
            if chunk.size and chunk.size + size > limit:
                if pieces:
                    chunk.shares.append(FillShare(self._of.name, self._counter, pieces, False))
                return False
            pieces.append(self._next)
            chunk.count(self._how, size)
            self._next = next(self._pieces, None)
        assert self._next is None, "the last part comes when no piece is left"
        chunk.shares.append(FillShare(self._of.name, self._counter, pieces, True, self._lineage))
        return True


class PieceReceiver:
    """Takes the pieces of all of a state as they come; those of some of its ranges when it has reached their moment."""

    def __init__(self, state: InPieces) -> None:
        self._state = state
        self._ranges: frozenset[int] | None = None
        self._kept: list[bytes] = []

    def begin(self, counter: int, ranges: frozenset[int] | None) -> None:
        """Pieces will come."""
        self._ranges = ranges

    def pour(self, part: FillEntries | FillShare, now_ns: int) -> None:
        """Take the next pieces."""
        if not isinstance(part, FillShare):
            return
        if self._ranges is not None:
            self._kept += part.pieces
            return
        for piece in part.pieces:
            self._state.receive(piece)

    def land(self) -> None:
        """The state is what it was at the moment of the pieces, but for the ranges that they tell of."""
        kept, self._kept = self._kept, []
        assert self._ranges is not None or not kept, "pieces of all of a state are taken as they come"
        if self._ranges is not None:
            self._state.begin_ranges(self._ranges)
        for piece in kept:
            self._state.receive(piece)

    def take(self, record: Record, now_ns: int) -> None:
        """Carry out an update that came before the moment of the pieces, or after all of them."""
        self._state.apply(record, now_ns)


class PieceState:
    """What a state that is told in pieces need not say itself. It has no key ranges, unless it says so."""

    keyed = False

    def pieces(self, ranges: frozenset[int] | None) -> Iterable[bytes]:
        """What is held of these key ranges, or (None) of all, as it is now; walked through later."""
        raise NotImplementedError

    def begin_ranges(self, ranges: frozenset[int]) -> None:
        """Hold nothing of these key ranges any more: their pieces come."""

    def receive(self, piece: bytes) -> None:
        """Take the next piece."""
        raise NotImplementedError

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        """Do as a primary's record says."""
        raise NotImplementedError

    def former(self, key: bytes) -> bytes | None:
        """There are no keys."""
        return None

    def hash_word(self, key: bytes) -> int:
        """There are no keys."""
        return 0

    def settle(self) -> None:
        """Nobody observes."""

    def all_used(self, now_ns: int) -> None:
        """Nothing ends by itself."""

    def size(self) -> int:
        """Nobody has counted."""
        return 0

    def portion(self, of: Numbered, ranges: frozenset[int] | None) -> Portion | None:
        """The pieces; also when there are none, to say so."""
        return PiecePortion(self, of, ranges)

    def receiver(self) -> Receiver:
        """What takes them."""
        return PieceReceiver(self)

    def as_told(self, record: Record, now_ns: int) -> Record:
        """An update says the same at any time."""
        return record

    def write_to(self, taken: MapSnapshot, now_ns: int) -> None:
        """The pieces, in the place of values; what stands for a key is the place of each."""
        pieces = list(self.pieces(None))
        taken.keys.extend(place.to_bytes(PLACE_BYTES, "big") for place in range(len(pieces)))
        taken.values.extend(pieces)

    def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
        """Take the pieces of a checkpoint."""
        for piece in taken.values:
            self.receive(piece)

    def compared(self) -> int:
        """64 bits over all pieces."""
        return self.digest()

    def not_compared(self) -> None:
        """Nothing is kept up to date for that."""

    def range_digests(self) -> Sequence[int]:
        """One: there are no ranges."""
        return [self.digest()]

    def damaged(self, *, adopt: bool) -> list[int]:
        """That cannot be told."""
        return []

    def digest(self) -> int:
        """64 bits over the pieces, the same for equal content."""
        pieces = [len(piece).to_bytes(4, "big") + piece for piece in self.pieces(None)]
        return int(mmh3.hash64(b"".join(pieces), signed=False)[0]) if pieces else 0
