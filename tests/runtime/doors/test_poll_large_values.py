"""Large values through the poll: sent from where they are stored, received into their own place, and neither kept
longer nor uncounted.
"""

from __future__ import annotations

import contextlib
import random
import resource
import select
import socket
import struct
import sys
import tracemalloc
from pathlib import Path
from types import ModuleType

import pytest
from tests.runtime.doors.test_poll_cy import (
    HELLO,
    MODULES,
    Polled,
    Through,
    ask,
    compiled_module,
    needs_compiler,
    polled,
    received,
    stored,
)
from tests.sampled_cases import sampled
from tests.server.hazelcast.test_lane_ways import CONTAINS_KEY, GET, KEYS, PUT, REMOVE, SET, request

from holdfast.runtime.data_lane import data_lane
from holdfast.server.door import ClientConnection
from holdfast.server.hazelcast.keyed_requests import BY_KIND, respond
from holdfast_lab.bench.lane import Primary

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")
__all__ = ["polled"]


def read_out(polled: Polled, client: socket.socket, size: int) -> bytes:
    """All that comes, until it is so much."""
    came = b""
    for _ in range(20_000):
        came += received(client)
        if len(came) >= size:
            break
        polled.turn()
    return came


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("sndbuf", [0, 4096])
def test_large_and_small_answers_keep_their_order_when_they_leave_in_parts(
    module: ModuleType, sndbuf: int
) -> None:
    """More of them than one call sends, and an answer says what was stored when the request came."""
    polled = Polled(module, output_buffer_bytes=1 << 24)
    try:
        polled.desk.grid.lane.settled = True
        client, connection = polled.connect(sndbuf=sndbuf)
        give(polled, client, HELLO + ask(CONTAINS_KEY))
        old, new = (struct.pack(">i", -11) + random.Random(seed).randbytes(100_000) for seed in (1, 2))
        give(polled, client, ask(SET, value=old) + ask(GET))
        asked = b"".join(ask(GET) + ask(CONTAINS_KEY, number=number) for number in range(50))
        give(polled, client, asked)
        polled.give(HELLO + ask(CONTAINS_KEY))
        give(polled, polled.client, ask(SET, value=new))
        whole = b"".join(
            respond(BY_KIND[GET], struct.pack("<q", 1), old)
            + respond(BY_KIND[CONTAINS_KEY], struct.pack("<q", number), old)
            for number in range(50)
        )
        came = read_out(polled, client, 19 + 29 + len(old) + len(whole))
        assert came[-len(whole) :] == whole
        give(polled, client, ask(GET))
        assert read_out(polled, client, 29 + len(new))[29:] == new
        assert connection._wire.get_write_buffer_size() == 0
        client.close()
    finally:
        polled.end()


def test_answers_of_large_values_are_held_within_the_limit() -> None:
    """And counted, though they are not copied. What has left is kept by nobody."""
    for module in (one.values[0] for one in MODULES if one.values[0] is not None):
        polled = Polled(module, output_buffer_bytes=300_000)
        try:
            polled.desk.grid.lane.settled = True
            client, connection = polled.connect(sndbuf=4096)
            client.sendall(HELLO)
            polled.turn()
            value = struct.pack(">i", -11) + random.Random(3).randbytes(100_000)
            give(polled, client, ask(SET, value=value) + ask(CONTAINS_KEY))
            polled.turn()
            received(client)
            (held,) = [
                copy.maps["m"].state.entries[KEYS[0]] for copy in polled.desk.grid.copies if "m" in copy.maps
            ]
            before = sys.getrefcount(held)
            client.sendall(ask(GET) * 2)
            polled.turn()
            assert 100_000 < connection._wire.get_write_buffer_size() < 2 * 100_100
            assert sys.getrefcount(held) > before, "it waits as it is"
            assert read_out(polled, client, 2 * (29 + len(value))).count(value) == 2
            assert sys.getrefcount(held) == before
            client.sendall(ask(GET) * 100)
            most = 0
            for _ in range(50):
                polled.turn()
                most = max(most, connection._wire.get_write_buffer_size())
            assert 300_000 < most <= 2 * 300_000 + 100_100
            assert connection._flow.paused
            assert connection.unread > 0, "the door knows of it"
            came = b""
            for _ in range(20_000):
                came += received(client)
                polled.turn()
                for deed in polled.desk.loop.later[-1:]:
                    deed()
                polled.desk.loop.turn()
                if len(came) == 100 * (29 + len(value)):
                    break
            assert came.count(value) == 100
            assert connection._wire.get_write_buffer_size() == 0
            assert sys.getrefcount(held) == before
            client.close()
        finally:
            polled.end()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("seed", sampled(range(8), 2))
