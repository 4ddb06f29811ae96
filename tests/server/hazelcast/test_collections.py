"""Requests for queues, sets and lists, in the codecs of the official Python client."""

from __future__ import annotations

from typing import Any

import pytest
from hazelcast.protocol.codec import (
    client_create_proxy_codec,
    client_destroy_proxy_codec,
    client_get_distributed_objects_codec,
    list_add_all_codec,
    list_add_all_with_index_codec,
    list_add_codec,
    list_add_listener_codec,
    list_add_with_index_codec,
    list_clear_codec,
    list_compare_and_remove_all_codec,
    list_compare_and_retain_all_codec,
    list_contains_all_codec,
    list_contains_codec,
    list_get_all_codec,
    list_get_codec,
    list_index_of_codec,
    list_is_empty_codec,
    list_last_index_of_codec,
    list_remove_codec,
    list_remove_listener_codec,
    list_remove_with_index_codec,
    list_set_codec,
    list_size_codec,
    list_sub_codec,
    queue_add_all_codec,
    queue_add_listener_codec,
    queue_clear_codec,
    queue_compare_and_remove_all_codec,
    queue_compare_and_retain_all_codec,
    queue_contains_all_codec,
    queue_contains_codec,
    queue_drain_to_max_size_codec,
    queue_is_empty_codec,
    queue_iterator_codec,
    queue_offer_codec,
    queue_peek_codec,
    queue_poll_codec,
    queue_put_codec,
    queue_remaining_capacity_codec,
    queue_remove_codec,
    queue_remove_listener_codec,
    queue_size_codec,
    queue_take_codec,
    set_add_all_codec,
    set_add_codec,
    set_add_listener_codec,
    set_clear_codec,
    set_compare_and_remove_all_codec,
    set_compare_and_retain_all_codec,
    set_contains_all_codec,
    set_contains_codec,
    set_get_all_codec,
    set_is_empty_codec,
    set_remove_codec,
    set_remove_listener_codec,
    set_size_codec,
)
from hazelcast.serialization.data import Data
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.wire import AnsweredError, Wire, data, stored

from holdfast.config import Settings
from holdfast.config.schema import ListSettings, QueueSettings
from holdfast.core.model.collections import NAME_MAX, CollectionKind, partition_of_name
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.levels import COLLECTIONS
from holdfast.core.model.operations import Outcome, Status
from holdfast.server.flow import EXPECTED_LIST_SHARE
from holdfast.wire.hazelcast.layouts import ITEMS_MAX

STRING = (-11).to_bytes(4, "big", signed=True)
A, B, C = (STRING + b"\0\0\0\1" + one for one in (b"a", b"b", b"c"))


def many(*items: bytes) -> list[Data]:
    return [data(item) for item in items]


def seen(found: Any) -> Any:
    """What the client got, as it is stored."""
    return [stored(item) for item in found] if isinstance(found, list) else stored(found)


def test_a_queue_end_to_end(wire: Wire, grid: OneMemberGrid) -> None:
    grid.collections.configured = Settings(queues={"q": QueueSettings(max_size=4)})
    assert wire.ask(queue_offer_codec, "q", data(A, 17), 0) is True
    wire.ask(queue_put_codec, "q", data(B))
    assert wire.ask(queue_add_all_codec, "q", many(C, A)) is True
    assert wire.ask(queue_add_all_codec, "q", many(C)) is False
    assert wire.ask(queue_offer_codec, "q", data(C), 0) is False
    assert wire.ask(queue_size_codec, "q") == 4
    assert wire.ask(queue_remaining_capacity_codec, "q") == 0
    assert seen(wire.ask(queue_iterator_codec, "q")) == [A, B, C, A]
    assert seen(wire.ask(queue_peek_codec, "q")) == A
    assert wire.ask(queue_contains_codec, "q", data(C)) is True
    assert wire.ask(queue_contains_all_codec, "q", many(C, STRING)) is False
    assert wire.ask(queue_remove_codec, "q", data(A)) is True
    assert seen(wire.ask(queue_poll_codec, "q", 0)) == B
    assert seen(wire.ask(queue_take_codec, "q")) == C
    assert wire.ask(queue_compare_and_remove_all_codec, "q", many(B)) is False
    assert wire.ask(queue_compare_and_retain_all_codec, "q", many(A)) is False
    assert seen(wire.ask(queue_drain_to_max_size_codec, "q", -1)) == [A]
    assert wire.ask(queue_add_all_codec, "q", many(A, B)) is True
    assert seen(wire.ask(queue_drain_to_max_size_codec, "q", 1)) == [A]
    wire.ask(queue_clear_codec, "q")
    assert wire.ask(queue_is_empty_codec, "q") is True
    assert wire.ask(queue_poll_codec, "q", 0) is None
    assert wire.ask(queue_peek_codec, "q") is None
    assert wire.ask(queue_remaining_capacity_codec, "another") == 2**31 - 1


