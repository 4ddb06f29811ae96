"""Sockets without a call of the loop for each: the same bytes in the same order as through a transport, and nobody
harmed by clients that do not read, go away or flood.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import resource
import select
import socket
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.in_process.test_embedded import member, run
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.test_lane_ways import (
    CONTAINS_KEY,
    DELETE,
    GET,
    KEYS,
    PUT,
    SET,
    VALUES,
    buffers,
    request,
)

from holdfast.config import LimitSettings
from holdfast.runtime.data_lane import data_lane
from holdfast.runtime.doors import poll_cy
from holdfast.runtime.doors.clients import PolledConnection
from holdfast.runtime.doors.polled_door import sockets_way
from holdfast.runtime.in_process.embedded import Member
from holdfast.server.door import ClientConnection, Door, DoorMember
from holdfast.server.hazelcast import reference_lane
from holdfast_lab.bench import frames

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")
compiled_module = sockets_way().module
needs_compiler = pytest.mark.skipif(compiled_module is None, reason=sockets_way().why or "compiled")
MODULES = [
    pytest.param(poll_cy, id="plain"),
    pytest.param(compiled_module, id="compiled", marks=needs_compiler),
]
WAYS = [
    pytest.param({"member__sockets": "poll", "member__lane": "python"}, id="plain-poll"),
    pytest.param({"member__sockets": "poll"}, id="poll", marks=needs_compiler),
    pytest.param({"member__sockets": "loop"}, id="loop"),
]


class Hand:
    """A loop that is turned by hand."""

    def __init__(self) -> None:
        self.deeds: list[Callable[[], object]] = []
        self.later: list[Callable[[], object]] = []

    def call_soon(self, deed: Callable[[], object]) -> None:
        self.deeds.append(deed)

    def call_later(self, delay: float, deed: Callable[[], object]) -> Hand:
        self.later.append(deed)
        return self

    def call_at(self, when: float, deed: Callable[[], object]) -> Hand:
        return self

    def cancel(self) -> None:
        pass

    def time(self) -> float:
        return 0.0

    def turn(self) -> None:
        while self.deeds:
            deeds, self.deeds = self.deeds, []
            for deed in deeds:
                deed()


class Events:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def report(self, kind: str, line: str, *args: object) -> None:
        self.heard.append(kind)

    def closed(self, why: str) -> None:
        self.heard.append(why)


def ours(error: Exception) -> None:
    raise error


class Desk:
    """A door that is turned by hand, before one member without others."""

    def __init__(self, **limits: int) -> None:
        self.grid = OneMemberGrid(3)
        self.loop = Hand()
        self.events = Events()
        self.clock_ns = 0
        self.entered = 0
        self.left = 0
        self.door = Door(
            self.grid,  # type: ignore[arg-type]
            LimitSettings(**limits),
            self.loop,  # type: ignore[arg-type]
            lambda: self.clock_ns,
            self.events,
            DoorMember(self._enter, self._leave, ours),
        )

    def _enter(self) -> None:
        self.entered += 1

    def _leave(self) -> None:
        self.left += 1


class Memory:
    """A transport into memory."""

    def __init__(self, connection: ClientConnection, loop: Hand) -> None:
        self.connection = connection
        self.loop = loop
        self.came = b""
        self.reading = True
        self.closing = False

    def write(self, data: bytes) -> None:
        self.came += data

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.loop.call_soon(lambda: self.connection.connection_lost(None))

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass


class Through:
    """A client whose member is reached through a transport."""

    def __init__(self, **limits: int) -> None:
        self.desk = Desk(**limits)
        self.connection = ClientConnection(self.desk.door)
        self.wire = Memory(self.connection, self.desk.loop)
        self.connection.begin(self.wire, "peer")

    def give(self, data: bytes) -> bytes:
        """What comes back when all of it was looked at."""
        if not self.wire.closing:
            self.connection.data_received(data)
        self.desk.loop.turn()
        came, self.wire.came = self.wire.came, b""
        return came

    def end(self) -> None:
        pass


class Polled:
    """And one through a socket and the poll."""

    def __init__(self, module: ModuleType, **limits: int) -> None:
        self.desk = Desk(**limits)
        self.poll = module.Poll(self.desk.door, self.desk.loop, reference_lane)
        self.client, self.connection = self.connect()

    def connect(self, sndbuf: int = 0) -> tuple[socket.socket, PolledConnection]:
        here, there = socket.socketpair()
        here.setblocking(False)
        there.setblocking(False)
        if sndbuf:
            there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
        connection = PolledConnection(self.desk.door)
        connection.attach(self.poll.add(there.detach(), connection), "peer")
        return here, connection

    def turn(self) -> None:
        self.poll.ready()
        self.desk.loop.turn()

    def give(self, data: bytes) -> bytes:
        with contextlib.suppress(BrokenPipeError):
            self.client.sendall(data)
        self.turn()
        return received(self.client)

    def end(self) -> None:
        self.poll.close()
        self.desk.loop.turn()
        self.client.close()


def descriptors() -> set[int]:
    """Those that this process has open; that of the look itself may be among them."""
    return {int(each.name) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}


def received(client: socket.socket) -> bytes:
    """What has come to it."""
    came = b""
    with contextlib.suppress(BlockingIOError, ConnectionResetError):
        while piece := client.recv(1 << 20):
            came += piece
    return came


@pytest.fixture(params=MODULES)
def polled(request: pytest.FixtureRequest) -> Iterator[Polled]:
    one = Polled(request.param)
    yield one
    one.end()


HELLO = frames.sign_in_message("dev")


def ask(
    kind: int, key: bytes = KEYS[0], value: bytes = VALUES[0], *, name: str = "m", number: int = 1
) -> bytes:
    return request(kind, name, key, value, partition=0, ttl_ms=-1, word=0, number=number)


def stored(desk: Desk) -> object:
    return [
        (copy.partition, name, list(held.state.entries.items()), held.state.hashes)
        for copy in desk.grid.copies
        for name, held in copy.maps.items()
    ]


# -- the same bytes in the same order


@pytest.mark.rule("server/D-4")
def test_strangers_with_a_network_of_addresses_are_one_address() -> None:
    """Who has one IPv6 address has 2**64: none of them makes a stranger from elsewhere go."""
    desk = Desk(unauthenticated_connections=4)
    friend, *strangers = [ClientConnection(desk.door) for _ in range(9)]
    for number, each in enumerate([friend, *strangers]):
        net = "2001:db8:1:2:" if each is friend else "2001:db8:666:6:"
        each.begin(Memory(each, desk.loop), f"{net}:{number}")
    desk.loop.turn()
    assert len(desk.door.connections) == 4
    assert friend in desk.door.connections


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("settled", [True, False])
@given(st.data())
def test_answers_are_the_same_as_through_a_transport(
    module: ModuleType, settled: bool, data: st.DataObject
) -> None:
    """Whatever comes, cut wherever."""
    one, other = Through(), Polled(module)
    for each in (one, other):
        each.desk.grid.lane.settled = settled
    try:
        arrived = [HELLO, *(ask(GET, name=name) for name in ("m", "alone", "told")), *data.draw(buffers())]
        whole = b"".join(arrived)
        ends = sorted({*data.draw(st.lists(st.integers(0, len(whole)), max_size=4)), len(HELLO), len(whole)})
        start = 0
        for end in ends:
            piece, start = whole[start:end], end
            if piece:
                assert one.give(piece) == other.give(piece)
                assert stored(one.desk) == stored(other.desk)
        assert one.desk.events.heard == other.desk.events.heard
        assert len(one.desk.door.connections) == len(other.desk.door.connections)
    finally:
        other.end()


def test_the_session_is_not_asked_for_what_is_plain(polled: Polled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the comparison above would compare a thing with itself."""
    polled.desk.grid.lane.settled = True
    polled.give(HELLO)
    polled.give(ask(GET))
    monkeypatch.setattr(ClientConnection, "data_received", None)
    monkeypatch.setattr(ClientConnection, "served", None)
    assert len(polled.give(ask(SET) + ask(GET) + ask(DELETE))) > 19 + 19 + 20
    assert polled.connection._wire.heard()
    assert not polled.connection._wire.heard()


