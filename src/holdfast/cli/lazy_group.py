"""Command group that imports commands when they are called, and reports errors in one line."""

from __future__ import annotations

import errno
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click

from holdfast.cli import exit_statuses
from holdfast.errors import HoldfastError, NotReady, Unknown, Unreachable


class Entry(NamedTuple):
    where: str
    """`module:name`, below the group's package."""
    summary: str
    """Its line in the help of the group, which its own module does not repeat."""


class LazyGroup(click.Group):
    """Imports a command when it is called, so that starting a member does not import thirty others."""

    def __init__(
        self, *args: Any, package: str, table: dict[str, Entry], statuses: exit_statuses.Table, **rest: Any
    ) -> None:
        """`table`: the commands, in the order of the help; their modules are in `package`."""
        super().__init__(*args, **rest)
        self._package = package
        self._table = table
        self._statuses = statuses
        self.epilog = exit_statuses.general_epilog()

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._table and cmd_name not in self.commands:
            module, _, name = self._table[cmd_name].where.partition(":")
            command = getattr(import_module(f"{self._package}.{module}"), name)
            command.short_help = self._table[cmd_name].summary
            self.add_command(explained(command, self._statuses))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self._table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # click would suggest only commands that are imported already: none here.
            alike = get_close_matches(args[0], self._table) if args else []
            if not alike:
                raise
            meant = " or ".join(map(repr, alike))
            raise click.UsageError(f"{error.message} Did you mean {meant}?", ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            click.echo(f"Error: {error}", err=True)
            waits = isinstance(error, NotReady | Unknown) and not isinstance(error, Unreachable)
            if waits and ctx.invoked_subcommand != "start" and "holdfast " not in str(error):
                # Members without a majority reject or delay requests, and only an operator can help.
                click.echo(
                    "`holdfast cluster safe` says whether members are missing, and what to do.", err=True
                )
            ctx.exit(exit_statuses.status_of(error))
        except OSError as error:
            # A reader that closed the pipe is no failure to report; click ends the command quietly.
            if error.errno == errno.EPIPE:
                raise
            click.echo(f"Error: {error}", err=True)
            ctx.exit(exit_statuses.FAILED)


def explained(command: click.Command, statuses: exit_statuses.Table, *path: str) -> click.Command:
    """Add the exit statuses to the help of a command and its subcommands.

    Also replaces the mark for lines that click must not fold, because docstrings cannot contain its raw character.
    """
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    words = " ".join((*path, command.name or ""))
    words = exit_statuses.ALIASES.get(words, words)
    meanings = getattr(command, "statuses", None) or statuses.get(words)
    if meanings:
        command.epilog = exit_statuses.epilog(meanings)
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        explained(inner, statuses, *path, command.name or "")
    return command


def run(group: LazyGroup) -> None:
    """Run a command line, unless Python runs without assertions."""
    if not __debug__:
        click.echo(
            "Error: holdfast does not run under python -O or PYTHONOPTIMIZE: its assertions stop a member that is "
            "about to break a promise",
            err=True,
        )
        sys.exit(exit_statuses.MISUSED)
    group()
