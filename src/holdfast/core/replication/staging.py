"""A copy that is being filled: what comes of it, in whatever order, and when it is whole.

- replication/F-1: What the receiver had before is the *base*. A map whose base is a prefix of what the source holds
  starts as a copy of it, and takes what followed in the order of the update counter: the updates that it missed, and
  live ones, each once. What comes before its turn waits. So nothing that is sent late undoes what is newer, and what
  was removed stays removed.
- replication/F-2: Of a map that is sent in full, and of key ranges that are, each entry is the newest that was told of
  it. The source says at which counter the content begins: what was recorded up to it is in the content, or over.
- replication/F-3: It is whole when the last chunk is there, every map has reached the counter that this chunk says, and
  nothing is missing in between.
- replication/F-4: Until the source has said what it sends of a map, live records of it wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum, unique
from itertools import repeat
from typing import Final

from holdfast.core.messages import Fill, FillEntries, FillPlan, FillRecords, FillShare
from holdfast.core.model.ids import MemberId
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.records import Change, Record
from holdfast.core.model.sync_request import Base, Demand, How
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.digest import RangeDigests, range_of
from holdfast.core.store.partition import PartitionCopy
from holdfast.core.store.replica import MapReplica, ServiceReplica
from holdfast.errors import InvariantBroken


class FilledMap:
    """A map's share that is being filled (replication/F-1, replication/F-2).

    Of what is sent whole it knows for each key at which update counter what it holds was so: that of the record that
    told it, or of the chunk. The keys of a chunk are kept as the list they came in, and looked for only when a record
    is not newer than every chunk; so a chunk costs little more than the update of a dictionary.
    """

    __slots__ = (
        "_begins",
        "_chunks",
        "_cleared",
        "_earlier",
        "_early",
        "_in_order",
        "_newest",
        "_ranges",
        "_tail_bytes",
        "_timed",
        "_told",
        "held",
        "how",
    )

    def __init__(self, held: MapReplica, tail_bytes: int) -> None:
        self.held = held
        self.how: How | None = None
        """What is sent of it; None: not known yet."""
        self._tail_bytes = tail_bytes
        self._early: dict[int, tuple[int, Record]] = {}
        """Records that wait for their turn, with their terms."""
        self._earlier: list[tuple[int, Record]] = []
        """Updates that what it begins with tells the outcome of: for change streams, and nothing else."""
        self._in_order = False
        self._begins = 0
        """The map's update counter when the content was taken."""
        self._ranges: frozenset[int] | None = None
        """Which key ranges are sent whole; None: all, or (in order) none."""
        self._told: dict[bytes, int] = {}
        self._timed: dict[bytes, Record] = {}
        """New times to live, which count also for a value that is told later and is older."""
        self._chunks: list[tuple[int, list[bytes]]] = []
        self._newest = 0
        """The highest update counter of any chunk."""
        self._cleared = 0

    def begin(self, plan: FillPlan, base: MapReplica | None, now_ns: int) -> None:
        """This is what will be sent."""
        self.how = plan.how
        if plan.how is How.FULL:
            self._begins = plan.counter
            self.held.updates = UpdateCounter(plan.counter)
        elif base is None:
            raise InvariantBroken(f"map {plan.map} is to be filled from a base that is not held")
        else:
            self._in_order = True
            self.held.start_from(base)
            if plan.how is How.RANGES:
                self._begins = plan.counter
                self._ranges = frozenset(plan.ranges)
                for key in [key for key in self.held.state.entries if range_of(key) in self._ranges]:
                    self.held.state.drop(key)
        early, self._early = self._early, {}
        for _, (term, record) in sorted(early.items()):
            self.take(record, term, now_ns)

    # -- content

    def pour(self, part: FillEntries, now_ns: int) -> None:
        """Take entries as they were when the map's counter stood where the chunk says."""
        held, keys, counter = self.held, part.keys, part.counter
        if counter < self._cleared:
            return
        self._chunks.append((counter, keys))
        self._newest = max(self._newest, counter)
        told, timed = self._told, self._timed
        newer = {key for key in keys if told.get(key, 0) > counter} if told else ()
        plain = (
            not held.state.expiries
            and not timed
            and not (part.ttls_ms or part.max_idles_ms or part.key_hashes)
        )
        if plain and not newer:
            held.state.entries.update(zip(keys, part.values, strict=True))
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
            if key in newer:
                continue
            held.state.store(key, value, ttl_ms, max_idle_ms, key_hash, now_ns)
            later = timed.get(key)
            if later is not None and later.counter > counter:
                held.state.schedule(key, later.ttl_ms, later.max_idle_ms, now_ns)

    # -- records

    def take(self, record: Record, term: int, now_ns: int) -> None:
        """Take a record of this term: one that was missed, or a live one."""
        held, counter = self.held, record.counter
        if self.how is None:
            self._early[counter] = (term, record)
        elif not self._in_order:
            if counter > self._begins and not held.updates.holds(counter):
                self._do(record, term, now_ns)
        elif counter > held.counter:
            self._early[counter] = (term, record)
            while (turn := self._early.pop(held.counter + 1, None)) is not None:
                self._do(turn[1], turn[0], now_ns)

    def _do(self, record: Record, term: int, now_ns: int) -> None:
        held = self.held
        held.enter(term)
        if record.change is Change.CLEAR:
            self._clear(record.counter)
        elif record.change is Change.PIN:
            pass  # nothing changes, and who is being filled keeps no cut
        elif not self._whole(record.key):
            held.state.apply(record, now_ns)
        elif self._is_new(record.key, record.counter):
            self._change(record, now_ns)
        held.updates.update(record.counter - 1)
        held.keep(term, [record], held.changes or self._tail_bytes)

    def _whole(self, key: bytes) -> bool:
        """Whether the key is of what is sent whole."""
        return not self._in_order or (self._ranges is not None and range_of(key) in self._ranges)

    def _change(self, record: Record, now_ns: int) -> None:
        key = record.key
        self.held.state.apply(record, now_ns)
        if record.change is Change.EXPIRY:
            # The value may be on its way: what is told of it counts as it is, with this time to live.
            self._timed[key] = record
            return
        self._told[key] = record.counter
        later = self._timed.get(key)
        if later is not None and later.counter > record.counter:
            self.held.state.apply(later, now_ns)

    def _is_new(self, key: bytes, counter: int) -> bool:
        """Whether what is said of a key at this counter is not older than what is known."""
        if counter <= self._begins or counter < self._cleared or counter < self._told.get(key, 0):
            return False
        if counter >= self._newest:
            return True
        return not any(counter < later and key in keys for later, keys in self._chunks)

    def _clear(self, counter: int) -> None:
        later = {key for at, keys in self._chunks if at >= counter for key in keys}
        for key in list(self.held.state.entries):
            if self._told.get(key, 0) < counter and key not in later:
                self.held.state.drop(key)
        self._cleared = max(counter, self._cleared)

    def take_earlier(self, record: Record, term: int) -> None:
        """Take an update of before, for change streams."""
        if self.held.changes:
            self._earlier.append((term, record))

    # -- the end

    def stands_at(self, part: FillEntries) -> None:
        """The last chunk has come, and tells of these terms."""
        self.held.lineage = list(part.lineage)
        earlier, self._earlier = self._earlier, []
        self.held.keep_earlier(earlier)

    def reached(self, counter: int) -> bool:
        """Whether every update up to this number is held, and none is missing before one that is (replication/F-3)."""
        return self.held.counter >= counter and self.held.updates.sequential and not self._early


