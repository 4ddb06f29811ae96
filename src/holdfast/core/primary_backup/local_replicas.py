"""The copies that this member holds, and how a backup's copy follows its primary (H8; DESIGN rules 3 and 8).

- primary_backup/B-1: Records are accepted only from the primary that this member's assignment names, at the same
  version. Records of a newer version wait until that assignment is known; records of an older one are not acknowledged.
- primary_backup/B-2: Records are applied in the order of the update counter, each once; a record that leaves a gap
  waits. Example: the copy holds 1..17. Record 19 waits for 18. Record 17, sent again, is acknowledged and not applied.
- primary_backup/B-3: A copy is dropped only when a committed assignment does not name this member any more. A member
  that was evicted while alive keeps such a copy for a while, as a base if the partition comes back.

Records of staging replicas come through here too (`state_transfer.destination`), also while the present copy waits for
a missing record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from holdfast.config import Settings
from holdfast.core.hosted_services import Endpoint, HostedServices, MigrationEvent, Service
from holdfast.core.journal.log import Log
from holdfast.core.messages import Ack, Enlist, Enlisted, Replicate, Replicated, Section
from holdfast.core.model.ids import MemberId
from holdfast.core.model.journal_entries import Began, Dropped
from holdfast.core.model.map_moves import MovesInForce, NoMoves
from holdfast.core.model.notices import RecordsTaken, ReplicaWhole, ViewInstalled
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Puts, Record
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.primary_backup.client_acks import ClientAcks
from holdfast.core.primary_backup.cuts import Cuts
from holdfast.core.primary_backup.packed_puts_cy import PackedPuts
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica, MapReplica
from holdfast.errors import InvariantBroken

if TYPE_CHECKING:
    from holdfast.core.primary_backup.lane import Lane
    from holdfast.core.primary_backup.staging_replica import StagingReplica

NEVER = 1 << 62
TIDIED_MAPS = 5000
"""Map replicas in one sweep, approximately: a millisecond of work."""


class LocalReplicas:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        log: Log,
        services: Sequence[Service] = (),
        *,
        lane: Lane | None = None,
        ack_clients: ClientAcks | None = None,
        entries: NewEntries = dict,
        puts: PackedPuts = packed_puts_cy,
    ) -> None:
        """`lane`: for cuts as primary. `ack_clients`: to be notified as a backup. `entries`: makes a map's mapping."""
        self._puts = puts
        self.entries = entries
        self._me = me
        self._log = log
        self._awaits_disk = False
        """Part of the current message has to be durable before it is acknowledged."""
        self._unkept: list[tuple[int, str, bytes, int]] = []
        """Cuts in that message that are not kept here."""
        self._settings = settings
        self._proven = settings
        self.moves: MovesInForce = NoMoves()
        self.request_ids = settings.replication.request_ids
        self._ack_clients = ack_clients
        self._out = out
        self._rows = rows
        self.held: dict[int, PartitionCopy] = {}
        self.staging: dict[int, StagingReplica] = {}
        """`state_transfer.destination` makes and ends them."""
        self.stale: dict[int, PartitionCopy] = {}
        """Not held any longer; only bases for a later fill (`base`)."""
        self._in_exile: set[int] = set()
        """Partitions held when this member was evicted, until it knows the newest assignments; and where it is
        behind.
        """
        self.watched: set[int] = set()
        """Partitions for which `RecordsTaken` is notified."""
        self.cuts = Cuts(me, settings, out, rows, lane)
        self._tail_bytes = settings.replication.tail_bytes
        self.services = HostedServices(me, self.held, self, services)
        self._early: dict[int, list[tuple[MemberId, Replicate | Enlist, int]]] = {}
        """Messages that came too early, by partition, with senders and times of arrival."""
        self._recovering = False
        """The view is of a stopped cluster that has no table yet (primary_backup/O-5)."""
        self._untidied: list[int] = []
        """Partitions that this round of sweeps has not reached yet."""

    # -- records

    def on_replicate(self, sender: MemberId, message: Replicate) -> None:
        """Apply the records of a primary and acknowledge them. Records that came too early are kept."""
        self._awaits_disk = False
        self._unkept = []
        applied, others = self._puts.take(
            message.sections,
            sender,
            self._me,
            self._rows,
            self.staging,
            self.held,
            self._out.now_ns,
            self._tail_bytes,
        )
        taken = [section.partition for section in applied]
        if self._log.on:
            self._write_down_puts(applied)
        if others:
            taken += [section.partition for section in others if self._take(sender, message, section)]
        if taken:
            answer = Replicated(message.batches, taken, self._unkept)
            acks = self._acks_of(message, taken) if message.acks else []
            if self._awaits_disk:
                self._when_on_disk(sender, answer, acks)
            else:
                self._acknowledge(sender, answer, acks)
            for partition in taken:
                if partition in self._early:
                    self.retry(partition)
        if self.staging or self.watched:
            for section in message.sections:
                self._look_at(section.partition)

    def _acknowledge(self, sender: MemberId, answer: Replicated, acks: list[Ack]) -> None:
        self._out.send(sender, answer)
        if acks and self._ack_clients is not None:
            self._ack_clients.notify(acks)

    def _when_on_disk(self, sender: MemberId, answer: Replicated, acks: list[Ack]) -> None:
        self._log.when_durable(partial(self._acknowledge, sender, answer, acks))

    def _acks_of(self, message: Replicate, taken: list[int]) -> list[Ack]:
        """The acknowledgements for clients. One that waits for one partition whose records are early waits with these.
        One that waits for several such partitions is not sent: the client's wait times out.
        """
        sections = {section.partition for section in message.sections}
        kept = sections.difference(taken)
        found: list[Ack] = []
        for ack in message.acks:
            rest = [partition for partition in ack.partitions if partition in kept]
            if not sections.issuperset(ack.partitions):
                continue
            if not rest:
                found.append(ack)
            elif len(rest) == 1 and self._early.get(rest[0]):
                early = self._early[rest[0]][-1][1]
                if isinstance(early, Replicate) and early.batches == message.batches:
                    early.acks.append(Ack(ack.client, ack.correlations, rest))
        return found

    def _take(self, sender: MemberId, message: Replicate, section: Section) -> bool:
        partition = section.partition
        row = self._rows[partition]
        if section.version != row.version:
            if section.version > row.version:
                self._keep(sender, partition, Replicate(message.batches, [section]))
            return False
        staged = self.staging.get(partition)
        filling = staged is not None and staged.source == sender and staged.version == section.version
        backup = self._me in row.replicas and row.owner == sender
        copy = self.held.get(partition) if backup else None
        if copy is None and not filling:
            return False
        waits = copy is not None and self._gap(copy, section)
        if staged is not None and filling:
            waits = self._take_into(staged, section) or waits
        if waits:
            self._keep(sender, partition, Replicate(message.batches, [section]))
        elif copy is not None:
            self._write(copy, section)
        return not waits

    def _look_at(self, partition: int) -> None:
        """Report a staging replica that is complete now, and records that are waited for."""
        staged = self.staging.get(partition)
        if staged is not None and not staged.complete and staged.look():
            self._out.notify(ReplicaWhole(partition))
        if partition in self.watched:
            self._out.notify(RecordsTaken(partition))

    def _take_into(self, staged: StagingReplica, section: Section) -> bool:
        """Give a section to a staging replica; returns whether it waits for earlier records."""
        whole = staged.complete
        if whole and self._gap(staged.copy, section):
            return True
        records = section.all_records()
        for record in records:
            staged.take(record, section.term, self._out.now_ns)
        if whole:
            self._write_down(staged.copy, section, records)
        return False

    def _write_down(self, copy: PartitionCopy, section: Section, applied: list[Record]) -> None:
        """Write the applied records to the journal. The acknowledgement waits for the disk if any map of the section
        requires it: its other records may have been applied before, and not be durable yet.
        """
        if not self._log.on:
            return
        names = [one.map for one in section.records] + [one.map for one in section.puts]
        modes = {name: self._settings.object(name).journal for name in names}
        if "sync" in modes.values():
            self._awaits_disk = True
        written = [record for record in applied if modes[record.map] != "off"]
        if written:
            self._log.wrote(copy.partition, section.term, written, urgent=self._awaits_disk)

    def _write_down_puts(self, applied: list[Section]) -> None:
        modes: dict[str, str] = {}
        stored: list[tuple[int, int, Puts]] = []
        for section in applied:
            [puts] = section.puts
            mode = modes.get(puts.map)
            if mode is None:
                mode = modes[puts.map] = self._settings.object(puts.map).journal
            if mode != "off":
                stored.append((section.partition, section.term, puts))
        durable = "sync" in modes.values()
        self._awaits_disk = self._awaits_disk or durable
        if stored:
            self._log.stored(stored, urgent=durable)

    def _gap(self, copy: PartitionCopy, section: Section) -> bool:
        index = (
            self._rows[section.partition].index_of(self._me)
            if copy is self.held.get(section.partition)
            else 0
        )
        of_maps: dict[str, int] = {}
        of_services: dict[str, int] = {}
        for record in section.records:
            name, counter = record.map, record.counter
            reached = of_services if record.change is Change.CALL else of_maps
            before = reached.get(name)
            if before is None:
                held = copy.find(record)
                before = held.counter if held is not None else 0
                if record.change is Change.BEGIN and (held is None or held.is_before(section.term, record)):
                    before = counter - 1
                elif held is None and (
                    not self.wanted(name, index) or (counter > 1 and _is_unfilled(self._proven, name, index))
                ):
                    # At the destination of a migration to a hotter index only the staging replica takes this map.
                    # Repeated records leave out what all others have acknowledged, so their counters may jump.
                    before = NEVER
            if counter > before + 1:
                return True
            reached[name] = max(before, counter)
        for each in section.puts:
            before = of_maps.get(each.map)
            if before is None:
                mine = copy.maps.get(each.map)
                skipped = not self.wanted(each.map, index) or (
                    each.start > 0 and _is_unfilled(self._proven, each.map, index)
                )
                before = mine.counter if mine is not None else NEVER if skipped else 0
            if each.start > before:
                return True
            of_maps[each.map] = max(before, each.end)
        return False

    def _write(self, copy: PartitionCopy, section: Section) -> None:
        assert self.held.get(section.partition) is copy, "a held copy follows its primary"
        if section.records:
            self._write_records(copy, section)
        for puts in section.puts:
            self._write_puts(copy, section, puts)

    def _write_puts(self, copy: PartitionCopy, section: Section, puts: Puts) -> None:
        held = copy.maps.get(puts.map)
        if held is None:
            index = self._rows[section.partition].index_of(self._me)
            if not self.wanted(puts.map, index):
                return
            if puts.start > 0 and _is_unfilled(self._proven, puts.map, index):
                return
            held = self.open(copy, puts.map)
        if not held.apply_puts(section.term, puts, self._out.now_ns, held.changes or self._tail_bytes):
            # Some of the updates are held already.
            alone = Section(section.partition, section.version, puts.records(), section.term)
            self._write_records(copy, alone)
        elif self._log.on:
            alone = Section(section.partition, section.version, [], section.term, [puts])
            self._write_down_puts([alone])

    def _write_records(self, copy: PartitionCopy, section: Section) -> None:
        now_ns = self._out.now_ns
        index = self._rows[section.partition].index_of(self._me)
        applied: list[Record] = []
        by_map: dict[AnyReplica, list[Record]] = {}
        for record in section.records:
            held = copy.find(record)
            if held is None:
                if record.change is Change.CALL or not self.wanted(record.map, index):
                    continue
                first = record.counter == 1 or record.change is Change.BEGIN
                if not first and _is_unfilled(self._proven, record.map, index):
                    continue
                held = self.open(copy, record.map)
            if record.change is Change.BEGIN and held.is_before(section.term, record):
                held.begin_again(record)
            elif record.counter <= held.updates.lwm:
                self._pass_over(section, record, held)
                continue
            held.enter(section.term)
            held.apply(record, now_ns)
            if record.change is Change.PIN:
                pinned = copy.maps[record.map]
                self.cuts.keep(record.key, section.partition, pinned, record.ttl_ms)
            copy.requests.note(record.request)
            applied.append(record)
            by_map.setdefault(held, []).append(record)
        for held, records in by_map.items():
            held.keep(section.term, records, held.changes or self._tail_bytes)
            held.state.settle()
        assert len(applied) <= len(section.records), "each record is applied once (primary_backup/B-2)"
        self._write_down(copy, section, applied)

    def _pass_over(self, section: Section, record: Record, held: AnyReplica) -> None:
        """Skip a record that this copy holds already (primary_backup/B-2)."""
        if record.change is Change.PIN and not self.cuts.has(section.partition, record):
            # The copy was filled past the PIN record: the content at that moment is gone.
            self._unkept.append((section.partition, held.name, record.key, record.counter))

    def open(self, copy: PartitionCopy, name: str) -> MapReplica:
        held = copy.open(name)
        self._furnish(held)
        return held

    def _furnish(self, held: AnyReplica) -> None:
        chosen = self._settings.object(held.name)
        held.journal = chosen.journal if self._log.on else "off"
        held.changes = chosen.changes_bytes

    def _keep(self, sender: MemberId, partition: int, message: Replicate | Enlist) -> None:
        self._early.setdefault(partition, []).append((sender, message, self._out.now_ns))

    def retry(self, partition: int) -> None:
        for sender, message, came_ns in self._early.pop(partition, []):
            if isinstance(message, Replicate):
                waited_ns = self._out.now_ns - came_ns
                sections = [section.after_wait(waited_ns) for section in message.sections]
                self.on_replicate(sender, msgspec.structs.replace(message, sections=sections))
            else:
                self.on_enlist(sender, message)

    # -- a new primary activates

    def on_enlist(self, sender: MemberId, message: Enlist) -> None:
        """Answer whether this copy equals the new primary's, as soon as its assignment is known here, and the cluster
        has recovered (primary_backup/O-5).
        """
        answers: list[tuple[int, int, bool]] = []
        for partition, version, counters in message.partitions:
            row = self._rows[partition]
            if row.version < version or self._recovering:
                self._keep(sender, partition, Enlist([(partition, version, counters)]))
            elif row.version == version and row.owner == sender:
                copy = self.held.get(partition)
                mine = self.counters(copy, row.index_of(self._me)) if copy is not None else None
                answers.append((partition, version, self._equal(mine, counters)))
        if answers:
            # Report only what is durable: the new primary may answer for writes that the old one never acknowledged.
            self._log.when_durable(lambda: self._out.send(sender, Enlisted(answers)))

    def _equal(self, mine: list[tuple[str, int, int]] | None, counters: list[tuple[str, int, int]]) -> bool:
        return mine == [tuple(one) for one in counters]

    def counters(self, copy: PartitionCopy, index: int) -> list[tuple[str, int, int]]:
        """The low watermarks, and their terms, of the maps of a replica with this index."""
        return [one for one in copy.counters() if self.wanted(one[0], index)]

    def wanted(self, name: str, index: int) -> bool:
        return 0 <= index < self._settings.object(name).copies

    def rely_on(self, proven: Settings, moves: MovesInForce) -> None:
        """Use these settings where failover relies on them (model/C-1)."""
        self._proven = proven
        self.moves = moves

    # -- assignments

    def assignment_changed(
        self, partition: int, old: Assignment, new: Assignment, arrived: PartitionCopy | None
    ) -> PartitionCopy | None:
        """Keep the copy, take `arrived`, begin empty, or drop it. Returns the copy held from now on."""
        if self._me in old.behind:
            # This member was missing while the table was frozen, and has kept its copy.
            self._in_exile.add(partition)
        self.services.assignment_changed(partition, old, new, arrived)
        index = new.index_of(self._me)
        if index < 0:
            self._let_go(partition, new)
            return None
        copy = self.held.get(partition)
        if copy is None:
            copy = self._take_back(partition, new)
        self.stale.pop(partition, None)
        if copy is None and old.version and new.epoch == old.epoch:
            raise InvariantBroken(
                f"assignment {new} of partition {partition} names {self._me}, which holds no copy"
            )
        if copy is None or copy.epoch < new.epoch:
            copy = self.held[partition] = PartitionCopy(partition, new.epoch, self.request_ids, self.entries)
            self._log.note(Began(partition, new.epoch))
        assert self.held[partition] is copy, "a replica of the assignment has its copy"
        assert copy.epoch >= new.epoch, "a copy is not of an epoch that was declared lost"
        self.furnish(copy, index)
        return copy

    def furnish(self, copy: PartitionCopy, index: int) -> None:
        self.services.furnish(copy, index)
        for held in copy.services.values():
            self._furnish(held)

    def revive(self, copies: dict[int, PartitionCopy]) -> None:
        assert not self.held, "copies from files come before any assignment"
        for copy in copies.values():
            self.services.revive(copy)
        self.stale.update(copies)

    def _take_back(self, partition: int, row: Assignment) -> PartitionCopy | None:
        """Hold a kept copy again, because the assignment names this member: the master knows what the copy has
        (migration/X-1, migration/X-2).
        """
        copy = self.stale.get(partition)
        if copy is None or copy.epoch != row.epoch:
            return None
        assert partition not in self.held, "a held copy is not replaced by an earlier one"
        self.held[partition] = copy
        # The files may be from a time when its index was lower.
        self.keep_maps_of(partition, row.index_of(self._me))
        for name in [name for name in copy.services if not self.wanted(name, row.index_of(self._me))]:
            del copy.services[name]
        for held in copy:
            self._furnish(held)
        return copy

    def _let_go(self, partition: int, new: Assignment) -> None:
        copy = self.held.pop(partition, None)
        if copy is not None:
            self._log.note(Dropped(partition))
            if partition in self._in_exile:
                self._in_exile.discard(partition)
                self.stale[partition] = copy
        kept = self.stale.get(partition)
        if kept is not None and kept.epoch < new.epoch:
            del self.stale[partition]
        assert partition not in self.held, (
            "a member outside of the assignment holds no copy (primary_backup/B-3)"
        )

    def replace(self, partition: int, copy: PartitionCopy) -> None:
        """Hold this copy of a backup, which was brought up to date."""
        assert copy.partition == partition, "a copy is of one partition"
        assert self._rows[partition].index_of(self._me) > 0, (
            "a backup of the assignment is brought up to date"
        )
        self.held[partition] = copy

    def base(self, partition: int) -> PartitionCopy | None:
        return self.held.get(partition) or self.stale.get(partition)

    def drop_stale(self) -> None:
        """Drop the copies that were kept as bases: every partition is where it belongs."""
        for partition in self.stale:
            if partition not in self.held and partition not in self.staging:
                self._log.note(Dropped(partition))
        self.stale.clear()
        self._in_exile.clear()

    # -- the record store as a service: its callbacks for migrations

    def before(self, event: MigrationEvent) -> None:
        """Does nothing: there is nothing to prepare."""

    def commit(self, event: MigrationEvent) -> None:
        """A source keeps only the maps of its new index."""
        if event.endpoint is Endpoint.SOURCE and (event.new >= 0 or event.partition not in self._in_exile):
            self.keep_maps_of(event.partition, event.new)

    def rollback(self, event: MigrationEvent) -> None:
        """A destination keeps only the maps of its current index."""
        if event.endpoint is Endpoint.DESTINATION:
            self.keep_maps_of(event.partition, event.current)

    def keep_maps_of(self, partition: int, index: int) -> None:
        copy = self.held.get(partition)
        if copy is not None:
            for name in [name for name in copy.maps if not self.wanted(name, index)]:
                del copy.maps[name]
                self._log.note(Dropped(partition, name))
            for name in copy.services:
                if not self.wanted(name, index):
                    # The service releases it after its own callback (core/W-4).
                    self._log.note(Dropped(partition, name))

    # -- periodic work

    def sweep(self) -> None:
        """End expired cuts, and forget passed deadlines in copies of backups, in a bounded number of maps
        (primary_backup/E-1).
        """
        self.cuts.sweep()
        if not self._untidied:
            self._untidied = list(self.held)
        looked = 0
        while self._untidied and looked < TIDIED_MAPS:
            copy = self.held.get(self._untidied.pop())
            if copy is not None:
                looked += len(copy.maps)
                for held in copy.maps.values():
                    held.state.tidy(self._out.now_ns)

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "staging replicas": len(self.staging),
            "early messages": len(self._early),
            "migrations without a callback to services at their end": len(self.services.pending),
        }

    def on_view(self, notice: ViewInstalled) -> None:
        """Keep the copies as bases if this member was evicted while alive."""
        recovered = self._recovering
        self._recovering = notice.new is not None and notice.new.recovering
        if notice.admitted:
            for partition in list(self._early) if recovered and not self._recovering else ():
                self.retry(partition)
            return
        self.services.removed()
        self._early.clear()
        self._in_exile |= self.held.keys()

    def returned(self) -> None:
        """This member knows the newest assignments; copies taken from it now are not kept as bases."""
        self._in_exile.clear()


def _is_unfilled(proven: Settings, name: str, index: int) -> bool:
    """Whether a replica with this index, which has no such map but is to hold it, still has to be filled with it,
    because the map has got more copies (model/C-1): only a staging replica takes its records. Otherwise the first
    record would leave a gap, and records of other maps would wait behind it.
    """
    return proven.object(name).copies <= index
