"""Rebuilds a member's copies after a restart, from its checkpoints and the blocks of its journal, in order.

- journal/R-1: A copy is its checkpoint, then every record of later blocks, in order.
- journal/R-2: A record counts only if it continues the updates of its map: the next number, of a term that is not
  lower. A record already held changes nothing. After anything else the map ends there, and the partition is uncertain.
  Only a checkpoint with gaps in its counter may be filled out of order. A map that begins again (`Change.BEGIN`)
  continues nothing, and clears errors of the map before it.
- journal/R-3: When blocks are lost, every copy that needs one of them ends before them and is uncertain, until the
  partition begins again.
- journal/R-4: A checkpoint may hold what was never in the journal, because another member supplied it. If the newest
  checkpoint is unreadable, the previous one and the journal make an uncertain copy.
- journal/R-5: Nothing is invented: each map of an uncertain copy is as at some moment before the loss, or as the rest
  of its history makes it.
- journal/R-6: A time to live continues from when it was written, by this host's calendar; if that was set back, it at
  most begins again. Idle times restart.

Example for journal/R-2: the checkpoint of map m ends at 16 (term 4). The blocks have updates 17 (term 4), 17 again
(held, ignored), and 19 (term 4): update 18 is missing. The map stays at 17 and the partition is uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.core.model.ids import GROUPS_FROM, MILLISECOND, GroupNumber, MemberId
from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    GroupWrote,
    Meta,
    Seen,
    Snapshot,
    TableAssignments,
    Wrote,
    WrotePuts,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.views import FilesProof, View
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica
from holdfast.errors import CounterBroken


@dataclass(slots=True)
class RecoveredGroup:
    """A Raft replica's data as they were written (`multiraft.persistence` decodes them)."""

    pieces: list[bytes] = field(default_factory=list)
    """Content of its checkpoint; empty: it began without one."""
    writes: list[bytes] = field(default_factory=list)
    """Later ones, in order."""
    doubt: str = ""
    """Why it may have promised more than is known; empty: it has not."""


@dataclass(slots=True)
class Recovered:
    store: str
    incarnation: int
    """The life of the files that begins now."""
    cluster_id: str
    """Empty: this store was never in a cluster."""
    proof: FilesProof = field(default_factory=FilesProof)
    """Durable before the journal is ready."""
    behind: bool = False
    """These files lacked what they once held, and the cluster has not repaired that."""
    view: View | None = None
    stores: dict[MemberId, str] = field(default_factory=dict)
    """Files of the members in views and assignments."""
    rows: dict[int, Assignment] = field(default_factory=dict)
    """Applied here, as far as the journal knows."""
    copies: dict[int, PartitionCopy] = field(default_factory=dict)
    """Only journalled maps; the member sets how a map is journalled."""
    groups: dict[GroupNumber, RecoveredGroup] = field(default_factory=dict)
    uncertain: dict[int, str] = field(default_factory=dict)
    """They may have held more than is known, with the reason. Some have a copy of an earlier moment."""
    damage: list[str] = field(default_factory=list)
    """Unreadable and cut parts, in words."""
    whole: bool = True
    """Nothing durable is lost. If False, partitions outside of `uncertain` may have been held too; every restart
    reports that until `Journal.forgive`.
    """


class _Held:
    __slots__ = ("copy", "ended", "file", "lsn", "stopped")

    def __init__(self, copy: PartitionCopy, lsn: int, file: str = "") -> None:
        self.copy = copy
        self.lsn = lsn
        """All blocks up to this one are in it."""
        self.file = file
        self.ended = ""
        """Why it ended; empty: it continues."""
        self.stopped: dict[str, str] = {}
        """Ended maps, with the reason."""


class _HeldGroup:
    __slots__ = ("ended", "file", "found", "lsn")

    def __init__(self, found: RecoveredGroup, lsn: int, file: str = "") -> None:
        self.found = found
        self.lsn = lsn
        """All blocks up to this one are in it."""
        self.file = file
        self.ended = ""
        """Why something may be missing; empty: nothing is."""


