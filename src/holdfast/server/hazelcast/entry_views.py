"""The response to getEntryView: an entry with its metadata."""

from __future__ import annotations

from struct import Struct

from holdfast.core.operations.map_operations import EntryView
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN_STRUCTURE,
    END_STRUCTURE,
    FRAME,
    HEADER_BYTES,
    IS_FINAL,
    LONG,
    NULL,
)

NO_END = (1 << 63) - 1
"""The protocol's "never", where it has times in milliseconds."""
_NOT_KEPT = -1
"""The protocol's "unknown", for statistics of entries that are not kept here."""
_HASH_BYTES = 4
_BEGIN = Struct("<B q iH iH 10q iH")
"""Backups that respond to the client, maximum idle time, the beginning of the view, its numbers, and the frame of
the key.
"""
_NUMBERS_BYTES = HEADER_BYTES + 10 * LONG.size
NO_VIEW: bytes = (
    b"\0" + LONG.pack(NO_END) + NULL[:4] + (FRAME.unpack(NULL)[1] | IS_FINAL).to_bytes(2, "little")
)
"""The rest of the response if there is no such entry."""
_END = FRAME.pack(HEADER_BYTES, END_STRUCTURE | IS_FINAL)


def view_response(key: bytes, hash_word: bytes, view: EntryView, wall_ms: int) -> bytes:
    """The response behind its correlation id. `hash_word`: of the key in the request."""
    value, ttl_ms, max_idle_ms, remaining_ms, version = view
    max_idle = max_idle_ms or NO_END
    begin = _BEGIN.pack(
        0,
        max_idle,
        HEADER_BYTES,
        BEGIN_STRUCTURE,
        _NUMBERS_BYTES,
        0,
        len(key) + len(value),  # cost
        _NOT_KEPT,  # creation time
        NO_END if remaining_ms < 0 else wall_ms + remaining_ms,
        _NOT_KEPT,  # hits
        _NOT_KEPT,  # last access
        _NOT_KEPT,  # last store
        _NOT_KEPT,  # last update
        version,
        ttl_ms or NO_END,
        max_idle,
        HEADER_BYTES + _HASH_BYTES + len(key),
        0,
    )
    value_head = FRAME.pack(HEADER_BYTES + _HASH_BYTES + len(value), 0) + bytes(_HASH_BYTES)
    return b"".join((begin, hash_word, key, value_head, value, _END))
