"""What is kept up to date is what counting anew would find."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.placement.spread import FEW, Levels, Ranking, Sharing, members_of

MEMBERS = FEW + 12
ROWS = st.lists(st.lists(st.integers(0, MEMBERS - 1), max_size=4, unique=True), min_size=1, max_size=30)


def as_set(numbers: list[int]) -> int:
    return sum(1 << number for number in set(numbers))


@given(st.sets(st.integers(0, 300)))
def test_a_set_gives_its_members_in_order(numbers: set[int]) -> None:
    assert list(members_of(as_set(list(numbers)))) == sorted(numbers)


@given(
    ROWS,
    st.lists(st.tuples(st.integers(0, 29), st.lists(st.integers(0, MEMBERS - 1), max_size=4, unique=True))),
    st.lists(st.integers(0, MEMBERS - 1), min_size=1),
    st.lists(st.integers(0, MEMBERS - 1), min_size=1, max_size=3, unique=True),
)
def test_sharing_is_what_counting_finds(
    rows: list[list[int]], changes: list[tuple[int, list[int]]], able: list[int], others: list[int]
) -> None:
    sharing = Sharing(MEMBERS, rows)
    for place, row in changes:
        before = rows[place % len(rows)]
        sharing.change(
            [each for each in before if each not in row],
            [each for each in before if each in row],
            [each for each in row if each not in before],
        )
        rows[place % len(rows)] = row
    counted = {
        one: sum(one in row and other in row for row in rows for other in others) for one in range(MEMBERS)
    }
    assert [sharing.shared(one, others) for one in range(MEMBERS)] == list(counted.values())
    for some in (able, list(range(MEMBERS))):
        least = min(counted[one] for one in some)
        assert sharing.least(as_set(some), others) == as_set([one for one in some if counted[one] == least])


@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(-3, 3))),
    st.lists(st.integers(0, 39), min_size=1),
)
def test_levels_and_rankings_follow(
    values: list[int], changes: list[tuple[int, int]], able: list[int]
) -> None:
    count = len(values)
    levels, ranking = Levels(values), Ranking(count, lambda number: (values[number], -number, number))
    for number, value in changes:
        values[number % count] = value
        levels.put(number % count, value)
        ranking.moved(number % count)
    some = [number % count for number in able]
    lowest = min(values[number] for number in some)
    assert levels.lowest(as_set(some)) == as_set([one for one in some if values[one] == lowest])
    assert ranking.sorted == sorted((values[number], -number, number) for number in range(count))
