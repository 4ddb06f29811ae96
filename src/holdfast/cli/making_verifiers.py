"""`holdfast credentials`: creates verifiers, which replace passwords and tokens in the settings."""

from __future__ import annotations

import secrets
import sys

import click

from holdfast.cli.answers import json_option, tell_json
from holdfast.config.verifiers import SALT_BYTES, password_verifier, token_verifier
from holdfast.errors import ConfigError

TOKEN_BYTES = 32


@click.command("credentials")
@click.option("--token", is_flag=True, help="Create a token, and print it with its verifier.")
@json_option
def make_verifier(*, token: bool, as_json: bool) -> None:
    """Create a verifier for users.NAME.verifiers, so that the settings contain no password.

    The command asks for the password twice, or reads it from the first line of a pipe; it is never an argument, which
    others could see. With --token it creates a token: give the token to the client, and the verifier to the members.
    """
    if token:
        made = secrets.token_urlsafe(TOKEN_BYTES)
        verifier = str(token_verifier(made.encode()))
        if as_json:
            tell_json({"token": made, "verifier": verifier})
        else:
            click.echo(f"token:    {made}")
            click.echo(f"verifier: {verifier}")
        return
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt="The same again", err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("there is no password: type it, or pipe it in as one line")
    verifier = str(password_verifier(password, secrets.token_bytes(SALT_BYTES)))
    tell_json({"verifier": verifier}) if as_json else click.echo(verifier)
