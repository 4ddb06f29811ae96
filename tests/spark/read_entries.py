"""Entries as rows, without pages and members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.spark.rows.bad_rows import BadRows
from holdfast.spark.rows.row_reader import Layout, RowReader


def read_entries(
    schema: pa.Schema,
    value_format: str,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    bad: str = "fail",
    key: tuple[str, ...] = (),
    fetch: Any = None,
) -> pa.RecordBatch:
    """The entries of a map `m` as a record batch."""
    reader = RowReader(schema, Layout("m", value_format, key, BadRows.parse(bad)), fetch)
    found = reader.read(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    return pa.RecordBatch.from_arrays([found.columns[name] for name in schema.names], schema=schema)
