"""Responses of members to clients of Holdfast's own protocol (`wire.own`)."""

from __future__ import annotations

from enum import IntEnum, unique
from itertools import pairwise
from typing import NamedTuple

import msgspec

from holdfast.config.addresses import format_address
from holdfast.core.model.operations import Outcome
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.transaction_orders import TransactionAnswer
from holdfast.wire.columns import ColumnBatch


@unique
class FaultKind(IntEnum):
    """Why a request was not answered. With every kind but `UNKNOWN`, certainly nothing was done."""

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
    """An error inside the member, which has changed nothing and continues; its log says more."""
    NO_MEMORY = 11
    """The memory of a member that would have to keep the write is nearly full."""
    LOST = 13
    """Partitions of the map are lost, and its `loss_policy` does not ignore that."""


class Fault(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """The request failed. `id` 0: the connection is at fault, and ends."""

    id: int
    kind: FaultKind
    detail: str


class HelloOk(msgspec.Struct, frozen=True, array_like=True, tag=65):
    id: int
    version: int
    member: str
    cluster_id: str
    cluster_name: str
    partition_count: int
    frame_bytes_max: int
    """The largest frame that this member takes."""
    request_ids: int = 0
    """How many requests with an id each partition remembers: while it does, a repeated request is applied
    once.
    """
    release: str = ""
    key_bytes_max: int = 0
    """The largest key and the largest value that this member takes, in their stored form; 0: not reported."""
    value_bytes_max: int = 0


class MemberRow(msgspec.Struct, frozen=True, array_like=True):
    uuid: str
    host: str
    client_port: int
    lite: bool

    @property
    def address(self) -> str:
        return format_address(self.host, self.client_port)


NOBODY = -1
"""In `TableIs.replicas`: no member holds this replica."""


class TableIs(msgspec.Struct, frozen=True, array_like=True, tag=67):
    """The members, oldest first, and for each partition the holders of its replicas, the primary first.

    For a map in a zone only the leaders are named, with their terms as versions.
    """

    id: int
    version: int
    members: list[MemberRow]
    replicas: list[list[int]]
    versions: list[int] = []
    stamp: int = 0
    """64 bits over all assignments: members with equal tables have the same."""


class Executed(msgspec.Struct, frozen=True, array_like=True, tag=68):
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
    """With `any_copy`: the rest of each entry's time to live, 0 for ever. Empty if no entry has any."""
    max_idles_ms: list[int] = []
    key_hashes: list[int] = []
    """The same for the partition-hash words of keys."""
    term: int = 0
    """In a scan at a cut: the term of its update. With the counter it identifies the history."""


class PutDone(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """Result of a `PutColumns`: each group was stored, or its partition is in `moved`.

    If `known` is False, the groups that are not in `moved` may or may not be stored, or may get lost.
    """

    id: int
    stored: int
    moved: list[int]
    known: bool
    why: str = ""
    kept: int = 0
    """Rows of kind `ADD` that were not stored because their key was present with another value."""


class MapDigest(msgspec.Struct, frozen=True, array_like=True):
    """One map in a copy. Copies with equal counters have equal entries and equal digests."""

    map: str
    counter: int
    entries: int
    digest: int
    """64 bits over all entries, whatever their order."""
    targets: list[str]
    """On the partition's primary: UUIDs of the members that must hold the same."""
    lineage: list[tuple[int, int]] = []
    """Terms of the updates: from the counter start + 1 on, of this term; ascending."""
    index: int = 0
    """Index of a cut in the log of a zone's partition; 0: elsewhere. The digest then includes times to live,
    which are the same on all replicas.
    """

    @property
    def term(self) -> int:
        """Term of the last update; 0 without updates."""
        return self.lineage[-1][0] if self.lineage else 0


class PartitionDigest(msgspec.Struct, frozen=True, array_like=True):
    partition: int
    epoch: int
    replica: int
    """By the member's table; -1 if the table does not name it."""
    serving: bool
    maps: list[MapDigest]
    version: int = 0
    """Version of the assignment that this member knows."""
    behind: list[str] = []
    """UUIDs of backups in the assignment that need not hold everything yet."""
    unfinished: bool = False
    """On the primary: whether some write waits for a backup, sync or async."""


class Digests(msgspec.Struct, frozen=True, array_like=True, tag=71):
    """This member's copies of the first `answered` partitions of the request."""

    id: int
    table_version: int
    answered: int
    held: list[PartitionDigest]


@unique
class Fate(IntEnum):
    DONE = 1
    REJECTED = 2
    """It was rejected or withdrawn, and has no effect later."""
    ACCEPTED = 3
    """It has not taken effect in time. The cluster carries it out as soon as possible."""
    UNKNOWN = 4
    """It may or may not have taken effect."""


class Acted(msgspec.Struct, frozen=True, array_like=True, tag=83):
    id: int
    fate: Fate
    message: str
    """The effect; or why there is none, and what to do."""
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    """The answer to a query, or to an action that has one."""
    error: str = ""
    """The class of the error (`holdfast.errors`), if it was rejected."""


class Heard(msgspec.Struct, frozen=True, array_like=True, tag=73):
    id: int
    news: list[News]
    last: Number
    """Send it as `after` in the next request."""
    complete: bool
    """Whether no news between `after` and these are missing; this member may have been absent."""


class Ranges(msgspec.Struct, frozen=True, array_like=True, tag=74):
    """The copy of a map in one partition, by key ranges."""

    id: int
    version: int
    counter: int
    lineage: list[tuple[int, int]]
    digests: list[int]
    """One for each range; their sum modulo 2**64 is the map's digest. Empty: no copy is held here."""


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A cut of one map in one partition."""

    partition: int
    map: str
    counter: int
    """The update counter at the cut. 0: nothing was ever written, and nothing is kept."""
    term: int
    entries: int
    holders: list[str]
    """UUIDs of the members that keep it: the primary first, then the sync backups."""


class CutMade(msgspec.Struct, frozen=True, array_like=True, tag=75):
    """The cut of what is served here. If `known` is False, not all sync backups may keep it: ask again."""

    id: int
    marks: list[Mark]
    moved: list[int]
    known: bool
    why: str = ""
    left: list[int] = []
    """Partitions that were not reached, because the work of one request is bounded: ask again for them."""


class CutHeld(msgspec.Struct, frozen=True, array_like=True, tag=76):
    """How many maps in partitions this member keeps for the cut (after `HoldCut` with 0: has kept)."""

    id: int
    marks: int
    kept: list[tuple[int, str, int, int]] = []
    """Kept or ended, in the requested partitions: partition, map, counter and term; at most `CUT_MAPS_MAX`."""


class Switch(NamedTuple):
    """Where a map was moved to another place: its updates continue with another number."""

    end: int
    end_term: int
    start: int
    """A reader of that continues after this update."""
    start_term: int


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The last safe update of one map in one partition."""

    partition: int
    counter: int
    """Every update up to this one is held by all sync backups: it cannot be undone."""
    term: int
    since: int
    """The primary has every later change in memory; its journal, or other members, may go back further."""
    lineage: list[tuple[int, int]] = []
    """Terms of the updates: from the counter start + 1 on, of this term; ascending. Term 0 where the map was
    moved: a reader who has read update `start` continues after the first update of the next item.
    """

    def switch_after(self, counter: int) -> Switch | None:
        for (gap, end), (term, start) in pairwise(self.lineage):
            if not gap and start >= counter:
                return Switch(end, self.term_at(end), start + 1, term)
        return None

    def term_at(self, counter: int) -> int:
        """The term of an update up to this head; 0 if there is none of this number."""
        if not 0 < counter <= self.counter:
            return 0
        return next((term for term, start in reversed(self.lineage) if start < counter), 0)

    def follows(self, counter: int, term: int) -> bool:
        """Whether an update that was read before belongs to the history of this head. If not, that update is
        gone.
        """
        if not counter:
            return True
        if self.term == term and counter > self.counter:
            # It was reported before the primary began to wait for one more backup.
            return True
        return self.term_at(counter) == term


class Heads(msgspec.Struct, frozen=True, array_like=True, tag=77):
    """The heads of the partitions that are served here; the others are in `moved`."""

    id: int
    heads: list[Head]
    moved: list[int]


@unique
class ChangeKind(IntEnum):
    """Kind of a change. Updates that change no entry (a new time to live, a cut) are not sent."""

    INSERT = 1
    UPDATE = 2
    REMOVE = 3


class Changes(msgspec.Struct, frozen=True, array_like=True, tag=78):
    """Changes in the order of their counters. Values of removes, and old values of inserts, are empty."""

    id: int
    upto: int
    """Every change after `AskChanges.after` up to this update is included. If it is `after` itself, this
    member has none of them, and `why` says why; without a reason it may have them later: they are not safe
    yet, or it has too much to do.
    """
    counters: list[int]
    terms: list[int]
    kinds: bytes
    times_ms: list[int]
    """Since 1970 by the primary's clock."""
    columns: ColumnBatch
    old_offsets: bytes
    olds: bytes
    """Laid out as in `ColumnBatch`."""
    why: str = ""
    term: int = 0
    """Term of the update `upto`, from which to continue."""
    transactions: list[tuple[int, int, bytes]] = []
    """Changes by transactions: first position, number of changes, and the transaction's id."""

    def transaction_ids(self) -> list[bytes | None]:
        """The transaction of each change; None: made outside transactions."""
        found: list[bytes | None] = [None] * len(self.counters)
        for first, count, transaction in self.transactions:
            for place in range(max(0, first), min(first + count, len(found))):
                found[place] = transaction
        return found


class TransactionSays(msgspec.Struct, frozen=True, array_like=True, tag=82):
    id: int
    answer: TransactionAnswer
