"""Columns of bytes: murmur3 over all keys at once says what it says of each, and messages hold what was cut."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from holdfast.client_core.routing import RoutingTable  # noqa: E402
from holdfast.core.model.keys import partition_of  # noqa: E402
from holdfast.spark.rows.cells import counted, from_buffers, partitions_of, to_buffers  # noqa: E402
from holdfast.spark.rows.entry_encoder import Entries  # noqa: E402
from holdfast.spark.source.entry_rows import EntryRows  # noqa: E402
from holdfast.wire import own  # noqa: E402

keys = st.lists(st.binary(min_size=4, max_size=80), max_size=60)


@given(keys, st.sampled_from([1, 31, 271, 5000]))
def test_partitions_are_those_of_each_key(cells: list[bytes], count: int) -> None:
    found = partitions_of(pa.array(cells, pa.binary()), count)
    assert found.tolist() == [partition_of(key, 0, count) for key in cells]


@pytest.mark.parametrize("size", range(4, 40))
def test_partitions_of_keys_of_one_length(size: int) -> None:
    dice = random.Random(size)
    cells = [dice.randbytes(size) for _ in range(200)]
    whole = pa.array([b"xxxxx", *cells], pa.binary()).slice(1)
    assert partitions_of(whole, 271).tolist() == [partition_of(key, 0, 271) for key in cells]


def test_the_lowest_hash_goes_to_partition_0() -> None:
    from holdfast.core.model.keys import SEED, index_of, murmur3

    dice = random.Random(1)
    lows = [key for key in (dice.randbytes(8) for _ in range(1000)) if murmur3(key[4:], SEED) < 0]
    assert partitions_of(pa.array(lows, pa.binary()), 7).tolist() == [
        index_of(murmur3(key[4:], SEED), 7) for key in lows
    ]


@given(st.lists(st.binary(max_size=20)))
def test_cells_with_their_length_in_front(cells: list[bytes]) -> None:
    found = counted(-12, pa.array(cells, pa.binary())).to_pylist()
    assert found == [b"\xff\xff\xff\xf4" + len(cell).to_bytes(4, "big") + cell for cell in cells]


@given(st.lists(st.binary(max_size=9)), st.data())
def test_buffers_of_a_slice_are_only_its_own(cells: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(cells)))
    part = pa.array(cells, pa.binary()).slice(start)
    offsets, found = to_buffers(part)
    assert offsets[0] == 0
    assert found.tobytes() == b"".join(cells[start:])
    assert from_buffers(offsets, found).to_pylist() == cells[start:]


def table(owners: list[int]) -> RoutingTable:
    members = [own.MemberRow(f"member-{number}", "h", 1, False) for number in range(3)]
    return RoutingTable(own.TableIs(1, 1, members, [[one] for one in owners], [], 0))


@given(
    st.lists(st.binary(min_size=4, max_size=12), max_size=80),
    st.lists(st.integers(-1, 2), min_size=8, max_size=8),
    st.integers(1, 20),
    st.integers(1, 200),
    st.booleans(),
)
def test_parcels_hold_every_row_once_in_the_group_of_its_partition(
    cells: list[bytes], owners: list[int], rows_max: int, bytes_max: int, insert: bool
) -> None:
    values = [b"v" * (number % 5) for number in range(len(cells))]
    entries = Entries(
        pa.array(cells, pa.binary()), pa.array(values, pa.binary()), np.arange(len(cells), dtype=np.int64)
    )
    rows = EntryRows.of(entries, 8, insert=insert).ordered(table(owners))
    assert len(rows) == len(cells)
    found: list[tuple[bytes, bytes, int]] = []
    for parcel in rows.parcels(rows_max=rows_max, bytes_max=bytes_max):
        packed_keys, packed_values = parcel.columns.split()
        assert parcel.columns.rows == sum(parcel.counts) == len(parcel.ttls_ms) <= rows_max
        assert parcel.columns.rows == 1 or parcel.columns.size_bytes <= bytes_max
        assert parcel.kinds == (b"\x02" * parcel.columns.rows if insert else b"")
        at = 0
        for partition, rows_of in zip(parcel.partitions, parcel.counts, strict=True):
            assert parcel.owner == (f"member-{owners[partition]}" if owners[partition] >= 0 else None)
            assert {partition_of(key, 0, 8) for key in packed_keys[at : at + rows_of]} == {partition}
            at += rows_of
        assert next(parcel.spans(parcel.partitions))[0] == parcel.start == len(found)
        found += zip(packed_keys, packed_values, parcel.ttls_ms, strict=True)
    assert sorted(found) == sorted(zip(cells, values, range(len(cells)), strict=True))
    if len(found) > 2:
        again = rows.only([(1, 2), (0, 1)]).ordered(table(owners))
        assert sum(parcel.columns.rows for parcel in again.parcels(rows_max=9, bytes_max=900)) == 2
