"""The update counter against a plain set of numbers, and against the counter of source 004."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.core.model.source_counter import SourceCounter, ranges_of

from holdfast.core.model import update_counter as counter_module
from holdfast.core.model.update_counter import GAPS_MAX, VERSION, UpdateCounter
from holdfast.errors import CounterBroken, InvariantBroken

NEAR = st.integers(-3, 14)
"""From the low watermark on: where things happen."""
COUNT = st.integers(1, 6)


class AgainstASet(RuleBasedStateMachine):
    """Everything that can be done to a counter, in any order, next to the set of all numbers that are applied."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = UpdateCounter()
        self.applied: set[int] = set()
        self.lwm = 0
        """What the counter said last; it never says less."""

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

    @rule()
    def next(self) -> None:
        if max(self.applied, default=0) > self.watermark:
            with pytest.raises(CounterBroken, match="cannot be applied before"):
                self.counter.next()
        else:
            number = self.counter.next()
            assert number == self.watermark + 1
            self.applied.add(number)

    @rule()
    def restart(self) -> None:
        """Nothing that was applied is forgotten, or handed out again."""
        again = UpdateCounter.decode(self.counter.encode())
        assert (again, again.hwm) == (self.counter, self.counter.hwm)
        self.counter = again

    @invariant()
    def same(self) -> None:
        counter = self.counter
        assert counter.lwm == self.watermark >= self.lwm, "never backwards"
        self.lwm = counter.lwm
        highest = max(self.applied, default=0)
        assert counter.hwm == highest
        assert counter.ranges == ranges_of(self.applied, counter.lwm)
        assert all(start > counter.lwm for start, _ in counter.ranges)
        assert counter.gaps() == ranges_of(set(range(1, highest + 1)) - self.applied, 0)
        assert counter.sequential is (not counter.gaps())
        for number in range(1, highest + 3):
            assert counter.holds(number) is (number in self.applied)


TestAgainstASet = AgainstASet.TestCase
TestAgainstASet.settings = settings(max_examples=settings.default.max_examples, stateful_step_count=40)


@pytest.mark.rule("model/K-2")
@given(st.permutations([(0, 3), (3, 2), (5, 1), (6, 4), (10, 1)]))
def test_any_order_ends_the_same(order: list[tuple[int, int]]) -> None:
    counter = UpdateCounter()
    for done, (start, count) in enumerate(order, 1):
        assert counter.update(start, count)
        assert not counter.update(start, count), "a second time changes nothing"
        assert counter.sequential is (sum(count for _, count in order[:done]) == counter.lwm)
    assert (counter.lwm, counter.hwm, counter.ranges) == (11, 11, [])


@given(st.permutations([(0, 3), (3, 2), (5, 1), (6, 4), (10, 1)]), st.integers(0, 5))
def test_any_order_counts_as_the_source_does(order: list[tuple[int, int]], done: int) -> None:
    counter, source = UpdateCounter(), SourceCounter()
    for start, count in order[:done]:
        counter.update(start, count)
        source.update(start, count)
    assert (counter.lwm, counter.hwm, counter.ranges) == (source.lwm, source.hwm, source.ranges)
    assert counter.gaps() == source.finalise()


def test_outdated_member_proves_no_more_than_it_holds() -> None:
    """Figure 2 of 004: it holds 80 of 100, and gets the missing ones while new ones come."""
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


@pytest.mark.rule("model/K-1", "model/K-3")
def test_number_is_taken_only_above_everything_that_is_applied() -> None:
    counter = UpdateCounter(3)
    assert counter.next() == 4
    counter.update(7, 2)
    assert (counter.lwm, counter.hwm) == (4, 9)
    with pytest.raises(CounterBroken, match="number 10 cannot be applied before those after 4"):
        counter.next()
    assert (counter.lwm, counter.hwm) == (4, 9)
    counter.update(4, 3)
    assert counter.next() == 10


# -- traps


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
    counter.update(5, 2)
    assert str(counter) == "UpdateCounter(lwm=3, hwm=7, ranges=[(5, 2)])"
