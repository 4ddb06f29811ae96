"""Maps that sessions must not serve directly (the data lane), but through the router, which rejects or delays requests.

They have lost partitions, or are being moved to another engine: from when the view says that the move switches, and
wherever this member leads a copy in which the map is paused (model/M-1). A member that is about to leave serves none.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.model.map_moves import MapMove, MarkKind, MovePhase
from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.core.store.move_marks import marks_in
from holdfast.core.store.partition_copy import PartitionCopy


class LaneAccess:
    def __init__(self, losses: LostPartitions) -> None:
        self._losses = losses
        self.changes = 0
        """Raised whenever a map is closed or opened, or moves: sessions then look their maps up again."""
        self._switching: frozenset[str] = frozenset()
        self._paused: dict[int, frozenset[str]] = {}
        """By partition that is led here."""
        self.leaving = False
        """Sessions reject new requests, because this member is about to leave (routing/R-17)."""

    def is_closed(self, name: str) -> bool:
        if name in self._switching or self._losses.concern(name):
            return True
        return any(name in names for names in self._paused.values())

    def on_losses(self) -> None:
        self.changes += 1

    def on_moves(self, moves: Mapping[str, MapMove]) -> None:
        self._switching = frozenset(
            name for name, move in moves.items() if move.phase is MovePhase.SWITCHING and not move.source
        )
        self.changes += 1

    def look(self, partition: int, copy: PartitionCopy | None) -> None:
        """The copy that this member leads, or its marks, have changed; None: it leads none."""
        marks = marks_in(copy.maps) if copy is not None else {}
        paused = frozenset(name for name, mark in marks.items() if mark.kind is MarkKind.PAUSED)
        if paused == self._paused.get(partition, frozenset()):
            return
        self._paused[partition] = paused
        if not paused:
            del self._paused[partition]
        self.changes += 1
