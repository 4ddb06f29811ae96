"""TLS of a fuzzed cluster: configuration of members, and connections of strangers and clients."""

from __future__ import annotations

import socket
import ssl

from holdfast.config.client_tls import ClientTls


def config_of(tls: ClientTls | None) -> str:
    """TLS part of a member's configuration, with the client's own files; empty without TLS."""
    if tls is None:
        return ""
    told = {"certificate": tls.certificate, "key": tls.key, "ca": tls.ca}
    return "[tls]\n" + "".join(f"{name} = '{path}'\n" for name, path in told.items())


def connected(address: tuple[str, int], timeout_s: float, tls: ClientTls | None) -> socket.socket:
    """Raises OSError."""
    plain = socket.create_connection(address, timeout_s)
    if tls is None:
        return plain
    try:
        return tls.context().wrap_socket(plain, server_hostname=address[0])
    except BaseException:
        plain.close()
        raise


def channel_of(connection: socket.socket) -> bytes:
    """Channel binding of the TLS channel; empty without TLS (`runtime.peering.member_handshake`)."""
    return (
        (connection.get_channel_binding("tls-unique") or b"")
        if isinstance(connection, ssl.SSLSocket)
        else b""
    )
