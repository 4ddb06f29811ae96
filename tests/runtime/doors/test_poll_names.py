"""Which maps does the data lane know of a new connection? Those that others have used."""

from __future__ import annotations

import select

import pytest
from tests.runtime.doors.test_poll_cy import HELLO, Polled, ask, polled, received
from tests.server.hazelcast.test_lane_ways import GET

from holdfast.server.door import ClientConnection
from holdfast.server.hazelcast import hazelcast_session
from holdfast.server.hazelcast.hazelcast_session import HazelcastSession

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")
__all__ = ["polled"]


def test_the_first_request_of_a_connection_is_plain_if_others_know_the_map(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand clients that come back to a member after a crash ask for the same few maps."""
    polled.give(HELLO)
    polled.give(ask(GET, name="safe"))
    second, _ = polled.connect()
    third, _ = polled.connect()
    for client in (second, third):
        client.sendall(HELLO)
    polled.turn()
    losses = polled.desk.grid.losses
    with monkeypatch.context() as patched:
        patched.setattr(ClientConnection, "data_received", None)
        patched.setattr(ClientConnection, "served", None)
        second.sendall(ask(GET, name="safe"))
        polled.turn()
    losses.learn(0, ("safe",))
    polled.desk.grid.lane_access.on_losses()
    heard: list[bytes] = []
    answer = HazelcastSession._answer
    monkeypatch.setattr(
        HazelcastSession,
        "_answer",
        lambda self, data, start, end: (heard.append(data), answer(self, data, start, end)),
    )
    for number in (1, 2):
        third.sendall(ask(GET, name="safe"))
        polled.turn()
        assert len(heard) == number, "a session looks at what is asked of a map with losses (routing/R-12)"
    assert received(second)
    assert received(third)
    second.close()
    third.close()


def test_who_uses_very_many_maps_takes_no_room_from_others(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hazelcast_session, "_MOST_NAMES", 3)
    polled.give(HELLO)
    for name in ("a", "b", "c", "d", "e"):
        polled.give(ask(GET, name=name))
    second, _ = polled.connect()
    second.sendall(HELLO)
    polled.turn()
    second.sendall(ask(GET, name="mine"))
    polled.turn()
    monkeypatch.setattr(ClientConnection, "data_received", None)
    monkeypatch.setattr(ClientConnection, "served", None)
    second.sendall(ask(GET, name="mine"))
    polled.turn()
    polled.give(ask(GET, name="e"))
    assert len(received(second)) > 2 * 19
    second.close()
