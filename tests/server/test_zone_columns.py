"""Scans of maps in zones, and bulk writes on them, in a session of Holdfast's own protocol."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.memory_cluster import Wire

from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import ZONE_IDLE_TIMES
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast.core.streams.change_streams import Reach
from holdfast.server.flow import SLICE_BYTES
from holdfast.wire import own
from holdfast.wire.values import to_stored

MAP = "m"
PARTITION = 3
KEYS = [key for key in map(to_stored, range(900)) if partition_of(key, 0, 7) == PARTITION]
MOVED = Outcome(Status.MOVED, None, "this member does not lead the partition's group")
UNKNOWN = Outcome(Status.UNKNOWN, None, "not agreed in time")


@pytest.fixture
def grid() -> OneMemberGrid:
    grid = OneMemberGrid()
    grid.zoned = {MAP}
    return grid


@pytest.fixture
def wire(grid: OneMemberGrid) -> Wire:
    wire = Wire.to(grid)
    wire.hello()
    return wire


def put(wire: Wire, keys: list[bytes], values: list[bytes] | None = None, **more: Any) -> Any:
    columns = own.ColumnBatch.of(keys, values if values is not None else keys)
    return wire.ask(own.PutColumns, MAP, [PARTITION], [len(keys)], columns, **more)


def held(grid: OneMemberGrid) -> dict[bytes, bytes]:
    return dict(grid.copies[PARTITION].open(MAP).state.entries)


def post(wire: Wire, kind: type, *fields: Any, **more: Any) -> int:
    wire.number += 1
    wire.session.receive(own.frame(kind(wire.number, *fields, **more)))
    return wire.number


@pytest.mark.rule("raft_partition/Z-2")
def test_the_first_page_waits_until_the_leader_is_confirmed(grid: OneMemberGrid, wire: Wire) -> None:
    put(wire, KEYS[:10])
    grid.verdict = None
    number = post(wire, own.Scan, MAP, PARTITION, rows_max=6)
    assert wire.answers() == []
    [(batch, _)] = grid.batches
    assert (batch.reads, batch.changes) == ([PARTITION], [])
    grid.copies[PARTITION].open(MAP).state.entries[KEYS[50]] = b"later"
    grid.carry_out()
    [page] = wire.answers()
    assert (page.id, page.columns.rows, page.more) == (number, 6, True)
    rest = wire.ask(own.NextPage, number)
    assert (rest.columns.rows, rest.more) == (4, False), "all pages are of the moment of the first"
    assert not grid.batches


@pytest.mark.rule("raft_partition/Z-2")
def test_a_scan_of_a_leader_that_is_not_confirmed_has_moved(grid: OneMemberGrid, wire: Wire) -> None:
    put(wire, KEYS[:10])
    grid.fails = MOVED
    answer = wire.ask(own.Scan, MAP, PARTITION)
    assert (answer.kind, answer.detail) == (own.FaultKind.MOVED, MOVED.detail)
    assert wire.ask(own.NextPage, answer.id).kind is own.FaultKind.MALFORMED


def test_a_local_map_is_scanned_at_once(grid: OneMemberGrid, wire: Wire) -> None:
    put(wire, KEYS[:10])
    grid.local, grid.verdict = True, None
    assert wire.ask(own.Scan, MAP, PARTITION).columns.rows == 10
    grid.local = False
    assert wire.ask(own.Scan, MAP, PARTITION, any_copy=True).columns.rows == 10, (
        "copies are compared as they are"
    )


def test_a_scan_that_was_replaced_gets_its_first_page_only(grid: OneMemberGrid, wire: Wire) -> None:
    put(wire, KEYS[:10])
    grid.verdict = None
    first = post(wire, own.Scan, MAP, PARTITION, rows_max=6)
    grid.copies[PARTITION].open("primary").state.entries.update(zip(KEYS[:10], KEYS[:10], strict=True))
    second = post(wire, own.Scan, "primary", PARTITION, rows_max=7)
    grid.carry_out()
    assert [(page.id, page.columns.rows) for page in wire.answers()] == [(second, 7), (first, 6)]
    assert wire.ask(own.NextPage, first).kind is own.FaultKind.MALFORMED
    assert wire.ask(own.NextPage, second).columns.rows == 3


def test_a_scan_that_cannot_be_answered_now_says_why(grid: OneMemberGrid, wire: Wire) -> None:
    grid.refuse_with = Outcome(Status.NOT_READY, None, "holdfast zone create z")
    answer = wire.ask(own.Scan, MAP, PARTITION)
    assert (answer.kind, answer.detail) == (own.FaultKind.NOT_READY, "holdfast zone create z")


def test_a_slice_of_a_partition_is_one_batch(grid: OneMemberGrid, wire: Wire) -> None:
    grid.verdict = None
    keys, size = KEYS[:40], SLICE_BYTES // 10
    post(wire, own.PutColumns, MAP, [PARTITION], [40], own.ColumnBatch.of(keys, [b"v" * size] * 40))
    while wire.session._flow.halted:
        wire.session.resume()
    counts = [len(part.writes) for batch, _ in grid.batches for _, [part] in batch.changes]
    assert sum(counts) == 40
    assert 4 <= len(counts) <= 8
    assert wire.answers() == [], "nothing is acknowledged before it is in the log"
    grid.carry_out()
    [answer] = wire.answers()
    assert (answer.stored, answer.moved, answer.known) == (40, [], True)
    assert held(grid).keys() == set(keys)


def test_a_group_is_moved_or_unknown_as_its_batch_is(grid: OneMemberGrid, wire: Wire) -> None:
    grid.fails = MOVED
    answer = put(wire, KEYS[:10])
    assert (answer.stored, answer.moved, answer.known) == (0, [PARTITION], True)
    grid.fails = UNKNOWN
    answer = put(wire, KEYS[:10])
    assert (answer.moved, answer.known, answer.why) == ([], False, UNKNOWN.detail)


def test_rows_to_add_become_requests_in_their_order(grid: OneMemberGrid, wire: Wire) -> None:
    kinds = bytes([own.PutKind.SET, own.PutKind.ADD, own.PutKind.REMOVE])
    grid.own_ttl_ms = 5000
    answer = put(wire, KEYS[:3], [b"a", b"b", b""], kinds=kinds)
    assert [(one.op, one.key, one.ttl_ms) for one in grid.requests] == [
        (Op.SET, KEYS[0], 5000),
        (Op.PUT_IF_ABSENT, KEYS[1], 5000),
        (Op.DELETE, KEYS[2], 0),
    ]
    assert (answer.stored, answer.kept) == (3, 0)
    grid.answer_with = Outcome(Status.OK, b"other")
    answer = put(wire, KEYS[:1], [b"a"], kinds=bytes([own.PutKind.ADD]))
    assert (answer.stored, answer.kept) == (0, 1), "the key has another value"
    grid.answer_with = Outcome(Status.OK, b"a")
    answer = put(wire, KEYS[:1], [b"a"], kinds=bytes([own.PutKind.ADD]))
    assert (answer.stored, answer.kept) == (1, 0), "an earlier try has stored it"


def test_rows_without_kinds_have_the_times_of_the_map_or_their_own(grid: OneMemberGrid, wire: Wire) -> None:
    grid.own_ttl_ms, grid.verdict = 5000, None
    post(
        wire,
        own.PutColumns,
        MAP,
        [PARTITION],
        [3],
        own.ColumnBatch.of(KEYS[:3], KEYS[:3]),
        ttls_ms=[-1, 0, 70],
    )
    [(batch, _)] = grid.batches
    assert [write[3] for write in batch.changes[0][1][0].writes] == [5000, 0, 70]


def test_rows_with_a_maximum_idle_time_are_requests_of_their_own(grid: OneMemberGrid, wire: Wire) -> None:
    grid.level = ZONE_IDLE_TIMES - 1
    answer = put(wire, KEYS[:2], max_idles_ms=[0, 1000])
    assert answer.kind is own.FaultKind.FAILED
    assert "cluster upgrade" in answer.detail
    assert held(grid) == {}
    grid.level = ZONE_IDLE_TIMES
    put(wire, KEYS[:2], max_idles_ms=[0, 1000])
    assert [(one.op, one.max_idle_ms) for one in grid.requests] == [(Op.SET, 0), (Op.SET, 1000)]
    grid.own_max_idle_ms = 70
    put(wire, KEYS[:2])
    assert [one.max_idle_ms for one in grid.requests[2:]] == [70, 70]
    assert grid.batches == []


class Heads:
    """The heads of a member, which leads everything."""

    def streams(self, name: str) -> bool:
        return True

    def heads(self, name: str, partitions: list[int]) -> tuple[dict[int, Reach], list[int]]:
        return {partition: Reach(7, 2, 0, [(2, 0)]) for partition in partitions}, []


@pytest.mark.rule("streams/G-1")
def test_heads_are_answered_by_a_confirmed_leader_only(grid: OneMemberGrid, wire: Wire) -> None:
    grid.changes = Heads()  # type: ignore[attr-defined]
    grid.verdict = None
    post(wire, own.AskHeads, MAP, [PARTITION])
    assert wire.answers() == []
    grid.carry_out()
    [answer] = wire.answers()
    assert isinstance(answer, own.Heads)
    assert [(head.partition, head.counter) for head in answer.heads] == [(PARTITION, 7)]
    grid.verdict, grid.fails = True, MOVED
    answer = wire.ask(own.AskHeads, MAP, [PARTITION])
    assert (answer.heads, answer.moved) == ([], [PARTITION])


@pytest.mark.rule("streams/G-1")
def test_a_partition_that_was_not_led_when_asked_has_no_head(grid: OneMemberGrid, wire: Wire) -> None:
    """The confirmation is of the groups that were led when it was requested. A member that leads another one by now may
    have been deposed again in between.
    """
    grid.changes = Heads()  # type: ignore[attr-defined]
    grid.verdict = None
    other = PARTITION + 1
    elected, grid.lane.leading[other] = grid.lane.leading[other], None
    post(wire, own.AskHeads, MAP, [PARTITION, other])
    grid.lane.leading[other] = elected
    grid.carry_out()
    [answer] = wire.answers()
    assert ([head.partition for head in answer.heads], answer.moved) == ([PARTITION], [other])
