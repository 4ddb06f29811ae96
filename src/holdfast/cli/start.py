"""`holdfast start`: one member, or several, in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from holdfast.cli.settings import config_file, overrides, pairs, setting, settings_from
from holdfast.errors import ConfigError


def counted(text: str) -> int:
    """Number of members for `--members`. Raises ConfigError."""
    from holdfast.runtime.supervisor import MEMBERS_MAX, cores

    if text == "auto":
        return len(cores())
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MEMBERS_MAX):
        raise ConfigError(
            f"--members {text} is not allowed: it must be a number from 1 to {MEMBERS_MAX}, or auto: one for each core"
        )
    return int(text)


@click.command
@config_file
@setting("member.name", "--name", metavar="NAME")
@setting("cluster.name", "--cluster", metavar="NAME")
@setting("cluster.seeds", "--seed", metavar="HOST:PORT", multiple=True)
@setting("cluster.bootstrap", "--bootstrap")
@setting("member.host", "--host", metavar="HOST")
@setting("member.public_host", "--public-host", metavar="HOST")
@setting("member.member_port", "--member-port", metavar="PORT")
@setting("member.client_port", "--client-port", metavar="PORT")
@setting("member.lite", "--lite")
@setting("member.group", "--group", metavar="NAME")
@setting("member.availability_zone", "--availability-zone", metavar="NAME")
@setting("partitions.count", "--partitions", metavar="N")
@setting("maps.default.backups", "--backups", metavar="N")
@click.option(
    "--set", "others", metavar="SECTION.KEY=VALUE", multiple=True, help="Any other key of `holdfast config`."
)
@click.option(
    "--members",
    metavar="N|auto",
    help="Run N members on this host, each in its own process; auto: one per core. Member N is called NAME-N, "
    "listens on the first port + N - 1 and writes to DIRECTORY/member-N.",
)
def start(file: Path | None, others: tuple[str, ...], members: str | None, **flags: object) -> None:
    """Run one member, or several with --members.

    Ctrl-C or SIGTERM drains the member: it leaves as soon as its data is safe on other members. A second one ends it
    at once.

    \b
    Flags override the environment (HOLDFAST_MEMBER_CLIENT_PORT=5702), which overrides the file:
      holdfast start --name one
      holdfast start --name two --seed 127.0.0.1:5751
      holdfast start --members auto
    """  # noqa: D301  (the backslash is for click: what follows is not to be folded)
    given = {**pairs(others), **overrides(flags)}
    settings = settings_from(file, given)
    if members is None:
        from holdfast.runtime.process import main

        sys.exit(main(settings))
    from holdfast.runtime import supervisor

    arguments = [*(["--config", str(file)] if file else []), *supervisor.told(given)]
    sys.exit(supervisor.main(settings, counted(members), arguments))
