"""One connection: who may speak, how bytes become messages, when writes are answered, and what ends it."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest
from hazelcast.protocol.codec import (
    client_authentication_codec,
    client_authentication_custom_codec,
    client_fetch_schema_codec,
    client_get_distributed_objects_codec,
    client_ping_codec,
    map_add_entry_listener_codec,
    map_clear_codec,
    map_contains_key_codec,
    map_delete_codec,
    map_get_all_codec,
    map_get_codec,
    map_put_all_codec,
    map_put_codec,
    map_remove_codec,
    map_set_codec,
    map_size_codec,
    transaction_create_codec,
)
from tests.server.hazelcast.one_member import CLUSTER, ME, OneMemberGrid, int_data, text_data
from tests.server.hazelcast.wire import CLIENT, AnsweredError, Wire, data, error_of, stored

from holdfast.config import LimitSettings
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast.core.primary_backup.shared_steps import SharedSteps
from holdfast.server.flow import SLICE_ITEMS
from holdfast.server.grid import ClusterCard
from holdfast.server.hazelcast import conversation
from holdfast.server.hazelcast import entry_events as listeners
from holdfast.server.hazelcast.conversation import Conversation
from holdfast.wire.hazelcast.compact_schemas import schema_key

KEY, ONE, TWO = text_data("k"), int_data(1), int_data(2)
THREAD = 7


# -- the door


def test_an_admitted_client_learns_the_cluster(grid: OneMemberGrid) -> None:
    wire = Wire(grid)
    answer = wire.login("dev", "ada", "secret")
    assert grid.logins == [("ada", "secret", None)]
    assert answer["status"] == 0
    assert str(answer["member_uuid"]) == ME
    assert str(answer["cluster_id"]) == CLUSTER
    assert answer["partition_count"] == 7
    assert answer["failover_supported"] is True, "or clients with several clusters to go to take none"
    assert (answer["address"].host, answer["address"].port) == ("127.0.0.1", 5701)
    assert not wire.closed


def test_a_client_that_comes_before_its_member_has_joined_waits(grid: OneMemberGrid) -> None:
    joined, grid.card = grid.card, ClusterCard(0, [], 0, {})
    wire = Wire(grid)
    login = client_authentication_codec.encode_request(
        "dev", None, None, CLIENT, "PYH", 1, "5.7.0", "c1", ["x"]
    )
    wire.tell(login)
    wire.tell(client_ping_codec.encode_request())
    grid.change(ClusterCard(1, [], 0, {}))
    wire.resume()
    assert wire.take() == []
    assert not wire.session.admitted
    grid.change(joined)
    wire.resume()
    assert [answer.get_correlation_id() for answer in wire.take()] == [1, 2]
    assert (wire.closed, grid.watchers) == ([], [])


def test_a_client_that_leaves_while_it_waits_for_the_join_is_forgotten(grid: OneMemberGrid) -> None:
    joined, grid.card = grid.card, ClusterCard(0, [], 0, {})
    wire = Wire(grid)
    wire.tell(
        client_authentication_codec.encode_request("dev", None, None, CLIENT, "PYH", 1, "5.7.0", "c1", [])
    )
    assert len(grid.watchers) == 1
    wire.session.closed()
    assert grid.watchers == []
    grid.change(joined)
    assert wire.take() == []


def test_a_token_opens_the_door(grid: OneMemberGrid) -> None:
    grid.user = (None, None, b"token")
    for token, status in ((b"token", 0), (b"other", 1)):
        wire = Wire(grid)
        answer = wire.ask(
            client_authentication_custom_codec, "dev", bytearray(token), CLIENT, "PYH", 1, "5.7.0", "c1", []
        )
        assert answer["status"] == status
        assert bool(wire.closed) is (status != 0)


@pytest.mark.parametrize(
    ("cluster", "password", "admitted"),
    [("dev", "right", True), ("dev", "wrong", False), ("prod", "right", False)],
)
def test_a_stranger_is_told_nothing_and_leaves(
    grid: OneMemberGrid, cluster: str, password: str, admitted: bool
) -> None:
    grid.user = ("ada", "right", None)
    wire = Wire(grid)
    answer = wire.login(cluster, "ada", password)
    assert (answer["status"] == 0) is admitted
    assert bool(wire.closed) is not admitted
    if not admitted:
        assert answer["status"] == 1
        assert answer["member_uuid"] is None
        assert answer["address"] is None
        wire.tell(client_ping_codec.encode_request())
        assert wire.take() == []


def test_nothing_is_done_before_authentication(grid: OneMemberGrid) -> None:
    wire = Wire(grid)
    with pytest.raises(AnsweredError, match=r"authenticate before Map\.set") as refused:
        wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=1)
    assert refused.value.code == 3
    assert len(wire.closed) == 1
    assert grid.requests == []
    assert not grid.copies[1].maps


def test_a_stranger_may_not_send_much(grid: OneMemberGrid) -> None:
    wire = Wire(grid)
    wire.session.receive(struct.pack("<iHiqi", 5000, 0xC100, 0x000100, 1, -1))
    assert wire.closed
    (answer,) = wire.take()
    refused = error_of(answer)
    assert refused is not None
    assert refused.code == 3


# -- bytes and messages


def test_messages_may_come_in_any_pieces(grid: OneMemberGrid) -> None:
    wire = Wire(grid)
    wire.login()
    whole = b"".join(
        wire.number(request, 1)[1]
        for request in (
            map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1),
            map_get_codec.encode_request("m", data(KEY), THREAD),
            map_put_all_codec.encode_request("m", [(data(TWO), data(TWO))], True),
            map_put_codec.encode_request("m", data(KEY), data(TWO), THREAD, -1),
        )
    )
    for size in (1, 2, 7, 40, 41, len(whole) - 1):
        grid.copies[1].maps.clear()
        for at in range(0, len(whole), size):
            wire.session.receive(whole[at : at + size])
        answers = wire.take()
        assert sorted(answer.get_message_type() for answer in answers) == [
            0x010101,
            0x010201,
            0x010F01,
            0x012C01,
        ]
        assert grid.copies[1].maps["m"].state.entries == {KEY: TWO, TWO: TWO}


def test_a_large_value_comes_in_many_pieces(wire: Wire, grid: OneMemberGrid) -> None:
    value = b"\xff\xff\xff\xf4" + bytes(3_000_000)
    _, message = wire.number(map_set_codec.encode_request("m", data(KEY), data(value), THREAD, -1), 1)
    for at in range(0, len(message), 65_536):
        assert wire.sent == []
        wire.session.receive(message[at : at + 65_536])
    assert len(wire.take()) == 1
    assert grid.copies[1].maps["m"].state.entries == {KEY: value}


def test_answers_of_one_buffer_leave_in_one_piece(wire: Wire) -> None:
    requests = [
        map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1),
        map_get_codec.encode_request("m", data(KEY), THREAD),
        map_size_codec.encode_request("m"),
        client_ping_codec.encode_request(),
        map_put_codec.encode_request("m", data(KEY), data(TWO), THREAD, -1),
    ]
    wire.session.receive(b"".join(wire.number(request, 1)[1] for request in requests))
    assert len(wire.sent) == 1
    assert len(wire.take()) == 5


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack("<iH", 5, 0xC000),  # shorter than its own header
        struct.pack("<iH", -1, 0xC000),
        struct.pack("<iH", 6, 0xE000),  # no room for a type
        struct.pack("<iHiqi", 22, 0xA000, 0x000B00, 1, -1),  # a fragment
        struct.pack("<iHiqi", 22, 0xE000, 0x012C00, 1, -1),  # parameters missing
        struct.pack("<iHiqi", 22, 0xE000, 0x010200, 1, 1),
        struct.pack("<iHiqiiH", 22, 0xC000, 0x012A00, 1, 1, 8, 0x2000)
        + b"\xff\xff",  # a name that is no UTF-8
        struct.pack("<iHiqiiHciH", 22, 0xC000, 0x012C00, 1, 1, 7, 0, b"m", 6, 0x2000),  # a list that is none
        struct.pack("<iHiqiiHciH", 22, 0xC000, 0x012C00, 1, 1, 7, 0, b"m", 6, 0x3000),  # a list without end
    ],
)
def test_broken_bytes_end_their_own_connection(grid: OneMemberGrid, bad: bytes) -> None:
    wire, other = Wire(grid), Wire(grid)
    wire.login()
    other.login()
    wire.session.receive(
        wire.number(map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1), 1)[1] + bad
    )
    assert len(wire.closed) == 1
    assert grid.copies[1].maps["m"].state.entries == {KEY: ONE}  # what came before is done, and answered
    assert wire.take()[0].get_message_type() == 0x010F01
    wire.session.receive(bad)
    assert len(wire.closed) == 1
    assert wire.sent == []
    assert not other.closed
    assert stored(other.ask(map_get_codec, "m", data(KEY), THREAD, partition=1)) == ONE


@pytest.mark.parametrize(
    ("size", "piece"), [(70_000, 1), (70_000, 7), (70_000, 1000), (3_000_000, 1000), (3_000_000, 1 << 20)]
)
def test_a_message_above_the_limit_is_refused_alone(grid: OneMemberGrid, size: int, piece: int) -> None:
    """Others wait on this connection: it goes on, and nothing of the message is kept while it comes."""
    wire = Wire(grid, limits=LimitSettings(frame_bytes=65_536))
    wire.login()
    large, message = wire.number(
        map_set_codec.encode_request("m", data(KEY), data(ONE + bytes(size)), THREAD, -1), 1
    )
    small, after = wire.number(map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1), 1)
    whole = after + message + after
    for at in range(0, len(whole), piece):
        wire.session.receive(whole[at : at + piece])
        held = wire.session._held
        assert held is None or held.tell() < 70_000
    answers = wire.take()
    assert [answer.get_correlation_id() for answer in answers] == [small, large, small]
    refused = error_of(answers[1])
    assert refused is not None
    assert refused.code == 23
    assert "65536 bytes" in str(refused)
    assert "Map.set was not applied" in str(refused)
    assert not wire.closed
    assert len(grid.knocks) == 1
    assert stored(wire.ask(map_get_codec, "m", data(KEY), THREAD, partition=1)) == ONE


def test_many_small_frames_also_add_up_to_the_limit(grid: OneMemberGrid) -> None:
    wire = Wire(grid, limits=LimitSettings(frame_bytes=65_536))
    wire.login()
    wire.session.receive(struct.pack("<iHiqi", 22, 0xC000, 0x012C00, 1, -1))
    for _ in range(20):
        wire.session.receive(struct.pack("<iH", 1000, 0) * 1 + bytes(994))
    assert not wire.sent
    for _ in range(60):
        wire.session.receive(struct.pack("<iH", 1000, 0) + bytes(994))
    (answer,) = wire.take()
    assert error_of(answer) is not None
    assert wire.session._held is None
    # It ends with the frame that says so, and the connection goes on.
    wire.session.receive(struct.pack("<iH", 6, 0x2000))
    assert stored(wire.ask(map_get_codec, "m", data(KEY), THREAD, partition=1)) is None
    assert not wire.closed


def test_a_stranger_with_a_message_above_the_limit_is_hung_up_on(grid: OneMemberGrid) -> None:
    wire = Wire(grid, limits=LimitSettings(auth_frame_bytes=1024))
    wire.session.receive(struct.pack("<iHiqi", 5000, 0xC000, 0x000100, 1, -1))
    assert len(wire.closed) == 1


def test_junk_in_the_maps_of_the_members_is_passed_over(grid: OneMemberGrid) -> None:
    """Files may hold what clients could store there once."""
    junk = [b"", b"x", KEY[:6], text_data("ok")[:8] + b"\xff\xfe", int_data(7), b"\xff" * 40]
    for copy in grid.copies:
        objects, schemas = copy.open("__objects"), copy.open("__schemas")
        for number, key in enumerate(junk):
            objects.state.entries[key] = junk[-number]
            schemas.state.entries[schema_key(number)] = key
        objects.state.entries[text_data("m")] = b""
    wire = Wire(grid)
    wire.login()
    found = wire.ask(client_get_distributed_objects_codec)
    assert [one.name for one in found] == ["m"]
    for number in range(len(junk)):
        assert wire.ask(client_fetch_schema_codec, number) is None
    assert grid.knocks
    assert not grid.faults


def test_a_hash_word_that_is_none_is_told_all_the_same(grid: OneMemberGrid) -> None:
    """Files may hold what clients could store once."""
    wire = Wire(grid)
    wire.login()
    wire.ask(map_add_entry_listener_codec, "m", True, 255, False)
    grid.lane.set(grid.copies[1], "m", KEY, ONE, 0, 0, 1 << 40)
    grid.lane.remove(grid.copies[1], "m", KEY)
    assert not wire.closed
    assert not grid.faults


def broken(*_: object) -> None:
    raise ZeroDivisionError("a fault of ours")


def test_an_error_before_anything_changes_is_answered_and_the_member_goes_on(
    grid: OneMemberGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, other = Wire(grid), Wire(grid)
    wire.login()
    other.login()
    monkeypatch.setattr(grid, "map_names", broken)
    with pytest.raises(AnsweredError, match=r"unknown.*a fault of ours"):
        wire.ask(client_get_distributed_objects_codec)
    assert len(grid.faults) == 1
    monkeypatch.setattr(Conversation, "partition_of", broken)
    with pytest.raises(AnsweredError, match="nothing was changed"):
        wire.ask(map_put_codec, "m", data(KEY), data(ONE), THREAD, -1)
    assert grid.faults[1][0] == "Map.put"
    assert not wire.closed
    monkeypatch.undo()
    assert stored(other.ask(map_get_codec, "m", data(KEY), THREAD, partition=1)) is None


def test_an_error_after_a_request_was_handed_on_stops_the_member(
    grid: OneMemberGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(grid)
    wire.login()
    monkeypatch.setattr(grid, "execute", broken)
    with pytest.raises(ZeroDivisionError):
        wire.ask(map_put_codec, "m", data(KEY), data(ONE), THREAD, -1)


def test_an_event_that_cannot_be_told_ends_its_own_connection(
    grid: OneMemberGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told in the middle of somebody else's write."""
    wire, other = Wire(grid), Wire(grid)
    wire.login()
    other.login()
    wire.ask(map_add_entry_listener_codec, "m", True, 255, False)
    monkeypatch.setattr(listeners, "entry_event", broken)
    other.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=1)
    assert (len(wire.closed), len(other.closed)) == (1, 0)
    assert stored(other.ask(map_get_codec, "m", data(KEY), THREAD, partition=1)) == ONE


