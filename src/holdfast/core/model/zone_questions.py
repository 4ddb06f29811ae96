"""Requests of operators about zones, and their responses, as plain data."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.model.member_status import SettingValue, ZoneStatus

NEVER: Final = "never"
"""Written form of a timer that never runs out."""


class CreateZone(msgspec.Struct, frozen=True, array_like=True, tag=0):
    name: str
    settings: list[tuple[str, SettingValue]] = []
    """Settings that are left out have their defaults; the default number of partitions is the cluster's."""


class AlterZone(msgspec.Struct, frozen=True, array_like=True, tag=1):
    name: str
    settings: list[tuple[str, SettingValue]]


class RenameZone(msgspec.Struct, frozen=True, array_like=True, tag=2):
    name: str
    wanted: str


class DropZone(msgspec.Struct, frozen=True, array_like=True, tag=3):
    name: str


class ResetZone(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Continue with the remaining replicas of partitions that have lost their majority. Data that only the lost ones
    had are lost.
    """

    name: str
    partitions: list[int] = []
    """Empty: all of them."""


class ListZones(msgspec.Struct, frozen=True, array_like=True, tag=5): ...


class ShowZone(msgspec.Struct, frozen=True, array_like=True, tag=6):
    name: str


class RebuildReplica(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Replace the state of the receiving member's replica by its leader's. Answered when that was requested. A leader
    transfers its leadership instead, and fails with NotReady.
    """

    zone: int
    partition: int


class WhoLeads(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The leader of each partition, as far as the receiving member knows, and its replicas with trouble. Answered at
    once.
    """


AgreedOrder = CreateZone | AlterZone | RenameZone | DropZone | ResetZone | ListZones | ShowZone
"""Orders that the metastore decides, or must be asked about first."""
ZoneOrder = AgreedOrder | WhoLeads | RebuildReplica


class AssignmentsTold(msgspec.Struct, frozen=True):
    peers: list[str]
    learners: list[str] = []
    force: bool = False
    from_reset: bool = False


class ReplicaTold(msgspec.Struct, frozen=True):
    node: str
    state: str
    index: int
    """Index of the last entry of its log."""
    learner: bool
    lag: int = 0
    """How many more entries the leader's log had when the two members answered."""


class ZonePartitionTold(msgspec.Struct, frozen=True):
    partition: int
    leader: str | None
    """A node; None: unknown."""
    term: int
    stable: AssignmentsTold | None
    pending: list[AssignmentsTold]
    planned: AssignmentsTold | None
    replicas: list[ReplicaTold] = []
    """Replicas of the members that have answered."""


class LeaderTold(msgspec.Struct, frozen=True, array_like=True):
    zone: int
    partition: int
    node: str
    term: int


class TroubleTold(msgspec.Struct, frozen=True, array_like=True):
    """A repeated failure of a member in a partition; it keeps trying."""

    zone: int
    partition: int
    attempts: int
    why: str


class ZoneAnswer(msgspec.Struct, frozen=True):
    done: str = ""
    """Result in words; empty: nothing was done."""
    warnings: list[str] = []
    zones: list[ZoneStatus] = []
    partitions: list[ZonePartitionTold] = []
    members: dict[str, str] = {}
    """Node -> name of the member."""
    leaders: list[LeaderTold] = []
    troubles: list[TroubleTold] = []
    node: str = ""
    """This member's node, if that was asked for."""
    failed: str = ""
    why: str = ""