def test_what_waits_for_backups_is_answered_when_these_have_it(polled: Polled) -> None:
    grid = polled.desk.grid
    polled.give(HELLO)
    polled.give(ask(GET))
    grid.verdict = None
    assert polled.give(ask(SET) + ask(GET)) != b"", "the read is answered"
    assert polled.give(ask(SET, number=2)) == b""
    grid.settle(safe=True)
    polled.desk.loop.turn()
    assert len(received(polled.client)) == 2 * 19
    polled.give(ask(SET, number=3))
    grid.settle(safe=False)
    polled.desk.loop.turn()
    assert b"test says so" in received(polled.client)


def test_the_member_is_told_of_writes_before_anything_else_happens(polled: Polled) -> None:
    polled.desk.grid.lane.settled = True
    polled.give(HELLO)
    polled.give(ask(GET))
    left = polled.desk.left
    polled.give(ask(GET))
    assert polled.desk.left == left, "reads cause nothing"
    polled.give(ask(SET))
    assert polled.desk.left == left + 1
    other, _ = polled.connect()
    polled.client.sendall(ask(SET))
    other.sendall(HELLO)
    polled.turn()
    assert polled.desk.left == left + 3, "before a session does something, and after that"
    assert len(received(polled.client)) == 19
    other.close()


