"""Filters that narrow a read to some keys or partitions.

Spark applies all filters again, so a pushed filter must only not exclude a row that it keeps; a filter that is not
understood is left to Spark.

Spark 4.1 to 4.3 reuses the plan of one query, with its filters, for all later queries on the same DataFrame or view,
also with other filters or none (`PythonDataSourceV2.readInfo`). So filters are only pushed on request (option
`pushdown`). The option `keys`, and `where` of `pipeline.tables.table`, narrow a read without that problem.

A filter on key columns is pushed if Spark wrote the map, so that keys have the values of the key columns, or if the key
is a column itself (formats `binary` and `primitive`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import IntegralType, StringType, StructType

from holdfast.core.model.keys import partition_of
from holdfast.errors import ConfigError
from holdfast.spark.rows.batch_maker import PARTITION
from holdfast.spark.rows.column_schemas import arrow_schema
from holdfast.spark.rows.stored import EntryMaker
from holdfast.wire.values import INTEGER, LONG

KEYS_MAX = 10_000
"""With more keys, reading the whole map is cheaper."""

_SHORT, _BYTE = -6, -3
_WIDTHS = ((LONG, 8), (INTEGER, 4), (_SHORT, 2), (_BYTE, 1))


@dataclass(frozen=True, slots=True)
class KeyColumns:
    schema: pa.Schema
    verbatim: bool = False
    """Whether the one column has keys in their stored form."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    keys: frozenset[bytes] | None = None
    partitions: frozenset[int] | None = None

    def only(self, keys: frozenset[bytes]) -> Narrowed:
        return Narrowed(keys if self.keys is None else self.keys & keys, self.partitions)

    def by_partition(self, partition_count: int) -> dict[int, list[bytes]] | None:
        if self.keys is None:
            return None
        found: dict[int, list[bytes]] = {}
        for key in sorted(self.keys):
            found.setdefault(partition_of(key, 0, partition_count), []).append(key)
        return found


def narrow(filters: Iterable[Filter], key: KeyColumns | None, partition_count: int) -> Narrowed:
    """Filters must all hold. `key`: None if keys do not determine columns."""
    filters = list(filters)
    return Narrowed(_keys(filters, key) if key is not None else None, _partitions(filters, partition_count))


def _keys(filters: Sequence[Filter], key: KeyColumns) -> frozenset[bytes] | None:
    cells: list[list[Any]] = []
    count = 1
    for field in key.schema:
        wanted = _cells(filters, field)
        if wanted is None:
            return None
        cells.append(wanted)
        count *= len(wanted)
        if count > KEYS_MAX:
            return None
    return _stored(list(product(*cells)), key)


def stored_keys(rows: Sequence[Sequence[Any]], key: KeyColumns) -> frozenset[bytes]:
    """Keys in their stored form; integers in every width that other clients may have used. Raises ConfigError."""
    names = key.schema.names
    for row in rows:
        if len(row) != len(names):
            raise ConfigError(f"a key has the columns {', '.join(names)}, so {list(row)} is none")
        for cell, field in zip(row, key.schema, strict=True):
            if not _fits(cell, field.type):
                raise ConfigError(
                    f"{cell!r} is no value of the key column {field.name!r}, which is {field.type}"
                )
    found = _stored(rows, key)
    if found is None:
        raise ConfigError(f"these are no keys: {list(rows)}")
    return found


def _stored(cells: Sequence[Sequence[Any]], key: KeyColumns) -> frozenset[bytes] | None:
    if key.verbatim:
        return frozenset(row[0] for row in cells)
    rows = [dict(zip(key.schema.names, row, strict=True)) for row in cells]
    if not rows:
        return frozenset()
    if len(key.schema) == 1 and pa.types.is_integer(key.schema.field(0).type):
        return frozenset(_every_width(row[0] for row in cells))
    try:
        batch = pa.RecordBatch.from_pylist(rows, schema=key.schema)
        return frozenset(EntryMaker(key.schema, key.schema.names, "json").entries(batch)[0])
    except (pa.ArrowException, ValueError):
        return None  # such as half of a surrogate pair, which no key contains


def _every_width(numbers: Iterable[int]) -> Iterable[bytes]:
    """A number as a key of every integer type: other clients may have used another one than Spark."""
    for number in numbers:
        for type_id, width in _WIDTHS:
            if -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1:
                yield type_id.to_bytes(4, "big", signed=True) + number.to_bytes(width, "big", signed=True)


def _cells(filters: Sequence[Filter], field: Any) -> list[Any] | None:
    found: set[Any] | None = None
    for one in filters:
        if isinstance(one, EqualTo | EqualNullSafe) and one.attribute == (field.name,):
            values = [one.value]
            if isinstance(one, EqualNullSafe) and one.value is None:
                return None
        elif isinstance(one, In) and one.attribute == (field.name,):
            values = list(one.value)
        else:
            continue
        # Null equals nothing.
        given = [bytes(cell) if isinstance(cell, bytearray) else cell for cell in values if cell is not None]
        if not all(_fits(cell, field.type) for cell in given):
            return None
        found = set(given) if found is None else found & set(given)
    return None if found is None else sorted(found)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a filter's value has the column's own type, whose stored form in a key is known."""
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        most: int = 1 << (kind.bit_width - 1)
        return isinstance(value, int) and not isinstance(value, bool) and -most <= value < most
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_binary(kind):
        return isinstance(value, bytes)
    return False


def key_columns(
    schema: StructType, key: Sequence[str], wrote: StructType | None, *, verbatim: bool
) -> KeyColumns | None:
    """The key columns of a read with the columns `schema`; None if filters do not determine keys.

    `wrote`: the columns as written by Spark; None for a map of other clients, whose key is one column. A column
    that is read as another type than it was written, or whose texts are not compared by their bytes, does not
    determine keys.
    """
    fields = {field.name: field.dataType for field in schema.fields}
    written = {field.name: field.dataType for field in wrote.fields} if wrote is not None else fields
    for name in key:
        kind = fields.get(name)
        if kind is None or written.get(name) != kind:
            return None
        if isinstance(kind, StringType) and kind != StringType():
            return None
        if wrote is None and not verbatim and not isinstance(kind, StringType | IntegralType):
            return None
    if not key:
        return None
    chosen = StructType([schema[name] for name in key])
    return KeyColumns(arrow_schema(chosen), verbatim)


_COMPARED: dict[type[Filter], Callable[[int, Any], bool]] = {
    EqualTo: lambda partition, value: partition == value,
    EqualNullSafe: lambda partition, value: partition == value,
    LessThan: lambda partition, value: partition < value,
    LessThanOrEqual: lambda partition, value: partition <= value,
    GreaterThan: lambda partition, value: partition > value,
    GreaterThanOrEqual: lambda partition, value: partition >= value,
    In: lambda partition, value: partition in value,
}


def _partitions(filters: Sequence[Filter], partition_count: int) -> frozenset[int] | None:
    left: frozenset[int] | None = None
    for one in filters:
        compare = _COMPARED.get(type(one))
        if compare is None or getattr(one, "attribute", None) != (PARTITION,):
            continue
        value = getattr(one, "value", None)
        if isinstance(one, In):
            value = {each for each in one.value if isinstance(each, int)}
        elif not isinstance(value, int):
            continue
        left = frozenset(
            partition
            for partition in (range(partition_count) if left is None else left)
            if compare(partition, value)
        )
    return left
