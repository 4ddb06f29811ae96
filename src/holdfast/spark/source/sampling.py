"""Columns of a map that Spark did not write, derived from a sample of its entries.

- JSON objects become rows of their fields, in the order of first appearance. A field is boolean, long or double if all
  its values are (integers and other numbers together: double); otherwise it is a string: texts as they are, everything
  else as JSON text. Times and decimals stay texts. A field that is always null is a string.
- Plain Hazelcast values of one type under keys of one type give columns `key` and `value` of these types; integers of
  several widths are of the widest.
- Compact values become rows of the fields of their schemas.
- Anything else is read as `binary`: `key` and `value` in their stored form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, BooleanType, DataType, DoubleType, LongType, StringType, StructType

from holdfast.client.ahead import Wanted, read_ahead
from holdfast.client.blocking import Client
from holdfast.spark.rows import compact
from holdfast.spark.rows.bad_rows import UNREADABLE
from holdfast.spark.rows.primitive import ARRAYS, COUNTED, PLAIN, TEXTS
from holdfast.wire.hazelcast.compact_schemas import SCHEMAS_MAP, schema_key, schema_of_entry
from holdfast.wire.hazelcast.layouts import Schema
from holdfast.wire.values import JSON

_KINDS: dict[int, Any] = {
    **{type_id: kind for kind, (type_id, _) in PLAIN.items()},
    **{type_id: kind for kind, type_id in COUNTED.items()},
    **{type_id: pa.list_(kind) for kind, (type_id, _) in ARRAYS.items()},
    TEXTS: pa.list_(pa.string()),
}

_INTEGERS: list[Any] = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]


BINARY = StructType().add("key", BinaryType()).add("value", BinaryType())


@dataclass(frozen=True, slots=True)
class Guess:
    struct: StructType
    value_format: str
    key: tuple[str, ...] = ()


def sample(client: Client, map_name: str, rows: int) -> list[tuple[bytes, bytes]]:
    count = client.partition_count
    found: list[tuple[bytes, bytes]] = []
    each = max(1, -(-4 * rows // count))
    for _, pages in read_ahead(client, Wanted(map_name, limit=each), range(count)):
        for page in pages:
            found += zip(*page.split(), strict=True)
        if len(found) >= rows:
            break
    return found[:rows]


def guess(
    entries: Iterable[tuple[bytes, bytes]],
    fetch: Callable[[int], Schema | None] | None = None,
    *,
    mostly: bool = False,
) -> Guess | None:
    """Columns and format of these entries; None if there are none. `fetch`: finds Compact schemas.

    `mostly`: consider only the most frequent kind of entries, so that one odd entry does not make the map `binary`.
    """
    entries = list(entries)
    if not entries:
        return None
    if mostly:
        entries = _alike(entries)
    types = {_type_of(value) for _, value in entries}
    if types == {JSON}:
        fields = _json_fields(value[8:] for _, value in entries)
        if fields is not None:
            return Guess(fields, "json")
    if types == {compact.COMPACT} and fetch is not None:
        fields = _compact_fields({value[4:12] for _, value in entries}, fetch)
        if fields is not None:
            return Guess(fields, "compact")
    key, value = (_kind(cells) for cells in zip(*entries, strict=True))
    if key is not None and value is not None:
        struct = StructType().add("key", from_arrow_type(key)).add("value", from_arrow_type(value))
        return Guess(struct, "primitive", ("key",))
    return Guess(BINARY, "binary", ("key",))


def _alike(entries: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The entries with the most frequent types of keys and values; integers of all widths count as one type."""
    for part in (1, 0):
        kinds = [_family(entry[part], objects=part == 1) for entry in entries]
        most = Counter(kinds).most_common(1)[0][0]
        entries = [entry for entry, kind in zip(entries, kinds, strict=True) if kind == most]
    return entries


def _family(stored: bytes, *, objects: bool) -> object:
    type_id = _type_of(stored)
    if objects and type_id == JSON:
        return type_id, _json_fields([stored[8:]]) is not None
    return "integer" if _KINDS.get(type_id) in _INTEGERS else type_id


def _type_of(stored: bytes) -> int:
    return int.from_bytes(stored[:4], "big", signed=True)


def _kind(cells: Iterable[bytes]) -> Any:
    kinds = {_KINDS.get(_type_of(cell)) for cell in cells}
    if len(kinds) == 1:
        return next(iter(kinds))
    return max(kinds, key=_INTEGERS.index) if kinds <= set(_INTEGERS) else None


def _json_fields(values: Iterable[bytes]) -> StructType | None:
    """The fields of JSON objects; None if a value is no object, or a name cannot name a column."""
    kinds: dict[str, set[type]] = {}
    for value in values:
        try:
            row = msgspec.json.decode(value, type=dict[str, Any])
        except UNREADABLE:
            return None
        for name, cell in row.items():
            if any(letter in '"\\' or letter < " " for letter in name):
                return None
            kind = type(cell)
            if kind is int and not -(2**63) <= cell < 2**63:
                kind = float
            kinds.setdefault(name, set()).add(kind)
    struct = StructType()
    for name, seen in kinds.items():
        struct.add(name, _json_type(seen - {type(None)}))
    return struct


def _json_type(seen: set[type]) -> DataType:
    if seen == {bool}:
        return BooleanType()
    if seen == {int}:
        return LongType()
    if seen and seen <= {int, float}:
        return DoubleType()
    return StringType()


_COMPACT_KINDS: dict[int, Any] = {
    **{number: kind for kind, numbers in compact.NUMBERS.items() for number in numbers[:2]},
    **{number: pa.list_(kind) for kind, number in compact.ARRAYS.items()},
    compact.BINARY: pa.binary(),
    compact.STRING: pa.string(),
    compact.DECIMAL: pa.decimal128(38, 18),
    compact.DATE: pa.date32(),
    compact.TIMESTAMP: pa.timestamp("us"),
    compact.TIMESTAMP_ZONED: pa.timestamp("us", tz="UTC"),
}


def _compact_fields(ids: Iterable[bytes], fetch: Callable[[int], Schema | None]) -> StructType | None:
    """The fields of Compact objects; None if a schema is unknown, or fields differ or are unsupported."""
    kinds: dict[str, Any] = {}
    for one in sorted(ids):
        schema = fetch(int.from_bytes(one, "big", signed=True))
        if schema is None:
            return None
        for name, number in schema.fields:
            kind = _COMPACT_KINDS.get(number)
            if kind is None or kinds.setdefault(name, kind) != kind:
                return None
    struct = StructType()
    for name, kind in kinds.items():
        struct.add(name, from_arrow_type(kind))
    return struct


class CompactSchemas:
    def __init__(self, client: Client) -> None:
        self._client = client

    def __call__(self, number: int) -> Schema | None:
        found = self._client.get(SCHEMAS_MAP, schema_key(number))
        try:
            return None if found is None else schema_of_entry(found)
        except ValueError:
            return None  # Old files may contain entries that were stored before they were validated.
