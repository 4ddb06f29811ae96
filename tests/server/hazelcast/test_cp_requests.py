"""Requests for CP objects, in the codecs of the official Python client."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest
from hazelcast.protocol import RaftGroupId
from hazelcast.protocol.codec import (
    atomic_long_add_and_get_codec,
    atomic_long_alter_codec,
    atomic_long_get_codec,
    atomic_ref_set_codec,
    count_down_latch_await_codec,
    count_down_latch_count_down_codec,
    count_down_latch_try_set_count_codec,
    cp_group_create_cp_group_codec,
    cp_group_destroy_cp_object_codec,
    cp_session_close_session_codec,
    cp_session_create_session_codec,
    cp_session_generate_thread_id_codec,
    cp_session_heartbeat_session_codec,
    fenced_lock_get_lock_ownership_codec,
    fenced_lock_lock_codec,
    fenced_lock_try_lock_codec,
    fenced_lock_unlock_codec,
    semaphore_acquire_codec,
    semaphore_available_permits_codec,
    semaphore_get_semaphore_type_codec,
    semaphore_init_codec,
)
from hazelcast.serialization.data import Data
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.wire import AnsweredError, Wire

from holdfast.config import CpSettings, Settings
from holdfast.core.model.ids import SECOND
from holdfast.core.model.levels import STRUCTURES

GROUP = RaftGroupId("default", 0, 0)
STRING = (-11).to_bytes(4, "big", signed=True)


@pytest.fixture
def grid() -> OneMemberGrid:
    return OneMemberGrid()


@pytest.fixture
def wire(grid: OneMemberGrid) -> Wire:
    found = Wire(grid)
    found.login()
    found.take()
    return found


def session_of(wire: Wire) -> int:
    found: dict[str, Any] = wire.ask(cp_session_create_session_codec, GROUP, "me")
    return int(found["session_id"])


def test_a_group_is_named_by_its_name(wire: Wire) -> None:
    for proxy, group in (("x", "default"), ("x@default", "default"), ("x @ eu ", "eu")):
        assert wire.ask(cp_group_create_cp_group_codec, proxy) == RaftGroupId(group, 0, 0)
    for wrong in ("x@", "x@a@b", "x@METADATA", "x" * 300, "@g"):
        with pytest.raises(AnsweredError):
            wire.ask(cp_group_create_cp_group_codec, wrong)


def test_atomic_values(wire: Wire) -> None:
    assert wire.ask(atomic_long_add_and_get_codec, GROUP, "n", 5) == 5
    assert wire.ask(atomic_long_get_codec, RaftGroupId("eu", 0, 0), "n") == 0
    assert wire.ask(atomic_ref_set_codec, GROUP, "r", Data(bytes(4) + STRING + b"a"), False) is None
    assert wire.ask(atomic_ref_set_codec, GROUP, "r", None, True) == Data(bytes(4) + STRING + b"a")
    with pytest.raises(AnsweredError, match="not supported"):
        wire.ask(atomic_long_alter_codec, GROUP, "n", Data(bytes(4) + STRING + b"f"), 0)


def test_a_lock_waits_and_is_handed_on(wire: Wire, grid: OneMemberGrid) -> None:
    a, b = session_of(wire), session_of(wire)
    assert wire.ask(fenced_lock_lock_codec, GROUP, "l", a, 1, uuid.uuid4()) == 1
    assert wire.ask(fenced_lock_try_lock_codec, GROUP, "l", b, 1, uuid.uuid4(), 0) == 0
    wire.tell(fenced_lock_lock_codec.encode_request(GROUP, "l", b, 1, uuid.uuid4()))
    assert grid.collections.waiting
    wire.tell(fenced_lock_unlock_codec.encode_request(GROUP, "l", a, 1, uuid.uuid4()))
    assert len(wire.take()) == 2
    assert not grid.collections.waiting
    owner = wire.ask(fenced_lock_get_lock_ownership_codec, GROUP, "l")
    assert owner == {"fence": 2, "lock_count": 1, "session_id": b, "thread_id": 1}


def test_errors_are_those_that_clients_know(wire: Wire) -> None:
    a = session_of(wire)
    with pytest.raises(AnsweredError, match="does not own"):
        wire.ask(fenced_lock_unlock_codec, GROUP, "l", a, 1, uuid.uuid4())
    assert wire.ask(cp_session_close_session_codec, GROUP, a) is True
    with pytest.raises(AnsweredError, match="session is closed"):
        wire.ask(cp_session_heartbeat_session_codec, GROUP, a)
    wire.ask(cp_group_destroy_cp_object_codec, GROUP, "hz:raft:atomicLongService", "n")
    with pytest.raises(AnsweredError, match="destroyed"):
        wire.ask(atomic_long_get_codec, GROUP, "n")
    with pytest.raises(AnsweredError, match="no CP object"):
        wire.ask(cp_group_destroy_cp_object_codec, GROUP, "hz:impl:mapService", "n")


def test_sessions_threads_and_settings(wire: Wire, grid: OneMemberGrid) -> None:
    chosen = CpSettings(session_ttl_ms=60_000, heartbeat_ms=1000, sessionless_semaphores=["free-*"])
    grid.collections.configured = msgspec.structs.replace(Settings(), cp=chosen)
    found: dict[str, Any] = wire.ask(cp_session_create_session_codec, GROUP, "me")
    assert (found["ttl_millis"], found["heartbeat_millis"]) == (60_000, 1000)
    first = wire.ask(cp_session_generate_thread_id_codec, GROUP)
    assert wire.ask(cp_session_generate_thread_id_codec, GROUP) != first
    assert wire.ask(semaphore_get_semaphore_type_codec, "free-1@eu") is True
    assert wire.ask(semaphore_get_semaphore_type_codec, "other") is False


def test_a_session_is_that_of_one_client(wire: Wire, grid: OneMemberGrid) -> None:
    session = session_of(wire)
    assert wire.ask(fenced_lock_lock_codec, GROUP, "l", session, 1, uuid.uuid4()) == 1
    other = Wire(grid)
    other.login(client=uuid.uuid4())
    other.take()
    with pytest.raises(AnsweredError, match="closed"):
        other.ask(fenced_lock_unlock_codec, GROUP, "l", session, 1, uuid.uuid4())
    with pytest.raises(AnsweredError, match="closed"):
        other.ask(cp_session_heartbeat_session_codec, GROUP, session)
    assert other.ask(cp_session_close_session_codec, GROUP, session) is False
    assert wire.ask(fenced_lock_unlock_codec, GROUP, "l", session, 1, uuid.uuid4()) is False


def test_a_semaphore_waits_as_long_as_its_client(wire: Wire, grid: OneMemberGrid) -> None:
    assert wire.ask(semaphore_init_codec, GROUP, "s", 1) is True
    assert wire.ask(semaphore_acquire_codec, GROUP, "s", -1, 1, uuid.uuid4(), 1, -1) is True
    assert wire.ask(semaphore_acquire_codec, GROUP, "s", -1, 1, uuid.uuid4(), 1, 0) is False
    assert wire.ask(semaphore_available_permits_codec, GROUP, "s") == 0


def test_a_latch(wire: Wire, grid: OneMemberGrid) -> None:
    assert wire.ask(count_down_latch_try_set_count_codec, GROUP, "c", 1) is True
    assert wire.ask(count_down_latch_await_codec, GROUP, "c", uuid.uuid4(), 0) is False
    wire.ask(count_down_latch_count_down_codec, GROUP, "c", uuid.uuid4(), 1)
    assert wire.ask(count_down_latch_await_codec, GROUP, "c", uuid.uuid4(), 5 * SECOND) is True


def test_a_cluster_below_the_feature_level_rejects_cp_objects(wire: Wire, grid: OneMemberGrid) -> None:
    grid.level = STRUCTURES - 1
    with pytest.raises(AnsweredError, match="cluster upgrade"):
        wire.ask(atomic_long_get_codec, GROUP, "n")
