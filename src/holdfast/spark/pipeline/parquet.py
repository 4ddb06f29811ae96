"""Divides Parquet files into even shares of row groups, which tasks read themselves: no row passes through the JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
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


INT96 = "INT96"
"""Parquet's old timestamps, still written by Spark: nanoseconds of a wide day, in UTC."""


@dataclass(frozen=True, slots=True)
class ParquetGroup:
    fragment: Any
    schema: pa.Schema

    @property
    def rows(self) -> int:
        found: int = self.fragment.row_groups[0].num_rows
        return found

    @property
    def size_bytes(self) -> int:
        found: int = self.fragment.row_groups[0].total_byte_size
        return found


@dataclass(frozen=True, slots=True)
class ParquetShare:
    number: int
    groups: tuple[ParquetGroup, ...]
    schema: pa.Schema
    batch_rows: int

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of only these columns, or of all. Types are those of the file, so that the caller's cast shows what
        fits.
        """
        names = list(self.schema.names if columns is None else columns)
        for group in self.groups:
            scanned = group.fragment.to_batches(
                schema=group.schema,
                columns=names,
                batch_size=self.batch_rows,
                batch_readahead=1,
                fragment_readahead=1,
                use_threads=False,
            )
            yield from (batch for batch in scanned if batch.num_rows)


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    schema: pa.Schema
    """In types wide enough for all files."""
    kinds: dict[str, frozenset[Any]]
    groups: tuple[ParquetGroup, ...]
    rows: int
    size_bytes: int

    @classmethod
    def open(cls, paths: Sequence[str]) -> ParquetFiles:
        """Read the footers of files, folders (also with Hive's `name=value` folders) or patterns.

        Raises ConfigError for files that are missing, not Parquet, or have other columns than the rest.
        """
        schemas: dict[pa.Schema, None] = {}
        groups: list[ParquetGroup] = []
        first = ""
        # Spark itself writes times as INT96, which Arrow takes for nanoseconds: they wrap before 1677 and after 2262.
        times = ds.ParquetReadOptions(dictionary_columns=None, coerce_int96_timestamp_unit="us")
        form = ds.ParquetFileFormat(read_options=times)
        for path in paths:
            for found in _expanded(absolute(path)):
                try:
                    for fragment, schema in _fragments(ds.dataset(found, format=form, partitioning="hive")):
                        first = first or fragment.path
                        _same_names(schema, next(iter(schemas), schema), fragment.path, first)
                        schemas.setdefault(schema)
                        groups += [ParquetGroup(one, schema) for one in fragment.split_by_row_group()]
                except (OSError, pa.ArrowException) as failed:
                    raise ConfigError(f"{found} cannot be read as Parquet: {failed}") from failed
        if not schemas:
            raise ConfigError(f"there are no Parquet files in {', '.join(paths)}")
        try:
            schema = pa.unify_schemas(list(schemas), promote_options="permissive")
        except pa.ArrowException as failed:
            raise ConfigError(f"the files have different columns: {failed}") from failed
        kinds = {name: frozenset(one.field(name).type for one in schemas) for name in schema.names}
        rows = sum(group.rows for group in groups)
        return cls(schema, kinds, tuple(groups), rows, sum(group.size_bytes for group in groups))

    def shares(self, tasks: int) -> list[ParquetShare]:
        """At most so many shares, even in bytes. No share is empty, but there is at least one."""
        count = max(1, min(tasks, len(self.groups)))
        held: list[list[ParquetGroup]] = [[] for _ in range(count)]
        sizes = [0] * count
        largest_first = sorted(range(len(self.groups)), key=lambda at: (-self.groups[at].size_bytes, at))
        for at in largest_first:
            smallest = sizes.index(min(sizes))
            held[smallest].append(self.groups[at])
            sizes[smallest] += 1 + self.groups[at].size_bytes
        row_bytes = max(1, self.size_bytes // max(1, self.rows))
        batch_rows = max(BATCH_ROWS_MIN, min(BATCH_ROWS_MAX, BATCH_BYTES // row_bytes))
        return [
            ParquetShare(number, tuple(groups), self.schema, batch_rows) for number, groups in enumerate(held)
        ]


def _fragments(files: Any) -> Iterator[tuple[Any, pa.Schema]]:
    """Files of a data set, each with its own columns and those that its folders name."""
    for fragment in files.get_fragments():
        written = fragment.metadata.schema
        moments = {one.path for one in map(written.column, range(len(written))) if one.physical_type == INT96}
        fields = [_plain(field, moments) for field in fragment.physical_schema.remove_metadata()]
        named = {field.name for field in fields}
        folders = ds.get_partition_keys(fragment.partition_expression)
        fields += [files.schema.field(name) for name in folders if name not in named]
        yield fragment, pa.schema(fields)


def _plain(field: Any, moments: AbstractSet[str]) -> Any:
    """Read dictionary-encoded texts as texts, and INT96 as moments in UTC."""
    if pa.types.is_dictionary(field.type):
        field = field.with_type(field.type.value_type)
    elif field.name in moments:
        field = field.with_type(pa.timestamp("us", "UTC"))
    return field.remove_metadata().with_nullable(True)


def _same_names(schema: pa.Schema, wanted: pa.Schema, path: str, first: str) -> None:
    """Raises ConfigError, which names the file, if a column is additional or missing."""
    if set(schema.names) == set(wanted.names):
        return
    more = [name for name in schema.names if name not in wanted.names]
    less = [name for name in wanted.names if name not in schema.names]
    told = "; ".join(
        f"{what} {', '.join(names)}" for what, names in (("it also has", more), ("it lacks", less)) if names
    )
    raise ConfigError(
        f"the files have different columns: {path} differs from {first}: {told}. "
        "Load them one by one, or as a DataFrame (mergeSchema)"
    )


def _expanded(path: str) -> list[str]:
    if "://" in path or not any(letter in path for letter in "*?["):
        return [path]
    root = Path(Path(path).anchor)
    found = sorted(map(str, root.glob(str(Path(path).relative_to(root)))))
    if not found:
        raise ConfigError(f"no file is named {path}")
    return found
