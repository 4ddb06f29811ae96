"""Requests of clients of Holdfast's own protocol (`wire.own`)."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from holdfast.core.model.operations import DEFAULT_TTL, Request
from holdfast.core.model.partition_events import Number
from holdfast.core.model.transaction_orders import TransactionOrder
from holdfast.wire.columns import ColumnBatch

PARTITIONS_MAX: Final = 65_536
"""In a request; no cluster has more."""
ROWS_MAX: Final = 65_536
"""Rows, keys or fields in a request. Longer lists are rejected before they are read."""

T = TypeVar("T")
Partitions = Annotated[list[int], Meta(max_length=PARTITIONS_MAX)]
Rows = Annotated[list[T], Meta(max_length=ROWS_MAX)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The first request: credentials, and the cluster that the client wants (None: any)."""

    id: int
    version: int
    cluster: str | None = None
    username: str | None = None
    password: str | None = None
    token: bytes | None = None
    operates: bool = False
    """Whether the client only reads and gives orders: some connections are reserved for such clients."""

    def __repr__(self) -> str:
        return f"Hello(id={self.id}, cluster={self.cluster!r}, username={self.username!r})"


class AskTable(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The members and the partition table; for a map that lives in a zone, the known leaders of its partitions instead.

    Older members ignore the map.
    """

    id: int
    map: str = ""


class Execute(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Carry out one operation, wherever its partition lives."""

    id: int
    request: Request


class Scan(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Read all entries of a map in one partition; the response is the first page.

    The entries are those of one moment, however long the reading takes. A connection has one scan at a time: a new one
    ends the one before. With `any_copy` a member answers from whatever copy it has, complete or not, including expired
    entries and their times: for comparing copies, not for reading data.
    """

    id: int
    map: str
    partition: int
    rows_max: int = 8192
    bytes_max: int = 1 << 20
    any_copy: bool = False
    ranges: Rows[int] = []
    """Only keys of these ranges (`core.store.digest`); empty: all."""
    cut: bytes = b""
    """Read at this cut, from any copy that has kept it: primary, backup, or one that has moved away since.
    Other members answer `MOVED`.
    """
    keys: Rows[bytes] = []
    """Only the entries of these keys; empty: all."""
    fields: Rows[str] | None = None
    """Only these fields of values that are JSON objects; other values come whole. Empty: no values at all."""
    limit: int = 0
    """At most so many entries; 0: all."""


class NextPage(msgspec.Struct, frozen=True, array_like=True, tag=6):
    id: int
    scan: int


@unique
class PutKind(IntEnum):
    SET = 0
    REMOVE = 1
    """The row's value is empty."""
    ADD = 2
    """Store the entry if the key is absent."""


class PutColumns(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Store these entries. The rows are grouped: the first `counts[0]` belong to `partitions[0]`, and so on.

    Groups whose partition is not served here are not stored, and named in the response.
    """

    id: int
    map: str
    partitions: Partitions
    counts: Partitions
    columns: ColumnBatch
    ttl_ms: int = DEFAULT_TTL
    kinds: Annotated[bytes, Meta(max_length=ROWS_MAX)] = b""
    """A byte for each row, one of `PutKind`; empty: all are `SET`. Rows are applied in order."""
    ttls_ms: Rows[int] = []
    """A time to live for each row instead of `ttl_ms`; empty: none has its own."""
    max_idles_ms: Rows[int] = []
    key_hashes: Rows[int] = []
    """Partition-hash words of keys that carry one, 0 for the others; empty: none does."""


class AskDigests(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The digests of this member's copies of these partitions, for comparing copies.

    The response may cover fewer partitions: ask again from `Digests.answered` on.
    """

    id: int
    partitions: Partitions
    map: str | None = None
    cut: bytes = b""
    """Ask for the content that is kept for this cut, instead of the present one."""


class Act(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Carry out an action of an operator. Answered when it is done, or at the timeout; other requests are answered
    meanwhile.
    """

    id: int
    action: str
    """Its name (`holdfast.actions`)."""
    fields: msgspec.Raw
    timeout_ms: int = 0
    """How long to wait, at most a day."""


class Watch(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The news of partitions after the news `after`, as soon as there are any.

    With None the response comes at once, without news, and says where to continue. A connection has one watch at a
    time: a new one ends the one before, which is then answered without news. Numbers are the same on all members, so a
    client may continue at another one.
    """

    id: int
    after: Number | None = None


class AskRanges(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The digests of a map in this partition, by key range (`core.store.digest`)."""

    id: int
    partition: int
    map: str


class Cut(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Keep these maps as they are now, in those of these partitions that are served here, on this member and on every
    backup, until the lease ends. Answered when all sync backups have kept them at the same update counters.

    In a repeated request with the same id and maps, partitions that are in the cut already stay as they were. Maps
    times partitions are at most `CUT_MARKS_MAX`: send several requests with the same id. In one partition there are at
    most `CUT_MAPS_MAX` maps.
    """

    id: int
    cut: bytes
    """16 random bytes; the same for all partitions of a cluster-wide cut."""
    maps: Rows[str]
    partitions: Partitions
    lease_ms: int


class HoldCut(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Keep this member's part of the cut for so long from now on; 0: end it."""

    id: int
    cut: bytes
    lease_ms: int
    partitions: Partitions = []


class AskHeads(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The last safe update of this map in these partitions, and from where on changes are available."""

    id: int
    map: str
    partitions: Partitions


class AskChanges(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """The changes in this map and partition after the update `after`, up to the update `upto`.

    Any member that has a copy with this history may answer; `Changes.upto` says how far the response goes.
    """

    id: int
    map: str
    partition: int
    after: int
    after_term: int
    """Term of the update `after`; 0 when that is 0. A copy with another history rejects the request."""
    upto: int
    bytes_max: int = 1 << 20
    upto_term: int = 0
    """Term of the update `upto`, so that other members than the primary know whether their copies have just
    this history; 0: only the primary can answer.
    """


class OrderTransaction(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Begin, use, commit, roll back or list transactions of the receiving member. Transactions of a connection are
    rolled back when it ends.
    """

    id: int
    order: TransactionOrder
