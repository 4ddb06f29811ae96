"""`holdfast changes`: prints the changes of a map as they happen, keeps them as Parquet, or applies them to a map."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec

from holdfast.cli import rendering
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath
from holdfast.cli.spark import bad_option, show_progress, spark_job, spark_options
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

FORMATS = ("json", "text", "binary")

Change = Annotated[
    dict[str, Any],
    msgspec.Meta(
        description="A change: map, partition, term, counter, op, and of key, before, after, time and transaction "
        "those that exist."
    ),
]


class FollowedChanges(Answer):
    """With --to or --to-map, at the end: the changes that were applied."""

    batches: int
    rows: int
    seconds: float
    unfit: int


@operator_command()
@click.argument("name", metavar="MAP")
@click.option(
    "--to",
    nargs=2,
    type=(click.Choice(["parquet"]), LocalPath(file_okay=False)),
    metavar="parquet DIR",
    help="Write the changes as Parquet files.",
)
@click.option("--to-map", metavar="OTHER", help="Apply the changes to this map.")
@click.option("--to-address", metavar="HOST:PORT", help="The cluster of that map, if it is another cluster.")
@click.option(
    "--checkpoint",
    type=LocalPath(file_okay=False),
    metavar="DIR",
    help="Folder with the position of the stream; with the same folder it resumes there.",
)
@click.option(
    "--from",
    "starting",
    type=click.Choice(["latest", "earliest", "snapshot"]),
    help="Start without a checkpoint: with new changes, with the oldest that members still have, or with the "
    "present entries. [default: latest; with --to-map snapshot]",
)
@click.option(
    "--on-gap",
    type=click.Choice(["fail", "restart"]),
    default="fail",
    show_default=True,
    help="If members no longer have the next changes: fail, or restart with the entries of the partition.",
)
@click.option("--once", is_flag=True, help="Read the changes up to now, and end.")
@click.option(
    "--max-rows", type=click.IntRange(1), metavar="N", help="Approximate maximum of rows in a batch."
)
@click.option("--format", "value_format", type=click.Choice(FORMATS), help="Format of keys and values.")
@bad_option
@spark_options
def changes(
    call: Call,
    name: str,
    to: tuple[str, str] | None,
    to_map: str | None,
    to_address: str | None,
    checkpoint: str | None,
    starting: str | None,
    on_gap: str,
    max_rows: int | None,
    value_format: str | None,
    bad: str,
    master: str,
    memory: str,
    *,
    once: bool,
) -> Generator[Change | FollowedChanges, None, None]:
    r"""Follow the changes of a map: every insert, update and remove, in order within a partition.

    The map needs `maps.NAME.changes_bytes`. With a checkpoint the stream resumes after any crash, also of this
    command, without missing a change. Without --to and --to-map it prints the changes.

    \b
      holdfast changes flights --from snapshot --once
      holdfast changes flights --to-map flights_copy --checkpoint /var/lib/flights-copy
    """
    _check(call, to, to_map, to_address, checkpoint, value_format, bad)
    from holdfast.spark.pipeline import changes as pipeline

    title = f"changes of {name}"
    with (
        spark_job(master, memory, title) as spark,
        tempfile.TemporaryDirectory(prefix="holdfast-") as scratch,
    ):
        if to_map is not None:
            assert checkpoint is not None
            query = pipeline.mirror(
                spark,
                call.address,
                name,
                to_map,
                checkpoint=checkpoint,
                to_address=to_address,
                starting=starting or "snapshot",
                on_gap=on_gap,
                max_rows=max_rows,
                once=once,
                credentials=call.credentials.options(),
            )
        else:
            frame = pipeline.changes(
                spark,
                call.address,
                name,
                starting=starting or "latest",
                on_gap=on_gap,
                max_rows=max_rows,
                value_format=value_format or (None if to else "text"),
                bad=bad,
                **call.credentials.options(),
            )
            if to is not None:
                query = pipeline.into_parquet(frame, to[1], checkpoint=checkpoint, once=once)
            else:
                query = _print(frame, checkpoint or scratch, as_json if call.as_json else as_text, once=once)
        printing = to is None and to_map is None
        result = pipeline.follow(query, show_progress(quiet=call.as_json or printing), title=title)
    if call.as_json and not printing:
        yield FollowedChanges(**asdict(result))
    else:
        click.echo(result, err=printing)


def _check(
    call: Call,
    to: tuple[str, str] | None,
    to_map: str | None,
    to_address: str | None,
    checkpoint: str | None,
    value_format: str | None,
    bad: str,
) -> None:
    """Check options that exclude or need each other, and that the cluster answers, before Spark starts and hides why.

    Raises ConfigError, Unreachable, Denied.
    """
    if to is not None and to_map is not None:
        raise ConfigError("give --to or --to-map, not both")
    if to_map is not None and checkpoint is None:
        raise ConfigError("--to-map needs --checkpoint: without it, the position of the other map is unknown")
    if to_map is not None and value_format is not None:
        raise ConfigError("--format is not for --to-map: entries are applied as they are")
    if to_map is not None and bad != "fail":
        raise ConfigError(
            "--bad is not for --to-map: entries are applied as they are, whatever their columns"
        )
    if to_address is not None and to_map is None:
        raise ConfigError("--to-address goes with --to-map")
    with call.client() as client:
        client.table()


def _print(
    frame: DataFrame, checkpoint: str, line: Callable[[Mapping[str, object]], str], *, once: bool
) -> StreamingQuery:
    from holdfast.spark.pipeline.changes import start

    def show(batch: DataFrame, _: int) -> None:
        for row in batch.toLocalIterator():
            click.echo(line(row.asDict(True)))

    return start(frame.writeStream.foreachBatch(show), checkpoint, once=once)


def as_json(row: Mapping[str, object]) -> str:
    """A change as a JSON object, without what is not there. Decimals, and numbers that JSON has not, are texts."""
    return rendering.as_json({name: _cell(value) for name, value in row.items() if value is not None})


def _cell(value: object) -> object:
    match value:
        case dict():
            return {str(_cell(name)): _cell(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_cell(inner) for inner in value]
        case None | bool() | int() | float():
            return value
        case _:
            return str(_plain(value))


def as_text(row: Mapping[str, object]) -> str:
    """A change as a line: when, where, what, key, values before and after, and the transaction if there was one."""
    moment = row["time"]
    when = f"{moment.astimezone(UTC):%F %T.%f}"[:-3] if isinstance(moment, datetime) else "-" * 23
    values = [str(_plain(row[name])) for name in ("before", "after") if row[name] is not None]
    key = [] if row["key"] is None else [str(_plain(row["key"]))]
    place = f"{row['partition']}:{row['term']}:{row['counter']}"
    within = [f"(transaction {row['transaction']})"] if row["transaction"] is not None else []
    said = [when, str(row["map"]), place, str(row["op"]), *key, " -> ".join(values), *within]
    return " ".join(said).rstrip()


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, datetime):
        # Spark returns times in the zone of this machine.
        return value.astimezone(UTC).isoformat()
    return value.isoformat() if isinstance(value, date) else value
