"""Reads that a backup on this member may answer.

- routing/R-5: A member reads from its backups only for maps with `read_backups`, and never shows less than it has
  shown. Example: a client on this member has seen the answer of the primary with update 18; a backup here at update 17
  does not answer the next read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from holdfast.config import Settings
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.operations.map_operations import can_read, read_backup
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.primary_copy import attempt, position_of
from holdfast.core.store.partition_copy import PartitionCopy


class Neighbours(Protocol):
    def is_member(self, member: MemberId) -> bool: ...

    def hears(self, member: MemberId) -> bool: ...


class Positions:
    """The newest position shown by this member, by partition and map: term and counter (routing/R-5)."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[int, int]] = {}

    def see(self, partition: int, name: str, position: tuple[int, int]) -> None:
        if position > self._seen.get((partition, name), (0, 0)):
            self._seen[partition, name] = position
        assert self.allow(partition, name, self._seen.get((partition, name), position)), (
            "nothing older is shown"
        )

    def allow(self, partition: int, name: str, position: tuple[int, int]) -> bool:
        """Whether a copy at this position is not older than what was shown."""
        return position >= self._seen.get((partition, name), (0, 0))

    def forget(self, partition: int, name: str) -> None:
        """The map is empty and was forgotten: this copy is newer than everything shown."""
        self._seen.pop((partition, name), None)


class BackupReads:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        held: Mapping[int, PartitionCopy],
        neighbours: Neighbours,
    ) -> None:
        self._me = me
        self._settings = settings
        self._out = out
        self._rows = rows
        self._held = held
        self._neighbours = neighbours
        self.positions = Positions()

    def answer(self, request: Request) -> Outcome | None:
        """The answer of a backup here; None: ask the primary."""
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
        """This member no longer serves the partition; what its sessions have seen counts as shown."""
        for name in copy.maps:
            self.positions.see(partition, name, position_of(copy, name, self._settings))
