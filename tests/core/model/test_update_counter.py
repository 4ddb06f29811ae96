"""The update counter against a plain set of numbers, and the figures of source 004 as far as they are its own."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core.model import update_counter as counter_module
from holdfast.core.model.update_counter import GAPS_MAX, VERSION, UpdateCounter
from holdfast.errors import CounterBroken, InvariantBroken

NEAR = st.integers(-3, 14)
"""From the low watermark on: where things happen."""
COUNT = st.integers(1, 6)


def ranges_of(numbers: set[int], above: int) -> list[tuple[int, int]]:
    """The runs of these numbers above a watermark, as (start, count)."""
    found: list[tuple[int, int]] = []
    for number in sorted(each for each in numbers if each > above):
        if found and sum(found[-1]) == number - 1:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number - 1, 1))
    return found


class AgainstASet(RuleBasedStateMachine):
    """Everything that can be done to a counter, in any order, next to the set of all numbers that are applied."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = UpdateCounter()
        self.applied: set[int] = set()
        self.lwm = 0
        """What the counter said last; it never says less."""
        self.reserved = 0
        """The highest number that was handed out."""
        self.pending: list[tuple[int, int]] = []

    @property
    def watermark(self) -> int:
        number = 0
        while number + 1 in self.applied:
            number += 1
        return number

    @rule(near=NEAR, count=COUNT)
    def update(self, near: int, count: int) -> None:
        start = max(0, self.lwm + near)
        numbers = set(range(start + 1, start + count + 1))
        known = numbers & self.applied
        before = self.counter.copy()
        if known and known != numbers:
            with pytest.raises(CounterBroken, match="known in part"):
                self.counter.update(start, count)
            assert (self.counter, self.counter.hwm) == (before, before.hwm), "what is refused changes nothing"
        else:
            assert self.counter.update(start, count) is (not known)
            self.applied |= numbers

    @rule(count=COUNT)
    def reserve(self, count: int) -> None:
        highest = max(self.applied, default=0)
        start = self.counter.reserve(count)
        assert start >= highest
        assert start >= self.reserved, "no number is handed out twice"
        self.reserved = start + count
        self.pending.append((start, count))

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Of what was handed out, in any order."""
        start, count = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        if not self.applied & set(range(start + 1, start + count + 1)):
            assert self.counter.update(start, count)
            self.applied |= set(range(start + 1, start + count + 1))

    @rule()
    def next(self) -> None:
        if max(self.reserved, max(self.applied, default=0)) > self.watermark:
            with pytest.raises(CounterBroken, match="cannot be applied before"):
                self.counter.next()
        else:
            number = self.counter.next()
            assert number == self.watermark + 1
            self.applied.add(number)

    @rule(near=NEAR)
    def set_absolute(self, near: int) -> None:
        """It may raise what is known, and takes nothing away; it never goes through the middle of what is known."""
        value = max(0, self.lwm + near)
        before = self.counter.copy()
        if value > self.watermark and value in self.applied and value + 1 in self.applied:
            with pytest.raises(CounterBroken, match="within a range"):
                self.counter.set_absolute(value)
            assert (self.counter, self.counter.hwm) == (before, before.hwm)
            return
        assert self.counter.set_absolute(value) is (value > self.watermark)
        self.applied |= set(range(1, value + 1))

    @rule()
    def finalise(self) -> None:
        highest = max(self.applied, default=0)
        missing = set(range(1, highest + 1)) - self.applied
        closed = self.counter.finalise()
        assert {
            number for start, count in closed for number in range(start + 1, start + count + 1)
        } == missing
        assert closed == ranges_of(missing, 0)
        self.applied |= missing
        assert self.counter.hwm == self.counter.lwm == highest
        assert self.counter.finalise() == [], "once"
        self.reserved, self.pending = highest, []  # nothing that was under way will come

    @rule()
    def restart(self) -> None:
        """What was only handed out is void; nothing that was applied is forgotten, or handed out again."""
        again = UpdateCounter.decode(self.counter.encode())
        assert again == self.counter
        assert again.hwm == again.highest_applied == max(self.applied, default=0)
        assert again.reserve(1) >= max(self.applied, default=0)
        self.counter = UpdateCounter.decode(self.counter.encode())
        self.reserved, self.pending = self.counter.hwm, []

    @invariant()
    def same(self) -> None:
        counter = self.counter
        assert counter.lwm == self.watermark >= self.lwm, "never backwards"
        self.lwm = counter.lwm
        highest = max(self.applied, default=0)
        assert counter.highest_applied == highest
        assert counter.hwm == max(highest, self.reserved)
        assert counter.ranges == ranges_of(self.applied, counter.lwm)
        assert all(start > counter.lwm for start, _ in counter.ranges)
        assert counter.gaps() == ranges_of(set(range(1, highest + 1)) - self.applied, 0)
        assert counter.sequential is (not counter.gaps())
        for number in range(1, highest + 3):
            assert counter.holds(number) is (number in self.applied)


TestAgainstASet = AgainstASet.TestCase
TestAgainstASet.settings = settings(max_examples=200, stateful_step_count=40)


@pytest.mark.rule("model/K-2")
@given(st.permutations([(0, 3), (3, 2), (5, 1), (6, 4), (10, 1)]))
def test_any_order_ends_the_same(order: list[tuple[int, int]]) -> None:
    counter = UpdateCounter()
    for done, (start, count) in enumerate(order, 1):
        assert counter.update(start, count)
        assert not counter.update(start, count), "a second time changes nothing"
        assert counter.sequential is (sum(count for _, count in order[:done]) == counter.lwm)
    assert (counter.lwm, counter.hwm, counter.ranges) == (11, 11, [])


# -- the figures of 004


def test_figure_1_a_later_transaction_overtakes() -> None:
    """Two transactions, of three keys and of two; on one backup the second commits first."""
    primary, first, second = UpdateCounter(), UpdateCounter(), UpdateCounter()
    tx1, tx2 = (primary.reserve(3), 3), (primary.reserve(2), 2)
    assert (tx1, tx2, primary.lwm, primary.hwm) == ((0, 3), (3, 2), 0, 5)
    assert primary.update(*tx1)
    assert primary.lwm == 3
    assert primary.update(*tx2)
    assert first.update(*tx2)
    assert (first.lwm, first.ranges) == (0, [(3, 2)]), "neither 5 nor 2"
    # Figure 1, stopped here: what it says after a restart is what it could prove before.
    killed = UpdateCounter.decode(first.encode())
    assert (killed.lwm, killed.ranges, killed.gaps()) == (0, [(3, 2)], [(0, 3)])
    assert first.update(*tx1)
    assert second.update(*tx1)
    assert second.update(*tx2)
    assert first == second == primary
    assert (primary.lwm, primary.hwm, primary.ranges) == (5, 5, [])


def test_figure_2_an_outdated_node_joins() -> None:
    """It holds 80 of 100, and gets the missing ones while new ones come: its watermark says what it can prove."""
    supplier, joining = UpdateCounter(100), UpdateCounter.decode(UpdateCounter(80).encode())
    assert joining.lwm == 80
    for _ in range(5):  # new ones, written to both meanwhile
        number = supplier.next()
        assert joining.update(number - 1)
        assert joining.lwm == 80
    for number in range(81, 101):
        assert not joining.holds(number)
        assert joining.update(number - 1)
    assert joining == supplier
    assert joining.lwm == 105


@pytest.mark.rule("model/K-3")
def test_figure_3_a_transaction_that_never_reached_the_backups() -> None:
    primary, backups = UpdateCounter(), [UpdateCounter(), UpdateCounter()]
    primary.reserve(3)
    tx2 = (primary.reserve(2), 2)
    for backup in backups:
        assert backup.update(*tx2)
        assert (backup.lwm, backup.ranges) == (0, [(3, 2)])
    # The primary fails; nothing of the first will ever come.
    for backup in backups:
        assert backup.finalise() == [(0, 3)]
        assert (backup.lwm, backup.hwm, backup.ranges) == (5, 5, [])
    assert backups[0].reserve(1) == 5, "the new primary goes on after both"


def test_figure_4_prepared_on_one_backup_only() -> None:
    """The range of what is rolled back is applied like any other, and once: whoever writes it down asks the answer."""
    knows, other = UpdateCounter(), UpdateCounter()
    for backup in (knows, other):
        assert backup.update(3, 2)
    written = 0
    for backup in (knows, other, other):  # the request came twice
        written += backup.update(0, 3)
    assert written == 2
    assert knows == other
    assert (knows.lwm, knows.ranges, knows.finalise()) == (5, [], [])
    assert UpdateCounter.decode(knows.encode()) == other, "a restart needs nothing from anybody"


# -- traps


@pytest.mark.rule("model/K-2")
def test_a_range_that_begins_where_everything_ends_is_kept() -> None:
    counter = UpdateCounter()
    counter.update(5, 3)
    assert counter.set_absolute(5)
    assert (counter.lwm, counter.hwm, counter.ranges) == (8, 8, [])


@pytest.mark.rule("model/K-1")
def test_finalising_after_an_absolute_value_goes_not_back() -> None:
    counter = UpdateCounter()
    counter.update(3, 2)
    counter.update(20, 1)
    assert counter.set_absolute(10)
    assert counter.ranges == [(20, 1)]
    assert counter.finalise() == [(10, 10)]
    assert counter.lwm == 21


def test_too_many_gaps_are_told() -> None:
    counter = UpdateCounter()
    for number in range(1, GAPS_MAX + 1):
        counter.update(2 * number)
    assert len(counter.ranges) == GAPS_MAX
    before = counter.copy()
    with pytest.raises(CounterBroken, match=f"more than {GAPS_MAX} gaps after 0"):
        counter.update(2 * GAPS_MAX + 2)
    with pytest.raises(InvariantBroken):
        counter.update(9 * GAPS_MAX, 7)
    assert (counter, counter.hwm) == (before, before.hwm)
    # What makes no new gap is taken: it touches a range, closes a gap, or is known.
    assert counter.update(2 * GAPS_MAX + 1)
    assert not counter.update(2)
    assert counter.update(0), "just above the low watermark"
    assert (counter.lwm, len(counter.ranges)) == (1, GAPS_MAX)
    assert counter.update(1)
    assert (counter.lwm, len(counter.ranges)) == (3, GAPS_MAX - 1)
    assert counter.update(3 * GAPS_MAX)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        UpdateCounter(5).encode()[:-1],
        UpdateCounter(5).encode() + b"\0",
        *map(
            msgspec.msgpack.encode,
            [
                (VERSION + 1, 5, [], []),
                (VERSION, -1, [], []),
                (VERSION, 5, [7], []),
                (VERSION, 5, [5], [1]),
                (VERSION, 5, [3], [1]),
                (VERSION, 5, [7], [0]),
                (VERSION, 5, [7], [-2]),
                (VERSION, 5, [7, 8], [2, 1]),
                (VERSION, 5, [7, 8], [1, 1]),
                (VERSION, 5, [9, 7], [1, 1]),
                (VERSION, 5, ["7"], [1]),
                (VERSION, 5, [2 * number for number in range(3, GAPS_MAX + 4)], [1] * (GAPS_MAX + 1)),
                {"lwm": 5},
            ],
        ),
    ],
)
def test_bytes_that_are_no_counter(data: bytes) -> None:
    with pytest.raises(CounterBroken):
        UpdateCounter.decode(data)


def test_ranges_that_are_none() -> None:
    counter = UpdateCounter(3)
    for start, count in ((0, 0), (-1, 1), (4, -1)):
        with pytest.raises(ValueError, match="is no range"):
            counter.update(start, count)
    with pytest.raises(ValueError, match="cannot be reserved"):
        counter.reserve(0)
    assert counter == UpdateCounter(3) != UpdateCounter(4)
    assert (counter == 3, counter != 3) == (False, True)
    assert counter_module.VERSION == 1, "files hold it"


@pytest.mark.rule("model/K-4")
@pytest.mark.parametrize(("start", "count"), [(4, 3), (6, 2), (9, 2), (11, 3), (7, 9)])
def test_a_range_that_is_known_in_part_is_an_error(start: int, count: int) -> None:
    counter = UpdateCounter(5)
    counter.update(7, 3)
    counter.update(12, 1)
    before = counter.copy()
    with pytest.raises(CounterBroken, match="known in part"):
        counter.update(start, count)
    assert (counter, counter.hwm) == (before, before.hwm)


def test_a_counter_with_as_many_ranges_as_may_be_comes_back_from_its_bytes() -> None:
    counter = UpdateCounter(3)
    for number in range(GAPS_MAX):
        counter.update(5 + 2 * number)
    assert len(counter.ranges) == GAPS_MAX
    assert UpdateCounter.decode(counter.encode()) == counter


def test_it_says_what_it_holds() -> None:
    counter = UpdateCounter(3)
    counter.reserve(9)
    counter.update(5, 2)
    assert str(counter) == "UpdateCounter(lwm=3, hwm=12, ranges=[(5, 2)])"
