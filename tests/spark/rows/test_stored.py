"""Rows to entries and back, without Spark."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from tests.spark.read_entries import read_entries  # noqa: E402

from holdfast.errors import ConfigError  # noqa: E402
from holdfast.spark.rows.bad_rows import BadRow  # noqa: E402
from holdfast.spark.rows.stored import (  # noqa: E402
    BINARY_SCHEMA,
    EntryMaker,
    json_data,
    key_text,
    long_data,
    string_data,
)

UTC = dt.UTC
INT64 = st.integers(-(2**63), 2**63 - 1)
MOMENTS = st.datetimes()
DECIMALS = st.decimals(
    allow_nan=False, allow_infinity=False, min_value=-(10**27), max_value=10**27, places=10
)
CELLS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "byte": (pa.int8(), st.integers(-128, 127)),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), INT64),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "flag": (pa.bool_(), st.booleans()),
    "text with spaces, commas, dots. and ü": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "bytes": (pa.binary(), st.binary()),
    "day": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us", tz="UTC"), MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))),
    "wall": (pa.timestamp("us"), MOMENTS),
    "amount": (pa.decimal128(38, 10), DECIMALS),
}
SCHEMA = pa.schema([pa.field("id", pa.int64()), *(pa.field(name, kind) for name, (kind, _) in CELLS.items())])
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | cells for name, (_, cells) in CELLS.items()}), max_size=5
)


def same(left: Any, right: Any) -> bool:
    """Equal, where two NaN are equal, and 0.0 and -0.0 are not."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    return type(left) is type(right) and left == right


@settings(max_examples=150, deadline=None)
@given(ROWS)
def test_every_type_survives_the_round_trip(rows: list[dict[str, Any]]) -> None:
    numbered = [{"id": at, **row} for at, row in enumerate(rows)]
    batch = pa.RecordBatch.from_pylist(numbered, schema=SCHEMA)
    keys, values = EntryMaker(SCHEMA, ["id"], "json").entries(batch)
    assert keys == [long_data(at) for at in range(len(rows))]
    back = read_entries(SCHEMA, "json", keys, values)
    assert back.schema.equals(SCHEMA)
    for before, after in zip(batch.to_pylist(), back.to_pylist(), strict=True):
        assert all(same(before[name], after[name]) for name in before), (before, after)


def test_a_value_is_json_that_any_client_reads() -> None:
    schema = pa.schema(
        {"id": pa.int64(), "day": pa.date32(), "at": pa.timestamp("us", tz="UTC"), "x": pa.float64()}
    )
    row = {
        "id": 7,
        "day": dt.date(2013, 1, 2),
        "at": dt.datetime(2013, 1, 2, 3, 4, 5, tzinfo=UTC),
        "x": math.inf,
    }
    (key,), (value,) = EntryMaker(schema, ["id"], "json").entries(
        pa.RecordBatch.from_pylist([row], schema=schema)
    )
    assert key.hex() == "fffffff8" + "0000000000000007"
    assert value[:4].hex() == "ffffff7e"
    assert int.from_bytes(value[4:8], "big") == len(value) - 8
    assert json.loads(value[8:]) == {
        "id": 7,
        "day": "2013-01-02",
        "at": "2013-01-02T03:04:05.000000Z",
        "x": "Infinity",
    }


def one_key(kinds: dict[str, Any], row: dict[str, Any]) -> bytes:
    schema = pa.schema(kinds)
    batch = pa.RecordBatch.from_pylist([row], schema=schema)
    return EntryMaker(schema, list(kinds), "json").entries(batch)[0][0]


@pytest.mark.parametrize(
    ("kind", "cell", "key"),
    [
        (pa.int8(), -5, long_data(-5)),
        (pa.int64(), 2**63 - 1, long_data(2**63 - 1)),
        (pa.string(), "a|b", string_data("a|b")),
        (pa.bool_(), True, string_data("true")),
        (pa.date32(), dt.date(2013, 1, 2), string_data("2013-01-02")),
        (
            pa.timestamp("us", tz="UTC"),
            dt.datetime(2013, 1, 2, tzinfo=UTC),
            string_data("2013-01-02T00:00:00.000000Z"),
        ),
        (pa.decimal128(9, 2), Decimal("-1.5"), string_data("-1.50")),
    ],
)
def test_a_key_of_one_column(kind: Any, cell: Any, key: bytes) -> None:
    assert one_key({"k": kind}, {"k": cell}) == key


def test_a_key_of_several_columns_is_their_texts() -> None:
    kinds = {"a": pa.string(), "n": pa.int32(), "f": pa.bool_()}
    assert one_key(kinds, {"a": "EWR", "n": 15, "f": False}) == string_data("EWR|15|false")


TEXTS = st.text(st.sampled_from("a|\\"), max_size=4)


