"""Options for the credentials that commands send to members."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import click

from holdfast.cli.connection_options import connection_option
from holdfast.cli.paths import LocalPath
from holdfast.client import connection
from holdfast.config.client_tls import ClientTls

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Credentials:
    """User, password, token and TLS of a command."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: ClientTls | None = None
    """None: without TLS."""

    def for_client(self) -> connection.Credentials:
        """The same for `holdfast.client`."""
        token = self.token.encode() if self.token else None
        return connection.Credentials(None, self.username, self.password, token, True, self.tls)

    def options(self) -> dict[str, Any]:
        """Those that are set, by the names of the Spark options."""
        named = {"user": self.username, "password": self.password, "token": self.token}
        if self.tls is not None:
            tls = self.tls
            named |= {
                "tls": "true",
                "tlsCa": tls.ca,
                "tlsCertificate": tls.certificate,
                "tlsKey": tls.key,
                "tlsKeyPassword": tls.key_password,
                "tlsVerifyHost": None if tls.verify_host else "false",
            }
        return {name: value for name, value in named.items() if value}


_CREDENTIALS = (
    connection_option(
        "--username",
        envvar="HOLDFAST_SECURITY_USERNAME",
        metavar="NAME",
        help="User. The command asks for the password, unless HOLDFAST_SECURITY_PASSWORD has it. A token is taken "
        "from HOLDFAST_SECURITY_TOKEN.  [env: HOLDFAST_SECURITY_USERNAME]",
    ),
    connection_option(
        "--tls",
        "tls_wanted",
        is_flag=True,
        help="Use TLS, and trust the certificate authorities of this system.",
    ),
    connection_option(
        "--tls-ca",
        metavar="FILE",
        type=LocalPath(),
        envvar="HOLDFAST_TLS_CA",
        help="Use TLS, and trust the certificate authorities in this file (PEM).  [env: HOLDFAST_TLS_CA]",
    ),
    connection_option(
        "--tls-certificate",
        metavar="FILE",
        type=LocalPath(),
        envvar="HOLDFAST_TLS_CERTIFICATE",
        help="Client certificate, for members that require one (PEM).  [env: HOLDFAST_TLS_CERTIFICATE]",
    ),
    connection_option(
        "--tls-key",
        metavar="FILE",
        type=LocalPath(),
        envvar="HOLDFAST_TLS_KEY",
        help="Private key of the certificate, if in another file. HOLDFAST_TLS_KEY_PASSWORD has its password.  "
        "[env: HOLDFAST_TLS_KEY]",
    ),
    connection_option(
        "--tls-any-host", is_flag=True, help="Do not check that the certificate names the member's host."
    ),
)
SECRETS = ("HOLDFAST_SECURITY_PASSWORD", "HOLDFAST_SECURITY_TOKEN", "HOLDFAST_TLS_KEY_PASSWORD")
"""Variables with what is never an option, because other users of the machine see options."""


def credentials(command: Command) -> Command:
    """Give a command `credentials`, from its options and the variables that a member reads."""

    @wraps(command)
    def wrapped(*, username: str | None, **others: Any) -> object:
        named = {name: others.pop(name) for name in _TLS_PARAMETERS}
        password, token, key_password = (os.environ.get(name) for name in SECRETS)
        if username and not password:
            password = click.prompt("Password", hide_input=True, err=True)
        tls = _tls(key_password, **named)
        known = Credentials(username or None, password or None, token or None, tls)
        return command(credentials=known, **others)

    made: Command = wrapped
    for option in reversed(_CREDENTIALS):
        made = option(made)
    return made


_TLS_PARAMETERS = ("tls_wanted", "tls_ca", "tls_certificate", "tls_key", "tls_any_host")


def _tls(
    key_password: str | None,
    tls_wanted: bool,
    tls_ca: str | None,
    tls_certificate: str | None,
    tls_key: str | None,
    tls_any_host: bool,
) -> ClientTls | None:
    if not (tls_wanted or tls_ca or tls_certificate):
        return None
    return ClientTls(
        tls_ca or None,
        tls_certificate or None,
        tls_key or None,
        key_password,
        verify_host=not tls_any_host,
    )
