"""Digests that are kept change by change equal those that are counted anew, after whatever has happened."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.model.records import Change, Record
from holdfast.core.store.digest import RangeDigests, whole
from holdfast.core.store.partition import MapPartition

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


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_they_equal_the_digests_of_the_entries(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    held = MapPartition("m")
    for step in steps:
        match step:
            case ("store", key, value, ttl_ms):
                held.store(key, value, ttl_ms, 0, 0, 0)
            case ("drop", key):
                held.drop(key)
            case ("wipe",):
                held.wipe()
            case ("expire", key):
                held.schedule(key, 1, 0, 0)
                for ended in held.due(10_000_000, 5):
                    held.drop(ended)
            case ("apply", change, key, value):
                held.apply(Record("m", held.counter + 1, change, key, value), 0)
            case ("fold",):
                held.fold()
            case ("ask",):
                assert held.digests() == RangeDigests.digests(held.entries)
            case ("forget",):
                held.no_digests()
            case ("begin anew",):
                # As a copy that is being filled does.
                other = MapPartition("m")
                other.start_from(held)
                held = other
    assert held.digests() == RangeDigests.digests(held.entries)
    assert held.digest() == whole(held.digests())
    assert held.damaged(adopt=False) == []


def test_they_are_not_kept_before_they_are_asked_for() -> None:
    held = MapPartition("m")
    held.store(b"k", b"v", 0, 0, 0, 0)
    assert held.touched is None
    held.digests()
    held.store(b"k", b"w", 0, 0, 0, 0)
    assert held.touched == {b"k": b"v"}
    held.store(b"k", b"x", 0, 0, 0, 0)
    held.fold()
    assert held.touched == {}


def test_what_changes_behind_their_back_is_found() -> None:
    held = MapPartition("m")
    for n in range(100):
        held.store(b"%d" % n, b"v", 0, 0, 0, 0)
    before = list(held.digests())
    held.entries[b"7"] = b"rotten"
    assert held.digests() == before, "nobody has noticed"
    (at,) = held.damaged(adopt=False)
    assert held.damaged(adopt=True) == [at]
    assert held.damaged(adopt=True) == [], "from now on it counts as it is"
    assert held.digests() == RangeDigests.digests(held.entries)
