"""`python -m holdfast_lab campaign`: simulated clusters, seeds x settings, as a Spark job."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from holdfast.cli.exit_statuses import FAILED
from holdfast.cli.paths import LocalPath, check_folders
from holdfast.cli.spark import show_progress, spark_job, spark_options
from holdfast_lab.cli.simulate import parse_seeds


@click.command
@click.option("--seeds", default="200", show_default=True, metavar="N|A..B", help="Seeds of the runs.")
@click.option(
    "--settings",
    default="plain,mixed,cuts",
    show_default=True,
    metavar="NAMES",
    help="Settings for each seed: plain (no journal), sync, lazy, mixed, cuts (power cuts of all members).",
)
@click.option(
    "--without",
    multiple=True,
    metavar="RULE",
    help="Turn a rule off; see python -m holdfast_lab simulate --rules.",
)
@click.option(
    "--to",
    type=LocalPath(path_type=Path),
    metavar="FOLDER",
    help="Write the table as Parquet into this new or empty folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per run, for scripts.")
@spark_options
def campaign(
    *,
    seeds: str,
    settings: str,
    without: tuple[str, ...],
    to: Path | None,
    as_json: bool,
    master: str,
    memory: str,
) -> None:
    """Simulate whole clusters with faults, every seed with every setting, in a Spark job.

    The runs are those of python -m holdfast_lab simulate. Failed runs are listed first, each with the command that
    replays it. The exit status is 1 if a run failed.

    \b
    python -m holdfast_lab campaign --seeds 0..199 --settings plain,mixed,cuts --to out/campaign
    """  # noqa: D301  (the backslash is for click: what follows is not to be folded)
    from holdfast_lab import spark_campaign as job

    names = [name.strip() for name in settings.split(",") if name.strip()]
    wanted = parse_seeds(seeds)
    check_folders(to)
    job.plan(wanted, names, frozenset(without))  # errors are reported before Spark starts
    with spark_job(master, memory, "campaign") as spark:
        result = job.campaign(
            spark, wanted, names, without=frozenset(without), progress=show_progress(quiet=as_json)
        )
        if to is not None:
            result.frame(spark).write.mode("append").parquet(str(to))
    if as_json:
        for run in result.rows():
            click.echo(json.dumps(run))
    else:
        click.echo(str(result))
    sys.exit(0 if result.ok else FAILED)
