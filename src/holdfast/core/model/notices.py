"""Notices: reports of one machine of this member to others.

`Outbox.notify` calls the receivers in the table `core.member.NOTICES` at once, in its order. Facts about
single requests or batches are not sent in this way, because of the cost.
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
    old: View | None
    new: View | None
    """None: this member was removed."""
    admitted: bool
    gone: frozenset[MemberId]
    """Other members of the old view that are gone, or in a later life."""
    came: frozenset[MemberId]
    """Other members that are new, or in a new life."""


@dataclass(frozen=True, slots=True)
class BeatHeard:
    """A heartbeat was accepted."""

    sender: MemberId
    life: int
    view: int
    applied: int
    """The last round of the table that the sender has applied."""
    known: int
    """The last round that all have applied, as far as the sender knows."""


@dataclass(frozen=True, slots=True)
class IntentsChanged:
    pass


@dataclass(frozen=True, slots=True)
class DiskRoomChanged:
    pass


@dataclass(frozen=True, slots=True)
class MemoryRoomChanged:
    """The free memory of some member has changed."""


@dataclass(frozen=True, slots=True)
class FilesHeardOf:
    """These facts about members' files are to be stored, in this view."""

    view: View


# -- the table


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """Committed, and applied here."""

    partition: PartitionId
    old: Assignment
    new: Assignment


@dataclass(frozen=True, slots=True)
class TableCurrent:
    """For the first time since this member joined or returned."""


@dataclass(frozen=True, slots=True)
class TableGathered:
    """This member is master and knows the newest table, or a new view has come while it is master."""

    active: tuple[tuple[Migration, int], ...]
    """Migrations of an earlier master, and the version from which each started."""
    staying: frozenset[MemberId]
    """Members of both views, in one life."""


@dataclass(frozen=True, slots=True)
class RoundCommitted:
    """On the master."""

    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class RoundDurable:
    """A restart of this member would know this round of this view."""

    view: int
    round: int


# -- a primary, and its replicas


@dataclass(frozen=True, slots=True)
class CopyDurable:
    """The copy, as it was at this version of its assignment."""

    partition: PartitionId
    version: int


@dataclass(frozen=True, slots=True)
class ReplicaDiffers:
    """A replica of a partition that this member activates as primary has other content."""

    partition: PartitionId
    member: MemberId


@dataclass(frozen=True, slots=True)
class LeadershipTaken:
    """Every replica has the same content as this new primary."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class ServingBegan:
    partition: PartitionId


@dataclass(frozen=True, slots=True)
class HandoverBegan:
    """The new primary lacks only the last chunk: writes stop."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class HandoverEnded:
    """The migration was aborted."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class PartitionDrained:
    """No write waits for a backup any more. Sent only while a handover waits for that."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class ReplicaWhole:
    partition: PartitionId


@dataclass(frozen=True, slots=True)
class RecordsTaken:
    """As a backup. Sent only while a summary waits for them."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class BacklogChanged:
    """Stop or resume reading from clients, or accepting writes."""


# -- Raft groups


@dataclass(frozen=True, slots=True)
class GroupsWritten:
    batch: int


# -- the journal


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """It is durable; or, if not `well`, there was no room for it."""

    ticket: int
    well: bool


@dataclass(frozen=True, slots=True)
class MapEmptied:
    """A client has destroyed it, and every backup of this partition, which is led here, has removed its
    entries.
    """

    partition: PartitionId
    name: str


@dataclass(frozen=True, slots=True)
class MapMarked:
    """On a primary: the mark of a move has changed (model/M-2)."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class MapForgotten:
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
    | MapMarked
    | MapForgotten
    | BacklogChanged
    | CheckpointEnded
    | GroupsWritten
)
