"""The side that is filled: the destination of a migration, and a replica that is brought up to date (H3, H5).

- D-1: A copy that is being filled is kept apart (the *shadow*): it never serves, and takes the place of the copy
  only when it is complete, and the row says so (of a migration) or named this member already (of a refill).
- D-2: Chunks of content and live records may come in any order; each entry ends as the newest that was told of it.
- D-3: Chunks are taken from the primary that this member's row names, at the same version. What does not fit is
  refused by name, so that the source need not wait for an answer that never comes:

      the chunk's version is newer          it waits until the row is known
      it is older                           refused: the decision has been taken
      another member is the primary here    refused
      a newer row is stored, not committed  refused, if it is a migration's: the decision is outstanding
      not its first chunk, and no shadow    refused: what came before is not held here
      of an earlier supply than the shadow  refused
      a chunk that is held already          answered again, without effect

- D-4: The last chunk is answered when the journalled maps of the copy are durable, as a checkpoint. What comes after it
  is written to the journal like that of every copy.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

from holdfast.core.journal.entries import Began, Dropped
from holdfast.core.journal.log import Log
from holdfast.core.journal.snapshot import snapshot_of
from holdfast.core.machine import MemberId, Outbox
from holdfast.core.messages import Fill, Filled, FillEntries, FillRefused, FillShare
from holdfast.core.migration.services import Endpoint, MigrationEvent
from holdfast.core.placement.table import Row
from holdfast.core.replication.copies import Copies
from holdfast.core.replication.counter import UpdateCounter
from holdfast.core.store.partition import Change, MapPartition, PartitionCopy, Record, ServicePartition


class FilledMap:
    """A map's share that is being filled (D-2).

    For each key it knows at which update counter what it holds was so: that of the record that told it, or of the
    chunk. The keys of a chunk are kept as the list they came in, and looked for only when a record is not newer than
    every chunk; so a chunk costs little more than the update of a dictionary.
    """

    __slots__ = ("_begins", "_chunks", "_cleared", "_newest", "_told", "held")

    def __init__(self, held: MapPartition) -> None:
        self.held = held
        self._told: dict[bytes, int] = {}
        self._chunks: list[tuple[int, list[bytes]]] = []
        self._newest = 0
        """The highest update counter of any chunk."""
        self._cleared = 0
        self._begins = 0
        """The map's update counter when the content was taken."""

    def begin(self, counter: int) -> None:
        """The content is taken at this counter: what was recorded up to it is in the content, or over (S-6)."""
        self._begins = counter
        for key in [key for key, at in self._told.items() if at <= counter]:
            del self._told[key]
            self.held.drop(key)

    def pour(self, part: FillEntries, now_ns: int) -> None:
        """Take entries as they were when the map's counter stood where the chunk says."""
        held, keys, counter = self.held, part.keys, part.counter
        if counter < self._cleared:
            return
        self._chunks.append((counter, keys))
        self._newest = max(self._newest, counter)
        told = self._told
        newer = {key for key in keys if told.get(key, 0) > counter} if told else ()
        if not newer and not held.expiries and not (part.ttls_ms or part.max_idles_ms or part.key_hashes):
            held.entries.update(zip(keys, part.values, strict=True))
            return
        columns = zip(
            keys,
            part.values,
            part.ttls_ms or repeat(0),
            part.max_idles_ms or repeat(0),
            part.key_hashes or repeat(0),
            strict=False,
        )
        for key, value, ttl_ms, max_idle_ms, key_hash in columns:
            if key not in newer:
                held.store(key, value, ttl_ms, max_idle_ms, key_hash, now_ns)

    def take(self, record: Record, term: int, now_ns: int) -> None:
        """Take a live record of this term."""
        held = self.held
        held.enter(term)
        if record.counter <= self._begins:
            return
        if record.change is Change.CLEAR:
            self._clear(record.counter)
        elif self._is_new(record.key, record.counter):
            self._told[record.key] = record.counter
            held.apply(record, now_ns)
        held.updates.update(record.counter - 1)

    def stands_at(self, part: FillEntries) -> None:
        """The content has come whole, and stands where the last chunk says, or where live records have brought it."""
        held = self.held
        held.updates = UpdateCounter(max(held.updates.highest_applied, part.counter))
        held.lineage = list(part.lineage)

    def _is_new(self, key: bytes, counter: int) -> bool:
        """Whether what is said of a key at this counter is not older than what is known."""
        if counter < self._cleared or counter < self._told.get(key, 0):
            return False
        if counter >= self._newest:
            return True
        return not any(counter < later and key in keys for later, keys in self._chunks)

    def _clear(self, counter: int) -> None:
        later = {key for at, keys in self._chunks if at >= counter for key in keys}
        for key in list(self.held.entries):
            if self._told.get(key, 0) < counter and key not in later:
                self.held.drop(key)
        self._cleared = max(counter, self._cleared)


