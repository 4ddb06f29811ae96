"""Where partitions belong by rendezvous: fixed vectors, and what the function promises.

The vectors of `VECTORS` were computed by `plain_row` below, which is written from the published function alone and
shares no code with the members: the rank of a member for a partition is a 64-bit hash of its consistent id and the
partition; the lowest one is the primary, the next ones are the backups, and of equal ranks the lower node id comes
first (source 004, affinity function). The hash is the first half of MurmurHash3_x64_128 with seed 0 over the text
`CONSISTENT_ID/PARTITION`; `plain_murmur` is its published definition, byte by byte.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.partition_table import survivors
from holdfast.core.model.views import MemberInfo
from holdfast.core.placement.affinity import first_ranked, layout_of, rank, ranking, rendezvous
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.placement.planner import plan, rotations

MASK = (1 << 64) - 1

PARTITIONS = (0, 1, 2, 3, 4, 5, 6, 7, 270)
VECTORS = {
    ("A", "B", "C"): "012 120 102 210 120 201 201 102 102",
    ("one", "two", "three", "four", "five"): "32104 34012 04231 24130 34210 20413 40213 43021 30421",
    ("10.0.0.1:5701", "a" * 40, "ä"): "120 021 012 021 210 102 201 102 102",
}
"""Consistent ids -> for each of `PARTITIONS` their places in the list, the primary's first."""
HASHES = {"one/0": 0x5CDD1C29D8EDBA67, "a-name-of-more-than-sixteen/270": 0x263A37F5E6B38AA2}

NAMES = st.lists(st.text("abc0", min_size=1, max_size=3), min_size=1, max_size=7)
"""Consistent ids; some may be the same."""
GROUPS = st.lists(st.sampled_from(["", "", "x", "y", "z"]), min_size=7, max_size=7)


def plain_murmur(data: bytes) -> int:
    """The first 64 bits of MurmurHash3_x64_128 with seed 0, as Austin Appleby published it."""

    def turned(word: int, by: int) -> int:
        return (word << by | word >> (64 - by)) & MASK

    def mixed(word: int) -> int:
        word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & MASK
        word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & MASK
        return word ^ word >> 33

    first, second = 0x87C37B91114253D5, 0x4CF5AD432745937F
    low = high = 0
    whole = len(data) // 16 * 16
    for place in range(0, whole, 16):
        one = int.from_bytes(data[place : place + 8], "little")
        two = int.from_bytes(data[place + 8 : place + 16], "little")
        low ^= turned(one * first & MASK, 31) * second & MASK
        low = ((turned(low, 27) + high) * 5 + 0x52DCE729) & MASK
        high ^= turned(two * second & MASK, 33) * first & MASK
        high = ((turned(high, 31) + low) * 5 + 0x38495AB5) & MASK
    rest = data[whole:]
    two = int.from_bytes(rest[8:], "little")
    high ^= turned(two * second & MASK, 33) * first & MASK
    one = int.from_bytes(rest[:8], "little")
    low ^= turned(one * first & MASK, 31) * second & MASK
    low ^= len(data)
    high ^= len(data)
    low = (low + high) & MASK
    high = (high + low) & MASK
    low, high = mixed(low), mixed(high)
    return (low + high) & MASK


def plain_row(partition: int, members: list[Candidate], replicas: int) -> ReplicaList:
    """Sort all by rank and node id; take the first of each group, until there are enough."""
    ranks = sorted(
        (plain_murmur(f"{m.consistent_id or m.uuid}/{partition}".encode()), m.uuid) for m in members
    )
    groups = {m.uuid: m.group or m.uuid for m in members}
    row: list[str | None] = []
    used: list[str] = []
    for _, uuid in ranks:
        if groups[uuid] not in used and len(row) < replicas:
            used.append(groups[uuid])
            row.append(uuid)
    return (*row, *[None] * (replicas - len(row)))


def members(names: list[str], groups: list[str]) -> list[Candidate]:
    """Members with these consistent ids; the UUIDs are in another order than the names."""
    return [
        Candidate(f"u{(number * 5) % 7}", group, name)
        for number, (name, group) in enumerate(zip(names, groups, strict=False))
    ]


@pytest.mark.rule("placement/A-1")
def test_the_function_is_the_published_one_in_every_release() -> None:
    for names, told in VECTORS.items():
        here = [Candidate(f"uuid-{number}", "", name) for number, name in enumerate(names)]
        rows = [first_ranked(partition, here, len(names)) for partition in PARTITIONS]
        assert [tuple(f"uuid-{place}" for place in row) for row in told.split()] == rows
        assert rows == [plain_row(partition, here, len(names)) for partition in PARTITIONS]
    for text, number in HASHES.items():
        name, _, partition = text.partition("/")
        assert rank(name, int(partition)) == number == plain_murmur(text.encode())


@pytest.mark.rule("placement/A-2")
@given(NAMES, GROUPS, st.integers(0, 65_535), st.integers(1, 7))
def test_a_row_is_the_first_of_the_ranking_that_are_of_different_groups(
    names: list[str], groups: list[str], partition: int, replicas: int
) -> None:
    here = members(names, groups)
    row = first_ranked(partition, here, replicas)
    assert row == plain_row(partition, here, replicas)
    assert row == first_ranked(partition, here[::-1], replicas), "whatever their order"
    held = [one.group or one.uuid for one in here if one.uuid in row]
    assert len(set(held)) == len(held) == min(replicas, len({one.group or one.uuid for one in here}))


