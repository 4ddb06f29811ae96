"""The tail of the history: one stretch without gaps, of bounded size."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from struct import pack

import msgspec
import pytest
from tests.sampled_cases import sampled

from holdfast.core.model.records import (
    NO_FORMER,
    NOTE,
    PACKED_MOST,
    Change,
    Changes,
    Puts,
    Record,
    as_puts,
    pack_puts,
)
from holdfast.core.store.tail import RECORD_OVERHEAD, RUNS, Tail


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


@pytest.mark.rule("store/H-1")
def test_what_does_not_follow_begins_a_new_stretch() -> None:
    tail = Tail(10_000)
    tail.add(1, records(1, 5))
    tail.add(1, records(7, 8))
    assert (tail.start, tail.end) == (6, 8)
    assert not tail.covers(5)
    tail.add(1, [*records(9, 9), *records(11, 11)])
    assert tail.since(tail.end) == [], "records that do not follow each other tell nothing"
    assert not tail.covers(8)


@pytest.mark.parametrize("seed", sampled(range(50), 2))
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


class Counted(deque[list[Record] | Puts]):
    """Says how many of its pieces were looked at: each is one record."""

    looked = 0

    def __iter__(self) -> Iterator[list[Record] | Puts]:
        for record in super().__iter__():
            self.looked += 1
            yield record

    def __reversed__(self) -> Iterator[list[Record] | Puts]:
        for record in super().__reversed__():
            self.looked += 1
            yield record


def test_some_are_found_from_the_end_that_is_nearer_and_no_others_are_looked_at() -> None:
    tail = Tail(10_000_000)
    said = [(1 + counter // 300, *records(counter, counter)) for counter in range(1, 2001)]
    for term, record in said:
        tail.add(term, [record])
    seen = tail._pieces = Counted(tail._pieces)
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


def told(tail: Tail, after: int) -> list[tuple[int, int]]:
    return [(term, record.counter) for term, record in tail.since(after)]


def with_old(counter: int, old: bytes | None, time_ms: int = 7) -> Record:
    return Record("m", counter, Change.SET, b"k", b"value", old=old, time_ms=time_ms)


def test_it_costs_the_same_whether_records_come_one_by_one_or_together() -> None:
    said = [with_old(1, b"before"), with_old(2, None), with_old(3, b"")]
    together, single = Tail(10_000), Tail(10_000)
    together.add(3, said)
    for record in said:
        single.add(3, [record])
    expected = 3 * (RECORD_OVERHEAD + len(b"k") + len(b"value")) + len(b"before")
    assert (RECORD_OVERHEAD, together.size, single.size) == (160, expected, expected)
    assert told(together, 0) == told(single, 0) == [(3, 1), (3, 2), (3, 3)]


@pytest.mark.rule("store/H-2")
@pytest.mark.parametrize("together", [True, False])
def test_it_is_full_with_its_last_byte_and_then_gives_up_an_eighth(*, together: bool) -> None:
    each = RECORD_OVERHEAD + 1 + 39
    for spare, left in ((0, 16), (1, 14)):
        tail = Tail(16 * each - spare)
        for part in [records(1, 16, 39)] if together else [records(n, n, 39) for n in range(1, 17)]:
            tail.add(1, part)
        assert tail.end == 16
        # An eighth and one byte of the limit is what two records take, or a little more.
        assert (tail.end - tail.start, tail.size) == (left, left * each)


def test_it_gives_up_no_more_than_an_eighth() -> None:
    each = RECORD_OVERHEAD + 1 + 39
    tail = Tail(800 * each)
    tail.add(1, records(1, 801, 39))
    assert (tail.start, tail.end) == (101, 801)


def test_nothing_is_left_of_records_that_do_not_fit_at_all() -> None:
    tail = Tail(0)
    tail.add(1, records(1, 3))
    assert (tail.start, tail.end, tail.size) == (3, 3, 0)


def test_what_is_given_up_takes_its_terms_along() -> None:
    each = RECORD_OVERHEAD + 1 + 39
    tail = Tail(8 * each)
    for term in (1, 2, 3):
        tail.add(term, records(3 * term - 2, 3 * term, 39))
    assert tail.start == 2
    assert told(tail, 2) == [(1, 3), (2, 4), (2, 5), (2, 6), (3, 7), (3, 8), (3, 9)]
    tail.add(3, records(10, 10, 39))
    tail.add(3, records(11, 11, 39))
    assert told(tail, tail.start)[0] == (2, tail.start + 1)


@pytest.mark.parametrize("together", [True, False])
def test_however_long_it_is_kept_up_it_remembers_no_term_of_which_nothing_is_left(*, together: bool) -> None:
    """Its limit counts records: what is remembered besides must not grow with all that ever happened."""
    each = RECORD_OVERHEAD + 1 + 39
    tail, counter = Tail(8 * each), 0
    for term in range(1, 40):
        for _ in range(1 + term % 3):
            part = records(counter + 1, counter + 3, 39)
            counter += 3
            for some in [part] if together else [[one] for one in part]:
                tail.add(term, some)
                assert [kept for kept, _ in tail.terms] == sorted(
                    {kept for kept, _ in told(tail, tail.start)}
                )


def test_what_is_put_before_it_in_parts_of_one_term_costs_one_term() -> None:
    """Each part that a joining copy is told comes before what it has."""
    tail = Tail(100_000)
    tail.add(9, records(31, 31))
    for last in range(30, 0, -10):
        part = range(last - 9, last + 1)
        tail.precede([(1 + counter // 4, *records(counter, counter)) for counter in part])
    assert told(tail, 0) == [(1 + counter // 4, counter) for counter in range(1, 31)] + [(9, 31)]
    assert [term for term, _ in tail.terms] == list(range(1, 10))


def test_a_new_stretch_has_none_of_the_old_one() -> None:
    tail = Tail(10_000)
    tail.add(1, records(1, 5))
    tail.add(1, records(9, 9))
    assert told(tail, 8) == [(1, 9)]
    assert tail.size == RECORD_OVERHEAD + 11
    tail.add(1, records(8, 8))
    assert (tail.start, tail.end, told(tail, 7)) == (7, 8, [(1, 8)])
    tail.add(1, [*records(9, 9), *records(11, 11)])
    assert (tail.start, tail.end, tail.size) == (0, 0, 0)
    tail.add(2, records(1, 1))
    assert told(tail, 0) == [(2, 1)]


def test_what_a_new_primary_does_instead_is_told_under_its_own_term() -> None:
    """Of what the primary before it did last, this copy knew more than the new one: that is void."""
    tail = Tail(10_000)
    tail.add(1, records(1, 5))
    tail.add(2, records(6, 9))
    tail.add(3, records(4, 4))
    assert (tail.start, told(tail, 3)) == (3, [(3, 4)])
    tail.add(3, records(4, 4))
    assert (tail.start, tail.size, told(tail, 3)) == (3, RECORD_OVERHEAD + 11, [(3, 4)]), "once more"


def preceded(limit: int, *earlier: tuple[int, int], terms: tuple[int, ...] = (5,)) -> Tail:
    """What was before updates 4 and on, one of each term: (term, counter)."""
    tail = Tail(limit)
    for number, term in enumerate(terms):
        tail.add(term, records(4 + number, 4 + number))
    tail.precede([(term, records(counter, counter)[0]) for term, counter in earlier])
    return tail


@pytest.mark.parametrize("earlier", [((5, 2), (5, 3)), ((4, 2), (4, 3)), ((3, 2), (4, 3)), ((4, 2), (5, 3))])
@pytest.mark.parametrize("terms", [(5,), (5, 6)])
def test_what_was_before_is_told_with_its_terms(
    earlier: tuple[tuple[int, int], ...], terms: tuple[int, ...]
) -> None:
    tail = preceded(10_000, *earlier, terms=terms)
    after = [(term, 4 + number) for number, term in enumerate(terms)]
    assert (tail.start, tail.end) == (1, 3 + len(terms))
    assert told(tail, 1) == [*earlier, *after]
    assert told(tail, 2) == [earlier[1], *after]
    assert tail.size == (2 + len(terms)) * (RECORD_OVERHEAD + 11)
    last = tail.end
    tail.add(9, records(last + 1, last + 1))
    assert told(tail, 1) == [*earlier, *after, (9, last + 1)]


def test_of_what_was_before_so_much_is_kept_as_fits() -> None:
    each = RECORD_OVERHEAD + 11
    assert preceded(3 * each, (5, 1), (5, 2), (5, 3)).start == 1
    assert preceded(3 * each - 1, (5, 1), (5, 2), (5, 3)).start == 2
    assert preceded(10 * each, (5, 1), (5, 3)).start == 2, "without a gap"
    assert preceded(10 * each, (5, 1), (5, 2)).start == 3


def test_nothing_was_before() -> None:
    tail = Tail(10_000)
    tail.precede([])
    assert (tail.start, tail.end) == (0, 0)
    tail.precede([(1, records(7, 7)[0])])
    assert (tail.start, tail.end, told(tail, 6)) == (6, 7, [(1, 7)])


def test_some_of_them_are_told_up_to_the_first_that_is_too_much() -> None:
    tail = Tail(100_000)
    for counter, size in ((1, 10), (2, 5000), (3, 10)):
        tail.add(1, records(counter, counter, size))
    assert [record.counter for _, record in tail.some(0, 3, 1000)] == [1]
    assert [record.counter for _, record in tail.some(1, 3, 1000)] == [2]
    assert [record.counter for _, record in tail.some(0, 2, 100_000)] == [1, 2]


def test_what_is_too_much_ends_the_search_for_more() -> None:
    tail = Tail(10_000_000)
    for counter in range(1, 101):
        tail.add(1, records(counter, counter, 5000))
    seen = tail._pieces = Counted(tail._pieces)
    assert len(tail.some(0, 100, 10_400)) == 2
    assert seen.looked == 3


def as_changes(part: list[Record]) -> Changes:
    """As compiled code packs the updates of a change stream."""
    return Changes(
        part[0].map,
        part[0].counter - 1,
        b"".join(pack("<2I", len(one.key), len(one.value)) for one in part),
        b"".join(one.key + one.value + (one.old or b"") for one in part),
        b"".join(
            NOTE.pack(
                one.change,
                NO_FORMER if one.old is None else len(one.old),
                one.time_ms,
                one.ttl_ms,
                one.max_idle_ms,
            )
            for one in part
        ),
    )


@pytest.mark.rule("store/H-1")
@pytest.mark.parametrize("seed", sampled(range(50), 2))
def test_columns_and_records_are_remembered_alike(seed: int) -> None:
    """The same updates, as records one way and as columns the other, also in turns, also of a tail that was copied."""
    draw = random.Random(seed)
    limit = draw.choice([0, 500, 5000, 100_000])
    plain, mixed = Tail(limit), Tail(limit)
    handed: list[tuple[Puts, list[Record]]] = []
    counter = term = 0
    for _ in range(60):
        term += draw.random() < 0.1
        counter += draw.random() < 0.03
        count = draw.choice([1, 1, 1, 3, 40])
        part = records(counter + 1, counter + count, draw.choice([0, 10, 100]))
        counter += count
        noted = draw.random() < 0.3
        if noted:
            part = [
                msgspec.structs.replace(record, old=draw.choice([None, b"", b"old"]), time_ms=7, ttl_ms=1)
                for record in part
            ]
        plain.add(term, part)
        if noted:
            changes = as_changes(part)
            assert changes.records() == part
            mixed.add_puts(term, changes)
            handed.append((changes, part))
        elif draw.random() < 0.8:
            puts = as_puts(part)
            assert puts is not None
            assert puts.records() == part
            mixed.add_puts(term, puts)
            handed.append((puts, part))
        else:
            mixed.add(term, part)
        if draw.random() < 0.1:
            kept, copied = mixed.since(mixed.start), mixed.copy()
            copied.add_puts(term + 1, pack_puts("m", copied.end, [b"k"], [b"v"]))
            assert mixed.since(mixed.start) == kept, "a copy goes its own way"
        assert (mixed.end, mixed.count) == (plain.end, mixed.end - mixed.start)
        assert mixed.size <= limit
        # Nearly always packed more of them fit; small pieces go whole (store/H-2).
        assert mixed.start <= plain.start + RUNS
        both = max(mixed.start, plain.start)
        assert mixed.since(both) == plain.since(both)
        after = draw.randint(both, plain.end)
        upto, most = draw.randint(after, plain.end + 3), draw.choice([1, 1000, 100_000])
        assert mixed.some(after, upto, most) == plain.some(after, upto, most)
        assert plain.count == plain.end - plain.start
    assert all(puts.records() == part for puts, part in handed), "what is handed over is not changed"


def test_what_says_more_than_a_key_and_a_value_or_is_long_is_not_packed() -> None:
    more = [
        Record("m", 2, Change.REMOVE, b"k"),
        Record("m", 2, Change.SET, b"k", b"v", 5),
        Record("m", 2, Change.SET, b"k", b"v", 0, 5),
        Record("m", 2, Change.SET, b"k", b"v", 0, 0, 5),
        Record("m", 2, Change.SET, b"k", b"v", request=b"mark"),
        Record("m", 2, Change.SET, b"k", b"v", old=b"old"),
        Record("m", 2, Change.SET, b"k", b"v", time_ms=9),
        Record("m", 2, Change.SET, b"k", b"v" * PACKED_MOST),
    ]
    for one in more:
        assert as_puts([*records(1, 1), one]) is None


@pytest.mark.rule("store/H-2")
@pytest.mark.parametrize(("count", "size"), [(1, 10), (1, 100), (1, 1000), (3, 100), (40, 100), (30, 1000)])
def test_of_packed_stores_small_pieces_go_whole_and_three_quarters_stay(count: int, size: int) -> None:
    limit = 65_536
    tail, handed, shortened = Tail(limit), list[Puts](), 0
    for number in range(12 * limit // (count * size)):
        puts = pack_puts("m", number * count, [b"k"] * count, [bytes(size)] * count)
        handed.append(puts)
        before = tail.size
        tail.add_puts(1, puts)
        assert tail.size <= limit
        if tail.size < before:
            shortened += 1
            assert tail.size > limit - limit // 4
    assert shortened
    assert tail.since(tail.start) == [
        (1, record) for puts in handed for record in puts.records() if record.counter > tail.start
    ]
