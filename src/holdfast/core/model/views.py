"""Views: the members of the cluster, its state, and what members intend."""

from __future__ import annotations

from enum import IntEnum, StrEnum, unique

import msgspec

from holdfast.config.addresses import format_address
from holdfast.core.model.baseline import Baseline
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import LOWEST, OF_THIS_BUILD, FeatureLevels
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.metastore_founding import MetastoreFounding


@unique
class ClusterState(StrEnum):
    """The state that the operator has set. It is part of the view, so all members change it together.

    | state        | may join                           | migrations | promotion | entry operations |
    |--------------|------------------------------------|------------|-----------|------------------|
    | ACTIVE       | any process                        | yes        | yes       | all              |
    | NO_MIGRATION | any process                        | no         | yes       | all              |
    | FROZEN       | members that left since the freeze | no         | no        | all              |
    | PASSIVE      | members that left since the freeze | no         | no        | reads            |
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
        """Whether the partition table stays as it is, including the places of missing members."""
        return self in (ClusterState.FROZEN, ClusterState.PASSIVE)

    @property
    def writes(self) -> bool:
        return self is not ClusterState.PASSIVE


@unique
class Intent(StrEnum):
    """A member's desired state; each heartbeat carries it until it is reached."""

    NONE = ""
    LEAVE = "leave"
    """As soon as its partitions are safe elsewhere."""
    LITE = "lite"
    """Own nothing any more, and stay."""
    DATA = "data"


@unique
class Room(IntEnum):
    PLENTY = 0
    LITTLE = 1
    """Writes of clients that need more are rejected: the rest is for backups and migrations."""
    NONE = 2
    """No migration towards it begins: the rest is for records of its primaries, which it cannot reject."""


class FilesProof(msgspec.Struct, frozen=True):
    """Facts that files prove when they are opened (`core.membership.known_files`)."""

    token: str = ""
    """Token of the life that begins now: the UUID of the first member that opened them for it."""
    before: str = ""
    """Token of the life before; empty: there was none, or it had no token."""
    reached: int = 0
    """Last block of their journal when that life began."""
    cut: bool = False
    """Something before it was unreadable then."""


class FilesSeen(msgspec.Struct, frozen=True, array_like=True):
    incarnation: int
    token: str
    reached: int = 0
    """Last durable block of their journal."""


class MemberInfo(msgspec.Struct, frozen=True, array_like=True):
    uuid: MemberId
    life: int
    """A message to an earlier life has no effect on a later one."""
    host: str
    port: int
    client_host: str
    client_port: int
    name: str
    lite: bool = False
    group: str = ""
    """Host, zone or own group: two copies of a partition never share one."""
    store: str = ""
    """UUID of its files; empty: it has none."""
    incarnation: int = 0
    """Life of its files; lives that no cluster has admitted do not count."""
    returns: bool = False
    """Its files have data, and it will report them."""
    proof: FilesProof = FilesProof()
    behind: bool = False
    attributes: dict[str, str] = {}
    """For filters of zones, and clients see them."""
    levels: FeatureLevels = FeatureLevels()
    version: str = ""

    @property
    def node(self) -> str:
        """The member as a replica of Raft groups: its files, or the member itself."""
        return self.store or self.uuid

    @property
    def consistent_id(self) -> str:
        """Its configured name, else the id of its files, else its UUID, which ends with the process. A name
        made of its address does not count (`runtime.node`).
        """
        given = self.name != format_address(self.client_host, self.client_port)
        return (self.name if given else "") or self.store or self.uuid

    def described(self) -> dict[str, str]:
        return {**self.attributes, "name": self.name, "host": self.host, "group": self.group}


class FilesGone(msgspec.Struct, frozen=True, array_like=True):
    """Files of former members, as the last view of a process knows them."""

    number: int
    """That of the view."""
    stores: dict[str, int]
    """Incarnation of all files that are those of no member, and that it does not wait for."""


def built(info: MemberInfo, version: str) -> MemberInfo:
    return msgspec.structs.replace(info, levels=OF_THIS_BUILD, version=version)


class PlainView(msgspec.Struct, frozen=True, array_like=True):
    """A view of a cluster without a baseline, in the older written form."""

    number: int
    cluster_id: str
    members: list[MemberInfo]
    left: list[MemberId] = []
    """Members of the previous view that left gracefully."""
    state: ClusterState = ClusterState.ACTIVE
    ending: bool = False
    missing: list[MemberInfo] = []
    """They have gone while the table was frozen."""
    stores: dict[str, FilesSeen] = {}
    """The last known state of all files ever in the cluster."""
    recovering: bool = False
    """The cluster was stopped as a whole, and its table is still to be found in files."""


class View(PlainView, frozen=True, array_like=True):
    """The agreed list of members, oldest first; the oldest is the master."""

    baseline: Baseline | None = None
    """None: all present members own data."""
    level: int = LOWEST
    maps: MapChanges = MapChanges()
    metastore: MetastoreFounding | None = None
    """None: no metastore, or a feature level below `STARTS_METASTORE`."""

    def is_outside(self, info: MemberInfo) -> bool:
        """The member owns nothing (membership/B-3)."""
        return self.baseline is not None and info.consistent_id not in self.baseline.ids

    def may_hold(self, info: MemberInfo) -> bool:
        return not info.lite and not self.is_outside(info)

    @property
    def baseline_point(self) -> str:
        """The end of the baseline's history; empty: no baseline."""
        return self.baseline.point if self.baseline is not None else ""
