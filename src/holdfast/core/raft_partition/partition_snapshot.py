"""Snapshot of a group's copies of client partitions, as pieces.

The first piece of a copy has the time, the request ids, the counters and the lineages; every other one some entries of
one map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.partition_copy import PartitionCopy

PIECE_ENTRIES = 500


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
_Ending = tuple[int, int, int, int]
"""Time to live in ms, start in ns, maximum idle time in ms, used in ns."""
_Taken = tuple[str, list[tuple[bytes, bytes]], dict[bytes, _Ending], dict[bytes, int]]


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


def pieces_of(copies: Mapping[int, PartitionCopy], time_ms: int, *, counted: bool) -> Iterator[bytes]:
    """Pieces of the present state; later changes do not affect them, however slowly they are read."""
    taken = {number: _taken(copy, time_ms, counted=counted) for number, copy in copies.items()}
    if len(copies) == 1:
        [pieces] = taken.values()
        return pieces
    return (
        _encoder.encode(NamedPiece(number, msgspec.Raw(piece)))
        for number, pieces in taken.items()
        for piece in pieces
    )


def _taken(copy: PartitionCopy, time_ms: int, *, counted: bool) -> Iterator[bytes]:
    taken = [
        (
            name,
            list(held.state.entries.items()),
            {
                key: (e.ttl_ms, e.stored_ns, e.max_idle_ms, e.accessed_ns)
                for key, e in held.state.expiries.items()
            },
            dict(held.state.hashes),
        )
        for name, held in sorted(copy.maps.items())
    ]
    return _walk(head_of(copy, time_ms, counted=counted), taken)


def _walk(head: bytes, taken: list[_Taken]) -> Iterator[bytes]:
    yield head
    for name, entries, expiries, hashes in taken:
        for begin in range(0, len(entries), PIECE_ENTRIES):
            some = entries[begin : begin + PIECE_ENTRIES]
            keys = [key for key, _ in some]
            yield _encoder.encode(
                MapPiece(
                    name,
                    keys,
                    [value for _, value in some],
                    [
                        (place, expiries[key][0], expiries[key][1] // MILLISECOND)
                        for place, key in enumerate(keys)
                        if key in expiries
                    ],
                    [(place, hashes[key]) for place, key in enumerate(keys) if key in hashes],
                    [
                        (place, expiries[key][2], expiries[key][3] // MILLISECOND)
                        for place, key in enumerate(keys)
                        if key in expiries and expiries[key][2]
                    ],
                )
            )


def restore(copies: Mapping[int, PartitionCopy], pieces: Sequence[bytes]) -> tuple[int, bool]:
    """The copies are new. Returns the time in ms, and whether updates have terms."""
    if not pieces:
        return 0, False
    if len(copies) == 1:
        [copy] = copies.values()
        return _restore(copy, pieces)
    by_copy: dict[int, list[bytes]] = {number: [] for number in copies}
    for data in pieces:
        named = _named.decode(data)
        by_copy[named.partition].append(bytes(named.piece))
    restored = [_restore(copies[number], own) for number, own in by_copy.items()]
    return restored[0]


def _restore(copy: PartitionCopy, pieces: Sequence[bytes]) -> tuple[int, bool]:
    head = _heads.decode(pieces[0])
    copy.requests.merge(head.requests)
    copy.forgotten_to = head.forgotten_to
    for name, counter in head.counters:
        copy.open(name).updates = UpdateCounter(counter)
    for name, lineage in head.lineages:
        copy.maps[name].lineage = lineage
    for data in pieces[1:]:
        piece = _pieces.decode(data)
        state = copy.maps[piece.map].state
        state.entries.update(zip(piece.keys, piece.values, strict=True))
        idles = {place: (max_idle_ms, used_ms) for place, max_idle_ms, used_ms in piece.idles}
        for place, ttl_ms, stored_ms in piece.expiries:
            max_idle_ms, used_ms = idles.get(place, (0, 0))
            state.schedule(piece.keys[place], ttl_ms, max_idle_ms, stored_ms * MILLISECOND)
            if max_idle_ms:
                state.use((piece.keys[place],), used_ms * MILLISECOND)
        state.hashes.update((piece.keys[place], word) for place, word in piece.hashes)
    return head.time_ms, head.counted