def test_what_was_said_before_is_heard_before(polled: Polled) -> None:
    """An answer of the connection that has not left yet is not overtaken by those of the data lane."""
    polled.desk.grid.lane.settled = True
    polled.give(HELLO)
    polled.give(ask(GET))
    polled.connection.send(b"early")
    polled.client.sendall(ask(GET))
    polled.turn()
    assert received(polled.client).startswith(b"early")


def test_a_session_acts_after_the_member_was_told_of_the_writes_of_others(polled: Polled) -> None:
    polled.desk.grid.lane.settled = True
    other, connection = polled.connect()
    other.sendall(HELLO)
    polled.turn()
    polled.give(HELLO)
    polled.give(ask(GET))
    polled.turn()
    left: list[int] = []
    connection._receive = lambda _: left.append(polled.desk.left)
    connection._wire.resume_reading()
    before = polled.desk.left
    polled.client.sendall(ask(SET))
    other.sendall(b"x")
    polled.turn()
    assert left == [before + 1]
    other.close()


# -- clients that do not read, and that go away


def test_a_client_that_does_not_read_is_not_read_either() -> None:
    for module in (one.values[0] for one in MODULES if one.values[0] is not None):
        polled = Polled(module, output_buffer_bytes=64 * 1024)
        try:
            polled.desk.grid.lane.settled = True
            client, connection = polled.connect(sndbuf=4096)
            value = struct.pack(">i", -11) + bytes(2000)
            client.sendall(HELLO)
            polled.turn()
            client.sendall(ask(SET, value=value))
            polled.turn()
            polled.turn()
            first = received(client)
            asked = 0
            for number in range(4000):
                try:
                    sent = client.send(ask(GET, number=number))
                except BlockingIOError:
                    break
                assert sent == len(ask(GET))
                asked += 1
                polled.turn()
            assert asked < 4000, "the system holds the rest"
            assert connection._wire.get_write_buffer_size() < 3 * 64 * 1024
            assert connection._flow.paused or connection.unread > 0
            came = b""
            for _ in range(20_000):
                piece = received(client)
                came += piece
                polled.turn()
                for deed in polled.desk.loop.later[-1:]:
                    deed()
                polled.desk.loop.turn()
                if len(came) == asked * (29 + 2004):
                    break
            assert len(came) == asked * (29 + 2004), (len(came), first)
            numbers = [struct.unpack_from("<q", came, at + 10)[0] for at in range(0, len(came), 29 + 2004)]
            assert numbers == list(range(asked)), "each once, in its order"
            assert not connection._flow.paused
            client.close()
        finally:
            polled.end()


