"""`holdfast analyse`: reports on the files of stopped or copied members, computed on Spark."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from holdfast.cli.exit_statuses import DONE, FAILED
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath, check_folders
from holdfast.cli.spark import show_progress, spark_job, spark_options
from holdfast.errors import ConfigError

NAMES = ("writers", "largest", "hottest", "growth", "gaps", "damage")

ReportRow = Annotated[
    dict[str, Any],
    msgspec.Meta(description="A row of a report, which `report` names; its other keys depend on the report."),
]


@operator_command(connects=False)
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", type=LocalPath())
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Choice(NAMES),
    help="Only this report; may be repeated. Default: all.",
)
@click.option("--every", default="1 hour", show_default=True, metavar="TIME", help="Length of one interval.")
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="Rows of largest and hottest."
)
@click.option(
    "--to",
    type=LocalPath(path_type=Path),
    metavar="FOLDER",
    help="Write the journal, the checkpoints and each report as Parquet into this new or empty folder.",
)
@spark_options
def analyse(
    call: Call,
    directories: tuple[str, ...],
    *,
    reports: tuple[str, ...],
    every: str,
    limit: int,
    to: Path | None,
    master: str,
    memory: str,
) -> Generator[ReportRow, None, int]:
    r"""Report on journals and checkpoints: writers over time, largest entries, hottest partitions, growth, missing
    updates, damage. Changes nothing.

    DIR is a member's persistence.directory, or a copy of it; all executors must be able to read it, and all must be
    of one cluster. An update in the files of several members counts once. The exit status is 1 if a file is damaged
    or an update is missing, also if no such report was requested.

    \b
      holdfast analyse /copies/m1 /copies/m2 --report writers --report hottest --every "5 minutes"
    """
    from holdfast.spark.files.analysis import analyse as job
    from holdfast.spark.files.analysis import check, one_cluster
    from holdfast.spark.files.checkpoint_files import checkpoint_frame
    from holdfast.spark.files.journals import find, journal_frame

    # Report mistakes before Spark starts.
    check(reports, every)
    one_cluster(find(directories))
    check_folders(to)
    if to is not None and any(to.resolve().is_relative_to(Path(each).resolve()) for each in directories):
        raise ConfigError(
            f"{to} is within the files of a member, where nothing is changed: give another folder"
        )

    with spark_job(master, memory, "analyse") as spark:
        result = job(
            spark,
            directories,
            reports or NAMES,
            every=every,
            limit=limit,
            progress=show_progress(quiet=call.as_json),
        )
        if to is not None:
            journal_frame(spark, directories).write.mode("append").parquet(str(to / "journal"))
            checkpoint_frame(spark, directories).write.mode("append").parquet(str(to / "checkpoints"))
            for report in result.reports:
                spark.createDataFrame(report.table).write.mode("append").parquet(str(to / report.name))
    if call.as_json:
        for report in result.reports:
            yield from ({"report": report.name, **row} for row in report.rows())
    else:
        click.echo(result)
    return DONE if result.sound else FAILED
