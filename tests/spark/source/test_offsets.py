"""Offsets of a change stream, where batches end, and who reads what."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark.source.offsets import (
    BEGINNING,
    At,
    Backlog,
    BadOffset,
    Limit,
    Offset,
    Piece,
    Place,
    ends,
    moved_on,
    pieces,
    shares,
)


def offset(**places: tuple[int, int] | None) -> Offset:
    """`p3=(1, 17)`: partition 3 of map m."""
    named = {("m", int(name[1:])): None if at is None else Place(*at) for name, at in places.items()}
    return Offset("c", ("m",), named)


def behind(rows: int, start: int = 0, since: int = 0) -> Backlog:
    return Backlog(Place(1, start), Place(1, start + rows), since, rows)


def test_an_offset_survives_its_json() -> None:
    one = Offset(
        "c", ("m", "n"), {("m", 0): Place(3, 17), ("m", 11): None, ("n", 2): Place(1, 1)}, first=True
    )
    told = json.loads(json.dumps(one.to_json()))
    assert told == {
        "v": 1,
        "cluster": "c",
        "maps": {"m": {"0": [3, 17], "11": []}, "n": {"2": [1, 1]}},
        "first": True,
    }
    assert Offset.of_json(told) == one
    end = moved_on(one, {("m", 0): Place(3, 18)})
    assert end.began == one.places
    assert Offset.of_json(json.loads(json.dumps(end.to_json()))) == end


@pytest.mark.parametrize(
    ("rows", "counter"), [(0, 40), (7, 47), (10, 50), (11, 1031), (12, 1032), (15, 2003), (16, 2003)]
)
def test_updates_of_a_moved_map_are_counted_without_the_gaps(rows: int, counter: int) -> None:
    """Updates 41 to 50, 1031 to 1032, and 2001 to 2003."""
    told = Backlog(Place(1, 40), Place(3, 2003), 2000, 15, ((50, 1030), (1032, 2000)))
    assert told.counter_after(rows) == counter
    assert ends({("m", 0): told}, Limit(rows)) == ({("m", 0): counter} if rows else {})


def test_a_batch_goes_over_a_gap_without_further_updates() -> None:
    told = Backlog(Place(1, 50), Place(3, 1030), 1030, 0, ((50, 1030),))
    assert ends({("m", 0): told}, Limit()) == {("m", 0): 1030}
    assert ends({("m", 0): told}, Limit(10)) == {("m", 0): 1030}


def test_what_is_at_its_beginning_takes_no_room() -> None:
    assert Offset("c", ("m",), {("m", 5): BEGINNING}).to_json()["maps"] == {"m": {}}
    assert offset().at(("m", 5)) == BEGINNING


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"v": 2}, "version 2"),
        ({"v": 1, "cluster": "c"}, "damaged"),
        ({"v": 1, "cluster": "c", "maps": {"m": {"0": [1]}}}, "damaged"),
        ({"v": 1, "cluster": "c", "maps": {"m": {"x": [1, 2]}}}, "damaged"),
        (17, "version None"),
    ],
)
def test_offsets_that_are_no_offsets_are_refused(told: object, why: str) -> None:
    with pytest.raises(BadOffset, match=why):
        Offset.of_json(told)  # type: ignore[arg-type]


def test_a_batch_tells_what_lies_between_its_offsets() -> None:
    start = offset(p0=(1, 5), p1=None, p2=(1, 7))
    end = offset(p0=(2, 9), p1=(1, 4), p2=(1, 7), p3=(1, 1))
    assert pieces(start, end) == [
        Piece("m", 0, Place(1, 5), Place(2, 9)),
        Piece("m", 1, None, Place(1, 4)),
        Piece("m", 3, BEGINNING, Place(1, 1)),
    ]
    assert pieces(end, end) == []


def test_the_first_batch_begins_where_it_began_the_first_time() -> None:
    # Spark keeps the ends of batches only: asked again, `latest` would be later than the end of the batch.
    first = Offset("c", ("m",), {("m", 0): Place(1, 5)}, first=True)
    end = moved_on(first, {("m", 0): Place(1, 9)})
    later = Offset("c", ("m",), {("m", 0): Place(1, 30)}, first=True)
    assert pieces(later, end) == pieces(first, end) == [Piece("m", 0, Place(1, 5), Place(1, 9))]


def test_the_first_batch_is_told_of_even_if_it_is_empty() -> None:
    first = Offset("c", ("m",), {("m", 0): Place(1, 5)}, first=True)
    end = moved_on(first, {})
    assert end.to_json() != first.to_json()
    assert pieces(first, end) == []
    assert moved_on(end, {}) is end


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (Offset("d", ("m",)), "follows the cluster c, but this is d"),
        (Offset("c", ("m", "n")), r"follows the map\(s\) m, not m, n"),
        (offset(p0=(1, 4)), "do not follow each other"),
        (offset(p0=None), "do not follow each other"),
    ],
)
def test_offsets_of_two_streams_make_no_batch(end: Offset, why: str) -> None:
    with pytest.raises(BadOffset, match=why):
        pieces(offset(p0=(1, 5)), end)


def test_without_a_limit_a_batch_goes_to_the_heads() -> None:
    backlogs: dict[At, Backlog] = {
        ("m", 0): behind(5, 10),
        ("m", 1): behind(0, 3),
        ("m", 2): Backlog(None, Place(1, 7), 0, 4),
    }
    assert ends(backlogs, Limit()) == {("m", 0): 15, ("m", 2): 7}


def test_small_backlogs_are_told_whole_and_the_others_share() -> None:
    backlogs: dict[At, Backlog] = {("m", at): behind(rows) for at, rows in enumerate([1000, 2, 1000, 5])}
    assert ends(backlogs, Limit(27)) == {("m", 0): 10, ("m", 1): 2, ("m", 2): 10, ("m", 3): 5}


def test_nobody_waits_for_ever_under_a_small_limit() -> None:
    done = dict.fromkeys(range(5), 0)
    for _ in range(50):
        backlogs: dict[At, Backlog] = {("m", at): behind(1000, start) for at, start in done.items()}
        for at, counter in ends(backlogs, Limit(2)).items():
            done[at[1]] = counter
    assert sum(done.values()) == 100
    assert max(done.values()) - min(done.values()) <= 10


def test_entries_that_come_first_leave_half_of_the_room_to_changes() -> None:
    backlogs: dict[At, Backlog] = {("m", at): Backlog(None, Place(1, 50), 0, 30) for at in range(4)}
    backlogs["m", 9] = behind(1000)
    # A partition is told whole, and one at least.
    assert ends(backlogs, Limit(10)) == {("m", 0): 50, ("m", 9): 5}
    assert ends(backlogs, Limit(130)) == {("m", 0): 50, ("m", 1): 50, ("m", 9): 70}
    del backlogs["m", 9]
    assert ends(backlogs, Limit(100)) == {("m", 0): 50, ("m", 1): 50, ("m", 2): 50}


def test_a_partition_whose_history_is_gone_goes_on_at_its_head() -> None:
    backlogs: dict[At, Backlog] = {("m", 0): behind(1000, 10, since=500), ("m", 1): behind(1000)}
    assert ends(backlogs, Limit(10, jump=True))["m", 0] == 1010
    assert ends(backlogs, Limit(10))["m", 0] == 15


@given(
    st.dictionaries(st.integers(0, 40), st.tuples(st.integers(0, 500), st.integers(0, 200)), max_size=30),
    st.integers(1, 3000),
)
def test_limits_are_kept_and_used(told: dict[int, tuple[int, int]], rows: int) -> None:
    backlogs: dict[At, Backlog] = {("m", at): behind(count, start) for at, (start, count) in told.items()}
    given_rows = {at: counter - told[at[1]][0] for at, counter in ends(backlogs, Limit(rows)).items()}
    total = sum(count for _, count in told.values())
    assert sum(given_rows.values()) == min(rows, total)
    assert all(0 < got <= told[at[1]][1] for at, got in given_rows.items())
    # Who gets less than another one, by more than the rounding, has nothing left.
    most = max(given_rows.values(), default=0)
    for at, (_, count) in told.items():
        got = given_rows.get(("m", at), 0)
        assert got >= min(count, most - 1)


@given(
    st.lists(st.tuples(st.sampled_from("mn"), st.integers(0, 20), st.integers(1, 5000)), max_size=40),
    st.integers(1, 9),
)
def test_shares_are_even_and_a_partition_has_one_reader(told: list[tuple[str, int, int]], parts: int) -> None:
    rows: dict[At, int] = {(name, partition): count for name, partition, count in told}
    todo = [
        Piece(name, partition, BEGINNING, Place(1, count))
        for (name, partition), count in sorted(rows.items())
    ]
    owners = [f"owner-{partition % 3}" for partition in range(21)]
    found = shares(todo, rows, owners, parts)
    assert sorted((piece.map, piece.partition) for share in found for piece in share) == sorted(rows)
    readers = [{piece.partition for piece in share} for share in found]
    assert sum(map(len, readers)) == len({partition for _, partition in rows})
    assert len(found) <= parts
    assert all(found)
    largest = max(rows.get(("m", at), 0) + rows.get(("n", at), 0) for at in range(21))
    for share in found:
        assert (
            sum(rows[piece.map, piece.partition] for piece in share) <= sum(rows.values()) / parts + largest
        )
