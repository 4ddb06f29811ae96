"""Holdfast's own client protocol, used by operator commands, the Spark pipeline and audits.

A client sends the three bytes `HF1` once. Then both sides send frames: a little-endian uint32 length and so many bytes
of MessagePack, one request or response each. A request begins with its tag and a number that the client chose; its
response carries the same number, and responses may come in any order. The first request is `Hello`; anything else
before its success ends the connection. Entries travel in columns (`wire.columns`).
"""

from __future__ import annotations

import struct
from collections.abc import Generator

import msgspec

from holdfast.core.model.operations import MAP_NAME_MAX
from holdfast.errors import ProtocolError, TooLarge
from holdfast.wire.answers import (
    NOBODY,
    Acted,
    ChangeKind,
    Changes,
    CutHeld,
    CutMade,
    Digests,
    Executed,
    Fate,
    Fault,
    FaultKind,
    Head,
    Heads,
    Heard,
    HelloOk,
    MapDigest,
    Mark,
    MemberRow,
    Page,
    PartitionDigest,
    PutDone,
    Ranges,
    TableIs,
    TransactionSays,
)
from holdfast.wire.columns import ColumnBatch
from holdfast.wire.questions import (
    ROWS_MAX,
    Act,
    AskChanges,
    AskDigests,
    AskHeads,
    AskRanges,
    AskTable,
    Cut,
    Execute,
    Hello,
    HoldCut,
    NextPage,
    OrderTransaction,
    PutColumns,
    PutKind,
    Scan,
    Watch,
)

__all__ = [
    "CUT_MAPS_MAX",
    "CUT_MARKS_MAX",
    "GREETING_BYTES_MAX",
    "LENGTH_BYTES",
    "MAP_NAME_MAX",
    "NEWS_MAX",
    "NOBODY",
    "PAGE_BYTES_MAX",
    "PAGE_ROWS_MAX",
    "PREAMBLE",
    "ROWS_MAX",
    "VERSION",
    "Act",
    "Acted",
    "Answer",
    "AskChanges",
    "AskDigests",
    "AskHeads",
    "AskRanges",
    "AskTable",
    "ChangeKind",
    "Changes",
    "ColumnBatch",
    "Cut",
    "CutHeld",
    "CutMade",
    "Digests",
    "Execute",
    "Executed",
    "Fate",
    "Fault",
    "FaultKind",
    "Frames",
    "Head",
    "Heads",
    "Heard",
    "Hello",
    "HelloOk",
    "HoldCut",
    "MapDigest",
    "Mark",
    "MemberRow",
    "NextPage",
    "OrderTransaction",
    "Page",
    "PartitionDigest",
    "PutColumns",
    "PutDone",
    "PutKind",
    "Question",
    "Ranges",
    "Scan",
    "TableIs",
    "TransactionSays",
    "Watch",
    "count_parts",
    "frame",
    "frame_length",
    "read_answer",
    "read_question",
]

PREAMBLE = b"HF1"

VERSION = 1
"""A member rejects a `Hello` of another version."""

GREETING_BYTES_MAX = 4096

PAGE_ROWS_MAX = 65_536
PAGE_BYTES_MAX = 4 << 20
"""A page of a scan ends with the row that reaches this size."""

NEWS_MAX = 500
"""In one response to a `Watch`; the next request gets the next ones."""

CUT_MARKS_MAX = 256
"""Maps times partitions in one request for a cut, if it has several partitions: some ms of work."""
CUT_MAPS_MAX = 1024
"""Maps of one cut; in each partition they are cut at the same moment."""

_LENGTH = struct.Struct("<I")
LENGTH_BYTES = _LENGTH.size

Question = (
    Hello
    | AskTable
    | Execute
    | Scan
    | NextPage
    | PutColumns
    | AskDigests
    | Act
    | Watch
    | AskRanges
    | Cut
    | HoldCut
    | AskHeads
    | AskChanges
    | OrderTransaction
)
Answer = (
    Fault
    | HelloOk
    | TableIs
    | Executed
    | Page
    | PutDone
    | Digests
    | Acted
    | Heard
    | Ranges
    | CutMade
    | CutHeld
    | Heads
    | Changes
    | TransactionSays
)
# -- frames --------------------------------------------------------------------------------------------------

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def frame(message: Question | Answer) -> bytes:
    buffer = bytearray(LENGTH_BYTES)
    _encoder.encode_into(message, buffer, LENGTH_BYTES)
    _LENGTH.pack_into(buffer, 0, len(buffer) - LENGTH_BYTES)
    return bytes(buffer)


def frame_length(head: bytes | bytearray, limit: int) -> int:
    """How many bytes follow the first `LENGTH_BYTES` of a frame. Raises TooLarge above `limit`."""
    length: int = _LENGTH.unpack_from(head)[0]
    if length > limit:
        raise TooLarge(f"a frame of {length} bytes; the most is {limit}")
    return length


