"""A state of a group at one index, read in pieces while the group goes on (raft_partition/Z-12).

No entry is copied when the state is captured. The state machine says before each change which key will change, and the
capture keeps the entry as it was. Example: the capture has read a, of the entries {a: 1, b: 2}. Then b is set to 5: the
capture keeps b: 2, and its next piece has that. Then c is added: the capture keeps that it was not there.

The entries of a table are read in the table's own order (store/E-8), which keys that are added and removed meanwhile do
not disturb; those that were kept come last. The keys of a dictionary are listed at the beginning, and come in that
order: equal states in plain Python have equal pieces.

A map that is cleared would lose all its entries in one step. If it has more than `CLEARED_MAX`, keeping them would be
too much work: the capture is void, and its reader begins again, with less to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.core.model.records import Puts
from holdfast.core.raft_partition.partition_snapshot import EntryEnding, encode_piece, head_of, named
from holdfast.core.store.chunk import ENTRY_OVERHEAD
from holdfast.core.store.entry_mapping import Packing
from holdfast.core.store.expiry import Expiry
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy

PIECE_BYTES = 64 << 10
"""Approximate size of a piece; it has at least one entry."""
CLEARED_MAX = 4096
"""Entries that a capture keeps at most when their map is cleared."""
_Kept = tuple[bytes | None, EntryEnding | None, int]
"""Value (None: no entry), ending and hash word."""


class MapCapture:
    """One map at the index of the capture."""

    __slots__ = ("_kept", "_keys", "_packing", "_state", "_taken", "done", "name", "partition")

    def __init__(self, partition: int, name: str, state: MapState) -> None:
        self.partition = partition
        self.name = name
        self.done = False
        """All its pieces are read."""
        self._state = state
        self._packing: Packing | None = None
        self._keys: list[bytes] = []
        if state.packed is not None:
            self._packing = state.packed.packing()
        else:
            self._keys = list(state.entries)
        self._taken = 0
        """How many of `_keys` have been read."""
        self._kept: dict[bytes, _Kept] = {}

    @property
    def kept(self) -> int:
        return len(self._kept)

    def keep(self, key: bytes) -> None:
        if key in self._kept or self.done:
            return
        state = self._state
        value = state.entries.get(key)
        expiry = state.expiries.get(key) if state.expiries else None
        self._kept[key] = (value, _ending(expiry) if expiry is not None else None, state.hash_word(key))

    def keep_all(self) -> bool:
        """Returns False if these are too many."""
        if self.done:
            return True
        if len(self._state.entries) > CLEARED_MAX:
            return False
        for key in self._state.entries:
            self.keep(key)
        return True

    def keep_idle(self) -> None:
        """All entries with a maximum idle time are about to count as used."""
        if not self.done:
            for key in [key for key, expiry in self._state.expiries.items() if expiry.max_idle_ms]:
                self.keep(key)

    def piece(self) -> bytes | None:
        """The next entries; None: these were all."""
        rows: list[tuple[bytes, bytes]] = []
        endings: dict[bytes, EntryEnding] = {}
        hashes: dict[bytes, int] = {}
        if self._packing is not None:
            rows = self._packed(self._packing)
            words = self._state.hashes
            if words:
                hashes = {key: words[key] for key, _ in rows if key in words}
        else:
            size = 0
            while self._taken < len(self._keys) and size < PIECE_BYTES:
                key = self._keys[self._taken]
                self._taken += 1
                value, ending, word = self._entry(key)
                if value is None:
                    continue
                rows.append((key, value))
                size += len(key) + len(value) + ENTRY_OVERHEAD
                if ending is not None:
                    endings[key] = ending
                if word:
                    hashes[key] = word
            if not rows:
                self.done = True
                self._kept = {}
                return None
        return encode_piece(self.name, rows, endings, hashes)

    def _entry(self, key: bytes) -> _Kept:
        if key in self._kept:
            return self._kept[key]
        state = self._state
        expiry = state.expiries.get(key) if state.expiries else None
        return state.entries.get(key), _ending(expiry) if expiry is not None else None, state.hash_word(key)

    def _packed(self, packing: Packing) -> list[tuple[bytes, bytes]]:
        """The next entries of a table. Those that have changed, expire or are large follow in `_keys`."""
        sizes, data, _ = packing.pack(PIECE_BYTES, some=True)
        rows = zip(*Puts(self.name, 0, sizes, data).columns(), strict=True)
        self._keys += [key for key in packing.apart() if key not in self._kept]
        if packing.ended:
            self._packing = None
            # From now on changes of other keys do not matter: all their entries are read.
            self._keys += [key for key, (value, _, _) in self._kept.items() if value is not None]
        return [row for row in rows if row[0] not in self._kept]


class StateCapture:
    """An iterator of pieces: those of each copy begin with its head."""

    def __init__(
        self,
        copies: Mapping[int, PartitionCopy],
        time_ms: int,
        captures: list[StateCapture],
        *,
        counted: bool,
    ) -> None:
        """`captures`: this one leaves them when it is closed, or read to the end."""
        self.is_void = False
        """It cannot be read any more; begin again."""
        self._captures = captures
        self._names = len(copies) > 1
        self._maps: dict[int, MapCapture] = {}
        """By the identity of the state."""
        self._parts: list[bytes | MapCapture] = []
        for partition, copy in copies.items():
            head = head_of(copy, time_ms, counted=counted)
            self._parts.append(named(partition, head) if self._names else head)
            for name, held in sorted(copy.maps.items()):
                self._maps[id(held.state)] = captured = MapCapture(partition, name, held.state)
                self._parts.append(captured)
        self._parts.reverse()

    def keep(self, state: MapState, key: bytes) -> None:
        """The entry of this key is about to change."""
        captured = self._maps.get(id(state))
        if captured is not None:
            captured.keep(key)

    def keep_all(self, state: MapState) -> None:
        """The map is about to be cleared."""
        captured = self._maps.get(id(state))
        if captured is not None and not captured.keep_all():
            self.is_void = True

    def keep_idle(self, state: MapState) -> None:
        captured = self._maps.get(id(state))
        if captured is not None:
            captured.keep_idle()

    @property
    def kept(self) -> int:
        """Entries that are kept because they have changed."""
        return sum(captured.kept for captured in self._maps.values())

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        assert not self.is_void, "a void capture is not read"
        while self._parts:
            part = self._parts[-1]
            if isinstance(part, bytes):
                self._parts.pop()
                return part
            if (piece := part.piece()) is not None:
                return named(part.partition, piece) if self._names else piece
            self._parts.pop()
        self.close()
        raise StopIteration

    def close(self) -> None:
        """It is not read any more."""
        self._parts, self._maps = [], {}
        if self in self._captures:
            self._captures.remove(self)


def _ending(expiry: Expiry) -> EntryEnding:
    return expiry.ttl_ms, expiry.stored_ns, expiry.max_idle_ms, expiry.accessed_ns
