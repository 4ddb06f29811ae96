"""Latencies in buckets: the same in Python, and in the tally of the data lane, plain and compiled."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.latency_histogram import (
    BUCKETS,
    LatencyHistogram,
    bound_ns,
    bucket_of,
    exposed_buckets,
)


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
    told = exposed_buckets(kept.counts)
    counts = [count for _, count in told]
    assert counts == sorted(counts)
    assert counts[-1] <= kept.count == len(times)
    assert kept.sum_ns == sum(times)
    for bound_s, count in told:
        assert count == sum(took_ns < round(bound_s * 1e9) for took_ns in times)
