"""Removal of empty maps from partitions, on the primary first.

An empty map takes about 1 MB in 271 partitions with a backup. So a primary forgets maps that were destroyed, and maps
that were empty for a round of anti-entropy. The map begins again with the next write (store/R-1).

- state_transfer/M-1: A replica is forgotten only if it is empty, none of its updates is unacknowledged, and nothing of
  its partition is being supplied. Example: a primary forgets a map at update 50 that a backup has not acknowledged. It
  would send 50 again to the next member that joins, and no other member knows it.
- state_transfer/M-2: Backups forget what their primary has forgotten: when it reports so, or when its next summary does
  not name the map (state_transfer/R-4). A backup in another state than the forgotten one keeps its replica.
- state_transfer/M-3: A map with a change stream is forgotten when it is destroyed, never because it is empty: readers
  continue from its last update.
"""

from __future__ import annotations

from holdfast.core.journal.log import Log
from holdfast.core.messages import ForgetMaps, ForgottenMap
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.journal_entries import Dropped
from holdfast.core.model.levels import FORGETS
from holdfast.core.model.notices import MapEmptied, MapForgotten
from holdfast.core.model.object_names import is_internal
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.state_transfer.source import Source
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica

SOON_NS = 20 * MILLISECOND
LATER_NS = 500 * MILLISECOND
"""Retry interval for replicas that are busy."""
LOOKED_AT = 1000
"""In one step: some milliseconds of work."""


class Forgetting:
    def __init__(
        self,
        me: MemberId,
        out: Outbox,
        rows: list[Assignment],
        copies: LocalReplicas,
        lane: Lane,
        log: Log,
        source: Source,
    ) -> None:
        self._me = me
        self._out = out
        self._rows = rows
        self._copies = copies
        self._lane = lane
        self._log = log
        self._source = source
        self._wanted: dict[tuple[int, str], int] = {}
        """Counter by partition and map; the replica is forgotten if it still has that counter."""
        self._timer = False
        self._empty: dict[int, dict[str, int]] = {}
        """By partition: empty in the last round of anti-entropy, with their counters."""
        self.forgotten = 0
        """Replicas forgotten as primary."""

    # -- the primary

    def on_emptied(self, notice: MapEmptied) -> None:
        """A client has destroyed the map, and all backups of this partition have removed its entries."""
        copy = self._lane.leading[notice.partition]
        held = copy.maps.get(notice.name) if copy is not None else None
        if held is not None:
            self._want(notice.partition, held, SOON_NS)

    def look_for_empty(self, copy: PartitionCopy) -> None:
        """Once per round of anti-entropy: forget maps that were empty in the last round too (state_transfer/M-3)."""
        partition = copy.partition
        before = self._empty.pop(partition, {})
        empty = {
            name: held.counter
            for name, held in copy.maps.items()
            if not held.state.entries and not held.changes and not is_internal(name)
        }
        if empty:
            self._empty[partition] = empty
        for name, counter in empty.items():
            if before.get(name) == counter:
                self._want(partition, copy.maps[name], SOON_NS)

    def _want(self, partition: int, held: MapReplica, after_ns: int) -> None:
        if self._out.does(FORGETS):
            self._wanted[partition, held.name] = held.counter
            if not self._timer:
                self._timer = True
                self._out.timer(TimerName.FORGET, after_ns)

    def on_timer(self) -> None:
        self._timer = False
        messages: dict[MemberId, list[ForgottenMap]] = {}
        later: dict[tuple[int, str], int] = {}
        busy = {of for _, of, _ in self._lane.unsent}
        for place in list(self._wanted)[:LOOKED_AT]:
            counter = self._wanted.pop(place)
            partition, name = place
            copy = self._lane.leading[partition]
            held = copy.maps.get(name) if copy is not None else None
            if copy is None or held is None or held.counter != counter or held.state.entries:
                continue
            if held in busy or self._is_busy(partition, held):
                later[place] = counter
                continue
            self._add_for_backups(partition, held, messages)
            self._forget(copy, held)
            self.forgotten += 1
        for member, maps in messages.items():
            self._out.send(member, ForgetMaps(maps))
        more = bool(self._wanted)
        self._wanted.update(later)
        if self._wanted:
            self._timer = True
            self._out.timer(TimerName.FORGET, SOON_NS if more else LATER_NS)

    def _is_busy(self, partition: int, held: MapReplica) -> bool:
        """Whether updates of the replica may still be sent (state_transfer/M-1)."""
        if self._source.supplies.is_supplied(partition) or partition in self._lane.joining:
            return True
        if not held.updates.sequential or held.updates.hwm != held.counter:
            return True
        if held.unsent is not None and (held.unsent.sizes or held.unsent.opened):
            return True
        batches = self._lane.batches_of(partition)
        return any(of is held for batch in batches for of, _ in batch.records.get(partition, ()))

    def _add_for_backups(
        self, partition: int, held: MapReplica, messages: dict[MemberId, list[ForgottenMap]]
    ) -> None:
        row = self._rows[partition]
        for index, member in enumerate(row.holding):
            if index and member is not None and self._copies.wanted(held.name, index):
                forgotten = ForgottenMap(partition, row.version, held.name, held.counter, held.term)
                messages.setdefault(member, []).append(forgotten)

    def _forget(self, copy: PartitionCopy, held: MapReplica) -> None:
        assert not held.state.entries, "only an empty map is forgotten (state_transfer/M-1)"
        copy.forget(held.name)
        if held.journal != "off":
            self._log.note(Dropped(copy.partition, held.name))
        self._out.notify(MapForgotten(copy.partition, held.name))

    # -- the backup

    def on_forget(self, sender: MemberId, message: ForgetMaps) -> None:
        """See state_transfer/M-2."""
        for named in message.maps:
            row = self._rows[named.partition]
            copy = self._copies.held.get(named.partition)
            if row.version != named.version or row.owner != sender or copy is None:
                continue
            held = copy.maps.get(named.map)
            if held is None or held.state.entries or (held.counter, held.term) != (named.counter, named.term):
                continue
            if held.updates.sequential:
                self._forget(copy, held)

    # -- periodic

    def sweep(self) -> None:
        """Drop the state of partitions that this member no longer leads."""
        for partition in [one for one in self._empty if self._lane.leading[one] is None]:
            del self._empty[partition]

    @property
    def leftovers(self) -> dict[str, int]:
        return {"maps to be forgotten": len(self._wanted)}
