"""A copy that begins with what was there before ends as its source, in whatever order it is told."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations

import pytest
from tests.core.operations.logs import LogState
from tests.sampled_cases import sampled

from holdfast.core.messages import Fill, FillEntries, FillPlan, FillRecords
from holdfast.core.model.ids import MemberId
from holdfast.core.model.records import Change, Record
from holdfast.core.model.sync_request import How
from holdfast.core.primary_backup.staging_replica import StagingReplica
from holdfast.core.state_transfer.content import Content, ContentPart, earlier_updates
from holdfast.core.state_transfer.delta_or_full import Mine, choose
from holdfast.core.store.digest import RangeDigests
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, Replica
from holdfast_lab.sim.ablations.switching import ablated

OWNER = MemberId("owner")
TAIL = 1_000_000


def empty(sequence: int = 0) -> Fill:
    return Fill(0, 5, 1, sequence, False, 0, True, 1, [])


class Primary:
    """One map of a partition, and what a primary does to it."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.copy = PartitionCopy(0, 0)
        self.held = self.copy.open("m")
        self.term = 1
        self.said: list[tuple[int, Record]] = []
        self.keys = [b"%d" % n for n in range(draw.choice([1, 3, 12, 100]))]

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            draw = self.draw
            if draw.random() < 0.05:
                self.term += draw.randint(1, 3)
                self.held.enter(self.term)
            change = draw.choices([Change.SET, Change.REMOVE, Change.EXPIRY, Change.CLEAR], [60, 25, 12, 2])[
                0
            ]
            counter = self.held.counter + 1
            key = draw.choice(self.keys) if change is not Change.CLEAR else b""
            value = b"v%d" % counter if change is Change.SET else b""
            ttl = draw.choice([0, 0, 0, 10_000]) if change in (Change.SET, Change.EXPIRY) else 0
            record = Record("m", counter, change, key, value, ttl)
            self.held.enter(self.term)
            self.held.apply(record, 0)
            self.held.keep(self.term, [record], TAIL)
            self.said.append((self.term, record))


def followed(primary: Primary) -> PartitionCopy:
    """A copy that has followed this primary until now."""
    copy = PartitionCopy(0, 0)
    held = copy.open("m")
    for term, record in primary.said:
        held.enter(term)
        held.apply(record, 0)
        held.keep(term, [record], TAIL)
    return copy


def open_streamed(copy: PartitionCopy, name: str) -> MapReplica:
    """A map with a change stream."""
    held = copy.open(name)
    held.changes = TAIL
    return held


def new_shadow(base: PartitionCopy | None, *, streamed: bool = False) -> StagingReplica:
    staged = StagingReplica(
        OWNER,
        empty(),
        PartitionCopy(0, 0),
        open_streamed if streamed else PartitionCopy.open,
        base,
        TAIL,
    )
    staged.sequence = 0
    return staged


def supplied(primary: Primary, staged: StagingReplica, wanted: How, limit: int) -> Iterator[Fill]:
    """The chunks of a supply, as the source makes them, up to the last; nothing else happens in here."""
    compare = wanted is How.RANGES
    held = primary.held
    demand = staged.demand(compare=compare)
    base = next(iter(demand.maps), None) if wanted is not How.FULL else None
    digests = RangeDigests.digests(held.state.entries) if compare else ()
    choice = choose(Mine(held.proven_lineage(), held.counter, 10_000, 0, digests), base)
    missed = held.tail.since(choice.after) if choice.how is not How.FULL and held.tail is not None else []
    content = Content(
        [ContentPart(held, choice.how, choice.ranges, missed, earlier_updates(held, choice, base))], 0
    )
    sequence = 0
    while (chunk := content.chunk(limit, 0)) is not None:
        sequence += 1
        parts = {"plans": chunk.plans, "records": chunk.records, "earlier": chunk.earlier}
        yield Fill(0, 5, 1, sequence, False, 0, True, 1, chunk.maps, **parts)
    ends = [FillEntries("m", held.counter, lineage=list(held.lineage))]
    yield Fill(0, 5, 1, sequence + 1, True, 0, True, 1, ends)


def run(seed: int, wanted: How) -> str:
    """One supply with writes in between; answers what is wrong in the end."""
    draw = random.Random(f"{seed}/{wanted}")
    primary = Primary(draw)
    primary.write(draw.choice([1, 30, 200]))
    base = followed(primary)
    if wanted is How.RANGES:
        for _ in range(draw.randint(0, 4)):
            _damage(draw, base.maps["m"], primary.keys)
    if wanted is not How.SAME:
        primary.write(draw.randint(0, 60))
    staged = new_shadow(base)
    live = primary.held.counter
    waiting: list[Fill] = []
    chunks = supplied(primary, staged, wanted, draw.choice([40, 400, 10_000]))
    under_way: list[tuple[int, Record]] = []
    done = False
    while not done or waiting or under_way:
        what = draw.random()
        if what < 0.3 and not done:
            primary.write(draw.randint(1, 5))
            under_way += primary.said[live:]
            live = len(primary.said)
        elif what < 0.6 and under_way:
            # Live records may come in any order, and twice.
            at = draw.randrange(len(under_way))
            term, record = under_way[at] if draw.random() < 0.2 else under_way.pop(at)
            staged.take(record, term, 0)
            staged.look()
        elif waiting:
            fill = waiting.pop(0)
            staged.sequence = fill.sequence
            staged.pour(fill, 0)
            if staged.complete and not fill.last and not staged.copy.maps:
                return "complete before the last chunk"
        elif not done:
            waiting.append(next(chunks))
            done = waiting[0].last
    return _differences(primary, staged)


