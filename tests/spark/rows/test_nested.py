"""Arrays, structs and maps come back from JSON as they were."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from tests.spark.read_entries import read_entries  # noqa: E402

from holdfast.errors import ConfigError  # noqa: E402
from holdfast.spark.rows.bad_rows import BadRow  # noqa: E402
from holdfast.spark.rows.stored import EntryMaker, json_data, long_data  # noqa: E402

MOMENT = dt.datetime(2013, 1, 1, 10, 0, 0, 5)  # noqa: DTZ001 - it has no zone
INNER = pa.struct(
    [
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("exact", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
    ]
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("words", pa.list_(pa.string())),
        ("things", pa.list_(INNER)),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
THING = {
    "n": 1,
    "f": math.inf,
    "at": MOMENT,
    "zoned": MOMENT.replace(tzinfo=dt.UTC),
    "day": MOMENT.date(),
    "exact": decimal.Decimal("-1.50"),
    "raw": b"\x00\xff",
}
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "words": ["a", None, "é"],
        "things": [THING, None, dict.fromkeys(THING)],
        "counts": [("a|b", 1), ("", None)],
    },
    {"id": 2, "words": [], "things": None, "counts": []},
]


def test_nested_columns_come_back() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    keys, values = EntryMaker(SCHEMA, ["id"], "json").entries(batch)
    assert msgspec.json.decode(values[0][8:])["things"][0]["at"] == "2013-01-01T10:00:00.000005"
    assert msgspec.json.decode(values[0][8:])["counts"] == {"a|b": 1, "": None}
    assert read_entries(SCHEMA, "json", keys, values).to_pylist() == ROWS


@given(st.lists(st.lists(st.none() | st.floats()) | st.none()))
def test_any_numbers_come_back(rows: list[list[float | None] | None]) -> None:
    schema = pa.schema([("id", pa.int64()), ("xs", pa.list_(pa.float64()))])
    batch = pa.RecordBatch.from_pydict({"id": list(range(len(rows))), "xs": rows}, schema=schema)
    back = read_entries(schema, "json", *EntryMaker(schema, ["id"], "json").entries(batch))
    assert str(back.column(1).to_pylist()) == str(rows)


@pytest.mark.parametrize(
    "value",
    ['{"id":1,"words":"a"}', '{"id":1,"words":[1]}', '{"id":1,"things":[1]}', '{"id":1,"counts":{"a":"b"}}'],
)
def test_what_does_not_fit_is_named(value: str) -> None:
    with pytest.raises(BadRow, match="the entry with key 1 of map 'm' does not fit"):
        read_entries(SCHEMA, "json", [long_data(1)], [json_data(value.encode())])


@pytest.mark.parametrize(
    "kind", [pa.map_(pa.int64(), pa.int64()), pa.list_(pa.duration("s")), pa.struct([("a", pa.uint8())])]
)
def test_what_json_cannot_have_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be stored"):
        EntryMaker(pa.schema([("id", pa.int64()), ("x", kind)]), ["id"], "json")


def test_an_array_is_no_key() -> None:
    with pytest.raises(ConfigError, match="keys must compare exactly"):
        EntryMaker(SCHEMA, ["words"], "json")
