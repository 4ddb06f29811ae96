"""`holdfast plan`: steps between two partition tables, or the plans of a running cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from holdfast.cli.addresses import live_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.paths import LocalPath
from holdfast.cli.plan_input import EXAMPLE, parse
from holdfast.cli.plan_live import Events, look
from holdfast.cli.plan_timeline import Label, Summary, as_data, as_text
from holdfast.core.placement.dryrun import Outlook
from holdfast.errors import ConfigError


@click.command
@click.argument("file", required=False, type=LocalPath(path_type=Path, allow_dash=True))
@live_option("Plan for a running cluster, through the member that -a names.")
@click.option("--join", type=click.IntRange(1, 10_000), metavar="N", help="Suppose that N members join.")
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="NAME",
    help="Group of the joining members: once for all, or one for each.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name of each joining member; with placement rendezvous its partitions depend on it.",
)
@click.option(
    "--drain", multiple=True, metavar="NAME", help="Suppose that this member is drained; may be repeated."
)
@click.option(
    "--crash", multiple=True, metavar="NAME", help="Suppose that this member crashes; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each partition, for scripts.")
@click.option("--summary", is_flag=True, help="Show totals of all partitions; for large tables.")
@credentials
def plan(
    file: Path | None,
    *,
    address: str | None,
    join: int | None,
    groups: tuple[str, ...],
    names: tuple[str, ...],
    drain: tuple[str, ...],
    crash: tuple[str, ...],
    as_json: bool,
    summary: bool,
    credentials: Credentials,
) -> None:
    r"""Show every step by which partitions would move, and every state on the way. Moves nothing.

    FILE (default: standard input) is JSON: `current` has one row per partition, of member names or null, the owner
    first. Give either the wanted rows as `target`, or `members` and `backups` from which the master would compute
    them, with `placement` "even" or "rendezvous". Members in `current` but not in `members` count as crashed.

    \b
      {"current": [["A", "B", null]], "target": [["A", "C", "B"]]}
      {"current": [["A", "B"]], "members": ["A", "B", "C"], "backups": 1, "leaving": ["B"], "lite": ["C"]}

    \b
      holdfast plan table.json
      holdfast plan --live --join 1 --summary
    """
    events = Events(join or 0, groups, drain, crash, names)
    if groups and not join:
        raise ConfigError("--group needs --join: it is the group of the members that join")
    if names and not join:
        raise ConfigError("--name needs --join: it is the name of the members that join")
    if address is None:
        if join or drain or crash:
            raise ConfigError(
                "--join, --drain and --crash need --live: in a file, change members and leaving instead"
            )
        _from_file(file, as_json=as_json, summary=summary)
        return
    if file is not None:
        raise ConfigError(f"both {file} and --live are given: leave one out")
    cluster = look(address, credentials)
    outlooks = cluster.outlooks(events)
    for warning in cluster.warnings(events):
        click.echo(f"Note: {warning}", err=True)
    if not as_json:
        assumed = [f"{each.uuid} joins" for each in events.newcomers()]
        assumed += [f"{cluster.label(cluster.find(text))} is drained" for text in drain]
        assumed += [f"{cluster.label(cluster.find(text))} crashes" for text in crash]
        click.echo(
            f"cluster {cluster.status['cluster']}, table version {cluster.status['table']['version']}; "
            f"assumed: {', '.join(assumed) or 'no change'}\n"
        )
    _print(outlooks, cluster.label, as_json=as_json, summary=summary)


def _from_file(file: Path | None, *, as_json: bool, summary: bool) -> None:
    if file is None or str(file) == "-":
        stream: TextIO | None = sys.stdin
        if stream is None or (file is None and stream.isatty()):
            raise ConfigError(f"give a FILE, or pipe JSON such as {EXAMPLE} in; see holdfast plan --help")
        tables = parse(stream.buffer.read(), "standard input")
    else:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from error
        tables = parse(data, str(file))
    for name, count in tables.gone.items():
        rows = f"{count} row{'s' * (count != 1)}"
        click.echo(f"Note: {name} is in {rows} of current but not in members: taken as crashed", err=True)
    _print(tables.outlooks(), str, as_json=as_json, summary=summary)


def _print(outlooks: Iterator[Outlook], label: Label, *, as_json: bool, summary: bool) -> None:
    """Print each partition as soon as it is planned, or one summary."""
    if summary:
        total = Summary()
        for outlook in outlooks:
            total.add(outlook)
        click.echo(json.dumps(total.as_data()) if as_json else "\n".join(total.as_text(label)))
    elif as_json:
        for outlook in outlooks:
            click.echo(json.dumps(as_data(outlook)))
    else:
        for block in as_text(outlooks, label):
            click.echo(block)