def _damage(draw: random.Random, held: MapReplica, keys: list[bytes]) -> None:
    key = draw.choice(keys)
    if draw.random() < 0.5:
        held.state.drop(key)
    else:
        held.state.store(key, b"rotten", 0, 0, 0, 0)


def _differences(primary: Primary, staged: StagingReplica) -> str:
    held, mine = staged.copy.open("m"), primary.held
    if not staged.complete:
        return "not complete"
    if held.state.entries != mine.state.entries:
        return f"entries differ: {held.state.entries} {mine.state.entries}"
    if held.state.expiries.keys() != mine.state.expiries.keys():
        return "expiries differ"
    if (held.updates, held.proven_lineage()) != (mine.updates, mine.proven_lineage()):
        return f"{held.updates} of {held.lineage}, not {mine.updates} of {mine.lineage}"
    tail = held.tail
    if tail is not None and tail.end == held.counter and tail.since(tail.start) != primary.said[tail.start :]:
        return "its tail tells something else"
    return ""


@pytest.mark.rule("primary_backup/F-1")
@pytest.mark.parametrize("wanted", list(How))
@pytest.mark.parametrize("part", sampled(range(10), 2))
def test_a_shadow_ends_as_its_source(wanted: How, part: int) -> None:
    wrong = [(seed, why) for seed in range(part * 40, part * 40 + 40) if (why := run(seed, wanted))]
    assert wrong == []


@pytest.mark.parametrize("wanted", list(How))
def test_a_shadow_remembers_the_changes_that_its_source_remembers(wanted: How) -> None:
    for seed in range(60):
        draw = random.Random(f"{seed}/{wanted}/changes")
        primary = Primary(draw)
        primary.held.changes = TAIL
        primary.write(draw.choice([1, 30, 200]))
        base = followed(primary)
        base.maps["m"].changes = TAIL
        forgotten = draw.random() < 0.5
        if forgotten:
            base.maps["m"].tail = None
        if wanted is not How.SAME:
            primary.write(draw.randint(0, 60))
        known = len(primary.said)
        staged = new_shadow(base, streamed=True)
        begun = False
        for fill in supplied(primary, staged, wanted, draw.choice([40, 400, 10_000])):
            if not begun and draw.random() < 0.5:
                # The base follows its primary, too: it is further than it was when it was asked.
                follow(base, primary)
            begun = True
            staged.pour(fill, 0)
            primary.write(draw.randint(0, 3) if not fill.last else 0)
            for term, record in primary.said[known:]:
                staged.take(record, term, 0)
            known = len(primary.said)
        staged.look()
        assert _differences(primary, staged) == ""
        tail = staged.copy.maps["m"].tail
        assert tail is not None
        assert tail.since(0) == primary.said, (seed, forgotten)


def follow(copy: PartitionCopy, primary: Primary) -> None:
    """Let a copy of before take what the primary has done since."""
    held = copy.maps["m"]
    for term, record in primary.said[held.counter :]:
        held.enter(term)
        held.apply(record, 0)
        held.keep(term, [record], TAIL)


@ablated("newer-wins")
def test_without_that_rule_a_late_update_undoes_a_newer_one() -> None:
    assert any(run(seed, How.HISTORY) for seed in range(40))


@pytest.mark.rule("primary_backup/F-1")
def test_a_removed_entry_does_not_come_back() -> None:
    """What was missed holds a write of the key; its removal comes live, before, between, or after."""
    base = PartitionCopy(0, 0)
    base.open("m").enter(1)
    base.open("m").apply(Record("m", 1, Change.SET, b"a", b"1"), 0)
    live = [
        Record("m", 4, Change.REMOVE, b"k"),
        Record("m", 5, Change.CLEAR),
        Record("m", 6, Change.SET, b"z", b"6"),
    ]
    missed = [Record("m", 2, Change.SET, b"k", b"2"), Record("m", 3, Change.SET, b"a", b"3")]
    plan = Fill(0, 5, 1, 1, False, 0, True, 1, [], plans=[FillPlan("m", How.HISTORY, 3)])
    told: list[Record | Fill] = [
        *live,
        Fill(0, 5, 1, 2, False, 0, True, 1, [], records=[FillRecords("m", [(1, 2)], missed)]),
    ]
    last = Fill(0, 5, 1, 3, True, 0, True, 1, [FillEntries("m", 6, lineage=[(1, 0)])])
    for order in permutations(told):
        for at in range(len(order) + 1):
            staged = new_shadow(base)
            for item in [*order[:at], plan, *order[at:]]:
                if isinstance(item, Fill) and item is not plan and at > order.index(item):
                    break
                if isinstance(item, Fill):
                    staged.pour(item, 0)
                else:
                    staged.take(item, 1, 0)
            else:
                staged.pour(last, 0)
                assert staged.complete
                assert staged.copy.maps["m"].state.entries == {b"z": b"6"}
            assert base.maps["m"].state.entries == {b"a": b"1"}, "the base is as it was"


