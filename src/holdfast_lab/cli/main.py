"""`python -m holdfast_lab`: the commands of people who develop Holdfast."""

from __future__ import annotations

import click

from holdfast.cli.exit_statuses import DONE, FAILED, WRONG, Table
from holdfast.cli.lazy_group import Entry, LazyGroup, run
from holdfast.version import __version__

COMMANDS = {
    "simulate": Entry("simulate:simulate", "Run simulated clusters with faults."),
    "replay": Entry("replay:replay", "Live a recorded run again, and tell of it."),
    "campaign": Entry("campaign:campaign", "Simulate clusters with faults, seeds x settings, on Spark."),
    "matrix": Entry("matrix:matrix", "Run the crash matrix of migrations."),
    "demo": Entry("campaigns:demo", "Show the main job on real data."),
    "chaos": Entry("campaigns:chaos", "Strike a cluster under load, and judge every answer."),
    "resize": Entry("campaigns:resize", "Grow and shrink a cluster under load, again and again."),
    "fuzz": Entry("campaigns:fuzz", "Say whatever harms to the doors of a cluster."),
}
"""Each command: its module in `holdfast_lab.cli`, its name there, and its line in `--help`, in that order."""

_RUNS = {DONE: "all as it must be", FAILED: "something is not", **WRONG}
STATUSES: Table = {
    "simulate": _RUNS,
    "replay": {DONE: "all steps are as they were", FAILED: "one is not, or the file is broken", **WRONG},
    "campaign": _RUNS,
    "matrix": _RUNS,
    "demo": _RUNS,
    "chaos": _RUNS,
    "fuzz": _RUNS,
    "resize": _RUNS,
}
"""What the exit statuses of each command mean there. A command has no others."""


@click.group(
    cls=LazyGroup,
    package="holdfast_lab.cli",
    table=COMMANDS,
    statuses=STATUSES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="holdfast_lab")
def holdfast_lab() -> None:
    """Simulate, strike and fuzz clusters, and judge what they answered: tools for developers of Holdfast."""


def main() -> None:
    """Run the command line."""
    run(holdfast_lab)
