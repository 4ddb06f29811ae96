"""`holdfast config`: prints the schema with defaults and meanings, checks a file, and changes settings at run time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.action_commands import add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath
from holdfast.cli.rendering import Shown
from holdfast.cli.settings import settings_from
from holdfast.config.describe import schema
from holdfast.config.schema import SOMEBODY
from holdfast.core.model.result_columns import size
from holdfast.runtime.memory import limit_of


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
    in_use: bool


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
    r"""Print every setting, or check a file.

    \b
      holdfast config holdfast.toml
    """
    if file is not None:
        return ValidFile(given=len(settings_from(file, {}).given), file=str(file))
    return Schema(
        settings=[
            Setting(
                key.dotted,
                key.default,
                key.allowed,
                key.meaning,
                key.variable,
                key.secret,
                key.live,
                key.in_use,
            )
            for key in schema()
        ]
    )


add_actions(config, "config")


def as_toml() -> str:
    """The schema as a file that can be used as it is: every key is commented out at its default."""
    lines = [
        "# Settings of a Holdfast member. A flag wins over an environment variable, and that over this file.",
        "# Sizes and times may have units: 64M, 10min (holdfast help units). A plain number is in the unit at the end",
        "# of the name: _ms milliseconds, _s seconds, _bytes bytes.",
    ]
    for section, keys in groupby(schema(), key=lambda key: key.section):
        of_somebody = section.endswith(f".{SOMEBODY}")
        lines += ["", f"{'# ' * of_somebody}[{section}]"]
        if section.startswith("maps."):
            lines.append("# [maps.NAME] has the same keys; those that it leaves out are taken from here.")
        for key in keys:
            value = "{}" if key.default == {} else json.dumps(key.readable(key.default))
            live = "; can be changed while members run: holdfast config set" if key.live else ""
            live += "; can be changed while the map is used: holdfast map set" if key.in_use else ""
            lines += [f"# {key.meaning}", f"# {key.allowed}; {key.variable}{live}", f"# {key.name} = {value}"]
            if (section, key.name) == ("limits", "memory_bytes"):
                found = limit_of(0)
                lines.append(f"# Here that is {size(found.size)}: {found.because}.")
    return "\n".join(lines)
