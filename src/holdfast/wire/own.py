"""Holdfast's own client protocol: what the commands of an operator, the Spark pipeline and the audits speak.

A client sends the three bytes `HF1` once. Then both sides send frames: a little-endian uint32 length and so
many bytes of MessagePack, one question or answer each. A question begins with its tag and a number that the
client chose; its answer carries the same number, and answers may come in any order. The first question is
`Hello`; anything else before it has succeeded ends the connection.

Entries travel in columns (`ColumnBatch`): the memory layout of Arrow's variable-size binary arrays, so that a
client may use the bytes where they lie, while a member needs nothing but `bytes.join`.
"""

from __future__ import annotations

import struct
from enum import IntEnum, unique
from itertools import accumulate, pairwise

import msgspec

from holdfast.core.migration.news import News, Number
from holdfast.core.store.operations import DEFAULT_TTL, Outcome, Request
from holdfast.errors import ProtocolError, TooLarge

PREAMBLE = b"HF1"
"""What a client sends first, once."""

VERSION = 1
"""Of this protocol; a member refuses a `Hello` of another one."""

GREETING_BYTES_MAX = 4096
"""The largest frame of a client that has not proved who it is."""

PAGE_ROWS_MAX = 65_536
PAGE_BYTES_MAX = 4 << 20
"""A page of a scan ends with the row that reaches this size."""

NEWS_MAX = 500
"""News in one answer to a `Watch`; the next question brings the next ones."""

ORDER_MS_MAX = 24 * 3600 * 1000
"""The longest that an order may be waited for."""

_LENGTH = struct.Struct("<I")
LENGTH_BYTES = _LENGTH.size


class ColumnBatch(msgspec.Struct, frozen=True, array_like=True):
    """Entries in two columns. Keys and values are in their stored form: type id and payload, no hash word.

    The cell of row `r` is `column[offsets[r] : offsets[r + 1]]`; offsets are little-endian int32, one more
    than there are rows.
    """

    rows: int
    key_offsets: bytes
    keys: bytes
    value_offsets: bytes
    values: bytes

    @classmethod
    def of(cls, keys: list[bytes], values: list[bytes]) -> ColumnBatch:
        """The columns of these entries; both lists have the same length."""
        assert len(keys) == len(values), (len(keys), len(values))
        return cls(len(keys), _offsets(keys), b"".join(keys), _offsets(values), b"".join(values))

    def split(self) -> tuple[list[bytes], list[bytes]]:
        """All keys, and all values. Raises ProtocolError when the offsets do not fit the columns."""
        return _cut(self.rows, self.key_offsets, self.keys), _cut(self.rows, self.value_offsets, self.values)

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values."""
        return len(self.keys) + len(self.values)


def _offsets(cells: list[bytes]) -> bytes:
    ends = list(accumulate(map(len, cells), initial=0))
    if ends[-1] > 0x7FFF_FFFF:
        raise TooLarge(f"a column of {ends[-1]} bytes; the most is 2 GiB. Send fewer rows at a time")
    return struct.pack(f"<{len(ends)}i", *ends)


def _cut(rows: int, offsets: bytes, blob: bytes) -> list[bytes]:
    if rows < 0 or len(offsets) != 4 * (rows + 1):
        raise ProtocolError(f"{rows} rows with {len(offsets)} bytes of offsets")
    ends = struct.unpack(f"<{rows + 1}i", offsets)
    if ends[0] != 0 or ends[-1] != len(blob) or any(start > end for start, end in pairwise(ends)):
        raise ProtocolError("the offsets of a column do not fit its bytes")
    return [blob[start:end] for start, end in pairwise(ends)]


# -- questions -----------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Who I am, and which cluster I want (None: whichever this is)."""

    id: int
    version: int
    cluster: str | None = None
    username: str | None = None
    password: str | None = None
    token: bytes | None = None

    def __repr__(self) -> str:
        return f"Hello(id={self.id}, cluster={self.cluster!r}, username={self.username!r})"


