"""What has changed in a map, and how much of that can be told? For change streams (`maps.*.changes_bytes`).

An update is told under its partition, term and counter, with what the entry was before and when it was.

- streams/G-1: An update is told only when it is *safe*: everybody who must hold it before its writer is answered
  does, and it is durable where the map's journal says so. Who takes over from this primary holds it then, under the
  same number. A primary in office knows which are: what it found when it took office is held by all
  (primary_backup/O-1, primary_backup/O-2), and of what it has written since, its batches say who has not
  acknowledged. Async backups are not waited for. Others cannot know: they tell up to an update that is named by its
  term, for whoever names one was told of it as a head.
- streams/G-2: The last safe update is the *head*, told with its term and with the lineage that leads to it. Every
  member whose copy has an update of this counter and term holds the same updates before it (state_transfer/C-1), so
  any of them may tell them.
- streams/G-3: Who asks says which update it has read last, counter and term. A copy of another history refuses.
- streams/G-4: What is asked for comes whole and in order from the tail, else from the journal; or not at all, with
  the reason. Nothing without a reason may be asked for again: it is not safe yet, or there is too much to do just now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from holdfast.config import Settings
from holdfast.core.machine import HistoryRead, Outbox, ReadHistory
from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.ids import SECOND
from holdfast.core.model.records import Change, Record
from holdfast.core.primary_backup.ack_batch import AckBatch
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica
from holdfast.core.store.tail import size_of

JOURNAL_RECORDS = 16_384
"""At most so many updates are read from the journal at a time,"""
JOURNAL_BYTES = 8 << 20
"""or so many bytes of them. That is looked for through the whole journal: what was not asked for yet is kept,"""
AHEAD_MAX = 4
"""for so many partitions,"""
AHEAD_NS = 10 * SECOND
"""and so long."""
READS_MAX = 4
"""So many questions at once are looked for in the journal; who asks then is to ask again."""

Lineage = Sequence[tuple[int, int]]


ChangesTold = Callable[[ChangesSince], None]
"""Who asked hears what has changed."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the changes of a map have gone in a partition."""

    counter: int
    """Of the last update that is safe (streams/G-1)."""
    term: int
    """Of that update; 0 when there is none."""
    since: int
    """Every change after this update is in memory here."""
    lineage: list[tuple[int, int]]
    """Of which terms the updates up to it are: from the counter start + 1 on, of this term; ascending."""


class _Ahead(NamedTuple):
    """What was read from the journal, and not told yet."""

    records: list[tuple[int, Record]]
    of: PartitionCopy | None
    """The copy that it was read for."""
    since_ns: int