@pytest.mark.parametrize(("key_bytes", "value_bytes"), [(16, 1000), (1000, 16)])
def test_what_is_too_large_for_the_lane_is_left_to_the_member(
    grid: OneMemberGrid, key_bytes: int, value_bytes: int
) -> None:
    wire = Wire(grid, limits=LimitSettings(key_bytes=key_bytes, value_bytes=value_bytes))
    wire.login()
    key, value = text_data("x" * 8), text_data("y" * 8)  # 16 bytes as stored
    for _ in range(2):
        wire.ask(map_put_codec, "m", data(key), data(value), THREAD, -1, partition=1)
    assert len(grid.requests) == 1
    longer = text_data("x" * 9)
    grid.answer_with = Outcome(Status.TOO_LARGE, detail="the limit is 16")
    with pytest.raises(AnsweredError, match="the limit is 16") as refused:
        wire.ask(map_put_codec, "m", data(longer), data(longer), THREAD, -1, partition=1)
    assert refused.value.code == 23


# -- when writes are answered


def known_map(wire: Wire) -> None:
    wire.ask(map_get_codec, "m", data(TWO), THREAD, partition=1)


def test_writes_are_answered_when_their_batch_is_safe(wire: Wire, grid: OneMemberGrid) -> None:
    known_map(wire)
    grid.verdict = None
    requests = [
        map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1),
        map_get_codec.encode_request("m", data(KEY), THREAD),
        map_put_codec.encode_request("m", data(KEY), data(TWO), THREAD, -1),
    ]
    wire.session.receive(b"".join(wire.number(request, 1)[1] for request in requests))
    assert [answer.get_message_type() for answer in wire.take()] == [0x010201]
    assert len(grid.lane.seals) == 1
    grid.settle(safe=True)
    assert len(wire.sent) == 1
    assert [answer.get_message_type() for answer in wire.take()] == [0x010F01, 0x010101]


