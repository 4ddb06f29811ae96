"""Which filters say enough about keys and partitions to ask for less.

What is pushed never decides which rows are right: Spark applies every filter again. So it is enough that no row is
left out which a filter would keep; a filter that is not understood is left to Spark alone.

Spark 4.1 to 4.3 keeps what was planned with the filters of one query for all later queries on the same DataFrame or
view, also those with other filters or none (`PythonDataSourceV2.readInfo`): so filters are pushed only when somebody
asks for it (option `pushdown`). The option `keys`, and `where` of `pipeline.tables.table`, narrow a read without
that trap.

A filter on key columns is pushed when the map was written through Spark, so that the key says what the key columns
say, or when the key is a column itself (formats `binary` and `primitive`).
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
"""More keys than this are not worth asking for one by one."""

_SHORT, _BYTE = -6, -3
_WIDTHS = ((LONG, 8), (INTEGER, 4), (_SHORT, 2), (_BYTE, 1))
"""Type ids of integers, and their bytes."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns that are the key."""

    schema: pa.Schema
    """Of the key columns, in the order of the key."""
    verbatim: bool = False
    """The one column holds keys in their stored form."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What has to be asked for."""

    keys: frozenset[bytes] | None = None
    """The only keys that can be wanted, in their stored form; None: any."""
    partitions: frozenset[int] | None = None
    """The only partitions; None: all."""

    def only(self, keys: frozenset[bytes]) -> Narrowed:
        """The same, of these keys alone."""
        return Narrowed(keys if self.keys is None else self.keys & keys, self.partitions)

    def by_partition(self, partition_count: int) -> dict[int, list[bytes]] | None:
        """Partition -> the keys of it; None when any key may be wanted."""
        if self.keys is None:
            return None
        found: dict[int, list[bytes]] = {}
        for key in sorted(self.keys):
            found.setdefault(partition_of(key, 0, partition_count), []).append(key)
        return found


def narrow(filters: Iterable[Filter], key: KeyColumns | None, partition_count: int) -> Narrowed:
    """What filters, all of which must hold, leave to be asked for. `key`: None when keys say nothing about columns."""
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
        return None  # such as half of a surrogate pair: nobody's key


def _every_width(numbers: Iterable[int]) -> Iterable[bytes]:
    """A number as a key of every integer type: other clients may have written it as another one than Spark does."""
    for number in numbers:
        for type_id, width in _WIDTHS:
            if -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1:
                yield type_id.to_bytes(4, "big", signed=True) + number.to_bytes(width, "big", signed=True)


def _cells(filters: Sequence[Filter], field: Any) -> list[Any] | None:
    """The only values that the column can have, without those that it cannot; None when the filters do not say."""
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
    """Whether a value of a filter is one of the column's own type, whose text in a key is known for sure."""
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
    """The key columns of a read with the columns `schema`; None when filters say nothing about keys.

    `wrote`: the columns as Spark has written them; None for a map of other clients, whose key is one column. A
    column that is read as another type than it was written, or compares its texts in another way than by their
    bytes, says nothing.
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
    """The partitions that filters on `__partition` leave; None when there is no such filter."""
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