class Recovery:
    """Takes checkpoints first, then blocks, and fills in `Recovered`."""

    def __init__(self, now_ns: int, wall_ms: int, *, entries: NewEntries = dict) -> None:
        """`now_ns`: this member's monotonic time. `wall_ms`: the same moment in milliseconds since 1970. `entries`:
        makes a map's mapping.
        """
        self._entries = entries
        self._now_ns = now_ns
        self._wall_ms = wall_ms
        self._at_ns = now_ns
        """When the present input was written, in this member's monotonic time; may be negative."""
        self._held: dict[int, _Held] = {}
        self._groups: dict[GroupNumber, _HeldGroup] = {}
        self._baseless: dict[int, str] = {}
        """Records without a beginning."""
        self._doubts: dict[int, tuple[int, str]] = {}
        """An unreadable newer checkpoint: its last block, and the reason."""
        self._fresh: dict[int, int] = {}
        """The last block in which a partition begins empty, or is no longer held."""
        self._rows: dict[int, Assignment] = {}
        self._view: View | None = None
        self._stores: dict[MemberId, str] = {}
        self._cluster_id = ""
        self._next = 0
        """lsn; 0 before the first block."""
        self._whole = True

    # -- checkpoints

    def base(self, snapshot: Snapshot, lsn: int, file: str) -> None:
        """The content of a copy with all blocks up to `lsn`."""
        if snapshot.partition >= GROUPS_FROM:
            pieces = [piece for taken in snapshot.maps for piece in taken.values]
            self._groups[snapshot.partition] = _HeldGroup(RecoveredGroup(pieces), lsn, file)
            return
        self._at_ns = self._moment(snapshot.wall_ms)
        copy = PartitionCopy(snapshot.partition, snapshot.epoch, entries=self._entries)
        for taken in snapshot.maps:
            copy.read(taken, self._at_ns)
        copy.requests.merge(snapshot.requests)
        self._held[snapshot.partition] = _Held(copy, lsn, file)

    def _moment(self, wall_ms: int) -> int:
        """This time in the member's monotonic time (journal/R-6); now, if it is unknown."""
        age_ms = max(0, self._wall_ms - wall_ms) if wall_ms else 0
        return self._now_ns - age_ms * MILLISECOND

    def missing(self, partition: int, lsn: int, why: str) -> None:
        """An unreadable checkpoint, with the blocks up to `lsn`."""
        if self._fresh.get(partition, 0) <= lsn and self._doubts.get(partition, (0, ""))[0] <= lsn:
            self._doubts[partition] = (lsn, why)

    def void(self, partition: int, lsn: int) -> None:
        self._begins(partition, lsn)

    # -- blocks

    def block(self, lsn: int, entries: Sequence[Entry]) -> None:
        """Skipped blocks are lost."""
        assert lsn >= self._next, "blocks come in their order (journal/R-1)"
        if lsn != self._next:
            self._jump(lsn, entries)
        self._next = lsn + 1
        held = self._held
        for entry in entries:
            if isinstance(entry, Wrote | WrotePuts):
                found = held.get(entry.partition)
                if found is None:
                    self._orphan(entry.partition)
                elif found.lsn < lsn and not found.ended:
                    self._replay(found, entry)
            else:
                self._other(lsn, entry)

    def lost(self, until: int, why: str) -> None:
        """Unreadable blocks, from the next one on, without `until`."""
        self._whole = False
        self._end_copies(until, why)

    def _end_copies(self, until: int, why: str) -> None:
        """See journal/R-3."""
        held: list[_Held | _HeldGroup] = [*self._held.values(), *self._groups.values()]
        for found in held:
            if found.lsn + 1 < until and not found.ended:
                found.ended = why

    def _jump(self, lsn: int, entries: Sequence[Entry]) -> None:
        if not self._next:
            # The first entries of the first segment say which checkpoints still contain everything.
            for entry in entries:
                if type(entry) is Checkpointed:
                    self._restate(entry)
            known = [found.lsn for found in self._held.values()]
            known += [group.lsn for group in self._groups.values()]
            if all(reached + 1 >= lsn for reached in known):
                return
        self.lost(lsn, f"blocks before {lsn} of the journal are missing")

    def _restate(self, entry: Checkpointed) -> None:
        found: _Held | _HeldGroup | None = self._held.get(entry.partition) or self._groups.get(
            entry.partition
        )
        if found is not None and found.file == entry.file:
            found.lsn = max(found.lsn, entry.lsn)

    def _orphan(self, partition: int) -> None:
        self._baseless.setdefault(partition, "what it held before its records in the journal is missing")

    def _other(self, lsn: int, entry: Entry) -> None:
        if type(entry) is TableAssignments:
            for partition, row in entry.rows:
                before = self._rows.get(partition)
                if before is None or before.version <= row.version:
                    self._rows[partition] = row
        elif type(entry) is Seen:
            self._stores.update({info.uuid: info.store for info in entry.view.members if info.store})
            if self._view is None or self._view.number <= entry.view.number:
                self._view = entry.view
        elif type(entry) is GroupWrote:
            self._group_wrote(lsn, entry)
        elif type(entry) is Began and entry.partition >= GROUPS_FROM:
            group = self._groups.get(entry.partition)
            if group is None or group.lsn < lsn:
                self._begins(entry.partition, lsn)
                self._groups[entry.partition] = _HeldGroup(RecoveredGroup(), lsn - 1)
        elif type(entry) is Began:
            found = self._held.get(entry.partition)
            if found is None or found.lsn < lsn:
                self._begins(entry.partition, lsn)
                copy = PartitionCopy(entry.partition, entry.epoch, entries=self._entries)
                self._held[entry.partition] = _Held(copy, lsn - 1)
        elif type(entry) is Dropped:
            self._dropped(lsn, entry)
        elif type(entry) is Meta:
            self._cluster_id = entry.cluster_id or self._cluster_id
            self._stores = {**entry.stores, **self._stores}

    def _begins(self, partition: int, lsn: int) -> None:
        self._fresh[partition] = lsn
        self._baseless.pop(partition, None)
        if partition in self._doubts and self._doubts[partition][0] < lsn:
            del self._doubts[partition]
        assert self._doubts.get(partition, (lsn, ""))[0] >= lsn, "a new beginning ends earlier doubts"

    def _group_wrote(self, lsn: int, entry: GroupWrote) -> None:
        group = self._groups.get(entry.partition)
        if group is None:
            self._orphan(entry.partition)
        elif group.lsn < lsn and not group.ended:
            group.found.writes.append(entry.data)

    def _dropped(self, lsn: int, entry: Dropped) -> None:
        group = self._groups.get(entry.partition)
        if group is not None and group.lsn < lsn:
            del self._groups[entry.partition]
        found = self._held.get(entry.partition)
        if found is not None and found.lsn >= lsn:
            return
        if not entry.map:
            self._begins(entry.partition, lsn)
            self._held.pop(entry.partition, None)
            assert entry.partition not in self._baseless, "a dropped partition lacks nothing"
        elif found is not None and not found.ended:
            found.copy.maps.pop(entry.map, None)
            found.copy.services.pop(entry.map, None)
            found.stopped.pop(entry.map, None)

    # -- records

    def _replay(self, found: _Held, entry: Wrote | WrotePuts) -> None:
        if isinstance(entry, Wrote):
            self._wrote(found, entry)
            return
        # Most are the next ones of their map, of the same term.
        puts, term = entry.puts, entry.term
        held = found.copy.open(puts.map)
        updates = held.updates
        plain = bool(held.lineage) and held.lineage[-1][0] == term and updates.sequential
        if plain and puts.start == updates.lwm == updates.hwm and puts.map not in found.stopped:
            self._at_ns = self._moment(entry.wall_ms)
            held.state.store_all(puts, self._at_ns)
            updates.lwm = updates.hwm = puts.end
        else:
            self._wrote(found, Wrote(entry.partition, term, puts.records(), entry.wall_ms))

    def _wrote(self, found: _Held, entry: Wrote) -> None:
        term = entry.term
        self._at_ns = self._moment(entry.wall_ms)
        name: str | None = None
        for record in entry.records:
            if record.change is Change.CALL:
                self._called(found, record, term)
                continue
            if record.map != name:
                name = record.map
                held = found.copy.open(name)
                updates = held.updates
                plain = bool(held.lineage) and held.lineage[-1][0] == term and updates.sequential
                plain = plain and not held.state.expiries and name not in found.stopped
            if plain and record.counter == updates.lwm + 1 and record.change is Change.SET:
                held.state.entries[record.key] = record.value
                updates.lwm = updates.hwm = record.counter
                if record.ttl_ms or record.max_idle_ms or record.key_hash:
                    held.state.store(
                        record.key,
                        record.value,
                        record.ttl_ms,
                        record.max_idle_ms,
                        record.key_hash,
                        self._at_ns,
                    )
                    plain = not held.state.expiries
            elif name not in found.stopped or held.is_before(term, record):
                # A BEGIN that was applied before the hole, and comes again, does not fill it.
                found.stopped.pop(name, None)
                why = self._take(held, record, term)
                if why:
                    found.stopped[name] = why
                name = None  # Check for the next record whether it is plain.
            if record.request:
                found.copy.requests.note(record.request)

    def _called(self, found: _Held, record: Record, term: int) -> None:
        """Kept until the service's share is opened."""
        name = record.map
        held = found.copy.written(name)
        if name not in found.stopped:
            why = self._take(held, record, term)
            if why:
                found.stopped[name] = why
        if record.request:
            found.copy.requests.note(record.request)

    def _take(self, held: AnyReplica, record: Record, term: int) -> str:
        """Apply a record if it may follow; otherwise return the problem."""
        if held.is_before(term, record):
            held.begin_again(record)
        updates, counter = held.updates, record.counter
        if updates.holds(counter):
            of = _term_of(held.lineage, counter)
            if of in {0, term}:
                return ""
            return f"map {held.name!r}: update {counter} is of term {of}, and of term {term}"
        last = held.lineage[-1][0] if held.lineage else 0
        if term < last:
            return f"map {held.name!r}: update {counter} of term {term} comes after term {last}"
        if updates.sequential and counter != updates.lwm + 1:
            return f"map {held.name!r}: updates {updates.lwm + 1} to {counter - 1} are missing"
        held.enter(term)
        try:
            updates.update(counter - 1)
        except CounterBroken as error:
            return f"map {held.name!r}: {error}"
        held.state.apply(record, self._at_ns)
        return ""

    # -- the end

    def finish(self, recovered: Recovered) -> None:
        recovered.cluster_id = recovered.cluster_id or self._cluster_id
        recovered.view = self._view
        recovered.rows = self._rows
        recovered.stores = self._stores
        recovered.whole = recovered.whole and self._whole
        for partition, found in sorted(self._held.items()):
            recovered.copies[partition] = found.copy
            found.copy.used(self._now_ns)
            reasons = [self._doubts.get(partition, (0, ""))[1], found.ended, *found.stopped.values()]
            if any(reasons):
                recovered.uncertain[partition] = "; ".join(reason for reason in reasons if reason)
        for number, group in sorted(self._groups.items()):
            recovered.groups[number] = group.found
            group.found.doubt = "; ".join(
                why for why in (self._doubts.pop(number, (0, ""))[1], group.ended) if why
            )
        self._groups_in_doubt(recovered)
        for partition, why in sorted(
            {**self._baseless, **{p: why for p, (_, why) in self._doubts.items()}}.items()
        ):
            if partition not in self._held:
                recovered.uncertain[partition] = why
        assert self._whole or not recovered.whole, "lost blocks are reported"
        assert recovered.copies.keys() == self._held.keys(), "all copies are handed over"

    def _groups_in_doubt(self, recovered: Recovered) -> None:
        doubts = {**self._baseless, **{number: why for number, (_, why) in self._doubts.items()}}
        for number in sorted(number for number in doubts if number >= GROUPS_FROM):
            recovered.groups[number] = RecoveredGroup(doubt=doubts[number])
            self._baseless.pop(number, None)
            self._doubts.pop(number, None)


def _term_of(lineage: list[tuple[int, int]], counter: int) -> int:
    """0 if the lineage does not reach that far back."""
    for term, start in reversed(lineage):
        if start < counter:
            return term
    return 0
