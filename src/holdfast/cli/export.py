"""`holdfast export`, `backup` and `restore`: maps to Parquet at a consistent cut, and back into any cluster."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import EXIT_FAILED, EXIT_STANDING
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

EXIT_UNDECIDED = EXIT_STANDING
"""Nothing is known to be wrong, but not everything could be compared."""

folder_argument = click.argument("folder", metavar="DIR", type=LocalPath(path_type=Path, file_okay=False))


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
    must be able to write to it. Members may crash and partitions may move meanwhile.

    \b
      holdfast export --to /backup/monday
      holdfast export flights airports --to /backup/flights --decoded
      holdfast export verify /backup/monday

    `verify` needs no cluster. A map named `verify` is given after --to.
    """


@export.command("run", hidden=True, short_help="Write maps to Parquet.")
@click.argument("maps", metavar="[MAP]...", nargs=-1)
@click.option(
    "--to", "folder", metavar="DIR", required=True, type=LocalPath(path_type=Path), help="A new folder."
)
@click.option(
    "--decoded",
    is_flag=True,
    help="Also write maps that Spark has loaded with their columns, into DIR/tables.",
)
@bad_option
@address_option
@spark_options
@json_option
@credentials
def run_(
    maps: tuple[str, ...],
    folder: Path,
    bad: str,
    address: str,
    master: str,
    memory: str,
    *,
    decoded: bool,
    as_json: bool,
    credentials: Credentials,
) -> None:
    """Export maps to Parquet at a consistent cut. Default: all maps."""
    with spark_job(master, memory, "export") as spark:
        from holdfast.spark.pipeline.export import export as job

        progress = show_progress(quiet=as_json)
        done = job(
            spark,
            address,
            folder,
            maps=maps,
            decoded=decoded,
            progress=progress,
            bad=bad,
            **credentials.options(),
        )
    _tell_written(done, as_json=as_json)


def _tell_written(done: Exported, *, as_json: bool) -> None:
    if not as_json:
        click.echo(done)
        return
    from holdfast.spark.pipeline.verified_export import plain

    told = {
        "folder": done.folder,
        "rows": done.rows,
        "bytes": done.bytes,
        "files": done.files,
        "seconds": round(done.seconds, 3),
        **plain(done.manifest),
    }
    click.echo(json.dumps(told))


@export.command("verify", short_help="Check an export against its manifest.")
@folder_argument
@click.option("--map", "maps", metavar="NAME", multiple=True, help="Only this map. Default: all maps.")
@spark_options
@json_option
def verify_(folder: Path, maps: tuple[str, ...], master: str, memory: str, *, as_json: bool) -> None:
    """Compare the bytes, rows and digests of every file of an export with its manifest. Needs no cluster."""
    _look(folder)
    with spark_job(master, memory, "verify") as spark:
        from holdfast.spark.pipeline.verified_export import plain, verify_export

        found = verify_export(spark, folder, maps=maps, progress=show_progress(quiet=as_json))
    if as_json:
        told = {
            "sound": found.sound,
            "files": found.files,
            "rows": found.rows,
            "damaged": found.damaged,
            "seconds": round(found.seconds, 3),
            **plain(found.manifest),
        }
        click.echo(json.dumps(told))
    else:
        click.echo(found)
    sys.exit(0 if found.sound else EXIT_FAILED)


@click.command
@click.argument("maps", metavar="[MAP]...", nargs=-1)
@click.option(
    "--to", "folder", metavar="DIR", required=True, type=LocalPath(path_type=Path), help="A new folder."
)
@address_option
@json_option
@credentials
def backup(
    maps: tuple[str, ...], folder: Path, address: str, *, as_json: bool, credentials: Credentials
) -> None:
    r"""Export maps to Parquet at a consistent cut, in this process: for data that one host can write. Default: all
    maps.

    The files have the format of `holdfast export`, and `holdfast restore` reads both. The command writes
    manifest.json last: `restore` rejects a backup without it.

    \b
      holdfast backup --to /backup/monday
      holdfast backup orders customers --to /backup/orders
      holdfast restore /backup/monday --no-spark
    """
    with spark_or_none("", "", "backup", no_spark=True):
        from holdfast.spark.pipeline.export import export as job

        done = job(
            None, address, folder, maps=maps, progress=show_progress(quiet=as_json), **credentials.options()
        )
    _tell_written(done, as_json=as_json)


@click.command
@folder_argument
@click.option("--map", "maps", metavar="NAME", multiple=True, help="Only this map. Default: all maps.")
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
@address_option
@spark_or_none_options
@json_option
@credentials
def restore(
    folder: Path,
    maps: tuple[str, ...],
    rename: tuple[str, ...],
    mode: str,
    address: str,
    master: str,
    memory: str,
    *,
    no_spark: bool,
    as_json: bool,
    credentials: Credentials,
) -> None:
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
            address,
            maps=maps,
            rename=renames,
            mode=mode,  # type: ignore[arg-type]  # click has looked
            progress=show_progress(quiet=as_json),
            **credentials.options(),
        )
    click.echo(json.dumps(_plain(done)) if as_json else done)
    if done.of("differs"):
        sys.exit(EXIT_FAILED)
    sys.exit(0 if done.sound else EXIT_UNDECIDED)


def _look(folder: Path) -> None:
    """Reject a folder without an export before Spark starts."""
    from holdfast.spark.pipeline.manifest import read_manifest

    read_manifest(folder)


def _renamed(text: str) -> tuple[str, str]:
    old, is_there, new = text.partition("=")
    if not (old and is_there and new):
        raise ConfigError(f"--rename {text!r}: give OLD=NEW")
    return old, new


def _plain(done: Restored) -> dict[str, object]:
    return {
        "sound": done.sound,
        "rows": done.rows,
        "rows_resent": done.rows_resent,
        "files": done.files,
        "seconds": round(done.seconds, 3),
        "maps": [asdict(each) for each in done.maps],
    }
