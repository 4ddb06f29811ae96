"""Reads rows of a map into one file, or the first of them for display: the work of `holdfast read`.

result = extract(spark, "flights", Path("flights.csv"), address="127.0.0.1:5701", where="delay > 60")
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyspark.sql.types import BooleanType, IntegralType

from holdfast.config.local_paths import local_path
from holdfast.errors import ConfigError
from holdfast.spark import jobs
from holdfast.spark.failures import in_our_words
from holdfast.spark.pipeline.tables import parse_options, table
from holdfast.spark.rows.bad_rows import BadRows
from holdfast.spark.rows.column_schemas import arrow_schema
from holdfast.spark.rows.nested import number_or_text
from holdfast.spark.rows.row_reader import split_key
from holdfast.spark.source.read_plan import Reading, known_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIXES = (".parquet", ".csv", ".jsonl")
FIRST_ROWS = 20
REMOVE_S = 5.0


@dataclass(frozen=True, slots=True)
class Extracted:
    map: str
    file: Path | None
    rows: int
    bytes: int
    seconds: float
    first: pa.Table | None = None
    """The rows, if they are not written to a file."""
    unfit: int = 0

    def __str__(self) -> str:
        where = f" into {self.file} ({self.bytes / 1e6:,.1f} MB)" if self.file is not None else ""
        rate = (
            f", {self.rows / self.seconds:,.0f} rows/s" if self.seconds > 0 and self.file is not None else ""
        )
        unfit = f"; {self.unfit:,} of the entries read did not fit the columns" if self.unfit else ""
        return f"{self.rows:,} rows of map {self.map!r}{where} in {self.seconds:.1f} s{rate}{unfit}"


def extract(
    spark: SparkSession,
    map_name: str,
    file: Path | None = None,
    *,
    address: str,
    columns: Sequence[str] = (),
    where: str = "",
    keys: Sequence[str] = (),
    limit: int | None = None,
    progress: jobs.Show = jobs.nothing,
    **options: object,
) -> Extracted:
    """Read rows into `file` (.parquet, .csv or .jsonl); without it, return the first `limit` rows (20).

    `where`: a condition in Spark's SQL. `keys`: only rows with these keys, as text; for a key of several
    columns, their texts joined by `|`, as in the grid. `limit`: at most so many rows that fit. `options`: those
    of the data source. Raises ConfigError before anything is read, JobFailed if the job fails.
    """
    began = time.monotonic()
    title = f"read {map_name}"
    file = None if file is None else Path(local_path(file))
    if file is not None and file.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"{file}: name the file with one of the endings {', '.join(SUFFIXES)}, which decides its format"
        )
    if file is None and limit is None:
        limit = FIRST_ROWS
    if not where and limit is not None:
        options["limit"] = limit
    with in_our_words(title):
        # The condition may need columns that are not requested; they are dropped after it.
        bad = jobs.Counted(spark)
        frame = _frame(spark, map_name, address, () if where else columns, keys, bad, options)
        if where:
            frame = frame.where(where)
        if columns:
            raw = BadRows.parse(str(options.get("bad", "fail"))).column
            frame = frame.select(*(_quoted(name) for name in [*columns, *([raw] if raw else [])]))
        # Without a condition the source applies the limit itself, and its tasks are not cancelled.
        frame = frame.limit(limit) if limit is not None and where else frame
        if file is None:
            with jobs.watched(spark, title, 1, progress):
                found = frame.toArrow()
            return Extracted(
                map_name, None, found.num_rows, 0, time.monotonic() - began, found, unfit=bad.rows
            )
        with jobs.watched(spark, title, max(1, frame.rdd.getNumPartitions()), progress):
            rows = _to_file(frame, file)
    size = file.stat().st_size
    return Extracted(map_name, file, rows, size, time.monotonic() - began, unfit=bad.rows)


def _frame(
    spark: SparkSession,
    map_name: str,
    address: str,
    columns: Sequence[str],
    keys: Sequence[str],
    bad: jobs.Counted,
    options: dict[str, object],
) -> DataFrame:
    if keys:
        known = known_columns(parse_options(map_name, address, columns, options))
        options["keys"] = msgspec.json.encode([_key(text, known) for text in keys]).decode()
    # The data source cannot report what its tasks have met.
    return table(spark, map_name, address=address, columns=columns, on_bad=bad.add, **options)  # type: ignore[arg-type]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _key(text: str, known: Reading) -> list[object]:
    """Raises ConfigError."""
    key = known.layout.key
    if not key:
        raise ConfigError("the key columns of this map are unknown: use where instead")
    parts = split_key(text) if len(key) > 1 else [text]
    if len(parts) != len(key):
        raise ConfigError(f"a key of this map has {len(key)} parts ({'|'.join(key)}), not {text!r}")
    return [_value(part, known.there[name].dataType) for name, part in zip(key, parts, strict=True)]


def _value(text: str, kind: Any) -> Any:
    if isinstance(kind, BooleanType):
        return text.lower() == "true"
    try:
        return int(text) if isinstance(kind, IntegralType) else text
    except ValueError:
        raise ConfigError(f"{text!r} is no key of type {kind.simpleString()}") from None


def _to_file(frame: DataFrame, file: Path) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{file.name}-", dir=file.parent))
    try:
        parts = folder / "parts"
        frame.write.parquet(str(parts))
        whole = folder / file.name
        rows = _gather(
            sorted(parts.glob("*.parquet")), whole, file.suffix.lower(), arrow_schema(frame.schema)
        )
        whole.replace(file)
    finally:
        _remove(folder)
    return rows


def _remove(folder: Path) -> None:
    deadline_s = time.monotonic() + REMOVE_S
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < deadline_s:
        time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)


def _gather(parts: Sequence[Path], whole: Path, suffix: str, schema: pa.Schema) -> int:
    """Combine the parts into one file, a batch at a time. `schema`: its columns."""
    rows = 0
    with whole.open("wb") as sink:
        write, end = _writer(sink, schema, suffix)
        for part in parts:
            # Spark writes times as INT96, which Arrow takes for nanoseconds: they wrap before 1677 and after 2262.
            for batch in pq.ParquetFile(part, coerce_int96_timestamp_unit="us").iter_batches():
                write(batch.cast(schema))
                rows += batch.num_rows
        end()
    return rows


def _writer(
    sink: BinaryIO, schema: pa.Schema, suffix: str
) -> tuple[Callable[[pa.RecordBatch], object], Callable[[], object]]:
    if suffix == ".parquet":
        parquet = pq.ParquetWriter(sink, schema, compression="zstd")
        return parquet.write_batch, parquet.close
    if suffix == ".csv":
        texts = pa.schema([pa.field(one.name, _csv_type(one.type)) for one in schema])
        table = csv.CSVWriter(sink, texts)
        return lambda batch: table.write_batch(_csv_batch(batch, texts)), table.close
    return partial(_write_lines, sink), lambda: None


def _csv_type(kind: Any) -> Any:
    return pa.string() if pa.types.is_nested(kind) or pa.types.is_binary(kind) else kind


def _csv_batch(batch: pa.RecordBatch, texts: pa.Schema) -> pa.RecordBatch:
    """Bytes become base64 and lists JSON, since CSV has no form for them."""
    if batch.schema.equals(texts):
        return batch
    columns: list[Any] = []
    for column, field in zip(batch.columns, texts, strict=True):
        same = column.type == field.type
        columns.append(
            column if same else pa.array([_text(cell) for cell in column.to_pylist()], pa.string())
        )
    return pa.RecordBatch.from_arrays(columns, schema=texts)


def _text(cell: Any) -> str | None:
    return None if cell is None else msgspec.json.encode(_finite(cell)).decode().strip('"')


def _write_lines(sink: BinaryIO, batch: pa.RecordBatch) -> None:
    sink.writelines(line + b"\n" for line in json_lines(batch))


def json_lines(rows: pa.RecordBatch | pa.Table) -> Iterator[bytes]:
    """Rows as JSON objects: times as ISO 8601, bytes as base64, decimals as texts, and numbers that are not
    finite as the texts of stored JSON (`rows.stored`).
    """
    encode = msgspec.json.Encoder().encode
    loose = [field.name for field in rows.schema if _has_floats(field.type)]
    for row in rows.to_pylist():
        for name in loose:
            row[name] = _finite(row[name])
        yield encode(row)


def _has_floats(kind: Any) -> bool:
    return pa.types.is_floating(kind) or any(
        _has_floats(kind.field(at).type) for at in range(kind.num_fields)
    )


def _finite(cell: Any) -> Any:
    if isinstance(cell, float):
        return number_or_text(cell)
    if isinstance(cell, list | tuple):
        return [_finite(one) for one in cell]
    if isinstance(cell, dict):
        return {name: _finite(one) for name, one in cell.items()}
    return cell
