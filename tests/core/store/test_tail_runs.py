"""Packed puts in a tail: kept as they came, then joined into pieces, and dropped in whole pieces."""

from __future__ import annotations

import random

import pytest
from tests.core.store.test_tail import as_changes, records

from holdfast.core.model.records import NOTE_BYTES, PAIR_BYTES, Change, Changes, Puts, Record, pack_puts
from holdfast.core.store.tail import RUNS, Tail, size_of

SIZE = 20
"""Of one put with its lengths."""


def puts(start: int, count: int = 1, size: int = SIZE) -> Puts:
    return pack_puts("m", start, [b"k"] * count, [bytes(size - PAIR_BYTES - 1)] * count)


def changes(start: int, count: int = 1) -> Changes:
    return as_changes([
        Record("m", start + number, Change.SET, b"k", b"v", old=b"old", time_ms=7)
        for number in range(1, count + 1)
    ])  # fmt: skip


def size_of_puts(piece: Puts) -> int:
    return len(piece.sizes) + len(piece.data) + (len(piece.notes) if isinstance(piece, Changes) else 0)


def check(tail: Tail) -> None:
    """The sizes are right, and each piece has updates. Looks at the tail without joining anything."""
    run = sum(map(len, (*tail.run_sizes, *tail.run_data, *tail.run_notes)))
    assert tail.run_bytes == run
    assert tail.run_bytes <= tail.run_most
    pieces = [
        size_of_puts(piece) if isinstance(piece, Puts) else sum(map(size_of, piece)) for piece in tail._pieces
    ]
    assert all(pieces)
    assert tail.size == sum(pieces) + run
    assert tail.size <= tail.limit
    assert [term for term, _ in tail.terms] == sorted({term for term, _ in tail.terms})


def told(tail: Tail) -> list[tuple[int, int]]:
    return [(term, record.counter) for term, record in tail.since(tail.start)]


def pieces(tail: Tail) -> list[int]:
    """Numbers of updates."""
    return [piece.count if isinstance(piece, Puts) else len(piece) for piece in tail._pieces]


@pytest.mark.rule("store/H-1", "store/H-2")
@pytest.mark.parametrize("limit", [10, 300, 3000, 100_000])
@pytest.mark.parametrize("seed", range(12))
def test_a_tail_has_the_last_updates_however_they_came(seed: int, limit: int) -> None:
    """Nothing looks at it in between, so that runs become long."""
    draw = random.Random(f"{seed}/{limit}")
    tail, said = Tail(limit), list[tuple[int, Record]]()
    counter, term = 0, 1
    for _ in range(200):
        count = draw.choice([1, 1, 2, 5])
        match draw.choices(range(5), [12, 3, 2, 1, 1])[0]:
            case 0:
                update = puts(counter, count, draw.choice([SIZE, 100]))
                tail.add_puts(term, update)
                part = update.records()
            case 1:
                update = changes(counter, count)
                tail.add_puts(term, update)
                part = update.records()
            case 2:
                part = records(counter + 1, counter + count)
                tail.add(term, part)
            case 3:
                term += 1
                continue
            case _:
                counter += 2
                said.clear()
                continue
        said += [(term, record) for record in part]
        counter += count
        check(tail)
    if said:
        assert tail.end == counter
        kept = tail.since(tail.start)
        assert kept == said[len(said) - len(kept) :]


def test_puts_are_joined_when_they_are_a_sixteenth_of_the_limit() -> None:
    tail = Tail(RUNS * 5 * SIZE)
    for number in range(5):
        tail.add_puts(1, puts(number))
    assert (pieces(tail), len(tail.run_sizes)) == ([], 5)
    tail.add_puts(1, puts(5))
    assert (pieces(tail), tail.run_sizes, tail.run_bytes) == ([6], [], 0)
    tail.add_puts(1, puts(6))
    assert (pieces(tail), tail.run_bytes) == ([6], SIZE)
    assert tail.terms == [(1, 0)]


def test_a_tail_is_full_with_its_last_byte() -> None:
    """The run is not joined for that."""
    tail = Tail(2 * RUNS * SIZE)
    for number in range(2 * RUNS):
        tail.add_puts(1, puts(number))
    assert (tail.start, tail.size) == (0, tail.limit)
    tail.add_puts(1, puts(2 * RUNS))
    # An eighth are four puts; they go in pieces of three.
    assert (tail.start, tail.end) == (6, 2 * RUNS + 1)


def test_updates_with_and_without_notes_are_pieces_of_their_own() -> None:
    tail = Tail(1_000_000)
    given = [puts(0), changes(1), changes(2), puts(3), puts(4)]
    for update in given:
        tail.add_puts(1, update)
    assert tail.since(0) == [(1, record) for update in given for record in update.records()]
    assert pieces(tail) == [1, 2, 2]
    assert [isinstance(piece, Changes) for piece in tail._pieces] == [False, True, False]


def test_records_follow_the_puts_before_them() -> None:
    tail = Tail(1_000_000)
    tail.add_puts(1, puts(0))
    tail.add(1, records(2, 2))
    tail.add_puts(2, puts(2))
    assert told(tail) == [(1, 1), (1, 2), (2, 3)]
    assert tail.terms == [(1, 0), (2, 2)]