def test_an_unsafe_batch_is_unknown(wire: Wire, grid: OneMemberGrid) -> None:
    known_map(wire)
    grid.verdict = None
    numbers = [
        wire.tell(map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1), 1),
        wire.tell(map_put_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1), 1),
    ]
    assert wire.take() == []
    grid.settle(safe=False)
    for number, answer in zip(numbers, wire.take(), strict=True):
        assert answer.get_correlation_id() == number
        refused = error_of(answer)
        assert refused is not None
        assert refused.code == 80
        assert "may or may not have been applied" in str(refused)
        assert "the test says so" in str(refused)


def test_a_read_that_waits_for_an_expiry_to_be_safe_is_never_unknown(wire: Wire, grid: OneMemberGrid) -> None:
    """It has found that the entry is over, and the removal is not on the backups: the client may read again."""
    known_map(wire)
    wire.tell(map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, 10), 1)
    wire.take()
    grid.now += 20 * MILLISECOND
    grid.verdict = None
    wire.tell(map_get_codec.encode_request("m", data(KEY), THREAD), 1)
    assert wire.take() == []
    grid.settle(safe=False)
    (answer,) = wire.take()
    refused = error_of(answer)
    assert refused is not None
    assert refused.code == 46


def test_a_remove_that_found_nothing_is_never_unknown(wire: Wire, grid: OneMemberGrid) -> None:
    """It has certainly changed nothing: when what it rests on is not safe the client may ask again."""
    known_map(wire)
    grid.verdict = None
    requests = {
        wire.tell(map_remove_codec.encode_request("m", data(KEY), THREAD), 1): 46,
        wire.tell(map_delete_codec.encode_request("m", data(KEY), THREAD), 1): 46,
        wire.tell(map_put_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1), 1): 80,
        wire.tell(map_remove_codec.encode_request("m", data(KEY), THREAD), 1): 80,
        wire.tell(map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1), 1): 80,
        wire.tell(map_delete_codec.encode_request("m", data(KEY), THREAD), 1): 80,
    }
    assert wire.take() == []
    grid.settle(safe=False)
    errors = {answer.get_correlation_id(): error_of(answer) for answer in wire.take()}
    assert {number: refused and refused.code for number, refused in errors.items()} == requests


