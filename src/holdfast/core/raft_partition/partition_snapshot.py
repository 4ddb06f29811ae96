"""Snapshot of a group's copies of client partitions, as pieces.

The first piece of a copy has the time, the request ids, the counters and the lineages; every other one some entries of
one map (`state_capture`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.errors import ProtocolError


class CopyHead(msgspec.Struct, frozen=True, array_like=True):
    time_ms: int
    requests: bytes
    """Recently applied."""
    counters: list[tuple[str, int]]
    """Updates of each map."""
    counted: bool = False
    """Updates have terms (raft_partition/Z-6). False in snapshots of older builds."""
    lineages: list[tuple[str, list[tuple[int, int]]]] = []
    """Lineages of maps with updates of a known term."""
    forgotten_to: int = 0


class NamedPiece(msgspec.Struct, frozen=True, array_like=True):
    partition: int
    piece: msgspec.Raw


class MapPiece(msgspec.Struct, frozen=True, array_like=True):
    map: str
    keys: list[bytes]
    values: list[bytes]
    expiries: list[tuple[int, int, int]]
    """For entries that expire: position in the columns, time to live in ms, start in zone ms."""
    hashes: list[tuple[int, int]]
    """For entries with a partition-hash word: position in the columns, word."""
    idles: list[tuple[int, int, int]] = []
    """For entries with a maximum idle time: position in the columns, that time in ms, used in zone ms."""


_encoder = msgspec.msgpack.Encoder()
_heads: msgspec.msgpack.Decoder[CopyHead] = msgspec.msgpack.Decoder(CopyHead)
_pieces: msgspec.msgpack.Decoder[MapPiece] = msgspec.msgpack.Decoder(MapPiece)
_named: msgspec.msgpack.Decoder[NamedPiece] = msgspec.msgpack.Decoder(NamedPiece)
EntryEnding = tuple[int, int, int, int]
"""Time to live in ms, start in ns, maximum idle time in ms, used in ns."""


def head_of(copy: PartitionCopy, time_ms: int, *, counted: bool) -> bytes:
    """The first piece. `counted`: updates have terms."""
    maps = sorted(copy.maps.items())
    lineages = [(name, held.proven_lineage()) for name, held in maps]
    return _encoder.encode(
        CopyHead(
            time_ms,
            copy.requests.encode(),
            [(name, held.counter) for name, held in maps],
            counted,
            [(name, lineage) for name, lineage in lineages if lineage],
            copy.forgotten_to,
        )
    )


def encode_piece(
    name: str,
    rows: Sequence[tuple[bytes, bytes]],
    endings: Mapping[bytes, EntryEnding],
    hashes: Mapping[bytes, int],
) -> bytes:
    """Entries of one map; `endings` and `hashes` have at least those of the entries that have some."""
    keys = [key for key, _ in rows]
    timed = [(place, endings[key]) for place, key in enumerate(keys) if key in endings] if endings else []
    return _encoder.encode(
        MapPiece(
            name,
            keys,
            [value for _, value in rows],
            [(place, ttl_ms, stored_ns // MILLISECOND) for place, (ttl_ms, stored_ns, _, _) in timed],
            [(place, hashes[key]) for place, key in enumerate(keys) if key in hashes] if hashes else [],
            [
                (place, max_idle_ms, used_ns // MILLISECOND)
                for place, (_, _, max_idle_ms, used_ns) in timed
                if max_idle_ms
            ],
        )
    )


def named(partition: int, piece: bytes) -> bytes:
    """A piece of a group with several client partitions."""
    return _encoder.encode(NamedPiece(partition, msgspec.Raw(piece)))


class StagedState:
    """A state that is being filled from pieces, one by one, beside the one in use."""

    def __init__(self, copies: Mapping[int, PartitionCopy]) -> None:
        """The copies are new."""
        self.copies = copies
        self.time_ms = 0
        self.counted = False
        """Updates have terms."""
        self._headed: set[int] = set()
        """Copies whose first piece has come."""

    def add(self, data: bytes) -> None:
        """Raises ProtocolError if this is no piece of such a state."""
        try:
            self._add(data)
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as broken:
            raise ProtocolError(f"a piece of a group's state cannot be read: {broken}") from broken

    def _add(self, data: bytes) -> None:
        if len(self.copies) == 1:
            [partition] = self.copies
        else:
            piece = _named.decode(data)
            partition, data = piece.partition, bytes(piece.piece)
        copy = self.copies[partition]
        if partition in self._headed:
            _add_entries(copy, _pieces.decode(data))
            return
        head = _heads.decode(data)
        _begin(copy, head)
        if not self._headed:
            self.time_ms, self.counted = head.time_ms, head.counted
        self._headed.add(partition)


def _begin(copy: PartitionCopy, head: CopyHead) -> None:
    copy.requests.merge(head.requests)
    copy.forgotten_to = head.forgotten_to
    for name, counter in head.counters:
        copy.open(name).updates = UpdateCounter(counter)
    for name, lineage in head.lineages:
        copy.maps[name].lineage = lineage


def _add_entries(copy: PartitionCopy, piece: MapPiece) -> None:
    state = copy.maps[piece.map].state
    state.entries.update(zip(piece.keys, piece.values, strict=True))
    idles = {place: (max_idle_ms, used_ms) for place, max_idle_ms, used_ms in piece.idles}
    for place, ttl_ms, stored_ms in piece.expiries:
        max_idle_ms, used_ms = idles.get(place, (0, 0))
        state.schedule(piece.keys[place], ttl_ms, max_idle_ms, stored_ms * MILLISECOND)
        if max_idle_ms:
            state.use((piece.keys[place],), used_ms * MILLISECOND)
    state.hashes.update((piece.keys[place], word) for place, word in piece.hashes)
