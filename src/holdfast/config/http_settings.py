"""The section `http`: the door for health, metrics and status."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from holdfast.config.sections import Names, Password, Port, SecretiveSection
from holdfast.config.sharing import ENCODED_NAMES


class HttpSettings(SecretiveSection, frozen=True, kw_only=True, rename=ENCODED_NAMES["http"]):
    """The door for HTTP: health, metrics, status. It asks for the credentials of users, where there are some."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether there is one. A member inside a program (holdfast.Member) has one only if this is set."
        ),
    ] = True
    host: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="Address on which it listens. Any but loopback needs TLS, and users, http.token or the "
            "credentials of [security].",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        Port,
        Meta(
            description="0: any free port. If left out and taken, the next free one is used; if there is none near, "
            "the member goes without."
        ),
    ] = 5801
    token: Annotated[
        Password,
        Meta(
            description="Token that must be shown (Authorization: Bearer) where there are neither users nor "
            "credentials in [security]; whoever shows it may do everything at this door."
        ),
    ] = ""
    allowed_hosts: Annotated[
        Names,
        Meta(
            description="Names by which it is reached, besides addresses and localhost. Without credentials a request "
            "for another name is refused: a browser may have been lured there."
        ),
    ] = []
    connections: Annotated[
        int,
        Meta(
            ge=1,
            le=4096,
            description="Connections at a time. One more, and the oldest of the address with the most is closed.",
        ),
    ] = 64
