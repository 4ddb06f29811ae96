"""Who a command is, for the client door of a member."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import click

from holdfast.client import connection


@dataclass(frozen=True, slots=True)
class Credentials:
    """What opens the client door."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def for_client(self) -> connection.Credentials:
        """The same for `holdfast.client`."""
        token = self.token.encode() if self.token else None
        return connection.Credentials(None, self.username, self.password, token, operates=True)

    def options(self) -> dict[str, Any]:
        """Those that are there, by the names of the Spark options."""
        named = {"user": self.username, "password": self.password, "token": self.token}
        return {name: value for name, value in named.items() if value}


def credentials(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `credentials`, from the same variables that a member reads. Secrets are never flags."""

    @click.option(
        "--username",
        envvar="HOLDFAST_SECURITY_USERNAME",
        help="The password is asked for, unless HOLDFAST_SECURITY_PASSWORD has it. A token is taken from "
        "HOLDFAST_SECURITY_TOKEN.",
    )
    @wraps(command)
    def wrapped(*, username: str | None, **others: Any) -> object:
        password = os.environ.get("HOLDFAST_SECURITY_PASSWORD")
        if username and not password:
            password = click.prompt("Password", hide_input=True, err=True)
        token = os.environ.get("HOLDFAST_SECURITY_TOKEN")
        return command(credentials=Credentials(username or None, password or None, token or None), **others)

    return wrapped
