"""Dataclasses and structs as rows of a job: their Arrow schema, their columns for Spark, and conversions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Literal, TypeVar, get_origin, get_type_hints

import pyarrow as pa

Row = TypeVar("Row")

_TYPES: dict[type, tuple[str, pa.DataType]] = {
    int: ("bigint", pa.int64()),
    float: ("double", pa.float64()),
    str: ("string", pa.string()),
    bool: ("boolean", pa.bool_()),
    bytes: ("binary", pa.binary()),
}


class Columns(Generic[Row]):
    """Columns of a dataclass or struct whose fields are numbers, texts (or literals), booleans or bytes."""

    def __init__(self, kind: type[Row]) -> None:
        hints = get_type_hints(kind)
        cells = {name: _TYPES[str if get_origin(hint) is Literal else hint] for name, hint in hints.items()}
        self.kind = kind
        self.arrow = pa.schema({name: arrow for name, (_, arrow) in cells.items()})
        self.ddl = ", ".join(f"`{name}` {spark}" for name, (spark, _) in cells.items())

    def table(self, rows: Iterable[Row]) -> pa.Table:
        return pa.Table.from_pylist(
            [{name: getattr(row, name) for name in self.arrow.names} for row in rows], schema=self.arrow
        )

    def rows(self, table: pa.Table) -> list[Row]:
        cells: list[dict[str, Any]] = table.to_pylist()
        return [self.kind(**row) for row in cells]
