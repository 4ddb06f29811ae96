"""The order of items: new keys fit between others, and replicas with the same updates have the same order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.collections.item_order import (
    DIGIT_BYTES,
    MIDDLE,
    TRIMMED,
    ItemOrder,
    keys_between,
)
from holdfast.core.model.records import Change, Record
from holdfast.core.store.derived_index import index_of
from holdfast.core.store.map_state import MapState

insertions = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 4), st.sampled_from((1, 1 << 32))), min_size=1, max_size=60
)


@pytest.mark.rule("collections/O-1")
@given(insertions)
def test_new_keys_lie_between_their_neighbours(places: list[tuple[int, int, int]]) -> None:
    keys: list[bytes] = [MIDDLE]
    for place, count, stride in places:
        at = place % (len(keys) + 1)
        low = keys[at - 1] if at else b""
        high = keys[at] if at < len(keys) else b""
        new = keys_between(low, high, count, stride)
        assert len(new) == count
        keys[at:at] = new
        assert keys == sorted(set(keys))
        assert all(len(key) % DIGIT_BYTES == 0 and any(key[-DIGIT_BYTES:]) for key in new)


def test_keys_grow_by_a_digit_only_when_there_is_no_room() -> None:
    low, high = (5).to_bytes(8, "big"), (6).to_bytes(8, "big")
    [between] = keys_between(low, high, 1)
    assert between == low + MIDDLE
    [again] = keys_between(low, between, 1)
    assert len(again) == len(between)
    assert keys_between(high, b"", 2) == [(7).to_bytes(8, "big"), (8).to_bytes(8, "big")]
    assert keys_between(b"", high, 2, 2) == [(2).to_bytes(8, "big"), (4).to_bytes(8, "big")]
    top = b"\xff" * 8
    assert keys_between(top, b"", 1, 4) == [top + (4).to_bytes(8, "big")]


changes = st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=60)


def record(number: int, key: int, *, there: bool) -> Record:
    change = Change.SET if there else Change.REMOVE
    return Record("m", number, change, key.to_bytes(8, "big"), b"v" if there else b"")


@pytest.mark.rule("collections/O-1")
@given(changes, st.integers(0, 60))
def test_an_order_follows_updates_as_if_it_was_built_afterwards(
    some: list[tuple[int, bool]], built_at: int
) -> None:
    early, late = MapState("m"), MapState("m")
    for number, (key, there) in enumerate(some, 1):
        if number >= built_at:
            index_of(early, ItemOrder)
        for state in (early, late):
            state.apply(record(number, key, there=there), 0)
    assert (
        list(index_of(early, ItemOrder).keys())
        == list(index_of(late, ItemOrder).keys())
        == sorted(late.entries)
    )
    assert len(index_of(early, ItemOrder)) == len(late.entries)
    early.apply(Record("m", 99, Change.CLEAR), 0)
    assert (
        len(index_of(early, ItemOrder)),
        index_of(early, ItemOrder).first,
        index_of(early, ItemOrder).last,
    ) == (0, b"", b"")


def test_taking_from_the_front_gives_the_memory_back() -> None:
    entries = {number.to_bytes(8, "big"): b"" for number in range(4 * TRIMMED)}
    order = ItemOrder(entries)
    for number in range(4 * TRIMMED):
        key = number.to_bytes(8, "big")
        assert order.first == key
        del entries[key]
        order.absorb({key: b""}, entries)
        assert len(order) == len(entries)
        assert len(order._keys) <= max(2 * len(order), len(order) + TRIMMED)
