"""Filters that are pushed: no row is left out that they keep, and no more is asked for than they say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.datasource import (  # noqa: E402
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import StringType, StructType  # noqa: E402

from holdfast.core.model.keys import partition_of  # noqa: E402
from holdfast.spark.rows.batch_maker import PARTITION  # noqa: E402
from holdfast.spark.rows.column_schemas import arrow_schema  # noqa: E402
from holdfast.spark.rows.stored import EntryMaker, long_data, string_data  # noqa: E402
from holdfast.spark.source.pushdown import KEYS_MAX, KeyColumns, key_columns, narrow  # noqa: E402
from holdfast.wire.values import to_stored  # noqa: E402

COUNT = 31


def columns(text: str) -> StructType:
    found = StructType()
    for column in text.split(", "):
        found.add(*column.split())
    return found


def key_of(
    text: str, *, wrote: str | None = None, verbatim: bool = False, key: list[str] | None = None
) -> Any:
    struct = columns(text)
    written = columns(wrote) if wrote is not None else struct
    return key_columns(struct, key or struct.names, written, verbatim=verbatim)


ID = key_of("id long")
PAIR = key_of("a string, n integer")


def keys(filters: list[Filter], key: KeyColumns | None) -> Any:
    return narrow(filters, key, COUNT).keys


def test_equality_on_the_key_asks_for_one_key_in_every_width() -> None:
    assert keys([EqualTo(("id",), 5)], ID) == {
        long_data(5),
        to_stored(5),
        b"\xff\xff\xff\xfa\0\5",
        b"\xff\xff\xff\xfd\5",
    }
    assert keys([EqualTo(("id",), 2**40)], ID) == {long_data(2**40)}


def test_several_values_and_several_columns_are_multiplied() -> None:
    found = keys([In(("a",), ("x", "y|")), EqualTo(("n",), 1), In(("n",), (1, 2))], PAIR)
    assert found == {string_data("x|1"), string_data("y\\||1")}


def test_filters_that_contradict_each_other_ask_for_nothing() -> None:
    assert keys([EqualTo(("id",), 5), EqualTo(("id",), 6)], ID) == frozenset()
    assert keys([In(("id",), ())], ID) == frozenset()
    assert keys([In(("id",), (None,))], ID) == frozenset()


@pytest.mark.parametrize(
    "filters",
    [
        [],
        [GreaterThan(("id",), 5)],
        [Not(EqualTo(("id",), 5))],
        [EqualTo(("id", "inner"), 5)],
        [EqualTo(("other",), 5)],
        [EqualTo(("id",), 5.0)],
        [EqualTo(("id",), True)],
        [EqualTo(("id",), 2**63)],
        [EqualNullSafe(("id",), None)],
        [IsNotNull(("id",))],
        [In(("id",), tuple(range(KEYS_MAX + 1)))],
    ],
)
def test_what_says_nothing_sure_about_the_key_is_left_to_spark(filters: list[Filter]) -> None:
    assert keys(filters, ID) is None


def test_a_key_of_two_columns_needs_both() -> None:
    assert keys([EqualTo(("a",), "x")], PAIR) is None
    assert keys([EqualTo(("a",), "x"), StringStartsWith(("n",), "1")], PAIR) is None


def test_a_text_that_is_no_text_is_left_to_spark() -> None:
    assert keys([EqualTo(("a",), "\ud800")], key_of("a string")) is None


def test_columns_that_are_read_otherwise_than_written_say_nothing() -> None:
    assert key_of("id string", wrote="id long") is None
    assert key_of("word string", wrote="id long, word string", key=["id"]) is None
    assert key_columns(StructType().add("id", StringType("UTF8_LCASE")), ["id"], None, verbatim=False) is None


def test_keys_of_other_clients_that_are_no_numbers_or_texts_say_nothing() -> None:
    assert key_columns(columns("key double"), ["key"], None, verbatim=False) is None
    assert key_columns(columns("key string"), ["key"], None, verbatim=False) is not None


def test_binary_keys_are_taken_as_they_are() -> None:
    key = key_columns(columns("key binary, value binary"), ["key"], None, verbatim=True)
    assert keys([EqualTo(("key",), bytearray(long_data(5)))], key) == {long_data(5)}
    assert keys([EqualTo(("key",), "text")], key) is None


def test_keys_are_asked_for_where_they_live() -> None:
    found = narrow([In(("id",), (1, 2, 3))], ID, COUNT).by_partition(COUNT)
    assert found is not None
    for partition, some in found.items():
        assert {partition_of(one, 0, COUNT) for one in some} == {partition}
    assert sum(map(len, found.values())) == 12


VALUES = st.integers(-3, 40) | st.none() | st.just("x")
ONE: Any = st.one_of(
    st.builds(EqualTo, st.just((PARTITION,)), st.integers(-3, 40)),
    st.builds(EqualNullSafe, st.just((PARTITION,)), st.integers(-3, 40)),
    st.builds(LessThan, st.just((PARTITION,)), st.integers(-3, 40)),
    st.builds(LessThanOrEqual, st.just((PARTITION,)), st.integers(-3, 40)),
    st.builds(GreaterThan, st.just((PARTITION,)), st.integers(-3, 40)),
    st.builds(GreaterThanOrEqual, st.just((PARTITION,)), st.integers(-3, 40)),
    st.builds(In, st.just((PARTITION,)), st.lists(st.integers(-3, 40) | st.none(), max_size=5).map(tuple)),
    st.builds(Not, st.builds(EqualTo, st.just((PARTITION,)), st.integers(-3, 40))),
)
CELLS = {"a": st.sampled_from(["", "x", "x|", "\\", "ü"]), "n": st.integers(-2, 2), "f": st.booleans()}


def one_filter(name: str) -> Any:
    cells = CELLS[name] | st.none()
    return st.one_of(
        st.builds(EqualTo, st.just((name,)), CELLS[name]),
        st.builds(EqualNullSafe, st.just((name,)), cells),
        st.builds(In, st.just((name,)), st.lists(cells, max_size=4).map(tuple)),
        st.builds(Not, st.builds(EqualTo, st.just((name,)), CELLS[name])),
        st.builds(LessThan, st.just((name,)), CELLS[name]),
    )


def keeps(one: Filter, row: dict[str, Any]) -> bool:
    """What Spark does with a filter."""
    if isinstance(one, Not):
        return not keeps(one.child, row)
    cell, value = row[one.attribute[0]], getattr(one, "value", None)  # type: ignore[attr-defined]
    if isinstance(one, In):
        return cell in [each for each in one.value if each is not None]
    if isinstance(one, EqualTo | EqualNullSafe):
        return bool(cell == value)
    compared: bool = {
        LessThan: lambda: cell < value,
        LessThanOrEqual: lambda: cell <= value,
        GreaterThan: lambda: cell > value,
        GreaterThanOrEqual: lambda: cell >= value,
    }[type(one)]()
    return compared


ROWS = st.lists(st.fixed_dictionaries(dict(CELLS)), max_size=30)


@settings(deadline=None)
@given(ROWS, st.sampled_from([["a"], ["n"], ["a", "n"], ["n", "f", "a"]]), st.data())
def test_no_row_that_the_filters_keep_is_left_out(
    rows: list[dict[str, Any]], key: list[str], data: Any
) -> None:
    struct = columns("a string, n integer, f boolean")
    found = key_columns(struct, key, struct, verbatim=False)
    filters = data.draw(st.lists(st.sampled_from(key).flatmap(one_filter), max_size=4))
    filters += data.draw(st.lists(ONE, max_size=2))
    narrowed = narrow(filters, found, COUNT)
    schema = arrow_schema(struct)
    stored, _ = EntryMaker(schema, key, "json").entries(pa.RecordBatch.from_pylist(rows, schema=schema))
    for row, one in zip(rows, stored, strict=True):
        whole = {**row, PARTITION: partition_of(one, 0, COUNT)}
        if all(keeps(each, whole) for each in filters):
            assert narrowed.keys is None or one in narrowed.keys
            assert narrowed.partitions is None or whole[PARTITION] in narrowed.partitions


@settings(deadline=None)
@given(st.lists(ONE, min_size=1, max_size=4))
def test_partitions_are_exactly_those_of_the_filters_that_are_understood(filters: list[Any]) -> None:
    understood = [one for one in filters if not isinstance(one, Not)]
    left = narrow(filters, None, COUNT).partitions
    if not understood:
        assert left is None
    else:
        assert left == {at for at in range(COUNT) if all(keeps(one, {PARTITION: at}) for one in understood)}
