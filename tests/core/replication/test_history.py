"""The tail of the history: one stretch without gaps, of bounded size."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

import pytest

from holdfast.core.replication.history import RECORD_OVERHEAD, Tail
from holdfast.core.store.partition import Change, Record


def records(first: int, last: int, size: int = 10) -> list[Record]:
    return [Record("m", counter, Change.SET, b"k", b"v" * size) for counter in range(first, last + 1)]


def test_it_tells_what_came_after_a_number_with_the_terms() -> None:
    tail = Tail(10_000)
    tail.add(3, records(5, 6))
    tail.add(8, records(7, 7))
    assert [(term, record.counter) for term, record in tail.since(4)] == [(3, 5), (3, 6), (8, 7)]
    assert [(term, record.counter) for term, record in tail.since(6)] == [(8, 7)]
    assert tail.since(7) == []
    assert [tail.covers(after) for after in (3, 4, 7, 8)] == [False, True, True, False]


def test_what_does_not_follow_begins_a_new_stretch() -> None:
    tail = Tail(10_000)
    tail.add(1, records(1, 5))
    tail.add(1, records(7, 8))
    assert (tail.start, tail.end) == (6, 8)
    assert not tail.covers(5)
    tail.add(1, [*records(9, 9), *records(11, 11)])
    assert tail.since(tail.end) == [], "records that do not follow each other tell nothing"
    assert not tail.covers(8)


@pytest.mark.parametrize("seed", range(50))
def test_it_holds_the_last_updates_that_fit_and_no_others(seed: int) -> None:
    draw = random.Random(seed)
    limit = draw.choice([0, 200, 5000, 100_000])
    tail = Tail(limit)
    said: list[tuple[int, Record]] = []
    counter = 0
    for term in range(1, 40):
        count = draw.choice([1, 1, 2, 300])
        part = records(counter + 1, counter + count, draw.choice([0, 100, 3000]))
        counter += count
        tail.add(term, part)
        said += [(term, record) for record in part]
        assert tail.size <= limit
        assert tail.end == counter
        assert tail.since(tail.start) == said[tail.start :]
    if limit:
        largest = max(len(record.value) + 1 + RECORD_OVERHEAD for _, record in said)
        assert tail.size > limit - limit // 8 - largest


class Counted(deque[Record]):
    """Says how many of its records were looked at."""

    looked = 0

    def __iter__(self) -> Iterator[Record]:
        for record in super().__iter__():
            self.looked += 1
            yield record

    def __reversed__(self) -> Iterator[Record]:
        for record in super().__reversed__():
            self.looked += 1
            yield record


def test_some_are_found_from_the_end_that_is_nearer_and_no_others_are_looked_at() -> None:
    tail = Tail(10_000_000)
    said = [(1 + counter // 300, *records(counter, counter)) for counter in range(1, 2001)]
    for term, record in said:
        tail.add(term, [record])
    seen = tail._records = Counted(tail._records)
    for after in (0, 1, 700, 1300, 1990, 1999, 2000):
        for upto, bytes_max in ((after + 1, 1), (after + 5, 10_000), (2000, 1000), (2000, 10_000_000)):
            seen.looked = 0
            found = tail.some(after, upto, bytes_max)
            most = min(upto - after, max(1, bytes_max // (RECORD_OVERHEAD + 11)))
            assert found == said[after : after + most]
            assert seen.looked <= len(found) + min(after + 2, 2000 - after) + 1
    for after in (0, 700, 1999):
        seen.looked = 0
        assert tail.since(after) == said[after:]
        assert seen.looked == len(said) - after or after == 700


def test_what_does_not_end_where_the_tail_begins_is_not_put_before_it() -> None:
    for earlier in (records(1, 3), records(1, 5), records(1, 9)):
        tail = Tail(10_000)
        tail.add(2, records(5, 8))
        tail.precede([(1, record) for record in earlier])
        assert (tail.start, tail.end) == (4, 8), "told as it was"
        assert [(term, record.counter) for term, record in tail.since(4)] == [(2, n) for n in range(5, 9)]
        assert tail.size == 4 * (RECORD_OVERHEAD + 11)


def test_a_copy_goes_its_own_way() -> None:
    tail = Tail(10_000)
    tail.add(1, records(1, 2))
    other = tail.copy()
    tail.add(1, records(3, 3))
    assert (other.end, len(other.since(0))) == (2, 2)
    other.add(2, records(3, 4))
    assert [term for term, _ in tail.since(0)] == [1, 1, 1]


@pytest.mark.parametrize("limit", [900, 100_000])
def test_what_was_before_is_put_before_it_as_far_as_it_fits(limit: int) -> None:
    said = [(1 + counter // 7, *records(counter, counter)) for counter in range(1, 31)]
    for split in range(1, 30):
        tail = Tail(limit)
        for term, record in said[split:]:
            tail.add(term, [record])
        tail.precede(said[:split])
        assert tail.since(tail.start) == said[tail.start :]
        assert tail.end == 30
        assert tail.size <= limit
        assert (tail.start == 0) is (limit > 10_000)
        assert limit - tail.size < limit // 8 + 2 * (RECORD_OVERHEAD + 11) or tail.start == 0
    tail = Tail(limit)
    tail.precede(said[:3])
    assert (tail.start, tail.end) == (0, 3)
    tail.precede([])
    tail.precede(said[5:9])
    assert tail.since(0) == said[:3], "what does not end where it begins is left out"


def test_old_values_count() -> None:
    tail, plain = Tail(100_000), Tail(100_000)
    plain.add(1, records(1, 4))
    changed = [Record("m", n, Change.SET, b"k", b"v" * 10, old=b"o" * 50, time_ms=9) for n in range(1, 5)]
    tail.add(1, changed[:1])
    tail.add(1, changed[1:2])
    tail.add(1, changed[2:])
    assert tail.size == plain.size + 200
    shrunk = Tail(tail.size - 1)
    shrunk.add(1, changed)
    assert shrunk.size % (tail.size // 4) == 0


def test_some_are_told_until_they_are_too_many() -> None:
    tail = Tail(100_000)
    tail.add(1, records(1, 20))
    one = RECORD_OVERHEAD + 11
    assert [record.counter for _, record in tail.some(4, 20, 3 * one)] == [5, 6, 7]
    assert [record.counter for _, record in tail.some(4, 6, 1000 * one)] == [5, 6]
    assert [record.counter for _, record in tail.some(4, 20, 1)] == [5]
