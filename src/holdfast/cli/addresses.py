"""Address options of commands: `-a` and the variable HOLDFAST_ADDRESS, the same everywhere.

`-a` may be repeated, or have several addresses separated by commas, which are tried in turn. Commands that once
took the address as an argument still accept it there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from holdfast.cli.connection_options import connection_option
from holdfast.client_core.routing import DEFAULT_PORT

DEFAULT_ADDRESS = f"127.0.0.1:{DEFAULT_PORT}"
VARIABLE = "HOLDFAST_ADDRESS"
Command = TypeVar("Command", bound=Callable[..., Any])


address_option = connection_option(
    "-a",
    "--address",
    multiple=True,
    envvar=VARIABLE,
    default=(DEFAULT_ADDRESS,),
    callback=lambda _ctx, _parameter, given: ",".join(given),
    metavar="HOST:PORT[,...]",
    help="Client port of a member. Several, which are tried in turn: separate them by commas, or repeat the option. "
    f"The command finds the other members from there.  [env: {VARIABLE}; default: {DEFAULT_ADDRESS}]",
)


class _Unmentioned(click.Argument):
    """An argument that still works, and that the help does not show."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []


def address_argument(command: Command) -> Command:
    """`-a` like everywhere else; and the address as an argument, which these commands took before. Not both."""

    @functools.wraps(command)
    def with_address(*, argument: str | None, address: str, **others: Any) -> Any:
        ctx = click.get_current_context()
        given = ctx.get_parameter_source("address") is click.core.ParameterSource.COMMANDLINE
        if argument and given and argument != address:
            raise click.UsageError(f"two addresses: {argument} and -a {address}; name them all with -a")
        return command(address=argument or address, **others)

    with_address = address_option(with_address)
    with_address = click.argument("argument", required=False, cls=_Unmentioned)(with_address)
    return cast("Command", with_address)