@settings(deadline=None)
@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
@example(("\\", "|x"), ("|\\", "x"))
def test_different_rows_have_different_keys(one: tuple[str, str], other: tuple[str, str]) -> None:
    kinds = {"a": pa.string(), "b": pa.string()}
    keys = [one_key(kinds, dict(zip("ab", row, strict=True))) for row in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


@pytest.mark.parametrize(
    ("kinds", "key", "why"),
    [
        ({"a": pa.int64()}, ["b"], "no key column 'b'; the columns are a"),
        ({"a": pa.int64()}, [], "option key is missing"),
        ({"a": pa.float64()}, ["a"], "must compare exactly"),
        ({"a": pa.binary()}, ["a"], "must compare exactly"),
        ({"a": pa.int64()}, ["a", "a"], "twice"),
        ({"a": pa.int64(), 'b"': pa.int64()}, ["a"], "rename the column"),
        (
            {"a": pa.int64(), "l": pa.map_(pa.int64(), pa.int64())},
            ["a"],
            "'l' is map.*cannot be stored.*to_json",
        ),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(kinds: dict[str, Any], key: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        EntryMaker(pa.schema(kinds), key, "json")


def test_two_columns_of_one_name_are_refused() -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("a", pa.int64())])
    with pytest.raises(ConfigError, match="must differ"):
        EntryMaker(schema, ["a"], "json")


def test_a_missing_key_is_refused_before_anything_is_made() -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.string()})
    batch = pa.RecordBatch.from_pylist([{"a": 1, "b": "x"}, {"a": 2, "b": None}], schema=schema)
    with pytest.raises(BadRow, match="1 of 2 rows have no value in the column 'b'"):
        EntryMaker(schema, ["a", "b"], "json").entries(batch)
    keys, _ = EntryMaker(schema, ["a"], "json").entries(batch)
    assert len(keys) == 2


def test_fields_that_are_not_wanted_are_skipped_and_missing_ones_are_null() -> None:
    schema = pa.schema({"b": pa.string(), "c": pa.int64()})
    values = [json_data(b'{"a": [1, {"x": 2}], "b": "x"}'), json_data(b'{\n "c": 5}')]
    batch = read_entries(schema, "json", [long_data(1), long_data(2)], values)
    assert batch.to_pylist() == [{"b": "x", "c": None}, {"b": None, "c": 5}]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            string_data("hello"),
            "entry with key 2 of map 'm' does not fit .*: it is no JSON value.*option bad",
        ),
        (json_data(b"{"), "entry with key 2 of map 'm' does not fit"),
        (json_data(b"17"), "key 2"),
        (json_data(b'{"n": "x"}'), "key 2"),
        (json_data(b'{"n": 1.5}'), "key 2"),
        (json_data(b'{"n": 300}'), "key 2"),
        (json_data(b'{"t": "soon"}'), "key 2"),
        (json_data(b'{"x": "soon"}'), "key 2"),
    ],
)
def test_an_entry_that_is_no_row_is_named(value: bytes, why: str) -> None:
    schema = pa.schema({"n": pa.int8(), "t": pa.timestamp("us", tz="UTC"), "x": pa.float64()})
    values = [json_data(b'{"n": 1}'), value, json_data(b'{"n": 3}')]
    with pytest.raises(BadRow, match=why):
        read_entries(schema, "json", [long_data(1), long_data(2), long_data(3)], values)


def test_binary_columns_are_taken_verbatim() -> None:
    rows = [{"key": string_data("k"), "value": long_data(5)}]
    keys, values = EntryMaker(BINARY_SCHEMA, [], "binary").entries(
        pa.RecordBatch.from_pylist(rows, schema=BINARY_SCHEMA)
    )
    assert (keys, values) == ([string_data("k")], [long_data(5)])
    assert read_entries(BINARY_SCHEMA, "binary", keys, values).to_pylist() == rows


def test_binary_columns_must_be_there_and_hold_stored_forms() -> None:
    with pytest.raises(ConfigError, match="two binary columns key and value"):
        EntryMaker(pa.schema({"key": pa.string(), "value": pa.binary()}), [], "binary")
    with pytest.raises(ConfigError, match="two binary columns key and value"):
        read_entries(pa.schema({"key": pa.string()}), "binary", [], [])
    with pytest.raises(ConfigError, match="leave the option key out"):
        EntryMaker(BINARY_SCHEMA, ["value"], "binary")
    for row in ({"key": b"k", "value": long_data(1)}, {"key": long_data(1), "value": None}):
        with pytest.raises(BadRow):
            EntryMaker(BINARY_SCHEMA, [], "binary").entries(
                pa.RecordBatch.from_pylist([row], schema=BINARY_SCHEMA)
            )


def test_keys_are_shown_as_people_read_them() -> None:
    assert key_text(string_data("EWR|7")) == "'EWR|7'"
    assert key_text(long_data(-7)) == "-7"
    assert key_text(b"\0\0\0\1ab") == "000000016162"
    assert key_text(b"\xff\xff\xff\xf8ab") == "fffffff86162"
