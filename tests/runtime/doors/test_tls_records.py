"""TLS without a member: what records contain, and a connection of the poll with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.certificates import HOST, Authority
from tests.runtime.doors.test_poll_cy import HELLO, MODULES, Polled, ask, descriptors, received
from tests.runtime.in_process.test_embedded import member, run
from tests.server.hazelcast.test_lane_ways import SET

from holdfast.runtime.doors import tls_records
from holdfast.runtime.doors.clients import PolledConnection
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.runtime.doors.tls_handshake import FAILED, TlsEntrance, TlsHandshake
from holdfast.runtime.doors.tls_records import READ_BYTES, TlsRecords
from holdfast.runtime.doors.tls_wire import TlsWire


class Contexts:
    def __init__(self, directory: Path) -> None:
        authority = Authority(directory, "ours")
        shown = authority.sign()
        self.authority, self.shown = authority, shown
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(shown.certificate, shown.key)
        self.server.num_tickets = 0


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts(tmp_path_factory.mktemp("keys"))


class Peer:
    """A client after its handshake with `records`."""

    def __init__(self, contexts: Contexts, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        self.records = TlsRecords(contexts.server)
        self._came, self._leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ssl.create_default_context(cafile=contexts.authority.file)
        client.maximum_version = version
        self.tls = client.wrap_bio(self._came, self._leaves, server_hostname=HOST)
        done = False
        while not done:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            self.records.put(self._leaves.read())
            done = self.records.shake_hands()
            self._came.write(self.records.leaving())

    def seal(self, content: bytes) -> bytes:
        rest = memoryview(content)
        while rest:
            rest = rest[self.tls.write(rest) :]
        return self._leaves.read()

    def read(self, data: bytes) -> bytes:
        """The content of these records, up to `close_notify`."""
        self._came.write(data)
        found = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while more := self.tls.read(1 << 20):
                found += more
        return found


def test_one_read_leaves_no_content_behind(contexts: Contexts) -> None:
    """A read that begins inside of a record may complete more content than it has bytes. Nothing would fetch what was
    left, as the socket has no more.
    """
    for behind in (0, 1, 400, 16_000, 16_405):
        peer = Peer(contexts)
        content = os.urandom(16 * 16_384 + behind)
        sealed = peer.seal(content)
        for cut in range(max(0, len(sealed) - READ_BYTES), 16_406, 1_000):
            before = peer.records.take(sealed[:cut])
            assert before + peer.records.take(sealed[cut:]) == content
            sealed = peer.seal(content)


def test_nearly_empty_records_are_noticed_before_all_are_decrypted(contexts: Contexts) -> None:
    """A read of 256 KB has 9,700 key updates, which take 90 to 180 ms. Content from before is no credit for them."""
    peer = Peer(contexts)
    assert peer.records.take(peer.seal(bytes(250_000))) == bytes(250_000)
    hollow = b"".join(peer.seal(b"x") for _ in range(11_000))
    given = len(peer.records.take(hollow))
    assert 0 < given < (tls_records.HOLLOW_BYTES + tls_records.SLICE_BYTES) / 21 + 1_000
    assert peer.records.problem is not None
    assert "nearly empty" in peer.records.problem.line


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_may_send_pings_alone_for_days(contexts: Contexts, version: ssl.TLSVersion) -> None:
    peer = Peer(contexts, version)
    for _ in range(20_000):
        assert peer.records.take(peer.seal(bytes(22))) == bytes(22)
    assert peer.records.problem is None


@pytest.fixture(params=MODULES)
def polled(request: pytest.FixtureRequest) -> Iterator[Polled]:
    one = Polled(request.param)
    yield one
    one.end()


def connected(polled: Polled, peer: Peer, sndbuf: int = 0) -> tuple[socket.socket, PolledConnection]:
    here, there = socket.socketpair()
    for each in (here, there):
        each.setblocking(False)
    if sndbuf:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
    connection = PolledConnection(polled.desk.door)
    connection.attach(polled.poll.add(there.detach(), connection, peer.records), "peer")
    return here, connection


def test_a_response_after_the_end_does_not_drop_those_before(polled: Polled, contexts: Contexts) -> None:
    """A connection is closed while its client has not read everything, and another response comes. The client gets what
    was sent before, and a proper end.
    """
    peer = Peer(contexts)
    client, connection = connected(polled, peer, sndbuf=4096)
    client.sendall(peer.seal(HELLO))
    polled.turn()
    peer.read(received(client))
    connection._wire.write(b"x" * 1_000_000)
    connection.close("the member is shutting down")
    connection._wire.write(b"late")
    came = b""
    for _ in range(2000):
        came += received(client)
        polled.turn()
        if not polled.desk.door.connections:
            break
    assert peer.read(came) == b"x" * 1_000_000
    assert peer.tls.read(1) == b"", "close_notify has come"
    assert "broken TLS connections" not in polled.desk.events.heard
    client.close()


@pytest.mark.parametrize("call", ["take", "seal"])
def test_without_memory_a_connection_ends_alone(
    polled: Polled, contexts: Contexts, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    peer = Peer(contexts)
    client, connection = connected(polled, peer)
    client.sendall(peer.seal(HELLO))
    polled.turn()
    assert peer.read(received(client))

    def without(records: TlsRecords, data: bytes) -> bytes:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(tls_records.TlsRecords, call, without)
        client.sendall(peer.seal(ask(SET)))
        polled.turn()
    assert connection not in polled.desk.door.connections
    assert polled.desk.events.heard[-1] == "broken TLS connections"
    assert polled.give(HELLO) != b"", "others are served"
    client.close()


class Plain(asyncio.Transport):
    """A transport below TLS."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(data)

    def is_closing(self) -> bool:
        return "close" in self.calls

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


