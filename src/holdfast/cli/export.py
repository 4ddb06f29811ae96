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
    short_help="Write maps to Parquet as they were at one moment, on Spark.",
    subcommand_metavar="[MAP]... --to DIR | verify DIR",
)
def export() -> None:
    r"""Write maps to Parquet as they are at a consistent cut, in a Spark job; all maps if none is named.

    DIR becomes a folder of its own: Parquet files, and manifest.json, which is written last. It must be one that the
    driver and all executors see. Members may die and partitions move meanwhile.

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
    help="Also write maps that came from Spark with their columns, into DIR/tables.",
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
    """Write maps to Parquet as they are at a consistent cut; all maps if none is named."""
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


@export.command("verify", short_help="Is an export still what was written?")
@folder_argument
@click.option("--map", "maps", metavar="NAME", multiple=True, help="Only this map; all if left out.")
@spark_options
@json_option
def verify_(folder: Path, maps: tuple[str, ...], master: str, memory: str, *, as_json: bool) -> None:
    """Read every file of an export, and compare bytes, rows and digests with its manifest. Needs no cluster."""
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


@click.command(short_help="Write maps to Parquet as they were at one moment, without Spark.")
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
    r"""Write maps to Parquet as they are at a consistent cut; all maps if none is named. For what one host can write:
    this process does it itself.

    The files are those of `holdfast export`, and `holdfast restore` reads both. manifest.json is written last: a backup
    that was interrupted has none, and is refused.

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


@click.command(short_help="Store what an export or a backup holds in a cluster, on Spark or without.")
@folder_argument
@click.option("--map", "maps", metavar="NAME", multiple=True, help="Only this map; all if left out.")
@click.option(
    "--rename", metavar="OLD=NEW", multiple=True, help="Store the map OLD under the name NEW. May come again."
)
@click.option(
    "--mode",
    type=click.Choice(["error", "append", "overwrite"]),
    default="error",
    show_default=True,
    help="What to do with a map that has entries: refuse, store over them, or clear it first.",
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
    r"""Store what the export or backup in DIR holds in a cluster of any size: in a Spark job, or with --no-spark in
    this process.

    The files are compared with the manifest first: nothing is written from a damaged export. At the end the grid is
    compared with the manifest. A restore that was interrupted goes on with --mode append.

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
    """Say that this is no export before Spark is started."""
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
        "rows_again": done.rows_again,
        "files": done.files,
        "seconds": round(done.seconds, 3),
        "maps": [asdict(each) for each in done.maps],
    }
