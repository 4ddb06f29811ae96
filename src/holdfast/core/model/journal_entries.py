"""Entries of a member's journal, and the content of a checkpoint.

The journal is one sequence of *blocks*, groups of entries of all partitions. The number of a block (1, 2, 3…)
is its *lsn*. Earlier entries are durable before later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Puts, Record
from holdfast.core.model.views import PlainView, View


class Wrote(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """This member's copy has applied these records, of the primary of this term, in this order."""

    partition: int
    term: int
    records: list[Record]
    wall_ms: int = 0
    """Milliseconds since 1970 by this member's clock: times to live count from then. 0: unknown."""


class WrotePuts(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """The same for packed puts."""

    partition: int
    term: int
    puts: Puts
    wall_ms: int = 0

    @property
    def records(self) -> list[Record]:
        return self.puts.records()


class TableAssignments(msgspec.Struct, frozen=True, array_like=True, tag=2):
    rows: list[tuple[int, Assignment]]


class Seen(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """This view is installed here; it describes the members in the assignments."""

    view: View


def seen(view: PlainView) -> Seen:
    """A view without a baseline and of the first level is written in the older form."""
    if isinstance(view, View) and view.baseline is None and view.level == LOWEST:
        view = PlainView(*msgspec.structs.astuple(view)[: len(PlainView.__struct_fields__)])
    return Seen(cast("View", view))


def level_of(entries: Sequence[Entry]) -> int:
    """The feature level that later entries may have."""
    if Seen not in map(type, entries):
        return LOWEST
    views: list[PlainView] = [entry.view for entry in entries if type(entry) is Seen]
    # A view of the first level is written as a PlainView.
    return max((view.level for view in views if isinstance(view, View)), default=LOWEST)


class Began(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """An empty copy of the partition begins here; earlier content is void."""

    partition: int
    epoch: int


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """This member no longer holds the partition (or, if named, this map of it)."""

    partition: int
    map: str = ""


class Checkpointed(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """This file has the content of the partition, with every record of the blocks up to `lsn`."""

    partition: int
    lsn: int
    file: str


class GroupWrote(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Log entries, or term and vote, of this member's replica of a Raft group."""

    partition: int
    """Number of the group (`ids.GROUPS_FROM`)."""
    data: bytes
    """A `multiraft.persistence.GroupWrite`."""


class Meta(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Identity of the journal: the first entry of each segment, followed by the newest assignments and view."""

    store: str
    incarnation: int
    cluster_id: str
    stores: dict[MemberId, str] = {}
    """Files of the members that the assignments name."""


Entry = Wrote | WrotePuts | TableAssignments | Seen | Began | Dropped | Checkpointed | Meta | GroupWrote


class MapSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """One map in a partition at one moment. Columns have one length; the last three are empty if all values are 0."""

    name: str
    lineage: list[tuple[int, int]]
    counter: bytes
    """`UpdateCounter.encode`, with its gaps."""
    keys: list[bytes]
    values: list[bytes]
    ttls_ms: list[int] = []
    """Remaining."""
    max_idles_ms: list[int] = []
    key_hashes: list[int] = []


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The journalled maps of one partition's copy at one moment."""

    partition: int
    epoch: int
    maps: list[MapSnapshot]
    requests: bytes = b""
    """Recently applied requests (`store.request_ids`)."""
    wall_ms: int = 0
    """Milliseconds since 1970 by this member's clock; 0: unknown."""
