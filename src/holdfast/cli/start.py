"""`holdfast start`: one member, in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from holdfast.cli.settings import config_file, overrides, pairs, setting, settings_from


@click.command(short_help="Run one member.")
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
@setting("member.zone", "--zone", metavar="NAME")
@setting("partitions.count", "--partitions", metavar="N")
@setting("maps.default.backups", "--backups", metavar="N")
@click.option(
    "--set", "others", metavar="SECTION.KEY=VALUE", multiple=True, help="Any other key of `holdfast config`."
)
def start(file: Path | None, others: tuple[str, ...], **flags: object) -> None:
    """Run one member until it is told to leave.

    Ctrl-C or SIGTERM drains it: it leaves when its partitions are safe on other members. A second one ends it at once.

    \b
    Settings come from the file, over it the environment (HOLDFAST_MEMBER_CLIENT_PORT=5702), over it flags:
      holdfast start --name one
      holdfast start --name two --seed 127.0.0.1:5751
    """  # noqa: D301  (the backslash is for click: what follows is not to be folded)
    from holdfast.runtime.process import main

    sys.exit(main(settings_from(file, {**pairs(others), **overrides(flags)})))
