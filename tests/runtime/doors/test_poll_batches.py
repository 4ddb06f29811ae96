"""Responses to writes in the poll: which batch they wait for, and the callback that buffers of a turn share."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest
from tests.runtime.doors.test_poll_cy import HELLO, MODULES, Polled, ask, received
from tests.server.hazelcast.test_lane_ways import GET, SET

from holdfast.core.primary_backup.ack_batch import AckBatch

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")


@pytest.fixture(params=MODULES)
def polled(request: pytest.FixtureRequest) -> Iterator[Polled]:
    one = Polled(request.param)
    yield one
    one.end()


@pytest.mark.rule("runtime/P-4")
def test_buffers_of_a_turn_that_join_one_batch_share_a_callback(polled: Polled) -> None:
    grid = polled.desk.grid
    connected = [polled.connect() for _ in range(3)]
    clients = [client for client, _ in connected]
    for message in (HELLO, ask(GET)):
        for client in clients:
            client.sendall(message)
        polled.turn()
        assert all(received(client) for client in clients)
    for number, safe in enumerate((True, False), 2):
        batch = grid.lane.batch = AckBatch(number, 0)
        for client in clients:
            client.sendall(ask(SET, number=number))
        polled.turn()
        assert not any(received(client) for client in clients), "the batch is not safe yet"
        assert len(batch.callbacks) == 1
        assert [connection._flow.held for _, connection in connected] == [19] * 3
        batch.callbacks[0](safe)
        polled.desk.loop.turn()
        for client in clients:
            assert len(answer := received(client)) >= 19
            assert (b"test says so" in answer) is not safe
        assert [connection._flow.held for _, connection in connected] == [0] * 3
    for client in clients:
        client.close()


@pytest.mark.rule("runtime/P-4")
def test_each_buffer_waits_for_the_batch_that_it_has_joined(polled: Polled) -> None:
    """Buffers of one turn may wait for different backups; those of the next turn have a callback of their own."""
    lane = polled.desk.grid.lane
    (one, _), (other, _) = polled.connect(), polled.connect()
    for client in (one, other):
        for message in (HELLO, ask(GET)):
            client.sendall(message)
            polled.turn()
        assert received(client)
    batches = [AckBatch(1, 0), AckBatch(2, 0)]
    joined = iter([*batches, batches[0]])
    lane.end_buffer = lambda: next(joined)  # type: ignore[method-assign]
    one.sendall(ask(SET))
    other.sendall(ask(SET))
    polled.turn()
    one.sendall(ask(SET, number=2))
    polled.turn()
    assert [len(batch.callbacks) for batch in batches] == [2, 1]
    batches[1].callbacks[0](True)
    assert sorted(map(len, (received(one), received(other)))) == [0, 19]
    one.close()
    polled.turn()
    for done in batches[0].callbacks:
        done(True)
    assert polled.give(HELLO) != b"", "a connection that is gone harms nobody"
    other.close()
