"""`holdfast credentials`: creates verifiers, which replace passwords and tokens in the settings."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable

import click
from msgspec import UNSET, UnsetType

from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown
from holdfast.config.verifiers import SALT_BYTES, password_verifier, token_verifier
from holdfast.errors import ConfigError

TOKEN_BYTES = 32


class Credential(Answer):
    """A verifier for the settings, and the token that it belongs to, if that is new."""

    verifier: str
    token: str | UnsetType = UNSET

    def view(self) -> Iterable[Shown]:
        if self.token is UNSET:
            return [self.verifier]
        return [f"token:    {self.token}", f"verifier: {self.verifier}"]


@operator_command(name="credentials", connects=False)
@click.option("--token", is_flag=True, help="Create a token, and print it with its verifier.")
def make_verifier(_: Call, *, token: bool) -> Credential:
    r"""Create a verifier for users.NAME.verifiers, so that the settings contain no password.

    The command asks for the password twice, or reads it from the first line of a pipe; it is never an argument, which
    others could see. With --token it creates a token: give the token to the client, and the verifier to the members.

    \b
      holdfast credentials --token
    """
    if token:
        made = secrets.token_urlsafe(TOKEN_BYTES)
        return Credential(token=made, verifier=str(token_verifier(made.encode())))
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt="The same again", err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("there is no password: type it, or pipe it in as one line")
    return Credential(verifier=str(password_verifier(password, secrets.token_bytes(SALT_BYTES))))