@pytest.mark.parametrize("codec", [map_get_codec, map_contains_key_codec])
def test_a_confirmed_read_waits_like_a_write(wire: Wire, grid: OneMemberGrid, codec: ModuleType) -> None:
    known_map(wire)
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=1)
    grid.lane.confirms_reads = True
    grid.verdict = None
    wire.tell(codec.encode_request("m", data(KEY), THREAD), 1)
    assert wire.take() == []
    assert grid.lane.resting == [(1, "m")]
    grid.settle(safe=True)
    assert len(wire.take()) == 1
    wire.tell(codec.encode_request("m", data(KEY), THREAD), 1)
    grid.settle(safe=False)
    refused = error_of(wire.take()[0])
    assert refused is not None
    assert refused.code == 46


def test_a_batch_is_sealed_before_anything_else_is_asked_of_the_member(
    wire: Wire, grid: OneMemberGrid
) -> None:
    """Else the member could seal the batch for somebody else, and this one would be told that all is safe."""
    known_map(wire)
    grid.verdict = None
    seen: list[int] = []
    execute = grid.execute
    grid.execute = lambda request, done: (seen.append(len(grid.lane.seals)), execute(request, done))[1]  # type: ignore[func-returns-value, method-assign]
    requests = [
        map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1),
        map_size_codec.encode_request("m"),
        map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1),
    ]
    wire.session.receive(b"".join(wire.number(request, 1)[1] for request in requests))
    assert seen == [1]
    assert len(grid.lane.seals) == 2


