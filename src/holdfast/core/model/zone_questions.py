"""What an operator wants of zones, and what is answered. All of it is data that can travel."""

from __future__ import annotations

from typing import Final

import msgspec

NEVER: Final = "never"
"""What people say of a timer that does not run out."""

SettingValue = str | int
"""Of a setting of a zone: numbers, words, and a filter as people write it."""


class CreateZone(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Let there be this zone."""

    name: str
    settings: list[tuple[str, SettingValue]] = []
    """What is left out has its default; so many partitions as the cluster has."""


class AlterZone(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Let these settings of it be others."""

    name: str
    settings: list[tuple[str, SettingValue]]


class RenameZone(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Let it have another name."""

    name: str
    wanted: str


class DropZone(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Let it be no more, with everything in it."""

    name: str


class ResetZone(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Let partitions that have lost their majority go on with what is left. What only the lost ones had is lost."""

    name: str
    partitions: list[int] = []
    """Empty: all of them."""


class ListZones(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Which zones are there?"""


class ShowZone(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """How does each of its partitions stand?"""

    name: str


class MarkPartitions(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Put a mark into the logs of these partitions that the member that is asked leads: each replica keeps for a while
    what it holds there, to be compared.
    """

    zone: int
    partitions: list[int]


class WhoLeads(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Who leads each partition, as far as the member that is asked knows; and which does not get on with what it does
    for them? Answered at once.
    """


AgreedOrder = CreateZone | AlterZone | RenameZone | DropZone | ResetZone | ListZones | ShowZone
"""What the metastore decides, or is asked for first."""
ZoneOrder = AgreedOrder | MarkPartitions | WhoLeads


class ZoneTold(msgspec.Struct, frozen=True):
    """A zone, as far as the member that tells it knows."""

    id: int
    name: str
    settings: dict[str, SettingValue]
    leaderless: int
    """Partitions of which it knows no leader that is here."""
    moving: int
    """Partitions whose replicas change."""
    lacking: int
    """Partitions with a replica on a member that is not here."""
    lag: int = 0
    """The most entries that a follower lacks of what its leader's log has, in partitions that the member that tells
    leads.
    """
    takes: list[str] = []
    """Names of the members that are here, do not leave, and may hold its replicas. When there are fewer of them than it
    shall have replicas, it has fewer.
    """


class AssignmentsTold(msgspec.Struct, frozen=True):
    """Who holds a partition, or is to: nodes."""

    peers: list[str]
    learners: list[str] = []
    force: bool = False
    from_reset: bool = False


class ReplicaTold(msgspec.Struct, frozen=True):
    """A replica, as its member has just said."""

    node: str
    state: str
    index: int
    """Of the last entry of its log."""
    learner: bool
    lag: int = 0
    """So many entries the leader's log had more, when each of the two members has answered."""


class ZonePartitionTold(msgspec.Struct, frozen=True):
    """One partition of a zone."""

    partition: int
    leader: str | None
    """A node; None: not known."""
    term: int
    """In which it leads."""
    stable: AssignmentsTold | None
    pending: list[AssignmentsTold]
    planned: AssignmentsTold | None
    replicas: list[ReplicaTold] = []
    """Of the members that have answered."""


class PartitionMark(msgspec.Struct, frozen=True):
    """A mark in the log of a partition."""

    partition: int
    term: int
    index: int


class LeaderTold(msgspec.Struct, frozen=True, array_like=True):
    """Who leads a partition."""

    zone: int
    partition: int
    node: str
    term: int


class TroubleTold(msgspec.Struct, frozen=True, array_like=True):
    """What a member fails to do for a partition, again and again; it goes on trying."""

    zone: int
    partition: int
    attempts: int
    why: str


class ZoneAnswer(msgspec.Struct, frozen=True):
    """The answer to any of them."""

    done: str = ""
    """What was done, in words; empty: it was a question, or nothing was."""
    warnings: list[str] = []
    zones: list[ZoneTold] = []
    partitions: list[ZonePartitionTold] = []
    members: dict[str, str] = {}
    """Node -> name of the member."""
    marks: list[PartitionMark] = []
    """Of the partitions that the member leads."""
    leaders: list[LeaderTold] = []
    troubles: list[TroubleTold] = []
    """Of the member that is asked."""
    node: str = ""
    """What this one is called in assignments, where it was asked for itself."""
    failed: str = ""
    """What has gone wrong, by the name of the error; empty: nothing."""
    why: str = ""
    """In words."""
