"""What a scan answers: only some keys, only some fields, at most so many; now, or at a cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.memory_cluster import MemoryCluster, MemoryMember, Wire
from tests.server.test_own_session import COUNT, KEY, at, keys_of, owned, text

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.primary_backup.cuts import LOOKED_AT_MAX
from holdfast.server.scanning import FIELDS_MAX, PROJECTED_BYTES_MAX, PROJECTED_ROWS_MAX, projection
from holdfast.wire import own
from holdfast.wire.values import from_stored, to_stored

CUT = b"c" * 16
NOTHING: list[str] = []


@pytest.fixture
def member() -> MemoryMember:
    return MemoryCluster(2, COUNT).members[0]


@pytest.fixture
def wire(member: MemoryMember) -> Wire:
    found = Wire.to(member)
    found.hello()
    return found


def stored(document: str) -> bytes:
    raw = document.encode()
    return (-130).to_bytes(4, "big", signed=True) + len(raw).to_bytes(4, "big") + raw


def rows(wire: Wire, partition: int, **more: Any) -> dict[bytes, bytes]:
    page = wire.ask(own.Scan, "m", partition, **more)
    assert isinstance(page, own.Page), page
    scan = page.id
    found = dict(zip(*page.columns.split(), strict=True))
    while page.more:
        page = wire.ask(own.NextPage, scan)
        found |= dict(zip(*page.columns.split(), strict=True))
    return found


def fill(member: MemoryMember, partition: int, count: int = 6, ttl_ms: int = 0) -> dict[bytes, bytes]:
    copy = member.held[partition]
    entries = {
        key: to_stored({"a": number, "b c": [number], "d": None})
        for number, key in enumerate(keys_of(partition, count))
    }
    for key, value in entries.items():
        member.lane.set(copy, "m", key, value, ttl_ms, 0, 0)
    return entries


def test_fields_are_cut_out_of_json_objects_as_they_are_written() -> None:
    document = stored('{"a": 1.50 ,"b":{"c":[1, 2]},"é":"ü","d":null,"b":{"last":true}}')
    (found,) = projection(("é", "b", "missing", "d"))([document])
    assert found == stored('{"é":"ü","b":{"last":true},"d":null}')
    assert projection(("a",))([document]) == [stored('{"a":1.50}')]
    assert projection(("missing",))([document]) == [stored("{}")]
    assert json.loads(projection(("a", "x y"))([stored('{"x y":2,"a":1}')])[0][8:]) == {"a": 1, "x y": 2}


@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=3) | st.none(), max_size=5),
    st.lists(st.text(max_size=5), max_size=3),
)
def test_any_names_will_do(document: dict[str, Any], names: list[str]) -> None:
    fields = tuple(dict.fromkeys([*names, *list(document)[::2], "x"]))
    (found,) = projection(fields)([to_stored(document)])
    assert from_stored(found) == {name: document[name] for name in fields if name in document}


@pytest.mark.parametrize(
    "value",
    [
        stored("[1,2]"),
        stored('"text"'),
        stored("{broken"),
        stored(""),
        stored('{"a":1}')[:6],
        pytest.param(stored('{"b":' + "[" * 100_000), id="deep"),
        text("a"),
        to_stored(5),
        b"\xff",
    ],
)
def test_values_that_are_no_objects_stay_whole(value: bytes) -> None:
    assert projection(("a",))([value]) == projection(('a"',))([value]) == [value]
    assert projection(())([value]) == [b""]


def test_a_scan_with_fields(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    entries = fill(member, partition)
    whole = rows(wire, partition)
    assert whole == entries
    some = rows(wire, partition, fields=["b c", "a", "a"])
    assert some == {key: to_stored({"b c": [number], "a": number}) for number, key in enumerate(entries)}
    assert rows(wire, partition, fields=NOTHING) == dict.fromkeys(entries, b"")


def test_pages_with_fields_are_short_and_those_without_values_are_not(
    member: MemoryMember, wire: Wire
) -> None:
    partition = owned(member)[0]
    fill(member, partition, PROJECTED_ROWS_MAX + 5)
    page = wire.ask(own.Scan, "m", partition, fields=["a"])
    assert (page.columns.rows, page.more) == (PROJECTED_ROWS_MAX, True)
    page = wire.ask(own.Scan, "m", partition, fields=NOTHING)
    assert (page.columns.rows, page.more) == (PROJECTED_ROWS_MAX + 5, False)


def test_pages_with_fields_look_into_so_many_bytes(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    copy = member.held[partition]
    keys = keys_of(partition, 50)
    for number, key in enumerate(keys):
        member.lane.set(copy, "m", key, to_stored({"a": number, "b": "x" * 100_000}), 0, 0, 0)
    page = wire.ask(own.Scan, "m", partition, fields=["a"])
    assert (page.columns.rows, page.more) == (PROJECTED_BYTES_MAX // 100_000 + 1, True)
    page = wire.ask(own.Scan, "m", partition, fields=NOTHING)
    assert page.columns.rows == 50, "nothing is looked into"
    assert rows(wire, partition, fields=["a"]) == {
        key: to_stored({"a": number}) for number, key in enumerate(keys)
    }
    member.lane.set(copy, "n", keys[0], to_stored({"b": "x" * (PROJECTED_BYTES_MAX + 1)}), 0, 0, 0)
    page = wire.ask(own.Scan, "n", partition, fields=["a"])
    assert (page.columns.rows, page.more) == (1, False), "a page has one row at least"


def test_a_scan_of_some_keys(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    entries = fill(member, partition)
    wanted = [*list(entries)[1:4], list(entries)[1], text("nowhere")]
    assert rows(wire, partition, keys=wanted) == {key: entries[key] for key in wanted[:3]}
    assert rows(wire, partition, keys=wanted, limit=2) == {key: entries[key] for key in wanted[:2]}
    assert len(rows(wire, partition, limit=4)) == 4
    assert rows(wire, partition, limit=100) == entries
    fill(member, partition, 3, ttl_ms=5)
    member.now = 5 * MILLISECOND
    assert rows(wire, partition, keys=wanted) == {wanted[2]: entries[wanted[2]]}, "what is over is not shown"
    assert len(rows(wire, partition, limit=2)) == 2


def take(wire: Wire, partition: int) -> own.CutMade:
    made = wire.ask(own.Cut, CUT, ["m"], [partition], 60_000)
    assert isinstance(made, own.CutMade)
    assert made.known
    return made


def test_a_scan_of_a_cut_takes_the_same_words(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    copy = member.held[partition]
    entries = fill(member, partition)
    (mark,) = take(wire, partition).marks
    assert (mark.partition, mark.map, mark.counter, mark.entries) == (partition, "m", 7, 6)
    keys = list(entries)
    member.lane.remove(copy, "m", keys[0])
    member.lane.set(copy, "m", keys[1], b"new", 0, 0, 0)
    member.lane.set(copy, "m", keys_of(partition, 7)[6], b"new", 0, 0, 0)
    assert rows(wire, partition, cut=CUT) == entries
    assert wire.ask(own.Scan, "m", partition, cut=CUT).counter == 7
    assert rows(wire, partition, cut=CUT, keys=[*keys[:3], text("x")]) == {
        key: entries[key] for key in keys[:3]
    }
    assert rows(wire, partition, cut=CUT, fields=["a"]) == {
        key: to_stored({"a": number}) for number, key in enumerate(keys)
    }
    assert len(rows(wire, partition, cut=CUT, limit=2)) == 2
    assert rows(wire, partition, cut=CUT, ranges=list(range(64))) == entries
    backup = Wire.to(member.world.members[1])
    backup.hello()
    assert rows(backup, partition, cut=CUT) == entries, "a backup answers, too"


def test_times_to_live_at_the_cut_are_told_whole(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    (key,) = fill(member, partition, 1, ttl_ms=5000)
    member.now = 1000 * MILLISECOND
    take(wire, partition)
    member.now = 9000 * MILLISECOND
    page = wire.ask(own.Scan, "m", partition, cut=CUT, any_copy=True)
    assert (page.columns.split()[0], page.ttls_ms) == ([key], [4000])
    assert len(rows(wire, partition, cut=CUT)) == 1, "it had not ended then"
    assert rows(wire, partition) == {}


def test_there_may_be_only_so_many_fields(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    many = [f"f{number}" for number in range(FIELDS_MAX + 1)]
    assert wire.ask(own.Scan, "m", partition, fields=many).kind is own.FaultKind.MALFORMED
    assert isinstance(wire.ask(own.Scan, "m", partition, fields=many[1:]), own.Page)


def test_what_is_not_kept_is_refused(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    fill(member, partition)
    fault = wire.ask(own.Scan, "m", partition, cut=CUT)
    assert (fault.kind, "is not kept here" in fault.detail) == (own.FaultKind.MOVED, True)
    take(wire, partition)
    assert wire.ask(own.Scan, "n", partition, cut=CUT).kind is own.FaultKind.MOVED
    assert wire.ask(own.HoldCut, CUT, 0).marks == 1
    assert wire.ask(own.Scan, "m", partition, cut=CUT).kind is own.FaultKind.MOVED
    assert wire.ask(own.HoldCut, CUT, 1000).marks == 0


def test_a_member_that_keeps_many_cuts_begins_no_more(member: MemoryMember, wire: Wire) -> None:
    fill(member, at(KEY) if at(KEY) in owned(member) else owned(member)[0])
    partitions = owned(member)
    for number in range(64):
        assert isinstance(wire.ask(own.Cut, number.to_bytes(16, "big"), ["m"], partitions, 1000), own.CutMade)
    fault = wire.ask(own.Cut, CUT, ["m"], partitions, 1000)
    assert (fault.kind, "64 cuts" in fault.detail) == (own.FaultKind.NOT_READY, True)
    assert isinstance(wire.ask(own.Cut, bytes(16), ["m"], partitions, 1000), own.CutMade)
    other = member.world.members[1]
    backup = Wire.to(other)
    backup.hello()
    assert len(other.cuts) == 64, "as a backup"
    assert isinstance(backup.ask(own.Cut, CUT, ["m"], owned(other), 1000), own.CutMade)


DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("maps", "partitions", "lease_ms", "words"),
    [
        ([f"m{number}" for number in range(own.CUT_MAPS_MAX + 1)], [], 1000, "1 to 1024 maps"),
        ([f"m{number}" for number in range(own.CUT_MARKS_MAX // 4)], [0] * 5, 1000, "maps times partitions"),
        (["m"], [0] * (own.CUT_MARKS_MAX + 1), 1000, "256 partitions at most"),
        ([], [0], 1000, "1 to 1024 maps"),
        (["m", ""], [0], 1000, "1 to 1024 characters"),
        (["m", "n" * 1025], [0], 1000, "1 to 1024 characters"),
        (["m"], [0], DAY_MS + 1, "lease"),
    ],
)
def test_a_question_for_a_cut_is_bounded(
    wire: Wire, member: MemoryMember, maps: list[str], partitions: list[int], lease_ms: int, words: str
) -> None:
    fault = wire.ask(own.Cut, CUT, maps, partitions, lease_ms)
    assert isinstance(fault, own.Fault), fault
    assert (fault.kind, words in fault.detail) == (own.FaultKind.MALFORMED, True), fault.detail
    assert len(member.cuts) == 0


def test_a_question_for_a_cut_may_be_as_large_as_that(wire: Wire, member: MemoryMember) -> None:
    maps = [f"m{number}" for number in range(own.CUT_MARKS_MAX // len(owned(member)))]
    made = wire.ask(own.Cut, CUT, maps, owned(member), DAY_MS)
    assert isinstance(made, own.CutMade)
    assert len(made.marks) == len(maps) * len(owned(member))
    many = [f"m{number}" for number in range(own.CUT_MAPS_MAX)]
    assert len(wire.ask(own.Cut, bytes(16), many, owned(member)[:1], DAY_MS).marks) == len(many)


def test_a_cut_has_the_same_maps_whenever_it_is_asked_for(wire: Wire, member: MemoryMember) -> None:
    partition = owned(member)[0]
    fill(member, partition)
    take(wire, partition)
    fault = wire.ask(own.Cut, CUT, ["m", "n"], [partition], 1000)
    assert (fault.kind, "other maps" in fault.detail) == (own.FaultKind.MALFORMED, True)
    assert isinstance(wire.ask(own.Cut, CUT, ["m", "m"], [partition], 1000), own.CutMade)


def test_a_member_tells_what_it_keeps_of_a_cut(wire: Wire, member: MemoryMember) -> None:
    partition, other = owned(member)[:2]
    fill(member, partition)
    take(wire, partition)
    assert wire.ask(own.HoldCut, CUT, 1000).kept == []
    assert wire.ask(own.HoldCut, CUT, 1000, [partition, other]).kept == [(partition, "m", 7, 1)]
    assert wire.ask(own.HoldCut, CUT, 1000, [other, other]).kind is own.FaultKind.MALFORMED
    assert wire.ask(own.HoldCut, CUT, 1000, [COUNT]).kind is own.FaultKind.MALFORMED
    assert wire.ask(own.HoldCut, CUT, 1000, [0] * 257).kind is own.FaultKind.MALFORMED


def test_what_a_client_asks_again_for_is_named(wire: Wire, member: MemoryMember) -> None:
    partitions = owned(member)[:2]
    for partition in partitions:
        held = member.held[partition].open("m")
        held.updates.next()
        for number in range(LOOKED_AT_MAX // 2 + 1):
            held.state.store(b"k%d" % number, b"", 60_000, 0, 0, 0)
    made = wire.ask(own.Cut, CUT, ["m"], partitions, 60_000)
    assert ([mark.partition for mark in made.marks], made.left) == (partitions[:1], partitions[1:])
