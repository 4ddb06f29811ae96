"""`python -m holdfast_lab`: the commands of people who develop Holdfast."""

from __future__ import annotations

import click

from holdfast.cli.exit_statuses import DONE, FAILED, WRONG, Table
from holdfast.cli.lazy_group import Entry, LazyGroup, run
from holdfast.version import __version__

COMMANDS = {
    "simulate": Entry("simulate:simulate", "Simulate clusters with faults."),
    "replay": Entry("replay:replay", "Replay a recorded run."),
    "campaign": Entry("campaign:campaign", "Simulate clusters with faults, seeds x settings, on Spark."),
    "matrix": Entry("matrix:matrix", "Inject every fault into every migration."),
    "demo": Entry("campaigns:demo", "Run the main job on real data."),
    "chaos": Entry("campaigns:chaos", "Inject faults into a real cluster under load."),
    "resize": Entry("campaigns:resize", "Grow and shrink a real cluster under load."),
    "fuzz": Entry("campaigns:fuzz", "Fuzz the client, member and HTTP ports."),
}
"""Command -> its module in `holdfast_lab.cli` and name there, and its line in `--help`."""

_RUNS = {DONE: "passed", FAILED: "failed", **WRONG}
STATUSES: Table = {
    "simulate": _RUNS,
    "replay": {
        DONE: "all steps are equal to the recording",
        FAILED: "a step differs, or the file is damaged",
        **WRONG,
    },
    "campaign": _RUNS,
    "matrix": _RUNS,
    "demo": _RUNS,
    "chaos": _RUNS,
    "fuzz": _RUNS,
    "resize": _RUNS,
}
"""The meanings of each command's exit statuses."""


@click.group(
    cls=LazyGroup,
    package="holdfast_lab.cli",
    table=COMMANDS,
    statuses=STATUSES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="holdfast_lab")
def holdfast_lab() -> None:
    """Tools for developers of Holdfast: simulate and fuzz clusters, inject faults, and check every response."""


def main() -> None:
    run(holdfast_lab)
