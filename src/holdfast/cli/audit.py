"""`holdfast audit`: compares all copies of all partitions on Spark, of a running cluster, some members, or files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.cli.addresses import address_argument
from holdfast.cli.answers import json_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import EXIT_FAILED, EXIT_STANDING
from holdfast.cli.paths import LocalPath
from holdfast.cli.spark import show_progress, spark_job, spark_options
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.client.verification import Finding
    from holdfast.spark.pipeline.audit import AuditResult
    from holdfast.spark.pipeline.audit_copies import CopiesAudit
    from holdfast.spark.pipeline.loose_copies import KeyFinding

EXIT_SOUND = 0
EXIT_UNDECIDED = EXIT_STANDING
"""Nothing that was compared is wrong, but something could not be compared."""
SHOWN = 40
KEYS_SHOWN = 20
WIDTH = 140


@click.command
@address_argument
@click.option("--map", "maps", metavar="NAME", multiple=True, help="Only this map. Default: all maps.")
@click.option("--keys", is_flag=True, help="Also find the keys that differ.")
@click.option(
    "--member",
    "members",
    metavar="HOST:PORT",
    multiple=True,
    help="Compare only the copies of these members, primaries or not. At least two.",
)
@click.option(
    "--files",
    "folders",
    metavar="DIR",
    type=LocalPath(path_type=Path),
    multiple=True,
    help="Compare the files of stopped members: persistence.directory, or a copy of it. At least two.",
)
@spark_options
@json_option
@credentials
def audit(
    address: str,
    maps: tuple[str, ...],
    members: tuple[str, ...],
    folders: tuple[Path, ...],
    master: str,
    memory: str,
    *,
    keys: bool,
    as_json: bool,
    credentials: Credentials,
) -> None:
    r"""Compare every replica of every partition with its owner, in a Spark job: counters, epochs, sizes and digests.

    The cluster may be in use: the command compares a partition again if it is written or moved meanwhile, and reports
    it as busy if that never ends. With --member and --files, copies with the same updates must have the same entries.
    A copy of a listed member that never reaches the newest update is reported as behind, and not compared; in files,
    a copy with fewer updates is older, which is no error.

    \b
      holdfast audit
      holdfast audit 10.0.0.1:5701 --map flights --keys
      holdfast audit --member 10.0.0.1:5701 --member 10.0.0.2:5701
      holdfast audit --files /copies/m1 --files /copies/m2
    """
    if members and folders:
        raise ConfigError("give --member or --files, not both")
    with spark_job(master, memory, "audit") as spark:
        progress = show_progress(quiet=as_json)
        if members or folders:
            found = _copies(spark, members, folders, maps, progress, credentials, keys=keys)
            status = EXIT_FAILED if found.differs else EXIT_SOUND if found.sound else EXIT_UNDECIDED
            click.echo(json.dumps(_plain_copies(found))) if as_json else _show_copies(found)
        else:
            from holdfast.spark.pipeline.audit import audit as compare

            result = compare(spark, address, maps=maps, keys=keys, progress=progress, **credentials.options())
            status = EXIT_FAILED if result.differs else EXIT_SOUND if result.sound else EXIT_UNDECIDED
            click.echo(json.dumps(_plain(result))) if as_json else _show(result)
    sys.exit(status)


def _copies(
    spark: SparkSession,
    members: Sequence[str],
    folders: Sequence[Path],
    maps: tuple[str, ...],
    progress: Any,
    credentials: Credentials,
    *,
    keys: bool,
) -> CopiesAudit:
    from holdfast.spark.pipeline.audit_copies import KEYS_MAX, audit_files, audit_members

    keys_max = KEYS_MAX if keys else 0
    if folders:
        return audit_files(spark, folders, maps=maps, keys_max=keys_max, progress=progress)
    return audit_members(
        spark, members, maps=maps, keys_max=keys_max, progress=progress, **credentials.options()
    )


# -- for display


def _print(table: Table) -> None:
    # Without a terminal a table keeps its width instead of being folded at 80 columns.
    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(table)


def _show(result: AuditResult) -> None:
    wrong = [finding for finding in result.findings if finding.verdict != "equal"]
    if wrong:
        table = Table("partition", "map", "verdict", "primary", "holds", "backup", "holds", box=None)
        for one in wrong[:SHOWN]:
            table.add_row(
                str(one.partition),
                Text(one.map),
                _verdict(one),
                one.owner or "nobody",
                _place(one.owner_term, one.owner_counter, one.owner_entries),
                one.member,
                _place(one.term, one.counter, one.entries),
            )
        _print(table)
        _more(result.count("differs") + result.count("busy") + result.count("unreachable"))
    _show_keys(result.keys)
    if result.keys_open:
        click.echo(
            f"the keys of {result.keys_open} maps in partitions never stood still, or could not be read"
        )
    counts = ", ".join(f"{result.count(one)} {one}" for one in ("equal", "differs", "busy", "unreachable"))
    click.echo(
        f"{result.partitions} partitions, {result.copies} copies compared in {result.seconds:.1f} s: {counts}"
    )


def _verdict(finding: Finding) -> str:
    kinds = {"counter": finding.counter_conflict, "content": finding.content_conflict}
    kind = " and ".join(name for name, so in kinds.items() if so)
    return f"{finding.verdict} ({kind})" if kind else finding.verdict


def _place(term: int, counter: int, entries: int) -> str:
    return f"{term}/{counter}, {entries} entries"


def _show_copies(found: CopiesAudit) -> None:
    from holdfast.spark.pipeline.loose_copies import Standing

    shown = found.findings
    if shown:
        table = Table("partition", "map", "verdict", "copy", "holds", "newest", "holds", "why", box=None)
        for one in sorted(shown, key=lambda one: one.verdict == "older")[:SHOWN]:
            table.add_row(
                str(one.partition),
                Text(one.map),
                one.verdict,
                one.where,
                _place(one.term, one.counter, one.entries),
                one.reference,
                _place(one.reference_term, one.reference_counter, one.reference_entries),
                Text(one.why),
            )
        _print(table)
        _more(found.copies - found.counts.get("equal", 0))
    _show_keys(found.keys)
    for damage in found.damage[:SHOWN]:
        click.echo(f"not everything could be read: {damage}")
    counts = ", ".join(f"{found.counts.get(one, 0)} {one}" for one in get_args(Standing))
    click.echo(
        f"{found.copies} copies of {', '.join(found.sources)} compared in {found.seconds:.1f} s: {counts}"
    )


def _more(total: int) -> None:
    if total > SHOWN:
        click.echo(f"… and {total - SHOWN} more")
    click.echo("(term/counter of the last update)")


def _show_keys(keys: Sequence[KeyFinding]) -> None:
    if not keys:
        return
    table = Table("partition", "map", "key", "copy", "holds", "digest", box=None)
    for one in keys[:KEYS_SHOWN]:
        holds = f"{one.value_bytes} bytes" if one.held else "nothing"
        table.add_row(str(one.partition), Text(one.map), Text(one.text), one.where, holds, one.digest)
    _print(table)
    if len(keys) > KEYS_SHOWN:
        click.echo(f"… and {len(keys) - KEYS_SHOWN} more (--json has all)")


# -- for scripts


def _plain(result: AuditResult) -> dict[str, Any]:
    return {
        "sound": result.sound,
        "partitions": result.partitions,
        "copies": result.copies,
        "entries": result.entries,
        "seconds": round(result.seconds, 3),
        "wrong": [asdict(finding) for finding in result.findings if finding.verdict != "equal"],
        "keys": [_plain_key(key) for key in result.keys],
        "keys_open": result.keys_open,
    }


def _plain_copies(found: CopiesAudit) -> dict[str, Any]:
    return {
        "sound": found.sound,
        "sources": found.sources,
        "copies": found.copies,
        "entries": found.entries,
        "counts": found.counts,
        "seconds": round(found.seconds, 3),
        "findings": [asdict(finding) for finding in found.findings],
        "keys": [_plain_key(key) for key in found.keys],
        "damage": found.damage,
    }


def _plain_key(key: KeyFinding) -> dict[str, Any]:
    return {**asdict(key), "key": key.key.hex()}