class FilledShare:
    """A service's share that is being filled: what comes after the moment its pieces tell of waits for the last."""

    __slots__ = ("_early", "_term", "_whole", "held")

    def __init__(self, held: ServicePartition) -> None:
        self.held = held
        self._early: dict[int, Record] = {}
        self._term = 0
        self._whole = False

    def pour(self, part: FillShare, now_ns: int) -> None:
        """Take the next pieces."""
        for piece in part.pieces:
            self.held.share.receive(piece)
        if part.whole:
            self._whole = True
            self.held.updates = UpdateCounter(part.counter)
            self.held.lineage = list(part.lineage)
            if self._early:
                self.held.enter(self._term)
            self._go_on(now_ns)

    def take(self, record: Record, term: int, now_ns: int) -> None:
        """Take a live record of this term: in its turn, and once."""
        self._early[record.counter] = record
        self._term = term
        if self._whole:
            self.held.enter(term)
            self._go_on(now_ns)

    def _go_on(self, now_ns: int) -> None:
        held = self.held
        while (record := self._early.pop(held.counter + 1, None)) is not None:
            held.apply(record, now_ns)
        for counter in [counter for counter in self._early if counter <= held.counter]:
            del self._early[counter]


class Shadow:
    """A copy that is being filled: chunks of content and live records, in whatever order they come."""

    __slots__ = (
        "_maps",
        "_open",
        "_shares",
        "complete",
        "copy",
        "joining",
        "sequence",
        "source",
        "ticket",
        "version",
    )

    def __init__(
        self,
        source: MemberId,
        fill: Fill,
        copy: PartitionCopy,
        open_map: Callable[[PartitionCopy, str], MapPartition],
    ) -> None:
        self._open = open_map
        self.source = source
        self.ticket = fill.ticket
        self.version = fill.version
        self.joining = fill.joining
        self.copy = copy
        self.sequence = -1
        self.complete = False
        self._maps: dict[str, FilledMap] = {}
        self._shares = {name: FilledShare(held) for name, held in copy.services.items()}

    def _map(self, name: str) -> FilledMap:
        found = self._maps.get(name)
        if found is None:
            found = self._maps[name] = FilledMap(self._open(self.copy, name))
        return found

    def pour(self, fill: Fill, now_ns: int) -> None:
        """Take a chunk."""
        for part in fill.maps:
            filled = self._map(part.map)
            if fill.sequence == 1 and not fill.last:
                filled.begin(part.counter)
            filled.pour(part, now_ns)
            if fill.last:
                filled.stands_at(part)
        for share in fill.shares:
            self._shares[share.service].pour(share, now_ns)
        self.complete = fill.last

    def take(self, record: Record, term: int, now_ns: int) -> None:
        """Take a live record of this term."""
        if record.change is not Change.CALL:
            self._map(record.map).take(record, term, now_ns)
        elif record.map in self._shares:
            self._shares[record.map].take(record, term, now_ns)


