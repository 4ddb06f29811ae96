"""Who is let in, asked with the official Python client; and what becomes of connections that do not behave."""

from __future__ import annotations

import socket
import struct
from typing import Any

import hazelcast
import pytest
from hazelcast.errors import HazelcastError
from hazelcast.security import BasicTokenProvider

from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RIGHT = {"creds_username": "ada", "creds_password": "a long enough secret"}


def store(cluster: LocalCluster, *, patience_s: float = 120, **options: Any) -> Any:
    """Write and read as this client. Raises if it is not admitted in this time."""
    options.setdefault("cluster_name", "guarded")
    client = hazelcast.HazelcastClient(
        cluster_members=cluster.client_addresses(), cluster_connect_timeout=patience_s, **options
    )
    try:
        flights = client.get_map("flights").blocking()
        flights.set("k", "v")
        return flights.get("k")
    finally:
        client.shutdown()


def test_username_and_password(guarded: LocalCluster) -> None:
    assert store(guarded, **RIGHT) == "v"


def test_token(guarded: LocalCluster) -> None:
    assert store(guarded, token_provider=BasicTokenProvider("an opaque token")) == "v"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"creds_username": "ada", "creds_password": "wrong"},
        {"creds_username": "eve", "creds_password": "a long enough secret"},
        {"token_provider": BasicTokenProvider("another token")},
        {"token_provider": BasicTokenProvider("")},
        {**RIGHT, "cluster_name": "dev"},
    ],
    ids=["nobody", "wrong password", "wrong name", "wrong token", "empty token", "wrong cluster"],
)
def test_others_are_not_let_in(guarded: LocalCluster, options: dict[str, Any]) -> None:
    with pytest.raises(HazelcastError):
        store(guarded, patience_s=1, **options)
    assert store(guarded, **RIGHT) == "v"


# -- connections that do not behave


def dial(cluster: LocalCluster) -> socket.socket:
    host, _, port = cluster.client_addresses()[0].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=120)


def hangs_up(connection: socket.socket) -> bytes:
    """What the member still says before it closes the connection."""
    said = b""
    while piece := connection.recv(65_536):
        said += piece
    return said


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"CP2" + b"\xff" * 40, b""),
        (b"CP2" + struct.pack("<iH", 2**31 - 1, 0xC000) + bytes(100), b""),
        (b"CP2" + struct.pack("<iHiqi", 22, 0xE000, 0x000B00, 1, -1), b"authenticate before Client.ping"),
        (
            b"CP2" + struct.pack("<iHiqi", 5000, 0xC000, 0x000100, 1, -1),
            b"larger than the limit of 4096 bytes",
        ),
    ],
    ids=["another protocol", "noise", "huge frame", "not authenticated", "large greeting"],
)
def test_bad_bytes_close_their_own_connection(guarded: LocalCluster, sent: bytes, said: bytes) -> None:
    client = hazelcast.HazelcastClient(
        cluster_members=guarded.client_addresses(),
        cluster_name="guarded",
        cluster_connect_timeout=120,
        **RIGHT,
    )
    try:
        flights = client.get_map("flights").blocking()
        flights.set("before", 1)
        before = set(client._connection_manager.active_connections.values())
        with dial(guarded) as connection:
            connection.sendall(sent)
            assert said in hangs_up(connection)
        assert flights.get("before") == 1
        assert set(client._connection_manager.active_connections.values()) == before
    finally:
        client.shutdown()