def test_of_equal_ranks_the_lower_uuid_comes_first() -> None:
    twins = [Candidate("u2", "", "same"), Candidate("u1", "", "same"), Candidate("u3", "", "same")]
    assert {first_ranked(partition, twins, 2) for partition in range(20)} == {("u1", "u2")}


def test_without_a_consistent_id_a_member_is_called_by_its_uuid() -> None:
    named = [Candidate(f"u{number}", "", name) for number, name in enumerate("ABC")]
    plain = [Candidate(name) for name in "ABC"]
    for partition in range(20):
        places = [f"u{'ABC'.index(name or '')}" for name in first_ranked(partition, plain, 3)]
        assert first_ranked(partition, named, 3) == tuple(places)


@given(NAMES, NAMES, GROUPS, st.integers(1, 4), st.sets(st.integers(0, 6)))
def test_every_wanted_row_is_reached(
    before: list[str], after: list[str], groups: list[str], replicas: int, crashed: set[int]
) -> None:
    """Two rows are in one order, that of the ranking, so nobody ever has to trade places; whoever comes, goes, crashes.
    The ids of those who stay are the same: `after` only says who is new.
    """
    known = members((before + after)[:7], groups)
    old = known[: len(before)]
    here = [one for number, one in enumerate(known) if number not in crashed]
    if not here:
        return
    for partition in range(12):
        row = first_ranked(partition, old, replicas)
        left, hottest = survivors(row, {one.uuid for one in here})
        if hottest is None:
            continue
        wanted = first_ranked(partition, here, replicas)
        assert plan(partition, left, wanted).target == wanted
        # Also when a plan is given up on its way, and somebody who has just come goes again.
        for state in plan(partition, left, wanted).states():
            assert plan(partition, state, wanted).target == wanted
        fewer = here[:-1]
        for state in plan(partition, left, wanted).states():
            less, someone = survivors(state, {one.uuid for one in fewer})
            if someone is not None and fewer:
                then = first_ranked(partition, fewer, replicas)
                reached = plan(partition, less, then).target
                # A row on its way is in no order: two of it may be in each other's place, and exchange their slots. If
                # three or more are, they stay.
                rings = [ring for ring in rotations(less, then) if len(ring) > 2]
                turning = {slot for ring in rings for slot in ring}
                stay = less + (None,) * (len(then) - len(less))
                assert reached == tuple(stay[n] if n in turning else one for n, one in enumerate(then))
                assert set(reached) == set(then)


def test_who_joins_or_leaves_moves_only_what_it_gets_or_had() -> None:
    here = [Candidate(f"m{number}") for number in range(6)]
    rows = [(None,) * 3] * 271
    five, six = (rendezvous(range(271), rows, here[:count], 3) for count in (5, 6))
    for less, more in zip(five, six, strict=True):
        assert tuple(member for member in more if member != "m5") == less[: 3 - ("m5" in more)]


def test_the_layout_of_some_partitions_is_that_of_their_numbers() -> None:
    here = [Candidate(name) for name in "ABCD"]
    rows: list[ReplicaList] = [("A", None), ("B", "C", "D"), (None, None)]
    wanted = layout_of("rendezvous")([5, 3, 9])(rows, here, 2)
    assert wanted == [
        first_ranked(5, here, 2),
        (*first_ranked(3, here, 2), None),
        first_ranked(9, here, 2),
    ], "as wide as the row, which loses what is beyond"
    assert layout_of("even")([5, 3, 9])(rows, here, 2) == arrange(rows, here, 2)


def test_where_nobody_may_hold_data_rows_stay_and_what_is_wrong_is_refused() -> None:
    rows: list[ReplicaList] = [("A", "B")]
    assert rendezvous([0], rows, [], 2) == rows
    with pytest.raises(ValueError, match="at least 1 replica"):
        rendezvous([0], rows, [Candidate("A")], 0)
    with pytest.raises(ValueError, match="same uuid"):
        rendezvous([0], rows, [Candidate("A"), Candidate("A", "", "other")], 1)
    with pytest.raises(ValueError, match="zip"):
        rendezvous([0, 1], rows, [Candidate("A")], 1)


def test_it_is_worked_out_in_small_pieces() -> None:
    here = [Candidate(f"m{number}") for number in range(100)]
    pieces = sum(1 for _ in ranking(range(100), [(None, None)] * 100, here, 2))
    assert pieces == 20, "five partitions with a hundred ranks each at a time"


def test_the_consistent_id_is_the_name_else_the_files_else_the_uuid() -> None:
    def called(name: str, store: str = "") -> str:
        uuid = MemberId("0b5e")
        info = MemberInfo(uuid, 1, "10.0.0.1", 5751, "10.0.0.1", 5701, name, store=store)
        return info.consistent_id

    assert called("one", "files") == called("one") == "one"
    assert called("10.0.0.1:5701", "files") == called("", "files") == "files", (
        "a name made of its address is none"
    )
    assert called("10.0.0.1:5701") == "0b5e"
