"""Something has happened in a machine of this member that others have to know of: a notice.

A machine tells it through the outbox (`Outbox.tell`), and knows nobody who hears it. The member hands it at once,
before `tell` returns, to those whom its table (`core.member.NOTICES`) names, in the order of the table. What belongs to
every single request or batch is not told in this way: it would cost too much.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.ids import MemberId, PartitionId
from holdfast.core.model.migration import Migration
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import View

# -- the cluster


@dataclass(frozen=True, slots=True)
class ViewInstalled:
    """Another view is the present one."""

    old: View | None
    new: View | None
    """None: this member was removed."""
    admitted: bool
    """Whether this member is in it."""
    gone: frozenset[MemberId]
    """Other members that were there before, or were in an earlier life."""
    came: frozenset[MemberId]
    """Other members that are new, or in a new life."""


@dataclass(frozen=True, slots=True)
class BeatHeard:
    """A heartbeat was taken: what this member knows of the others may be something else now."""

    sender: MemberId
    life: int
    view: int
    applied: int
    """The last round of the table that the sender has applied in that view."""
    known: int
    """Up to which round all have, as the sender knows."""


@dataclass(frozen=True, slots=True)
class IntentsChanged:
    """The operator wants this member to become something else."""


@dataclass(frozen=True, slots=True)
class DiskRoomChanged:
    """This member's disk is full, or has room again."""


@dataclass(frozen=True, slots=True)
class MemoryRoomChanged:
    """Some member's memory has more or less room than before."""


@dataclass(frozen=True, slots=True)
class FilesHeardOf:
    """What is known of everybody's files has changed so much that it is to be written down: it is in this view."""

    view: View


# -- the table


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """The assignment of a partition is another one: committed, and applied here."""

    partition: PartitionId
    old: Assignment
    new: Assignment


@dataclass(frozen=True, slots=True)
class TableCurrent:
    """The newest table is here, for the first time since this member came (back) into the cluster."""


@dataclass(frozen=True, slots=True)
class TableGathered:
    """This member is master and knows the newest table, or the view has changed under it."""

    active: tuple[tuple[Migration, int], ...]
    """Migrations of an earlier master, and the version that each started from."""
    staying: frozenset[MemberId]
    """Members of both views, in one life."""


@dataclass(frozen=True, slots=True)
class RoundCommitted:
    """As master: a round with these partitions is the table now."""

    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class RoundDurable:
    """A restart of this member would know of this round of this view."""

    view: int
    round: int


# -- a primary, and its replicas


@dataclass(frozen=True, slots=True)
class CopyDurable:
    """What this member held of a partition at this version of its assignment is durable."""

    partition: PartitionId
    version: int


@dataclass(frozen=True, slots=True)
class ReplicaDiffers:
    """A replica of a partition in which this member takes office does not hold what it holds."""

    partition: PartitionId
    member: MemberId


@dataclass(frozen=True, slots=True)
class LeadershipTaken:
    """This member is the primary of a partition, and every replica holds what it holds."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class ServingBegan:
    """Requests on a partition are taken here."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class HandoverBegan:
    """A partition moves to another primary, which lacks only the last chunk: writes stop."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class HandoverEnded:
    """The partition stays, for its migration has come to nothing."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class PartitionDrained:
    """Nothing of a partition waits for a backup any more. Told while its handover waits for that."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class ReplicaWhole:
    """A staging replica has become whole by a record."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class RecordsTaken:
    """Records of a partition were taken as its backup. Told while a summary of it waits for them."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class BacklogChanged:
    """Clients are to be read no more, or again; or writes are refused, or taken again."""


# -- Raft groups


@dataclass(frozen=True, slots=True)
class GroupsWritten:
    """What the replicas of groups on this member wanted written down, in this batch, is durable."""

    batch: int


# -- the journal


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """The checkpoint with this ticket is durable; or, when it is not `well`, there was no room for it."""

    ticket: int
    well: bool


@dataclass(frozen=True, slots=True)
class MapEmptied:
    """A client has destroyed a map, and every backup of this partition, which is led here, has removed its entries."""

    partition: PartitionId
    name: str


@dataclass(frozen=True, slots=True)
class MapForgotten:
    """This member holds nothing of a map in this partition any more: the map is empty."""

    partition: PartitionId
    name: str


Notice = (
    ViewInstalled
    | BeatHeard
    | IntentsChanged
    | DiskRoomChanged
    | MemoryRoomChanged
    | FilesHeardOf
    | AssignmentChanged
    | TableCurrent
    | TableGathered
    | RoundCommitted
    | RoundDurable
    | CopyDurable
    | ReplicaDiffers
    | LeadershipTaken
    | ServingBegan
    | HandoverBegan
    | HandoverEnded
    | PartitionDrained
    | ReplicaWhole
    | RecordsTaken
    | MapEmptied
    | MapForgotten
    | BacklogChanged
    | CheckpointEnded
    | GroupsWritten
)
