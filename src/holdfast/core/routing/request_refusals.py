"""Requests that must be rejected now.

- routing/R-7: While the memory of a member is nearly full, nothing is stored that it would have to keep: such requests
  are rejected before they are applied anywhere. Reads and removes continue.
"""

from __future__ import annotations

from holdfast.config import MapSettings, Settings
from holdfast.core.model.ids import MemberId
from holdfast.core.model.object_names import is_internal, target
from holdfast.core.model.operations import GROWING, READS, Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import MemberInfo, Room
from holdfast.core.replication_engine import ReplicationEngine
from holdfast.core.routing.lost_partitions import LostPartitions

PASSIVE = Outcome(Status.PASSIVE, None, "the cluster is passive: entries can be read, but not changed")
NO_DATA_MEMBER = Outcome(
    Status.NO_DATA_MEMBER,
    None,
    "there are lite members alone, which hold no data; start one that is not lite",
)
CROWDED = Outcome(
    Status.NOT_READY,
    None,
    "the primary keeps more for its backups than limits.backlog_bytes allows; nothing was changed",
)
NO_MEMORY = (
    "the memory of member {} is nearly full; remove entries, add a member, or raise limits.memory_bytes there"
)


class RequestRefusals:
    def __init__(self, settings: Settings, rows: list[Assignment], replication: ReplicationEngine) -> None:
        self._settings = settings
        self._rows = rows
        self._replication = replication
        self.passive = False
        """Nothing may be changed."""
        self.dataless = False
        """There are only lite members and no other is expected: nothing can be read or changed."""
        self.full: dict[MemberId, str] = {}
        """With their names: journalled maps are not written in their partitions."""
        self.short: dict[MemberId, Room] = {}
        """Nothing more is stored in what they hold."""
        self._names: dict[MemberId, str] = {}
        self.losses = LostPartitions(settings)

    def know(self, members: list[MemberInfo], full: set[MemberId], short: dict[MemberId, Room]) -> None:
        self.full = {info.uuid: info.name for info in members if info.uuid in full}
        self.short = dict(short)
        self._names = {info.uuid: info.name for info in members}

    def follow(self, other: RequestRefusals) -> None:
        self.passive, self.dataless = other.passive, other.dataless
        self.full, self.short, self._names = other.full, other.short, other._names

    @property
    def any(self) -> bool:
        return self.restricts or self.losses.any

    @property
    def restricts(self) -> bool:
        """Whether some requests are rejected now, in maps that have lost nothing."""
        return self.dataless or self.passive or bool(self.full) or bool(self.short)

    def rejection(self, request: Request) -> Outcome | None:
        if self.dataless:
            return NO_DATA_MEMBER
        lost = self.losses.rejection(request)
        if lost is not None:
            return lost
        if self.passive and changes(request):
            return PASSIVE
        if self.full and request.op not in READS and self._is_kept(request):
            for partition in request.partitions:
                full = self.full.keys() & set(filter(None, self._rows[partition].holding))
                if full:
                    names = ", ".join(sorted(self.full[uuid] for uuid in full))
                    return Outcome(
                        Status.NO_ROOM, None, f"the disk of member {names} is full; make room there"
                    )
        if self.short and request.op in GROWING:
            return self._memory_rejection(request)
        return None

    def _is_kept(self, request: Request) -> bool:
        """Whether what it changes is written to disk; maps of zones always are. The end of a transaction does not
        count: it makes room.
        """
        if request.op is Op.SETTLE:
            return False
        if request.op is Op.TRANSACT and request.expected:
            return True
        held = self._settings.object(target(request))
        return held.journal != "off" or (isinstance(held, MapSettings) and bool(held.raft_zone))

    def rejection_here(self, request: Request) -> Outcome | None:
        """Why this member rejects the request; also a write that it would reject as primary for its backlog."""
        crowded = self._replication.refusing and changes(request)
        return self.rejection(request) or (CROWDED if crowded else None)

    def _memory_rejection(self, request: Request) -> Outcome | None:
        """routing/R-7. Holdfast's own maps may use the reserve: they are small, and clients cannot start without them.
        So may updates of services, which may be what makes room.
        """
        short = self.short
        if is_internal(request.map) or request.op is Op.CALL:
            short = {uuid: room for uuid, room in short.items() if room is Room.NONE}
        copies = self._settings.object(target(request)).copies
        for partition in request.partitions:
            holders = set(filter(None, self._rows[partition].holding[:copies]))
            joining = self._replication.joining(partition)
            if joining is not None:
                holders.add(joining)
            if lacking := short.keys() & holders:
                names = ", ".join(sorted(self._names.get(uuid, uuid) for uuid in lacking))
                return Outcome(Status.NO_MEMORY, None, NO_MEMORY.format(names))
        return None


def changes(request: Request) -> bool:
    """Whether a passive cluster rejects this. Holdfast's own maps (names of opened maps, schemas) may change; otherwise
    no client could begin to read while the cluster is passive.
    """
    if request.op is Op.TRANSACT or request.op is Op.SETTLE:
        return True
    if request.op is Op.PIN:
        return False
    return request.op not in READS and not is_internal(request.map)
