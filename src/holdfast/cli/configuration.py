"""`holdfast config`: the schema, with defaults and meanings; or the check of a file."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import click

from holdfast.cli.settings import settings_from
from holdfast.config.describe import schema
from holdfast.config.schema import SOMEBODY
from holdfast.runtime.memory import limit_of


@click.command(short_help="Print every setting, or check a file.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
def config(file: Path | None) -> None:
    """Print every setting as a TOML file with its default, meaning and environment variable.

    With FILE: check that file, with the environment over it, and say what is wrong.
    """
    if file is None:
        click.echo(as_toml())
        return
    settings = settings_from(file, {})
    click.echo(f"{file} is good: {len(settings.given)} settings are given, the others keep their defaults")


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
            lines += [f"# {key.meaning}", f"# {key.allowed}; {key.variable}", f"# {key.name} = {value}"]
            if (section, key.name) == ("limits", "memory_bytes"):
                found = limit_of(0)
                lines.append(f"# Here that is {found.size}: {found.because}.")
    return "\n".join(lines)
