"""The data lane of maps that live in zones: what a session asks of the member, and what it does with the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hazelcast.protocol.client_message import Frame, InboundMessage
from hazelcast.protocol.codec import (
    map_contains_key_codec,
    map_delete_codec,
    map_evict_codec,
    map_get_all_codec,
    map_get_codec,
    map_get_entry_view_codec,
    map_put_all_codec,
    map_put_codec,
    map_put_if_absent_codec,
    map_put_with_max_idle_codec,
    map_remove_codec,
    map_remove_if_same_codec,
    map_replace_codec,
    map_replace_if_same_codec,
    map_set_codec,
    map_set_ttl_codec,
    map_set_with_max_idle_codec,
    map_size_codec,
    map_try_put_codec,
    map_try_remove_codec,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.server.hazelcast.one_member import OneMemberGrid, int_data, text_data
from tests.server.hazelcast.wire import Wire, data, error_of, stored

from holdfast.config import LimitSettings
from holdfast.config.loading import load
from holdfast.config.users import users_of
from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import ZONE_IDLE_TIMES
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast.core.model.zone_batches import ZoneBatchDone, ZoneChanges, ZoneWrites
from holdfast.server.hazelcast.reference_lane import BATCH_ANSWER_BYTES
from holdfast.server.rights import Rights

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
    partition, [part] = batch.changes[0]
    assert (partition, part.writes[:2]) == (AT[one], [("m", one, ONE, 0, 0), ("m", one, TWO, 0, 0)])
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
    assert [
        (partition, len(part.writes)) for batch, _ in grid.batches for partition, [part] in batch.changes
    ] == [(AT[KEYS[0]], 1)] * 2


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
    grid.verdict = None
    wire.session.receive(
        buffer(wire, (map_set_codec.encode_request("m", data(key), data(ONE), THREAD, -1), key))
    )
    assert not grid.requests
    [(batch, _)] = grid.batches
    assert [request.op for request in batch.changes[0][1][0].requests] == [Op.SET]
    grid.carry_out()
    assert held.state.expiries[key].max_idle_ms == 500
    wire.take()
    grid.level = ZONE_IDLE_TIMES - 1
    given = map_set_with_max_idle_codec.encode_request("m", data(key), data(ONE), THREAD, -1, 700)
    wire.session.receive(buffer(wire, (given, key)))
    assert [request.op for request in grid.requests] == [Op.SET], "the general way rejects it"


def test_a_put_all_has_the_idle_time_of_its_map(grid: OneMemberGrid) -> None:
    grid.zoned.add("m")
    grid.own_max_idle_ms = 500
    wire = Wire(grid)
    wire.login()
    wire.ask(map_get_codec, "m", data(KEYS[0]), THREAD, partition=AT[KEYS[0]])
    grid.requests.clear()
    wire.session.receive(buffer(wire, made("put_all", KEYS[0], ONE, TWO)))
    assert grid.requests == []
    assert grid.copies[AT[KEYS[0]]].maps["m"].state.expiries[KEYS[0]].max_idle_ms == 500


@pytest.mark.parametrize("name", ["set", "replace", "put_all"])
def test_changes_of_a_client_that_may_only_read_are_rejected(grid: OneMemberGrid, name: str) -> None:
    grid.zoned.add("m")
    settings = load(overrides={"users.u.roles": ["r"], "roles.r.rules": ["map m read"]})
    grid.rights = Rights(users_of(settings)["u"])
    wire = Wire(grid)
    wire.login()
    wire.ask(map_get_codec, "m", data(KEYS[0]), THREAD, partition=AT[KEYS[0]])
    grid.requests.clear()
    wire.session.receive(buffer(wire, made(name, KEYS[0], ONE, TWO), get(KEYS[0])))
    answers = [error_of(answer) for answer in wire.take()]
    assert [answer is None for answer in answers] in ([False, True], [True, False])
    assert grid.requests == []


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


Made = tuple[object, bytes]
"""A request and a key of its partition."""
SINGLE: dict[str, Callable[[bytes, bytes, bytes], object]] = {
    "get": lambda key, value, other: map_get_codec.encode_request("m", key, THREAD),
    "contains_key": lambda key, value, other: map_contains_key_codec.encode_request("m", key, THREAD),
    "view": lambda key, value, other: map_get_entry_view_codec.encode_request("m", key, THREAD),
    "put": lambda key, value, other: map_put_codec.encode_request("m", key, value, THREAD, -1),
    "put with a time": lambda key, value, other: map_put_codec.encode_request("m", key, value, THREAD, 5000),
    "put with idle": lambda key, value, other: map_put_with_max_idle_codec.encode_request(
        "m", key, value, THREAD, -1, 9000
    ),
    "set": lambda key, value, other: map_set_codec.encode_request("m", key, value, THREAD, -1),
    "remove": lambda key, value, other: map_remove_codec.encode_request("m", key, THREAD),
    "delete": lambda key, value, other: map_delete_codec.encode_request("m", key, THREAD),
    "try_put": lambda key, value, other: map_try_put_codec.encode_request("m", key, value, THREAD, 0),
    "try_remove": lambda key, value, other: map_try_remove_codec.encode_request("m", key, THREAD, 0),
    "put_if_absent": lambda key, value, other: map_put_if_absent_codec.encode_request(
        "m", key, value, THREAD, -1
    ),
    "replace": lambda key, value, other: map_replace_codec.encode_request("m", key, value, THREAD),
    "replace_if_same": lambda key, value, other: map_replace_if_same_codec.encode_request(
        "m", key, other, value, THREAD
    ),
    "remove_if_same": lambda key, value, other: map_remove_if_same_codec.encode_request(
        "m", key, other, THREAD
    ),
    "set_ttl": lambda key, value, other: map_set_ttl_codec.encode_request("m", key, 7000),
    "evict": lambda key, value, other: map_evict_codec.encode_request("m", key, THREAD),
}
BATCHES = ("get_all", "put_all")


def made(name: str, key: bytes, value: bytes, other: bytes) -> Made:
    """`other`: the expected value. A batch has all keys of the partition."""
    together = [one for one in KEYS if AT[one] == AT[key]]
    if name == "get_all":
        return map_get_all_codec.encode_request("m", [data(one) for one in together]), key
    if name == "put_all":
        entries = [(data(one), data(value)) for one in together]
        return map_put_all_codec.encode_request("m", entries, False), key
    return SINGLE[name](data(key), data(value), data(other)), key


@pytest.mark.parametrize("name", [*SINGLE, *BATCHES])
def test_every_request_for_entries_is_on_the_lane(zoned: Wire, grid: OneMemberGrid, name: str) -> None:
    zoned.session.receive(buffer(zoned, put(KEYS[1], ONE), made(name, KEYS[1], TWO, ONE), get(KEYS[1])))
    assert grid.requests == []
    assert len(grid.batches) == 1
    grid.carry_out()
    answers = zoned.take()
    assert len(answers) == 3
    assert all(error_of(answer) is None for answer in answers)
    assert zoned.session._flow.held == 0


@pytest.mark.parametrize("name", [*SINGLE, *BATCHES])
@pytest.mark.parametrize("status", [Status.MOVED, Status.UNKNOWN])
def test_each_failed_request_is_served_again_or_rejected(
    zoned: Wire, grid: OneMemberGrid, name: str, status: Status
) -> None:
    grid.fails = Outcome(status, None, "another leader")
    zoned.session.receive(buffer(zoned, made(name, KEYS[1], TWO, ONE), put(KEYS[2], ONE)))
    grid.carry_out()
    answers = [error_of(answer) for answer in zoned.take()]
    assert len(answers) == 2
    if status is Status.MOVED:
        assert len(grid.requests) == 2, "it had no effect"
        assert answers == [None, None]
    else:
        assert grid.requests == []
        assert all(answer is not None and "another leader" in str(answer) for answer in answers)


def test_one_failed_map_of_a_buffer_is_served_again_alone(zoned: Wire, grid: OneMemberGrid) -> None:
    """Two maps of one partition: the changes of one are applied, those of the other, which is closed, are not."""
    grid.zoned.add("n")
    grid.verdict = True
    key = KEYS[1]
    zoned.ask(map_get_codec, "n", data(key), THREAD, partition=AT[key])
    grid.requests.clear()
    grid.verdict = None
    other = map_replace_codec.encode_request("n", data(key), data(TWO), THREAD), key
    zoned.session.receive(buffer(zoned, put(key, ONE), other, made("replace", key, TWO, ONE), get(key)))
    [(batch, done)] = grid.batches
    assert [(partition, sum(map(len, map(_changes, parts)))) for partition, parts in batch.changes] == [
        (AT[key], 2),
        (AT[key], 1),
    ]
    grid.copies[AT[key]].open("m").state.entries[key] = THREE
    done(ZoneBatchDone([(0, [None, ONE])], [(1, Outcome(Status.MOVED, None, "the map is closed"))]))
    assert [(each.op, each.map) for each in grid.requests] == [(Op.REPLACE, "n")]
    assert len(zoned.take()) == 4


def _changes(part: ZoneChanges) -> Sequence[object]:
    return part.writes if isinstance(part, ZoneWrites) else part.requests


def test_local_views_and_batches_are_answered_at_once(grid: OneMemberGrid) -> None:
    grid.zoned.add("m")
    grid.local = True
    wire = Wire(grid)
    wire.login()
    wire.ask(map_set_codec, "m", data(KEYS[0]), data(ONE), THREAD, -1, partition=AT[KEYS[0]])
    grid.requests.clear()
    grid.verdict = None
    wire.session.receive(buffer(wire, made("view", KEYS[0], ONE, ONE), made("get_all", KEYS[0], ONE, ONE)))
    view, entries = wire.take()
    assert stored(map_get_entry_view_codec.decode_response(view)["response"].value) == ONE
    assert [(stored(key), stored(value)) for key, value in map_get_all_codec.decode_response(entries)] == [
        (KEYS[0], ONE)
    ]
    assert grid.batches == []
    assert grid.requests == []


@pytest.mark.parametrize("begins_again", [False, True])
def test_reads_of_a_map_that_has_gone_meanwhile_have_what_was_found(
    zoned: Wire, grid: OneMemberGrid, *, begins_again: bool
) -> None:
    key = KEYS[0]
    copy = grid.copies[AT[key]]
    copy.open("m").state.entries[key] = ONE
    zoned.session.receive(
        buffer(zoned, get(key), made("view", key, ONE, ONE), made("get_all", key, ONE, ONE))
    )
    copy.forget("m")
    if begins_again:
        copy.open("m").state.entries[key] = TWO
    grid.carry_out()
    value, view, entries = zoned.take()
    assert stored(map_get_codec.decode_response(value)) == ONE
    assert stored(map_get_entry_view_codec.decode_response(view)["response"].value) == ONE
    assert [stored(found) for _, found in map_get_all_codec.decode_response(entries)] == [ONE]


def test_a_long_answer_to_a_batch_is_left_to_the_session(zoned: Wire, grid: OneMemberGrid) -> None:
    key = KEYS[0]
    grid.copies[AT[key]].open("m").state.entries[key] = bytes(BATCH_ANSWER_BYTES)
    zoned.session.receive(buffer(zoned, made("get_all", key, ONE, ONE)))
    assert [request.op for request in grid.requests] == [Op.GET_ALL]


@pytest.mark.parametrize("name", ["get", "view", "get_all"])
def test_all_kinds_of_reads_log_their_uses(zoned: Wire, grid: OneMemberGrid, name: str) -> None:
    key = KEYS[0]
    grid.copies[AT[key]].open("m").state.store(key, ONE, 0, 1000, 0, 0)
    grid.now = SECOND // 2
    zoned.session.receive(buffer(zoned, made(name, key, ONE, ONE)))
    assert len(grid.requests) == 1
    assert grid.batches == []


OPERATIONS = st.tuples(st.sampled_from([*SINGLE, *BATCHES]), st.integers(0, 3), st.integers(0, 3))


@given(st.lists(OPERATIONS, max_size=30), st.lists(st.integers(1, 90), max_size=12))
def test_a_zone_answers_as_primaries_do(operations: list[tuple[str, int, int]], pieces: list[int]) -> None:
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
        for count, (name, at, value) in enumerate(operations):
            piece = buffer(wire, made(name, KEYS[at], int_data(value), int_data(value ^ 1)))
            cut = pieces[count % len(pieces)] % len(piece) if pieces else 0
            wire.session.receive(whole + piece[:cut])
            whole = piece[cut:]
        wire.session.receive(whole)
        wire.resume()
        held = [copy.open("m").state for copy in grid.copies]
        entries = {key: value for state in held for key, value in state.entries.items()}
        ends = {key: (one.ttl_ms, one.max_idle_ms) for state in held for key, one in state.expiries.items()}
        found.append((sorted(_bytes(wire)), entries, ends))
    assert found[0] == found[1]