def test_large_values_are_stored_as_through_a_transport(module: ModuleType, seed: int) -> None:
    """However they are cut, between small ones, and where they are not for the data lane."""
    chance = random.Random(seed)
    one, other = Through(), Polled(module)
    for each in (one, other):
        each.desk.grid.lane.settled = bool(seed % 2)
    try:
        arrived = [HELLO, *(ask(CONTAINS_KEY, name=name) for name in ("m", "alone", "told"))]
        for number in range(60):
            size = chance.choice([100, 5_000, 32_763, 32_764, 40_000, 100_000, 300_000, 300_000, 4_194_301])
            value = struct.pack(">i", -11) + chance.randbytes(size)
            arrived.append(
                request(
                    chance.choice([SET, PUT, SET, PUT, GET, REMOVE]),
                    chance.choice(["m", "m", "alone", "told", f"new{number}"]),
                    chance.choice(KEYS),
                    value,
                    partition=chance.choice([0, 0, 0, 1]),
                    ttl_ms=chance.choice([-1, 0, 50_000]),
                    word=chance.choice([0, 0, 7]),
                    number=number,
                )
            )
        told, heard, pending = b"", b"", b""
        for message in arrived:
            cut = chance.choice([0, 0, 10, 200, 4500, len(message) // 2])
            pending += message[:cut]
            if cut or chance.random() < 0.5:
                told += one.give(pending) if pending else b""
                heard += exchange(other, pending)
                pending = b""
            pending += message[cut:]
            if chance.random() < 0.7:
                told += one.give(pending)
                heard += exchange(other, pending)
                pending = b""
        if pending:
            told += one.give(pending)
            heard += exchange(other, pending)
        for _ in range(200):
            other.turn()
            heard += received(other.client)
        assert answers(heard) == answers(told)
        assert stored(one.desk) == stored(other.desk)
        assert other.connection.coming == 0
        assert one.desk.events.heard == other.desk.events.heard
    finally:
        other.end()


def exchange(polled: Polled, data: bytes) -> bytes:
    """Send all of it, while it is served and what is answered is read."""
    came = b""
    while data:
        with contextlib.suppress(BlockingIOError):
            data = data[polled.client.send(data) :]
        polled.turn()
        came += received(polled.client)
    return came


def answers(data: bytes) -> list[bytes]:
    """Each message, sorted: how reads and writes overtake each other hangs on how the data came."""
    found, start, at = [], 0, 0
    while at < len(data):
        length, flags = struct.unpack_from("<iH", data, at)
        at += length
        if flags & 0x2000:
            found.append(data[start:at])
            start = at
    assert at == len(data)
    return sorted(found)


def test_a_large_value_is_received_apart(polled: Polled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the comparison above would compare a thing with itself. It counts as coming while it does."""
    polled.desk.grid.lane.settled = True
    polled.give(HELLO)
    polled.give(ask(GET))
    monkeypatch.setattr(ClientConnection, "data_received", None)
    monkeypatch.setattr(ClientConnection, "served", None)
    value = struct.pack(">i", -11) + bytes(1_000_000)
    for number in range(3):
        whole = ask(SET, value=value, number=number) + ask(CONTAINS_KEY, number=number)
        give(polled, polled.client, whole[:500_000])
        polled.turn()
        assert 400_000 < polled.connection.coming < 500_000
        assert polled.connection.unread == polled.connection.coming
        give(polled, polled.client, whole[500_000:])
        assert len(read_out(polled, polled.client, 19 + 20)) == 19 + 20
        assert polled.connection.coming == polled.connection.unread == 0
    assert polled.desk.door.come < 3 * len(whole) + 100_000, "each byte is counted once"


def test_the_beginning_of_a_large_value_is_counted_though_no_more_comes(polled: Polled) -> None:
    """Many connections with as much as one read takes would be more than all together may have."""
    polled.desk.grid.lane.settled = True
    polled.give(HELLO)
    polled.give(ask(GET))
    polled.client.sendall(ask(SET, value=struct.pack(">i", -11) + bytes(1_000_000))[:100_000])
    polled.turn()
    assert polled.connection.coming > 99_000
    assert polled.desk.door._unread == polled.connection.coming


@pytest.mark.parametrize("module", MODULES)
def test_a_large_value_that_cannot_be_served_yet_is_counted(module: ModuleType) -> None:
    """It has come whole, and waits for room for answers: each connection may have one."""
    polled = Polled(module, output_buffer_bytes=65_536)
    try:
        client, connection = polled.client, polled.connection
        value = struct.pack(">i", -11) + bytes(1_000_000)
        for said in (HELLO, ask(CONTAINS_KEY), *(ask(SET, key, value[:40_000]) for key in KEYS[:2])):
            give(polled, client, said)
        polled.desk.grid.verdict = None
        whole = ask(SET, value=value)
        give(polled, client, ask(PUT) + ask(PUT, KEYS[1]) + whole[:10_000])
        give(polled, client, whole[10_000:])
        for _ in range(3):
            polled.turn()
        assert connection._flow.rest
        assert connection.coming == len(whole)
        assert polled.desk.door._unread == connection.unread > len(whole) + 80_000
        polled.desk.grid.verdict = True
        polled.desk.grid.settle(safe=True)
        for _ in range(3):
            polled.turn()
            for deed in polled.desk.loop.later[-1:]:
                deed()
        assert len(read_out(polled, client, 2 * 29 + 80_000 + 19)) >= 2 * 29 + 80_000 + 19
        assert connection.coming == 0
        assert polled.desk.door._unread == 0
    finally:
        polled.end()


def test_what_waits_for_its_turn_is_counted() -> None:
    through = Through()
    through.give(HELLO)
    through.desk.door.late = True
    whole = ask(SET, value=struct.pack(">i", -11) + bytes(1_000_000))
    through.connection.data_received(whole)
    assert through.desk.door._unread == through.connection.coming == len(whole)
    through.desk.loop.turn()
    assert through.connection.coming == 0
    assert through.desk.door._unread == 0


@pytest.mark.parametrize("how", ["gone", "memory is full", "aborted"])
def test_nothing_is_kept_of_a_value_whose_client_ends(polled: Polled, how: str) -> None:
    """And before that only as much is touched as has come."""
    client, connection = polled.connect()
    client.sendall(HELLO)
    polled.turn()
    client.sendall(ask(CONTAINS_KEY))
    polled.turn()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        whole = ask(SET, value=struct.pack(">i", -11) + bytes(4_000_000))
        give(polled, client, whole[:2_000_000])
        polled.turn()
        assert connection.coming > 1_000_000
        del whole
        if how == "gone":
            client.close()
        elif how == "aborted":
            connection.abort()
        else:
            polled.desk.door.relieve(1_000_000)
            assert connection.coming == 0
        for _ in range(3):
            polled.turn()
        assert connection not in polled.desk.door.connections
        assert polled.desk.door._unread == 0
        assert tracemalloc.get_traced_memory()[0] - before < 200_000
    finally:
        tracemalloc.stop()
    client.close()


def test_a_value_that_comes_while_the_client_is_not_read_goes_on_afterwards(polled: Polled) -> None:
    polled.desk.grid.lane.settled = True
    polled.give(HELLO)
    polled.give(ask(GET))
    value = struct.pack(">i", -11) + random.Random(5).randbytes(1_000_000)
    whole = ask(SET, value=value)
    give(polled, polled.client, whole[:300_000])
    polled.turn()
    came = polled.connection.coming
    polled.connection.hold(True)
    polled.client.send(whole[300_000:310_000])
    for _ in range(5):
        polled.turn()
    assert polled.connection.coming == came, "it is not read"
    polled.connection.hold(False)
    give(polled, polled.client, whole[310_000:])
    assert len(read_out(polled, polled.client, 19)) == 19
    give(polled, polled.client, ask(GET))
    assert read_out(polled, polled.client, 29 + len(value))[29:] == value


def give(polled: Polled, client: socket.socket, data: bytes) -> None:
    """Send all of it, while it is served."""
    while data:
        with contextlib.suppress(BlockingIOError):
            data = data[client.send(data) :]
        polled.turn()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell it")
def test_values_that_are_announced_and_do_not_come_take_no_memory(polled: Polled) -> None:
    """Of many strangers: room is taken, and not touched."""
    whole = ask(SET, value=struct.pack(">i", -11) + bytes(4_000_000))
    announced = whole[:1000]
    del whole
    clients = []
    for _ in range(200):
        client, connection = polled.connect()
        clients.append((client, connection))
        for said in (HELLO, ask(CONTAINS_KEY)):
            client.sendall(said)
            polled.turn()
    before = resident_bytes()
    for client, _ in clients:
        client.sendall(announced)
    for _ in range(3):
        polled.turn()
    assert sum(connection.coming for _, connection in clients) > 200 * 500
    assert resident_bytes() - before < 20_000_000, "of 800 MB"
    for client, _ in clients:
        client.close()
    polled.turn()
    assert polled.desk.door._unread == 0


def resident_bytes() -> int:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("change", ["replaced", "removed", "rehashed"])
@needs_compiler
def test_an_answer_that_leaves_slowly_is_of_one_moment(change: str) -> None:
    """From a compact table, whatever becomes of the entry and of the table meanwhile."""
    way = data_lane()
    polled = Polled(compiled_module)  # type: ignore[arg-type]
    try:
        primary = Primary(way, backups=0)
        polled.desk.grid.lane = primary.lane  # type: ignore[assignment]
        polled.poll = compiled_module.Poll(polled.desk.door, polled.desk.loop, way.code)  # type: ignore[attr-defined]
        slow, connection = polled.connect(sndbuf=4096)
        quick, _ = polled.connect()
        for client in (slow, quick):
            give(polled, client, HELLO)
            give(polled, client, ask(CONTAINS_KEY))
        polled.turn()
        received(slow), received(quick)
        value = struct.pack(">i", -11) + random.Random(9).randbytes(400_000)
        give(polled, quick, ask(SET, value=value))
        give(polled, slow, ask(GET))
        assert connection._wire.get_write_buffer_size() > 100_000, "some of it waits"
        other = struct.pack(">i", -11) + bytes(400_000)
        if change == "replaced":
            give(polled, quick, ask(SET, value=other) * 3)
        elif change == "removed":
            give(polled, quick, ask(REMOVE))
        else:
            for number in range(3000):
                key = struct.pack(">iq", -8, number)
                give(polled, quick, ask(SET, key, value=other[:100]))
        came = read_out(polled, slow, 29 + len(value))
        assert came[-len(value) :] == value
        slow.close()
        quick.close()
    finally:
        polled.end()
