"""`holdfast export`, `backup` and `restore`: maps to Parquet at a consistent cut, and back into any cluster."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec
from msgspec import UNSET, UnsetType

from holdfast.cli.answers import Answer, Described
from holdfast.cli.exit_statuses import DONE, FAILED, OPEN
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath
from holdfast.cli.spark import (
    bad_option,
    show_progress,
    spark_job,
    spark_options,
    spark_or_none,
    spark_or_none_options,
)
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.spark.pipeline.export import Exported
    from holdfast.spark.pipeline.restoring import Restored

folder_argument = click.argument("folder", metavar="DIR", type=LocalPath(path_type=Path, file_okay=False))
maps_argument = click.argument("maps", metavar="[MAP]...", nargs=-1)
map_option = click.option(
    "--map", "maps", metavar="NAME", multiple=True, help="Only this map. Default: all maps."
)
to_option = click.option(
    "--to", "folder", metavar="DIR", required=True, type=LocalPath(path_type=Path), help="A new folder."
)


class ExportedMap(msgspec.Struct):
    """A map in an export."""

    name: str
    rows: int
    digest: str
    files: int
    bytes: int
    format: str | UnsetType = UNSET
    tables_left_out: Any | UnsetType = UNSET
    tables_unfit: Any | UnsetType = UNSET


class _Export(Answer):
    """An export, and the time that the command took."""

    rows: int
    files: int
    seconds: float
    holdfast: str
    cluster_id: str
    cluster_name: str
    partition_count: int
    taken: str
    cut: str
    maps: list[ExportedMap]


class WrittenExport(_Export):
    """The export that was written."""

    folder: str
    bytes: int
    maps_without_zone: dict[str, str]


class VerifiedExport(_Export):
    """Whether the files are unchanged since they were written."""

    decides = "sound"

    sound: bool
    damaged: list[str]


class RestoredMap(msgspec.Struct):
    """A map that was restored, and how it compares with the export."""

    name: str
    to: str
    rows: int
    verdict: Literal["equal", "undecided", "differs"]
    reason: str


class RestoredExport(Answer):
    """The restored maps, and whether the grid holds exactly the content of the export."""

    sound: bool
    rows: int
    rows_resent: int
    files: int
    seconds: float
    maps: list[RestoredMap]

    @property
    def exit_status(self) -> int:
        if any(each.verdict == "differs" for each in self.maps):
            return FAILED
        return DONE if self.sound else OPEN


class _Exports(click.Group):
    """A group whose first word may be a map instead of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] not in (["verify"], ["--help"], ["-h"]):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands["run"].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(
    cls=_Exports,
    subcommand_metavar="[MAP]... --to DIR | verify DIR",
)
def export() -> None:
    r"""Export maps to Parquet at a consistent cut, in a Spark job. Default: all maps.

    The command creates DIR with Parquet files and manifest.json, which it writes last. The driver and all executors
    must be able to write to it. Members may crash and partitions may move meanwhile. `verify` needs no cluster.

    \b
      holdfast export flights airports --to /backup/flights --decoded
      holdfast export verify /backup/monday
    """


@operator_command(export, "run", hidden=True, short_help="Write maps to Parquet.")
@maps_argument
@to_option
@click.option(
    "--decoded",
    is_flag=True,
    help="Also write maps that Spark has loaded with their columns, into DIR/tables.",
)
@bad_option
@spark_options
def run_(
    call: Call,
    maps: tuple[str, ...],
    folder: Path,
    bad: str,
    master: str,
    memory: str,
    *,
    decoded: bool,
) -> Described[WrittenExport]:
    r"""Export maps to Parquet at a consistent cut. Default: all maps. A map named `verify` is given after --to.

    \b
      holdfast export --to /backup/monday
    """
    with spark_job(master, memory, "export") as spark:
        from holdfast.spark.pipeline.export import export as job

        done = job(
            spark,
            call.address,
            folder,
            maps=maps,
            decoded=decoded,
            progress=show_progress(quiet=call.as_json),
            bad=bad,
            **call.credentials.options(),
        )
    return _written(done)


