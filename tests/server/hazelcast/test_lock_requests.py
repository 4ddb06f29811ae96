"""Locks on entries as the official client asks for them: the requests, their owners, and what is rejected."""

from __future__ import annotations

from typing import Any

import pytest
from hazelcast.protocol.codec import (
    client_destroy_proxy_codec,
    map_force_unlock_codec,
    map_is_locked_codec,
    map_lock_codec,
    map_put_codec,
    map_set_ttl_codec,
    map_try_lock_codec,
    map_try_put_codec,
    map_unlock_codec,
)
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.wire import AnsweredError, Wire, data

from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.map_locks import CLIENT_BYTES, LOCKED_NAME_MAX, client_of, locks_of, owner_of
from holdfast.core.model.operations import Op
from holdfast.wire.hazelcast.refusals import NOT_OWNER

KEY = data((-11).to_bytes(4, "big", signed=True) + b"\0\0\0\1k")
LOCK = (map_lock_codec, ("m", KEY, 1, -1, 11))
SECOND_THREAD = 2


def test_a_lock_end_to_end(wire: Wire, grid: OneMemberGrid) -> None:
    wire.ask(*_asked(LOCK))
    assert wire.ask(map_try_lock_codec, "m", KEY, SECOND_THREAD, -1, 0, 12) is False
    assert wire.ask(map_try_lock_codec, "m", KEY, 1, -1, 0, 13) is True
    with pytest.raises(AnsweredError, match="no lock on the entry") as refused:
        wire.ask(map_unlock_codec, "m", KEY, SECOND_THREAD, 14)
    assert refused.value.code == NOT_OWNER.number
    wire.ask(map_unlock_codec, "m", KEY, 1, 15)
    wire.ask(map_unlock_codec, "m", KEY, 1, 16)
    wire.ask(map_lock_codec, "m", KEY, SECOND_THREAD, 5000, 17)
    assert grid.requests[-1].ttl_ms == 5000
    wire.ask(map_force_unlock_codec, "m", KEY, 18)
    assert wire.ask(map_try_lock_codec, "m", KEY, 1, -1, 0, 19) is True


def _asked(call: tuple[Any, tuple[Any, ...]]) -> tuple[Any, ...]:
    return call[0], *call[1]


def test_changes_name_the_thread_and_how_long_they_wait(wire: Wire, grid: OneMemberGrid) -> None:
    grid.lane.serving = []  # type: ignore[misc]
    wire.ask(map_put_codec, "m", KEY, KEY, SECOND_THREAD, -1)
    put = grid.requests[-1]
    assert put.op is Op.PUT
    assert len(client_of(put.holder)) == CLIENT_BYTES
    assert put.holder == owner_of(client_of(put.holder), SECOND_THREAD)
    wire.ask(map_set_ttl_codec, "m", KEY, 1000)
    assert grid.requests[-1].holder == client_of(put.holder), (
        "it names no thread, so it is any of the client's"
    )
    wire.ask(map_try_put_codec, "m", KEY, KEY, 1, 250)
    assert grid.requests[-1].wait_ms == 250
    wire.ask(map_try_put_codec, "m", KEY, KEY, 1, -1)
    assert grid.requests[-1].wait_ms == 0


def test_a_client_is_connected_until_its_connection_ends(wire: Wire, grid: OneMemberGrid) -> None:
    (client,) = grid.collections.connected
    wire.ask(*_asked(LOCK))
    assert client_of(grid.requests[-1].holder) == client
    wire.session.closed()
    assert grid.collections.connected == []


def test_locks_that_cannot_be_are_rejected(wire: Wire, grid: OneMemberGrid) -> None:
    with pytest.raises(AnsweredError, match="reserved"):
        wire.ask(map_lock_codec, "__lock:m", KEY, 1, -1, 1)
    with pytest.raises(AnsweredError, match="at most"):
        wire.ask(map_lock_codec, "m" * (LOCKED_NAME_MAX + 1), KEY, 1, -1, 1)
    grid.zone_of = lambda name: "z"  # type: ignore[method-assign]
    with pytest.raises(AnsweredError, match="lives in zone 'z'"):
        wire.ask(*_asked(LOCK))
    del grid.zone_of  # type: ignore[method-assign]
    grid.level = STRUCTURES - 1
    with pytest.raises(AnsweredError, match="holdfast cluster upgrade"):
        wire.ask(*_asked(LOCK))
    assert grid.requests == []


def test_locks_go_with_their_map(wire: Wire, grid: OneMemberGrid) -> None:
    wire.ask(client_destroy_proxy_codec, "m", "hz:impl:mapService")
    assert [request.map for request in grid.requests if request.op is Op.DESTROY] == ["m", locks_of("m")]


def test_whether_an_entry_is_locked_is_asked_at_its_primary(wire: Wire, grid: OneMemberGrid) -> None:
    assert wire.ask(map_is_locked_codec, "m", KEY) is False
