"""Multimaps as the official client asks for them."""

from __future__ import annotations

from typing import Any

import pytest
from hazelcast.protocol.codec import (
    client_create_proxy_codec,
    client_destroy_proxy_codec,
    client_get_distributed_objects_codec,
    multi_map_add_entry_listener_codec,
    multi_map_clear_codec,
    multi_map_contains_entry_codec,
    multi_map_contains_key_codec,
    multi_map_contains_value_codec,
    multi_map_entry_set_codec,
    multi_map_get_codec,
    multi_map_is_locked_codec,
    multi_map_key_set_codec,
    multi_map_lock_codec,
    multi_map_put_all_codec,
    multi_map_put_codec,
    multi_map_remove_codec,
    multi_map_remove_entry_codec,
    multi_map_size_codec,
    multi_map_unlock_codec,
    multi_map_value_count_codec,
    multi_map_values_codec,
)
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.wire import AnsweredError, Wire, data, stored

from holdfast.config import MultimapSettings, Settings
from holdfast.core.model.collections import CollectionKind
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.map_locks import locks_of
from holdfast.core.model.multimap_values import encode_values
from holdfast.core.model.operations import EntryEvent, EventKind, Op
from holdfast.server.hazelcast.collections.multimap_requests import changed_values
from holdfast.wire.hazelcast.layouts import ITEMS_MAX

STRING = (-11).to_bytes(4, "big", signed=True)
A, B, C, K, L = (STRING + b"\0\0\0\1" + one for one in (b"a", b"b", b"c", b"k", b"l"))
THREAD = 1
SERVICE = "hz:impl:multiMapService"
HOLDER = CollectionKind.MULTIMAP.map_of("m")


def seen(found: Any) -> Any:
    return [stored(item) for item in found]


def test_a_multimap_end_to_end(wire: Wire) -> None:
    for value, is_new in ((A, True), (B, True), (A, False)):
        assert wire.ask(multi_map_put_codec, "m", data(K), data(value), THREAD) is is_new
    wire.ask(multi_map_put_all_codec, "m", [(data(K), [data(C)]), (data(L), [data(A), data(A)])])
    assert seen(wire.ask(multi_map_get_codec, "m", data(K), THREAD)) == [A, B, C]
    assert wire.ask(multi_map_value_count_codec, "m", data(K), THREAD) == 3
    assert wire.ask(multi_map_size_codec, "m") == 4
    assert sorted(seen(wire.ask(multi_map_key_set_codec, "m"))) == [K, L]
    assert sorted(seen(wire.ask(multi_map_values_codec, "m"))) == [A, A, B, C]
    entries = [(stored(key), stored(value)) for key, value in wire.ask(multi_map_entry_set_codec, "m")]
    assert sorted(entries) == [(K, A), (K, B), (K, C), (L, A)]
    assert wire.ask(multi_map_contains_key_codec, "m", data(A), THREAD) is False
    assert wire.ask(multi_map_contains_key_codec, "m", data(K), THREAD) is True
    assert wire.ask(multi_map_contains_value_codec, "m", data(C)) is True
    assert wire.ask(multi_map_contains_entry_codec, "m", data(L), data(C), THREAD) is False
    assert wire.ask(multi_map_remove_entry_codec, "m", data(K), data(B), THREAD) is True
    assert seen(wire.ask(multi_map_remove_codec, "m", data(K), THREAD)) == [A, C]
    wire.ask(multi_map_clear_codec, "m")
    assert wire.ask(multi_map_size_codec, "m") == 0


def test_a_multimap_of_lists(wire: Wire, grid: OneMemberGrid) -> None:
    grid.collections.configured = Settings(multimaps={"m": MultimapSettings(values="list", max_size=2)})
    for _ in range(2):
        assert wire.ask(multi_map_put_codec, "m", data(K), data(A), THREAD) is True
    assert seen(wire.ask(multi_map_get_codec, "m", data(K), THREAD)) == [A, A]


def test_listeners_get_an_event_for_each_value(wire: Wire) -> None:
    wire.ask(multi_map_add_entry_listener_codec, "m", True, False)
    message = multi_map_put_codec.encode_request("m", data(K), data(A, 7), THREAD)
    wire.tell(message)
    events: list[tuple[Any, ...]] = []
    for message in wire.take():
        multi_map_add_entry_listener_codec.handle(
            message,
            lambda key, value, old, _, kind, uuid, count: events.append(
                (stored(key), value and stored(value), old, kind, count)
            ),
        )
    assert events == [(K, A, None, EventKind.ADDED, 1)]


def test_values_that_have_come_and_gone() -> None:
    def change(old: list[bytes] | None, new: list[bytes] | None) -> list[tuple[EventKind, bytes | None]]:
        encoded = [encode_values(one) if one is not None else None for one in (old, new)]
        return list(changed_values(EntryEvent(EventKind.UPDATED, HOLDER, "x", K, encoded[1], encoded[0])))

    assert change([A, A], [A, B]) == [(EventKind.REMOVED, A), (EventKind.ADDED, B)]
    assert change([A, B], None) == [(EventKind.REMOVED, A), (EventKind.REMOVED, B)]
    cleared = EntryEvent(EventKind.CLEAR_ALL, HOLDER, "x", count=3)
    assert list(changed_values(cleared)) == [(EventKind.CLEAR_ALL, None)]


def test_locks_of_a_multimap(wire: Wire, grid: OneMemberGrid) -> None:
    wire.ask(multi_map_lock_codec, "m", data(K), THREAD, -1, 1)
    assert grid.requests[-1].map == locks_of(HOLDER)
    wire.ask(multi_map_is_locked_codec, "m", data(K))
    wire.ask(multi_map_unlock_codec, "m", data(K), THREAD, 2)
    with pytest.raises(AnsweredError, match="no lock on the entry"):
        wire.ask(multi_map_unlock_codec, "m", data(K), THREAD, 3)


def test_a_multimap_is_listed_and_destroyed_in_all_partitions(wire: Wire, grid: OneMemberGrid) -> None:
    wire.ask(client_create_proxy_codec, "m", SERVICE)
    listed = wire.ask(client_get_distributed_objects_codec)
    assert [(one.service_name, one.name) for one in listed] == [(SERVICE, "m")]
    wire.ask(client_destroy_proxy_codec, "m", SERVICE)
    destroyed = [request for request in grid.requests if request.op is Op.DESTROY]
    assert [request.map for request in destroyed] == [HOLDER, locks_of(HOLDER)]
    assert all(len(request.partitions) == grid.partition_count for request in destroyed)
    assert wire.ask(client_get_distributed_objects_codec) == []


def test_what_cannot_be_is_rejected(wire: Wire, grid: OneMemberGrid) -> None:
    with pytest.raises(AnsweredError, match=f"{ITEMS_MAX} items"):
        wire.ask(multi_map_put_all_codec, "m", [(data(K), [data(A)] * (ITEMS_MAX + 1))])
    grid.level = STRUCTURES - 1
    with pytest.raises(AnsweredError, match="holdfast cluster upgrade"):
        wire.ask(multi_map_size_codec, "m")
