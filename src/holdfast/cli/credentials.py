"""Options for the credentials that commands send to members."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import click

from holdfast.cli.paths import LocalPath
from holdfast.client import connection
from holdfast.config.client_tls import ClientTls


@dataclass(frozen=True, slots=True)
class Credentials:
    """What opens the client door."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: ClientTls | None = None
    """How TLS is spoken; None: not at all."""

    def for_client(self) -> connection.Credentials:
        """The same for `holdfast.client`."""
        token = self.token.encode() if self.token else None
        return connection.Credentials(None, self.username, self.password, token, True, self.tls)

    def options(self) -> dict[str, Any]:
        """Those that are there, by the names of the Spark options."""
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


def credentials(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `credentials`, from the same variables that a member reads. Secrets are never flags."""

    @click.option(
        "--username",
        envvar="HOLDFAST_SECURITY_USERNAME",
        help="The password is asked for, unless HOLDFAST_SECURITY_PASSWORD has it. A token is taken from "
        "HOLDFAST_SECURITY_TOKEN.",
    )
    @_tls_options
    @wraps(command)
    def wrapped(*, username: str | None, tls: ClientTls | None, **others: Any) -> object:
        password = os.environ.get("HOLDFAST_SECURITY_PASSWORD")
        if username and not password:
            password = click.prompt("Password", hide_input=True, err=True)
        token = os.environ.get("HOLDFAST_SECURITY_TOKEN")
        known = Credentials(username or None, password or None, token or None, tls)
        return command(credentials=known, **others)

    return wrapped


def _tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `tls`."""

    @click.option(
        "--tls",
        "tls_wanted",
        is_flag=True,
        help="Use TLS, and trust the certificate authorities of this system.",
    )
    @click.option(
        "--tls-ca",
        "tls_ca",
        metavar="FILE",
        type=LocalPath(),
        envvar="HOLDFAST_TLS_CA",
        help="Use TLS, and trust the certificate authorities in this file (PEM).  [env: HOLDFAST_TLS_CA]",
    )
    @click.option(
        "--tls-certificate",
        "tls_certificate",
        metavar="FILE",
        type=LocalPath(),
        envvar="HOLDFAST_TLS_CERTIFICATE",
        help="Client certificate, for members that require one (PEM).  [env: HOLDFAST_TLS_CERTIFICATE]",
    )
    @click.option(
        "--tls-key",
        "tls_key",
        metavar="FILE",
        type=LocalPath(),
        envvar="HOLDFAST_TLS_KEY",
        help="Private key of the certificate, if in another file; HOLDFAST_TLS_KEY_PASSWORD has its password.  "
        "[env: HOLDFAST_TLS_KEY]",
    )
    @click.option(
        "--tls-any-host",
        "tls_any_host",
        is_flag=True,
        help="Do not check that the certificate names the member's host.",
    )
    @wraps(command)
    def wrapped(
        *,
        tls_wanted: bool,
        tls_ca: str | None,
        tls_certificate: str | None,
        tls_key: str | None,
        tls_any_host: bool,
        **others: Any,
    ) -> object:
        tls = None
        if tls_wanted or tls_ca or tls_certificate:
            tls = ClientTls(
                tls_ca or None,
                tls_certificate or None,
                tls_key or None,
                os.environ.get("HOLDFAST_TLS_KEY_PASSWORD"),
                verify_host=not tls_any_host,
            )
        return command(tls=tls, **others)

    return wrapped
