"""`holdfast read`: rows of a map, into a file or to the terminal. Spark is imported only when it is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from holdfast.cli.addresses import address_argument
from holdfast.cli.answers import Row
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath
from holdfast.cli.rendering import print_shown
from holdfast.cli.spark import bad_option, show_progress, spark_job, spark_options

CELL_MAX = 60
"""Most characters of a cell in a table."""


@operator_command(address=address_argument)
@click.argument("map_name", metavar="MAP")
@click.option(
    "--to",
    "file",
    type=LocalPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Output file, with the ending .parquet, .csv or .jsonl. Default: show the first rows.",
)
@click.option("--columns", metavar="NAME[,NAME]", default="", help="Only these columns.")
@click.option("--where", metavar="SQL", default="", help="Only rows that match this condition, in Spark SQL.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="Only the row with this key; may be repeated. Join the columns of a key by |.",
)
@click.option(
    "--limit", type=click.IntRange(0), metavar="ROWS", help="Maximum number of rows; 20 without --to."
)
@click.option("--cut", is_flag=True, help="Read all partitions at a consistent cut.")
@click.option(
    "--read-from",
    type=click.Choice(["primary", "backups"]),
    default="primary",
    show_default=True,
    help="backups: read from backups too, at a consistent cut.",
)
@click.option("--partitions", metavar="RANGES", help="Only these partitions of the grid, as in 0-9,12.")
@click.option(
    "--format",
    "value_format",
    type=click.Choice(["json", "compact", "primitive", "binary"]),
    help="Format of the entries. Default: the known format of the map. binary: key and value in their stored form.",
)
@bad_option
@spark_options
def read(
    call: Call,
    map_name: str,
    file: Path | None,
    columns: str,
    where: str,
    keys: tuple[str, ...],
    limit: int | None,
    read_from: str,
    partitions: str | None,
    value_format: str | None,
    bad: str,
    master: str,
    memory: str,
    *,
    cut: bool,
) -> Iterator[Row]:
    r"""Read rows of a map in a Spark job.

    The columns are those of the Spark job that wrote the map, or are inferred from its first entries.

    \b
      holdfast read flights --where "delay > 60" --columns id,delay --to late.csv
      holdfast read flights --key 4711 --json
      holdfast read flights --partitions 0-9 --read-from backups

    With --to, Spark's executors must be able to write to the folder of the file.
    """
    options: dict[str, object] = {"partitions": partitions or None, "valueFormat": value_format, "bad": bad}
    if cut:
        options["cut"] = True
    if read_from == "backups":
        options["readFrom"] = "any"
    with spark_job(master, memory, "read") as spark:
        from holdfast.spark.pipeline.extract import extract, json_lines

        result = extract(
            spark,
            map_name,
            file,
            address=call.address,
            columns=[name.strip() for name in columns.split(",") if name.strip()],
            where=where,
            keys=keys,
            limit=limit,
            progress=show_progress(quiet=call.as_json),
            **{name: value for name, value in options.items() if value is not None},
            **call.credentials.options(),
        )
    if result.first is None:
        click.echo(result)
    elif call.as_json:
        yield from map(json.loads, json_lines(result.first))
    else:
        print_shown([_table(result.first), str(result)])


def _table(rows: Any) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in rows.schema.names:
        table.add_column(Text(name), overflow="fold")
    for row in rows.to_pylist():
        table.add_row(*(Text(_cell(cell)) for cell in row.values()))
    return table


def _cell(cell: Any) -> str:
    if isinstance(cell, bytes):
        cell = cell.hex()
    text = "" if cell is None else str(cell)
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"
