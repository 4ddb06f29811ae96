"""Rows as entries, whole columns at a time: the same bytes as cell by cell, and what is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")
pytest.importorskip("pyspark")

from holdfast.errors import ConfigError  # noqa: E402
from holdfast.spark.rows.compact import CompactDecoder, CompactEncoder  # noqa: E402
from holdfast.spark.rows.entry_encoder import EntryEncoder, Limits, Shape  # noqa: E402
from holdfast.spark.rows.primitive import primitive_cells, primitive_column  # noqa: E402
from holdfast.spark.rows.stored import EntryMaker, json_data, long_data, string_data  # noqa: E402
from holdfast.wire.values import to_stored  # noqa: E402

ANY = Limits()


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


DAY = dt.date(2013, 1, 31)
MOMENT = dt.datetime(2013, 1, 1, 10, 0, 0, 5)  # noqa: DTZ001 - it has no zone
KEYS = batch(
    number=pa.array([1, -5], pa.int64()),
    small=pa.array([7, -7], pa.int16()),
    text=["a|b\\", "é"],
    flag=[True, False],
    day=[DAY, DAY],
    moment=pa.array([MOMENT, MOMENT], pa.timestamp("us")),
    zoned=pa.array([MOMENT, MOMENT], pa.timestamp("us", "UTC")),
    exact=pa.array([decimal.Decimal("1.50"), decimal.Decimal("-0.05")], pa.decimal128(10, 2)),
)


@pytest.mark.parametrize("key", [*[[name] for name in KEYS.schema.names], ["text", "number", "flag"]])
def test_entries_are_those_made_cell_by_cell(key: list[str]) -> None:
    found = EntryEncoder(KEYS.schema, Shape(tuple(key))).encode(KEYS, ANY)
    assert (found.keys.to_pylist(), found.values.to_pylist()) == EntryMaker(KEYS.schema, key, "json").entries(
        KEYS
    )


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=9))))
def test_keys_are_those_made_cell_by_cell(rows: list[tuple[int, str]]) -> None:
    part = batch(
        a=pa.array([row[0] for row in rows], pa.int64()), b=pa.array([row[1] for row in rows], pa.string())
    )
    for key in (("a",), ("b",), ("b", "a")):
        found = EntryEncoder(part.schema, Shape(key)).encode(part, ANY)
        expected = EntryMaker(part.schema, key, "json").entries(part)
        assert (found.keys.to_pylist(), found.values.to_pylist()) == expected


def test_bad_rows_are_left_out_and_named() -> None:
    part = batch(
        id=pa.array([1, None, 3, 4, 5], pa.int64()),
        word=["a", "b", "c" * 200, "d", "e"],
        seconds=pa.array([1.5, 2, None, -1, float("nan")]),
    )
    encoder = EntryEncoder(part.schema, Shape(("id",), ttl_column="seconds"))
    found = encoder.encode(part, Limits(value_bytes=100))
    assert found.keys.to_pylist() == [long_data(1)]
    assert found.values.to_pylist() == [json_data(b'{"id":1,"word":"a"}')]
    assert found.ttls_ms is not None
    assert found.ttls_ms.tolist() == [1500]
    assert [(one.row, one.why[:20]) for one in found.wrong] == [
        (1, "no value in the colu"),
        (2, "a value of 226 bytes"),
        (3, "the column 'seconds'"),
        (4, "the column 'seconds'"),
    ]
    assert encoder.check(part, Limits(value_bytes=100)) == found.wrong
    assert [one.row for one in encoder.check(part, ANY) or []] == [1, 3, 4]


@pytest.mark.parametrize("value_format", ["json", "compact"])
def test_a_few_columns_are_enough_to_check_rows(value_format: str) -> None:
    part = batch(
        id=["a", None, "c"], n=pa.array([1, 2, 3], pa.int32()), word=["x", "y", "z" * 500], f=[1.0, 2.0, 3.0]
    )
    encoder = EntryEncoder(part.schema, Shape(("id",), value_format, type_name="t"))
    few = part.select(encoder.columns_to_check())
    assert few.schema.names == ["id", "word"]
    assert [one.row for one in encoder.check(few, ANY) or []] == [1]
    # Whether a row is too large, only all columns tell.
    assert encoder.check(few, Limits(value_bytes=400)) is None
    assert [one.row for one in encoder.check(part, Limits(value_bytes=400)) or []] == [1, 2]


def test_a_missing_time_to_live_is_that_of_the_map() -> None:
    part = batch(id=pa.array([1, 2], pa.int64()), s=pa.array([None, 0.0001]))
    found = EntryEncoder(part.schema, Shape(("id",), ttl_column="s")).encode(part, ANY)
    assert found.ttls_ms is not None
    assert found.ttls_ms.tolist() == [-1, 1]


def test_keys_that_are_too_large() -> None:
    part = batch(id=["a" * 100, "b"])
    encoder = EntryEncoder(part.schema, Shape(("id",)))
    for found in (encoder.encode(part, Limits(50)).wrong, encoder.check(part, Limits(50)) or []):
        assert [(one.row, one.why) for one in found] == [
            (0, "a key of 108 bytes; the most is 50 (limits.key_bytes of the members)")
        ]


@pytest.mark.parametrize("value_format", ["json", "primitive"])
def test_a_text_that_is_none_is_found_among_the_others(value_format: str) -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(struct.pack("<4i", 0, 1, 2, 3)), pa.py_buffer(b"a\xffc")]
    )
    part = batch(id=pa.array([1, 2, 3], pa.int64()), word=broken)
    encoder = EntryEncoder(part.schema, Shape(("id",), value_format))
    found = encoder.encode(part, ANY)
    assert encoder.check(part, ANY) == found.wrong
    assert found.keys.to_pylist() == [long_data(1), long_data(3)]
    assert [one.row for one in found.wrong] == [1]
    assert "no UTF-8" in found.wrong[0].why
    assert EntryEncoder(part.schema, Shape(("word",))).keys(part.slice(2)).to_pylist() == [string_data("c")]


def test_a_row_that_cannot_be_made_is_found_among_the_others() -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int32(), nullable=False)])
    part = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3], pa.int64()), pa.array([5, None, 7], pa.int32())], schema=schema
    )
    found = EntryEncoder(schema, Shape(("id",), "compact", type_name="t")).encode(part, ANY)
    assert found.keys.to_pylist() == [long_data(1), long_data(3)]
    assert [(one.row, one.why[:23]) for one in found.wrong] == [(1, "it cannot be stored: th")]


def test_stored_forms_are_taken_as_they_are() -> None:
    part = batch(
        key=pa.array([string_data("k"), b"xx", None], pa.binary()),
        value=pa.array([to_stored(5)] * 3, pa.binary()),
    )
    found = EntryEncoder(part.schema, Shape((), "binary")).encode(part, ANY)
    assert found.keys.to_pylist() == [string_data("k")]
    assert [one.row for one in found.wrong] == [1, 2]


def test_columns_of_other_arrow_types_are_taken_too() -> None:
    wanted = pa.schema(
        [pa.field("id", pa.int64()), pa.field("t", pa.timestamp("us", "UTC")), pa.field("s", pa.string())]
    )
    part = batch(
        s=pa.array(["x"]).dictionary_encode(),
        t=pa.array([MOMENT], pa.timestamp("us", "Europe/Berlin")),
        id=pa.array([3], pa.int32()),
    )
    found = EntryEncoder(wanted, Shape(("id",))).encode(part, ANY)
    assert found.values.to_pylist() == [json_data(b'{"id":3,"t":"2013-01-01T10:00:00.000005Z","s":"x"}')]


# -- plain values


@pytest.mark.parametrize(
    ("cells", "type_id", "payload"),
    [
        (pa.array([True, False]), -4, b"\x01"),
        (pa.array([5, -5], pa.int8()), -3, b"\x05"),
        (pa.array([258, -5], pa.int16()), -6, b"\x01\x02"),
        (pa.array([1.5, -1], pa.float32()), -9, struct.pack(">f", 1.5)),
        (pa.array([[1, 2], []], pa.list_(pa.int16())), -15, struct.pack(">ihh", 2, 1, 2)),
        (pa.array([[1], [2]], pa.list_(pa.int32())), -16, struct.pack(">ii", 1, 1)),
        (pa.array([[1], [2]], pa.list_(pa.int64())), -17, struct.pack(">iq", 1, 1)),
        (pa.array([[1.5], [2]], pa.list_(pa.float32())), -18, struct.pack(">if", 1, 1.5)),
        (pa.array([[1.5], [2]], pa.list_(pa.float64())), -19, struct.pack(">id", 1, 1.5)),
        (pa.array([[True], [False]], pa.list_(pa.bool_())), -13, struct.pack(">i?", 1, True)),
        (
            pa.array([["é", None], []], pa.list_(pa.string())),
            -20,
            struct.pack(">ii2si", 2, 2, "é".encode(), -1),
        ),
    ],
    ids=lambda value: str(value.type) if hasattr(value, "type") else "",
)
def test_plain_values(cells: Any, type_id: int, payload: bytes) -> None:
    made = primitive_cells(cells)
    assert made[0].as_py() == struct.pack(">i", type_id) + payload
    assert primitive_column(made.to_pylist(), cells.type).equals(cells)
    assert primitive_cells(cells.slice(1)).to_pylist() == made.to_pylist()[1:]


@given(st.lists(st.one_of(st.integers(-(2**31), 2**31 - 1))), st.lists(st.text()), st.lists(st.binary()))
def test_plain_values_are_those_of_the_members_own_maps(
    ints: list[int], texts: list[str], blobs: list[bytes]
) -> None:
    for cells, kind in ((ints, pa.int32()), (texts, pa.string()), (blobs, pa.binary())):
        column = pa.array(cells, kind)
        made = primitive_cells(column)
        assert made.to_pylist() == [to_stored(cell) for cell in cells]
        assert primitive_column(made.to_pylist(), kind).equals(column)


def test_plain_values_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="it is of type -7, not -11"):
        primitive_column([to_stored("a"), to_stored(5)], pa.string())


@pytest.mark.parametrize(
    ("columns", "shape", "why"),
    [
        ({"id": [1], "a": [1], "b": [1]}, Shape(("id",), "primitive"), "one column beside the key"),
        ({"id": [1]}, Shape(("id",), "primitive"), "one column beside the key"),
        ({"id": [1], "a": [DAY]}, Shape(("id",), "primitive"), "no plain Hazelcast form"),
        ({"id": [1], "a": [1]}, Shape(("a", "id"), "primitive", "a"), "beside the key"),
        ({"id": [1.5], "a": [1]}, Shape(("id",), "primitive"), "compare exactly"),
        ({"id": [1], "a": [{"x": 1}]}, Shape(("id",), "compact", type_name="t"), "Compact rows cannot have"),
        ({"id": [1]}, Shape(("id",), ttl_column="nope"), "no column 'nope'"),
        ({"id": [1], "s": ["x"]}, Shape(("id",), ttl_column="s"), "it holds seconds"),
    ],
)
def test_columns_that_do_not_go_with_the_shape(columns: dict[str, Any], shape: Shape, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        EntryEncoder(batch(**columns).schema, shape)


def test_a_plain_value_must_be_there() -> None:
    part = batch(id=pa.array([1, 2, 3], pa.int64()), v=pa.array([[1], None, [None]], pa.list_(pa.int32())))
    found = EntryEncoder(part.schema, Shape(("id",), "primitive")).encode(part, ANY)
    assert [one.row for one in found.wrong] == [1, 2]
    assert found.values.to_pylist() == [struct.pack(">iii", -16, 1, 1)]


# -- Compact

MANY = {
    "b1": pa.array([True, None, False]),
    "i8": pa.array([1, None, -3], pa.int8()),
    "i16": pa.array([1, None, -3], pa.int16()),
    "i32": pa.array([1, None, -3], pa.int32()),
    "i64": pa.array([1, None, -3], pa.int64()),
    "f32": pa.array([1.5, None, -3], pa.float32()),
    "f64": pa.array([1.5, None, -3], pa.float64()),
    "s": pa.array(["é" * 3, None, ""]),
    "raw": pa.array([b"x", None, b""], pa.binary()),
    "exact": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-128.00")], pa.decimal128(10, 2)),
    "day": pa.array([DAY, None, dt.date(1, 1, 1)]),
    "at": pa.array([MOMENT, None, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)], pa.timestamp("us")),  # noqa: DTZ001
    "zoned": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "UTC")),
    "flags": pa.array([[True] * 9, None, []], pa.list_(pa.bool_())),
    "ints": pa.array([[1, -2], None, []], pa.list_(pa.int32())),
}


def there_and_back(part: Any) -> list[dict[str, Any]]:
    encoder = CompactEncoder(part.schema, "thing")
    decoder = CompactDecoder(lambda number: encoder.schema if number == encoder.id else None)
    return [decoder.read(value) for value in encoder.cells(part).to_pylist()]


@pytest.mark.parametrize("long", [0, 250, 255, 70_000])
def test_compact_rows_come_back(long: int) -> None:
    part = batch(**MANY, long=["x" * long, "y", None])
    found = there_and_back(part)
    expected = part.to_pylist()
    for row in expected:
        row["zoned"] = row["zoned"] and row["zoned"].replace(tzinfo=dt.UTC)
    assert found == expected


def test_columns_without_nulls_lie_at_fixed_places() -> None:
    part = batch(id=pa.array([1, 2], pa.int64()), flag=[True, False], n=pa.array([3, 4], pa.int16()))
    tight = pa.schema([field.with_nullable(False) for field in part.schema])
    part = pa.RecordBatch.from_arrays(part.columns, schema=tight)
    encoder = CompactEncoder(tight, "thing")
    assert encoder.cells(part)[0].as_py() == struct.pack(">iqqhB", -55, encoder.id, 1, 3, 1)
    assert there_and_back(part) == part.to_pylist()


@given(st.lists(st.tuples(st.none() | st.text(max_size=300), st.none() | st.integers(-5, 5), st.booleans())))
def test_any_compact_rows_come_back(rows: list[tuple[str | None, int | None, bool]]) -> None:
    schema = pa.schema(
        [pa.field("s", pa.string()), pa.field("n", pa.int32()), pa.field("f", pa.bool_(), nullable=False)]
    )
    part = pa.RecordBatch.from_arrays(
        [pa.array([row[at] for row in rows], schema.field(at).type) for at in range(3)], schema=schema
    )
    assert there_and_back(part) == part.to_pylist()


def test_what_is_no_compact_row() -> None:
    decoder = CompactDecoder(lambda number: None)
    with pytest.raises(ValueError, match="no Compact value"):
        decoder.read(to_stored(5))
    with pytest.raises(ValueError, match="does not know the Compact schema 7"):
        decoder.read(struct.pack(">iq", -55, 7))


def test_json_of_a_row_is_what_msgspec_reads() -> None:
    part = batch(id=pa.array([1], pa.int64()), f=[float("inf")], raw=pa.array([b"\x00"], pa.binary()))
    (value,) = EntryEncoder(part.schema, Shape(("id",))).encode(part, ANY).values.to_pylist()
    assert msgspec.json.decode(value[8:]) == {"id": 1, "f": "Infinity", "raw": "AA=="}
