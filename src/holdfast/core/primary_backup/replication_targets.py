"""Members that get the records of a primary: the backups of its *present* assignment, and a migration's destination
(H8). The writer waits for the sync backups, and for the destination (primary_backup/P-1).
"""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.store.map_state import MapState
from holdfast.core.store.replica import AnyReplica, UnsentPuts

ANY_MAP = ""
"""In reads of a buffer: the answer waits for the writes to all maps of the partition, and for no confirmation."""


class ReplicationTargets:
    def __init__(self, settings: Settings, *, journal: bool) -> None:
        self._settings = settings
        self._journal = journal
        self._tail_bytes = settings.replication.tail_bytes
        self.rows: list[Assignment] = []
        self.terms = [0] * settings.partitions.count
        """By partition: version of the assignment with which this member became primary."""
        self.joining: dict[int, tuple[MemberId, int]] = {}
        """Where this member is primary: destination of the running migration, and its future index."""

    def aim(self, partition: int, held: AnyReplica) -> None:
        chosen = self._settings.object(held.name)
        targets, sync = self.followers(partition, held.name)
        assert sync.issubset(targets), "sync members get the records (primary_backup/P-1)"
        held.targets, held.sync = targets, sync
        held.journal = chosen.journal if self._journal else "off"
        held.changes = chosen.changes_bytes
        # A missing backup may come back, and then gets what it has missed.
        missed = bool(self._tail_bytes) and chosen.copies > 1 and self.rows[partition].version > 1
        held.evicts = chosen.evicts
        # The records of a buffer also say which maps may have to evict entries.
        held.recorded = bool(targets or held.changes or held.evicts) or held.journal != "off" or missed
        if not held.recorded:
            held.state.not_compared()
        elif held.unsent is None and isinstance(held.state, MapState) and held.state.packed is not None:
            held.unsent = UnsentPuts(partition)

    def confirming(self, partition: int, name: str) -> frozenset[str]:
        """The members that confirm an answer about a map."""
        return frozenset() if name == ANY_MAP else self.followers(partition, name)[1]

    def followers(self, partition: int, name: str) -> tuple[tuple[str, ...], frozenset[str]]:
        """The members that get the records of a map, and those of them that are waited for."""
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
    if destination not in targets:
        targets.append(destination)
    sync.add(destination)
