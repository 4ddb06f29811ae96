"""`holdfast help`: what many commands have in common, and the help of a command."""

from __future__ import annotations

import click

from holdfast.cli.addresses import address_option
from holdfast.cli.connection_options import ConnectionOption
from holdfast.cli.credentials import SECRETS, credentials
from holdfast.cli.exit_statuses import GENERAL
from holdfast.config.units import SIZES, TIMES
from holdfast.errors import ConfigError


@click.command("help")
@click.argument("words", nargs=-1, metavar="[TOPIC | COMMAND...]")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    r"""Explain a topic (connection, units, exit-status) or a command.

    \b
      holdfast help connection
      holdfast help cluster safe
    """
    formatter = ctx.make_formatter()
    topic = TOPICS.get(" ".join(words))
    if topic is not None:
        topic(ctx, formatter)
        click.echo(formatter.getvalue().rstrip())
    else:
        click.echo(_help_of(ctx, words))


def _help_of(ctx: click.Context, words: tuple[str, ...]) -> str:
    inner = ctx.find_root()
    for word in words:
        group = inner.command
        found = group.get_command(inner, word) if isinstance(group, click.Group) else None
        if found is None:
            raise ConfigError(
                f"there is no command or topic {' '.join(words)!r}: topics are {', '.join(TOPICS)}; "
                "holdfast --help lists the commands"
            )
        inner = click.Context(found, info_name=word, parent=inner, max_content_width=ctx.max_content_width)
    return inner.get_help()


def connection_options() -> list[ConnectionOption]:
    """The options by which commands find and enter a cluster."""

    def bare() -> None: ...

    made = address_option(credentials(bare))
    params: list[click.Parameter] = list(reversed(made.__click_params__))  # type: ignore[attr-defined]
    return [one for one in params if isinstance(one, ConnectionOption)]


def _connection(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    formatter.write_text("Every command that contacts a cluster has these options.")
    with formatter.section("Connection options"):
        formatter.write_dl([one.full_help_record(ctx) for one in connection_options()])
    formatter.write_paragraph()
    formatter.write_text(
        f"Secrets are never options, because other users of the machine see those: {', '.join(SECRETS)}."
    )
    formatter.write_paragraph()
    with formatter.section("Examples"):
        for example in (
            "export HOLDFAST_ADDRESS=10.0.0.1:5701,10.0.0.2:5701",
            "holdfast status --tls-ca ca.pem --username admin",
        ):
            formatter.write(f"  {example}\n")


def _units(_: click.Context, formatter: click.HelpFormatter) -> None:
    formatter.write_text(
        f"A size is a number of bytes, or has a unit: {', '.join(SIZES)} (1K is 1024 bytes; KiB is the same): 512M."
    )
    formatter.write_paragraph()
    formatter.write_text(
        f"A time has a unit, {', '.join(TIMES)}: 250ms, 10min. A plain number is in the unit of the option or setting: "
        "seconds for options; for settings the end of their name (_ms, _s)."
    )


def _exit_status(_: click.Context, formatter: click.HelpFormatter) -> None:
    formatter.write_text("The help of each command says what its statuses mean.")
    with formatter.section("Exit status"):
        formatter.write_dl([(str(status), meaning) for status, meaning in GENERAL.items()])


TOPICS = {"connection": _connection, "units": _units, "exit-status": _exit_status}