def test_a_set_end_to_end(wire: Wire) -> None:
    assert wire.ask(set_add_codec, "s", data(B)) is True
    assert wire.ask(set_add_codec, "s", data(B)) is False
    assert wire.ask(set_add_all_codec, "s", many(A, B)) is True
    assert wire.ask(set_size_codec, "s") == 2
    assert wire.ask(set_contains_codec, "s", data(A)) is True
    assert wire.ask(set_contains_all_codec, "s", many(A, C)) is False
    assert seen(wire.ask(set_get_all_codec, "s")) == [B, A]
    assert wire.ask(set_remove_codec, "s", data(C)) is False
    assert wire.ask(set_compare_and_retain_all_codec, "s", many(A, C)) is True
    assert wire.ask(set_compare_and_remove_all_codec, "s", many(B)) is False
    assert wire.ask(set_is_empty_codec, "s") is False
    wire.ask(set_clear_codec, "s")
    assert wire.ask(set_is_empty_codec, "s") is True


def test_a_list_end_to_end(wire: Wire, grid: OneMemberGrid) -> None:
    grid.collections.configured = Settings(lists={"l": ListSettings(max_size=5)})
    assert wire.ask(list_add_codec, "l", data(A)) is True
    wire.ask(list_add_with_index_codec, "l", 0, data(B))
    assert wire.ask(list_add_all_codec, "l", many(A)) is True
    assert wire.ask(list_add_all_with_index_codec, "l", 1, many(C, C)) is True
    assert seen(wire.ask(list_get_all_codec, "l")) == [B, C, C, A, A]
    assert wire.ask(list_add_codec, "l", data(B)) is False
    assert seen(wire.ask(list_sub_codec, "l", 1, 3)) == [C, C]
    assert seen(wire.ask(list_sub_codec, "l", -1, -1)) == [B, C, C, A, A]
    assert seen(wire.ask(list_get_codec, "l", 3)) == A
    assert seen(wire.ask(list_set_codec, "l", 3, data(B))) == A
    assert wire.ask(list_index_of_codec, "l", data(B)) == 0
    assert wire.ask(list_last_index_of_codec, "l", data(B)) == 3
    assert wire.ask(list_index_of_codec, "l", data(STRING + b"x")) == -1
    assert seen(wire.ask(list_remove_with_index_codec, "l", 0)) == B
    assert wire.ask(list_remove_codec, "l", data(A)) is True
    assert wire.ask(list_contains_codec, "l", data(A)) is False
    assert wire.ask(list_contains_all_codec, "l", many(B, C)) is True
    assert wire.ask(list_compare_and_remove_all_codec, "l", many(C)) is True
    assert wire.ask(list_compare_and_retain_all_codec, "l", many(B)) is False
    assert wire.ask(list_size_codec, "l") == 1
    wire.ask(list_clear_codec, "l")
    assert wire.ask(list_is_empty_codec, "l") is True


@pytest.mark.parametrize(
    ("codec", "parameters"),
    [
        (list_get_codec, (1,)),
        (list_get_codec, (-1,)),
        (list_set_codec, (1, data(A))),
        (list_remove_with_index_codec, (1,)),
        (list_add_with_index_codec, (2, data(A))),
        (list_add_all_with_index_codec, (-1, many(A))),
        (list_sub_codec, (0, 2)),
    ],
)
def test_a_position_that_is_not_there_is_an_error(
    wire: Wire, codec: Any, parameters: tuple[Any, ...]
) -> None:
    wire.ask(list_add_codec, "l", data(A))
    with pytest.raises(AnsweredError) as refused:
        wire.ask(codec, "l", *parameters)
    assert (refused.value.code, wire.ask(list_size_codec, "l")) == (29, 1)


