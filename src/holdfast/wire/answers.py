"""What members answer to clients of Holdfast's own protocol (`wire.own`)."""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec

from holdfast.config.addresses import format_address
from holdfast.core.model.metastore_questions import MetastoreAnswer
from holdfast.core.model.operations import Outcome
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.transaction_orders import TransactionAnswer
from holdfast.core.model.zone_questions import ZoneAnswer
from holdfast.wire.columns import ColumnBatch


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
    FAILED = 12
    """An error inside the member, which has changed nothing and goes on; its log says more."""
    NO_MEMORY = 11
    """The memory of a member that would have to keep the write is nearly full."""
    LOST = 13
    """Partitions of the map are lost, and its `loss_policy` does not ignore that."""


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
    release: str = ""
    """The member's version of Holdfast."""
    key_bytes_max: int = 0
    """The largest key and the largest value that this member takes, in their stored form; 0: it does not say."""
    value_bytes_max: int = 0


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
        return format_address(self.host, self.client_port)


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
    term: int = 0
    """Of a scan at a cut: the term of its update. With the counter it says which history this is of."""


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
    kept: int = 0
    """Rows of kind `ADD` that were not stored because their key was there, with another value than theirs."""


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
    REJECTED = 2
    """It was rejected or withdrawn, and has no effect later."""
    ACCEPTED = 3
    """It has not taken effect in time. The cluster carries it out as soon as that is possible."""


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


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """Where a cut goes through one map in one partition."""

    partition: int
    map: str
    counter: int
    """The update counter at the cut. 0: nothing was ever written, and nothing is kept."""
    term: int
    entries: int
    holders: list[str]
    """UUIDs of the members that keep it: the primary first, then the sync backups."""


class CutMade(msgspec.Struct, frozen=True, array_like=True, tag=75):
    """The cut through what is served here. With `known` false it may not be kept by all sync backups: ask again."""

    id: int
    marks: list[Mark]
    moved: list[int]
    known: bool
    why: str = ""
    left: list[int] = []
    """Partitions that were not gone through, because it was enough work for one question: ask for them again."""


class CutHeld(msgspec.Struct, frozen=True, array_like=True, tag=76):
    """How many maps in partitions this member keeps for the cut (after `HoldCut` with 0: has kept)."""

    id: int
    marks: int
    kept: list[tuple[int, str, int, int]] = []
    """What it keeps, or has kept, in the partitions that were asked for: partition, map, counter and term of each; no
    more than `CUT_MAPS_MAX`."""


class Head(msgspec.Struct, frozen=True, array_like=True):
    """How far the changes of one map have gone in one partition."""

    partition: int
    counter: int
    """Every update up to this one is held by all sync backups: it can not be taken back."""
    term: int
    """Of that update; 0 when there is none."""
    since: int
    """The primary can tell every change after this update from memory; its journal, or others, may go back further."""
    lineage: list[tuple[int, int]] = []
    """Of which terms the updates up to it are: from the counter start + 1 on, of this term; ascending."""

    def term_at(self, counter: int) -> int:
        """The term of an update up to this head; 0 when there is none of this number."""
        if not 0 < counter <= self.counter:
            return 0
        return next((term for term, start in reversed(self.lineage) if start < counter), 0)

    def follows(self, counter: int, term: int) -> bool:
        """Whether an update that was read before is of the history that led here. If not, that update is gone."""
        if not counter:
            return True
        if self.term == term and counter > self.counter:
            # Told before the primary began to wait for one more backup.
            return True
        return self.term_at(counter) == term


class Heads(msgspec.Struct, frozen=True, array_like=True, tag=77):
    """The heads of the partitions that are served here; the others are in `moved`."""

    id: int
    heads: list[Head]
    moved: list[int]


@unique
class ChangeKind(IntEnum):
    """What a change was. What changes no entry (a new time to live, a mark of a cut) is not told."""

    INSERT = 1
    UPDATE = 2
    REMOVE = 3


class Changes(msgspec.Struct, frozen=True, array_like=True, tag=78):
    """Changes in the order of their counters. The values of removes, and the old values of inserts, are empty."""

    id: int
    upto: int
    """Every change after `AskChanges.after` up to this update is here; `after` itself: this member can tell nothing
    of them, `why` says why. Without a reason it may tell them later: they are not safe yet, or there is too much to
    do."""
    counters: list[int]
    terms: list[int]
    kinds: bytes
    times_ms: list[int]
    """Milliseconds since 1970 by the primary's clock."""
    columns: ColumnBatch
    """Keys and new values."""
    old_offsets: bytes
    olds: bytes
    """Old values, laid out as in `ColumnBatch`."""
    why: str = ""
    term: int = 0
    """Of the update `upto`: from where to go on."""
    transactions: list[tuple[int, int, bytes]] = []
    """Which of these changes transactions have made: from which place on, how many, and the transaction's id."""

    def transaction_ids(self) -> list[bytes | None]:
        """Of each change, the transaction that has made it; None: it was made outside of any."""
        found: list[bytes | None] = [None] * len(self.counters)
        for first, count, transaction in self.transactions:
            for place in range(max(0, first), min(first + count, len(found))):
                found[place] = transaction
        return found


class MetastoreSays(msgspec.Struct, frozen=True, array_like=True, tag=79):
    """What the metastore answers."""

    id: int
    answer: MetastoreAnswer


class ZoneSays(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """What became of an order about zones, or what was asked of them."""

    id: int
    answer: ZoneAnswer


class TransactionSays(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """What became of an order about transactions."""

    id: int
    answer: TransactionAnswer


class ZoneMapDigest(msgspec.Struct, frozen=True, array_like=True):
    """A map in a partition of a zone, at a mark."""

    map: str
    counter: int
    """Updates that it has had."""
    entries: int
    digest: int
    """64 bits over all entries, with the ends of those that end."""


class ZoneCopyDigest(msgspec.Struct, frozen=True, array_like=True):
    """A replica of a partition of a zone."""

    partition: int
    applied: int
    """Index of the last entry of its log that is applied."""
    last: int
    """Of the last one in its log."""
    term: int = 0
    """Of the mark; 0: it is not there yet, or not kept here any more, and nothing more is told."""
    beside: int = 0
    """64 bits over what is there beside entries."""
    maps: list[ZoneMapDigest] = []


class ZoneDigests(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """The replicas that this member runs of the first `answered` partitions that were asked for."""

    id: int
    node: str
    """What the member is called in assignments."""
    answered: int
    held: list[ZoneCopyDigest]