class FilledShare:
    """A service's share that is being filled: by its pieces, or, beginning with what is held already, by the updates
    that were missed. What comes after the moment that either tells of waits for the last of them.
    """

    __slots__ = ("_early", "_tail_bytes", "_upto", "_whole", "held")

    def __init__(self, held: ServiceReplica, tail_bytes: int) -> None:
        self.held = held
        self._tail_bytes = tail_bytes
        self._early: dict[int, tuple[int, Record]] = {}
        """Records that wait for their turn, with their terms."""
        self._upto = 0
        """Up to which number missed updates are sent; 0: pieces are."""
        self._whole = False

    def begin(self, plan: FillPlan, base: ServiceReplica | None, now_ns: int) -> None:
        """Missed updates will be sent, up to where the plan says."""
        if base is None:
            raise InvariantBroken(f"{plan.map} is to be filled from a base that is not held")
        self.held.start_from(base)
        self._upto, self._whole = plan.counter, True
        self._go_on(now_ns)

    def pour(self, part: FillShare, now_ns: int) -> None:
        """Take the next pieces."""
        for piece in part.pieces:
            self.held.state.share.receive(piece)
        if part.whole:
            self._whole = True
            self.held.updates = UpdateCounter(part.counter)
            self.held.lineage = list(part.lineage)
            self._go_on(now_ns)

    def take(self, record: Record, term: int, now_ns: int) -> None:
        """Take a record of this term, one that was missed or a live one: in its turn, and once."""
        self._early[record.counter] = (term, record)
        if self._whole:
            self._go_on(now_ns)

    def _go_on(self, now_ns: int) -> None:
        held = self.held
        while (turn := self._early.pop(held.counter + 1, None)) is not None:
            term, record = turn
            held.enter(term)
            held.apply(record, now_ns)
            held.keep(term, [record], self._tail_bytes)
        for counter in [counter for counter in self._early if counter <= held.counter]:
            del self._early[counter]

    @property
    def reached(self) -> bool:
        """Whether its pieces are there, and no update before one that has come is missing."""
        return self._whole and not self._early and self.held.counter >= self._upto


