"""Members under clients that read nothing, or ask for very much: real processes, plain sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from hazelcast.protocol.codec import (
    map_get_all_codec,
    map_get_codec,
    map_key_set_codec,
    map_put_all_codec,
    map_put_codec,
    map_set_codec,
    map_values_codec,
)
from tests.cluster.keepers import until
from tests.cluster.rude import (
    Rude,
    close_all,
    connect,
    connect_as_member,
    data,
    open_ones,
    partition,
    peak_bytes,
    stored,
)

from holdfast.cli.credentials import Credentials
from holdfast.cli.status import ask
from holdfast.client.action_messages import ask_status
from holdfast.client.blocking import Client
from holdfast.client.connection import Connection
from holdfast.client.connection import Credentials as ClientCredentials
from holdfast.client_core.routing import parse_addresses
from holdfast.errors import Denied, NotReady
from holdfast.wire import own
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

THREAD = 1
VALUE = stored(bytes(4_000_000))
KEY = stored(b"large")
PATIENCE = "[replication]\nbackup_timeout_ms = 240000\n"
"""A slow machine needs more than the 5 s of the default for backups of so many stores; that is not what is judged."""
LARGE_BYTES = 64 << 20
"""What one greedy connection may cost at most: some unread answers, and room to work in."""


@pytest.fixture(scope="module")
def alone() -> Iterator[ManagedMember]:
    """One member that is a cluster."""
    with LocalCluster(1) as cluster:
        yield cluster.members[0]


def test_a_client_that_reads_nothing_is_answered_a_bounded_amount(alone: ManagedMember) -> None:
    with Rude(alone) as rude, Client(alone.client_address) as client:
        rude.send(map_set_codec.encode_request("m", data(KEY), data(VALUE), THREAD, -1), partition(KEY))
        rude.read()
        before = peak_bytes(alone)
        gets = [
            rude.bytes_of(map_get_codec.encode_request("m", data(KEY), THREAD), partition(KEY))
            for _ in range(1000)
        ]
        rude.socket.sendall(b"".join(gets))
        for _ in range(20):
            assert client.get("m", KEY) == VALUE, "others are served"
        assert peak_bytes(alone) - before < LARGE_BYTES
        for answer in rude.read(50):
            assert len(answer) > len(VALUE), "what was not answered is, when the client reads"
        rude.socket.sendall(gets[0])
    with Client(alone.client_address) as client:
        assert client.size("m") == 1


@pytest.mark.parametrize("kind", ["put", "get_all", "values"])
def test_so_are_other_requests_with_large_answers(alone: ManagedMember, kind: str) -> None:
    with Rude(alone) as rude, Client(alone.client_address) as client:
        key = data(KEY)
        rude.send(map_set_codec.encode_request("m", key, data(VALUE), THREAD, -1), partition(KEY))
        rude.read()
        before = peak_bytes(alone)
        if kind == "put":
            requests = [map_put_codec.encode_request("m", key, data(VALUE), THREAD, -1) for _ in range(12)]
        elif kind == "get_all":
            requests = [map_get_all_codec.encode_request("m", [key] * 10_000) for _ in range(4)]
        else:
            requests = [map_values_codec.encode_request("m") for _ in range(300)]
        at = partition(KEY) if kind != "values" else -1
        rude.socket.settimeout(1)
        try:
            rude.socket.sendall(b"".join(rude.bytes_of(request, at) for request in requests))
        except TimeoutError:
            assert kind == "put", "only these are more than a socket takes"
        for _ in range(20):
            assert client.get("m", KEY) == VALUE
        assert peak_bytes(alone) - before < LARGE_BYTES


def test_a_key_that_is_named_often_is_answered_once(alone: ManagedMember) -> None:
    key = stored(b"often")
    with Rude(alone) as rude:
        rude.send(map_set_codec.encode_request("often", data(key), data(stored(b"v")), THREAD, -1))
        rude.send(map_get_all_codec.encode_request("often", [data(key)] * 3))
        answer = rude.read(2)[1]
        assert answer.count(key) == 1


def test_an_answer_above_its_limit_is_refused_and_nothing_ends() -> None:
    config = "[limits]\nanswer_bytes = 1000000\n[maps.m]\nbackups = 0\n"
    with LocalCluster(2, config) as cluster:
        cluster.wait_settled()
        with Client(cluster.client_addresses()) as client, Rude(cluster.members[0]) as rude:
            keys = [stored(b"%d" % number) for number in range(200)]
            client.put_columns("m", keys, [stored(bytes(10_000))] * 200)
            rude.send(map_values_codec.encode_request("m"))
            rude.send(map_get_all_codec.encode_request("m", [data(key) for key in keys]))
            for answer in rude.read(2):
                assert b"limits.answer_bytes" in answer
            rude.send(map_get_all_codec.encode_request("m", [data(key) for key in keys[:20]]))
            assert len(rude.read()[0]) > 200_000
            rude.send(map_key_set_codec.encode_request("m"))
            (answer,) = rude.read()
            assert all(key in answer for key in keys)


@pytest.mark.rule("server/D-2")
def test_who_keeps_most_unread_ends_when_all_together_have_too_much() -> None:
    """Many that read nothing, each within its own limit."""
    config = "[limits]\ntotal_output_buffer_bytes = 8388608\n"
    with LocalCluster(1, config) as cluster:
        member = cluster.members[0]
        greedy = [Rude(member) for _ in range(24)]
        greedy[0].send(map_set_codec.encode_request("m", data(KEY), data(VALUE), THREAD, -1))
        greedy[0].read()
        before = peak_bytes(member)
        for rude in greedy:
            get = map_get_codec.encode_request("m", data(KEY), THREAD)
            rude.socket.sendall(b"".join(rude.bytes_of(get, partition(KEY)) for _ in range(20)))
        with Client(member.client_address) as client:
            for _ in range(20):
                assert client.get("m", KEY) == VALUE
        assert peak_bytes(member) - before < LARGE_BYTES
        for rude in greedy:
            rude.socket.close()
        with Client(member.client_address) as client:
            assert client.size("m") == 1


@pytest.mark.rule("server/D-3")
@pytest.mark.parametrize(
    ("config", "connections", "entries"),
    [
        (PATIENCE, 2, 50_000),
        pytest.param(PATIENCE, 3, 440_000, marks=pytest.mark.slow),
    ],
    ids=["some of them", "as many as fit"],
)
def test_long_messages_cost_no_member_its_place(config: str, connections: int, entries: int) -> None:
    """Large messages without a pause, from several connections. Once it may be the machine that stands still for so
    long; what messages cost they cost again.
    """
    assert long_messages(config, connections, entries) or long_messages(config, connections, entries), (
        "nobody was removed"
    )


def long_messages(config: str, connections: int, entries: int) -> bool:
    """Whether nobody was removed."""
    with LocalCluster(2, config) as cluster:
        cluster.wait_settled()
        with Client(cluster.client_addresses(), timeout_s=240) as client, ExitStack() as stack:
            view = client.status().view
            pairs = [(data(stored(b"%08d" % number)), data(stored(b"v"))) for number in range(entries)]
            rude = [stack.enter_context(Rude(cluster.members[0])) for _ in range(connections)]
            message = map_put_all_codec.encode_request("m", pairs, False)
            assert len(message.buf) < 16_777_216
            senders = ThreadPoolExecutor(2 * connections)
            for one in rude:
                one.socket.settimeout(240)
                requests = [one.bytes_of(message) for _ in range(3)]
                requests.append(one.bytes_of(map_key_set_codec.encode_request("m")))
                senders.submit(one.socket.sendall, b"".join(requests))
            asked = 0
            answered = [senders.submit(one.read, 4) for one in rude]
            while not all(one.done() for one in answered):
                assert client.get("m", stored(b"none")) is None
                asked += 1
            assert asked > 20, "others are served in between"
            for one in answered:
                assert all(b"Exception" not in answer for answer in one.result())
            assert client.size("m") == entries
            assert len(cluster.alive) == 2
            return bool(client.status().view == view)


SMALL = """
[limits]
connections = 12
connections_per_address = 10
operator_connections = 2
unauthenticated_connections = 8
auth_timeout_ms = 60000
"""


@pytest.fixture
def small() -> Iterator[ManagedMember]:
    """A member with room for few connections."""
    with LocalCluster(1, SMALL) as cluster:
        yield cluster.members[0]


@pytest.fixture
def impatient() -> Iterator[ManagedMember]:
    """The same, which also closes idle connections soon."""
    with LocalCluster(1, SMALL + "idle_timeout_ms = 1500\n") as cluster:
        yield cluster.members[0]


@pytest.mark.rule("server/D-4")
def test_silent_strangers_keep_nobody_out(small: ManagedMember) -> None:
    strangers = [connect(small) for _ in range(100)]
    peers = [connect_as_member(small) for _ in range(100)]
    try:
        for _ in range(5):
            with Client(small.client_address) as client, Rude(small) as rude:
                client.set("m", KEY, stored(b"v"))
                rude.send(map_get_codec.encode_request("m", data(KEY), THREAD))
                assert stored(b"v") in rude.read()[0]
        until(lambda: open_ones(strangers) <= 8)
        until(lambda: open_ones(peers) <= 8)
    finally:
        close_all(strangers + peers)


@pytest.mark.rule("server/D-4")
def test_who_is_logged_in_is_counted_and_the_operator_comes_in_nevertheless(small: ManagedMember) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Rude(small)) for _ in range(10)]
        late = connect(small)
        stack.callback(late.close)
        late.sendall(own.PREAMBLE + own.frame(own.Hello(1, own.VERSION)))
        assert b"limits.connections_per_address" in late.recv(4096)
        with (
            pytest.raises(NotReady, match="connections_per_address"),
            Client(small.client_address, timeout_s=0.5) as client,
        ):
            client.get("m", KEY)
        for _ in range(4):
            # Also when those before have not gone: the longest there makes room.
            operator = stack.enter_context(Client(small.client_address, operates=True))
            assert operator.status().state == "member"
        with pytest.raises(Denied, match="operator"):
            operator.get("m", KEY)
        assert ask(small.client_address, Credentials()).state == "member", "`holdfast status`"
        clients[0].socket.close()
        for _ in range(100):
            with suppress(NotReady), Client(small.client_address, timeout_s=0.5) as client:
                assert client.get("m", KEY) is None
                break
        else:
            raise AssertionError("the place of one that has gone is free")


def test_a_silent_client_is_closed_and_one_that_comes_back_does_not_notice(impatient: ManagedMember) -> None:
    address = parse_addresses(impatient.client_address)[0]
    with Client(impatient.client_address) as client:
        client.set("m", KEY, stored(b"v"))
        watching = Connection(address, ClientCredentials(), 5)
        after = watching.ask(own.Watch(1), own.Heard).last
        watching.post(own.Watch(2, after))
        silent = connect(impatient)
        silent.sendall(own.PREAMBLE + own.frame(own.Hello(1, own.VERSION)))
        assert silent.recv(4096)
        silent.settimeout(120)
        assert silent.recv(4096) == b"", "closed"
        silent.close()
        (held,) = client._connections.values()
        deadline = time.monotonic() + 120
        while not held.ended and time.monotonic() < deadline:
            time.sleep(0.1)
        assert held.ended
        client.set("m", KEY, stored(b"w"))
        assert client.get("m", KEY) == stored(b"w")
        assert not watching.wait(2, 0.1), "who waits for an answer is not silent"
        assert ask_status(watching).state == "member"
        watching.close()


def test_connections_of_one_member_are_few() -> None:
    with LocalCluster(2) as cluster:
        cluster.wait_settled()
        first, second = cluster.members
        view = cluster.status().view
        sockets = [connect_as_member(first, greet=second.uuid) for _ in range(20)]
        try:
            until(lambda: open_ones(sockets) <= 4)
            with Client(cluster.client_addresses()) as client:
                for number in range(100):
                    client.set("m", stored(b"%d" % number), stored(b"v"))
            cluster.wait_settled()
            assert cluster.status().view == view, "the member itself has connected again"
        finally:
            close_all(sockets)
