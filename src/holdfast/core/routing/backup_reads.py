"""Which reads may a backup on this member answer?

- routing/R-5: A member that holds a backup reads it only for maps that want that, and never shows less than it has
  shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from holdfast.config import Settings
from holdfast.core.machine import Outbox
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.operations.map_operations import can_read, read_backup
from holdfast.core.primary_backup.primary_copy import attempt, position_of
from holdfast.core.store.partition_copy import PartitionCopy


class Neighbours(Protocol):
    """What the routing of requests asks of the membership."""

    def is_member(self, member: MemberId) -> bool:
        """Whether it is in the view."""

    def hears(self, member: MemberId) -> bool:
        """Whether this member is in the cluster, and has heard of that one not long ago."""


class Positions:
    """How new what this member was answered is: by partition and map the highest term and counter (routing/R-5)."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[int, int]] = {}

    def see(self, partition: int, name: str, position: tuple[int, int]) -> None:
        """This was shown."""
        if position > self._seen.get((partition, name), (0, 0)):
            self._seen[partition, name] = position
        assert self.allow(partition, name, self._seen.get((partition, name), position)), (
            "nothing older is shown"
        )

    def allow(self, partition: int, name: str, position: tuple[int, int]) -> bool:
        """Whether a copy that stands here is not older than what was shown."""
        return position >= self._seen.get((partition, name), (0, 0))

    def forget(self, partition: int, name: str) -> None:
        """The copy on this member is newer than all that was shown: its map is empty, and was forgotten."""
        self._seen.pop((partition, name), None)


class BackupReads:
    """Answers of the backups that this member holds."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        held: Mapping[int, PartitionCopy],
        neighbours: Neighbours,
    ) -> None:
        """`held`: the copies on this member."""
        self._me = me
        self._settings = settings
        self._out = out
        self._rows = rows
        self._held = held
        self._neighbours = neighbours
        self.positions = Positions()

    def answer(self, request: Request) -> Outcome | None:
        """What a backup on this member answers; None when the primary has to be asked."""
        chosen = self._settings.map(request.map)
        if not chosen.read_backups:
            return None
        partition = request.partitions[0]
        row = self._rows[partition]
        copy = self._held.get(partition)
        if copy is None or row.owner is None or not self._neighbours.hears(row.owner):
            return None
        if not 0 < row.index_of(self._me) < chosen.copies or self._me in row.behind:
            return None
        held = copy.maps.get(request.map)
        position = position_of(copy, request.map, self._settings)
        if not self.positions.allow(partition, request.map, position):
            return None
        state = held.state if held is not None else None
        if not can_read(state, request):
            return None
        self.positions.see(partition, request.map, position)
        now_ns = self._out.now_ns
        found = attempt(self._out, request, lambda: read_backup(state, request, now_ns))
        return found if isinstance(found, Outcome) else Outcome(Status.OK, found, position=position)

    def step_down(self, partition: int, copy: PartitionCopy) -> None:
        """This member serves the partition no more; what its sessions have seen of it counts."""
        for name in copy.maps:
            self.positions.see(partition, name, position_of(copy, name, self._settings))
