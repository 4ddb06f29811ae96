"""Recognition of protocols by their first bytes, for clear errors when a client connects to the wrong port."""

from __future__ import annotations

MEMBER = b"HFM3"
"""First bytes of a member to every connection on its port for members."""
HAZELCAST_CLIENT = b"CP2"
OWN_CLIENT = b"HF1"

TLS = b"\x16\x03"
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x0a"
"""Reply to a plaintext client on a TLS-only port: a fatal alert, unexpected message."""

REFUSED_SECRET = b"\x01"
"""Sent to another member before closing, if its `security.member_secret` differs."""

REFUSED_PROTOCOL = b"\x02"
"""Sent to another member without a common version of the member protocol."""

MEMBERS_PORT = "the port for members (member.member_port, 5751 by default)"
CLIENTS_PORT = "the port for clients (member.client_port, 5701 by default)"
HTTP_PORT = "the port for HTTP (http.port, 5801 by default)"

OTHER_PORT = b"HFP"
"""Reply on the wrong port, followed by the number of the right one."""
OTHER_PORT_BYTES = len(OTHER_PORT) + 2
OPENING_BYTES = len(MEMBER) + 28 + 36 + 32
"""First message of a member: protocol versions, its UUID and a nonce."""


def other_port(port: int) -> bytes:
    return OTHER_PORT + port.to_bytes(2, "big")


def port_of(said: bytes) -> int:
    """The port in such a reply; 0: it is none."""
    told = said.startswith(OTHER_PORT) and len(said) >= OTHER_PORT_BYTES
    return int.from_bytes(said[len(OTHER_PORT) : OTHER_PORT_BYTES], "big") if told else 0


A_TLS_SERVER = "a TLS server"
A_TLS_CLIENT = "a TLS client"
HTTP = "an HTTP request"
_HTTP_METHODS = (b"GET ", b"PUT ", b"POST", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI ")
_KNOWN = (
    (MEMBER, "a Holdfast member"),
    (b"HFM1", "a Holdfast member of an older version"),
    (b"HFM2", "a Holdfast member of an older version"),
    (b"HFM", "a Holdfast member of a newer version"),
    (OWN_CLIENT, "a client of Holdfast's own protocol"),
    (HAZELCAST_CLIENT, "a Hazelcast client"),
    (b"HZC", "a Hazelcast member"),
    (b"HTTP", "an HTTP server"),
    (b"SSH-", "an SSH server"),
    (TLS, A_TLS_CLIENT),
    (TLS_ALERT[:2], A_TLS_SERVER),
    *((method, HTTP) for method in _HTTP_METHODS),
)


def who(first: bytes) -> str:
    """The protocol that begins with these three or more bytes, in words; empty: unknown."""
    for beginning, name in _KNOWN:
        if first.startswith(beginning[: len(first)]):
            return name
    return ""


def wrong_port(address: str, first: bytes, tls_hint: str) -> str:
    """The error text when an address is not a client port; empty if it may be one. `first`: the first bytes
    received, three or more. `tls_hint`: how this client is configured for TLS.
    """
    there = who(first)
    if not there:
        return ""
    if there == A_TLS_SERVER:
        return f"{address} uses TLS, and this client does not ({tls_hint})"
    wrong = (
        MEMBERS_PORT
        if first.startswith(MEMBER)
        else HTTP_PORT
        if there == "an HTTP server"
        else f"that of {there}"
    )
    port = port_of(first[OPENING_BYTES:])
    which = f", which is {port}" if port else ""
    return f"{address} is {wrong}; give {CLIENTS_PORT}{which}"


NOT_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This is the port of a Holdfast member for its clients: it speaks no HTTP.\n"
)
ONLY_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This is the port of a Holdfast member for HTTP. Clients use the port for clients, 5701 by default.\n"
)
"""Reply to a client of another protocol on the HTTP port. `wrong_port` recognises the port by the word HTTP
at its beginning.
"""
