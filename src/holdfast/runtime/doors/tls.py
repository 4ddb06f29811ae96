"""TLS contexts of a member, rebuilt when their files have changed.

New files are tested before use by a handshake of the member with itself in memory. So a certificate that has
expired, or that the members' CA did not sign, is detected before another member rejects it.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from holdfast.config import TlsSettings
from holdfast.config.client_tls import VERSIONS, TlsVersion, handshake_problem, show, trust
from holdfast.core.model.member_status import TlsStatus
from holdfast.errors import ConfigError

log = logging.getLogger("holdfast")

ROUNDS_MAX = 8
CIPHERS_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Cipher suites for TLS 1.2: forward secrecy and authenticated encryption, as RFC 9325 recommends. The suites
of TLS 1.3 are all of this kind.
"""
Stamp = tuple[tuple[int, int, int] | None, ...]

_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class Contexts:
    clients: ssl.SSLContext
    members: ssl.SSLContext
    outgoing: ssl.SSLContext
    member_certificate_ends: str


class MemberTls:
    def __init__(self, settings: TlsSettings) -> None:
        """Raises ConfigError when the files cannot be used."""
        assert settings.enabled, "made where there is TLS"
        self._settings = settings
        self._stamp = self._stamps()
        self.contexts = _made(settings)
        self.trouble = ""
        """Why changed files are not in use; empty if there is no problem."""
        self.loaded = 1

    def look(self) -> None:
        stamp = self._stamps()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.contexts = _made(self._settings)
        except ConfigError as error:
            self.trouble = str(error)
            log.error("TLS: the files have changed and the old ones stay in force: %s", error)
            return
        self.trouble = ""
        self.loaded += 1
        log.info("TLS: new connections use the files as they are now")

    def _stamps(self) -> Stamp:
        settings = self._settings
        files = (
            settings.certificate,
            settings.key,
            settings.member_certificate,
            settings.member_key,
            settings.ca,
            settings.client_ca,
        )
        return tuple(_stamp_of(file) for file in files)

    def status(self) -> TlsStatus:
        settings = self._settings
        return TlsStatus(
            settings.certificate,
            settings.client_certificates,
            settings.minimum_version,
            self.contexts.member_certificate_ends,
            self.loaded,
            self.trouble,
        )


def _stamp_of(file: str) -> tuple[int, int, int] | None:
    if not file:
        return None
    try:
        found = Path(file).stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _made(settings: TlsSettings) -> Contexts:
    clients = _server(settings.minimum_version)
    show(clients, settings.certificate, settings.key, settings.key_password, "tls.certificate")
    clients.verify_mode = _VERIFY[settings.client_certificates]
    if settings.client_certificates != "none":
        own = bool(settings.client_ca)
        trust(clients, settings.client_ca or settings.ca, "tls.client_ca" if own else "tls.ca")
    members = _server("1.3")
    members.verify_mode = ssl.CERT_REQUIRED
    outgoing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing.minimum_version = VERSIONS["1.3"]
    outgoing.check_hostname = settings.verify_host
    for context in (members, outgoing):
        trust(context, settings.ca, "tls.ca")
        if settings.member_certificate:
            file, key, name = settings.member_certificate, settings.member_key, "tls.member_certificate"
        else:
            file, key, name = settings.certificate, settings.key, "tls.certificate"
        show(context, file, key, settings.key_password, name)
    return Contexts(clients, members, outgoing, _tried(members, outgoing, name, file))


def _server(minimum_version: TlsVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[minimum_version]
    context.set_ciphers(CIPHERS_1_2)
    # A resumed session relies on a certificate that may no longer be trusted. The ssl module cannot switch
    # off the session ids of TLS 1.2; those sessions end when a file is renewed, since the context is rebuilt
    # then.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    return context


def _tried(members: ssl.SSLContext, outgoing: ssl.SSLContext, name: str, file: str) -> str:
    """Test both contexts with a handshake; returns the expiry of the certificate. Raises ConfigError."""
    forth, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    verifies = outgoing.check_hostname
    outgoing.check_hostname = False  # There is no host name in memory.
    try:
        there = outgoing.wrap_bio(back, forth)
        here = members.wrap_bio(forth, back, server_side=True)
        for _ in range(ROUNDS_MAX):
            if sum([_done(there), _done(here)]) == 2:
                break
        return str((there.getpeercert() or {}).get("notAfter", ""))
    except ssl.SSLError as error:
        raise ConfigError(
            f"{name}, {file}, is not good for members, which trust tls.ca: "
            f"{handshake_problem(error).removeprefix('its certificate is not trusted: ')}"
        ) from None
    finally:
        outgoing.check_hostname = verifies


def _done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
