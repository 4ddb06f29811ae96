"""Every operation on maps, asked and understood with the codecs of the official client."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from hazelcast.protocol.client_message import OutboundMessage, create_initial_buffer
from hazelcast.protocol.codec import (
    map_clear_codec,
    map_contains_value_codec,
    map_entry_set_codec,
    map_evict_all_codec,
    map_flush_codec,
    map_get_all_codec,
    map_get_codec,
    map_get_entry_view_codec,
    map_is_empty_codec,
    map_key_set_codec,
    map_key_set_with_predicate_codec,
    map_load_all_codec,
    map_load_given_keys_codec,
    map_put_all_codec,
    map_put_codec,
    map_put_if_absent_with_max_idle_codec,
    map_remove_all_codec,
    map_set_codec,
    map_set_ttl_codec,
    map_set_with_max_idle_codec,
    map_size_codec,
    map_values_codec,
)
from hazelcast.serialization.data import Data
from tests.server.hazelcast.one_member import OneMemberGrid, int_data, text_data
from tests.server.hazelcast.wire import AnsweredError, Wire, data, error_of, split, stored

from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Status

KEY = text_data("k")
ONE, TWO, THREE = int_data(1), int_data(2), int_data(3)
THREAD = 7
PARTITION = partition_of(KEY, 0, 7)
NO_END = (1 << 63) - 1
TRUE_PREDICATE = bytes.fromhex("fffffffe01ffffffec0000000e")
SQL_PREDICATE = bytes.fromhex("fffffffe01ffffffec0000000000000001") + b"x"


def codec(name: str) -> Any:
    return importlib.import_module(f"hazelcast.protocol.codec.map_{name}_codec")


@pytest.fixture(params=["data lane", "general way", "data lane of a zone"])
def one_key(request: pytest.FixtureRequest, wire: Wire, grid: OneMemberGrid) -> Callable[..., Any]:
    """Asks for an operation on one key of map "m": as its member would, as any other member would, or in a zone."""
    if request.param == "data lane of a zone":
        grid.zoned.add("m")
    wire.ask(map_get_codec, "m", data(KEY), THREAD, partition=PARTITION)  # from now on the lane knows the map
    if request.param == "general way":
        grid.away(PARTITION)

    def ask(name: str, *parameters: Any) -> Any:
        sendable = [data(each) if isinstance(each, bytes) else each for each in parameters]
        return wire.ask(codec(name), "m", data(KEY), *sendable, partition=PARTITION)

    return ask


def test_one_key(one_key: Callable[..., Any], grid: OneMemberGrid) -> None:
    assert one_key("get", THREAD) is None
    assert one_key("contains_key", THREAD) is False
    assert one_key("put", ONE, THREAD, -1) is None
    assert stored(one_key("put", TWO, THREAD, -1)) == ONE
    assert stored(one_key("get", THREAD)) == TWO
    assert one_key("contains_key", THREAD) is True
    one_key("set", THREE, THREAD, -1)
    assert stored(one_key("get", THREAD)) == THREE
    assert stored(one_key("remove", THREAD)) == THREE
    assert one_key("remove", THREAD) is None
    one_key("set", ONE, THREAD, -1)
    one_key("delete", THREAD)
    assert one_key("get", THREAD) is None
    assert len(grid.requests) == (1 if grid.lane.serving[PARTITION] else 14)


def test_one_key_conditions(one_key: Callable[..., Any]) -> None:
    assert one_key("replace", ONE, THREAD) is None
    assert one_key("put_if_absent", ONE, THREAD, -1) is None
    assert stored(one_key("put_if_absent", TWO, THREAD, -1)) == ONE
    assert stored(one_key("replace", TWO, THREAD)) == ONE
    assert one_key("replace_if_same", ONE, THREE, THREAD) is False
    assert one_key("replace_if_same", TWO, THREE, THREAD) is True
    assert one_key("remove_if_same", TWO, THREAD) is False
    assert one_key("remove_if_same", THREE, THREAD) is True
    assert one_key("try_remove", THREAD, 0) is False
    assert one_key("try_put", ONE, THREAD, 0) is True
    assert one_key("try_remove", THREAD, 0) is True
    assert one_key("evict", THREAD) is False
    one_key("put_transient", TWO, THREAD, -1)
    assert stored(one_key("get", THREAD)) == TWO
    assert one_key("evict", THREAD) is True


def test_reads_stay_in_the_lane_while_writes_are_refused(wire: Wire, grid: OneMemberGrid) -> None:
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=PARTITION)
    grid.be_passive()
    before = len(grid.requests)
    found = wire.ask(map_get_codec, "m", data(KEY), THREAD, partition=PARTITION)
    assert stored(found) == ONE
    assert len(grid.requests) == before
    with pytest.raises(AnsweredError, match="passive"):
        wire.ask(codec("remove"), "m", data(KEY), THREAD, partition=PARTITION)
    with pytest.raises(AnsweredError, match="passive"):
        wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=PARTITION)
    assert len(grid.requests) == before + 2


def test_time_to_live_in_the_lane(wire: Wire, grid: OneMemberGrid) -> None:
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=PARTITION)
    requests = len(grid.requests)
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, 2000, partition=PARTITION)
    grid.now = SECOND
    assert stored(wire.ask(map_get_codec, "m", data(KEY), THREAD, partition=PARTITION)) == ONE
    grid.now = 2 * SECOND
    assert wire.ask(map_get_codec, "m", data(KEY), THREAD, partition=PARTITION) is None
    assert len(grid.requests) == requests


def test_entry_view(wire: Wire, grid: OneMemberGrid) -> None:
    assert wire.ask(map_get_entry_view_codec, "m", data(KEY), THREAD)["response"] is None
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1)
    answer = wire.ask(map_get_entry_view_codec, "m", data(KEY), THREAD)
    assert answer["max_idle"] == NO_END
    view = answer["response"]
    assert (stored(view.key), stored(view.value)) == (KEY, ONE)
    assert (view.ttl, view.expiration_time, view.hits) == (NO_END, NO_END, -1)
    wire.ask(map_set_with_max_idle_codec, "m", data(KEY), data(TWO), THREAD, 60_000, 10_000)
    grid.now = 4 * SECOND
    answer = wire.ask(map_get_entry_view_codec, "m", data(KEY), THREAD)
    view = answer["response"]
    assert (view.ttl, answer["max_idle"]) == (60_000, 10_000)
    assert view.expiration_time == grid.wall_ms() + 10_000  # being viewed was a use
    assert wire.ask(map_set_ttl_codec, "m", data(KEY), 5000) is True
    assert wire.ask(map_get_entry_view_codec, "m", data(KEY), THREAD)["response"].ttl == 5000
    assert wire.ask(map_put_if_absent_with_max_idle_codec, "n", data(KEY), data(ONE), THREAD, -1, 900) is None
    assert grid.requests[-1].max_idle_ms == 900


def test_whole_maps(wire: Wire) -> None:
    assert wire.ask(map_is_empty_codec, "m") is True
    entries = {text_data(f"k{number}"): int_data(number) for number in range(20)}
    pairs = [(data(key), data(value)) for key, value in entries.items()]
    wire.ask(map_put_all_codec, "m", pairs, True)  # without a partition: the member sorts them
    assert wire.ask(map_size_codec, "m") == 20
    assert wire.ask(map_is_empty_codec, "m") is False
    assert {stored(key) for key in wire.ask(map_key_set_codec, "m")} == set(entries)
    assert sorted(map(stored, wire.ask(map_values_codec, "m"))) == sorted(entries.values())  # type: ignore[type-var]
    found = {stored(key): stored(value) for key, value in wire.ask(map_entry_set_codec, "m")}
    assert found == entries
    assert wire.ask(map_contains_value_codec, "m", data(int_data(7))) is True
    assert wire.ask(map_contains_value_codec, "m", data(int_data(70))) is False
    some = [data(key) for key in [*list(entries)[:5], text_data("none")]]
    found = {stored(key): stored(value) for key, value in wire.ask(map_get_all_codec, "m", some)}
    assert found == dict(list(entries.items())[:5])
    wire.ask(map_flush_codec, "m")
    wire.ask(map_clear_codec, "m")
    assert wire.ask(map_size_codec, "m") == 0
    wire.ask(map_put_all_codec, "m", pairs, True)
    wire.ask(map_evict_all_codec, "m")
    assert wire.ask(map_is_empty_codec, "m") is True
    assert wire.ask(map_get_all_codec, "m", []) == []


def test_keys_of_one_partition_go_as_one_request(wire: Wire, grid: OneMemberGrid) -> None:
    wire.ask(map_get_all_codec, "m", [data(KEY), data(ONE)], partition=3)
    assert [(request.op, request.partitions, request.items) for request in grid.requests] == [
        (Op.GET_ALL, [3], [KEY, ONE])
    ]


def test_entries_are_stored_where_their_keys_belong(wire: Wire, grid: OneMemberGrid) -> None:
    for partition, key_hash in ((-1, 0), (PARTITION, 0), (-1, -5)):
        wire.ask(map_put_codec, "m", data(KEY, key_hash), data(ONE), THREAD, -1, partition=partition)
    assert [request.partitions for request in grid.requests] == [
        [PARTITION],
        [5],
    ]  # the middle one took the lane
    assert grid.requests[-1].key_hash == -5


def test_the_hash_word_of_a_key_is_kept_in_the_lane_too(wire: Wire, grid: OneMemberGrid) -> None:
    wire.ask(map_put_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=5)
    wire.ask(map_put_codec, "m", data(KEY, -5), data(ONE), THREAD, -1, partition=5)
    assert len(grid.requests) == 1
    assert grid.copies[5].maps["m"].state.hashes == {KEY: -5}


def test_predicates(wire: Wire) -> None:
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1)
    assert [stored(key) for key in wire.ask(map_key_set_with_predicate_codec, "m", data(TRUE_PREDICATE))] == [
        KEY
    ]
    with pytest.raises(
        AnsweredError, match=r"Map\.keySetWithPredicate with a predicate other than"
    ) as refused:
        wire.ask(map_key_set_with_predicate_codec, "m", data(SQL_PREDICATE))
    assert refused.value.code == 61
    with pytest.raises(AnsweredError, match=r"Map\.removeAll"):
        wire.ask(map_remove_all_codec, "m", data(SQL_PREDICATE))
    assert wire.ask(map_size_codec, "m") == 1
    wire.ask(map_remove_all_codec, "m", data(TRUE_PREDICATE))
    assert wire.ask(map_size_codec, "m") == 0


def test_loading_without_a_map_store_loads_nothing(wire: Wire) -> None:
    wire.ask(map_load_all_codec, "m", True)
    wire.ask(map_load_given_keys_codec, "m", [data(KEY)], True)
    assert wire.ask(map_size_codec, "m") == 0


@pytest.mark.parametrize("name", ["__schemas", "__objects"])
def test_maps_of_the_members_are_out_of_reach(wire: Wire, grid: OneMemberGrid, name: str) -> None:
    for _ in range(2):
        for question in (
            lambda: wire.ask(map_set_codec, name, data(KEY), data(ONE), THREAD, -1, partition=1),
            lambda: wire.ask(map_clear_codec, name),
        ):
            with pytest.raises(AnsweredError, match="reserved") as refused:
                question()
            assert refused.value.code == 23
    assert grid.requests == []


@pytest.mark.parametrize("name", ["m" * 257, "\N{CAT FACE}" * 1024])
def test_long_map_names_are_accepted(wire: Wire, name: str) -> None:
    for _ in range(2):  # the second request is served by the data lane
        wire.ask(map_set_codec, name, data(KEY), data(ONE), THREAD, -1, partition=1)
        assert wire.ask(map_get_codec, name, data(KEY), THREAD, partition=1) == data(ONE)


def test_a_map_name_over_the_limit_is_rejected(wire: Wire) -> None:
    with pytest.raises(AnsweredError, match="1 to 1024 characters"):
        wire.ask(map_set_codec, "m" * 1025, data(KEY), data(ONE), THREAD, -1, partition=1)


def test_the_empty_map_name_is_the_map_unnamed(wire: Wire, grid: OneMemberGrid) -> None:
    for _ in range(2):
        wire.ask(map_set_codec, "", data(KEY), data(ONE), THREAD, -1, partition=1)
        assert wire.ask(map_get_codec, "", data(KEY), THREAD, partition=1) == data(ONE)
        assert wire.ask(map_get_codec, "(unnamed)", data(KEY), THREAD, partition=1) == data(ONE)
    wire.ask(map_clear_codec, "")
    assert wire.ask(map_size_codec, "(unnamed)") == 0


@pytest.mark.parametrize("bad", [b"", b"\0\0\0\0\0\0\0", b"\0" * 8, b"\0" * 12])
def test_null_and_broken_data_is_an_illegal_argument(wire: Wire, grid: OneMemberGrid, bad: bytes) -> None:
    wire.ask(map_set_codec, "m", data(KEY), data(ONE), THREAD, -1, partition=1)
    before = len(grid.requests)
    for key, value in ((Data(bad), data(ONE)), (data(KEY), Data(bad))):
        with pytest.raises(AnsweredError, match="null") as refused:
            wire.ask(map_set_codec, "m", key, value, THREAD, -1, partition=1)
        assert refused.value.code == 23
    assert len(grid.requests) == before
    assert not wire.closed


def test_a_partition_that_is_not_there(wire: Wire) -> None:
    for _ in range(2):
        with pytest.raises(AnsweredError, match="no partition 7; this cluster has 7"):
            wire.ask(map_get_codec, "m", data(KEY), THREAD, partition=7)


def test_a_count_beyond_int32_is_told_as_the_greatest(wire: Wire, grid: OneMemberGrid) -> None:
    grid.answer_with = Outcome(Status.OK, 3_000_000_000)
    assert wire.ask(map_size_codec, "m") == 2**31 - 1


def test_unsupported_messages_are_named(wire: Wire) -> None:
    for kind, name in (
        (0x012900, "Map.addIndex"),
        (0x080100, "ExecutorService.shutdown"),
        (0x210400, "Sql.execute"),
        (0x140100, "XATransaction.clearRemote"),
        (0x130600, "Cache.createConfig"),
        (0x200500, "ManagementCenter.getMemberConfig"),
        (0xFE0100, "Jet.submitJob"),
        (0x13FF00, "Cache message 0x13ff00"),
        (0x7F0100, "message 0x7f0100"),
        (0x010101, "Map message 0x010101"),
        (-1, "message 0xffffffff"),
    ):
        buffer = create_initial_buffer(22, max(kind, 0), is_final=True)
        if kind < 0:
            buffer[6:10] = b"\xff" * 4
        wire.tell(OutboundMessage(buffer, retryable=False))
        (answer,) = split(b"".join(wire.sent))
        wire.sent.clear()
        refused = error_of(answer)
        assert refused is not None
        assert (refused.code, str(refused)) == (
            61,
            f"{name} is not supported by Holdfast (docs/compatibility.md lists what is)",
        )
    assert not wire.closed