class AskStatus(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """What does this member know of itself and the cluster?"""

    id: int


class AskTable(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Who holds which partition?"""

    id: int


class Execute(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Carry out one operation, wherever its partition lives."""

    id: int
    request: Request


class Scan(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Give me all entries of a map in one partition as they are now, the first page at once.

    The entries are those of one moment, however long the reading takes. A connection has one scan at a time:
    a new one ends the one before. With `any_copy` a member answers from whatever copy it has, complete or not, with
    what belongs to the entries, also those whose time is over: for comparing copies, not for reading data.
    """

    id: int
    map: str
    partition: int
    rows_max: int = 8192
    bytes_max: int = 1 << 20
    any_copy: bool = False
    ranges: list[int] = []
    """Only keys of these ranges (`core.store.digest`); empty: of all."""


class NextPage(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Go on with the scan."""

    id: int
    scan: int
    """The number of the `Scan` question."""


class PutColumns(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Store these entries. The rows are grouped: the first `counts[0]` belong to `partitions[0]`, and so on.

    Groups whose partition is not served here are not stored, and named in the answer.
    """

    id: int
    map: str
    partitions: list[int]
    counts: list[int]
    columns: ColumnBatch
    ttl_ms: int = DEFAULT_TTL


class AskDigests(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """What do you hold of these partitions, for comparing it with other copies?

    The answer may cover fewer partitions: ask again from `Digests.answered` on.
    """

    id: int
    partitions: list[int]
    map: str | None = None
    """One map only; None: all."""


@unique
class Want(IntEnum):
    """What an operator may want of a member, or of the cluster through it."""

    STATE = 1
    """The cluster in another state."""
    END = 2
    """The cluster passive, and then every member gone: answered when this one is."""
    LEAVE = 3
    """This member gone, when everything it holds is safe elsewhere."""
    LITE = 4
    """This member without partitions."""
    DATA = 5
    """This member, a lite one, with partitions."""
    ACCEPT_LOSS = 6
    """The cluster without members, or parts of files, that are missing: every partition with an owner."""
    REFILL = 7
    """A backup of a partition, of which this member is the primary, with what the primary holds: filled anew."""


class Order(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Let this become so. Answered when it is, or when it is not so in time; other questions are answered meanwhile."""

    id: int
    want: Want
    timeout_ms: int
    """How long to wait for it, at most `ORDER_MS_MAX`."""
    state: str = ""
    """For `STATE`: which one (`active`, `no-migration`, `frozen`, `passive`)."""
    partition: int = -1
    """For `REFILL`."""
    member: str = ""
    """For `REFILL`: the UUID of the backup."""


class Watch(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """What has happened to partitions after the news `after`? Answered as soon as there is something.

    With None the answer comes at once, without news: it says from where to go on. A connection has one watch at a
    time: a new one ends the one before, which is then answered without news. Numbers are the same on all members, so a
    client may go on at another one.
    """

    id: int
    after: Number | None = None


class AskRanges(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """What do you hold of this map in this partition, range of keys by range (`core.store.digest`)?"""

    id: int
    partition: int
    map: str


Question = (
    Hello
    | AskStatus
    | AskTable
    | Execute
    | Scan
    | NextPage
    | PutColumns
    | AskDigests
    | Order
    | Watch
    | AskRanges
)

# -- answers -------------------------------------------------------------------------------------------------


@unique
class FaultKind(IntEnum):
    """Why a question was not answered. All but `UNKNOWN`: certainly nothing was done."""

    DENIED = 1
    MOVED = 2
    NOT_READY = 3
    CLOSING = 4
    TOO_LARGE = 5
    UNSUPPORTED = 6
    MALFORMED = 7
    UNKNOWN = 8
    """It may or may not have been done."""
    PASSIVE = 9
    """The operator has made the cluster passive: nothing may be changed."""
    NO_ROOM = 10
    """A disk that would have to keep the write is full."""


class Fault(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """The question was not answered. `id` 0: the connection is at fault, and ends."""

    id: int
    kind: FaultKind
    detail: str


class HelloOk(msgspec.Struct, frozen=True, array_like=True, tag=65):
    """Come in."""

    id: int
    version: int
    member: str
    """UUID of the member that answers."""
    cluster_id: str
    cluster_name: str
    partition_count: int
    frame_bytes_max: int
    """The largest frame that this member takes."""
    request_ids: int = 0
    """How many requests with an id each partition remembers: so long one may be sent again, and is applied once."""


class StatusIs(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """The member's status, as plain data."""

    id: int
    status: dict[str, object]


class MemberRow(msgspec.Struct, frozen=True, array_like=True):
    """A member, and where its client door is."""

    uuid: str
    host: str
    client_port: int
    lite: bool

    @property
    def address(self) -> str:
        """`host:port` of the door for clients."""
        return f"{self.host}:{self.client_port}"


NOBODY = -1
"""In `TableIs.replicas`: this replica is held by no member."""


class TableIs(msgspec.Struct, frozen=True, array_like=True, tag=67):
    """The members, oldest first, and for each partition the holders of its replicas, the owner first."""

    id: int
    version: int
    members: list[MemberRow]
    replicas: list[list[int]]
    """Positions in `members`, or `NOBODY`."""
    versions: list[int] = []
    """Of each row."""
    stamp: int = 0
    """64 bits over all rows: members whose tables are equal have the same."""


class Executed(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """What became of the operation."""

    id: int
    outcome: Outcome


class Page(msgspec.Struct, frozen=True, array_like=True, tag=69):
    """Some rows of a scan. `more`: ask for the next page."""

    id: int
    more: bool
    counter: int
    """The update counter of the map in this partition at the moment of the scan."""
    columns: ColumnBatch
    ttls_ms: list[int] = []
    """Of a scan with `any_copy`: what is left of each entry's time to live, 0 for ever. Empty when no entry has any."""
    max_idles_ms: list[int] = []
    key_hashes: list[int] = []
    """The same for the partition-hash words of keys."""


class PutDone(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """What became of a `PutColumns`: each group was stored, or its partition is in `moved`.

    With `known` false, the groups that are not in `moved` may or may not be stored, or may get lost.
    """

    id: int
    stored: int
    """Rows."""
    moved: list[int]
    known: bool
    why: str = ""
    """Why it is not known."""


class MapDigest(msgspec.Struct, frozen=True, array_like=True):
    """What a copy holds of one map. Copies with equal counters have equal entries and equal digests."""

    map: str
    counter: int
    entries: int
    digest: int
    """64 bits over all entries, whatever their order."""
    targets: list[str]
    """On the partition's primary: UUIDs of the members that must hold the same."""
    lineage: list[tuple[int, int]] = []
    """Of which terms the updates are: from the counter start + 1 on, of this term; ascending."""

    @property
    def term(self) -> int:
        """Of the last update; 0 when there was none."""
        return self.lineage[-1][0] if self.lineage else 0


class PartitionDigest(msgspec.Struct, frozen=True, array_like=True):
    """What this member holds of one partition."""

    partition: int
    epoch: int
    replica: int
    """This member's replica index by its table, -1 if the table does not name it."""
    serving: bool
    """It is the primary, and serves."""
    maps: list[MapDigest]
    version: int = 0
    """Of the row, as this member knows it."""
    behind: list[str] = []
    """UUIDs of backups that the row names, and that need not hold everything yet."""
    unfinished: bool = False
    """On the primary: some write waits for a backup, sync or async."""


class Digests(msgspec.Struct, frozen=True, array_like=True, tag=71):
    """The copies that this member holds of the first `answered` partitions that were asked for."""

    id: int
    table_version: int
    answered: int
    held: list[PartitionDigest]


@unique
class Fate(IntEnum):
    """What has become of an order."""

    DONE = 1
    REFUSED = 2
    """It was not taken, or taken back: nothing of it will happen later."""
    STANDS = 3
    """It is not so yet, and the order stands: it is carried out as soon as that is possible."""


class Ordered(msgspec.Struct, frozen=True, array_like=True, tag=72):
    """The answer to an `Order`."""

    id: int
    fate: Fate
    why: str
    """Why it is not so, and what helps; or how the member has ended."""


class Heard(msgspec.Struct, frozen=True, array_like=True, tag=73):
    """News, in order."""

    id: int
    news: list[News]
    last: Number
    """What to say as `after` in the next question."""
    complete: bool
    """Whether nothing was left out between `after` and these news; this member may not have been there."""


class Ranges(msgspec.Struct, frozen=True, array_like=True, tag=74):
    """The copy of a map in one partition, range of keys by range."""

    id: int
    version: int
    """Of the partition's row, as this member knows it."""
    counter: int
    lineage: list[tuple[int, int]]
    digests: list[int]
    """One for each range; their sum modulo 2**64 is the map's digest. Empty: no copy is held here."""


Answer = Fault | HelloOk | StatusIs | TableIs | Executed | Page | PutDone | Digests | Ordered | Heard | Ranges

# -- frames --------------------------------------------------------------------------------------------------

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def frame(message: Question | Answer) -> bytes:
    """The message as bytes for the wire."""
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


def read_question(body: bytes) -> Question:
    """The question in a frame. Raises ProtocolError."""
    try:
        return _questions.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as broken:
        raise ProtocolError(f"not a question of this protocol: {broken}") from None


def read_answer(body: bytes | bytearray) -> Answer:
    """The answer in a frame. Raises ProtocolError."""
    try:
        return _answers.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as broken:
        raise ProtocolError(f"not an answer of this protocol: {broken}") from None


class Frames:
    """Puts the frames of a connection together again from the pieces in which they arrive."""

    __slots__ = ("_held", "_need", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """The largest frame, in bytes; may be raised at any time."""
        self._held = bytearray()
        self._need = LENGTH_BYTES

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self._held += data

    def take(self) -> bytes | None:
        """The next whole frame without its length, or None until more has arrived. Raises TooLarge."""
        held = self._held
        if len(held) < self._need:
            return None
        end = LENGTH_BYTES + frame_length(held, self.limit)
        if len(held) < end:
            self._need = end
            return None
        body = bytes(memoryview(held)[LENGTH_BYTES:end])
        del held[:end]
        self._need = LENGTH_BYTES
        return body
