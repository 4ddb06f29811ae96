"""Type of arguments and options that are paths of local files or folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from holdfast.config.local_paths import local_path
from holdfast.errors import ConfigError


class LocalPath(click.Path):
    """A path that is not a URI. `click.Path` would take `s3://bucket/x` for the local folder `s3:`."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The path. Raises ConfigError for a URI."""
        local_path(os.fspath(value))
        return super().convert(value, param, ctx)


def check_folders(*folders: Path | None) -> None:
    """Raises ConfigError unless each given output folder is new or empty and none is within another one, so
    that nothing that exists is ever replaced.
    """
    given = [folder for folder in folders if folder is not None]
    for place, folder in enumerate(given):
        try:
            # For a new folder look at its nearest parent: it must be a folder, and may have contents.
            there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
            inside = next((each for each in sorted(there.iterdir()) if there == folder), None)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be used: {error.strerror}") from error
        if inside is not None:
            raise ConfigError(f"{folder} is not empty ({inside.name}): give a folder that is")
        here = folder.resolve()
        for other in given[:place]:
            if here.is_relative_to(other.resolve()) or other.resolve().is_relative_to(here):
                raise ConfigError(f"{folder} and {other} are the same or nested: use separate folders")