class ChangeStreams:
    """What this member can tell of changes."""

    def __init__(
        self, settings: Settings, out: Outbox, lane: Lane, copies: LocalReplicas, *, journal: bool
    ) -> None:
        """`journal`: whether this member has one to be asked for older updates."""
        self._settings = settings
        self._out = out
        self._lane = lane
        self._copies = copies
        self._journal = journal
        self._tickets = 0
        self._ahead: dict[tuple[str, int], _Ahead] = {}
        """By map and partition."""
        self._reads: dict[int, tuple[Asked, Lineage, ChangesTold]] = {}

    def streams(self, name: str) -> bool:
        """Whether the map has a change stream."""
        return bool(self._settings.map(name).changes_bytes)

    # -- heads

    def heads(self, name: str, partitions: Iterable[int]) -> tuple[dict[int, Reach], list[int]]:
        """The heads of the partitions that are served here, and which are not."""
        unsent: dict[int, int] = {}
        for partition, of, update in self._lane.unsent:
            if of.name == name and isinstance(update, Record) and update.change is not Change.CALL:
                unsent.setdefault(partition, update.counter)
        found: dict[int, Reach] = {}
        moved: list[int] = []
        for partition in dict.fromkeys(partitions):
            copy = self._lane.leading[partition]
            if copy is None:
                moved.append(partition)
                continue
            held = copy.maps.get(name)
            if held is None:
                found[partition] = Reach(0, 0, 0, [])
                continue
            counter = self._safe(partition, held, unsent.get(partition))
            lineage = [(term, start) for term, start in held.proven_lineage() if start < counter]
            tail = held.tail
            since = tail.start if tail is not None and tail.start <= counter <= tail.end else counter
            found[partition] = Reach(counter, lineage[-1][0] if lineage else 0, since, lineage)
        return found, moved

    def _safe(self, partition: int, held: MapReplica, unsent: int | None) -> int:
        """The last update that is safe (streams/G-1). What is not sent yet is not in the tail either.

        An older batch may hold newer updates than a younger one: buffers join a batch that goes to the same members.
        """
        counter = held.counter if unsent is None else unsent - 1
        for batch in self._lane.batches_of(partition):
            if _waits(batch, partition, held):
                first = next((update for of, update in batch.records[partition] if of is held), None)
                if first is not None:
                    assert isinstance(first, Record), "a map with a change stream has records"
                    counter = min(counter, first.counter - 1)
        return counter

    # -- changes

    def ask(self, asked: Asked, done: ChangesTold) -> None:
        """Tell what has changed; `done` is called once, now or when the journal was read."""
        copy = self._copies.held.get(asked.partition)
        held = copy.maps.get(asked.map) if copy is not None else None
        upto, why = asked.upto, ""
        if held is None:
            done(ChangesSince(asked.after, why="this member has nothing of this map and partition"))
            return
        if copy is self._lane.leading[asked.partition]:
            upto = min(upto, self.heads(asked.map, [asked.partition])[0][asked.partition].counter)
        elif asked.upto_term == 0:
            why = "this member is not the primary, and the term of the last update is not named"
        lineage = held.proven_lineage()
        if asked.after and not _leads_to(lineage, held.counter, asked.after, asked.after_term):
            why = f"update {asked.after} of term {asked.after_term} is not of the history that is held here"
        elif asked.upto_term and not _leads_to(lineage, held.counter, asked.upto, asked.upto_term):
            why = f"update {asked.upto} of term {asked.upto_term} is not held here"
        if why or upto <= asked.after:
            done(ChangesSince(asked.after, why=why))
            return
        tail = held.tail
        if tail is not None and tail.covers(asked.after) and asked.after < tail.end:
            done(_told(asked, tail.some(asked.after, min(upto, tail.end), asked.bytes_max)))
        elif (known := self._known(asked, upto, lineage)) is not None:
            done(known)
        elif self._journal and held.journal != "off":
            self._read(asked, upto, lineage, done)
        else:
            start = held.remembered_from
            done(ChangesSince(asked.after, why=f"changes are remembered here from update {start + 1} on"))

    def _known(self, asked: Asked, upto: int, lineage: Lineage) -> ChangesSince | None:
        """What was read from the journal for the question before; None when that is something else."""
        ahead = self._ahead.pop((asked.map, asked.partition), None)
        if ahead is None or ahead.records[0][1].counter != asked.after + 1:
            return None
        records = ahead.records
        term, last = records[-1]
        if term_of(lineage, last.counter) != term or last.counter > upto:
            return None
        return self._tell(asked, records)

    def _tell(self, asked: Asked, records: list[tuple[int, Record]]) -> ChangesSince:
        """As much of this as fits into an answer; what is left is kept for the next question."""
        told = _told(asked, records)
        rest = records[told.upto - asked.after :]
        assert told.upto >= asked.after, "what was read is not told again (streams/G-4)"
        assert not rest or rest[0][1].counter == told.upto + 1, "what is left follows what is told"
        if rest and told.upto > asked.after:
            while len(self._ahead) >= AHEAD_MAX:
                del self._ahead[next(iter(self._ahead))]
            self._ahead[asked.map, asked.partition] = _Ahead(
                rest, self._copies.held.get(asked.partition), self._out.now_ns
            )
        assert len(self._ahead) <= AHEAD_MAX, "no more is kept ahead than may be"
        return told

    def sweep(self) -> None:
        """Forget what was read ahead for a reader that does not go on, or from a copy that is gone."""
        before_ns = self._out.now_ns - AHEAD_NS
        for key, ahead in list(self._ahead.items()):
            if ahead.since_ns <= before_ns or self._copies.held.get(key[1]) is not ahead.of:
                del self._ahead[key]

    @property
    def ahead_bytes(self) -> int:
        """Bytes that were read from the journal, and not told yet, at about."""
        return sum(size_of(record) for ahead in self._ahead.values() for _, record in ahead.records)

    def _read(self, asked: Asked, upto: int, lineage: Lineage, done: ChangesTold) -> None:
        """Ask the journal for what memory does not hold any more."""
        if len(self._reads) >= READS_MAX:
            done(ChangesSince(asked.after))
            return
        assert upto > asked.after, "something is to be read"
        self._tickets -= 1
        assert self._tickets not in self._reads, "a ticket names one question"
        self._reads[self._tickets] = (asked, lineage, done)
        upto = min(upto, asked.after + JOURNAL_RECORDS)
        self._out.effects.append(
            ReadHistory(
                self._tickets, asked.partition, asked.map, asked.after, upto, JOURNAL_BYTES, patient=True
            )
        )

    def on_history(self, event: HistoryRead) -> None:
        """The journal has answered: what it has, or from where on it would have."""
        asked, lineage, done = self._reads.pop(event.ticket)
        records = event.records
        if records is None:
            since = f"from update {event.since + 1} on" if event.since >= 0 else "no more"
            done(ChangesSince(asked.after, why=f"changes are remembered here {since}"))
            return
        expected = enumerate(records, asked.after + 1)
        right = all(
            record.counter == counter and term_of(lineage, counter) == term
            for counter, (term, record) in expected
        )
        done(
            self._tell(asked, records)
            if right
            else ChangesSince(asked.after, why="the journal tells another history")
        )

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {"reads of history for change streams": len(self._reads)}


