"""Entries that do not fit the columns: what the option `bad` makes of them, in every format."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from tests.spark.read_entries import read_entries  # noqa: E402

from holdfast.errors import ConfigError  # noqa: E402
from holdfast.spark.rows.bad_rows import UNREADABLE, BadRow, BadRows, sift  # noqa: E402
from holdfast.spark.rows.batch_maker import PARTITION, BatchMaker  # noqa: E402
from holdfast.spark.rows.changed import ChangeMaker, ChangeRow, change_columns  # noqa: E402
from holdfast.spark.rows.column_schemas import StoredSchema, arrow_schema  # noqa: E402
from holdfast.spark.rows.compact import CompactEncoder  # noqa: E402
from holdfast.spark.rows.row_reader import Layout  # noqa: E402
from holdfast.spark.rows.stored import cell_text, json_data, long_data, string_data  # noqa: E402
from holdfast.spark.source.options import Options  # noqa: E402
from holdfast.spark.source.sampling import guess  # noqa: E402
from holdfast.wire.columns import ColumnBatch  # noqa: E402
from holdfast.wire.hazelcast.compact_schemas import schema_id  # noqa: E402
from holdfast.wire.values import to_stored  # noqa: E402

COLUMNS = pa.schema({"id": pa.int64(), "n": pa.int8(), "t": pa.string(), "xs": pa.list_(pa.int64())})
MARKED = COLUMNS.append(pa.field("_bad", pa.string()))
NOTHING = {"n": None, "t": None, "xs": None}
DEEP = b'{"id":3,"deep":' + b"[" * 5_000 + b"]" * 5_000 + b"}"

BAD: list[tuple[bytes, dict[str, Any], str]] = [
    # what is stored; what can be read of it beside the key; its text
    (to_stored("oops"), NOTHING, "oops"),
    (to_stored(5), NOTHING, "5"),
    (to_stored(None), NOTHING, "null"),
    (json_data(b'"oops"'), NOTHING, '"oops"'),
    (json_data(b"null"), NOTHING, "null"),
    (json_data(b"[1]"), NOTHING, "[1]"),
    (json_data(b""), NOTHING, ""),
    (json_data(b'{"id":3,"n":1'), NOTHING, '{"id":3,"n":1'),
    (json_data(b'{"id":3,"n":NaN}'), NOTHING, '{"id":3,"n":NaN}'),
    (json_data(b'{"id":3},{"id":4}'), NOTHING, '{"id":3},{"id":4}'),
    (json_data(b'{"id":3,"n":1}x'), NOTHING, '{"id":3,"n":1}x'),
    (json_data(b'{"id":3,"n":300,"t":"x"}'), {**NOTHING, "t": "x"}, '{"id":3,"n":300,"t":"x"}'),
    (json_data(b'{"id":3,"n":1e400,"t":5}'), {**NOTHING, "t": "5"}, '{"id":3,"n":1e400,"t":5}'),
    (json_data(b'{"id":3,"n":"a","xs":[1]}'), {**NOTHING, "xs": [1]}, '{"id":3,"n":"a","xs":[1]}'),
    (json_data(b'{"n":7,"xs":["a"]}'), {**NOTHING, "n": 7}, '{"n":7,"xs":["a"]}'),
    (json_data(b'{"id":"three","n":7}'), {**NOTHING, "n": 7}, '{"id":"three","n":7}'),
    (
        json_data(b'{"id":3,"n":7,"t":"\xff"}'),
        {**NOTHING, "n": 7},
        json_data(b'{"id":3,"n":7,"t":"\xff"}').hex(),
    ),
    (json_data(DEEP), NOTHING, DEEP.decode()),
    (b"\x12\x34\x56\x78what", NOTHING, "12345678" + b"what".hex()),
    (struct.pack(">i", -55) + bytes(8), NOTHING, (struct.pack(">i", -55) + bytes(8)).hex()),
    (b"\xff\xff", NOTHING, "ffff"),
    (b"", NOTHING, ""),
]


def good(number: int) -> bytes:
    return json_data(b'{"id":%d,"n":1,"t":"word","xs":[%d]}' % (number, number))


@pytest.mark.parametrize(("value", "found", "text"), BAD, ids=[repr(value[:30]) for value, *_ in BAD])
def test_a_json_value_that_does_not_fit(value: bytes, found: dict[str, Any], text: str) -> None:
    keys = [long_data(at) for at in range(1, 6)]
    values = [good(1), good(2), value, good(4), good(5)]
    fine = [{"id": at, "n": 1, "t": "word", "xs": [at]} for at in (1, 2, 4, 5)]
    with pytest.raises(BadRow, match=r"the entry with key 3 of map 'm' does not fit .*option bad"):
        read_entries(COLUMNS, "json", keys, values, key=("id",))
    assert read_entries(COLUMNS, "json", keys, values, "skip", ("id",)).to_pylist() == fine
    rows = read_entries(COLUMNS, "json", keys, values, "null", ("id",)).to_pylist()
    # An `id` that is not in an object at all is null, as ever; else the key tells what the value does not.
    told = None if value == json_data(b'{"n":7,"xs":["a"]}') else 3
    assert rows == [*fine[:2], {"id": told, **found}, *fine[2:]]
    marked = read_entries(MARKED, "json", keys, values, "column _bad", ("id",)).to_pylist()
    assert [row.pop("_bad") for row in marked] == [None, None, text, None, None]
    assert marked == rows
    alone = read_entries(COLUMNS, "json", keys[2:3], values[2:3], "null", ("id",)).to_pylist()
    assert alone == rows[2:3], "a row alone is read as one of many"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, len(BAD)), max_size=40))
def test_bad_rows_among_others_change_nothing_of_those(which: list[int]) -> None:
    keys = [long_data(at) for at in range(len(which))]
    values = [good(at) if one == len(BAD) else BAD[one][0] for at, one in enumerate(which)]
    marked = read_entries(MARKED, "json", keys, values, "column _bad", ("id",)).to_pylist()
    assert [row["_bad"] is None for row in marked] == [one == len(BAD) for one in which]
    fine = [{"id": at, "n": 1, "t": "word", "xs": [at]} for at, one in enumerate(which) if one == len(BAD)]
    assert read_entries(COLUMNS, "json", keys, values, "skip", ("id",)).to_pylist() == fine
    assert [{**row} for row in marked if row.pop("_bad") is None] == fine


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=40)), max_size=6), st.integers(-30, 0))
def test_no_bytes_stop_a_read(entries: list[tuple[bytes, bytes]], type_id: int) -> None:
    keys = [key for key, _ in entries]
    values = [struct.pack(">i", type_id) + value for _, value in entries]
    for value_format in ("json", "compact", "primitive"):
        for kind in (pa.int32(), pa.string(), pa.list_(pa.string()), pa.float64()):
            schema = pa.schema({"key": pa.int64(), "value": kind, "_bad": pa.string()})
            for some in (values, [value[4:] for value in values]):
                read = read_entries(schema, value_format, keys, some, "column _bad", ("key",))
                assert read.num_rows == len(entries)
    for cell in (*keys, *values):
        pa.array([cell_text(cell)], pa.string())


def test_a_bad_row_costs_few_calls() -> None:
    calls = 0

    def read(start: int, end: int) -> int:
        nonlocal calls
        calls += 1
        if start <= 5000 < end:
            raise ValueError("no")
        return end - start

    pieces, bad = sift(8192, read)
    assert (sum(rows for _, rows in pieces), bad, calls) == (8191, {5000: "no"}, 27)
    calls = 0
    assert sift(8192, read, first_only=True)[1] == {5000: "no"}


def test_compact_values_that_do_not_fit() -> None:
    schema = pa.schema({"id": pa.int64(), "n": pa.string()})
    encoder = CompactEncoder(schema, "thing")
    batch = pa.RecordBatch.from_pylist([{"id": 1, "n": "a"}, {"id": 2, "n": "b"}], schema=schema)
    one, two = encoder.cells(batch).to_pylist()
    asked: list[int] = []
    known = {schema_id(encoder.schema): encoder.schema}

    def fetch(number: int) -> Any:
        asked.append(number)
        return known.get(number)

    stranger = struct.pack(">iq", -55, 99) + one[12:]
    keys = [long_data(at) for at in range(1, 7)]
    values = [one, stranger, two[:14], to_stored("oops"), stranger, two]
    narrow = pa.schema({"id": pa.int64(), "n": pa.string(), "_bad": pa.string()})
    rows = read_entries(narrow, "compact", keys, values, "column _bad", ("id",), fetch).to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, 2]
    assert [row["n"] for row in rows] == ["a", None, None, None, None, "b"]
    assert [row["_bad"] for row in rows] == [
        None,
        stranger.hex(),
        two[:14].hex(),
        "oops",
        stranger.hex(),
        None,
    ]
    assert asked.count(99) == 1, "an unknown schema is asked for once"
    with pytest.raises(BadRow, match=r"key 2 .* does not know the Compact schema 99"):
        read_entries(schema, "compact", keys, values, key=("id",), fetch=fetch)
    # A column of another type than the field of the schema loses that column alone.
    other = pa.schema({"id": pa.int64(), "n": pa.int64()})
    assert read_entries(other, "compact", keys[:1], values[:1], "null", fetch=fetch).to_pylist() == [
        {"id": 1, "n": None}
    ]


def test_plain_values_and_keys_that_do_not_fit() -> None:
    schema = pa.schema({"key": pa.int64(), "value": pa.int32(), "_bad": pa.string()})
    keys = [long_data(1), to_stored("two"), to_stored(3), long_data(4)]
    values = [to_stored(10), to_stored(20), to_stored("thirty"), to_stored(2**40)]
    rows = read_entries(schema, "primitive", keys, values, "column _bad", ("key",)).to_pylist()
    assert rows == [
        {"key": 1, "value": 10, "_bad": None},
        {"key": None, "value": 20, "_bad": "key two: 20"},
        {"key": 3, "value": None, "_bad": "thirty"},
        {"key": 4, "value": None, "_bad": str(2**40)},
    ]
    plain = pa.schema({"key": pa.int64(), "value": pa.int32()})
    assert read_entries(plain, "primitive", keys, values, "skip", ("key",)).num_rows == 1
    with pytest.raises(BadRow, match="key 'two'"):
        read_entries(plain, "primitive", keys, values, key=("key",))


def page(entries: dict[bytes, bytes]) -> ColumnBatch:
    return ColumnBatch.of(list(entries), list(entries.values()))


def test_rows_keep_their_partition_and_are_counted() -> None:
    schema = pa.schema({"id": pa.int64(), PARTITION: pa.int32()})
    pages = [
        (3, page({long_data(1): json_data(b'{"id":1}'), long_data(2): to_stored("oops")})),
        (9, page({long_data(3): json_data(b'{"id":3}'), long_data(4): to_stored("oops")})),
    ]
    maker = BatchMaker(schema, Layout("m", "json", ("id",), BadRows("skip")))
    batch, keys = maker.rows(pages)
    assert batch.to_pylist() == [{"id": 1, PARTITION: 3}, {"id": 3, PARTITION: 9}]
    assert keys.to_pylist() == [long_data(1), long_data(3)]
    assert maker.bad == 2
    with pytest.raises(BadRow, match=r"key 2 of map 'm' \(partition 3\)"):
        BatchMaker(schema, Layout("m", "json")).batch(pages)
    only = BatchMaker(pa.schema({PARTITION: pa.int32()}), Layout("m", "json"))
    assert (only.needs_values, only.batch(pages).num_rows) == (False, 4), "rows are counted without values"


# -- streams

STORED = StoredSchema(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("n", "integer"))
        ],
    },
    ["id"],
    "json",
)
A, B, OOPS = json_data(b'{"id":1,"n":1}'), json_data(b'{"id":1,"n":2}'), to_stored("oops")


def change(
    counter: int, op: str, before: bytes | None, after: bytes | None, key: bytes = long_data(1)
) -> ChangeRow:
    return ChangeRow("m", 5, 1, counter, op, 1000, key, before, after)


STORY = [
    change(1, "insert", None, A),
    change(2, "update", A, OOPS),
    change(3, "update", OOPS, B),
    change(4, "update", B, OOPS),
    change(5, "remove", OOPS, None),
]


def told(mode: str, rows: list[ChangeRow], now: bytes | None = OOPS) -> list[dict[str, Any]]:
    bad = BadRows.parse(mode)
    maker = ChangeMaker(change_columns("json", STORED, bad), "json", ["m"], bad, lambda _: now)
    return maker.batch(rows).to_pylist()


def test_a_stream_keeps_op_and_key_of_what_does_not_fit() -> None:
    rows = told("column raw", STORY)
    assert [row["raw"] for row in rows] == [None, "oops", None, "oops", None]
    assert [(row["op"], row["key"]) for row in rows] == [(row.op, 1) for row in STORY]
    nothing, one, two = ({"id": a, "n": b} for a, b in ((None, None), (1, 1), (1, 2)))
    assert [row["after"] for row in rows] == [one, nothing, two, nothing, None]
    assert [row["before"] for row in rows] == [None, one, nothing, two, nothing]
    for row in rows:
        del row["raw"]
    assert told("null", STORY) == rows
    # The correction and the remove of a bad value are no bad rows: a sink that skips those has what the map has.
    assert [row["counter"] for row in told("skip", STORY)] == [1, 3, 5]


def test_a_stream_that_fails_goes_on_when_the_value_was_corrected() -> None:
    with pytest.raises(
        BadRow, match=r"update 2 of map 'm', partition 5, key 1 .*same checkpoint.*option bad"
    ):
        told("fail", STORY)
    for now in (None, B):
        assert [row["counter"] for row in told("fail", STORY, now)] == [1, 3, 5]
    odd = change(6, "insert", None, A, string_data("x"))
    with pytest.raises(BadRow, match=r"key 'x' .* the key is no integer"):
        told("fail", [odd], A)
    assert told("fail", [odd], None) == []
    assert told("skip", [odd]) == []
    assert [(row["key"], row["raw"]) for row in told("column raw", [odd])] == [
        (None, 'key x: {"id":1,"n":1}')
    ]


def test_streams_of_text_and_stored_forms_have_no_bad_rows() -> None:
    for value_format in ("text", "binary"):
        bad = BadRows.parse("column raw")
        maker = ChangeMaker(change_columns(value_format, None, bad), value_format, ["m"], bad)
        assert [row["raw"] for row in maker.batch(STORY).to_pylist()] == [None] * 5


def test_half_a_surrogate_is_hexadecimal() -> None:
    value = json_data(b'{"id":1,"n":"\\ud800"}')
    assert told("column raw", [change(1, "insert", None, value)])[0]["raw"] == '{"id":1,"n":"\\ud800"}'
    assert arrow_schema(change_columns("json", STORED)).names[-1] == "transaction"


# -- the option and the sample


def test_the_option() -> None:
    assert BadRows.parse("FAIL") == BadRows()
    assert BadRows.parse(" column  my bad ") == BadRows("column", "my bad")
    assert str(BadRows.parse("column _bad")) == "column _bad"
    for wrong in ("", "drop", "column", "skip it", "null null"):
        with pytest.raises(ConfigError, match="bad is fail, null, skip or 'column NAME'"):
            Options.parse({"address": "x", "map": "m", "bad": wrong})


def test_one_odd_entry_does_not_make_a_map_binary() -> None:
    entries = [(long_data(at), json_data(b'{"id":%d}' % at)) for at in range(5)] + [(string_data("x"), OOPS)]
    strict, loose = guess(entries), guess(entries, mostly=True)
    assert (strict and strict.value_format, loose and loose.value_format) == ("binary", "json")
    assert loose is not None
    assert loose.struct.names == ["id"]
    numbers = [(to_stored(at), to_stored(2**at)) for at in range(40)] + [(to_stored("x"), OOPS)]
    found = guess(numbers, mostly=True)
    assert found is not None
    assert [one.dataType.simpleString() for one in found.struct] == ["int", "bigint"]
    assert ValueError in UNREADABLE
