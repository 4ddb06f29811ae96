"""Components and cycles are those that trying everything finds."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from holdfast_lab.check.dependency_graph import REAL_TIME, RW, THROUGH, WR, WW, DependencyGraph, Edge

Edges = list[tuple[int, int, int]]


def graph(transactions: int, hubs: int, edges: Edges, *, steps: int = 10_000) -> DependencyGraph:
    made = DependencyGraph(transactions, steps=steps)
    for number in range(hubs):
        assert made.hub() == transactions + number
    for edge in edges:
        made.add(Edge(*edge))
    return made


def reached(edges: Edges, start: int, along: int) -> set[int]:
    """By one step at least."""
    seen: set[int] = set()
    work = [start]
    while work:
        node = work.pop()
        new = {target for source, target, kind in edges if source == node and kind & along} - seen
        seen |= new
        work += new
    return seen


def shortest(edges: Edges, transactions: int, through: int, along: int) -> int:
    """The transactions of the shortest cycle that begins with an edge `through`; 0: there is none."""
    nodes = {node for edge in edges for node in edge[:2]}
    direct = {(source, target) for source, target, kind in edges if kind & along and source != target}
    first = {(source, target) for source, target, kind in edges if kind & through and source != target}
    lengths = [
        sum(node < transactions for node in ring)
        for size in range(2, len(nodes) + 1)
        for ring in permutations(sorted(nodes), size)
        if ring[:2] in first
        and all(pair in direct for pair in zip(ring[1:], [*ring[2:], ring[0]], strict=True))
    ]
    return min(lengths, default=0)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[int, int, Edges]:
    transactions, hubs = draw(st.integers(1, 4)), draw(st.integers(0, 2))
    nodes = st.integers(0, transactions + hubs - 1)
    kinds = st.sampled_from([WW, WR, RW, REAL_TIME])
    pairs = draw(st.lists(st.tuples(nodes, nodes, kinds), max_size=12))
    return transactions, hubs, [(a, b, THROUGH if a >= transactions else kind) for a, b, kind in pairs]


@given(drawn(), st.sampled_from([WW, WW | WR, WW | WR | RW, WW | WR | RW | REAL_TIME]))
@settings(
    max_examples=400, phases=[Phase.generate]
)  # Graphs are small, and no mutant waits for smaller ones.
def test_components_are_those_who_reach_each_other(made: tuple[int, int, Edges], along: int) -> None:
    transactions, hubs, edges = made
    reach = {node: reached(edges, node, along | THROUGH) for node in range(transactions + hubs)}
    expected = {
        tuple(other for other in reach if other in reach[node] and node in reach[other]) for node in reach
    }
    found = graph(*made).components(along)
    assert sorted(map(tuple, found)) == sorted(one for one in expected if len(one) > 1)


@given(
    drawn(), st.sampled_from([(WW, WW), (WR, WW | WR), (RW, WW | WR), (RW, WW | WR | RW), (REAL_TIME, 15)])
)
@settings(
    max_examples=400, phases=[Phase.generate]
)  # Graphs are small, and no mutant waits for smaller ones.
def test_a_cycle_is_the_shortest(made: tuple[int, int, Edges], kinds: tuple[int, int]) -> None:
    transactions, hubs, edges = made
    through, along = kinds
    found = graph(*made).cycle(range(transactions + hubs), through, along)
    length = shortest(edges, transactions, through, along | THROUGH)
    assert sum(edge.target < transactions for edge in found) == length
    if found:
        assert found[0].kind & through
        assert all(edge.kind & (along | THROUGH) for edge in found[1:])
        assert all(
            one.target == after.source for one, after in zip(found, [*found[1:], found[0]], strict=True)
        )
        assert len({edge.source for edge in found}) == len(found)


def test_a_cycle_stays_in_its_component() -> None:
    made = graph(4, 0, [(0, 1, WW), (1, 2, WW), (2, 0, WW), (1, 2, RW)])
    assert len(made.cycle([0, 1, 2], WW, WW)) == 3
    assert made.cycle([0, 1, 3], WW, WW) == []
    assert made.cycle([0, 2], RW, WW) == []
    assert graph(3, 0, [(0, 2, WW), (2, 0, WW)]).cycle([0, 1], WW, WW) == []


def test_a_component_that_is_closed_stays_closed() -> None:
    """Whoever reaches it later, by whichever node, is none of it."""
    ring = [(0, 1, WW), (1, 2, WW), (2, 0, WW)]
    later = [(3, 0, WW), (3, 1, WW), (3, 2, WW), (3, 4, WW), (4, 3, WW)]
    assert graph(5, 0, ring + later).components(WW) == [[0, 1, 2], [3, 4]]


def test_a_row_of_hubs_is_no_way() -> None:
    """From 1 to 0 by 2, or by four hubs: these count for nothing, whichever number they have."""
    row = [(3, 4, THROUGH), (4, 5, THROUGH), (5, 6, THROUGH), (6, 0, THROUGH)]
    for edges in (row, row[::-1]):
        found = graph(3, 4, [(0, 1, RW), (1, 2, WW), (2, 0, WW), (1, 3, WW), *edges]).cycle(range(7), RW, WW)
        assert [edge.target for edge in found] == [1, 3, 4, 5, 6, 0]
    back = graph(4, 1, [(0, 1, RW), (1, 2, WW), (2, 0, WW), (1, 3, WW), (3, 4, WW), (4, 0, THROUGH)])
    assert len(back.cycle(range(5), RW, WW)) == 3, "the first that was found, as no other is shorter"
    first = graph(3, 1, [(0, 3, RW), (3, 1, THROUGH), (1, 0, WW), (0, 1, RW), (3, 3, THROUGH)])
    assert [edge.target for edge in first.cycle(range(4), RW, WW)] == [3, 1, 0]


@pytest.mark.parametrize(("steps", "length"), [(1, 4), (1000, 2)])
def test_a_search_that_takes_too_long_is_content(steps: int, length: int) -> None:
    """The first cycle that is come upon is not the shortest."""
    ring = [(0, 1, WW), (1, 2, WW), (2, 3, WW), (3, 0, WW)]
    made = graph(4, 0, [*ring, (3, 2, WW)], steps=steps)
    assert len(made.cycle([0, 1, 2, 3], WW, WW)) == length


def test_an_edge_of_one_kind_is_of_no_other() -> None:
    kinds = [WW, WR, RW, REAL_TIME, THROUGH]
    assert all(one & other == 0 for one, other in permutations(kinds, 2))
