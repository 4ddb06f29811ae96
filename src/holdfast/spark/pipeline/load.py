"""Loads a DataFrame, or files, into a map: rows are checked first, written once each, and counted, at a
limited rate.

    loaded = load(spark, "flights/*.parquet", "flights", "id", address="127.0.0.1:5701")
    print(loaded)

Tasks read row groups of Parquet files themselves, without the JVM, and send them to the members.

To resume a load that failed half-way, run it again: rows are stored under their keys, so storing them twice
has no further effect. Only rows that were removed from the source in the meantime stay in the map.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import ConfigError, HoldfastError
from holdfast.spark.failures import in_our_words
from holdfast.spark.jobs import TASKS_PER_SLOT, Counted, Show, nothing, run, slots, watched
from holdfast.spark.pipeline.origins import refuse_own_map
from holdfast.spark.pipeline.parquet import ParquetFiles, ParquetShare
from holdfast.spark.rows.column_schemas import arrow_schema, load_schema
from holdfast.spark.rows.entry_encoder import Limits
from holdfast.spark.source.options import Options
from holdfast.spark.source.overwriting import end_overwriting
from holdfast.spark.source.rejects import clear_away
from holdfast.spark.source.writer import Work, check_map, prepare_map, write_rows
from holdfast.spark.task import check_release, leave_garbage, task_number
from holdfast.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MODES = ("append", "overwrite", "ignore", "error")
FORMATS = ("parquet", "csv", "json")
CORRUPT = "_corrupt_record"
"""Column for the text of lines that do not fit the columns (set by Spark)."""
SAMPLES = 3

_WRITTEN = "rows long, again long, kept long, rejected long"
_CHECKED = "rows long, wrong long, unsure long, why array<string>"


class CannotStore(HoldfastError):
    """Some rows cannot be stored; nothing was written."""


class RowsChanged(HoldfastError):
    """The rows differed between check and write; what was written stays."""


@dataclass(frozen=True, slots=True)
class Loaded:
    map: str
    mode: str
    rows: int
    """Rows that the members hold now, also on all sync backups; for `insert_only` including those whose key
    was there.
    """
    inserted: int
    kept: int
    rejected: int
    rows_resent: int
    """Rows sent more than once, because their partition moved or an answer was lost."""
    seconds: float
    check_seconds: float
    """Part of `seconds` before the first row was written."""
    skipped: bool = False
    """Mode `ignore`, and the map existed: nothing was done."""

    @property
    def rate(self) -> float:
        return self.rows / max(1e-9, self.seconds - self.check_seconds)

    def __str__(self) -> str:
        if self.skipped:
            return f"the map {self.map!r} exists already: nothing was loaded (mode ignore)"
        more = [
            f"{self.kept} kept out, their keys have other values" if self.kept else "",
            f"{self.rejected} rejected" if self.rejected else "",
            f"{self.rows_resent} sent again" if self.rows_resent else "",
            f"{self.check_seconds:.1f} s of it to look through them first" if self.check_seconds else "",
        ]
        told = "".join(f"; {words}" for words in more if words)
        return (
            f"{self.inserted} rows loaded into map {self.map!r} in {self.seconds:.1f} s "
            f"({self.rate:,.0f} rows/s){told}"
        )


def load(
    spark: SparkSession,
    source: DataFrame | str | Sequence[str],
    map_name: str,
    key: Sequence[str] | str = (),
    *,
    address: str,
    mode: str = "append",
    file_format: str | None = None,
    columns: str | None = None,
    tasks: int | None = None,
    insert_only: bool = False,
    ttl_column: str | None = None,
    rejects: str = "fail",
    rows_per_second: float | None = None,
    transaction_rows: int | None = None,
    progress: Show = nothing,
    **options: str,
) -> Loaded:
    """Load a DataFrame, or Parquet, CSV or JSON-lines files, into a map.

    `key`: the column or columns that identify a row. `mode`: `append`; `overwrite` clears the map first, so readers
    see it empty, then filling; if the map has columns or entries, `ignore` does nothing, and `error` raises
    ConfigError. `file_format`: by the file names if left out. `columns`: of CSV and JSON files, as Spark's DDL;
    inferred if left out. `tasks`: for Parquet files only. `insert_only`: existing keys keep their values.
    `rejects`: `fail` checks all rows before the first is written, and raises CannotStore if any cannot be stored;
    or a folder for such rows. `rows_per_second`: of the whole job. `transaction_rows`: rows of a task that are
    stored in one transaction. `options`: of the data source. Raises ConfigError before anything is written, also
    for `overwrite` from a DataFrame that reads the map itself without a cut; JobFailed or WriteFailed if the job
    failed half-way (it is safe to run it again); RowsChanged if the source had other rows the second time.
    """
    if mode not in MODES:
        raise ConfigError(f"mode is {', '.join(MODES[:-1])} or {MODES[-1]}, not {mode!r}")
    began = time.monotonic()
    given = {
        **options,
        "address": address,
        "map": map_name,
        "key": key if isinstance(key, str) else ",".join(key),
        "write": "insert" if insert_only else "upsert",
        "rejects": rejects,
    }
    if ttl_column is not None:
        given["ttlColumn"] = ttl_column
    if transaction_rows is not None:
        given["transactionRows"] = str(transaction_rows)
    made = _open(spark, source, file_format, columns, tasks)
    if made.corrupt:
        given.setdefault("corruptColumn", CORRUPT)
    if rows_per_second is not None:
        given |= {"rowsPerSecond": str(rows_per_second), "concurrentTasks": str(made.at_once(spark))}
    settings = Options.parse(given)
    work = Work(settings, arrow_schema(made.struct))
    work.encoder()
    with settings.client() as client:
        limits = Limits(*client.limits())
        if _is_there(client, map_name, mode):
            return Loaded(map_name, mode, 0, 0, 0, 0, 0, time.monotonic() - began, 0.0, skipped=True)
        check_map(client, work, made.struct, overwrite=mode == "overwrite")
        if mode == "overwrite" and isinstance(made, _Frame):
            refuse_own_map(made.frame, client, map_name)
        table = client.table()
    work = replace(work, addresses=tuple(member.address for member in table.members.values()))
    check_seconds = 0.0
    seen: int | None = None
    if settings.write.rejects is None:
        check_began = time.monotonic()
        seen = _look_through(spark, made, work, limits, progress)
        check_seconds = time.monotonic() - check_began
    with settings.client() as client:
        before = prepare_map(client, work, made.struct, overwrite=mode == "overwrite")
    try:
        counted = Counted(spark)
        told = made.write(spark, work, progress, counted)
    finally:
        if before is not None:
            with suppress(HoldfastError), settings.client() as client:
                end_overwriting(client, map_name, before)
        if settings.write.rejects is not None:
            with suppress(HoldfastError):
                clear_away(settings.write.rejects, work.job)
    rows, again, kept, rejected = (_total(told, name) for name in told.schema.names)
    _same_rows(map_name, seen, rows + rejected)
    seconds = time.monotonic() - began
    return Loaded(map_name, mode, rows, rows - kept, kept, rejected, again, seconds, check_seconds)


def _total(told: pa.Table, name: str) -> int:
    numbers: list[Any] = told.column(name).to_pylist()
    return sum(numbers)


def _same_rows(map_name: str, seen: int | None, written: int) -> None:
    """Raises RowsChanged if there are more or fewer rows than at the check."""
    if seen is not None and written != seen:
        raise RowsChanged(
            f"{seen} rows were checked, and then {written} were written into map {map_name!r}: the source has "
            "changed in between, or reads the target map. The written rows stay"
        )


def _is_there(client: Any, map_name: str, mode: str) -> bool:
    """Mode `ignore`: whether the map exists. Raises ConfigError in mode `error` if it does."""
    if mode not in ("ignore", "error"):
        return False
    there = load_schema(client, map_name) is not None or client.size(map_name) > 0
    if there and mode == "error":
        raise ConfigError(
            f"the map {map_name!r} exists already: use mode 'append', 'overwrite' or 'ignore', or another map"
        )
    return there


# -- sources of rows


def _open(
    spark: SparkSession,
    source: DataFrame | str | Sequence[str],
    file_format: str | None,
    columns: str | None,
    tasks: int | None,
) -> _Parquet | _Frame:
    from pyspark.sql import DataFrame

    if isinstance(source, DataFrame):
        _no_tasks(tasks)
        return _Frame(source, source.schema, corrupt=False)
    paths = [source] if isinstance(source, str) else list(source)
    if not paths:
        raise ConfigError("there are no files to load")
    file_format = file_format or _format_of(paths)
    if file_format not in FORMATS:
        raise ConfigError(f"the format is {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {file_format!r}")
    if file_format == "parquet":
        if columns is not None:
            raise ConfigError("Parquet files have their columns in them; leave the columns out")
        return _Parquet.open(paths, tasks or slots(spark) * TASKS_PER_SLOT)
    _no_tasks(tasks)
    return _Frame.read(spark, paths, file_format, columns)


def _no_tasks(tasks: int | None) -> None:
    if tasks is not None:
        raise ConfigError(
            "tasks is for Parquet files; Spark divides what it reads itself: repartition the DataFrame"
        )


def _format_of(paths: Sequence[str]) -> str:
    endings = {path.rstrip("/").lower().removesuffix(".gz").rpartition(".")[2] for path in paths}
    known = {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}
    formats = {known.get(ending, "parquet") for ending in endings}
    if len(formats) > 1:
        raise ConfigError(
            "the files are of several formats; choose one with the format, or load them one by one"
        )
    return formats.pop()


@dataclass(frozen=True, slots=True)
class _Parquet:
    struct: StructType
    shares: list[ParquetShare]
    to_cast: frozenset[str]
    corrupt = False

    @classmethod
    def open(cls, paths: Sequence[str], tasks: int) -> _Parquet:
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import from_arrow_schema

        files = ParquetFiles.open(paths)
        try:
            struct = from_arrow_schema(files.schema, prefer_timestamp_ntz=True)
        except PySparkException as failed:
            raise ConfigError(f"a column of the files is of a type that Spark lacks: {failed}") from failed
        wanted = arrow_schema(struct)
        to_cast = [name for name, kinds in files.kinds.items() if kinds != {wanted.field(name).type}]
        return cls(struct, files.shares(tasks), frozenset(to_cast))

    def at_once(self, spark: SparkSession) -> int:
        return min(slots(spark), len(self.shares))

    def check(
        self, spark: SparkSession, look: _Look, columns: Sequence[str] | None, progress: Show
    ) -> pa.Table:
        if columns is not None:
            # A cell that fits the file's type may not fit the map's.
            columns = [name for name in self.struct.names if name in columns or name in self.to_cast]

        def task(share: ParquetShare) -> Iterator[pa.RecordBatch]:
            yield look.over(share.batches(columns))

        return run(spark, self.shares, task, _CHECKED, title="check", progress=progress)

    def write(self, spark: SparkSession, work: Work, progress: Show, counted: Counted) -> pa.Table:
        def task(share: ParquetShare) -> Iterator[pa.RecordBatch]:
            yield _write(work, share.batches(), share.number, counted.add)

        return run(spark, self.shares, task, _WRITTEN, title="load", progress=progress, counted=counted)


@dataclass(frozen=True, slots=True)
class _Frame:
    frame: DataFrame
    struct: StructType
    corrupt: bool

    @classmethod
    def read(cls, spark: SparkSession, paths: Sequence[str], kind: str, columns: str | None) -> _Frame:
        from pyspark.sql.types import StringType, StructType

        reader = spark.read.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
        if kind == "csv":
            reader = reader.option("header", True).option("inferSchema", columns is None)
        with in_our_words(f"the files cannot be read as {kind}"):
            if columns is not None:
                asked = StructType.fromDDL(columns)
                assert isinstance(asked, StructType), asked
                reader = reader.schema(asked.add(CORRUPT, StringType()))
            elif kind == "csv":
                # Without this column, lines with too many or too few cells would be stored as if they were complete.
                guessed = reader.format(kind).load(list(paths)).schema
                reader = reader.schema(guessed.add(CORRUPT, StringType()))
            frame = reader.format(kind).load(list(paths))
            return cls(frame, frame.schema, corrupt=CORRUPT in frame.schema.names)

    def at_once(self, spark: SparkSession) -> int:
        return slots(spark)

    def check(
        self, spark: SparkSession, look: _Look, columns: Sequence[str] | None, progress: Show
    ) -> pa.Table:
        def over(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
            return look.over(batches)

        # Spark only finds errors of a line in the columns that are selected.
        frame = (
            self.frame
            if columns is None or self.corrupt
            else self.frame.select([_quoted(name) for name in columns])
        )
        return self._run(spark, frame, over, _CHECKED, "check", progress, None)

    def write(self, spark: SparkSession, work: Work, progress: Show, counted: Counted) -> pa.Table:
        def over(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
            return _write(work, batches, task_number(), counted.add)

        return self._run(spark, self.frame, over, _WRITTEN, "load", progress, counted)

    @staticmethod
    def _run(
        spark: SparkSession,
        frame: DataFrame,
        over: Callable[[Iterator[pa.RecordBatch]], pa.RecordBatch],
        ddl: str,
        title: str,
        progress: Show,
        counted: Counted | None,
    ) -> pa.Table:
        here = __version__
        names = frame.schema.names

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            check_release(here)
            yield over(batch.rename_columns(names) for batch in batches)
            leave_garbage()

        with in_our_words(title), watched(spark, title, 0, progress, counted):
            # Spark would look for a column `a.b` in `a`.
            numbered = frame.toDF(*(f"c{at}" for at in range(len(names))))
            return numbered.mapInArrow(task, ddl).toArrow()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _write(
    work: Work, batches: Iterable[pa.RecordBatch], task: int, counted: Callable[[int], None]
) -> pa.RecordBatch:
    written = write_rows(work, batches, task, counted)
    return pa.RecordBatch.from_pydict(
        {
            "rows": [written.rows],
            "again": [written.rows_resent],
            "kept": [written.kept],
            "rejected": [written.rejected],
        }
    )


# -- check before writing


@dataclass(frozen=True, slots=True)
class _Look:
    work: Work
    limits: Limits

    def over(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        encoder = self.work.encoder()
        rows = wrong = unsure = 0
        whys: dict[str, None] = {}
        for batch in batches:
            rows += batch.num_rows
            found = encoder.check(batch, self.limits)
            if found is None:
                unsure += batch.num_rows
                break
            wrong += len(found)
            if len(whys) < SAMPLES:
                whys |= dict.fromkeys(one.why for one in found[:SAMPLES])
        return pa.RecordBatch.from_arrays(
            [
                pa.array([rows]),
                pa.array([wrong]),
                pa.array([unsure]),
                pa.array([list(whys)], pa.list_(pa.string())),
            ],
            names=["rows", "wrong", "unsure", "why"],
        )


def _look_through(
    spark: SparkSession, made: _Parquet | _Frame, work: Work, limits: Limits, progress: Show
) -> int:
    """Check all rows, and return their number. Raises CannotStore if one cannot be stored. Sends nothing.

    Reads keys, texts, byte arrays, dates and times, and columns that some file has in another type. All columns
    are read and encoded only if those might be too large for a member.
    """
    look = _Look(work, limits)
    columns = work.encoder().columns_to_check()
    told = made.check(spark, look, columns, progress)
    if _total(told, "unsure"):
        told = made.check(spark, look, None, progress)
    wrong, rows = _total(told, "wrong"), _total(told, "rows")
    if wrong:
        found: list[Any] = told.column("why").to_pylist()
        whys = dict.fromkeys(why for some in found for why in some)
        raise CannotStore(
            f"{wrong} of {rows} rows cannot be stored, so nothing was written: "
            f"{'; '.join(list(whys)[:SAMPLES])}. Correct them, or set rejects to a folder for them"
        )
    return rows
