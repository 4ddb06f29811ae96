"""The group of all commands, and what they have in common: how errors are told, and when to refuse to run at all."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module

import click

from holdfast.cli import exit_statuses
from holdfast.cli.orders import EXIT_FAILED, EXIT_MISUSED, EXIT_STANDING
from holdfast.errors import ConfigError, HoldfastError, NotReady, Standing, Unknown
from holdfast.version import __version__

COMMANDS = {
    "start": "start:start",
    "status": "status:status",
    "cluster": "cluster:cluster",
    "member": "member:member",
    "data": "data:data",
    "verify": "verify:verify_command",
    "repair": "verify:repair_command",
    "journal": "journal:journal",
    "analyse": "analyse:analyse",
    "plan": "plan:plan",
    "whatif": "whatif:whatif",
    "zone": "zone:zone",
    "metastore": "metastore:metastore",
    "transactions": "transactions:transactions",
    "simulate": "simulate:simulate",
    "replay": "replay:replay",
    "campaign": "whatif:campaign",
    "matrix": "matrix:matrix",
    "load": "load:load",
    "read": "read:read",
    "audit": "audit:audit",
    "changes": "changes:changes",
    "export": "export:export",
    "backup": "export:backup",
    "restore": "export:restore",
    "demo": "demo:demo",
    "chaos": "demo:chaos",
    "fuzz": "demo:fuzz",
    "resize": "demo:resize",
    "config": "configuration:config",
    "credentials": "making_verifiers:make_verifier",
}
"""Where each command is, module of `holdfast.cli` and name there, in the order in which `--help` tells them."""


class Commands(click.Group):
    """A group that tells our own errors in one line each.

    A command is imported when it is asked for: whoever starts a member, or looks at its status, does not wait for the
    modules of thirty others.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module, _, name = COMMANDS[cmd_name].partition(":")
            self.add_command(explained(getattr(import_module(f"holdfast.cli.{module}"), name)))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # click itself looks for similar names among the commands that were imported, which are none here.
            alike = get_close_matches(args[0], COMMANDS) if args else []
            if not alike:
                raise
            meant = " or ".join(map(repr, alike))
            raise click.UsageError(f"{error.message} Did you mean {meant}?", ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            click.echo(f"Error: {error}", err=True)
            if isinstance(error, NotReady | Unknown) and "holdfast " not in str(error):
                # Members that lost their majority reject or delay what clients ask for, and only operators can help.
                click.echo(
                    "`holdfast cluster safe` says whether members are missing, and what to do.", err=True
                )
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