@pytest.mark.parametrize("error", [MemoryError(), OSError("no context")])
def test_a_handshake_that_cannot_begin_ends_its_connection_alone(error: Exception) -> None:
    log = ConnectionLog()

    def context() -> ssl.SSLContext:
        raise error

    async def story() -> None:
        entrance = TlsEntrance(context, log, name="the port", handshakes=1, handshake_s=10)
        plain = Plain()
        handshake = TlsHandshake(entrance, plain, HOST, lambda records: pytest.fail("it is not done"))
        handshake.feed(b"\x16\x03\x01")
        assert plain.calls == ["close"]
        handshake.lost()
        assert log.counts[FAILED] == 1

    run(story())


def test_a_socket_that_cannot_be_watched_ends_nobody(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have no room to watch one more."""
    shown = contexts.shown
    settings: dict[str, Any] = {
        "tls__certificate": shown.certificate,
        "tls__key": shown.key,
        "tls__ca": contexts.authority.file,
        "maps__default__backups": 0,
        "member__sockets": "poll",
        "member__lane": "python",
    }

    def add_reader(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def story() -> None:
        async with member(**settings) as one:
            server = one._node._ports._clients
            before = set(descriptors())
            with monkeypatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as outside:
                patch.setattr(one._node.loop, "add_reader", add_reader)
                near = socket.create_connection(outside.getsockname())
                server._begin(outside.accept()[0], "127.0.0.1")
                assert near.recv(1) == b""
                near.close()
            assert one._node.connection_log.counts["failed accepts"] == 1
            assert set(descriptors()) == before

    run(story())


class Counting(asyncio.Protocol):
    def __init__(self) -> None:
        self.size = 0

    def data_received(self, data: bytes) -> None:
        self.size += len(data)


def test_connections_of_the_loop_notice_nearly_empty_records_as_early(contexts: Contexts) -> None:
    async def story() -> None:
        log = ConnectionLog()
        entrance = TlsEntrance(lambda: contexts.server, log, name="the port", handshakes=1, handshake_s=10)
        above = Counting()
        wire, plain, peer = TlsWire(entrance, lambda: above), Plain(), Peer(contexts)
        wire.connection_made(plain)
        wire._open(peer.records)
        wire.data_received(peer.seal(bytes(200_000)))
        assert above.size == 200_000
        wire.data_received(b"".join(peer.seal(b"x") for _ in range(11_000)))
        assert above.size < 200_000 + 4_000
        assert plain.calls == ["close"]
        assert log.counts["TLS connections closed: nearly empty records"] == 1
        wire.connection_lost(None)

    run(story())
