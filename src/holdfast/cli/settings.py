"""Settings of a command from a file, the environment and flags."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.paths import LocalPath
from holdfast.config import Settings, load
from holdfast.config.describe import Key, schema
from holdfast.config.loading import find_key
from holdfast.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])

KEYS = {key.dotted: key for key in schema()}

config_file = click.option(
    "--config",
    "file",
    type=LocalPath(path_type=Path),
    envvar="HOLDFAST_CONFIG",
    help="TOML file with settings; see `holdfast config`.  [env: HOLDFAST_CONFIG]",
)


def setting(dotted: str, *names: str, **attributes: Any) -> Callable[[Command], Command]:
    """A flag that sets one key of the schema, with the schema's description."""
    key = KEYS[dotted]
    attributes.setdefault("type", type(key.default) if isinstance(key.default, int) else str)
    if isinstance(key.default, bool):
        attributes |= {"is_flag": True, "flag_value": True, "type": bool}
    shown = "" if key.default in ("", [], False) else f"  [default: {key.default}]"
    return click.option(*names, parameter(key), default=None, help=key.meaning + shown, **attributes)


def parameter(key: Key) -> str:
    return key.dotted.replace(".", "__")


def overrides(flags: Mapping[str, object]) -> dict[str, object]:
    """The given flags, by dotted key."""
    return {
        name.replace("__", "."): value
        for name, value in flags.items()
        if name.replace("__", ".") in KEYS and value not in (None, ())
    }


def pairs(texts: tuple[str, ...]) -> dict[str, object]:
    """`SECTION.KEY=VALUE` from the command line. Secrets are rejected: every user of the machine could see them."""
    found: dict[str, object] = {}
    for text in texts:
        dotted, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text!r} is not allowed: it must be SECTION.KEY=VALUE")
        key = find_key(dotted, "the command line")
        if key.secret:
            raise ConfigError(
                f"--set {dotted} is not allowed: others can see flags; put it into the file or {key.variable}"
            )
        found[dotted] = value
    return found


def read(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read the settings in {file}: {reason}") from error


def settings_from(file: Path | None, flags: Mapping[str, object]) -> Settings:
    """Settings from file, environment and flags; the later one wins."""
    return load(read(file), os.environ, flags, origin=str(file))
