"""How a map travels: packed where entries are in a table and say nothing but key and value, and else listed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.messages import Fill, FillEntries
from holdfast.core.model.records import Change, Record
from holdfast.core.store.chunk import ENTRY_OVERHEAD, Chunk
from holdfast.core.store.map_state import MapState
from holdfast.core.store.replica import map_replica
from holdfast.errors import ProtocolError
from holdfast.runtime.data_lane import data_lane
from holdfast.wire.codec import decode, encode

if data_lane().kind == "python":
    pytest.skip(f"there is no compiled table: {data_lane().why}", allow_module_level=True)

TABLE = data_lane().ways.entries
KEYS = st.integers(0, 60).map(b"key-%d".__mod__)
SIZES = st.sampled_from([0, 1, 100, 100, 100, 1000, 4095, 4096, 9000])
ENTRIES = st.dictionaries(KEYS, SIZES.map(bytes))
BESIDE = st.dictionaries(KEYS, st.sampled_from([0, 0, 0, 60_000]), max_size=3)


def size_of(part: FillEntries) -> int:
    keys, values = part.packed().columns() if part.sizes else (part.keys, part.values)
    return sum(map(len, keys)) + sum(map(len, values)) + ENTRY_OVERHEAD * len(keys)


@settings(max_examples=200, deadline=None)
@given(
    entries=ENTRIES,
    ending=BESIDE,
    hashed=st.booleans(),
    limit=st.sampled_from([1, 300, 3000, 1 << 20]),
    changes=st.lists(st.tuples(KEYS, st.none() | SIZES.map(bytes)), max_size=12),
    of_table=st.booleans(),
    to_table=st.booleans(),
)
def test_what_arrives_is_what_there_is(
    entries: dict[bytes, bytes],
    ending: dict[bytes, int],
    hashed: bool,
    limit: int,
    changes: list[tuple[bytes, bytes | None]],
    of_table: bool,
    to_table: bool,
) -> None:
    """Whatever changes meanwhile, which is told by records, before or after what the chunks say of it."""
    source = map_replica("m", TABLE if of_table else dict)
    state = source.state
    for key, value in entries.items():
        state.store(key, value, ending.get(key, 0), 0, 7 if hashed and key in ending else 0, 0)
    copy = MapState("m", TABLE if to_table else dict)
    receiver = copy.receiver()
    receiver.begin(0, None)
    portion = state.portion(source, None)
    number, early = 0, []
    while portion is not None:
        chunk = Chunk()
        last = portion.add_to(chunk, limit, 0)
        assert sum(map(size_of, chunk.maps)) == chunk.size
        count = sum(len(part.keys) + part.packed().count for part in chunk.maps)
        assert count or last
        assert chunk.size <= limit or count == 1
        fill = Fill(0, 1, 1, 1, False, 0, True, 1, chunk.maps)
        told = decode(encode(fill), 1)
        assert isinstance(told, Fill)
        for part in told.maps:
            receiver.pour(part, 0)
        for record in early:
            receiver.take(record, 0)
        early = []
        if changes:
            key, changed = changes.pop()
            number = source.updates.next()
            change = Change.REMOVE if changed is None else Change.SET
            record = Record("m", number, change, key, changed or b"")
            state.apply(record, 0)
            (early.append(record) if number % 2 else receiver.take(record, 0))
        if last:
            break
    for record in early:
        receiver.take(record, 0)
    assert dict(copy.entries.items()) == dict(state.entries.items())
    assert copy.hashes == state.hashes
    assert {key: one.ttl_ms for key, one in copy.expiries.items()} == {
        key: one.ttl_ms for key, one in state.expiries.items()
    }


def test_small_values_are_packed_and_large_ones_are_shared() -> None:
    source = map_replica("m", TABLE)
    large = bytes(5000)
    for number in range(100):
        source.state.entries[b"%d" % number] = bytes(10)
    source.state.entries[b"large"] = large
    portion = source.state.portion(source, None)
    assert portion is not None
    chunks = []
    last = False
    while not last:
        chunks.append(Chunk())
        last = portion.add_to(chunks[-1], 400, 0)
    parts = [part for chunk in chunks for part in chunk.maps]
    assert sum(part.packed().count for part in parts) > 80
    assert [value for part in parts for value in part.values if len(value) > 10] == [large]
    assert any(value is large for part in parts for value in part.values)


@pytest.mark.parametrize("beside", [(60_000, 0), (0, 7)])
@pytest.mark.parametrize("turns", range(1, 12))
def test_nothing_is_left_out_when_entries_can_be_packed_no_longer(
    turns: int, beside: tuple[int, int]
) -> None:
    """Large values that wait to be taken, when an entry comes that ends, or that has a hash."""
    source = map_replica("m", TABLE)
    state = source.state
    for number in range(300):
        state.entries[b"small-%d" % number] = bytes(100)
    for number in range(40):
        state.entries[b"large-%d" % number] = bytes(9000)
    there = set(state.entries)
    portion = state.portion(source, None)
    assert portion is not None
    came: list[bytes] = []
    last = False
    while not last:
        chunk = Chunk()
        last = portion.add_to(chunk, 20_000, 0)
        for part in chunk.maps:
            came += part.packed().columns()[0] if part.sizes else part.keys
        turns -= 1
        if not turns:
            state.store(b"another", b"", beside[0], 0, beside[1], 0)
    assert len(came) == len(set(came))
    assert set(came) - {b"another"} == there


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (FillEntries("m", 1, sizes=b"\1\0\0\0\1\0\0\0", data=b"abc"), "sizes"),
        (FillEntries("m", 1, sizes=b"\1\0\0\0\1", data=b"ab"), "sizes"),
        (FillEntries("m", 1, sizes=b"", data=b"ab"), "sizes"),
        (FillEntries("m", 1, [b"k"], [b"v"], sizes=b"\1\0\0\0\1\0\0\0", data=b"ab"), "packed and listed"),
    ],
)
def test_packed_entries_that_contradict_themselves_are_nonsense(part: FillEntries, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        decode(encode(Fill(0, 1, 1, 1, False, 0, True, 1, [part])), 1)