class NotedSteps(SharedSteps):
    def __init__(self, done: list[str]) -> None:
        super().__init__()
        self._done = done

    def end(self, number: int) -> None:
        if number == self.number:
            self._done.append("the step ends")


@pytest.mark.parametrize("pieces", [1, 2])
def test_no_event_is_handled_while_a_read_buffer_is_open(
    wire: Wire, grid: OneMemberGrid, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step of earlier requests ends before the lane writes: else a handover that begins in between would not know
    of these writes, and they would have no batch.
    """
    known_map(wire)
    done: list[str] = []
    grid.lane.steps = NotedSteps(done)
    monkeypatch.setattr(grid.lane, "set", lambda *_: done.append("the lane writes"))
    requests = [
        map_size_codec.encode_request("m"),
        map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1),
    ]
    whole = [wire.number(request, 1)[1] for request in requests]
    for piece in [b"".join(whole)] if pieces == 1 else whole:
        wire.session.receive(piece)
    assert done == ["the step ends", "the lane writes"]


def test_requests_of_one_turn_share_a_step(wire: Wire, grid: OneMemberGrid) -> None:
    """They end none, and neither does the door that looks for a shortcut between them."""
    known_map(wire)
    done: list[str] = []
    grid.lane.steps = NotedSteps(done)
    grid.lane.steps.number = 1
    assert wire.session.fast_path() is not None
    wire.session.receive(wire.number(map_size_codec.encode_request("m"), 1)[1] * 2)
    assert wire.session.fast_path() is None
    assert done == []
    grid.lane.steps.number = 2
    assert wire.session.fast_path() is not None


@pytest.mark.parametrize("slices", [1, 2])
def test_the_step_of_a_request_ends_though_it_began_with_the_request_or_later(
    wire: Wire, grid: OneMemberGrid, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of zones, forwarded frames, or 200 other requests end the step before. Long requests take many turns."""
    known_map(wire)
    done: list[str] = []
    grid.lane.steps = NotedSteps(done)
    execute = grid.execute

    def begin_step(*asked: Any) -> None:
        grid.lane.steps.number += 1
        execute(*asked)

    monkeypatch.setattr(grid, "execute", begin_step)
    monkeypatch.setattr(grid.lane, "set", lambda *_: done.append("the lane writes"))
    keys = [data(KEY + b"%d" % number) for number in range(SLICE_ITEMS * 2)]
    wire.tell(
        map_size_codec.encode_request("m") if slices == 1 else map_get_all_codec.encode_request("m", keys), 1
    )
    wire.tell(map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1), 1)
    assert done == ["the step ends", "the lane writes"]