class Destination:
    """Everything that is being filled on this member."""

    def __init__(
        self,
        me: MemberId,
        out: Outbox,
        rows: list[Row],
        copies: Copies,
        log: Log,
        *,
        stored_row: Callable[[int], Row | None],
        durable: bool = True,
    ) -> None:
        """`durable`: whether D-4 holds."""
        self._me = me
        self._durable = durable
        self._out = out
        self._log = log
        self._rows = rows
        self._copies = copies
        self._services = copies.services
        self._stored_row = stored_row
        self.shadows = copies.shadows
        self._early: dict[int, list[tuple[MemberId, Fill]]] = {}

    # -- chunks

    def on_fill(self, sender: MemberId, fill: Fill) -> None:
        """Take a chunk of a partition's content into the shadow, or refuse it by name (D-3)."""
        partition = fill.partition
        if fill.version > self._rows[partition].version:
            self._early.setdefault(partition, []).append((sender, fill))
            return
        why = self._why_not(sender, fill)
        if why:
            self._out.send(sender, FillRefused(partition, fill.version, fill.ticket, why))
            return
        shadow = self.shadows.get(partition)
        if shadow is None or shadow.ticket != fill.ticket or shadow.source != sender:
            shadow = self._begin(sender, fill)
        if fill.sequence == shadow.sequence + 1:
            shadow.sequence = fill.sequence
            shadow.pour(fill, self._out.now_ns)
        self._answer(sender, fill, shadow)
        if shadow.complete and not shadow.joining:
            # A replica of the row that is brought up to date: from now on this is its copy (D-1).
            self._copies.held[partition] = shadow.copy
            del self.shadows[partition]
        self._copies.retry(partition)

    def _answer(self, sender: MemberId, fill: Fill, shadow: Shadow) -> None:
        """Say that the chunk is held; of the last one only when the whole copy is durable, if it is to be (D-4)."""
        answer = Filled(fill.partition, fill.version, fill.ticket, fill.sequence)
        taken = snapshot_of(shadow.copy, self._out.now_ns) if shadow.complete and self._log.on else None
        if taken is None:
            if shadow.complete:
                self._log.note(Began(fill.partition, fill.epoch))
            self._out.send(sender, answer)
            return
        refused = FillRefused(fill.partition, fill.version, fill.ticket, "its disk is full")

        def written(well: bool) -> None:
            if self._durable:
                self._out.send(sender, answer if well else refused)

        if not self._durable:
            self._out.send(sender, answer)
        self._log.checkpoint(taken, written)

    def _begin(self, sender: MemberId, fill: Fill) -> Shadow:
        """Begin a new copy, in the place of one that is not wanted any more."""
        partition = fill.partition
        self._services.give_up(partition)
        if fill.joining:
            current = self._rows[partition].index_of(self._me)
            self._services.begin(MigrationEvent(partition, Endpoint.DESTINATION, current, fill.index))
        copy = PartitionCopy(partition, fill.epoch)
        self._services.furnish(copy, fill.index)
        shadow = self.shadows[partition] = Shadow(sender, fill, copy, self._copies.open)
        return shadow

    def _why_not(self, sender: MemberId, fill: Fill) -> str:
        """Why a chunk cannot be taken, in words; empty when it can."""
        row = self._rows[fill.partition]
        if fill.version < row.version:
            return f"the row is at version {row.version} here"
        if row.owner != sender:
            return f"the primary is {row.owner}"
        stored = self._stored_row(fill.partition)
        if fill.joining and stored is not None and stored.version > row.version:
            return f"the decision on version {stored.version} is outstanding"
        shadow = self.shadows.get(fill.partition)
        if shadow is not None and shadow.source == sender and shadow.ticket > fill.ticket:
            return f"supply {shadow.ticket} has begun since"
        known = shadow is not None and shadow.source == sender and shadow.ticket == fill.ticket
        if fill.sequence and not known:
            return "what came before is not held here"
        return ""

    # -- rows

    def row_changed(self, partition: int, old: Row) -> PartitionCopy | None:
        """A committed row ends whatever was under way; answers the content that has come whole."""
        shadow = self.shadows.pop(partition, None)
        if shadow is None or not shadow.complete:
            return None
        if shadow.version >= old.version:
            return shadow.copy
        self._forget_on_disk(partition)
        return None

    def _forget_on_disk(self, partition: int) -> None:
        """What was complete and is not wanted any more was written down, in the place of nothing or of the copy."""
        if self._log.on and partition not in self._copies.held:
            self._log.note(Dropped(partition))

    def retry(self, partition: int) -> None:
        """Look again at the chunks that came before their row."""
        for sender, fill in self._early.pop(partition, []):
            self.on_fill(sender, fill)

    def removed(self) -> None:
        """This member was removed from the cluster, though alive: what was half filled is worth nothing.

        A complete shadow stays: the row that makes it this member's copy may have been stored by a majority already.
        """
        for partition in [p for p, shadow in self.shadows.items() if not shadow.complete]:
            del self.shadows[partition]
        self._early.clear()
