"""What a member writes down: the closed set of entries of its journal, and what a checkpoint of a partition holds.

The journal is one sequence of groups of entries, shared by all partitions of the member. A group is one *block*; its
place in the sequence (1, 2, 3…) is its *lsn*. What was written before something else is durable before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Puts, Record
from holdfast.core.model.views import PlainView, View


class Wrote(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """This member's copy of the partition has applied these records, of the primary of this term, in this order."""

    partition: int
    term: int
    records: list[Record]
    wall_ms: int = 0
    """When that was, in milliseconds since 1970 by this member's clock: times to live are counted from then on. 0: not
    known."""


class WrotePuts(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """The same of ordinary stores, packed."""

    partition: int
    term: int
    puts: Puts
    wall_ms: int = 0

    @property
    def records(self) -> list[Record]:
        """The same, one by one."""
        return self.puts.records()


class TableAssignments(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """These rows of the table are applied here."""

    rows: list[tuple[int, Assignment]]


class Seen(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """This view is installed here: who the members in the rows are."""

    view: View


def seen(view: PlainView) -> Seen:
    """That this view is installed: one without a baseline, of the first level, is written as if there were neither."""
    if isinstance(view, View) and view.baseline is None and view.level == LOWEST:
        view = PlainView(*msgspec.structs.astuple(view)[: len(PlainView.__struct_fields__)])
    return Seen(cast("View", view))


def level_of(entries: Iterable[Entry]) -> int:
    """The highest feature level of the views among these entries: what follows them may be of it."""
    views: list[PlainView] = [entry.view for entry in entries if type(entry) is Seen]
    # What is written of a view of the first level is no whole one.
    return max((view.level for view in views if isinstance(view, View)), default=LOWEST)


class Began(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """An empty copy of the partition begins here; what was held of it before is void."""

    partition: int
    epoch: int


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """This member holds the partition (or, if named, this map of it) no more."""

    partition: int
    map: str = ""


class Checkpointed(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The content of the partition, with every record of the blocks up to `lsn`, is in this file."""

    partition: int
    lsn: int
    file: str


class GroupWrote(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """This member's replica of a Raft group has this in its log, or its term and vote are these."""

    partition: int
    """The group's number: no partition has it (`ids.GROUPS_FROM`)."""
    data: bytes
    """A `multiraft.persistence.GroupWrite`."""


class Meta(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Whose journal this is. The first entry of each segment, followed by the newest rows and view."""

    store: str
    incarnation: int
    cluster_id: str
    stores: dict[MemberId, str] = {}
    """The files of the members that the rows name."""


Entry = Wrote | WrotePuts | TableAssignments | Seen | Began | Dropped | Checkpointed | Meta | GroupWrote


class MapSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """One map's share of a partition at one moment. Columns of one length; the last three are empty when all zero."""

    name: str
    lineage: list[tuple[int, int]]
    counter: bytes
    """`UpdateCounter.encode`: with its gaps, if there are any."""
    keys: list[bytes]
    values: list[bytes]
    ttls_ms: list[int] = []
    """What was left of the times to live."""
    max_idles_ms: list[int] = []
    key_hashes: list[int] = []


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The journalled maps of one partition's copy at one moment."""

    partition: int
    epoch: int
    maps: list[MapSnapshot]
    requests: bytes = b""
    """The requests that were applied not long ago, as the copy keeps them."""
    wall_ms: int = 0
    """When that was, in milliseconds since 1970 by this member's clock; 0: not known."""