def test_a_read_that_may_find_an_entry_ended_is_sealed_like_a_write(wire: Wire, grid: OneMemberGrid) -> None:
    known_map(wire)
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, 1000, partition=1)
    grid.verdict = None
    grid.now = SECOND
    wire.tell(map_get_codec.encode_request("m", data(KEY), THREAD), 1)
    assert wire.take() == []
    assert not grid.copies[1].maps["m"].state.entries
    grid.settle(safe=True)
    assert [answer.get_message_type() for answer in wire.take()] == [0x010201]


def test_a_verdict_after_the_end_is_dropped(wire: Wire, grid: OneMemberGrid) -> None:
    known_map(wire)
    grid.verdict = None
    wire.tell(map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1), 1)
    wire.session.closed()
    grid.settle(safe=True)
    assert wire.sent == []


# -- outcomes


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (Status.UNKNOWN, 80, "may or may not have been applied"),
        (Status.MOVED, 46, "not applied"),
        (Status.NOT_READY, 46, "not applied"),
        (Status.CLOSING, 46, "shutting down"),
        (Status.TOO_LARGE, 23, "larger"),
        (Status.NO_ROOM, 27, "disk is full"),
        (Status.NO_MEMORY, 43, "memory is full"),
        (Status.LOST, 27, "partitions of the map are lost"),
    ],
)
def test_each_status_has_its_error(
    wire: Wire, grid: OneMemberGrid, status: Status, code: int, words: str
) -> None:
    grid.answer_with = Outcome(status, detail="because")
    with pytest.raises(AnsweredError, match=words) as refused:
        wire.ask(map_clear_codec, "m")
    assert refused.value.code == code
    assert "(because)" in str(refused.value)


