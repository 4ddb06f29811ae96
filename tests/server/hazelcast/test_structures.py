"""Requests for ringbuffers, topics, replicated maps, counters and generators, in the codecs of the Python client."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hazelcast.protocol.client_message import InboundMessage
from hazelcast.protocol.codec import (
    client_create_proxy_codec,
    client_destroy_proxy_codec,
    client_get_distributed_objects_codec,
    flake_id_generator_new_id_batch_codec,
    pn_counter_add_codec,
    pn_counter_get_codec,
    pn_counter_get_configured_replica_count_codec,
    replicated_map_add_entry_listener_codec,
    replicated_map_add_entry_listener_to_key_codec,
    replicated_map_clear_codec,
    replicated_map_contains_key_codec,
    replicated_map_contains_value_codec,
    replicated_map_entry_set_codec,
    replicated_map_get_codec,
    replicated_map_is_empty_codec,
    replicated_map_key_set_codec,
    replicated_map_put_all_codec,
    replicated_map_put_codec,
    replicated_map_remove_codec,
    replicated_map_remove_entry_listener_codec,
    replicated_map_size_codec,
    replicated_map_values_codec,
    ringbuffer_add_all_codec,
    ringbuffer_add_codec,
    ringbuffer_capacity_codec,
    ringbuffer_head_sequence_codec,
    ringbuffer_read_many_codec,
    ringbuffer_read_one_codec,
    ringbuffer_remaining_capacity_codec,
    ringbuffer_size_codec,
    ringbuffer_tail_sequence_codec,
    topic_add_message_listener_codec,
    topic_publish_all_codec,
    topic_publish_codec,
    topic_remove_message_listener_codec,
)
from hazelcast.serialization.data import Data
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.wire import AnsweredError, Wire, data, stored

from holdfast.config import RingbufferSettings, Settings
from holdfast.core.collections.id_steps import ID_STEP
from holdfast.core.model.collections import IDS_MAX, CollectionKind
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.operations import Outcome, Status
from holdfast.server.access import SERVICES

STRING = (-11).to_bytes(4, "big", signed=True)
A, B, C = (STRING + b"\0\0\0\1" + one for one in (b"a", b"b", b"c"))
OVERWRITE, FAIL = 0, 1
MEMBER = UUID(int=7)
_SERVICE = {kind.value: service for service, kind in SERVICES.items()}


def many(*items: bytes) -> list[Data]:
    return [data(item) for item in items]


def events(wire: Wire) -> list[InboundMessage]:
    return [message for message in wire.take() if message.get_message_type() & 0xFF == 2]


def seen(found: Any) -> list[bytes | None]:
    return [stored(item) for item in found]


def test_a_ringbuffer_end_to_end(wire: Wire, grid: OneMemberGrid) -> None:
    grid.collections.configured = Settings(ringbuffers={"r": RingbufferSettings(capacity=3, ttl_ms=1000)})
    assert wire.ask(ringbuffer_capacity_codec, "r") == 3
    assert wire.ask(ringbuffer_tail_sequence_codec, "r") == -1
    assert wire.ask(ringbuffer_add_codec, "r", OVERWRITE, data(A)) == 0
    assert wire.ask(ringbuffer_add_all_codec, "r", many(B, C), FAIL) == 2
    assert wire.ask(ringbuffer_remaining_capacity_codec, "r") == 0
    assert wire.ask(ringbuffer_add_codec, "r", FAIL, data(A)) == -1
    assert wire.ask(ringbuffer_add_all_codec, "r", many(A), OVERWRITE) == 3
    assert wire.ask(ringbuffer_head_sequence_codec, "r") == 1
    assert wire.ask(ringbuffer_size_codec, "r") == 3
    assert stored(wire.ask(ringbuffer_read_one_codec, "r", 2)) == C
    found = wire.ask(ringbuffer_read_many_codec, "r", 0, 1, 2, None)
    assert (found["read_count"], found["next_seq"], list(found["item_seqs"])) == (2, 3, [1, 2])
    assert seen(found["items"]) == [B, C]
    empty = wire.ask(ringbuffer_read_many_codec, "r", 4, 0, 2, None)
    assert (empty["read_count"], empty["next_seq"], empty["items"]) == (0, 4, [])
    assert wire.ask(ringbuffer_capacity_codec, "another") == 10_000
    assert wire.ask(ringbuffer_remaining_capacity_codec, "another") == 10_000


def test_readers_wait_for_an_item(wire: Wire, grid: OneMemberGrid) -> None:
    one = wire.tell(ringbuffer_read_one_codec.encode_request("r", 0))
    several = wire.tell(ringbuffer_read_many_codec.encode_request("r", 0, 2, 5, None))
    assert wire.take() == []
    added = [wire.tell(ringbuffer_add_codec.encode_request("r", OVERWRITE, data(item))) for item in (A, B)]
    answers = {answer.get_correlation_id(): answer for answer in wire.take()}
    assert set(answers) == {one, several, *added}
    assert stored(ringbuffer_read_one_codec.decode_response(answers[one])) == A
    assert seen(ringbuffer_read_many_codec.decode_response(answers[several])["items"]) == [A, B]
    assert not grid.collections.waiting


@pytest.mark.parametrize(("sequence", "code", "words"), [(0, 51, "not there any more"), (5, 23, "too large")])
def test_a_sequence_that_is_out_of_reach(
    wire: Wire, grid: OneMemberGrid, sequence: int, code: int, words: str
) -> None:
    grid.collections.configured = Settings(ringbuffers={"r": RingbufferSettings(capacity=2)})
    wire.ask(ringbuffer_add_all_codec, "r", many(A, B, C), OVERWRITE)
    with pytest.raises(AnsweredError, match=words) as refused:
        wire.ask(ringbuffer_read_one_codec, "r", sequence)
    assert refused.value.code == code


def test_a_filter_and_too_large_a_batch_are_refused(wire: Wire) -> None:
    with pytest.raises(AnsweredError, match="with a filter is not supported") as refused:
        wire.ask(ringbuffer_read_many_codec, "r", 0, 0, 5, data(A))
    assert refused.value.code == 61
    for least, most in ((0, 1001), (2, 1), (-1, 1)):
        with pytest.raises(AnsweredError, match="at most 1000") as refused:
            wire.ask(ringbuffer_read_many_codec, "r", 0, least, most, None)
        assert refused.value.code == 23


def test_a_reliable_topic_has_the_settings_of_its_name(wire: Wire, grid: OneMemberGrid) -> None:
    grid.collections.configured = Settings(
        ringbuffers={"news": RingbufferSettings(capacity=5), "default": RingbufferSettings(capacity=7)}
    )
    assert wire.ask(ringbuffer_capacity_codec, "_hz_rb_news") == 5
    assert wire.ask(ringbuffer_capacity_codec, "_hz_rb_other") == 7


def test_a_topic_end_to_end(wire: Wire) -> None:
    heard: list[tuple[bytes | None, int]] = []

    def on_message(item: Data, published: int, _: Any) -> None:
        heard.append((stored(item), published))

    registration = wire.ask(topic_add_message_listener_codec, "t", False)
    wire.tell(topic_publish_codec.encode_request("t", data(A)))
    wire.tell(topic_publish_all_codec.encode_request("t", many(B, C)))
    wire.tell(topic_publish_codec.encode_request("other", data(A)))
    for event in events(wire):
        topic_add_message_listener_codec.handle(event, on_message)
    assert [item for item, _ in heard] == [A, B, C]
    assert all(published > 0 for _, published in heard)
    assert wire.ask(topic_remove_message_listener_codec, "t", registration) is True
    wire.tell(topic_publish_codec.encode_request("t", data(A)))
    assert events(wire) == []


def test_a_replicated_map_end_to_end(wire: Wire, grid: OneMemberGrid) -> None:
    assert wire.ask(replicated_map_is_empty_codec, "m") is True
    assert wire.ask(replicated_map_put_codec, "m", data(A), data(B), 0) is None
    assert stored(wire.ask(replicated_map_put_codec, "m", data(A), data(C), 0)) == B
    wire.ask(replicated_map_put_all_codec, "m", [(data(B), data(A)), (data(C), data(A))])
    assert wire.ask(replicated_map_size_codec, "m") == 3
    assert stored(wire.ask(replicated_map_get_codec, "m", data(A))) == C
    assert wire.ask(replicated_map_contains_key_codec, "m", data(B)) is True
    assert wire.ask(replicated_map_contains_value_codec, "m", data(B)) is False
    assert sorted(map(str, seen(wire.ask(replicated_map_key_set_codec, "m")))) == [
        str(one) for one in (A, B, C)
    ]
    assert sorted(map(str, seen(wire.ask(replicated_map_values_codec, "m")))) == [
        str(one) for one in (A, A, C)
    ]
    assert len(wire.ask(replicated_map_entry_set_codec, "m")) == 3
    assert stored(wire.ask(replicated_map_remove_codec, "m", data(A))) == C
    assert {request.map for request in grid.requests} == {"__replicated-map:m"}
    wire.ask(replicated_map_clear_codec, "m")
    assert wire.ask(replicated_map_size_codec, "m") == 0


def test_listeners_of_a_replicated_map_get_values(wire: Wire) -> None:
    heard: list[tuple[Any, ...]] = []

    def on_entry(key: Any, value: Any, old: Any, _merging: Any, kind: int, _member: Any, count: int) -> None:
        heard.append((stored(key), value and stored(value), old and stored(old), kind, count))

    every = wire.ask(replicated_map_add_entry_listener_codec, "m", False)
    wire.ask(replicated_map_add_entry_listener_to_key_codec, "m", data(B), False)
    wire.tell(replicated_map_put_codec.encode_request("m", data(A), data(B), 0))
    wire.tell(replicated_map_put_codec.encode_request("m", data(B), data(C), 0))
    found = events(wire)
    assert len(found) == 3
    for event in found:
        replicated_map_add_entry_listener_codec.handle(event, on_entry)
    assert (A, B, None, 1, 1) in heard
    assert (B, C, None, 1, 1) in heard
    assert wire.ask(replicated_map_remove_entry_listener_codec, "m", every) is True


def test_a_counter_end_to_end(wire: Wire) -> None:
    def add(delta: int, *, before: bool, clock: Any = ()) -> Any:
        return wire.ask(pn_counter_add_codec, "c", delta, before, list(clock), MEMBER)

    first = add(5, before=False)
    assert first["value"] == 5
    second = add(-2, before=True, clock=first["replica_timestamps"])
    assert second["value"] == 5
    third = wire.ask(pn_counter_get_codec, "c", second["replica_timestamps"], MEMBER)
    assert (third["value"], third["replica_timestamps"]) == (3, second["replica_timestamps"])
    assert wire.ask(pn_counter_get_configured_replica_count_codec, "c") >= 1


def test_a_counter_that_has_lost_changes_says_so(wire: Wire) -> None:
    clock = wire.ask(pn_counter_add_codec, "c", 1, False, [], MEMBER)["replica_timestamps"]
    wire.ask(client_destroy_proxy_codec, "c", _SERVICE["pn-counter"])
    for ask in (
        lambda: wire.ask(pn_counter_add_codec, "c", 1, False, clock, MEMBER),
        lambda: wire.ask(pn_counter_get_codec, "c", clock, MEMBER),
    ):
        with pytest.raises(AnsweredError, match="has lost changes") as refused:
            ask()
        assert refused.value.code == 84
    assert wire.ask(pn_counter_get_codec, "c", [], MEMBER)["value"] == 0


def test_batches_of_ids(wire: Wire) -> None:
    first = wire.ask(flake_id_generator_new_id_batch_codec, "g", 10)
    assert (first["increment"], first["batch_size"]) == (ID_STEP, 10)
    assert wire.ask(flake_id_generator_new_id_batch_codec, "g", 1)["base"] >= first["base"] + 10 * ID_STEP
    for count in (0, -1, IDS_MAX + 1):
        with pytest.raises(AnsweredError, match="ids"):
            wire.ask(flake_id_generator_new_id_batch_codec, "g", count)


def test_every_structure_is_opened_listed_and_destroyed(wire: Wire, grid: OneMemberGrid) -> None:
    kinds = [kind for kind in CollectionKind if kind.level == STRUCTURES]
    for kind in kinds:
        wire.ask(client_create_proxy_codec, "x", _SERVICE[kind])
    listed = {(one.service_name, one.name) for one in wire.ask(client_get_distributed_objects_codec)}
    assert listed == {(_SERVICE[kind], "x") for kind in kinds}
    wire.ask(ringbuffer_add_codec, "_hz_rb_x", OVERWRITE, data(A))
    for kind in kinds:
        wire.ask(client_destroy_proxy_codec, "x", _SERVICE[kind])
    assert wire.ask(client_get_distributed_objects_codec) == []
    assert wire.ask(ringbuffer_tail_sequence_codec, "_hz_rb_x") == -1, "it goes with its reliable topic"


def test_an_older_cluster_refuses_them(wire: Wire, grid: OneMemberGrid) -> None:
    grid.level = STRUCTURES - 1
    for kind in CollectionKind:
        if kind.level == STRUCTURES:
            with pytest.raises(AnsweredError, match=f"{kind}s need feature level {STRUCTURES}"):
                wire.ask(client_create_proxy_codec, "x", _SERVICE[kind])
    for codec, parameters in (
        (ringbuffer_capacity_codec, ("r",)),
        (ringbuffer_read_one_codec, ("r", 0)),
        (topic_add_message_listener_codec, ("t", False)),
        (replicated_map_size_codec, ("m",)),
        (pn_counter_get_configured_replica_count_codec, ("c",)),
        (flake_id_generator_new_id_batch_codec, ("g", 1)),
    ):
        with pytest.raises(AnsweredError, match="need feature level"):
            wire.ask(codec, *parameters)
    assert grid.requests == []


def test_structures_are_opened_and_destroyed_without_a_data_member(wire: Wire, grid: OneMemberGrid) -> None:
    grid.answer_with = grid.refuse_with = Outcome(Status.NO_DATA_MEMBER)
    wire.ask(client_create_proxy_codec, "c", _SERVICE["pn-counter"])
    with pytest.raises(AnsweredError) as refused:
        wire.ask(pn_counter_get_codec, "c", [], MEMBER)
    assert refused.value.code == 67
    wire.ask(client_destroy_proxy_codec, "c", _SERVICE["pn-counter"])


def test_timestamps_of_a_counter_that_cannot_be_read_end_the_connection(wire: Wire) -> None:
    _, encoded = wire.number(pn_counter_get_codec.encode_request("c", [(MEMBER, 1)], MEMBER))
    whole = bytearray(encoded)
    at = len(whole) - 25 - 6
    assert struct.unpack_from("<i", whole, at)[0] == 25 + 6
    struct.pack_into("<i", whole, at, 24 + 6)
    wire.session.receive(bytes(whole[:-1]))
    assert wire.closed
