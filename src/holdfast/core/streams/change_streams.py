"""Change streams: the updates of a map in order, as far as this member can report them (`maps.*.changes_bytes`).

An update is reported with its partition, term and counter, the entry's former value, and its time.

- streams/G-1: Only *safe* updates are reported: all members that the writer waits for hold the update, and it is
  durable if the map's journal demands that. So a successor of this primary has it under the same number. Example:
  update 18 is on the primary only. If it were reported, and the primary died, the next primary could write another
  update 18, and the reader would have seen one that does not exist. A primary in office knows what is safe: all that it
  found when it took office (primary_backup/O-1, primary_backup/O-2), and of later updates those that its batches do not
  wait for. Async backups are not waited for. Other members report up to an update that the reader names by its term: it
  was reported as a head before. An applied update of a map in a zone is safe: its log entry is committed.
- streams/G-2: The last safe update is the *head*, reported with its term and the lineage that leads to it. Every copy
  that has an update of this counter and term has the same updates before it (state_transfer/C-1), and can report them.
- streams/G-3: A reader names the last update that it has read, by counter and term. A copy of another history rejects
  it.
- streams/G-4: The answer is complete and in order, from the tail or the journal; or it is empty with the reason. An
  empty answer without a reason may be retried: the next update is not safe yet, or this member is busy.
- streams/G-5: A map that was moved has one history with a gap: updates of the source up to its last one, and updates of
  the target after the last fill (`store.move_marks.stream_lineage`). A reader goes over the gap by itself, from the
  last update before it to the first one after it. Changes before the gap come from retained tails (`retained_changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple, Protocol

from holdfast.config import Settings
from holdfast.core.effects import ReadHistory
from holdfast.core.events import HistoryRead
from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.ids import SECOND
from holdfast.core.model.map_moves import MapMove, StreamSwitch
from holdfast.core.model.records import Change, Record, Recorded
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.ack_batch import AckBatch
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.store.move_marks import stream_lineage, switch_in
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, term_of
from holdfast.core.store.tail import size_of
from holdfast.core.streams.retained_changes import HasCopy, RetainedChanges

JOURNAL_RECORDS = 16_384
JOURNAL_BYTES = 8 << 20
"""Most bytes per read of the journal. A read scans the whole journal, so what was not requested yet is kept."""
AHEAD_MAX = 4
"""Partitions for which such updates are kept."""
AHEAD_NS = 10 * SECOND
"""How long they are kept."""
READS_MAX = 4
"""Concurrent reads of the journal; further requests have to be retried."""

Lineage = Sequence[tuple[int, int]]


OnChanges = Callable[[ChangesSince], None]


@dataclass(frozen=True, slots=True)
class Reach:
    counter: int
    """Counter of the last safe update (streams/G-1)."""
    term: int
    """Its term; 0: there is none."""
    since: int
    """All later changes are in memory here."""
    lineage: list[tuple[int, int]]
    """Terms of the updates up to it, ascending by counter; each from the counter `start + 1` on. Term 0: the gap of a
    map that was moved (streams/G-5).
    """


class _Ahead(NamedTuple):
    records: list[tuple[int, Record]]
    of: PartitionCopy | None
    """The copy at the time of the read."""
    since_ns: int


class CopyFinder(Protocol):
    """Finds copies of both engines, by map and partition."""

    def in_zone(self, name: str) -> bool: ...

    def led(self, name: str, partition: int) -> HasCopy | None: ...

    def held(self, name: str, partition: int) -> HasCopy | None: ...

    def held_in(self, engine: str, partition: int) -> HasCopy | None: ...


class ChangeStreams:
    def __init__(self, settings: Settings, out: Outbox, lane: Lane, *, journal: bool) -> None:
        """`journal`: whether this member has one with older updates. It answers when it is attached."""
        self._settings = settings
        self._out = out
        self._lane = lane
        self._finder: CopyFinder
        self._journal = journal
        self._retained = RetainedChanges(settings.partitions.count)
        self._tickets = 0
        self._ahead: dict[tuple[str, int], _Ahead] = {}
        self._reads: dict[int, tuple[Asked, Lineage, OnChanges]] = {}

    def attach(self, finder: CopyFinder) -> None:
        self._finder = finder

    def streams(self, name: str) -> bool:
        return bool(self._settings.map(name).changes_bytes)

    # -- moves of maps

    def on_moves(self, moves: Mapping[str, MapMove]) -> None:
        """A view with these moves is about to be installed."""
        followed = {name: move for name, move in moves.items() if self.streams(name)}
        self._retained.on_moves(followed, self._finder, self._out.now_ns)

    def is_settled(self, name: str, copy: PartitionCopy) -> bool:
        """Whether all updates of the map in this copy with a primary, which this member is, are safe (streams/G-1)."""
        held = copy.maps.get(name)
        if held is None:
            return True
        return self._safe(copy.partition, held, self._unsent(name).get(copy.partition)) == held.counter

    # -- heads

    def heads(self, name: str, partitions: Iterable[int]) -> tuple[dict[int, Reach], list[int]]:
        """The heads of the partitions that are served here, and the other partitions."""
        unsent = self._unsent(name)
        found: dict[int, Reach] = {}
        moved: list[int] = []
        in_zone = self._finder.in_zone(name)
        for partition in dict.fromkeys(partitions):
            led = self._finder.led(name, partition)
            if led is None:
                moved.append(partition)
                continue
            held = led.copy.maps.get(name)
            if held is None:
                found[partition] = Reach(0, 0, 0, [])
                continue
            counter = held.counter if in_zone else self._safe(partition, held, unsent.get(partition))
            switch = switch_in(led.copy.maps, name)
            if switch is not None and counter < switch.start:
                moved.append(partition)
                continue
            lineage = [
                (term, start) for term, start in stream_lineage(led.copy.maps, name) if start < counter
            ]
            tail = held.tail
            since = tail.start if tail is not None and tail.start <= counter <= tail.end else counter
            if switch is not None:
                since = max(since, switch.start)
            found[partition] = Reach(counter, lineage[-1][0] if lineage else 0, since, lineage)
        return found, moved

    def _unsent(self, name: str) -> dict[int, int]:
        unsent: dict[int, int] = {}
        for partition, of, update in self._lane.unsent:
            if of.name == name and not (isinstance(update, Record) and update.change is Change.CALL):
                unsent.setdefault(partition, _first(update))
        return unsent

    def _safe(self, partition: int, held: MapReplica, unsent: int | None) -> int:
        """The last safe update (streams/G-1). Unsent updates are not in the tail either.

        An older batch may hold newer updates than a younger one: buffers join a batch with the same receivers.
        """
        counter = held.counter if unsent is None else unsent - 1
        if held.unsent is not None:
            counter = min(counter, held.counter - held.unsent.count)
        for batch in self._lane.batches_of(partition):
            if _waits(batch, partition, held):
                first = next((update for of, update in batch.records[partition] if of is held), None)
                if first is not None:
                    counter = min(counter, _first(first) - 1)
        return counter

    # -- changes

    def ask(self, asked: Asked, done: OnChanges) -> None:
        """Report changes; `done` is called once, now or after a read of the journal."""
        retained = self._retained.find(asked)
        if retained is not None:
            done(_answer(asked, retained.some(asked.after, asked.upto, asked.bytes_max)))
            return
        found = self._finder.held(asked.map, asked.partition)
        held = found.copy.maps.get(asked.map) if found is not None else None
        upto, why = asked.upto, ""
        if found is None or held is None:
            done(ChangesSince(asked.after, why="this member has nothing of this map and partition"))
            return
        led = self._finder.led(asked.map, asked.partition)
        if led is not None and led.copy is found.copy:
            upto = min(upto, self.heads(asked.map, [asked.partition])[0][asked.partition].counter)
        elif asked.upto_term == 0:
            why = "this member is not the primary, and the term of the last update is not named"
        lineage, switch = stream_lineage(found.copy.maps, asked.map), switch_in(found.copy.maps, asked.map)
        if asked.after and not _leads_to(lineage, held.counter, asked.after, asked.after_term):
            why = f"update {asked.after} of term {asked.after_term} is not of the history that is held here"
        elif asked.upto_term and not _leads_to(lineage, held.counter, asked.upto, asked.upto_term):
            why = f"update {asked.upto} of term {asked.upto_term} is not held here"
        elif switch is not None and asked.after < switch.start:
            why = _before_move(switch)
        if why or upto <= asked.after:
            done(ChangesSince(asked.after, why=why))
            return
        tail = held.tail
        if tail is not None and tail.covers(asked.after) and asked.after < tail.end:
            done(_answer(asked, tail.some(asked.after, min(upto, tail.end), asked.bytes_max)))
        elif (known := self._known(asked, upto, lineage)) is not None:
            done(known)
        elif self._journal and held.journal != "off":
            self._read(asked, upto, lineage, done)
        else:
            start = held.remembered_from
            done(ChangesSince(asked.after, why=f"changes are remembered here from update {start + 1} on"))

    def _known(self, asked: Asked, upto: int, lineage: Lineage) -> ChangesSince | None:
        """Updates left from an earlier read of the journal, if they fit this request."""
        ahead = self._ahead.pop((asked.map, asked.partition), None)
        if ahead is None or ahead.records[0][1].counter != asked.after + 1:
            return None
        records = ahead.records
        term, last = records[-1]
        if term_of(lineage, last.counter) != term or last.counter > upto:
            return None
        return self._answer_from(asked, records)

    def _answer_from(self, asked: Asked, records: list[tuple[int, Record]]) -> ChangesSince:
        """As many updates as fit in an answer; the rest is kept for the next request."""
        answer = _answer(asked, records)
        rest = records[answer.upto - asked.after :]
        assert answer.upto >= asked.after, "what was read is not told again (streams/G-4)"
        assert not rest or rest[0][1].counter == answer.upto + 1, "kept updates follow the answered ones"
        if rest and answer.upto > asked.after:
            while len(self._ahead) >= AHEAD_MAX:
                del self._ahead[next(iter(self._ahead))]
            self._ahead[asked.map, asked.partition] = _Ahead(
                rest, self._copy(asked.map, asked.partition), self._out.now_ns
            )
        assert len(self._ahead) <= AHEAD_MAX, "no more is kept ahead than may be"
        return answer

    def _copy(self, name: str, partition: int) -> PartitionCopy | None:
        found = self._finder.held(name, partition)
        return found.copy if found is not None else None

    def sweep(self) -> None:
        """Drop updates that are no longer requested, or whose copy is gone."""
        before_ns = self._out.now_ns - AHEAD_NS
        self._retained.sweep(self._out.now_ns)
        for key, ahead in list(self._ahead.items()):
            if ahead.since_ns <= before_ns or self._copy(*key) is not ahead.of:
                del self._ahead[key]

    @property
    def ahead_bytes(self) -> int:
        return sum(size_of(record) for ahead in self._ahead.values() for _, record in ahead.records)

    @property
    def retained_bytes(self) -> int:
        return self._retained.bytes

    def _read(self, asked: Asked, upto: int, lineage: Lineage, done: OnChanges) -> None:
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
            self._answer_from(asked, records)
            if right
            else ChangesSince(asked.after, why="the journal tells another history")
        )

    @property
    def leftovers(self) -> dict[str, int]:
        return {"reads of history for change streams": len(self._reads)}


def _waits(batch: AckBatch, partition: int, held: MapReplica) -> bool:
    """Whether a receiver that the writers of this map wait for has not acknowledged the batch for this partition."""
    if held.journal == "sync" and not batch.on_disk:
        return True
    return any(partition in batch.need.get(member, ()) for member in held.sync)


def _first(update: Recorded) -> int:
    return update.counter if isinstance(update, Record) else update.start + 1


def _leads_to(lineage: Lineage, counter: int, update: int, term: int) -> bool:
    """Whether the history up to `counter` has an update of this number and term."""
    return 0 < update <= counter and term_of(lineage, update) == term


def _before_move(switch: StreamSwitch) -> str:
    return (
        f"the map was moved here after update {switch.end}, and goes on from update {switch.start}: changes before the "
        "move are remembered for an hour, by members that had the map then and have not restarted, up to changes_bytes"
    )


def _answer(asked: Asked, records: Sequence[tuple[int, Record]]) -> ChangesSince:
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
    """Whether an update has the data for a report, or changed no entry."""
    record = one[1]
    if record.change in (Change.SET, Change.REMOVE):
        return record.time_ms > 0
    return record.change is not Change.CLEAR
