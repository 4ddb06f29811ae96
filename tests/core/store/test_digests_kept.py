"""Digests that are kept change by change equal those that are counted anew, after whatever has happened."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.model.records import Change, Record
from holdfast.core.store.digest import RangeDigests, whole
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.replica import map_replica
from holdfast.runtime.data_lane import data_lane

WAYS = list(dict.fromkeys([dict, data_lane().ways.entries]))
"""A dictionary, and the table where it is compiled."""
KEYS = st.integers(0, 8).map(lambda n: b"k%d" % n)
VALUES = st.binary(max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("store"), KEYS, VALUES, st.sampled_from([0, 50])),
    st.tuples(st.just("drop"), KEYS),
    st.tuples(st.just("wipe")),
    st.tuples(st.just("expire"), KEYS),
    st.tuples(st.just("apply"), st.sampled_from(list(Change)[:4]), KEYS, VALUES),
    st.tuples(st.just("fold")),
    st.tuples(st.just("ask")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("begin anew")),
)


@pytest.mark.parametrize("entries", WAYS)
@settings(max_examples=2 * settings.default.max_examples)
@given(steps=st.lists(STEPS, max_size=60))
def test_they_equal_the_digests_of_the_entries(
    entries: NewEntries,
    steps: list[tuple],  # type: ignore[type-arg]
) -> None:
    held = map_replica("m", entries)
    for step in steps:
        match step:
            case ("store", key, value, ttl_ms):
                held.state.store(key, value, ttl_ms, 0, 0, 0)
            case ("drop", key):
                held.state.drop(key)
            case ("wipe",):
                held.state.wipe()
            case ("expire", key):
                if key in held.state.entries:
                    held.state.schedule(key, 1, 0, 0)
                for ended in held.state.due(10_000_000, 5):
                    held.state.drop(ended)
            case ("apply", change, key, value):
                held.apply(Record("m", held.counter + 1, change, key, value), 0)
            case ("fold",):
                held.state.fold()
            case ("ask",):
                assert held.state.digests() == RangeDigests.digests(dict(held.state.entries))
            case ("forget",):
                held.state.not_compared()
            case ("begin anew",):
                # As a copy that is being filled does.
                other = map_replica("m", entries)
                other.start_from(held)
                held = other
    assert held.state.digests() == RangeDigests.digests(dict(held.state.entries))
    assert held.state.digest() == whole(held.state.digests())
    assert held.state.damaged(adopt=False) == []


def test_they_are_not_kept_before_they_are_asked_for() -> None:
    held = map_replica("m")
    held.state.store(b"k", b"v", 0, 0, 0, 0)
    assert held.state.touched is None
    held.state.digests()
    held.state.store(b"k", b"w", 0, 0, 0, 0)
    assert held.state.touched == {b"k": b"v"}
    held.state.store(b"k", b"x", 0, 0, 0, 0)
    held.state.fold()
    assert held.state.touched == {}


def test_what_changes_behind_their_back_is_found() -> None:
    held = map_replica("m")
    for n in range(100):
        held.state.store(b"%d" % n, b"v", 0, 0, 0, 0)
    before = list(held.state.digests())
    held.state.entries[b"7"] = b"rotten"
    assert held.state.digests() == before, "nobody has noticed"
    (at,) = held.state.damaged(adopt=False)
    assert held.state.damaged(adopt=True) == [at]
    assert held.state.damaged(adopt=True) == [], "from now on it counts as it is"
    assert held.state.digests() == RangeDigests.digests(held.state.entries)
