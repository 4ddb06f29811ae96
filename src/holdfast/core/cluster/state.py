"""What may a cluster do now, and what may a member want to become?"""

from __future__ import annotations

from enum import StrEnum, unique


@unique
class ClusterState(StrEnum):
    """What the operator allows. It is part of the view, so all members change it together.

    | state        | who may join                       | migrations | promotion | entry operations |
    |--------------|------------------------------------|------------|-----------|------------------|
    | ACTIVE       | anyone                             | yes        | yes       | all              |
    | NO_MIGRATION | anyone                             | no         | yes       | all              |
    | FROZEN       | who has gone since it was frozen   | no         | no        | all              |
    | PASSIVE      | who has gone since it was frozen   | no         | no        | reads            |
    """

    ACTIVE = "active"
    NO_MIGRATION = "no-migration"
    FROZEN = "frozen"
    PASSIVE = "passive"

    @property
    def migrates(self) -> bool:
        """Whether partitions may move and lost copies be restored."""
        return self is ClusterState.ACTIVE

    @property
    def frozen(self) -> bool:
        """Whether the slots of the partition table stay as they are, also those of missing members."""
        return self in (ClusterState.FROZEN, ClusterState.PASSIVE)

    @property
    def writes(self) -> bool:
        """Whether clients may change entries."""
        return self is not ClusterState.PASSIVE


@unique
class Wish(StrEnum):
    """What a member wants to become; it says so with every heartbeat until it is."""

    NONE = ""
    LEAVE = "leave"
    """To go when its partitions are safe elsewhere."""
    LITE = "lite"
    """To own nothing any more, and stay."""
    DATA = "data"
    """To own partitions."""