def test_a_new_term_is_noted_once_whatever_its_number() -> None:
    """Its number is that of the update after which the former term began."""
    tail = Tail(1_000_000)
    tail.add_puts(1, puts(3))
    tail.add_puts(3, puts(4))
    tail.add_puts(3, puts(5))
    tail.add_puts(4, puts(6))
    assert tail.terms == [(1, 3), (3, 4), (4, 6)]


def test_puts_of_a_later_stretch_begin_a_new_tail() -> None:
    tail = Tail(1_000_000)
    tail.add_puts(1, puts(0))
    tail.add_puts(1, puts(5))
    check(tail)
    assert (tail.start, told(tail)) == (5, [(1, 6)])


def test_earlier_updates_come_before_puts_that_are_not_joined() -> None:
    tail = Tail(1_000_000)
    tail.add_puts(2, puts(3))
    tail.precede([(1, record) for record in records(1, 3)])
    check(tail)
    assert told(tail) == [(1, 1), (1, 2), (1, 3), (2, 4)]


def test_an_earlier_update_that_does_not_fit_leaves_nothing() -> None:
    tail = Tail(100)
    tail.precede([(1, records(7, 7, 200)[0])])
    assert (tail.start, tail.end, tail.count, tail.terms) == (7, 7, 0, [])


@pytest.mark.rule("store/H-2")
def test_of_records_only_as_many_go_as_an_eighth_takes() -> None:
    """Also if they came in small pieces: 66 where 64 fit, in pieces of three, become 56."""
    (record,) = records(1, 1)
    tail = Tail(64 * size_of(record))
    for last in range(3, 69, 3):
        tail.add(1, records(last - 2, last))
    assert (tail.start, tail.end) == (10, 66)


@pytest.mark.rule("store/H-2")
@pytest.mark.parametrize(("count", "start"), [(4, 7), (5, 5), (6, 5)])
def test_packed_puts_go_in_whole_pieces_up_to_an_eighth_of_the_limit(count: int, start: int) -> None:
    """32 puts fit; with the 33rd five have to go. A piece of four, which is an eighth, goes whole, and so does the next
    one, of three. Larger ones are shortened.
    """
    tail = Tail(32 * SIZE)
    tail.add_puts(1, puts(0, count))
    for first in range(count, 32):
        tail.add_puts(1, puts(first))
    check(tail)
    assert tail.start == 0
    tail.add_puts(1, puts(32))
    check(tail)
    assert (tail.start, tail.end) == (start, 33)


@pytest.mark.rule("store/H-2")
def test_a_piece_of_an_eighth_goes_whole_though_less_has_to_go() -> None:
    """Five puts have to go: a piece of three, and one of four."""
    tail = Tail(32 * SIZE)
    for first in range(3):
        tail.add_puts(1, puts(first))
    tail.add_puts(1, puts(3, 4))
    assert pieces(tail) == [3, 4]
    for first in range(7, 33):
        tail.add_puts(1, puts(first))
    check(tail)
    assert (tail.start, tail.end) == (7, 33)


def test_a_large_piece_is_shortened_by_what_it_has_too_much() -> None:
    """Notes are a part of it only where there are any."""
    for make, each in ((puts, SIZE), (changes, PAIR_BYTES + 5 + NOTE_BYTES)):
        tail = Tail(32 * each)
        tail.add_puts(1, make(0, 32))
        assert (tail.start, tail.size) == (0, 32 * each)
        tail.add_puts(1, make(32))
        check(tail)
        assert (tail.start, tail.end) == (5, 33)
        assert told(tail) == [(1, counter) for counter in range(6, 34)]


def test_a_large_piece_that_goes_in_whole_leaves_no_empty_one() -> None:
    """Its last put is so large that an eighth takes all of it."""
    tail = Tail(3200)
    tail.add_puts(1, pack_puts("m", 0, [b"k", b"k"], [b"", bytes(2000)]))
    tail.add_puts(1, pack_puts("m", 2, [b"k"], [bytes(1500)]))
    check(tail)
    assert (tail.start, pieces(tail)) == (2, [1])


def test_one_update_above_the_limit_leaves_an_empty_tail() -> None:
    tail = Tail(100)
    tail.add_puts(1, puts(0, size=200))
    assert (tail.start, tail.end, tail.size, pieces(tail)) == (1, 1, 0, [])


def test_a_copy_of_a_tail_continues_by_itself() -> None:
    tail = Tail(1_000_000)
    tail.add_puts(1, puts(0))
    other = tail.copy()
    other.add_puts(2, puts(1))
    tail.add_puts(1, puts(1))
    tail.add_puts(1, puts(2))
    assert (told(tail), told(other)) == ([(1, 1), (1, 2), (1, 3)], [(1, 1), (2, 2)])
    check(tail)
    check(other)
    assert {record.map for _, record in other.since(0)} == {"m"}


@pytest.mark.parametrize("after", range(9))
@pytest.mark.parametrize("upto", range(10))
def test_any_part_of_a_tail_can_be_read(after: int, upto: int) -> None:
    """Puts, records and changes: pieces of one to three updates."""
    tail = Tail(1_000_000)
    tail.add_puts(1, puts(0, 3))
    tail.add(2, records(4, 5))
    tail.add_puts(2, changes(5, 2))
    tail.add_puts(3, puts(7))
    terms = [1, 1, 1, 2, 2, 2, 2, 3]
    expected = [(terms[counter - 1], counter) for counter in range(after + 1, min(max(after, upto), 8) + 1)]
    found = tail.some(after, upto, 1_000_000)
    assert [(term, record.counter) for term, record in found] == expected
