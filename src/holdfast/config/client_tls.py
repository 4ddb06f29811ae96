"""TLS settings of clients: trusted authorities, and the client's own certificate."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Literal

from holdfast.errors import ConfigError

TlsVersion = Literal["1.3", "1.2"]
VERSIONS = {"1.3": ssl.TLSVersion.TLSv1_3, "1.2": ssl.TLSVersion.TLSv1_2}


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS of a client. Paths name PEM files, which are read again for each connection."""

    ca: str | None = None
    """Certificates of the authorities that sign for members; None: those that the system trusts."""
    certificate: str | None = None
    """The client's own certificate, for members that require one (mutual TLS)."""
    key: str | None = None
    """Private key of the certificate; None: in the same file."""
    key_password: str | None = field(default=None, repr=False)
    verify_host: bool = True
    """Whether a member's certificate must name the host to which the client connects."""
    minimum_version: TlsVersion = "1.3"

    def context(self) -> ssl.SSLContext:
        """The context for a new connection. Raises ConfigError if a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = VERSIONS[self.minimum_version]
        context.check_hostname = self.verify_host
        if self.key and not self.certificate:
            raise ConfigError("TLS: a key was given, and no certificate")
        trust(context, self.ca, "the CA of members")
        if self.certificate:
            show(context, self.certificate, self.key, self.key_password, "the certificate of this client")
        return context


def trust(context: ssl.SSLContext, ca: str | None, what: str) -> None:
    """Trust these authorities; None: those of the system. Raises ConfigError, which describes the file as `what`."""
    try:
        if ca:
            context.load_verify_locations(cafile=ca)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what}, {ca}, cannot be used: {_why(error)}") from None


def show(context: ssl.SSLContext, certificate: str, key: str | None, password: str | None, what: str) -> None:
    """Present this certificate. Raises ConfigError, which describes the file as `what`."""
    try:
        # A function, because without one OpenSSL asks for the password at the terminal.
        context.load_cert_chain(certificate, key or None, lambda: password or "")
    except (OSError, ValueError) as error:
        with_key = f" with the key {key}" if key else ""
        raise ConfigError(f"{what}, {certificate}{with_key}, cannot be used: {_why(error)}") from None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        reason = (
            (error.reason or "it is not a PEM file with the necessary contents").replace("_", " ").lower()
        )
        return f"{reason} (not a PEM file, a key of another certificate, or a wrong password)"
    return getattr(error, "strerror", None) or str(error)


def handshake_problem(error: Exception) -> str:
    """Why the TLS handshake failed, for the operator; empty if it failed for other reasons."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return ""
    reason = (error.reason or "").upper()
    for part, words in _REASONS.items():
        if part in reason:
            return words
    return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"


SPEAKS_NONE = "it does not use TLS"

_REASONS = {
    "CERTIFICATE_REQUIRED": "it requires a certificate, and got none",
    "UNKNOWN_CA": "it does not trust the authority that signed the presented certificate",
    "CERTIFICATE_EXPIRED": "the presented certificate has expired",
    "CERTIFICATE_UNKNOWN": "it rejects the presented certificate",
    "BAD_CERTIFICATE": "it rejects the presented certificate",
    "HANDSHAKE_FAILURE": "it requires a certificate and got none, or the two sides have no cipher in common",
    "PROTOCOL_VERSION": "it does not support this version of TLS",
    "UNSUPPORTED_PROTOCOL": "it does not support this version of TLS",
    "WRONG_VERSION_NUMBER": SPEAKS_NONE,
    "RECORD_LAYER_FAILURE": SPEAKS_NONE,
    "HTTP_REQUEST": SPEAKS_NONE,
}
"""Explanations of OpenSSL's error names."""