def test_an_answer_leaves_in_parts(polled: Polled) -> None:
    polled.desk.grid.lane.settled = True
    client, connection = polled.connect(sndbuf=4096)
    client.sendall(HELLO)
    polled.turn()
    value = struct.pack(">i", -11) + random.Random(7).randbytes(300_000)
    whole = ask(SET, value=value) + ask(GET) + ask(GET, number=2)
    while whole:
        with contextlib.suppress(BlockingIOError):
            whole = whole[client.send(whole) :]
        polled.turn()
    came = received(client)
    for _ in range(1000):
        polled.turn()
        came += received(client)
    assert came.count(value[:100]) == 2
    assert connection._wire.get_write_buffer_size() == 0
    assert polled.give(HELLO) != b"", "others are served"
    client.close()
    polled.turn()
    assert connection not in polled.desk.door.connections


def test_a_client_that_has_said_all_hears_the_answers(polled: Polled) -> None:
    polled.desk.grid.lane.settled = True
    polled.give(HELLO)
    polled.client.sendall(ask(SET) + ask(GET))
    polled.client.shutdown(socket.SHUT_WR)
    polled.turn()
    polled.turn()
    assert len(received(polled.client)) > 19 + 19
    assert polled.desk.door.connections == {}


def test_what_has_gathered_leaves_before_the_end(polled: Polled) -> None:
    """Also what the session said, and would have left in the next turn of the loop."""
    polled.give(HELLO)
    polled.give(ask(GET))
    polled.connection.send(b"early")
    polled.client.shutdown(socket.SHUT_WR)
    polled.turn()
    assert received(polled.client) == b"early"


@pytest.mark.parametrize("module", MODULES)
def test_a_client_that_breaks_off_is_gone(module: ModuleType) -> None:
    """With a reset, in the middle of what it says, before and while it is answered; read or not."""
    polled = Polled(module)
    polled.desk.grid.lane.settled = True
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            for paused in (False, True):
                for said in (b"", b"CP", HELLO, HELLO + ask(SET), HELLO + ask(SET)[:40]):
                    client = socket.create_connection(listening.getsockname())
                    taken, _ = listening.accept()
                    taken.setblocking(False)
                    connection = PolledConnection(polled.desk.door)
                    connection.attach(polled.poll.add(taken.detach(), connection), "peer")
                    client.sendall(said)
                    polled.turn()
                    if paused:
                        connection._wire.pause_reading()
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()
                    for _ in range(3):
                        polled.turn()
                    assert connection not in polled.desk.door.connections
                    assert connection._wire.fd == -1 if module is poll_cy else connection._wire.is_closing()
        assert len(polled.desk.door.connections) == 1
    finally:
        polled.end()


LARGE_VALUE = struct.pack(">i", -11) + random.Random(11).randbytes(40_000)
BEHIND = [
    pytest.param(ask(CONTAINS_KEY, KEYS[1]), id="small answer"),
    pytest.param(ask(GET, KEYS[2]), id="large answer"),
    pytest.param(ask(SET, KEYS[3], LARGE_VALUE)[:35_000], id="large value to come"),
]
"""What may come in one buffer with writes."""


def with_large_values(polled: Polled, client: socket.socket) -> None:
    """The client is plain from now on, and entries are there."""
    for said in (HELLO, ask(CONTAINS_KEY), *(ask(SET, key, LARGE_VALUE) for key in KEYS)):
        client.sendall(said)
        polled.turn()
    polled.turn()
    received(client)


