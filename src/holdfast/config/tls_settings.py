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

    certificate: Annotated[
        File,
        about(
            "Certificate of this member for clients, followed by those of intermediate authorities. Empty: no TLS."
        ),
    ] = ""
    key: Annotated[File, about("Private key of the certificate; empty: in the same file.")] = ""
    key_password: Annotated[Password, about("Password of the private keys, if they have one.")] = ""
    member_certificate: Annotated[
        File,
        about(
            "Certificate of this member for other members, in both directions; empty: the same as for clients."
        ),
    ] = ""
    member_key: Annotated[File, about("Private key of member_certificate; empty: in the same file.")] = ""
    ca: Annotated[
        File,
        about("Certificate authorities of members. Members always use mutual TLS. Use your own authority."),
    ] = ""
    client_ca: Annotated[
        File,
        about("Certificate authorities of clients; empty: the same as for members."),
    ] = ""
    client_certificates: Annotated[
        Literal["none", "optional", "required"],
        about(
            "Client certificates (mutual TLS): none, optional or required. An invalid certificate is rejected. "
            "Credentials are still required, if configured."
        ),
    ] = "none"
    minimum_version: Annotated[
        Literal["1.3", "1.2"],
        about(
            "Minimum TLS version of clients and HTTP. With 1.2 only ciphers with forward secrecy and authenticated "
            "encryption are accepted. Members always use 1.3 between each other."
        ),
    ] = "1.2"
    verify_host: Annotated[
        bool,
        about(
            "Whether the certificate of a member must contain the host name or address at which others reach it."
        ),
    ] = True
    reload_s: Annotated[
        int,
        whole(
            "Interval of checks for changed files. New connections use the new files; if these are invalid, the old "
            "ones stay in use, and log and status report it.",
            1,
            86_400,
        ),
    ] = 60

    @property
    def enabled(self) -> bool:
        """Whether the ports for clients and members accept TLS only."""
        return bool(self.certificate)