def _written(done: Exported) -> Described[WrittenExport]:
    from holdfast.spark.pipeline.verified_export import plain

    found = {
        "folder": done.folder,
        "rows": done.rows,
        "bytes": done.bytes,
        "files": done.files,
        "seconds": round(done.seconds, 3),
        "maps_without_zone": done.maps_without_zone,
        **plain(done.manifest),
    }
    return Described(msgspec.convert(found, WrittenExport), done)


@operator_command(export, "verify", connects=False, short_help="Check an export against its manifest.")
@folder_argument
@map_option
@spark_options
def verify_(
    call: Call, folder: Path, maps: tuple[str, ...], master: str, memory: str
) -> Described[VerifiedExport]:
    r"""Compare the bytes, rows and digests of every file of an export with its manifest. Needs no cluster.

    \b
      holdfast export verify /backup/monday
    """
    _look(folder)
    with spark_job(master, memory, "verify") as spark:
        from holdfast.spark.pipeline.verified_export import plain, verify_export

        done = verify_export(spark, folder, maps=maps, progress=show_progress(quiet=call.as_json))
    found = {
        "sound": done.sound,
        "files": done.files,
        "rows": done.rows,
        "damaged": done.damaged,
        "seconds": round(done.seconds, 3),
        **plain(done.manifest),
    }
    return Described(msgspec.convert(found, VerifiedExport), done)


@operator_command()
@maps_argument
@to_option
def backup(call: Call, maps: tuple[str, ...], folder: Path) -> Described[WrittenExport]:
    r"""Export maps to Parquet at a consistent cut, in this process: for data that one host can write. Default: all
    maps.

    The files have the format of `holdfast export`, and `holdfast restore` reads both. The command writes
    manifest.json last: `restore` rejects a backup without it.

    \b
      holdfast backup --to /backup/monday
      holdfast backup orders customers --to /backup/orders
    """
    with spark_or_none("", "", "backup", no_spark=True):
        from holdfast.spark.pipeline.export import export as job

        progress = show_progress(quiet=call.as_json)
        done = job(None, call.address, folder, maps=maps, progress=progress, **call.credentials.options())
    return _written(done)


@operator_command()
@folder_argument
@map_option
@click.option(
    "--rename",
    metavar="OLD=NEW",
    multiple=True,
    help="Restore the map OLD under the name NEW; may be repeated.",
)
@click.option(
    "--mode",
    type=click.Choice(["error", "append", "overwrite"]),
    default="error",
    show_default=True,
    help="If a map has entries: fail, add to them, or clear it first.",
)
@spark_or_none_options
def restore(
    call: Call,
    folder: Path,
    maps: tuple[str, ...],
    rename: tuple[str, ...],
    mode: Any,
    master: str,
    memory: str,
    *,
    no_spark: bool,
) -> Described[RestoredExport]:
    r"""Restore the export or backup in DIR into a cluster of any size: in a Spark job, or with --no-spark in this
    process.

    The command first compares the files with the manifest, and writes nothing from a damaged export. At the end it
    compares the grid with the manifest. Resume an interrupted restore with --mode append.

    \b
      holdfast restore /backup/monday
      holdfast restore /backup/monday --map flights --rename flights=flights_monday
    """
    renames = dict(_renamed(text) for text in rename)
    _look(folder)
    with spark_or_none(master, memory, "restore", no_spark=no_spark) as spark:
        from holdfast.spark.pipeline.restoring import restore as job

        done = job(
            spark,
            folder,
            call.address,
            maps=maps,
            rename=renames,
            mode=mode,
            progress=show_progress(quiet=call.as_json),
            **call.credentials.options(),
        )
    return Described(_restored(done), done)


def _restored(done: Restored) -> RestoredExport:
    return RestoredExport(
        sound=done.sound,
        rows=done.rows,
        rows_resent=done.rows_resent,
        files=done.files,
        seconds=round(done.seconds, 3),
        maps=[RestoredMap(**asdict(each)) for each in done.maps],
    )


def _look(folder: Path) -> None:
    """Reject a folder without an export before Spark starts."""
    from holdfast.spark.pipeline.manifest import read_manifest

    read_manifest(folder)


def _renamed(text: str) -> tuple[str, str]:
    old, is_there, new = text.partition("=")
    if not (old and is_there and new):
        raise ConfigError(f"--rename {text!r}: give OLD=NEW")
    return old, new