@pytest.mark.parametrize("behind", BEHIND)
def test_who_has_broken_off_when_writes_are_safe_at_once_ends_nobody(polled: Polled, behind: bytes) -> None:
    """As without sync backups: then it is found when the answers to the writes are sent, before those to the reads."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        taken, _ = listening.accept()
    taken.setblocking(False)
    connection = PolledConnection(polled.desk.door)
    connection.attach(polled.poll.add(taken.detach(), connection), "peer")
    client.setblocking(False)
    with_large_values(polled, client)
    client.sendall(ask(SET) + behind)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    for _ in range(3):
        polled.turn()
    assert connection not in polled.desk.door.connections
    assert polled.desk.door._unread == 0
    assert polled.give(HELLO) != b"", "others are served"
    assert polled.give(ask(CONTAINS_KEY)).endswith(b"\1"), "and get nothing that was meant for it"


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("behind", BEHIND)
def test_who_is_ended_for_what_waits_for_backups_ends_nobody(module: ModuleType, behind: bytes) -> None:
    polled = Polled(module, output_buffer_bytes=1 << 24, total_output_buffer_bytes=65_536)
    try:
        client, connection = polled.connect()
        with_large_values(polled, client)
        polled.desk.grid.verdict = None
        client.sendall(b"".join(ask(PUT, key) for key in KEYS) + behind)
        for _ in range(3):
            polled.turn()
        assert connection not in polled.desk.door.connections
        assert polled.desk.events.heard == ["clients disconnected: output buffers full"]
        polled.desk.grid.settle(safe=True)
        polled.desk.grid.verdict = True
        assert polled.give(HELLO) != b"", "others are served"
        client.close()
    finally:
        polled.end()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("behind", BEHIND[:2])
def test_reads_do_not_break_into_answers_to_writes_that_are_safe_at_once(
    module: ModuleType, behind: bytes
) -> None:
    """Of which some could not leave, when there is room again before the answers to the reads are sent."""
    polled = Polled(module)
    try:
        client, _ = polled.connect(sndbuf=4096)
        with_large_values(polled, client)
        for _ in range(20):
            polled.turn()
            received(client)
        came = b""

        def close_batch(done: Callable[[bool], None]) -> None:
            nonlocal came
            done(True)
            came += received(client)

        polled.desk.grid.lane.close_batch = close_batch  # type: ignore[method-assign]
        client.sendall(ask(PUT) + behind)
        for _ in range(100):
            polled.turn()
            came += received(client)
        assert came[29 : 29 + len(LARGE_VALUE)] == LARGE_VALUE
        assert came[29 + len(LARGE_VALUE) :].endswith((LARGE_VALUE, b"\1"))
        assert len(came) in (29 + len(LARGE_VALUE) + 20, 2 * (29 + len(LARGE_VALUE)))
        client.close()
    finally:
        polled.end()


def two(
    polled: Polled, deed: Callable[[PolledConnection], object]
) -> list[tuple[socket.socket, PolledConnection]]:
    """Two clients that are ready at once; who is served first does this to the other."""
    polled.desk.grid.lane.settled = True
    pair = [polled.connect(), polled.connect()]
    for client, _ in pair:
        client.sendall(HELLO)
    polled.turn()
    for (client, connection), (_, other) in zip(pair, reversed(pair), strict=True):
        assert received(client)
        connection._receive = lambda _, other=other: deed(other)  # type: ignore[misc]
        connection._wire.resume_reading()
        client.sendall(ask(SET))
    return pair


@pytest.mark.rule("runtime/P-2")
def test_who_is_closed_while_others_are_served_is_not_served(polled: Polled) -> None:
    ended: list[PolledConnection] = []

    def end(other: PolledConnection) -> None:
        ended.append(other)
        other.abort()

    pair = two(polled, end)
    polled.turn()
    assert len(ended) == 1, "the other one was not served any more"
    assert [connection in polled.desk.door.connections for _, connection in pair].count(True) == 1
    for client, _ in pair:
        client.close()


@pytest.mark.rule("runtime/P-2")
def test_a_new_connection_with_the_number_of_an_old_one_has_its_own_bytes(polled: Polled) -> None:
    """In the turn in which one is closed another gets its number, while the system has told of the first."""
    made: list[tuple[socket.socket, PolledConnection]] = []
    numbers: list[int] = []

    def replace(other: PolledConnection) -> None:
        before = descriptors()
        other.abort()
        (number,) = before - descriptors()
        here, there = socket.socketpair()
        if there.fileno() != number:
            here, there = there, here
        numbers.extend((number, there.fileno()))
        there.setblocking(False)
        here.setblocking(False)
        new = PolledConnection(polled.desk.door)
        new.attach(polled.poll.add(there.detach(), new), "peer")
        made.append((here, new))

    pair = two(polled, replace)
    polled.turn()
    ((client, new),) = made
    assert numbers[0] == numbers[1], "the number is used again"
    assert received(client) == b""
    assert new._session is None, "it was given nothing"
    client.sendall(HELLO)
    polled.turn()
    assert received(client) != b""
    assert new in polled.desk.door.connections
    for each, _ in (*pair, *made):
        each.close()


def test_a_paused_connection_is_not_looked_at_again_and_again(polled: Polled) -> None:
    """What comes of it meanwhile stays in the system, which tells of it once."""
    polled.give(HELLO)
    wire = polled.connection._wire
    wire.pause_reading()
    polled.client.sendall(ask(GET))
    polled.poll.ready()
    with select.epoll.fromfd(os.dup(polled.poll.fileno())) as watched:
        assert watched.poll(0) == []
        wire.resume_reading()
        assert watched.poll(0) != []
    polled.turn()
    assert received(polled.client) != b""


@pytest.mark.rule("runtime/P-1")
def test_one_read_of_each_in_a_call(polled: Polled) -> None:
    """Who has sent more than a read takes goes on in the next call, after the others."""
    polled.desk.grid.lane.settled = True
    polled.give(HELLO)
    polled.give(ask(GET))
    with contextlib.suppress(BlockingIOError):
        while True:
            polled.client.send(ask(GET) * 100)
    other, _ = polled.connect()
    other.sendall(HELLO)
    polled.turn()
    assert received(other), "served in the same call"
    first = len(received(polled.client))
    assert first // 25 <= poll_cy.READ_BYTES // len(ask(GET)) + 1
    other.close()


@pytest.mark.rule("runtime/P-3")
@pytest.mark.parametrize("size", [100_000, 20_000])
def test_large_answers_of_one_call_are_not_in_memory_together(polled: Polled, size: int) -> None:
    """Whether one value makes them large, which is sent from where it is stored, or several that are copied."""
    polled.desk.grid.lane.settled = True
    polled.give(HELLO)
    value = struct.pack(">i", -11) + random.Random(3).randbytes(size)
    polled.give(ask(SET, value=value))
    others = [polled.connect()[0] for _ in range(40)]
    for said in (HELLO, ask(CONTAINS_KEY)):
        for client in others:
            client.sendall(said)
        polled.turn()
        assert all(received(client) for client in others), "they are plain from now on"
    times = 100_000 // size
    for client in others:
        client.sendall(ask(GET) * times + ask(GET, KEYS[1]) + ask(CONTAINS_KEY))
    tracemalloc.start()
    try:
        polled.turn()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10 * 100_000, "not all forty"
    for client in others:
        came = received(client)
        assert len(came) == times * (29 + len(value)) + 25 + 20
        assert came.count(value) == times
        client.close()


# -- real members


class Client:
    """Speaks to a member in the same loop."""

    def __init__(self, one: Member) -> None:
        host, _, port = one.client_address.rpartition(":")
        self.address = (host, int(port))
        self.sock = socket.socket()
        self.sock.setblocking(False)

    async def open(self) -> Client:
        await asyncio.get_running_loop().sock_connect(self.sock, self.address)
        await self.say(HELLO)
        assert await self.hear(1)
        return self

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def hear(self, least: int) -> bytes:
        came = b""
        while len(came) < least:
            piece = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.sock, 1 << 16), 120)
            if not piece:
                break
            came += piece
        return came


@pytest.mark.parametrize("way", WAYS)
def test_a_thousand_connections(way: dict[str, Any]) -> None:
    async def story() -> None:
        async with member(maps__default__backups=0, limits__connections_per_address=1100, **way) as one:
            clients = [await Client(one).open() for _ in range(1000)]
            key, value = frames.data("k"), frames.data("v" * 100)
            partition = frames.partition_of(key, 31)
            for client in clients:
                await client.say(frames.set_message(key, value, partition) * 2)
            for client in clients:
                assert len(await client.hear(38)) == 38
            assert len(one._node._door.connections) == 1000
            for client in clients:
                client.sock.close()
            async with asyncio.timeout(120):
                while one._node._door.connections:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    run(story())


@pytest.mark.parametrize("way", WAYS)
def test_one_who_floods_does_not_keep_others_waiting(way: dict[str, Any]) -> None:
    async def story() -> None:
        async with member(maps__default__backups=0, **way) as one:
            flood, quiet = await Client(one).open(), await Client(one).open()
            key, value = frames.data("k"), frames.data("v" * 100)
            partition = frames.partition_of(key, 31)
            many = frames.set_message(key, value, partition) * 20_000
            ends = False

            async def pour() -> None:
                while not ends:
                    await flood.say(many)

            async def drain() -> None:
                while not ends:
                    await flood.hear(1)

            poured = [asyncio.create_task(pour()), asyncio.create_task(drain())]
            await asyncio.sleep(0.2)
            waits = []
            for _ in range(20):
                began = time.monotonic()
                await quiet.say(frames.get_message(key, partition))
                assert await quiet.hear(19)
                waits.append(time.monotonic() - began)
            ends = True
            for task in poured:
                task.cancel()
            assert sorted(waits)[10] < 0.5
            flood.sock.close()
            quiet.sock.close()

    run(story())


@pytest.mark.parametrize("way", WAYS[:2])
def test_without_descriptors_those_who_are_in_are_served(way: dict[str, Any]) -> None:
    """And who waits outside is let in when there are some."""

    async def story() -> None:
        async with member(maps__default__backups=0, **way) as one:
            inside = await Client(one).open()
            waiting = Client(one)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            highest = max(descriptors())
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
            taken = []
            try:
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(os.dup(0))
                await asyncio.get_running_loop().sock_connect(waiting.sock, waiting.address)
                await waiting.say(HELLO)
                await asyncio.sleep(0.3)
                await inside.say(ask(CONTAINS_KEY))
                assert len(await inside.hear(20)) == 20
                assert one._node.connection_log.counts["no file descriptors left"] >= 1
            finally:
                for fd in taken:
                    os.close(fd)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert await waiting.hear(1)
            inside.sock.close()
            waiting.sock.close()

    run(story())


class Refusing:
    """A door at which something goes wrong with whoever comes."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        raise self.error


