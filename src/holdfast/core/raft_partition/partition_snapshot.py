"""Snapshot of a partition's state, as pieces.

The first piece has the time, the request ids and the counters; every other one some entries of one map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.store.replica import MapReplica, map_replica
from holdfast.core.store.request_ids import Remembered

PIECE_ENTRIES = 500
"""Of a map in one piece."""


class MapHead(msgspec.Struct, frozen=True, array_like=True):
    time_ms: int
    requests: bytes
    """Recently applied requests."""
    counters: list[tuple[str, int]]
    """Number of updates of each map."""


class MapPiece(msgspec.Struct, frozen=True, array_like=True):
    map: str
    keys: list[bytes]
    values: list[bytes]
    expiries: list[tuple[int, int, int]]
    """Of entries that expire: position in the columns, time to live in ms, start in zone ms."""
    hashes: list[tuple[int, int]]
    """Of entries that have a partition-hash word: position in the columns, word."""


_encoder = msgspec.msgpack.Encoder()
_heads: msgspec.msgpack.Decoder[MapHead] = msgspec.msgpack.Decoder(MapHead)
_pieces: msgspec.msgpack.Decoder[MapPiece] = msgspec.msgpack.Decoder(MapPiece)
_Taken = tuple[str, list[tuple[bytes, bytes]], dict[bytes, tuple[int, int]], dict[bytes, int]]


def head_of(time_ms: int, requests: Remembered, maps: Mapping[str, MapReplica]) -> bytes:
    counters = sorted((name, held.updates.lwm) for name, held in maps.items())
    return _encoder.encode(MapHead(time_ms, requests.encode(), counters))


def pieces_of(time_ms: int, requests: Remembered, maps: Mapping[str, MapReplica]) -> Iterator[bytes]:
    """All pieces of the present state; later changes do not affect them, however slowly they are read."""
    taken = [
        (
            name,
            list(held.state.entries.items()),
            {key: (e.ttl_ms, e.stored_ns) for key, e in held.state.expiries.items()},
            dict(held.state.hashes),
        )
        for name, held in sorted(maps.items())
    ]
    return _walk(head_of(time_ms, requests, maps), taken)


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
                )
            )


def restored(pieces: Sequence[bytes], requests: Remembered) -> tuple[int, dict[str, MapReplica]]:
    """The time and the maps of these pieces. Adds the request ids to `requests`."""
    maps: dict[str, MapReplica] = {}
    if not pieces:
        return 0, maps
    head = _heads.decode(pieces[0])
    requests.merge(head.requests)
    for name, counter in head.counters:
        held = maps[name] = map_replica(name)
        held.updates.lwm = held.updates.hwm = counter
    for data in pieces[1:]:
        piece = _pieces.decode(data)
        state = maps[piece.map].state
        state.entries.update(zip(piece.keys, piece.values, strict=True))
        for place, ttl_ms, stored_ms in piece.expiries:
            state.schedule(piece.keys[place], ttl_ms, 0, stored_ms * MILLISECOND)
        state.hashes.update((piece.keys[place], word) for place, word in piece.hashes)
    return head.time_ms, maps