@unique
class StagingPhase(StrEnum):
    """How far a copy is that is being filled."""

    FILLING = "filling"
    """Something of it is still to come (replication/F-3)."""
    WRITING = "writing"
    """It is whole; what must survive a power cut is on its way to the disk."""
    NO_ROOM = "no room"
    """It is whole, and the disk had no room for it."""
    HELD = "held"
    """It counts: it is whole, and durable where it must be."""
    OVER = "over"
    """It is this member's copy now, or has been dropped."""


@unique
class StagingStep(StrEnum):
    """What brings a copy further that is being filled."""

    WHOLE = "nothing is missing any more"
    WRITTEN = "the disk has it"
    FULL = "the disk has no room"
    AGAIN = "a moment later"
    TAKEN = "it becomes the copy of its partition"
    DROPPED = "a row, its source or a newer supply ends it"


_P, _S = StagingPhase, StagingStep
STAGING: Final[Lifecycle[StagingPhase, StagingStep]] = Lifecycle(
    "a staging replica",
    _P.FILLING,
    {
        (_P.FILLING, _S.WHOLE): _P.WRITING,
        (_P.WRITING, _S.WRITTEN): _P.HELD,
        (_P.WRITING, _S.FULL): _P.NO_ROOM,
        (_P.NO_ROOM, _S.AGAIN): _P.WRITING,
        (_P.HELD, _S.TAKEN): _P.OVER,
        **{(phase, _S.DROPPED): _P.OVER for phase in _P if phase is not _P.OVER},
    },
)


