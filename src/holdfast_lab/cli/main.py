"""`python -m holdfast_lab`: the commands of people who develop Holdfast."""

from __future__ import annotations

import click

from holdfast.cli.exit_statuses import DONE, FAILED, WRONG, Table
from holdfast.cli.lazy_group import LazyGroup, run
from holdfast.version import __version__

COMMANDS = {
    "simulate": "simulate:simulate",
    "replay": "replay:replay",
    "campaign": "campaign:campaign",
    "matrix": "matrix:matrix",
    "demo": "campaigns:demo",
    "chaos": "campaigns:chaos",
    "resize": "campaigns:resize",
    "fuzz": "campaigns:fuzz",
}
"""Module of `holdfast_lab.cli` and name there of each command, in the order in which `--help` lists them."""

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
