"""Who is in the cluster, what may it do now, and what may a member want to become?"""

from __future__ import annotations

from enum import IntEnum, StrEnum, unique

import msgspec

from holdfast.config.addresses import format_address
from holdfast.core.model.baseline import Baseline
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import LOWEST, OF_THIS_BUILD, FeatureLevels


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
class Intent(StrEnum):
    """What a member wants to become; it says so with every heartbeat until it is."""

    NONE = ""
    LEAVE = "leave"
    """To go when its partitions are safe elsewhere."""
    LITE = "lite"
    """To own nothing any more, and stay."""
    DATA = "data"
    """To own partitions."""


@unique
class Room(IntEnum):
    """How much room a member has left in its memory."""

    PLENTY = 0
    LITTLE = 1
    """What clients would make it keep more of is refused; the rest is the reserve of backups and migrations."""
    NONE = 2
    """No migration is begun towards it either: what is left is for records of its primaries, which it cannot refuse."""


class FilesProof(msgspec.Struct, frozen=True):
    """What files prove of themselves when they are opened (`core.membership.known_files`)."""

    token: str = ""
    """Of the life that begins now: the UUID of the first member that opened them for it."""
    before: str = ""
    """Of the life before it; empty: there was none, or it had no token."""
    reached: int = 0
    """The last block of their journal when that life first began."""
    cut: bool = False
    """Whether something at or before its end could not be read then."""


class FilesSeen(msgspec.Struct, frozen=True, array_like=True):
    """How a cluster has seen some files last."""

    incarnation: int
    """In which of their lives."""
    token: str
    reached: int = 0
    """Up to which block their journal was durable."""


class MemberInfo(msgspec.Struct, frozen=True, array_like=True):
    """One member as the view lists it."""

    uuid: MemberId
    life: int
    """How often it was admitted; what was sent to an earlier life has no effect on a later one."""
    host: str
    port: int
    client_host: str
    client_port: int
    name: str
    lite: bool = False
    group: str = ""
    """Host, zone or own group: two copies of a partition never share one. Empty: the member is its own group."""
    store: str = ""
    """The UUID of its files; empty: it keeps none."""
    incarnation: int = 0
    """Which life of its files this is: lives that no cluster has admitted do not count."""
    returns: bool = False
    """Whether it has found data in its files, and will say what."""
    proof: FilesProof = FilesProof()
    behind: bool = False
    """Whether its files lack what they once held, so that nothing in them is proven whole."""
    attributes: dict[str, str] = {}
    """What its operator says of it: filters of zones go by these, and clients are shown them."""
    levels: FeatureLevels = FeatureLevels()
    """The feature levels that its build can do."""
    version: str = ""
    """Which Holdfast it runs, for people. Empty: one from before that was said."""

    @property
    def consistent_id(self) -> str:
        """What it is called in all its lives: its name, if it was given one; else the id of its files; else its UUID,
        which ends with the process. A name that was made of its address is none (`runtime.node`).
        """
        given = self.name != format_address(self.client_host, self.client_port)
        return (self.name if given else "") or self.store or self.uuid

    def described(self) -> dict[str, str]:
        """Its attributes, with those that every member has (`config.schema.OWN_ATTRIBUTES`)."""
        return {**self.attributes, "name": self.name, "host": self.host, "group": self.group}


def built(info: MemberInfo, version: str) -> MemberInfo:
    """The same member, of this build, which is called `version`."""
    return msgspec.structs.replace(info, levels=OF_THIS_BUILD, version=version)


class PlainView(msgspec.Struct, frozen=True, array_like=True):
    """A view of a cluster without a baseline, as it is written down."""

    number: int
    cluster_id: str
    members: list[MemberInfo]
    left: list[MemberId] = []
    """Members of the view before that have left gracefully with this one."""
    state: ClusterState = ClusterState.ACTIVE
    ending: bool = False
    """Whether everybody is to leave: the cluster is being shut down."""
    missing: list[MemberInfo] = []
    """Who has gone while the table was frozen, and has not come back."""
    stores: dict[str, FilesSeen] = {}
    """Of all files that were ever in the cluster how they were seen last."""
    recovering: bool = False
    """Whether the cluster was stopped as a whole, and its table is still to be found in the files of its members."""


class View(PlainView, frozen=True, array_like=True):
    """The agreed list of members, oldest first; the oldest is the master."""

    baseline: Baseline | None = None
    """Who owns data; None: everybody who is here."""
    level: int = LOWEST
    """The feature level in force: what members send and write down is of it (`core.model.levels`)."""

    def is_outside(self, info: MemberInfo) -> bool:
        """Whether this member owns nothing because it is not in the baseline (membership/B-3)."""
        return self.baseline is not None and info.consistent_id not in self.baseline.ids

    def may_hold(self, info: MemberInfo) -> bool:
        """Whether this member may hold partitions: it is no lite one, and not outside the baseline."""
        return not info.lite and not self.is_outside(info)

    @property
    def baseline_point(self) -> str:
        """The end of the history of the baseline; empty: there is none."""
        return self.baseline.point if self.baseline is not None else ""