@pytest.mark.rule("routing/R-12")
def test_the_data_lane_takes_nothing_of_a_map_that_has_lost_something(
    wire: Wire, grid: OneMemberGrid
) -> None:
    """Also on a connection that has used it before; afterwards it does again, and other maps never cease."""

    def asked(name: str) -> list[Op]:
        """What goes the general way of a read and a write."""
        grid.requests.clear()
        wire.ask(map_get_codec, name, data(KEY), THREAD, partition=5)
        wire.ask(map_set_codec, name, data(KEY), data(ONE), THREAD, -1, partition=5)
        return [request.op for request in grid.requests]

    assert [(asked(name), asked(name)) for name in ("safe", "other")] == [([Op.GET], [])] * 2
    grid.losses.learn(3, ("safe",))
    grid.lane_access.on_losses()
    assert (asked("safe"), asked("safe")) == ([Op.GET, Op.SET], [Op.GET, Op.SET])
    assert (asked("other"), asked("other")) == ([Op.GET], [])
    grid.losses.learn(3, ())
    grid.lane_access.on_losses()
    for _ in range(2):
        asked("safe")
    first, second = (
        wire.number(map_get_codec.encode_request("safe", data(KEY), THREAD), 5)[1] for _ in range(2)
    )
    grid.requests.clear()
    wire.session.receive(first[:20])
    grid.losses.learn(3, ("safe",))
    grid.lane_access.on_losses()
    wire.session.receive(first[20:] + second)
    assert [request.op for request in grid.requests] == [Op.GET] * 2, "also behind what has come in part"
    wire.take()
    grid.losses.learn(3, ())
    grid.lane_access.on_losses()
    assert (asked("safe"), asked("safe")) == ([Op.GET], [])


@pytest.mark.rule("routing/R-17")
def test_a_member_that_leaves_rejects_requests_so_that_clients_retry_them(
    wire: Wire, grid: OneMemberGrid
) -> None:
    assert not wire.session.unanswered
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=5)
    grid.requests.clear()
    grid.lane_access.leaving = True
    for ask in (
        lambda: wire.ask(map_clear_codec, "m"),
        lambda: wire.ask(map_put_codec, "other", data(KEY), data(ONE), THREAD, -1, partition=5),
        lambda: wire.ask(transaction_create_codec, 600_000, 1, 2, 1),
    ):
        with pytest.raises(AnsweredError, match="about to leave") as refused:
            ask()
        assert refused.value.code == 46
    wire.ask(client_ping_codec)
    assert grid.requests == []
    assert not wire.session.unanswered


def test_a_client_waits_until_its_request_is_answered(wire: Wire, grid: OneMemberGrid) -> None:
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=5)
    grid.verdict = None
    _, whole = wire.number(map_set_codec.encode_request("m", data(KEY), data(ONE), THREAD, -1), 5)
    wire.session.receive(whole[:10])
    assert wire.session.unanswered, "a part of a request has come"
    wire.session.receive(whole[10:])
    assert wire.session.unanswered, "its backups have not answered"
    grid.settle(safe=True)
    assert not wire.session.unanswered


