"""The group of all commands, and what they have in common: how errors are told, and when to refuse to run at all."""

from __future__ import annotations

import sys

import click

from holdfast.cli import exit_statuses
from holdfast.cli.analyse import analyse
from holdfast.cli.audit import audit
from holdfast.cli.changes import changes
from holdfast.cli.cluster import cluster
from holdfast.cli.configuration import config
from holdfast.cli.data import data
from holdfast.cli.demo import chaos, demo, fuzz, resize
from holdfast.cli.export import backup, export, restore
from holdfast.cli.journal import journal
from holdfast.cli.load import load
from holdfast.cli.making_verifiers import make_verifier
from holdfast.cli.matrix import matrix
from holdfast.cli.member import member
from holdfast.cli.metastore import metastore
from holdfast.cli.orders import EXIT_FAILED, EXIT_MISUSED, EXIT_STANDING
from holdfast.cli.plan import plan
from holdfast.cli.read import read
from holdfast.cli.replay import replay
from holdfast.cli.simulate import simulate
from holdfast.cli.start import start
from holdfast.cli.status import status
from holdfast.cli.transactions import transactions
from holdfast.cli.verify import repair_command, verify_command
from holdfast.cli.whatif import campaign, whatif
from holdfast.cli.zone import zone
from holdfast.errors import ConfigError, HoldfastError, Standing
from holdfast.version import __version__


class Commands(click.Group):
    """A group that tells our own errors in one line each, in the order in which the commands were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            click.echo(f"Error: {error}", err=True)
            if isinstance(error, Standing):
                ctx.exit(EXIT_STANDING)
            ctx.exit(EXIT_MISUSED if isinstance(error, ConfigError) else EXIT_FAILED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="holdfast")
def holdfast() -> None:
    """Holdfast: a partitioned, replicated in-memory data grid that keeps every acknowledged write.

    Hazelcast clients connect to it unchanged; Spark reads, writes and audits it.
    """


def explained(command: click.Command, *path: str) -> click.Command:
    """Let help tell the exit statuses; and let click see where lines must stay as they are: its mark is a character
    that docstrings cannot have raw.
    """
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    words = " ".join((*path, command.name or ""))
    words = exit_statuses.ALIASES.get(words, words)
    if words in exit_statuses.STATUSES:
        command.epilog = exit_statuses.told(words)
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        explained(inner, *path, command.name or "")
    return command


COMMANDS = (
    start,
    status,
    cluster,
    member,
    data,
    verify_command,
    repair_command,
    journal,
    analyse,
    plan,
    whatif,
    zone,
    metastore,
    transactions,
    simulate,
    replay,
    campaign,
    matrix,
    load,
    read,
    audit,
    changes,
    export,
    backup,
    restore,
    demo,
    chaos,
    fuzz,
    resize,
    config,
    make_verifier,
)

for command in COMMANDS:
    holdfast.add_command(explained(command))
holdfast.epilog = "\b\nExit status of every command (its own --help says what that is there):\n" + "\n".join(
    f"  {status:<3} {meaning}" for status, meaning in exit_statuses.GENERAL.items()
)


def main() -> None:
    """Run the command line."""
    if not __debug__:
        click.echo(
            "Error: holdfast does not run under python -O or PYTHONOPTIMIZE: its assertions stop a member that is "
            "about to break a promise",
            err=True,
        )
        sys.exit(EXIT_MISUSED)
    holdfast()
