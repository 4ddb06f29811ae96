"""Parquet files as even shares that tasks read themselves, row group by row group: no row goes through the JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from holdfast.errors import ConfigError
from holdfast.spark.source.write_options import absolute

BATCH_BYTES = 4 << 20
BATCH_ROWS_MIN = 1024
BATCH_ROWS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class ParquetShare:
    """What one task reads."""

    number: int
    groups: tuple[Any, ...]
    """Fragments of a data set, one row group each."""
    schema: pa.Schema
    batch_rows: int

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Its rows; only these columns, or all."""
        names = list(self.schema.names if columns is None else columns)
        for group in self.groups:
            scanned = group.to_batches(
                schema=self.schema,
                columns=names,
                batch_size=self.batch_rows,
                batch_readahead=1,
                fragment_readahead=1,
                use_threads=False,
            )
            yield from (batch for batch in scanned if batch.num_rows)


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Files with the same columns."""

    schema: pa.Schema
    groups: tuple[Any, ...]
    rows: int
    size_bytes: int

    @classmethod
    def open(cls, paths: Sequence[str]) -> ParquetFiles:
        """Look at the footers of files, folders (with Hive's `name=value` folders in them) or patterns.

        Raises ConfigError for what is not there, is no Parquet, or has other columns than the rest.
        """
        sets: list[Any] = []
        for path in paths:
            for found in _expanded(absolute(path)):
                try:
                    sets.append(ds.dataset(found, format="parquet", partitioning="hive"))
                except (OSError, pa.ArrowException) as failed:
                    raise ConfigError(f"{found} cannot be read as Parquet: {failed}") from failed
        try:
            schema = pa.schema([_plain(one) for one in pa.unify_schemas([_bare(one.schema) for one in sets])])
        except pa.ArrowException as failed:
            raise ConfigError(f"the files have different columns: {failed}") from failed
        groups = tuple(
            group
            for one in sets
            for fragment in one.get_fragments()
            for group in fragment.split_by_row_group()
        )
        rows = sum(group.row_groups[0].num_rows for group in groups)
        return cls(schema, groups, rows, sum(group.row_groups[0].total_byte_size for group in groups))

    def shares(self, tasks: int) -> list[ParquetShare]:
        """At most so many shares, even in bytes. No share is empty, but there is at least one."""
        count = max(1, min(tasks, len(self.groups)))
        held: list[list[Any]] = [[] for _ in range(count)]
        sizes = [0] * count
        largest_first = sorted(
            range(len(self.groups)), key=lambda at: (-self.groups[at].row_groups[0].total_byte_size, at)
        )
        for at in largest_first:
            smallest = sizes.index(min(sizes))
            held[smallest].append(self.groups[at])
            sizes[smallest] += 1 + self.groups[at].row_groups[0].total_byte_size
        row_bytes = max(1, self.size_bytes // max(1, self.rows))
        batch_rows = max(BATCH_ROWS_MIN, min(BATCH_ROWS_MAX, BATCH_BYTES // row_bytes))
        return [
            ParquetShare(number, tuple(groups), self.schema, batch_rows) for number, groups in enumerate(held)
        ]


def _bare(schema: pa.Schema) -> pa.Schema:
    return schema.remove_metadata()


def _plain(field: Any) -> Any:
    """Texts that are written as numbers of a dictionary are texts."""
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def _expanded(path: str) -> list[str]:
    if "://" in path or not any(letter in path for letter in "*?["):
        return [path]
    root = Path(Path(path).anchor)
    found = sorted(map(str, root.glob(str(Path(path).relative_to(root)))))
    if not found:
        raise ConfigError(f"no file is named {path}")
    return found
