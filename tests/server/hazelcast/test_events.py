"""What a client is told without asking: members and owners, changes of entries, and objects that come and go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hazelcast.protocol.client_message import InboundMessage
from hazelcast.protocol.codec import (
    client_add_cluster_view_listener_codec,
    client_add_distributed_object_listener_codec,
    client_create_proxy_codec,
    client_destroy_proxy_codec,
    client_get_distributed_objects_codec,
    client_local_backup_listener_codec,
    client_remove_distributed_object_listener_codec,
    client_statistics_codec,
    map_add_entry_listener_codec,
    map_add_entry_listener_to_key_codec,
    map_add_entry_listener_with_predicate_codec,
    map_add_near_cache_invalidation_listener_codec,
    map_clear_codec,
    map_put_codec,
    map_remove_codec,
    map_remove_entry_listener_codec,
    map_set_codec,
    map_size_codec,
)
from tests.server.hazelcast.one_member import ME, OneMemberGrid, int_data, text_data
from tests.server.hazelcast.test_maps import SQL_PREDICATE, TRUE_PREDICATE
from tests.server.hazelcast.wire import AnsweredError, Wire, data, error_of, stored

from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import ZONE_NEAR_CACHES
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Outcome, Status
from holdfast.server.grid import ClusterCard, MemberCard
from holdfast.server.hazelcast import conversation
from holdfast.server.hazelcast.near_caches import history_uuid

KEY, OTHER, ONE, TWO = text_data("k"), text_data("o"), int_data(1), int_data(2)
THREAD = 7
ADDED, REMOVED, UPDATED, CLEARED = 1, 2, 4, 64
OTHER_MEMBER = MemberCard("00000000-0000-0000-0000-0000000000ff", "127.0.0.2", 5702, 5752, lite=True)


# -- views


def views(messages: list[InboundMessage]) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []
    for message in messages:
        client_add_cluster_view_listener_codec.handle(
            message,
            lambda version, members: seen.append(("members", version, members)),
            lambda version, owners: seen.append(("owners", version, dict(owners))),
        )
    return seen


def test_members_and_owners_are_pushed_first_and_at_each_change(wire: Wire, grid: OneMemberGrid) -> None:
    number = wire.tell(client_add_cluster_view_listener_codec.encode_request())
    answer, *events = wire.take()
    assert answer.get_message_type() == 0x000301
    assert {event.get_correlation_id() for event in events} == {number}
    (_, version, members), owners = views(events)
    assert version == 1
    (member,) = members
    assert str(member.uuid) == ME
    assert member.attributes == {"zone": "a"}
    assert [(kind._protocol_type, address.port) for kind, address in member.address_map.items()] == [
        (0, 5751),  # the door for members: Java clients refuse a member without it
        (1, 5701),
    ]
    assert owners == ("owners", 1, {UUID(ME): list(range(7))})

    grid.change(replace(grid.card, members_version=2, members=[*grid.card.members, OTHER_MEMBER]))
    ((_, version, members),) = views(wire.take())
    assert version == 2
    assert [member.lite_member for member in members] == [False, True]

    grid.change(replace(grid.card, owners_version=2, owners={}))  # some partition has no owner
    assert wire.take() == []
    grid.change(replace(grid.card, owners_version=3, owners={ME: [0, 1], OTHER_MEMBER.uuid: [2, 3, 4, 5, 6]}))
    assert views(wire.take()) == [("owners", 3, {UUID(ME): [0, 1], UUID(OTHER_MEMBER.uuid): [2, 3, 4, 5, 6]})]
    grid.change(grid.card)
    assert wire.take() == []


def test_owners_of_a_cluster_that_forms_are_not_sent(grid: OneMemberGrid) -> None:
    grid.card = ClusterCard(1, grid.card.members, 0, {})
    wire = Wire(grid)
    wire.login()
    wire.tell(client_add_cluster_view_listener_codec.encode_request())
    _, *events = wire.take()
    assert [view[0] for view in views(events)] == ["members"]


def test_the_end_of_a_connection_ends_its_listeners(wire: Wire, grid: OneMemberGrid) -> None:
    wire.tell(client_add_cluster_view_listener_codec.encode_request())
    wire.tell(map_add_entry_listener_codec.encode_request("m", True, 255, False))
    wire.tell(client_add_distributed_object_listener_codec.encode_request(False))
    assert (len(grid.watchers), len(grid.listeners)) == (1, 2)
    wire.session.closed()
    assert (grid.watchers, grid.listeners) == ([], [])


# -- near caches


def test_a_map_in_a_zone_has_near_caches_from_a_feature_level_on(wire: Wire, grid: OneMemberGrid) -> None:
    grid.zoned.add("m")
    grid.level = ZONE_NEAR_CACHES - 1
    wire.tell(map_add_near_cache_invalidation_listener_codec.encode_request("m", 16, False))
    (answer,) = wire.take()
    refused = error_of(answer)
    assert refused is not None
    assert "cluster upgrade" in str(refused)
    assert grid.listeners == []
    grid.level = ZONE_NEAR_CACHES
    wire.tell(map_add_near_cache_invalidation_listener_codec.encode_request("m", 16, False))
    answer, cleared = wire.take()
    assert error_of(answer) is None
    keys: list[Any] = []
    map_add_near_cache_invalidation_listener_codec.handle(cleared, lambda key, *_: keys.append(key), None)
    assert keys == [None], "this member may not know what clients have missed"


def test_histories_of_engines_groups_and_terms_differ() -> None:
    histories = {
        history_uuid("c", partition, term, group)
        for partition in (0, 1)
        for term in (1, 2)
        for group in ("", "7.0", "7.1", "8.0")
    }
    assert len(histories) == 16


@pytest.mark.parametrize("batch", [True, False])
def test_invalidations_come_in_batches_unless_the_setting_says_otherwise(
    wire: Wire, grid: OneMemberGrid, batch: bool
) -> None:
    grid.batch_invalidations = batch
    wire.ask(map_add_near_cache_invalidation_listener_codec, "m", 16, False)
    for key in "abc":
        for _, _, heard in grid.listeners:
            heard(EntryEvent(EventKind.UPDATED, "m", ME, text_data(key), sequence=1, term=1))
    grid.end_turn()
    alone: list[Any] = []
    together: list[Any] = []
    for message in wire.take():
        map_add_near_cache_invalidation_listener_codec.handle(
            message, lambda key, *_: alone.append(key), lambda keys, *_: together.append(keys)
        )
    assert (len(alone), [len(keys) for keys in together]) == ((0, [3]) if batch else (3, []))


# -- entries


def entry_events(
    messages: list[InboundMessage], codec: Any = map_add_entry_listener_codec
) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []

    def heard(key: Any, value: Any, old: Any, merging: Any, kind: int, member: UUID, count: int) -> None:
        assert str(member) == ME
        assert merging is None
        seen.append((kind, stored(key), stored(value), stored(old), count))

    for message in messages:
        codec.handle(message, heard)
    return seen


def change(wire: Wire) -> None:
    """Five changes from somebody else."""
    other = Wire(wire.grid)
    other.login()
    other.ask(map_put_codec, "m", data(KEY), data(ONE), THREAD, -1)
    other.ask(map_put_codec, "m", data(KEY), data(TWO), THREAD, -1)
    other.ask(map_remove_codec, "m", data(KEY), THREAD)
    other.ask(map_set_codec, "m", data(OTHER), data(ONE), THREAD, -1)
    other.ask(map_set_codec, "elsewhere", data(KEY), data(ONE), THREAD, -1)
    other.ask(map_clear_codec, "m")


def test_entry_listener(wire: Wire) -> None:
    wire.ask(map_add_entry_listener_codec, "m", True, 255, False)
    change(wire)
    assert entry_events(wire.take()) == [
        (ADDED, KEY, ONE, None, 1),
        (UPDATED, KEY, TWO, ONE, 1),
        (REMOVED, KEY, None, TWO, 1),
        (ADDED, OTHER, ONE, None, 1),
        (CLEARED, None, None, None, 1),
    ]


def test_events_of_one_key_have_its_partition(wire: Wire, grid: OneMemberGrid) -> None:
    """By which Java clients keep them in order: those without a partition they hand to any of five threads."""
    wire.ask(map_add_entry_listener_codec, "m", True, 255, False)
    change(wire)
    told = [int.from_bytes(message.start_frame.buf[12:16], "little", signed=True) for message in wire.take()]
    of_key, of_other = (partition_of(key, 0, grid.partition_count) for key in (KEY, OTHER))
    assert told == [of_key, of_key, of_key, of_other, 0]


def test_entry_listener_without_values_and_with_flags(wire: Wire) -> None:
    wire.ask(map_add_entry_listener_codec, "m", False, REMOVED | UPDATED, True)
    change(wire)
    assert entry_events(wire.take()) == [(UPDATED, KEY, None, None, 1), (REMOVED, KEY, None, None, 1)]


def test_entry_listener_of_one_key(wire: Wire) -> None:
    wire.ask(map_add_entry_listener_to_key_codec, "m", data(OTHER), True, 255, False)
    change(wire)
    assert entry_events(wire.take(), map_add_entry_listener_to_key_codec) == [(ADDED, OTHER, ONE, None, 1)]


def test_entry_listener_with_predicate(wire: Wire) -> None:
    wire.ask(map_add_entry_listener_with_predicate_codec, "m", data(TRUE_PREDICATE), True, ADDED, False)
    change(wire)
    assert len(wire.take()) == 2
    with pytest.raises(AnsweredError, match="addEntryListenerWithPredicate"):
        wire.ask(map_add_entry_listener_with_predicate_codec, "m", data(SQL_PREDICATE), True, ADDED, False)


def test_entry_listener_removed(wire: Wire, grid: OneMemberGrid) -> None:
    first = wire.ask(map_add_entry_listener_codec, "m", True, 255, False)
    second = wire.ask(map_add_entry_listener_codec, "m", True, 255, False)
    assert first != second
    assert wire.ask(map_remove_entry_listener_codec, "m", first) is True
    assert wire.ask(map_remove_entry_listener_codec, "m", first) is False
    assert len(grid.listeners) == 1
    change(wire)
    assert len(wire.take()) == 5


def test_listeners_are_limited(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "LISTENERS_MAX", 2)
    first = wire.ask(map_add_entry_listener_codec, "m", True, 255, False)
    wire.ask(client_local_backup_listener_codec)
    with pytest.raises(AnsweredError, match="2 listeners, which is the limit"):
        wire.ask(map_add_entry_listener_codec, "m", True, 255, False)
    wire.ask(map_remove_entry_listener_codec, "m", first)
    wire.ask(map_add_entry_listener_codec, "m", True, 255, False)


# -- objects


def test_a_map_is_opened_though_nobody_serves_the_partition_that_notes_its_name(
    wire: Wire, grid: OneMemberGrid
) -> None:
    grid.answer_with = Outcome(Status.NOT_READY, None, "nobody serves it")
    with pytest.raises(AnsweredError, match="nobody serves it"):
        wire.ask(client_create_proxy_codec, "flights", "hz:impl:mapService")
    grid.owners = dict.fromkeys(range(grid.partition_count), None)
    wire.ask(client_create_proxy_codec, "flights", "hz:impl:mapService")
    assert grid.requests[-1].op is Op.PUT_IF_ABSENT, "it is noted if it can be"


def test_objects_come_and_go(wire: Wire, grid: OneMemberGrid) -> None:
    watcher = Wire(grid)
    watcher.login()
    registration = watcher.ask(client_add_distributed_object_listener_codec, False)
    for _ in range(2):
        wire.ask(client_create_proxy_codec, "flights", "hz:impl:mapService")
    wire.ask(map_set_codec, "flights", data(KEY), data(ONE), THREAD, -1)
    wire.ask(map_set_codec, "untold", data(KEY), data(ONE), THREAD, -1)
    names = [found.name for found in wire.ask(client_get_distributed_objects_codec)]
    assert names == ["flights", "untold"]
    wire.ask(client_destroy_proxy_codec, "flights", "hz:impl:mapService")
    assert wire.ask(map_size_codec, "flights") == 0
    assert [found.name for found in wire.ask(client_get_distributed_objects_codec)] == ["untold"]

    seen: list[tuple[str, str, str]] = []
    for message in watcher.take():
        client_add_distributed_object_listener_codec.handle(
            message, lambda name, service, kind, source: seen.append((name, service, kind))
        )
    assert seen == [
        ("flights", "hz:impl:mapService", "CREATED"),
        ("flights", "hz:impl:mapService", "DESTROYED"),
    ]
    assert watcher.ask(client_remove_distributed_object_listener_codec, registration) is True
    wire.ask(client_create_proxy_codec, "more", "hz:impl:mapService")
    assert watcher.take() == []


def test_other_structures_are_refused_by_name(wire: Wire) -> None:
    with pytest.raises(
        AnsweredError, match=r"Executor \(hz:impl:executorService\) is not supported"
    ) as refused:
        wire.ask(client_create_proxy_codec, "q", "hz:impl:executorService")
    assert refused.value.code == 61


def test_statistics_are_taken(wire: Wire) -> None:
    wire.ask(client_statistics_codec, 1, "a=b", b"blob")
    assert not wire.closed
