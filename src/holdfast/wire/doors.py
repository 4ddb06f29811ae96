"""Who is at a door? What comes first on a connection tells who has taken one port for another."""

from __future__ import annotations

MEMBER = b"HFM3"
"""What a member says first to whoever connects to its port for members."""
HAZELCAST_CLIENT = b"CP2"
OWN_CLIENT = b"HF1"

TLS = b"\x16\x03"
"""How a connection with TLS begins."""
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x0a"
"""What whoever speaks no TLS is told where nothing else is spoken: a fatal alert, unexpected message."""

REFUSED_SECRET = b"\x01"
"""What a member says to another one, before it hangs up, whose `security.member_secret` differs from its own."""

REFUSED_PROTOCOL = b"\x02"
"""What it says to one with which it has no version of the member protocol in common."""

MEMBERS_PORT = "the port for members (member.member_port, 5751 by default)"
CLIENTS_PORT = "the port for clients (member.client_port, 5701 by default)"
HTTP_PORT = "the port for HTTP (http.port, 5801 by default)"

OTHER_PORT = b"HFP"
"""What whoever has taken one port for the other is told, before the number of the right one."""
OTHER_PORT_BYTES = len(OTHER_PORT) + 2
OPENING_BYTES = len(MEMBER) + 28 + 36 + 32
"""What a member says first, with what it speaks, its UUID and a nonce."""


def other_port(port: int) -> bytes:
    """That the right port is this one."""
    return OTHER_PORT + port.to_bytes(2, "big")


def port_of(said: bytes) -> int:
    """The port that was told so; 0: none was."""
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
    """Who begins like this, in words; empty when that is nobody who is known. `first`: three bytes or more."""
    for beginning, name in _KNOWN:
        if first.startswith(beginning[: len(first)]):
            return name
    return ""


def wrong_port(address: str, first: bytes, tls_hint: str) -> str:
    """The error text when what answers at this address is no client port; empty when it may be one.

    first: what came first, three bytes or more. tls_hint: how this client is given TLS.
    """
    there = who(first)
    if not there:
        return ""
    if there == A_TLS_SERVER:
        return f"{address} speaks TLS, and this client was not told to ({tls_hint})"
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
"""The answer to whoever asks a door in HTTP."""
ONLY_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This is the port of a Holdfast member for HTTP. Clients use the port for clients, 5701 by default.\n"
)
"""The answer to a client of another protocol at the HTTP port. It begins with HTTP, from which `wrong_port` tells the
client what it has connected to.
"""