def test_a_poll_waits_for_an_item(wire: Wire, grid: OneMemberGrid) -> None:
    polled = [wire.tell(queue_poll_codec.encode_request("q", 60_000)) for _ in range(2)]
    taken = wire.tell(queue_take_codec.encode_request("q"))
    assert wire.take() == []
    wire.tell(queue_add_all_codec.encode_request("q", many(A, B, C)))
    answers = {answer.get_correlation_id(): answer for answer in wire.take()}
    assert [seen(queue_poll_codec.decode_response(answers[each])) for each in (*polled, taken)] == [A, B, C]
    assert grid.collections.waiting == []


def test_a_request_waits_until_the_client_has_no_more_time(wire: Wire, grid: OneMemberGrid) -> None:
    """A member lets it wait for a part of that at a time."""
    poll = wire.tell(queue_poll_codec.encode_request("q", 50_000))
    grid.now = 30 * SECOND
    # At the primary its wait has ended.
    end_of_a_wait(wire, grid)
    assert wire.take() == []
    grid.now = 50 * SECOND - MILLISECOND // 2
    end_of_a_wait(wire, grid)
    assert wire.take() == []
    grid.now = 50 * SECOND
    end_of_a_wait(wire, grid)
    [answer] = wire.take()
    assert answer.get_correlation_id() == poll
    assert queue_poll_codec.decode_response(answer) is None


def end_of_a_wait(wire: Wire, grid: OneMemberGrid) -> None:
    waiting, grid.collections.waiting = grid.collections.waiting, []
    for request, done in waiting:
        done(Outcome(Status.OK, None if not request.items else False))
    wire.resume()


def test_take_and_put_wait_for_ever(wire: Wire, grid: OneMemberGrid) -> None:
    grid.collections.configured = Settings(queues={"default": QueueSettings(max_size=1)})
    take = wire.tell(queue_take_codec.encode_request("empty"))
    wire.ask(queue_put_codec, "full", data(A))
    put = wire.tell(queue_put_codec.encode_request("full", data(B)))
    for _ in range(5):
        grid.now += 3600 * SECOND
        end_of_a_wait(wire, grid)
    assert wire.take() == []
    wire.tell(queue_offer_codec.encode_request("empty", data(C), 0))
    polled = wire.tell(queue_poll_codec.encode_request("full", 0))
    found = {answer.get_correlation_id(): answer for answer in wire.take()}
    assert seen(queue_take_codec.decode_response(found[take])) == C
    assert seen(queue_poll_codec.decode_response(found[polled])) == A
    assert put in found


@pytest.mark.rule("routing/R-21")
def test_the_end_of_a_connection_withdraws_what_it_waits_for(wire: Wire, grid: OneMemberGrid) -> None:
    for _ in range(3):
        wire.tell(queue_take_codec.encode_request("q"))
    wire.tell(queue_poll_codec.encode_request("q", 0))
    wire.session.closed()
    assert (grid.collections.waiting, grid.collections.withdrawn) == ([], 3)
    other = Wire(grid)
    other.login()
    assert other.ask(queue_offer_codec, "q", data(A), 0) is True
    assert other.ask(queue_size_codec, "q") == 1


@pytest.mark.parametrize(
    ("add", "remove", "fill", "clear"),
    [
        (queue_add_listener_codec, queue_remove_listener_codec, queue_add_all_codec, queue_clear_codec),
        (set_add_listener_codec, set_remove_listener_codec, set_add_all_codec, set_clear_codec),
        (list_add_listener_codec, list_remove_listener_codec, list_add_all_codec, list_clear_codec),
    ],
)
@pytest.mark.parametrize("include_value", [True, False])
def test_item_listeners(
    wire: Wire, add: Any, remove: Any, fill: Any, clear: Any, include_value: bool
) -> None:
    registration = wire.ask(add, "x", include_value, True)
    wire.tell(fill.encode_request("x", many(A, B)))
    wire.tell(clear.encode_request("x"))
    events: list[tuple[bytes | None, int]] = []
    for message in wire.take():
        add.handle(message, lambda item, uuid, kind: events.append((stored(item), kind)))
    items = [A, B] if include_value else [None, None]
    assert events == [*((item, 1) for item in items), *((item, 2) for item in items)]
    assert wire.ask(remove, "x", registration) is True
    wire.tell(fill.encode_request("x", many(A)))
    assert len(wire.take()) == 1


