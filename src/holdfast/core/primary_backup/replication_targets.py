"""To whom do the records of a primary go? The backups of its row, and the destination of a running migration (H8).

A record goes to every member that the *present* row wants to hold its map, and is waited for by its writer when that
one is a sync backup, or the destination (primary_backup/P-1).
"""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.store.map_state import MapState
from holdfast.core.store.replica import AnyReplica, UnsentPuts


class ReplicationTargets:
    """Of the partitions that this member serves: who follows."""

    def __init__(self, settings: Settings, *, journal: bool) -> None:
        """`journal`: whether this member has one at all."""
        self._settings = settings
        self._journal = journal
        self._tail_bytes = settings.replication.tail_bytes
        self.rows: list[Assignment] = []
        """The member's table."""
        self.terms = [0] * settings.partitions.count
        """Of each partition that is served here: the version of the row with which this member took office."""
        self.joining: dict[int, tuple[MemberId, int]] = {}
        """Partition -> the destination of its running migration and the index it will have (this member is the
        primary)."""

    def aim(self, partition: int, held: AnyReplica) -> None:
        """Find the members that records of this map and partition go to."""
        chosen = self._settings.object(held.name)
        targets, sync = self.followers(partition, held.name)
        assert sync.issubset(targets), "who is waited for gets the records (primary_backup/P-1)"
        held.targets, held.sync = targets, sync
        held.journal = chosen.journal if self._journal else "off"
        held.changes = chosen.changes_bytes
        # A backup that is missing now may come back, and is told then what it has missed.
        missed = bool(self._tail_bytes) and chosen.copies > 1 and self.rows[partition].version > 1
        held.recorded = bool(targets or held.changes) or held.journal != "off" or missed
        if not held.recorded:
            held.state.not_compared()
        elif held.unsent is None and isinstance(held.state, MapState) and held.state.packed is not None:
            held.unsent = UnsentPuts(partition)

    def followers(self, partition: int, name: str) -> tuple[tuple[str, ...], frozenset[str]]:
        """Who gets the records of a map in a partition that is served here, and who of them has to have them first."""
        chosen = self._settings.object(name)
        replicas = self.rows[partition].holding
        backups = replicas[1 : 1 + chosen.backups + chosen.async_backups]
        targets = [member for member in backups if member is not None]
        sync = {member for member in replicas[1 : 1 + chosen.backups] if member is not None}
        destination = self.joining.get(partition)
        if destination is not None and destination[1] <= chosen.copies - 1:
            _include(destination[0], targets, sync)
        return tuple(targets), frozenset(sync)


def _include(destination: MemberId, targets: list[MemberId], sync: set[MemberId]) -> None:
    """primary_backup/P-1: the destination of a running migration gets the records, too, and is waited for."""
    if destination not in targets:
        targets.append(destination)
    sync.add(destination)
