"""The section `tls`: certificates, keys and versions of TLS."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from holdfast.config.sections import Password, SecretiveSection

File = Annotated[str, Meta(max_length=4096)]


class TlsSettings(SecretiveSection, frozen=True, kw_only=True):
    """TLS at both doors, as soon as `certificate` is set; plain connections are refused then. Files are PEM."""

    certificate: Annotated[
        File,
        Meta(
            description="This member's certificate for clients, followed by those of intermediate authorities. Empty: "
            "no TLS."
        ),
    ] = ""
    key: Annotated[
        File, Meta(description="The private key of the certificate; empty: it is in the same file.")
    ] = ""
    key_password: Annotated[Password, Meta(description="Password of the private keys, if they have one.")] = (
        ""
    )
    member_certificate: Annotated[
        File,
        Meta(
            description="The certificate that this member shows to other members, as the one that connects and the one "
            "that is connected to; empty: the same as for clients."
        ),
    ] = ""
    member_key: Annotated[
        File, Meta(description="The private key of member_certificate; empty: it is in the same file.")
    ] = ""
    ca: Annotated[
        File,
        Meta(
            description="Certificates of the authorities that sign for members. Members always show each other "
            "certificates. Use authorities of your own."
        ),
    ] = ""
    client_ca: Annotated[
        File,
        Meta(
            description="Certificates of the authorities that sign for clients; empty: the same as for members."
        ),
    ] = ""
    client_certificates: Annotated[
        Literal["none", "optional", "required"],
        Meta(
            description="Whether clients show a certificate (mutual TLS): never, if they have one, or always. One that "
            "is shown must be good. Credentials are asked for all the same, where there are some."
        ),
    ] = "none"
    minimum_version: Annotated[
        Literal["1.3", "1.2"],
        Meta(
            description="The oldest TLS version that clients and HTTP requests may use. With 1.2 only ciphers with "
            "forward secrecy and authenticated encryption are accepted. Members always use 1.3 between each other."
        ),
    ] = "1.2"
    verify_host: Annotated[
        bool,
        Meta(
            description="Whether the certificate of a member must name the host, or the address, at which others reach "
            "it."
        ),
    ] = True
    reload_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="How often it is looked whether the files have changed. New connections use the new ones; if "
            "these are not good, the old ones stay in force, and log and status say so.",
        ),
    ] = 60

    @property
    def enabled(self) -> bool:
        """Whether both doors speak TLS, and nothing else."""
        return bool(self.certificate)
