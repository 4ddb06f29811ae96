"""The digests of entries and of key ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.keys import partition_of
from holdfast.core.store.digest import RANGES, RangeDigests, entry_digest, range_of, whole
from holdfast.core.store.replica import map_replica
from holdfast.wire.values import to_stored

STORED = st.binary(max_size=8).map(lambda payload: b"\xff\xff\xff\xf4" + payload)
"""Keys and values in their stored form begin with a type id."""
ENTRIES = st.dictionaries(STORED, STORED, max_size=60)


@given(ENTRIES)
def test_the_ranges_together_are_the_digest_of_the_map(entries: dict[bytes, bytes]) -> None:
    held = map_replica("m")
    held.state.entries = entries
    digests = RangeDigests.digests(entries)
    assert len(digests) == RANGES
    assert whole(digests) == held.state.digest()


@given(ENTRIES)
def test_the_order_of_entries_does_not_count(entries: dict[bytes, bytes]) -> None:
    assert RangeDigests.digests(dict(reversed(entries.items()))) == RangeDigests.digests(entries)


@given(ENTRIES, STORED, STORED)
def test_a_change_shows_in_the_range_of_its_key_alone(
    entries: dict[bytes, bytes], key: bytes, value: bytes
) -> None:
    before = RangeDigests.digests(entries)
    if entries.get(key) == value:
        del entries[key]
    else:
        entries[key] = value
    after = RangeDigests.digests(entries)
    assert [at for at in range(RANGES) if before[at] != after[at]] == [range_of(key)]


@given(ENTRIES, ENTRIES)
def test_kept_up_to_date_they_are_as_if_counted_anew(
    first: dict[bytes, bytes], second: dict[bytes, bytes]
) -> None:
    entries = first.copy()
    kept = RangeDigests(entries)
    gone = list(first)[::3]
    touched = {key: first.get(key) for key in [*second, *gone]}
    entries.update(second)
    for key in gone:
        del entries[key]
    kept.absorb(touched, entries)
    assert kept.sums == RangeDigests.digests(entries)


def test_where_the_key_ends_counts() -> None:
    assert entry_digest(b"ab", b"c") != entry_digest(b"a", b"bc")


def test_the_keys_of_one_partition_spread_over_all_ranges() -> None:
    keys = [key for number in range(60_000) if partition_of(key := to_stored(number), 0, 64) == 5]
    counts = [0] * RANGES
    for key in keys:
        counts[range_of(key)] += 1
    assert min(counts) > 0
    assert max(counts) < 4 * len(keys) / RANGES