PARTS_MAX = 400_000
"""Numbers, texts, lists and so on in one request; more cannot be read in one turn of a member. The longest
request is a `PutColumns` with `PUT_ROWS_MAX` rows, each with its own times and hash word.
"""
PARTS_PER_SLICE = 8192
_SIZES = dict(
    zip(
        (*range(0xC0, 0xC4), *range(0xCA, 0xD9)),
        (0, 0, 0, 0, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17),
        strict=True,
    )
)
_BLOBS = {
    0xC4: (1, 0),
    0xC5: (2, 0),
    0xC6: (4, 0),
    0xC7: (1, 1),
    0xC8: (2, 1),
    0xC9: (4, 1),
    0xD9: (1, 0),
    0xDA: (2, 0),
    0xDB: (4, 0),
}
"""First byte -> bytes of the length, and further bytes before the content."""
_LISTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""First byte -> bytes of the count, and parts for each counted element."""


def count_parts(body: bytes) -> Generator[None, None, None]:
    """Check, slice by slice, that the request can be read in one turn: 16 MB may hold 16 million empty lists.
    Raises ProtocolError if it cannot, or has no end.
    """
    at, left, seen, size = 0, 1, 0, len(body)
    while left:
        if left + seen > PARTS_MAX:
            raise ProtocolError(f"a question has at most {PARTS_MAX} parts")
        if at >= size:
            raise ProtocolError("not a question of this protocol: it is cut short")
        left -= 1
        seen += 1
        first = body[at]
        at += 1
        if first <= 0x7F or first >= 0xE0:
            pass
        elif first <= 0x8F:
            left += 2 * (first & 0x0F)
        elif first <= 0x9F:
            left += first & 0x0F
        elif first <= 0xBF:
            at += first & 0x1F
        elif first in _SIZES:
            at += _SIZES[first]
        elif first in _BLOBS:
            width, more = _BLOBS[first]
            at += width + more + int.from_bytes(body[at : at + width], "big")
        else:
            width, each = _LISTS[first]
            left += each * int.from_bytes(body[at : at + width], "big")
            at += width
        if not seen % PARTS_PER_SLICE:
            yield
    if at > size:
        raise ProtocolError("not a question of this protocol: it is cut short")


RETIRED = {16: "AskMetastore", 17: "OrderZone"}
"""Requests of older versions, by tag: `Act` replaces them."""


def read_question(body: bytes) -> Question:
    """Raises ProtocolError for any fault of the bytes."""
    try:
        return _questions.decode(body)
    except Exception as broken:  # noqa: BLE001  (whatever bytes can do)
        if len(body) > 1 and body[0] & 0xF0 == 0x90 and body[1] in RETIRED:
            raise ProtocolError(
                f"{RETIRED[body[1]]} is a request of an older version of Holdfast: use the command of the version of "
                "this member"
            ) from None
        raise ProtocolError(f"not a question of this protocol: {broken}") from None


def read_answer(body: bytes | bytearray) -> Answer:
    """Raises ProtocolError for any fault of the bytes."""
    try:
        return _answers.decode(body)
    except Exception as broken:  # noqa: BLE001  (whatever bytes can do)
        raise ProtocolError(f"not an answer of this protocol: {broken}") from None


class Frames:
    """Joins the pieces that arrive on a connection to frames."""

    __slots__ = ("_held", "_need", "_skip", "limit", "refused", "skips")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.skips = False
        """Whether a frame above the limit is skipped, so that the connection can continue; may be set at any
        time.
        """
        self.refused: int | None = None
        """After `TooLarge`: the number of the skipped request; None: the connection cannot continue."""
        self._held = bytearray()
        self._need = LENGTH_BYTES
        self._skip = 0
        """Bytes of the skipped frame that are still to come."""

    @property
    def held(self) -> int:
        """Bytes that were not taken yet."""
        return len(self._held)

    def feed(self, data: bytes) -> None:
        """Raises MemoryError; nothing was added then."""
        self._held += data

    def take(self) -> bytes | None:
        """The next whole frame without its length, or None until more has arrived. Raises TooLarge, MemoryError."""
        held = self._held
        if self._skip:
            gone = min(self._skip, len(held))
            del held[:gone]
            self._skip -= gone
        if len(held) < self._need:
            return None
        if self.skips and _LENGTH.unpack_from(held)[0] > self.limit:
            self._step_over()
            return None
        end = LENGTH_BYTES + frame_length(held, self.limit)
        if len(held) < end:
            self._need = end
            return None
        body = bytes(memoryview(held)[LENGTH_BYTES:end])
        del held[:end]
        self._need = LENGTH_BYTES
        return body

    def _step_over(self) -> None:
        """Begin to skip a frame that is too large, as soon as the number of its request is known: raises
        TooLarge.
        """
        length: int = _LENGTH.unpack_from(self._held)[0]
        self._need = LENGTH_BYTES + NUMBER_BYTES_MAX
        if len(self._held) < self._need:
            return
        self.refused = _number_of(bytes(self._held[LENGTH_BYTES : self._need]))
        self._need = LENGTH_BYTES
        if self.refused is not None:
            self._skip = LENGTH_BYTES + length
        raise TooLarge(f"a frame of {length} bytes; the most is {self.limit}")


NUMBER_BYTES_MAX = 15
"""The number of a request ends within so many bytes: header of an array, tag, and an integer."""
_WIDTHS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
"""First byte of an integer -> its width in bytes; those above 0xCF are signed."""


def _number_of(head: bytes) -> int | None:
    """The number of the request that begins with these bytes, if it is one."""
    at = 1 if head[0] & 0xF0 == 0x90 else {0xDC: 3, 0xDD: 5}.get(head[0], 0)
    if not at or head[at] > 0x7F:
        return None
    first = head[at + 1]
    if first <= 0x7F:
        return first
    width = _WIDTHS.get(first, 0)
    if not width:
        return first - 0x100 if first >= 0xE0 else None
    return int.from_bytes(head[at + 2 : at + 2 + width], "big", signed=first >= 0xD0)
