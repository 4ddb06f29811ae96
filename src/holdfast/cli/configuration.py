"""`holdfast config`: prints the schema with defaults and meanings, checks a file, and changes settings at run time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.answers import Answer, MemberResult
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.orders import Give, together
from holdfast.cli.paths import LocalPath
from holdfast.cli.rendering import Shown
from holdfast.cli.settings import pairs, settings_from
from holdfast.cli.status import ask, doors_of
from holdfast.client.operator import order
from holdfast.config.describe import schema
from holdfast.config.loading import find_live_key
from holdfast.config.schema import SOMEBODY
from holdfast.core.model.ids import Address
from holdfast.runtime.memory import limit_of
from holdfast.wire import own


class _Config(click.Group):
    """A group whose first word may be a file instead of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] not in (["set"], ["--help"], ["-h"]):
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands["show"].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(
    cls=_Config,
    subcommand_metavar="[FILE] | set SECTION.KEY=VALUE...",
)
def config() -> None:
    r"""Print every setting as a TOML file, with its default, meaning and environment variable.

    With FILE: check that file together with the environment, and report every error.

    \b
      holdfast config > holdfast.toml
      holdfast config holdfast.toml
      holdfast config set limits.connections=2000
    """


class Setting(msgspec.Struct, frozen=True):
    """One setting of a member."""

    key: str
    default: Any
    allowed: str
    meaning: str
    variable: str
    secret: bool
    live: bool


class Schema(Answer):
    """All settings of a member."""

    settings: list[Setting]

    def view(self) -> Iterable[Shown]:
        yield as_toml()


class ValidFile(Answer):
    """The file has no error."""

    given: int
    file: str
    valid: bool = True

    def view(self) -> Iterable[Shown]:
        yield f"{self.file} is good: {self.given} settings are given, the others keep their defaults"


@operator_command(
    config, "show", connects=False, hidden=True, short_help="Print every setting, or check a file."
)
@click.argument("file", required=False, type=LocalPath(path_type=Path))
def show(_: Call, file: Path | None) -> Schema | ValidFile:
    """Print every setting, or check a file."""
    if file is not None:
        return ValidFile(given=len(settings_from(file, {}).given), file=str(file))
    return Schema(
        settings=[
            Setting(key.dotted, key.default, key.allowed, key.meaning, key.variable, key.secret, key.live)
            for key in schema()
        ]
    )


@operator_command(
    config,
    "set",
    timeout_s=10,
    then="Each member changes all of these settings at once, or none.",
    short_help="Change settings of running members.",
)
@click.argument("settings", nargs=-1, required=True, metavar="SECTION.KEY=VALUE...")
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="MEMBER",
    help="Only this member: a name, the first digits of a UUID, or HOST:PORT; may be repeated. Default: all members.",
)
def set_command(call: Call, settings: tuple[str, ...], *, members: tuple[str, ...]) -> Iterator[MemberResult]:
    r"""Change settings of running members; of all members unless --member names some. The change lasts until the
    process ends: for the next start write it into the file, too. `holdfast status --json` shows the values.

    Only settings that `holdfast config` marks as changeable can be changed; for others the error tells what to do.

    \b
      holdfast config set limits.connections=2000 limits.memory_bytes=8G --member two
    """
    wanted = {dotted: str(value) for dotted, value in pairs(settings).items()}
    for dotted in wanted:
        find_live_key(dotted, "the command line")
    if members:
        doors = doors_of(members, call.address, call.credentials)
    else:
        rows = ask(call.address, call.credentials)["members"]
        doors = [Address.of_clients(row) for row in rows]
    known = call.credentials.for_client()
    gives: dict[str, Give] = {
        str(door): partial(order, door, known, own.Want.CONFIGURE, settings=wanted, timeout_s=call.timeout_s)
        for door in doors
    }
    done = "has " + " ".join(f"{dotted}={value}" for dotted, value in wanted.items())
    return together(gives, done, lambda _: "")


def as_toml() -> str:
    """The schema as a file that can be used as it is: every key is commented out at its default."""
    lines = [
        "# Settings of a Holdfast member. A flag wins over an environment variable, and that over this file.",
        "# The end of a name is its unit: _ms milliseconds, _s seconds, _bytes bytes.",
    ]
    for section, keys in groupby(schema(), key=lambda key: key.section):
        of_somebody = section.endswith(f".{SOMEBODY}")
        lines += ["", f"{'# ' * of_somebody}[{section}]"]
        if section.startswith("maps."):
            lines.append("# [maps.NAME] has the same keys; those that it leaves out are taken from here.")
        for key in keys:
            value = "{}" if key.default == {} else json.dumps(key.default)
            live = "; can be changed while members run: holdfast config set" if key.live else ""
            lines += [f"# {key.meaning}", f"# {key.allowed}; {key.variable}{live}", f"# {key.name} = {value}"]
            if (section, key.name) == ("limits", "memory_bytes"):
                found = limit_of(0)
                lines.append(f"# Here that is {found.size}: {found.because}.")
    return "\n".join(lines)
