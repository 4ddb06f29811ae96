"""Many entries at once: stored, added, removed, each with times of its own; what is answered, and when."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember, Wire
from tests.server.test_own_session import COUNT, keys_of, owned

from holdfast.core.model.keys import index_of
from holdfast.core.model.operations import Outcome, Status
from holdfast.server import column_put
from holdfast.wire import own

SET, REMOVE, ADD = own.PutKind


@pytest.fixture
def member() -> MemoryMember:
    return MemoryCluster(2, COUNT).members[0]


@pytest.fixture
def wire(member: MemoryMember) -> Wire:
    found = Wire.to(member)
    found.hello()
    return found


def columns(groups: dict[int, dict[bytes, bytes]]) -> tuple[str, list[int], list[int], own.ColumnBatch]:
    keys = [key for group in groups.values() for key in group]
    values = [value for group in groups.values() for value in group.values()]
    return "m", list(groups), [len(group) for group in groups.values()], own.ColumnBatch.of(keys, values)


def put(wire: Wire, groups: dict[int, dict[bytes, bytes]], **more: Any) -> Any:
    return wire.ask(own.PutColumns, *columns(groups), **more)


def refused(wire: Wire, groups: dict[int, dict[bytes, bytes]], **more: Any) -> own.FaultKind:
    """Why, whether or not the connection has ended."""
    wire.session.receive(own.frame(own.PutColumns(wire.number, *columns(groups), **more)))
    (fault,) = wire.answers()
    assert isinstance(fault, own.Fault)
    return fault.kind


def test_rows_are_set_removed_and_added(member: MemoryMember, wire: Wire) -> None:
    one, two = owned(member)[:2]
    a, b, c, d = keys_of(one, 4)
    (e,) = keys_of(two, 1)
    assert put(wire, {one: {a: b"1", b: b"1", c: b"1"}}).stored == 3
    groups = {one: {a: b"2", b: b"", c: b"1", d: b""}, two: {e: b"2"}}
    answer = put(wire, groups, kinds=bytes([ADD, REMOVE, ADD, REMOVE, ADD]))
    assert (answer.stored, answer.kept, answer.known, answer.moved) == (4, 1, True, [])
    assert member.held[one].maps["m"].state.entries == {a: b"1", c: b"1"}
    assert member.held[two].maps["m"].state.entries == {e: b"2"}
    answer = put(wire, groups, kinds=bytes([ADD, REMOVE, ADD, REMOVE, ADD]))
    assert (answer.stored, answer.kept) == (4, 1), "again, nothing changes"
    assert put(wire, {one: {a: b"3"}}, kinds=bytes([SET])).stored == 1
    assert member.held[one].maps["m"].state.entries[a] == b"3"


def test_each_row_has_its_own_times_to_live(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    a, b, c = keys_of(partition, 3)
    put(wire, {partition: {a: b"", b: b"", c: b""}}, ttls_ms=[0, 500, 700], max_idles_ms=[0, 0, 300])
    expiries = member.held[partition].maps["m"].state.expiries
    assert {key: (one.ttl_ms, one.max_idle_ms) for key, one in expiries.items()} == {
        b: (500, 0),
        c: (700, 300),
    }


def test_a_key_with_a_hash_word_belongs_where_that_says(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    word = next(word for word in range(1, 100) if index_of(word, COUNT) == partition)
    foreign = keys_of(owned(member)[1], 1)[0]
    assert put(wire, {partition: {foreign: b"1"}}, key_hashes=[word]).stored == 1
    assert member.held[partition].maps["m"].state.hashes == {foreign: word}
    assert refused(wire, {partition: {foreign: b"1"}}, key_hashes=[0]) is own.FaultKind.MALFORMED
    assert wire.closed_with


@pytest.mark.parametrize(
    "wrong",
    [
        {"kinds": bytes([3])},
        {"ttls_ms": [-2]},
        {"ttls_ms": [2**60]},
        {"max_idles_ms": [-9]},
        {"kinds": bytes(2)},
        {"ttls_ms": [1, 2]},
        {"max_idles_ms": [1, 2, 3]},
        {"key_hashes": [0, 0]},
    ],
)
def test_columns_that_make_no_sense_store_nothing(
    member: MemoryMember, wire: Wire, wrong: dict[str, Any]
) -> None:
    partition = owned(member)[0]
    (key,) = keys_of(partition, 1)
    assert refused(wire, {partition: {key: b"1"}}, **wrong) is own.FaultKind.MALFORMED
    assert "m" not in member.held[partition].maps


def test_what_changes_nothing_rests_on_what_is_there(member: MemoryMember, wire: Wire) -> None:
    one, two = owned(member)[:2]
    a, b = keys_of(one, 2)
    put(wire, {one: {a: b"1"}})
    resting = member.lane.resting
    assert resting == []
    assert put(wire, {one: {a: b"1"}}, kinds=bytes([ADD])).known
    assert put(wire, {one: {b: b""}}, kinds=bytes([REMOVE])).known
    assert resting == [(one, "m"), (one, "m")]
    (other,) = keys_of(two, 1)
    assert put(wire, {one: {b: b"1"}, two: {other: b"1"}}, kinds=bytes([ADD, ADD])).known
    assert resting == [(one, "m"), (one, "m")], "what was written waits by itself"


def test_what_is_left_is_not_stored_when_the_cluster_becomes_passive_between_two_slices(
    member: MemoryMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_put, "SLICE_BYTES", 1)
    one, two = owned(member)[:2]
    groups = {one: dict.fromkeys(keys_of(one, 1), b"1"), two: dict.fromkeys(keys_of(two, 1), b"1")}
    question = own.PutColumns(1, *columns(groups))
    said: list[own.PutDone] = []
    with pytest.raises(StopIteration) as read:
        next(column_put.ColumnPut.reading(question, COUNT))
    rows = read.value.value
    work = rows.storing(member, said.append)
    next(work)
    member.passive = True
    monkeypatch.setattr(member, "rejection", lambda request, size=0: Outcome(Status.PASSIVE))
    assert list(work) == []
    ((done),) = said
    assert (done.stored, done.moved, done.known) == (1, [two], True)
    assert "m" not in member.held[two].maps
