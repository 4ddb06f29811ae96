"""Answers to actions and queries of operators about zones."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.model.member_status import ZoneStatus

NEVER: Final = "never"


class AssignmentsTold(msgspec.Struct, frozen=True):
    peers: list[str]
    learners: list[str] = []
    force: bool = False
    from_reset: bool = False


class ReplicaTold(msgspec.Struct, frozen=True):
    node: str
    state: str
    index: int
    learner: bool
    lag: int = 0
    """Further entries in the leader's log when the two answered."""


class ZonePartitionTold(msgspec.Struct, frozen=True):
    partition: int
    leader: str | None
    """A node; None: unknown."""
    term: int
    stable: AssignmentsTold | None
    pending: list[AssignmentsTold]
    planned: AssignmentsTold | None
    replicas: list[ReplicaTold] = []


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


class ZoneChanged(msgspec.Struct, frozen=True):
    """A zone that was created or altered."""

    partitions: int
    replicas: int
    warnings: list[str] = []


class ZoneList(msgspec.Struct, frozen=True):
    """All zones."""

    zones: list[ZoneStatus]


class ZoneDetails(msgspec.Struct, frozen=True):
    """A zone, partition by partition."""

    zone: ZoneStatus
    members: dict[str, str]
    partitions: list[ZonePartitionTold]


class KnownLeaders(msgspec.Struct, frozen=True):
    """Leaders as one member knows them, and failures of its own replicas."""

    node: str
    """The member's node."""
    members: dict[str, str]
    leaders: list[LeaderTold]
    troubles: list[TroubleTold]
