"""Type of arguments and options that are paths of local files or folders."""

from __future__ import annotations

import os
from typing import Any

import click

from holdfast.config.local_paths import local_path


class LocalPath(click.Path):
    """A path that is not a URI. `click.Path` would take `s3://bucket/x` for the local folder `s3:`."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The path. Raises ConfigError for a URI."""
        local_path(os.fspath(value))
        return super().convert(value, param, ctx)
