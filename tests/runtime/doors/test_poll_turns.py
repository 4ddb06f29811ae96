"""Time for clients in a turn of the loop: who is served in it, and who is the first in the next one."""

from __future__ import annotations

import select
import struct
from collections.abc import Iterator
from typing import cast

import pytest
from tests.runtime.doors.test_poll_cy import HELLO, MODULES, Desk, Polled, ask, received
from tests.server.hazelcast.test_lane_ways import GET, frame

from holdfast.core.model.ids import MILLISECOND
from holdfast.server.door import ClientConnection

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")


@pytest.fixture(params=MODULES)
def polled(request: pytest.FixtureRequest) -> Iterator[Polled]:
    one = Polled(request.param)
    yield one
    one.end()


@pytest.mark.rule("server/D-3")
def test_work_that_was_left_over_has_an_end_in_each_turn_too() -> None:
    """Who had no slice in this turn is the first in the next one."""
    desk, went = Desk(), list[str]()

    class Working:
        def __init__(self, name: str) -> None:
            self.name = name

        def run_slice(self) -> None:
            went.append(self.name)
            desk.clock_ns += 3 * MILLISECOND
            desk.door.queue(cast("ClientConnection", self))

    for name in "abcde":
        desk.door.queue(cast("ClientConnection", Working(name)))
    for turns in range(1, 4):
        deeds, desk.loop.deeds = desk.loop.deeds, []
        for deed in deeds:
            deed()
        assert "".join(went) == "abcdeab"[: 2 * turns]


@pytest.mark.rule("server/D-3")
def test_turns_have_an_end(polled: Polled) -> None:
    """When clients have been served for long enough, what comes of others waits for the next turn."""
    polled.desk.grid.lane.settled = True
    others = [polled.connect() for _ in range(4)]
    for client, _ in others:
        client.sendall(HELLO)
    polled.turn()
    many = ask(GET) * 300
    for client, _ in others:
        received(client)
        client.sendall(ask(GET))
    polled.turn()
    for client, _ in others:
        received(client)
        client.sendall(many)
    looks = 0

    def clock() -> int:
        nonlocal looks
        looks += 1
        return looks * 20 * MILLISECOND

    polled.desk.door.clock = clock
    polled.poll.ready()
    served = [client for client, _ in others if received(client)]
    assert 0 < len(served) < 4, "some have to wait"
    polled.desk.loop.turn()
    for _ in range(4):
        polled.turn()
    assert all(received(client) for client, _ in others if client not in served)
    for client, _ in others:
        client.close()


@pytest.mark.rule("runtime/P-5")
@pytest.mark.parametrize("plain", [True, False], ids=["the lane", "sessions"])
def test_sockets_are_not_read_after_the_time_for_clients_and_come_first_in_the_next_turn(
    polled: Polled, plain: bool
) -> None:
    """Thirty clients always have a request. Each turn has time for a few of them."""
    clients = [polled.connect() for _ in range(30)]
    for said in (HELLO, ask(GET)):
        for client, _ in clients:
            client.sendall(said)
        polled.turn()
    one = ask(GET) if plain else frame(struct.pack("<iqi", 0x0B00, 1, -1), 0xE000)  # A ping.
    much = one * (20_000 // len(one))
    for client, _ in clients:
        received(client)
        client.sendall(much)

    def clock() -> int:
        polled.desk.clock_ns += 3 * MILLISECOND
        return polled.desk.clock_ns

    polled.desk.door.clock = clock
    served: list[int] = []
    for _ in range(12):
        polled.poll.ready()
        taken = [connection for _, connection in clients if connection.count()]
        assert len(taken) < 8, "the others' requests wait in the system"
        polled.desk.loop.turn()
        now = [number for number, (client, _) in enumerate(clients) if received(client)]
        assert 0 < len(now) < 8
        for number in now:
            clients[number][0].sendall(much)
        served += now
    assert {*served} == {*range(30)}
    for client, _ in clients:
        client.close()
