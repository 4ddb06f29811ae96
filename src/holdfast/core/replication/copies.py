"""The copies that this member holds, and how a backup's copy follows its primary (H8; DESIGN rules 3 and 8).

- B-1: Records are accepted only from the primary that this member's row names, at the same version; of a
  newer version they wait until the row is known, of an older one they are not acknowledged.
- B-2: Records are applied in the order of the update counter, each once; what comes too early waits.
- B-3: A copy that is being filled is kept apart (the *shadow*): it never serves, and takes the place of the
  copy only when it is complete.
- B-4: A copy is dropped only when a committed row does not name this member any more.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.config import Settings
from holdfast.core.machine import MemberId, Outbox
from holdfast.core.messages import Enlist, Enlisted, Fill, Filled, Replicate, Replicated, Section
from holdfast.core.placement.table import Row
from holdfast.core.rules import Rules
from holdfast.core.store.partition import Change, MapPartition, PartitionCopy, Record
from holdfast.errors import InvariantBroken


class Shadow:
    """A copy that is being filled: chunks of content and live records, in whatever order they come.

    For each key it remembers the update counter of what it was last told, so that nothing older overwrites it.
    """

    __slots__ = (
        "_begins",
        "_cleared",
        "_told",
        "complete",
        "copy",
        "joining",
        "sequence",
        "source",
        "ticket",
        "version",
    )

    def __init__(self, source: MemberId, fill: Fill) -> None:
        self.source = source
        self.ticket = fill.ticket
        self.version = fill.version
        self.joining = fill.joining
        self.copy = PartitionCopy(fill.partition, fill.epoch)
        self.sequence = -1
        self.complete = False
        self._begins: dict[str, int] = {}
        """Update counter of each map when the first piece of its content was taken."""
        self._told: dict[tuple[str, bytes], int] = {}
        self._cleared: dict[str, int] = {}

    def _newer(self, name: str, key: bytes, counter: int) -> bool:
        """Whether what is said of a key at this counter is not older than what is known; then it is the newest."""
        if counter < self._cleared.get(name, 0) or counter < self._told.get((name, key), 0):
            return False
        self._told[name, key] = counter
        return True

    def pour(self, fill: Fill, now_ns: int) -> None:
        """Take a chunk: entries as they were when the counter of their map stood where the chunk says."""
        for part in fill.maps:
            held = self.copy.open(part.map)
            if fill.sequence == 1 and not fill.last:
                self._begin(held, part.counter)
            for key, value, ttl_ms, max_idle_ms, key_hash in part.entries:
                if self._newer(part.map, key, part.counter):
                    held.store(key, value, ttl_ms, max_idle_ms, key_hash, now_ns)
            if fill.last:
                held.counter = max(held.counter, part.counter)
        self.complete = fill.last

    def _begin(self, held: MapPartition, counter: int) -> None:
        """The content is taken at this counter: what was recorded up to it is in the content, or over (S-5)."""
        self._begins[held.name] = counter
        for told in [told for told, at in self._told.items() if told[0] == held.name and at <= counter]:
            del self._told[told]
            held.drop(told[1])

    def take(self, record: Record, now_ns: int) -> None:
        """Take a live record."""
        held = self.copy.open(record.map)
        counter = held.counter
        if record.counter <= self._begins.get(record.map, 0):
            return
        if record.change is Change.CLEAR:
            self._clear(held, record.counter)
        elif self._newer(record.map, record.key, record.counter):
            held.apply(record, now_ns)
        held.counter = max(counter, record.counter)

    def _clear(self, held: MapPartition, counter: int) -> None:
        for key in [key for key in held.entries if self._told.get((held.name, key), 0) < counter]:
            held.drop(key)
        self._cleared[held.name] = max(counter, self._cleared.get(held.name, 0))


class Copies:
    """What this member holds of each partition, as backup or primary."""

    def __init__(self, me: MemberId, settings: Settings, out: Outbox, rules: Rules, rows: list[Row]) -> None:
        self._me = me
        self._settings = settings
        self._out = out
        self._fence = rules.holds("fence")
        self._ordered = rules.holds("record-order")
        self._rows = rows
        self.held: dict[int, PartitionCopy] = {}
        self.shadows: dict[int, Shadow] = {}
        self._early: dict[int, list[tuple[MemberId, Replicate | Fill | Enlist]]] = {}
        self.touched: Callable[[int], None] = lambda partition: None

    # -- records

    def on_replicate(self, sender: MemberId, message: Replicate) -> None:
        """Take the records that may be taken now; acknowledge these, keep the early ones."""
        taken = [section.partition for section in message.sections if self._take(sender, message, section)]
        if taken:
            self._out.send(sender, Replicated(message.batches, taken))
            for partition in taken:
                if partition in self._early:
                    self.retry(partition)

    def _take(self, sender: MemberId, message: Replicate, section: Section) -> bool:
        partition = section.partition
        row = self._rows[partition]
        if self._fence:
            if section.version > row.version:
                self._keep(sender, partition, Replicate(message.batches, [section]))
                return False
            if section.version < row.version:
                return False
        shadow = self.shadows.get(partition)
        filling = shadow is not None and shadow.source == sender and shadow.version == section.version
        backup = self._me in row.replicas and (row.owner == sender or not self._fence)
        copy = self.held.get(partition) if backup else None
        if copy is None and not filling:
            return False
        if copy is not None and self._gap(copy, section):
            self._keep(sender, partition, Replicate(message.batches, [section]))
            return False
        if shadow is not None and filling:
            if shadow.complete and self._gap(shadow.copy, section):
                self._keep(sender, partition, Replicate(message.batches, [section]))
                return False
            for record in section.records:
                shadow.take(record, self._out.now_ns)
        if copy is not None:
            self._write(copy, section)
        return True

    def _gap(self, copy: PartitionCopy, section: Section) -> bool:
        """Whether a record of the section comes before one that this copy has not seen."""
        if not self._ordered:
            return False
        index = (
            self._rows[section.partition].index_of(self._me)
            if copy is self.held.get(section.partition)
            else 0
        )
        reached: dict[str, int] = {}
        for record in section.records:
            name, counter = record.map, record.counter
            before = reached.get(name)
            if before is None:
                held = copy.maps.get(name)
                before = held.counter if held is not None else 0
                if held is None and not self.wanted(name, index):
                    # The destination of a migration to a hotter index: this map is its shadow's affair alone.
                    before = counter
            if counter > before + 1:
                return True
            reached[name] = max(before, counter)
        return False

    def _write(self, copy: PartitionCopy, section: Section) -> None:
        now_ns = self._out.now_ns
        index = self._rows[section.partition].index_of(self._me)
        maps = copy.maps
        for record in section.records:
            held = maps.get(record.map)
            if held is None:
                if not self.wanted(record.map, index):
                    continue
                held = copy.open(record.map)
            if self._ordered and record.counter <= held.counter:
                continue
            held.apply(record, now_ns)

    def _keep(self, sender: MemberId, partition: int, message: Replicate | Fill | Enlist) -> None:
        self._early.setdefault(partition, []).append((sender, message))

    def retry(self, partition: int) -> None:
        """Look again at what came too early for this partition."""
        for sender, message in self._early.pop(partition, []):
            if isinstance(message, Replicate):
                self.on_replicate(sender, message)
            elif isinstance(message, Fill):
                self.on_fill(sender, message)
            else:
                self.on_enlist(sender, message)

    # -- a primary takes office

    def on_enlist(self, sender: MemberId, message: Enlist) -> None:
        """Say whether this copy equals the new primary's, once the row that makes it primary is known here."""
        answers: list[tuple[int, int, bool]] = []
        for partition, version, counters in message.partitions:
            row = self._rows[partition]
            if row.version < version:
                self._keep(sender, partition, Enlist([(partition, version, counters)]))
            elif row.version == version and row.owner == sender:
                copy = self.held.get(partition)
                mine = self.counters(copy, row.index_of(self._me)) if copy is not None else None
                answers.append((partition, version, mine == [(name, count) for name, count in counters]))
        if answers:
            self._out.send(sender, Enlisted(answers))

    def counters(self, copy: PartitionCopy, index: int) -> list[tuple[str, int]]:
        """Update counters of the maps that a replica with this index holds."""
        return [(name, count) for name, count in copy.counters() if self.wanted(name, index)]

    def wanted(self, name: str, index: int) -> bool:
        """Whether a replica with this index holds data of the map."""
        chosen = self._settings.map(name)
        return 0 <= index <= chosen.backups + chosen.async_backups

    # -- being filled

    def on_fill(self, sender: MemberId, fill: Fill) -> None:
        """Take a chunk of a partition's content into the shadow."""
        partition = fill.partition
        row = self._rows[partition]
        if fill.version > row.version:
            self._keep(sender, partition, fill)
            return
        if fill.version < row.version or row.owner != sender:
            return
        shadow = self.shadows.get(partition)
        if fill.sequence == 0 and (shadow is None or shadow.ticket < fill.ticket or shadow.source != sender):
            shadow = self.shadows[partition] = Shadow(sender, fill)
        if shadow is None or shadow.ticket != fill.ticket or shadow.source != sender:
            return
        if fill.sequence == shadow.sequence + 1:
            shadow.sequence = fill.sequence
            shadow.pour(fill, self._out.now_ns)
        self._out.send(sender, Filled(partition, fill.version, fill.ticket, fill.sequence))
        if shadow.complete and not shadow.joining and partition in self.shadows:
            # A replica of the row that is brought up to date: from now on this is its copy (B-3).
            self.held[partition] = shadow.copy
            del self.shadows[partition]
        self.retry(partition)

    # -- rows

    def row_changed(self, partition: int, old: Row, new: Row) -> PartitionCopy | None:
        """A committed row: keep, take over, begin anew, or forget. Answers the copy held from now on."""
        index = new.index_of(self._me)
        shadow = self.shadows.pop(partition, None)
        if index < 0:
            self.held.pop(partition, None)
            return None
        if shadow is not None and shadow.complete and shadow.version >= old.version:
            self.held[partition] = shadow.copy
        copy = self.held.get(partition)
        if copy is None and (old.version == 0 or new.epoch > old.epoch):
            copy = self.held[partition] = PartitionCopy(partition, new.epoch)
        if copy is None:
            raise InvariantBroken(f"row {new} of partition {partition} names {self._me}, which holds no copy")
        if copy.epoch < new.epoch:
            copy = self.held[partition] = PartitionCopy(partition, new.epoch)
        self.trim(copy, index)
        return copy

    def sweep(self) -> None:
        """Forget deadlines that are over in copies of which this member is not the primary."""
        for copy in self.held.values():
            for held in copy:
                if held.deadlines:
                    held.tidy(self._out.now_ns)

    def trim(self, copy: PartitionCopy, index: int) -> None:
        """Drop the maps that a replica with this index does not hold."""
        for name in [name for name in copy.maps if not self.wanted(name, index)]:
            del copy.maps[name]

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {"shadows": len(self.shadows), "early messages": len(self._early)}

    def removed(self) -> None:
        """This member was removed from the cluster, though alive: what was half filled is worth nothing.

        A complete shadow stays: the row that makes it this member's copy may have been stored by a majority already.
        """
        self.shadows = {p: shadow for p, shadow in self.shadows.items() if shadow.complete}
        self._early.clear()
