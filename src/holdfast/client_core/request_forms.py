"""Requests of the client: each kind with its number, the shape of its answer, and whether it only reads.

The lowest byte of a correlation id is the code of the request's form. So the reader of answers can deliver
the value itself instead of a message, without a lookup.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from holdfast.wire.hazelcast.hazelcast_frames import FRAME, IS_FINAL, LONG, NO_HASH, REQUEST, UNFRAGMENTED

GET, PUT, PUT_IF_ABSENT, REPLACE, REMOVE = 0x010200, 0x010100, 0x010E00, 0x010400, 0x010300
SET, CONTAINS_KEY, DELETE = 0x010F00, 0x010600, 0x010900
REPLACE_IF_SAME, REMOVE_IF_SAME, SET_TTL = 0x010500, 0x010800, 0x014300
GET_ALL, PUT_ALL, CLEAR = 0x012300, 0x012C00, 0x012D00
SIZE, IS_EMPTY, KEYS, VALUES, ENTRIES = 0x012A00, 0x012B00, 0x012200, 0x012400, 0x012500
LISTEN, LISTEN_TO_KEY, UNLISTEN = 0x011900, 0x011800, 0x011A00
INVALIDATIONS, METADATA = 0x013F00, 0x013D00
EXECUTE_ON_KEY = 0x012E00
LOCK, TRY_LOCK, UNLOCK, IS_LOCKED = 0x011000, 0x011100, 0x011300, 0x011200
QUEUE_OFFER, QUEUE_SIZE, QUEUE_POLL = 0x030100, 0x030300, 0x030500
QUEUE_PEEK, QUEUE_ITEMS, QUEUE_DRAIN, QUEUE_CLEAR = 0x030700, 0x030800, 0x030A00, 0x030F00
PUBLISH, PUBLISH_ALL, LISTEN_TO_TOPIC, UNLISTEN_TO_TOPIC = 0x040100, 0x040400, 0x040200, 0x040300
RING_TAIL, RING_HEAD, RING_ADD = 0x170200, 0x170300, 0x170600
RING_READ_ONE, RING_READ_MANY = 0x170700, 0x170900
BEGIN_TRANSACTION, COMMIT_TRANSACTION, ROLL_BACK_TRANSACTION = 0x150200, 0x150100, 0x150300
# Operations on a map in a transaction:
CONTAINS_KEY_IN, GET_IN, GET_FOR_UPDATE, SIZE_IN, IS_EMPTY_IN = range(0x0E0100, 0x0E0600, 0x100)
PUT_IN, SET_IN, PUT_IF_ABSENT_IN, REPLACE_IN, REPLACE_IF_SAME_IN = range(0x0E0600, 0x0E0B00, 0x100)
REMOVE_IN, DELETE_IN, REMOVE_IF_SAME_IN, KEYS_IN, VALUES_IN = 0x0E0B00, 0x0E0C00, 0x0E0D00, 0x0E0E00, 0x0E1000
AUTHENTICATE, CLUSTER_VIEW, PING = 0x000100, 0x000300, 0x000B00

_ANSWER_VALUE = (GET, PUT, PUT_IF_ABSENT, REPLACE, REMOVE)
_ANSWER_TRUTH = (SET, CONTAINS_KEY, DELETE, REPLACE_IF_SAME, REMOVE_IF_SAME, SET_TTL)
WHOLE = 0
CODES = {kind: code for code, kind in enumerate((*_ANSWER_VALUE, *_ANSWER_TRUTH), 1)}
LAST_VALUE = len(_ANSWER_VALUE)
"""Codes up to this one return a stored value or None, those above it a boolean (false for an empty answer)."""
EXPECTED = [-1] * 256
"""By code; -1: any."""
for _kind, _code in CODES.items():
    EXPECTED[_code] = _kind + 1
STEP = 256

_READS = frozenset(
    {GET, CONTAINS_KEY, GET_ALL, SIZE, IS_EMPTY, KEYS, VALUES, ENTRIES, METADATA, BEGIN_TRANSACTION}
    | {IS_LOCKED, QUEUE_SIZE, QUEUE_PEEK, QUEUE_ITEMS, RING_TAIL, RING_HEAD, RING_READ_ONE, RING_READ_MANY}
)
_RECOGNIZED = frozenset({LOCK, TRY_LOCK})
"""They change something, but members recognize a repeated one by its reference."""

_BEGINS = Struct("<iHi")
AIM = Struct("<qi")

THREAD = LONG.pack(1)
FOREVER = THREAD + LONG.pack(-1)


@dataclass(frozen=True, slots=True)
class RequestForm:
    kind: int
    code: int
    begins: bytes
    """Bytes before correlation id and partition."""
    goes_on: bytes
    """Bytes after them, before those that differ."""
    reads: bool
    """It can always be retried: it changes nothing, or members recognize a repeated one."""


def form(kind: int, fixed: bytes = THREAD, before: bytes = b"", *, alone: bool = False) -> RequestForm:
    """`fixed`: the fixed-size parameters; `before`: frames before those that differ; `alone`: no frames follow."""
    flags = UNFRAGMENTED | IS_FINAL if alone and not before else UNFRAGMENTED
    begins = _BEGINS.pack(REQUEST.size + len(fixed), flags, kind)
    return RequestForm(
        kind, CODES.get(kind, WHOLE), begins, fixed + before, kind in _READS or kind in _RECOGNIZED
    )


_LAST_FRAMES = [FRAME.pack(FRAME.size + len(NO_HASH) + size, IS_FINAL) + NO_HASH for size in range(256)]


def last(stored: bytes) -> bytes:
    size = len(stored)
    if size < 256:
        return _LAST_FRAMES[size] + stored
    return FRAME.pack(FRAME.size + len(NO_HASH) + size, IS_FINAL) + NO_HASH + stored
