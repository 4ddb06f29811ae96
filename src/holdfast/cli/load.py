"""`holdfast load`: files into a map, on Spark."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.answers import Answer, Described
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.spark import show_progress, spark_job, spark_options
from holdfast.cli.unit_types import Seconds
from holdfast.core.model.operations import LIFETIME_MS_MAX
from holdfast.core.model.transaction_orders import TOGETHER_MAX


class LoadedRows(Answer):
    """The rows that were stored."""

    map: str
    mode: str
    rows: int
    inserted: int
    kept: int
    rejected: int
    rows_resent: int
    seconds: float
    check_seconds: float
    skipped: bool
    rate: int


@operator_command()
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("--map", "name", required=True, metavar="NAME", help="The map to load into.")
@click.option(
    "--key", default="", metavar="COLUMN[,COLUMN]", help="The columns that identify a row (not for binary)."
)
@click.option(
    "--mode",
    type=click.Choice(["append", "overwrite", "ignore", "error"]),
    default="append",
    show_default=True,
    help="If the map has entries: add to it; clear it first (readers see it empty, then filling); do nothing; fail.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "csv", "json"]),
    help="Format of the files. Default: by their names. JSON: one object per line. CSV: with a header.",
)
@click.option("--columns", metavar="DDL", help="Columns of CSV or JSON files, as in 'id long, name string'.")
@click.option(
    "--value-format",
    type=click.Choice(["json", "compact", "primitive", "binary"]),
    default="json",
    show_default=True,
    help="Format of stored values: a JSON object, a Compact object, one plain value, or the column as it is.",
)
@click.option("--type-name", metavar="NAME", help="Type name of Compact objects. Default: the map's name.")
@click.option("--value-column", metavar="COLUMN", help="The column with the value, for primitive.")
@click.option(
    "--ttl",
    type=Seconds(most=LIFETIME_MS_MAX / 1000),
    metavar="TIME",
    help="Time to live of the entries, in seconds or as 1h.",
)
@click.option(
    "--ttl-column",
    metavar="COLUMN",
    help="The column with the time to live of each row, in seconds; it is not stored.",
)
@click.option("--insert-only", is_flag=True, help="Do not change keys that already have a value.")
@click.option(
    "--rejects",
    default="fail",
    show_default=True,
    metavar="fail|FOLDER",
    help="Rows that cannot be stored: `fail` checks all rows before it writes the first; a folder receives them as "
    "files.",
)
@click.option(
    "--rows-per-second",
    type=click.FloatRange(0, min_open=True),
    help="Rate limit for all tasks together.",
)
@click.option(
    "--transaction-rows",
    type=click.IntRange(1, TOGETHER_MAX),
    metavar="N",
    help="Store every N rows of a task in one transaction: transactional readers and exports see all of them or "
    "none.",
)
@click.option(
    "--tasks",
    type=click.IntRange(1),
    help="Number of tasks that write Parquet files; use a few per executor core.",
)
@spark_options
def load(
    call: Call,
    files: tuple[str, ...],
    name: str,
    key: str,
    mode: str,
    file_format: str | None,
    columns: str | None,
    value_format: str,
    type_name: str | None,
    value_column: str | None,
    ttl: float | None,
    ttl_column: str | None,
    rejects: str,
    rows_per_second: float | None,
    transaction_rows: int | None,
    tasks: int | None,
    master: str,
    memory: str,
    *,
    insert_only: bool,
) -> Described[LoadedRows]:
    r"""Load FILES (Parquet, CSV or JSON lines; folders and patterns, too) into a map, in a Spark job.

    Each row is stored under its key, so you can run a load that failed half-way again. The exit status is 1 if rows
    could not be stored, and 2 if the job is invalid; then nothing was written.

    \b
      holdfast load flights.parquet --map flights --key id
      holdfast load people.csv --map people --key id --columns "id long, name string" --ttl 1d
    """
    options = {"valueFormat": value_format}
    if type_name:
        options["typeName"] = type_name
    if value_column:
        options["valueColumn"] = value_column
    if ttl is not None:
        options["ttl"] = str(ttl)
    with spark_job(master, memory, "load") as spark:
        from holdfast.spark.pipeline.load import load as job

        loaded = job(
            spark,
            list(files),
            name,
            key,
            address=call.address,
            mode=mode,
            file_format=file_format,
            columns=columns,
            tasks=tasks,
            insert_only=insert_only,
            ttl_column=ttl_column,
            rejects=rejects,
            rows_per_second=rows_per_second,
            transaction_rows=transaction_rows,
            progress=show_progress(quiet=call.as_json),
            **options,
            **call.credentials.options(),
        )
    return Described(LoadedRows(**asdict(loaded), rate=round(loaded.rate)), loaded)
