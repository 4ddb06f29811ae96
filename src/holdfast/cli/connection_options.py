"""Options by which every command finds and enters a cluster: `holdfast help connection` describes them, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

ADDRESS_HELP = "Members to contact; see holdfast help connection."


class ConnectionOption(click.Option):
    """An option that the help of a command leaves out, or mentions in one line."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if self.name == "address":
            return f"-a, --address {self.make_metavar(ctx)}", ADDRESS_HELP
        return None

    def full_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Its entry on the page about connections."""
        record = super().get_help_record(ctx)
        assert record is not None, "it is not hidden"
        return record


def connection_option(*names: str, **attributes: Any) -> Callable[[Command], Command]:
    """As `click.option`."""
    return click.option(*names, cls=ConnectionOption, **attributes)