class StagingReplica:
    """A copy that is being filled: chunks of content and live records, in whatever order they come."""

    __slots__ = (
        "_base",
        "_base_shares",
        "_ends",
        "_last",
        "_maps",
        "_open",
        "_planned",
        "_shares",
        "_tail_bytes",
        "base_epoch",
        "copy",
        "joining",
        "phase",
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
        open_map: Callable[[PartitionCopy, str], MapReplica],
        base: PartitionCopy | None = None,
        tail_bytes: int = 0,
    ) -> None:
        """`base`: what is held of the partition already; it may go on changing, as a copy that follows its primary."""
        self._open = open_map
        self._tail_bytes = tail_bytes
        self.source = source
        self.ticket = fill.ticket
        self.version = fill.version
        self.joining = fill.joining
        self.copy = copy
        self.sequence = -1
        self.phase = STAGING.begins
        self.base_epoch = base.epoch if base is not None else copy.epoch
        usable = base is not None and base.epoch == copy.epoch
        self._base = dict(base.maps) if base is not None and usable else {}
        self._planned = False
        self._last = False
        self._ends: list[tuple[str, int]] = []
        """The maps of the last chunk, and the counters that they are to reach."""
        self._maps: dict[str, FilledMap] = {}
        self._shares = {name: FilledShare(held, tail_bytes) for name, held in copy.services.items()}
        self._base_shares = dict(base.services) if base is not None and usable else {}

    def step(self, step: StagingStep) -> None:
        """Go on to the next phase. Raises InvariantBroken when it has none by this step."""
        self.phase = STAGING.after(self.phase, step)

    @property
    def complete(self) -> bool:
        """Whether it is whole (replication/F-3)."""
        return self.phase in (StagingPhase.WRITING, StagingPhase.NO_ROOM, StagingPhase.HELD)

    @property
    def durable(self) -> bool:
        """Whether it is, and what must survive a power cut is on the disk."""
        return self.phase is StagingPhase.HELD

    def demand(self, *, compare: bool) -> Demand:
        """What there is to begin with; to compare also the digests of its key ranges, counted anew."""
        maps = []
        for name, held in self._base.items():
            highest = held.updates.highest_applied
            lineage = [(term, start) for term, start in held.lineage if start < highest]
            digests = RangeDigests.digests(held.state.entries) if compare else []
            remembered = held.remembered_from if held.changes else -1
            maps.append(Base(name, lineage, held.counter, highest, digests, remembered))
        for name, share in self._base_shares.items():
            highest = share.updates.highest_applied
            lineage = [(term, start) for term, start in share.lineage if start < highest]
            maps.append(Base(name, lineage, share.counter, highest))
        return Demand(self.base_epoch, maps)

    def _map(self, name: str) -> FilledMap:
        found = self._maps.get(name)
        if found is None:
            held = self._open(self.copy, name)
            found = self._maps[name] = FilledMap(held, self._tail_bytes)
            if self._planned:
                # Nothing was said of it: it has come into being since.
                found.how = How.FULL
        return found

    def pour(self, fill: Fill, now_ns: int) -> None:
        """Take a chunk."""
        if fill.sequence == 1:
            self._plan(fill.plans, now_ns)
        for part in fill.maps:
            if part.keys:
                self._map(part.map).pour(part, now_ns)
        for missed in fill.records:
            filled = self._shares.get(missed.map) or self._map(missed.map)
            for term, record in _with_terms(missed):
                filled.take(record, term, now_ns)
        for missed in fill.earlier:
            told = self._map(missed.map)
            for term, record in _with_terms(missed):
                told.take_earlier(record, term)
        for share in fill.shares:
            self._shares[share.service].pour(share, now_ns)
        if fill.last:
            self._end(fill)
        self.look()

    def _plan(self, plans: list[FillPlan], now_ns: int) -> None:
        self._planned = True
        for plan in plans:
            share = self._shares.get(plan.map)
            if share is not None:
                share.begin(plan, self._base_shares.get(plan.map), now_ns)
            else:
                self._map(plan.map).begin(plan, self._base.get(plan.map), now_ns)
        planned = {plan.map for plan in plans}
        for name, filled in self._maps.items():
            if name not in planned:
                filled.begin(FillPlan(name, How.FULL, 0), None, now_ns)
        self._base, self._base_shares = {}, {}

    def _end(self, fill: Fill) -> None:
        """The last chunk: what the maps that are left stand at."""
        self._last = True
        self.copy.requests.merge(fill.requests)
        for part in fill.maps:
            self._map(part.map).stands_at(part)
            self._ends.append((part.map, part.counter))

    def take(self, record: Record, term: int, now_ns: int) -> None:
        """Take a live record of this term."""
        self.copy.requests.note(record.request)
        if record.change is not Change.CALL:
            self._map(record.map).take(record, term, now_ns)
        elif record.map in self._shares:
            self._shares[record.map].take(record, term, now_ns)

    def look(self) -> bool:
        """Look whether it has become whole, after a chunk or records."""
        whole = (
            self._last
            and all(self._maps[name].reached(counter) for name, counter in self._ends)
            and all(share.reached for share in self._shares.values())
        )
        if whole and self.phase is StagingPhase.FILLING:
            self.step(StagingStep.WHOLE)
        return self.complete


def _with_terms(part: FillRecords) -> Iterator[tuple[int, Record]]:
    """The updates of a chunk, with their terms."""
    at = 0
    for term, count in part.runs:
        for record in part.records[at : at + count]:
            yield term, record
        at += count
