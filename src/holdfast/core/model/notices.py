"""Notices: reports of one machine of this member to others.

`Outbox.notify` calls the receivers in the table `core.member.NOTICES` at once, in its order. Facts about
single requests or batches are not sent in this way, because of the cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.ids import MemberId, PartitionId
from holdfast.core.model.map_locks import ClientUuid
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
    """A heartbeat was accepted; knowledge about its sender may have changed."""

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
    """The memory of some member has more or less room than before."""


@dataclass(frozen=True, slots=True)
class FilesHeardOf:
    """Facts about members' files have changed enough to be stored; they are in this view."""

    view: View


# -- the table


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """The assignment of a partition has changed: committed, and applied here."""

    partition: PartitionId
    old: Assignment
    new: Assignment


@dataclass(frozen=True, slots=True)
class TableCurrent:
    """The newest table is here, for the first time since this member joined or returned."""


@dataclass(frozen=True, slots=True)
class TableGathered:
    """This member is master and knows the newest table, or a new view has come while it is master."""

    active: tuple[tuple[Migration, int], ...]
    """Migrations of an earlier master, and the version from which each started."""
    staying: frozenset[MemberId]
    """Members of both views, in one life."""


@dataclass(frozen=True, slots=True)
class RoundCommitted:
    """On the master: a round with these partitions is committed."""

    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class RoundDurable:
    """A restart of this member would know this round of this view."""

    view: int
    round: int


# -- a primary, and its replicas


@dataclass(frozen=True, slots=True)
class CopyDurable:
    """The copy of a partition, as it was at this version of its assignment, is durable."""

    partition: PartitionId
    version: int


@dataclass(frozen=True, slots=True)
class ActivationBegan:
    """This member is to be the primary of a partition, and compares counters with its replicas."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class ReplicaDiffers:
    """A replica of a partition that this member activates as primary has other content."""

    partition: PartitionId
    member: MemberId


@dataclass(frozen=True, slots=True)
class LeadershipTaken:
    """This member is the primary of a partition, and every replica has the same content."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class ServingBegan:
    partition: PartitionId


@dataclass(frozen=True, slots=True)
class HandoverNear:
    """A partition will move to another primary soon, and is still served: some of its locks are to be stored."""

    partition: PartitionId
    most: int
    """How many."""


@dataclass(frozen=True, slots=True)
class HandoverBegan:
    """A partition moves to another primary, which lacks only the last chunk: writes stop."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class HandoverEnded:
    """The partition stays: its migration was aborted."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class PartitionDrained:
    """No write of a partition waits for a backup any more. Sent only while its handover waits for that."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class LastChunkReceived:
    """The former primary of a partition has sent everything to this member, which is to be its next one."""

    partition: PartitionId
    paused_ns: int
    """How long writes had stopped by then."""


@dataclass(frozen=True, slots=True)
class ReplicaWhole:
    partition: PartitionId


@dataclass(frozen=True, slots=True)
class RecordsTaken:
    """Records of a partition were applied as its backup. Sent only while a summary waits for them."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class BacklogChanged:
    """Reading from clients, or accepting writes, has to stop or may resume."""


# -- Raft groups


@dataclass(frozen=True, slots=True)
class GroupsWritten:
    batch: int


# -- the journal


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """The checkpoint with this ticket is durable; or, if not `well`, there was no room for it."""

    ticket: int
    well: bool


@dataclass(frozen=True, slots=True)
class MapEmptied:
    """A client has destroyed a map, and every backup of this partition, which is led here, has removed its entries."""

    partition: PartitionId
    name: str


@dataclass(frozen=True, slots=True)
class MapMarked:
    """On a primary: what a partition knows of the moves of maps has changed (model/M-2)."""

    partition: PartitionId


@dataclass(frozen=True, slots=True)
class LockAwaited:
    """A transaction has begun to wait for a lock of another one, in a partition led here."""


@dataclass(frozen=True, slots=True)
class EntryLocked:
    """On a primary: this client has locked an entry."""

    client: ClientUuid


@dataclass(frozen=True, slots=True)
class LockEnded:
    """On a primary: the lock with this key, in a map of locks, was removed by no request."""

    partition: PartitionId
    map: str
    key: bytes


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
    | ActivationBegan
    | ReplicaDiffers
    | LeadershipTaken
    | ServingBegan
    | HandoverNear
    | HandoverBegan
    | HandoverEnded
    | PartitionDrained
    | LastChunkReceived
    | ReplicaWhole
    | RecordsTaken
    | MapEmptied
    | MapMarked
    | LockAwaited
    | EntryLocked
    | LockEnded
    | MapForgotten
    | BacklogChanged
    | CheckpointEnded
    | GroupsWritten
)
