"""Pages of entries as record batches: what is on the wire is not trusted, and says which entry is wrong."""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from holdfast.errors import ConfigError, ProtocolError  # noqa: E402
from holdfast.spark.rows.bad_rows import BadRow  # noqa: E402
from holdfast.spark.rows.batch_maker import PARTITION, BatchMaker, page_cells  # noqa: E402
from holdfast.spark.rows.row_reader import Layout, split_key  # noqa: E402
from holdfast.spark.rows.stored import (  # noqa: E402
    EntryMaker,
    json_data,
    long_data,
    string_data,
)
from holdfast.wire.columns import ColumnBatch  # noqa: E402
from holdfast.wire.values import to_stored  # noqa: E402


def page(entries: dict[bytes, bytes]) -> ColumnBatch:
    return ColumnBatch.of(list(entries), list(entries.values()))


def rows(schema: Any, layout: Layout, *pages: ColumnBatch) -> list[dict[str, Any]]:
    batch = BatchMaker(schema, layout).batch(list(enumerate(pages)))
    assert batch.schema.equals(schema)
    batch.validate(full=True)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=20))
def test_cells_are_what_was_sent(cells: list[bytes]) -> None:
    sent = ColumnBatch.of(cells, cells)
    found = page_cells(sent.rows, sent.key_offsets, sent.keys)
    found.validate(full=True)
    assert found.to_pylist() == cells


@pytest.mark.parametrize(
    ("count", "offsets", "data"),
    [
        (-1, [], b""),
        (1, [0], b""),
        (1, [0, 1, 1], b"a"),
        (1, [1, 1], b"a"),
        (2, [0, 2, 1], b"a"),
        (2, [0, 5, 3], b"abc"),
        (2, [0, -1, 3], b"abc"),
        (1, [0, 2], b"abc"),
        (1, [0, 4], b"abc"),
        (1, [-4, 3], b"abc"),
    ],
)
def test_offsets_that_do_not_fit_are_refused(count: int, offsets: list[int], data: bytes) -> None:
    with pytest.raises(ProtocolError):
        page_cells(count, struct.pack(f"<{len(offsets)}i", *offsets), data)


BINARY = pa.schema({"key": pa.binary(), "value": pa.binary()})


def test_binary_pages_become_one_batch_with_the_partition_of_each_row() -> None:
    schema = BINARY.append(pa.field(PARTITION, pa.int32()))
    one, other = page({long_data(1): b"abcd"}), page({long_data(2): b"efgh", long_data(3): b"ijkl"})
    found = BatchMaker(schema, Layout("m", "binary")).batch([(7, one), (9, other)])
    assert found.to_pylist() == [
        {"key": long_data(1), "value": b"abcd", PARTITION: 7},
        {"key": long_data(2), "value": b"efgh", PARTITION: 9},
        {"key": long_data(3), "value": b"ijkl", PARTITION: 9},
    ]


def test_a_schema_may_be_the_partition_alone_or_nothing() -> None:
    pages = [(3, page({long_data(1): json_data(b"{}"), long_data(2): json_data(b"{}")}))]
    only = pa.schema({PARTITION: pa.int32()})
    maker = BatchMaker(only, Layout("m", "json"))
    assert not maker.needs_values
    assert maker.batch(pages).to_pylist() == [{PARTITION: 3}, {PARTITION: 3}]
    assert BatchMaker(pa.schema([]), Layout("m", "json")).batch(pages).num_rows == 2


JSON = pa.schema({"n": pa.int64(), "t": pa.string(), "d": pa.float64(), "at": pa.timestamp("us", tz="UTC")})


def test_json_values_of_several_pages_are_decoded_together() -> None:
    one = page(
        {
            long_data(1): json_data(b'{"n": 1, "t": "a|\xc3\xbc\\n", "d": "NaN"}'),
            long_data(2): json_data(b"{}"),
        }
    )
    other = page({long_data(3): json_data(b'{"at": "2013-01-01T10:00:00.000001Z", "x": [1]}\n')})
    found = rows(JSON, Layout("m", "json"), one, other)
    assert found[0]["t"] == "a|ü\n"
    assert found[0]["d"] != found[0]["d"]
    assert found[1] == {"n": None, "t": None, "d": None, "at": None}
    assert found[2]["at"] == dt.datetime(2013, 1, 1, 10, 0, 0, 1, tzinfo=dt.UTC)


