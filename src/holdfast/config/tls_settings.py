"""The section `tls`: certificates, keys and versions of TLS."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from holdfast.config.sections import Password, SecretiveSection, about, whole

File = Annotated[str, Meta(max_length=4096)]


class TlsSettings(SecretiveSection, frozen=True, kw_only=True):
    """TLS for clients, members and HTTP. Setting `certificate` turns it on, and plain connections off. Files are
    PEM.
    """

    certificate: File = about(
        "",
        "Certificate of this member for clients, followed by those of intermediate authorities. Empty: no TLS.",
    )
    key: File = about("", "Private key of the certificate; empty: in the same file.")
    key_password: Password = about("", "Password of the private keys, if they have one.")
    member_certificate: File = about(
        "",
        "Certificate of this member for other members, in both directions; empty: the same as for clients.",
    )
    member_key: File = about("", "Private key of member_certificate; empty: in the same file.")
    ca: File = about(
        "", "Certificate authorities of members. Members always use mutual TLS. Use your own authority."
    )
    client_ca: File = about("", "Certificate authorities of clients; empty: the same as for members.")
    client_certificates: Literal["none", "optional", "required"] = about(
        "none",
        "Client certificates (mutual TLS): none, optional or required. An invalid certificate is rejected. "
        "Credentials are still required, if configured.",
    )
    minimum_version: Literal["1.3", "1.2"] = about(
        "1.2",
        "Minimum TLS version of clients and HTTP. With 1.2 only ciphers with forward secrecy and authenticated "
        "encryption are accepted. Members always use 1.3 between each other.",
    )
    verify_host: bool = about(
        True,
        "Whether the certificate of a member must contain the host name or address at which others reach it.",
    )
    reload_s: int = whole(
        60,
        1,
        86_400,
        "Interval of checks for changed files. New connections use the new files; if these are invalid, the old "
        "ones stay in use, and log and status report it.",
    )

    @property
    def enabled(self) -> bool:
        """Whether the ports for clients and members accept TLS only."""
        return bool(self.certificate)