def test_a_client_waits_for_a_request_that_the_data_lane_does_not_serve(
    wire: Wire, grid: OneMemberGrid
) -> None:
    waiting = []
    grid.execute = lambda request, done: waiting.append(done)  # type: ignore[method-assign]
    wire.tell(map_size_codec.encode_request("m"))
    assert wire.session.unanswered
    waiting[0](Outcome(Status.OK, 5))
    assert not wire.session.unanswered


def test_a_client_waits_while_its_session_has_requests_for_later_turns(wire: Wire) -> None:
    wire.session.receive(b"".join(wire.number(client_ping_codec.encode_request())[1] for _ in range(5000)))
    assert wire.session.unanswered
    wire.resume()
    assert not wire.session.unanswered
    assert len(wire.take()) == 5000


def test_part_of_a_write_applied_is_unknown_and_part_of_a_read_is_asked_again() -> None:
    parts = [Outcome(Status.OK), Outcome(Status.MOVED, detail="gone")]
    write = conversation.worst(parts, may_repeat=False)
    read = conversation.worst(parts, may_repeat=True)
    assert write is not None
    assert write.status is Status.UNKNOWN
    assert read is not None
    assert read.status is Status.MOVED
    assert conversation.worst([Outcome(Status.OK)], may_repeat=False) is None
    unknown = conversation.worst([*parts, Outcome(Status.UNKNOWN)], may_repeat=True)
    assert unknown is not None
    assert unknown.status is Status.UNKNOWN


def test_requests_that_wait_are_limited(
    wire: Wire, grid: OneMemberGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "WAITING_MAX", 2)
    waiting = []
    grid.execute = lambda request, done: waiting.append((request, done))  # type: ignore[method-assign]
    wire.tell(map_size_codec.encode_request("m"))
    wire.tell(map_size_codec.encode_request("m"))
    with pytest.raises(AnsweredError, match="2 requests of this connection wait already") as refused:
        wire.ask(map_size_codec, "m")
    assert refused.value.code == 46
    for request, done in waiting:
        assert request.op is Op.SIZE
        done(Outcome(Status.OK, 5))
    assert len(wire.take()) == 2
    wire.tell(map_size_codec.encode_request("m"))
    assert len(waiting) == 3
    wire.session.closed()
    waiting[2][1](Outcome(Status.OK, 5))
    assert wire.sent == []


@pytest.mark.rule("server/F-1")
def test_a_session_stops_when_answers_that_wait_for_backups_take_too_much(
    wire: Wire, grid: OneMemberGrid
) -> None:
    """And goes on, in order, when they have left."""
    large = data(text_data("x" * 10_000))
    flow = wire.session._flow
    flow.most = 25_000
    grid.verdict = None
    number = 20
    wire.tell(map_size_codec.encode_request("m"))
    wire.take()
    requests = [map_put_codec.encode_request("m", data(KEY), large, THREAD, -1) for _ in range(number)]
    wire.session.receive(b"".join(wire.number(request, 1)[1] for request in requests))
    answered = 0
    while grid.lane.seals:
        assert flow.held < 40_000, "a value more than there is room for, at most"
        assert not wire.sent
        waiting, grid.lane.seals = grid.lane.seals, []
        for done in waiting:
            done(True)
        answered += len(wire.take())
        while flow.rest and not flow.must_halt:
            wire.session.resume()
    assert answered == number
    assert not flow.halted


def test_silence_is_measured_from_the_last_bytes(wire: Wire, grid: OneMemberGrid) -> None:
    assert wire.session.silent_ns() == 0
    grid.now = 5 * SECOND
    assert wire.session.silent_ns() == 5 * SECOND
    wire.ask(client_ping_codec)
    assert wire.session.silent_ns() == 0
    grid.now = 6 * SECOND
    assert wire.session.silent_ns() == SECOND