def test_a_text_column_takes_anything_as_its_json_text() -> None:
    values = [
        b'{"t": {"a": [1, 2]}}',
        b'{"t": 1.50}',
        b'{"t": true}',
        b'{"t": null}',
        b'{"t": "x"}',
        b'{"t":[ 1]}',
    ]
    entries = {long_data(at): json_data(value) for at, value in enumerate(values)}
    found = rows(JSON, Layout("m", "json"), page(entries))
    assert [row["t"] for row in found] == ['{"a": [1, 2]}', "1.50", "true", None, "x", "[ 1]"]


@pytest.mark.parametrize(
    "value",
    [
        string_data("hello"),
        json_data(b"{"),
        json_data(b""),
        json_data(b"17"),
        json_data(b'{"n": "x"}'),
        json_data(b'{"n": 1}, {"n": 2}'),
        json_data(b'{"at": "soon"}'),
        json_data(b'{"n": 1')[:-1],
        b"\xff\xff",
    ],
)
def test_an_entry_that_is_no_row_is_named(value: bytes) -> None:
    entries = {long_data(1): json_data(b'{"n": 1}'), long_data(2): value, long_data(3): json_data(b"{}")}
    with pytest.raises(BadRow, match="entry with key 2 of map 'm'"):
        rows(JSON, Layout("m", "json"), page(entries))


def test_plain_values_are_columns_of_their_type() -> None:
    schema = pa.schema({"key": pa.string(), "value": pa.float64()})
    entries = {to_stored("a"): to_stored(1.5), to_stored("b"): to_stored(-2.0)}
    layout = Layout("m", "primitive", ("key",))
    assert rows(schema, layout, page(entries)) == [{"key": "a", "value": 1.5}, {"key": "b", "value": -2.0}]
    only = BatchMaker(pa.schema({"key": pa.string()}), layout)
    assert not only.needs_values
    assert only.batch([(0, page(dict.fromkeys(entries, b"")))]).to_pylist() == [{"key": "a"}, {"key": "b"}]


def test_integers_of_several_widths_are_one_column() -> None:
    schema = pa.schema({"key": pa.int64(), "value": pa.int32()})
    entries = {to_stored(1): to_stored(2), long_data(2**40): struct.pack(">ih", -6, 3)}
    found = rows(schema, Layout("m", "primitive", ("key",)), page(entries))
    assert found == [{"key": 1, "value": 2}, {"key": 2**40, "value": 3}]


def test_a_plain_value_of_another_type_is_named() -> None:
    schema = pa.schema({"key": pa.int64(), "value": pa.string()})
    entries = {long_data(1): to_stored("x"), long_data(2): to_stored(5)}
    with pytest.raises(BadRow, match=r"entry with key 2 of map 'm'.*valueFormat=binary"):
        rows(schema, Layout("m", "primitive", ("key",)), page(entries))


KEYS = pa.schema(
    {"a": pa.string(), "n": pa.int32(), "f": pa.bool_(), "day": pa.date32(), "amount": pa.decimal128(9, 2)}
)


@settings(deadline=None)
@given(st.text(st.sampled_from("a|\\ü"), max_size=5), st.integers(-9, 9), st.booleans())
def test_columns_are_read_back_from_a_key_of_several(text: str, number: int, flag: bool) -> None:
    import decimal

    row = {
        "a": text,
        "n": number,
        "f": flag,
        "day": dt.date(2013, 1, 2),
        "amount": decimal.Decimal("1.50"),
    }
    keys, _ = EntryMaker(KEYS, KEYS.names, "json").entries(pa.RecordBatch.from_pylist([row], schema=KEYS))
    schema = KEYS.append(pa.field("v", pa.int64()))
    found = rows(schema, Layout("m", "primitive", tuple(KEYS.names)), page({keys[0]: long_data(7)}))
    assert found == [{**row, "v": 7}]


def test_split_key() -> None:
    assert split_key("a|b") == ["a", "b"]
    assert split_key("a\\|b|\\\\") == ["a|b", "\\"]


@pytest.mark.parametrize(
    ("schema", "layout", "why"),
    [
        ({"key": pa.string()}, Layout("m", "binary"), "two binary columns key and value"),
        (
            {"key": pa.int64(), "a": pa.int64(), "b": pa.int64()},
            Layout("m", "primitive", ("key",)),
            "one more column",
        ),
        (
            {"key": pa.int64(), "a": pa.date32()},
            Layout("m", "primitive", ("key",)),
            "no plain Hazelcast form",
        ),
        ({PARTITION: pa.int64()}, Layout("m", "json"), "is an int"),
    ],
)
def test_columns_that_do_not_go_with_the_format_are_refused(
    schema: dict[str, Any], layout: Layout, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        BatchMaker(pa.schema(schema), layout)