@pytest.mark.rule("primary_backup/F-3")
def test_it_is_not_whole_while_an_update_is_missing() -> None:
    base = PartitionCopy(0, 0)
    base.open("m").enter(1)
    base.open("m").apply(Record("m", 1, Change.SET, b"a", b"1"), 0)
    staged = new_shadow(base)
    staged.pour(Fill(0, 5, 1, 1, False, 0, True, 1, [], plans=[FillPlan("m", How.HISTORY, 2)]), 0)
    staged.take(Record("m", 3, Change.SET, b"a", b"3"), 1, 0)
    staged.pour(Fill(0, 5, 1, 2, True, 0, True, 1, [FillEntries("m", 3, lineage=[(1, 0)])]), 0)
    assert not staged.complete
    staged.take(Record("m", 2, Change.SET, b"a", b"2"), 1, 0)
    assert staged.look()
    assert staged.copy.maps["m"].state.entries == {b"a": b"3"}


def test_a_base_of_another_epoch_is_no_base() -> None:
    base = PartitionCopy(0, 0)
    base.open("m").apply(Record("m", 1, Change.SET, b"a", b"1"), 0)
    fill = Fill(0, 5, 1, 0, False, 1, True, 1, [])
    demand = StagingReplica(OWNER, fill, PartitionCopy(0, 1), PartitionCopy.open, base).demand(compare=True)
    assert (demand.epoch, demand.maps) == (0, [])


def log_copy(lines: int) -> PartitionCopy:
    """A copy with a state that has key ranges and is told in pieces, after so many updates."""
    copy = PartitionCopy(0, 0)
    held = copy.services["log"] = Replica("log", LogState())  # type: ignore[type-var, assignment]
    for number in range(lines):
        said(copy, number + 1)
    assert held.counter == lines
    return copy


def said(copy: PartitionCopy, number: int) -> Record:
    """The primary's update with this number, taken here."""
    held = copy.services["log"]
    held.enter(1)
    record = Record("log", number, Change.CALL, b"", b"+line %d" % number)
    held.apply(record, 0)
    held.keep(1, [record], TAIL)
    return record


@pytest.mark.rule("primary_backup/F-5")
@pytest.mark.parametrize("how", [How.RANGES, How.FULL])
@pytest.mark.parametrize("since_asked", [0, 2])
@pytest.mark.parametrize("since_cut", [0, 3])
def test_what_it_begins_with_stays_as_it_was_when_it_was_compared(
    how: How, since_asked: int, since_cut: int
) -> None:
    """A backup goes on following its primary while what differs in it is on its way, and a chunk may be held up."""
    primary, base = log_copy(6), log_copy(6)
    damaged = base.services["log"].state
    assert isinstance(damaged, LogState)
    damaged.lines[2] = b"not what was said"
    staged = StagingReplica(OWNER, empty(), log_copy(0), PartitionCopy.open, base, TAIL)
    staged.sequence = 0
    demand = staged.demand(compare=True)
    assert staged.demand(compare=True) == demand, "it may be asked again"
    held = primary.services["log"]

    def live(count: int) -> None:
        for _ in range(count):
            record = said(primary, held.counter + 1)
            said(base, record.counter)
            staged.take(record, 1, 0)

    live(since_asked)
    if how is How.RANGES:
        # Compared at once, while both stood at the same.
        choice = choose(
            Mine(held.proven_lineage(), 6, 10_000, 0, log_copy(6).services["log"].state.range_digests()),
            demand.maps[0],
        )
        assert choice.ranges == (2,)
        part = ContentPart(held, choice.how, choice.ranges, held.tail.since(6) if held.tail else [])
    else:
        part = ContentPart(held)
    content = Content([part], 0)
    chunks = []
    while (chunk := content.chunk(40, 0)) is not None:
        chunks.append(chunk)
    live(since_cut)
    for sequence, chunk in enumerate(chunks, 1):
        more = {"plans": chunk.plans, "records": chunk.records, "shares": chunk.shares}
        staged.pour(Fill(0, 5, 1, sequence, False, 0, True, 1, chunk.maps, **more), 0)  # type: ignore[arg-type]
    end = FillEntries("log", held.counter, lineage=list(held.lineage))
    staged.pour(Fill(0, 5, 1, len(chunks) + 1, True, 0, True, 1, [end]), 0)
    assert staged.complete
    filled = staged.copy.services["log"]
    assert filled.counter == held.counter
    assert isinstance(filled.state, LogState)
    assert isinstance(held.state, LogState)
    assert filled.state.lines == held.state.lines