def test_setting_an_item_of_a_list_removes_one_and_adds_another(wire: Wire) -> None:
    wire.ask(list_add_codec, "l", data(A))
    wire.ask(list_add_listener_codec, "l", True, True)
    wire.tell(list_set_codec.encode_request("l", 0, data(B)))
    events: list[tuple[bytes | None, int]] = []
    for message in wire.take():
        list_add_listener_codec.handle(message, lambda item, uuid, kind: events.append((stored(item), kind)))
    assert events == [(A, 2), (B, 1)]


@pytest.mark.rule("collections/C-1")
def test_the_partition_is_that_of_the_name_whatever_a_client_says(wire: Wire, grid: OneMemberGrid) -> None:
    for partition in range(grid.partition_count):
        wire.ask(queue_offer_codec, "q@key", data(A), 0, partition=partition)
    holder = CollectionKind.QUEUE.map_of("q@key")
    holding = [copy.partition for copy in grid.copies if holder in copy.maps]
    assert holding == [partition_of_name("key", grid.partition_count)]


def test_collections_of_one_name_are_different_and_listed_with_their_services(wire: Wire) -> None:
    services = {kind: f"hz:impl:{kind}Service" for kind in ("map", "queue", "set", "list")}
    for service in services.values():
        wire.ask(client_create_proxy_codec, "x", service)
    wire.ask(queue_offer_codec, "x", data(A), 0)
    wire.ask(set_add_codec, "y", data(A))
    assert wire.ask(list_size_codec, "x") == 0
    listed = wire.ask(client_get_distributed_objects_codec)
    assert sorted((one.service_name, one.name) for one in listed) == sorted(
        [*((service, "x") for service in services.values()), (services["set"], "y")]
    )
    wire.ask(client_destroy_proxy_codec, "x", services["queue"])
    assert wire.ask(queue_size_codec, "x") == 0
    listed = wire.ask(client_get_distributed_objects_codec)
    assert (services["queue"], "x") not in [(one.service_name, one.name) for one in listed]


def test_names_items_and_levels_that_cannot_be_are_rejected(wire: Wire, grid: OneMemberGrid) -> None:
    with pytest.raises(AnsweredError, match="1 to"):
        wire.ask(queue_size_codec, "x" * (NAME_MAX + 1))
    with pytest.raises(AnsweredError, match=f"{ITEMS_MAX} items"):
        wire.ask(queue_add_all_codec, "q", many(*[A] * (ITEMS_MAX + 1)))
    with pytest.raises(AnsweredError, match="null"):
        wire.ask(queue_offer_codec, "q", data(b"\0\0\0\0"), 0)
    grid.level = COLLECTIONS - 1
    for codec, parameters in ((queue_size_codec, ()), (set_add_codec, (data(A),)), (queue_take_codec, ())):
        with pytest.raises(AnsweredError, match="holdfast cluster upgrade"):
            wire.ask(codec, "q", *parameters)
    with pytest.raises(AnsweredError, match="feature level"):
        wire.ask(client_create_proxy_codec, "q", "hz:impl:queueService")


@pytest.mark.rule("server/F-1")
@pytest.mark.parametrize("codec", [queue_iterator_codec, list_get_all_codec, set_get_all_codec])
def test_lists_of_items_that_are_still_to_come_count_as_responses(
    wire: Wire, grid: OneMemberGrid, codec: Any
) -> None:
    grid.execute = lambda *request: None  # type: ignore[method-assign]
    expected = []
    for _ in range(3):
        wire.tell(codec.encode_request("q"))
        expected.append(wire.session._flow.expected)
    share = wire.session._flow.most // EXPECTED_LIST_SHARE
    assert expected == [share, 2 * share, 3 * share]
