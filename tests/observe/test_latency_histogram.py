"""Latencies in buckets: the same in Python, and in the tally of the data lane, plain and compiled."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.latency_histogram import (
    BUCKETS,
    LatencyHistogram,
    bound_ns,
    bucket_of,
    told_buckets,
)
from holdfast.runtime.data_lane import data_lane
from holdfast.server.hazelcast import entries_cy

TALLIES = {"plain": entries_cy.Tally, data_lane().kind: data_lane().tally}


@given(st.integers(0, 2**40))
def test_each_has_its_bucket(took_ns: int) -> None:
    bucket = bucket_of(took_ns)
    assert 0 <= bucket < BUCKETS
    if bucket < BUCKETS - 1:
        assert took_ns < bound_ns(bucket)
    if bucket:
        assert took_ns >= bound_ns(bucket - 1)


def test_bounds_are_near_each_other() -> None:
    bounds = [bound_ns(bucket) for bucket in range(BUCKETS)]
    assert bounds[0] == 1024
    assert all(1 < after / before <= 1.25 for before, after in pairwise(bounds))


@given(st.lists(st.integers(0, 2**40), max_size=50))
def test_what_is_told_adds_up(times: list[int]) -> None:
    kept = LatencyHistogram()
    for took_ns in times:
        kept.add(took_ns)
    told = told_buckets(kept.counts)
    counts = [count for _, count in told]
    assert counts == sorted(counts)
    assert counts[-1] <= kept.count == len(times)
    assert kept.sum_ns == sum(times)
    for bound_s, count in told:
        assert count == sum(took_ns < round(bound_s * 1e9) for took_ns in times)


@pytest.mark.parametrize("kind", TALLIES)
@given(times=st.lists(st.integers(0, 2**40), max_size=20))
def test_a_tally_counts_in_the_same_buckets(kind: str, times: list[int]) -> None:
    tally, kept = TALLIES[kind](), LatencyHistogram()
    for number, took_ns in enumerate(times, 1):
        tally.gets = number
        tally.close(lambda took_ns=took_ns: took_ns + 5, 5)
        kept.add(took_ns, number)
    assert tally.figures() == ([("get", kept.counts, kept.sum_ns)] if times else [])


@pytest.mark.parametrize("kind", TALLIES)
def test_writes_that_are_held_back_count_when_they_are_answered(kind: str) -> None:
    tally = TALLIES[kind]()
    tally.gets, tally.sets, tally.deletes = 2, 3, 1
    taken = tally.take_writes()
    tally.close(lambda: 2000, 0)
    assert [name for name, _, _ in tally.figures()] == ["get"]
    tally.settle(taken, 10_000_000, True)
    assert {name: (sum(counts), took_ns) for name, counts, took_ns in tally.figures()} == {
        "get": (2, 4000),
        "set": (3, 30_000_000),
        "delete": (1, 10_000_000),
    }
    assert tally.lost == 0
    tally.puts = 4
    tally.settle(tally.take_writes(), 5, False)
    assert tally.lost == 4
