"""What clients of Holdfast's own protocol ask (`wire.own`)."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from holdfast.core.model.metastore_questions import MetastoreQuestion
from holdfast.core.model.operations import DEFAULT_TTL, Request
from holdfast.core.model.partition_events import Number
from holdfast.core.model.transaction_orders import TransactionOrder
from holdfast.core.model.zone_questions import ZoneOrder
from holdfast.wire.columns import ColumnBatch

PARTITIONS_MAX: Final = 65_536
"""Partitions in a question, of which no cluster has more."""
ROWS_MAX: Final = 65_536
"""Rows, keys or fields in a question; who has more sends several. Longer lists are refused before they are read."""

T = TypeVar("T")
Partitions = Annotated[list[int], Meta(max_length=PARTITIONS_MAX)]
Rows = Annotated[list[T], Meta(max_length=ROWS_MAX)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Who I am, and which cluster I want (None: whichever this is)."""

    id: int
    version: int
    cluster: str | None = None
    username: str | None = None
    password: str | None = None
    token: bytes | None = None
    operates: bool = False
    """Whether I only look and give orders: for that there are places when clients have taken all others."""

    def __repr__(self) -> str:
        return f"Hello(id={self.id}, cluster={self.cluster!r}, username={self.username!r})"


class AskStatus(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """What does this member know of itself and the cluster?"""

    id: int
    counted: bool = False
    """Whether the answer also says of each map how large it is (`counted`, as `observe.map_figures`), and which
    migrations are under way (`running`).
    """


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
    ranges: Rows[int] = []
    """Only keys of these ranges (`core.store.digest`); empty: of all."""
    cut: bytes = b""
    """Read as it was at this cut, from whatever copy has kept it: primary, backup, or one that has moved away since.
    A member that has not kept it answers `MOVED`."""
    keys: Rows[bytes] = []
    """Only the entries of these keys; empty: of all."""
    fields: Rows[str] | None = None
    """Only these fields of values that are JSON objects; values of other kinds come whole. Empty: no values at all."""
    limit: int = 0
    """At most so many entries; 0: all."""


class NextPage(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Go on with the scan."""

    id: int
    scan: int
    """The number of the `Scan` question."""


@unique
class PutKind(IntEnum):
    """What is done with a row of `PutColumns`."""

    SET = 0
    REMOVE = 1
    """Take the entry out; the row's value is empty."""
    ADD = 2
    """Store the entry if the key is not there."""


class PutColumns(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Store these entries. The rows are grouped: the first `counts[0]` belong to `partitions[0]`, and so on.

    Groups whose partition is not served here are not stored, and named in the answer.
    """

    id: int
    map: str
    partitions: Partitions
    counts: Partitions
    columns: ColumnBatch
    ttl_ms: int = DEFAULT_TTL
    kinds: Annotated[bytes, Meta(max_length=ROWS_MAX)] = b""
    """A byte for each row, one of `PutKind`; empty: all are `SET`. Rows are taken in order."""
    ttls_ms: Rows[int] = []
    """A time to live for each row instead of `ttl_ms`; empty: none has its own."""
    max_idles_ms: Rows[int] = []
    key_hashes: Rows[int] = []
    """Partition-hash words of keys that carry one, 0 for the others; empty: none does."""


class AskDigests(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """What do you hold of these partitions, for comparing it with other copies?

    The answer may cover fewer partitions: ask again from `Digests.answered` on.
    """

    id: int
    partitions: Partitions
    map: str | None = None
    """One map only; None: all."""


WITHOUT_MAJORITY = "without-majority"
"""Evict members although the rest is no majority: the operator vouches that they have ended."""


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
    RESET_LOST = 8
    """Lost partitions in use again, with what there is of them."""
    BASELINE = 9
    """Just these members, or these too, or these no more, as the owners of data."""
    LEVEL = 10
    """A higher feature level in force (`core.model.levels`)."""
    EVICT = 11
    """The cluster without members that have ended, before they have been silent for `cluster.suspect_after_ms`."""
    CONFIGURE = 12
    """This member with other settings, of those that can be changed while it runs."""


class Order(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Let this become so. Answered when it is, or when it is not so in time; other questions are answered meanwhile."""

    id: int
    want: Want
    timeout_ms: int
    """How long to wait for it, at most `ORDER_MS_MAX`."""
    state: str = ""
    """For `STATE`: which one (`active`, `no-migration`, `frozen`, `passive`). For `BASELINE`: how it is to change
    (`set`, `add`, `remove`, `auto`). For `EVICT`: `WITHOUT_MAJORITY`, if the rest is none.
    """
    partition: int = -1
    """For `REFILL`."""
    member: str = ""
    """For `REFILL`: the UUID of the backup. For `EVICT`: of the member that has ended."""
    partitions: Partitions = []
    """For `RESET_LOST`; empty: all that are lost."""
    maps: Rows[str] = []
    """For `RESET_LOST`, by their configured names; empty: all that have lost some."""
    members: Rows[str] = []
    """For `BASELINE`, by consistent id. For `EVICT`: UUIDs, if several members have ended."""
    adjust_ms: int = -1
    """For `BASELINE`, `auto`: so long after the last change of the members it becomes who is here; -1: never."""
    level: int = 0
    """For `LEVEL`."""
    settings: dict[str, str] = {}
    """For `CONFIGURE`: dotted key, as it is sent (`config.sharing.ENCODED_NAMES`) -> value, as in the environment."""


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


class Cut(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Keep these maps, in those of these partitions that are served here, as they are now: on this member and on every
    backup, until the lease ends. Answered when all sync backups have kept them at the same update counters.

    Asked again with the same id and the same maps, partitions that are in the cut already stay as they were. Maps times
    partitions are at most `CUT_MARKS_MAX`, more partitions are more questions with the same id; and of one partition
    there are at most `CUT_MAPS_MAX` maps.
    """

    id: int
    cut: bytes
    """The id of the cut, 16 random bytes; the same for all partitions of a cluster-wide one."""
    maps: Rows[str]
    partitions: Partitions
    lease_ms: int


class HoldCut(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Keep what this member holds of the cut for so long from now on; 0: forget it."""

    id: int
    cut: bytes
    lease_ms: int
    partitions: Partitions = []
    """Tell what is kept in these, at most `CUT_MARKS_MAX` of them."""


class AskHeads(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """How far have changes of this map gone in these partitions, and from where on can they be told?"""

    id: int
    map: str
    partitions: Partitions


class AskChanges(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """What has changed in this map and partition after the update `after`, up to the update `upto`?

    Any member that has a copy with this history may answer; `Changes.upto` says how far the answer goes.
    """

    id: int
    map: str
    partition: int
    after: int
    after_term: int
    """Of the update `after`; 0 when that is 0. A copy with another history refuses."""
    upto: int
    bytes_max: int = 1 << 20
    upto_term: int = 0
    """Of the update `upto`, so that another member than the primary knows whether its copy has just this history;
    0: the primary is asked."""


class AskMetastore(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Ask the metastore, or change a key of it: for operators."""

    id: int
    question: MetastoreQuestion


class OrderZone(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Create, alter, rename, drop, reset, list or show zones: for operators."""

    id: int
    order: ZoneOrder


class OrderTransaction(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Begin, use, commit, roll back or list transactions of the member that is asked. Those that a connection has begun
    are rolled back when it ends.
    """

    id: int
    order: TransactionOrder


class AskZoneDigests(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """What did your replicas of these partitions hold at these places of their logs, for comparing them with others?

    The answer may cover fewer partitions: ask again from `ZoneDigests.answered` on. With no partitions it tells which
    node the member is.
    """

    id: int
    zone: int
    partitions: Partitions
    indexes: Partitions
    """Of the mark in each partition's log (`MarkPartitions`)."""
    map: str | None = None
    """One map only; None: all."""
