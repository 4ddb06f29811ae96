"""The data lane of maps that live in zones: what a session asks of the member, and what it does with the answers."""

from __future__ import annotations

import pytest
from hazelcast.protocol.client_message import Frame, InboundMessage
from hazelcast.protocol.codec import (
    map_contains_key_codec,
    map_delete_codec,
    map_get_codec,
    map_put_codec,
    map_remove_codec,
    map_set_codec,
    map_size_codec,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.server.hazelcast.one_member import OneMemberGrid, int_data, text_data
from tests.server.hazelcast.wire import Wire, data, error_of, stored

from holdfast.config import LimitSettings
from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Status

THREAD = 7
ONE, TWO, THREE = int_data(1), int_data(2), int_data(3)
KEYS = [text_data(f"k{at}") for at in range(12)]
AT = {key: partition_of(key, 0, 7) for key in KEYS}


@pytest.fixture
def zoned(grid: OneMemberGrid) -> Wire:
    """A connection whose session knows that map "m" lives in a zone."""
    grid.zoned.add("m")
    wire = Wire(grid)
    wire.login()
    wire.ask(map_get_codec, "m", data(KEYS[0]), THREAD, partition=AT[KEYS[0]])
    grid.requests.clear()
    grid.verdict = None
    return wire


def buffer(wire: Wire, *requests: tuple[object, bytes]) -> bytes:
    return b"".join(wire.number(request, AT[key])[1] for request, key in requests)  # type: ignore[arg-type]


def put(key: bytes, value: bytes) -> tuple[object, bytes]:
    return map_put_codec.encode_request("m", data(key), data(value), THREAD, -1), key


def get(key: bytes, name: str = "m") -> tuple[object, bytes]:
    return map_get_codec.encode_request(name, data(key), THREAD), key


def test_a_buffer_is_one_batch_and_is_answered_when_that_is_done(zoned: Wire, grid: OneMemberGrid) -> None:
    one, two = KEYS[:2]
    zoned.session.receive(buffer(zoned, put(one, ONE), put(one, TWO), put(two, THREE), get(one), get(two)))
    assert zoned.take() == []
    assert grid.requests == []
    ((batch, _),) = grid.batches
    assert dict(batch.writes)[AT[one]][:2] == [("m", one, ONE, 0, 0), ("m", one, TWO, 0, 0)]
    assert batch.reads == list(dict.fromkeys([AT[one], AT[two]]))
    grid.carry_out()
    found = {
        answer.get_correlation_id(): stored(
            (map_put_codec if answer.get_message_type() == 0x010101 else map_get_codec).decode_response(
                answer
            )
        )
        for answer in zoned.take()
    }
    first = min(found)
    assert [found[first + at] for at in range(5)] == [None, ONE, None, TWO, THREE], (
        "reads are answered with what is there when the batch is done"
    )
    assert zoned.session._flow.held == 0
    assert grid.reads == {"m": 2}


def test_a_local_read_is_answered_at_once(grid: OneMemberGrid) -> None:
    grid.zoned.add("m")
    grid.local = True
    wire = Wire(grid)
    wire.login()
    wire.ask(map_set_codec, "m", data(KEYS[0]), data(ONE), THREAD, -1, partition=AT[KEYS[0]])
    grid.verdict = None
    assert stored(wire.ask(map_get_codec, "m", data(KEYS[0]), THREAD, partition=AT[KEYS[0]])) == ONE
    assert wire.ask(map_contains_key_codec, "m", data(KEYS[1]), THREAD, partition=AT[KEYS[1]]) is False
    assert grid.batches == []


def test_what_was_certainly_not_done_takes_the_general_way(zoned: Wire, grid: OneMemberGrid) -> None:
    grid.fails = Outcome(Status.MOVED, None, "another leader")
    zoned.session.receive(buffer(zoned, put(KEYS[1], ONE), get(KEYS[2]), put(KEYS[3], TWO)))
    grid.carry_out()
    assert [(each.op, each.key) for each in grid.requests] == [
        (Op.PUT, KEYS[1]),
        (Op.GET, KEYS[2]),
        (Op.PUT, KEYS[3]),
    ]
    assert all(error_of(answer) is None for answer in zoned.take())
    assert grid.copies[AT[KEYS[1]]].maps["m"].state.entries[KEYS[1]] == ONE


def test_what_nobody_knows_is_said_to_be_unknown(zoned: Wire, grid: OneMemberGrid) -> None:
    grid.fails = Outcome(Status.UNKNOWN, None, "nobody knows")
    zoned.session.receive(buffer(zoned, put(KEYS[1], ONE), get(KEYS[2])))
    grid.carry_out()
    assert grid.requests == []
    answers = [error_of(answer) for answer in zoned.take()]
    assert all(each is not None and "nobody knows" in str(each) for each in answers)
    assert len({each.code for each in answers if each is not None}) == 2


def test_a_partition_that_is_led_elsewhere_takes_the_general_way(zoned: Wire, grid: OneMemberGrid) -> None:
    away = next(key for key in KEYS if AT[key] != AT[KEYS[0]])
    grid.entries.serving[AT[away]] = None
    zoned.session.receive(buffer(zoned, put(KEYS[0], ONE), put(away, TWO), put(KEYS[0], THREE)))
    assert [each.key for each in grid.requests] == [away]
    assert [len(dict(batch.writes)[AT[KEYS[0]]]) for batch, _ in grid.batches] == [1, 1]


def test_maps_with_a_primary_and_whole_operations_may_come_between(zoned: Wire, grid: OneMemberGrid) -> None:
    grid.verdict = True
    zoned.ask(map_get_codec, "p", data(KEYS[0]), THREAD, partition=AT[KEYS[0]])
    pieces = buffer(zoned, put(KEYS[0], ONE), get(KEYS[0], "p"), put(KEYS[0], TWO))
    size = zoned.number(map_size_codec.encode_request("m"))[1]
    zoned.session.receive(pieces + size + buffer(zoned, put(KEYS[0], THREE), get(KEYS[0])))
    answers = zoned.take()
    assert len(answers) == 6
    assert all(error_of(answer) is None for answer in answers)
    assert grid.copies[AT[KEYS[0]]].maps["m"].state.entries == {KEYS[0]: THREE}


def test_a_map_s_own_time_to_live_is_said_by_the_session(grid: OneMemberGrid) -> None:
    grid.zoned.add("m")
    grid.own_ttl_ms = 1000
    wire = Wire(grid)
    wire.login()
    key = KEYS[0]
    wire.ask(map_get_codec, "m", data(key), THREAD, partition=AT[key])
    wire.ask(map_set_codec, "m", data(key), data(ONE), THREAD, -1, partition=AT[key])
    wire.ask(map_set_codec, "m", data(KEYS[1]), data(ONE), THREAD, 0, partition=AT[KEYS[1]])
    grid.now += 2 * SECOND
    assert wire.ask(map_get_codec, "m", data(key), THREAD, partition=AT[key]) is None
    assert stored(wire.ask(map_get_codec, "m", data(KEYS[1]), THREAD, partition=AT[KEYS[1]])) == ONE
    wire.ask(map_delete_codec, "m", data(key), THREAD, partition=AT[key])
    assert wire.ask(map_remove_codec, "m", data(key), THREAD, partition=AT[key]) is None


def test_uses_that_must_be_logged_take_the_general_way(grid: OneMemberGrid) -> None:
    grid.zoned.add("m")
    key = KEYS[0]
    held = grid.copies[AT[key]].open("m")
    held.state.store(key, ONE, 0, 1000, 0, 0)
    wire = Wire(grid)
    wire.login()
    wire.ask(map_get_codec, "m", data(key), THREAD, partition=AT[key])
    grid.requests.clear()
    wire.ask(map_get_codec, "m", data(key), THREAD, partition=AT[key])
    assert grid.requests == [], "the store is of this moment"
    grid.now = SECOND // 2
    grid.reads.clear()
    wire.ask(map_get_codec, "m", data(key), THREAD, partition=AT[key])
    assert [request.op for request in grid.requests] == [Op.GET]
    assert not grid.reads, "it is counted once"
    grid.requests.clear()
    grid.own_max_idle_ms = 500
    wire = Wire(grid)
    wire.login()
    wire.ask(map_get_codec, "m", data(KEYS[1]), THREAD, partition=AT[KEYS[1]])
    grid.requests.clear()
    wire.ask(map_set_codec, "m", data(key), data(ONE), THREAD, -1, partition=AT[key])
    wire.ask(map_delete_codec, "m", data(key), THREAD, partition=AT[key])
    assert [request.op for request in grid.requests] == [Op.SET]


def test_what_is_too_long_is_refused_by_the_general_way(grid: OneMemberGrid) -> None:
    grid.zoned.add("m")
    wire = Wire(grid, limits=LimitSettings(key_bytes=20, value_bytes=8))
    wire.login()
    wire.ask(map_get_codec, "m", data(KEYS[0]), THREAD, partition=AT[KEYS[0]])
    grid.requests.clear()
    wire.ask(map_set_codec, "m", data(KEYS[0]), data(ONE), THREAD, -1, partition=AT[KEYS[0]])
    assert grid.requests == []
    for key, value in ((KEYS[0], text_data("longer")), (text_data("k" * 30), ONE)):
        wire.ask(map_set_codec, "m", data(key), data(value), THREAD, -1, partition=1)
    assert len(grid.requests) == 2


def test_who_has_gone_hears_nothing(zoned: Wire, grid: OneMemberGrid) -> None:
    grid.fails = Outcome(Status.MOVED, None, "another leader")
    zoned.session.receive(buffer(zoned, put(KEYS[1], ONE), get(KEYS[2])))
    zoned.session.closed()
    grid.carry_out()
    assert zoned.take() == []
    assert grid.requests == []


def _bytes(wire: Wire) -> list[bytes]:
    """Each answer as it was sent."""
    return [b"".join(bytes(frame.buf) for frame in _frames(answer)) for answer in wire.take()]


def _frames(answer: InboundMessage) -> list[Frame]:
    frames = []
    while answer.has_next_frame():
        frames.append(answer.next_frame())
    return frames


OPERATIONS = st.tuples(
    st.sampled_from(["get", "put", "set", "remove", "delete", "contains_key"]), st.integers(0, 3)
)


@given(st.lists(OPERATIONS, max_size=30), st.lists(st.integers(1, 90), max_size=12))
def test_a_zone_answers_as_primaries_do(operations: list[tuple[str, int]], pieces: list[int]) -> None:
    """The same requests, one buffer each, in the same pieces: the same answers and the same entries."""
    found = []
    for zone in (False, True):
        grid = OneMemberGrid()
        if zone:
            grid.zoned.add("m")
        wire = Wire(grid)
        wire.login()
        wire.ask(map_get_codec, "m", data(KEYS[0]), THREAD, partition=AT[KEYS[0]])
        whole = b""
        for count, (name, at) in enumerate(operations):
            key, value = KEYS[at], int_data(count)
            codec = {
                "get": map_get_codec,
                "put": map_put_codec,
                "set": map_set_codec,
                "remove": map_remove_codec,
                "delete": map_delete_codec,
                "contains_key": map_contains_key_codec,
            }[name]
            more = (data(value), THREAD, -1) if name in ("put", "set") else (THREAD,)
            piece = wire.number(codec.encode_request("m", data(key), *more), AT[key])[1]
            cut = pieces[count % len(pieces)] % len(piece) if pieces else 0
            wire.session.receive(whole + piece[:cut])
            whole = piece[cut:]
        wire.session.receive(whole)
        wire.resume()
        entries = {key: value for copy in grid.copies for key, value in copy.open("m").state.entries.items()}
        found.append((sorted(_bytes(wire)), entries))
    assert found[0] == found[1]
