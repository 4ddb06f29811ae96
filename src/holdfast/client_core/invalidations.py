"""Messages between a near cache and the members: registration, invalidations, and the numbers to compare."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from holdfast.client_core.message_decoding import fixed_part, reader_of
from holdfast.client_core.request_forms import INVALIDATIONS, METADATA, RequestForm, form
from holdfast.core.model.keys import partition_of
from holdfast.errors import ProtocolError
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, EVENT, IS_NULL, UUID, message, text

ONE, SEVERAL = INVALIDATIONS + 2, INVALIDATIONS + 3
_INVALIDATION_FLAG = 256
_OPTIONS = Struct("<i?")
_ONE = Struct("<17s17sq")
_SEQUENCE = Struct("<iq")
_HISTORY = Struct("<i17s")
_LONG = Struct("<q")
_KEY_BYTES_MIN = 8
"""Partition hash and type of a stored key."""


class Invalidation(NamedTuple):
    """One changed key, with its number in the history of its partition (`near_cache`)."""

    key: bytes
    key_hash: int
    history: bytes
    sequence: int

    def partition(self, count: int) -> int:
        return partition_of(self.key, self.key_hash, count)


def registration(name: str) -> tuple[RequestForm, bytes]:
    """Each member sends invalidations of its own partitions only."""
    return form(INVALIDATIONS, _OPTIONS.pack(_INVALIDATION_FLAG, True)), message([text(name)])


def positions_request(member: bytes, name: str) -> tuple[RequestForm, bytes]:
    return form(METADATA, member), message([BEGIN, text(name), END])


def read_invalidations(kind: int, whole: bytes) -> list[Invalidation] | None:
    """The changed keys; None: all keys of the map. Raises ProtocolError."""
    frames = reader_of(whole)
    if kind == ONE:
        fixed_part(whole, EVENT.size, _ONE)
        _, history, sequence = _ONE.unpack_from(whole, EVENT.size)
        flags, payload = frames.next()
        return None if flags & IS_NULL else [_invalidation(payload, history, sequence)]
    if kind != SEVERAL:
        return []
    keys = [frames.next()[1] for _ in frames.elements()]
    frames.next()  # UUIDs of the members that changed the keys.
    histories, sequences = frames.next()[1], frames.next()[1]
    if len(histories) != UUID.size * len(keys) or len(sequences) != _LONG.size * len(keys):
        raise ProtocolError("keys, histories and sequences of invalidations differ in number")
    return [
        _invalidation(payload, histories[place * UUID.size : (place + 1) * UUID.size], sequence)
        for place, (payload, (sequence,)) in enumerate(zip(keys, _LONG.iter_unpack(sequences), strict=True))
    ]


def _invalidation(payload: bytes, history: bytes, sequence: int) -> Invalidation:
    if len(payload) < _KEY_BYTES_MIN:
        raise ProtocolError("the key of an invalidation is cut short")
    return Invalidation(payload[4:], int.from_bytes(payload[:4], "big", signed=True), history, sequence)


def read_positions(whole: bytes, name: str) -> dict[int, tuple[bytes, int]]:
    """History and latest sequence of each partition of the member. Raises ProtocolError."""
    frames = reader_of(whole)
    sequences: dict[int, int] = {}
    for _ in frames.elements():
        found = frames.next()[1]
        pairs = frames.next()[1]
        if len(pairs) % _SEQUENCE.size:
            raise ProtocolError("sequences of partitions are cut short")
        if found == name.encode():
            sequences = dict(_SEQUENCE.iter_unpack(pairs))
    histories = frames.next()[1]
    if len(histories) % _HISTORY.size:
        raise ProtocolError("histories of partitions are cut short")
    return {
        partition: (history, sequences.get(partition, 0))
        for partition, history in _HISTORY.iter_unpack(histories)
    }
