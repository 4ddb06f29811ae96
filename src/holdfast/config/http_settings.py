"""The section `http`: the port for health, metrics and status."""

from __future__ import annotations

from holdfast.config.sections import Names, Password, Port, SecretiveSection, about, sized, whole
from holdfast.config.sharing import ENCODED_NAMES


class HttpSettings(SecretiveSection, frozen=True, kw_only=True, rename=ENCODED_NAMES["http"]):
    """HTTP: health, metrics, status, console. Requires the credentials of users, if any are configured."""

    enabled: bool = about(
        True,
        "Whether the member serves HTTP. A member inside a program (holdfast.Member) does so only if this key is "
        "set.",
    )
    host: str = sized(
        "127.0.0.1",
        253,
        "Address on which HTTP listens. Any address but loopback needs TLS, and users, http.token or the "
        "credentials of [security].",
        least=1,
    )
    port: Port = about(
        5801,
        "Port of HTTP; 0: any free port. If the key is not set and the port is in use, the next free one; if "
        "none is near, the member starts without HTTP.",
    )
    token: Password = about(
        "",
        "Bearer token of HTTP requests, if there are neither users nor credentials in [security]. It permits "
        "everything over HTTP.",
    )
    allowed_hosts: Names = about(
        [],
        "Host names of this member, besides addresses and localhost. Without credentials it rejects requests for "
        "other names, to protect against DNS rebinding in browsers.",
    )
    connections: int = whole(
        64,
        1,
        4096,
        "Number of HTTP connections. Above it, the oldest connection of the address with the most is closed.",
    )
