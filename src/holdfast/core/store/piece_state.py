"""States that are sent in pieces of one moment."""

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
"""Number of a piece in a checkpoint, where a map has the key of an entry."""


class InPieces(Protocol):
    def pieces(self, ranges: frozenset[int] | None) -> Iterable[bytes]: ...

    def begin_ranges(self, ranges: frozenset[int]) -> None:
        """Prepare for the pieces of these ranges."""

    def receive(self, piece: bytes) -> None: ...

    def apply(self, record: Record, now_ns: int) -> bytes | None: ...


class PiecePortion:
    """Pieces of a state as of the moment of the first call of `add_to`."""

    def __init__(self, state: InPieces, of: Numbered, ranges: frozenset[int] | None) -> None:
        self._state = state
        self._of = of
        self._ranges = ranges
        self._how = How.FULL if ranges is None else How.RANGES
        self._pieces: Iterator[bytes] | None = None
        self._next: bytes | None = None
        self._counter = 0
        self._lineage: list[tuple[int, int]] = []

    def add_to(self, chunk: Chunk, limit: int, now_ns: int) -> bool:
        if self._pieces is None:
            self._counter, self._lineage = self._of.counter, self._of.proven_lineage()
            self._pieces = iter(self._state.pieces(self._ranges))
            self._next = next(self._pieces, None)
        assert self._counter <= self._of.counter, "the counter of the pieces is held"
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
    """Takes pieces of a whole state as they come; pieces of ranges are kept until the state has reached
    their moment.
    """

    def __init__(self, state: InPieces) -> None:
        self._state = state
        self._ranges: frozenset[int] | None = None
        self._kept: list[bytes] = []

    def begin(self, counter: int, ranges: frozenset[int] | None) -> None:
        self._ranges = ranges

    def pour(self, part: FillEntries | FillShare, now_ns: int) -> None:
        if not isinstance(part, FillShare):
            return
        if self._ranges is not None:
            self._kept += part.pieces
            return
        for piece in part.pieces:
            self._state.receive(piece)

    def land(self) -> None:
        """Replace the ranges."""
        kept, self._kept = self._kept, []
        assert self._ranges is not None or not kept, "pieces of a whole state are taken as they come"
        if self._ranges is not None:
            self._state.begin_ranges(self._ranges)
        for piece in kept:
            self._state.receive(piece)

    def take(self, record: Record, now_ns: int) -> None:
        """Apply an update from before the moment of the pieces, or after all of them."""
        self._state.apply(record, now_ns)


class PieceState:
    """Defaults of a state that is sent in pieces. It has no key ranges unless it defines them."""

    keyed = False

    def pieces(self, ranges: frozenset[int] | None) -> Iterable[bytes]:
        raise NotImplementedError

    def begin_ranges(self, ranges: frozenset[int]) -> None: ...

    def receive(self, piece: bytes) -> None:
        raise NotImplementedError

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        raise NotImplementedError

    def former(self, key: bytes) -> bytes | None:
        return None

    def hash_word(self, key: bytes) -> int:
        return 0

    def settle(self) -> None: ...

    def all_used(self, now_ns: int) -> None: ...

    def size(self) -> int:
        return 0

    def portion(self, of: Numbered, ranges: frozenset[int] | None) -> Portion | None:
        return PiecePortion(self, of, ranges)

    def receiver(self) -> Receiver:
        return PieceReceiver(self)

    def with_remaining_ttl(self, record: Record, now_ns: int) -> Record:
        return record

    def write_to(self, taken: MapSnapshot, now_ns: int) -> None:
        """Pieces are values, with their numbers as keys."""
        pieces = list(self.pieces(None))
        taken.keys.extend(place.to_bytes(PLACE_BYTES, "big") for place in range(len(pieces)))
        taken.values.extend(pieces)

    def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
        for piece in taken.values:
            self.receive(piece)

    def compared(self) -> int:
        return self.digest()

    def not_compared(self) -> None: ...

    def range_digests(self) -> Sequence[int]:
        return [self.digest()]

    def damaged(self, *, adopt: bool) -> list[int]:
        return []

    def digest(self) -> int:
        pieces = [len(piece).to_bytes(4, "big") + piece for piece in self.pieces(None)]
        return int(mmh3.hash64(b"".join(pieces), signed=False)[0]) if pieces else 0