@pytest.mark.parametrize("way", WAYS[:2])
def test_who_breaks_off_before_being_taken_ends_nobody(
    way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells errors of a new connection when it is taken; and it may have no room to watch one more."""

    async def story() -> None:
        async with member(maps__default__backups=0, **way) as one:
            server, counts = one._node._ports._clients, one._node.connection_log.counts
            for number in (errno.EPROTO, errno.EHOSTUNREACH):
                server._take(Refusing(OSError(number, os.strerror(number))))
            assert counts["failed accepts"] == 2

            class Full:
                def add(self, fd: int, connection: object, records: object = None) -> None:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            before = set(descriptors())
            with monkeypatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as outside:
                patch.setattr(server, "_poll", Full())
                near = socket.create_connection(outside.getsockname())
                server._begin(outside.accept()[0], "127.0.0.1")
                assert near.recv(1) == b"", "it was hung up on"
                near.close()
            assert counts["failed accepts"] == 3
            assert set(descriptors()) == before
            client = await Client(one).open()
            await client.say(ask(CONTAINS_KEY))
            assert len(await client.hear(20)) == 20
            client.sock.close()

    run(story())


@pytest.mark.parametrize("way", WAYS)
def test_a_member_says_which_sockets_it_has(way: dict[str, Any]) -> None:
    async def story() -> None:
        async with member(**way) as one:
            told = one.status()
            assert told.sockets == way["member__sockets"]

    run(story())


@pytest.mark.parametrize("way", WAYS)
def test_a_silent_client_is_closed_and_one_whom_only_the_lane_hears_is_not(way: dict[str, Any]) -> None:
    async def story() -> None:
        async with member(maps__default__backups=0, limits__idle_timeout_ms=2000, **way) as one:
            loud, silent = await Client(one).open(), await Client(one).open()
            async with asyncio.timeout(120):
                while len(one._node._door.connections) > 1:
                    await loud.say(ask(GET))
                    assert await loud.hear(19)
                    await asyncio.sleep(0.08)
            assert await silent.hear(1) == b""
            await loud.say(ask(GET))
            assert await loud.hear(19)
            loud.sock.close()
            silent.sock.close()

    run(story())


def test_auto_is_the_poll_where_it_is_compiled() -> None:
    assert sockets_way("auto", "python").kind == "loop"
    assert sockets_way("loop").kind == "loop"
    assert sockets_way("poll", "python").module is poll_cy
    if compiled_module is not None:
        assert sockets_way().kind == "poll"
        assert data_lane().kind == "compiled"