def _waits(batch: AckBatch, partition: int, held: MapReplica) -> bool:
    """Whether somebody whom the writers of this map wait for does not hold what the batch has of this partition."""
    if held.journal == "sync" and not batch.on_disk:
        return True
    return any(partition in batch.need.get(member, ()) for member in held.sync)


def _leads_to(lineage: Lineage, counter: int, update: int, term: int) -> bool:
    """Whether updates with this lineage, up to `counter`, have one of this number and term."""
    return 0 < update <= counter and term_of(lineage, update) == term


def term_of(lineage: Lineage, counter: int) -> int:
    """The term of an update; 0 when the lineage does not reach so far back."""
    return next((term for term, start in reversed(lineage) if start < counter), 0)


def _told(asked: Asked, records: Sequence[tuple[int, Record]]) -> ChangesSince:
    """As much of these updates, which follow the one that was read last, as can be told in one answer."""
    known = list(takewhile(_is_known, records))
    if not known:
        return ChangesSince(
            asked.after, why=f"update {asked.after + 1} is older than the map's change stream"
        )
    size = 0
    for at, (_, record) in enumerate(known):
        size += size_of(record)
        if size > asked.bytes_max and at:
            known = known[:at]
            break
    changed = [one for one in known if one[1].change in (Change.SET, Change.REMOVE)]
    term, last = known[-1]
    return ChangesSince(last.counter, changed, term=term)


def _is_known(one: tuple[int, Record]) -> bool:
    """Whether an update tells what it has done to entries, if it has done anything."""
    record = one[1]
    if record.change in (Change.SET, Change.REMOVE):
        return record.time_ms > 0
    return record.change is not Change.CLEAR
