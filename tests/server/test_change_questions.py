"""What a client may ask of change streams, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember, Wire
from tests.server.test_own_session import COUNT, keys_of, owned

from holdfast.core.model.zone_batches import ZoneBatchDone
from holdfast.core.streams.change_streams import Reach
from holdfast.server import change_questions as changes
from holdfast.server.grid import Grid
from holdfast.wire import own


@pytest.fixture
def member() -> MemoryMember:
    return MemoryCluster(2, COUNT, changes_bytes=1 << 20).members[0]


@pytest.fixture
def wire(member: MemoryMember) -> Wire:
    found = Wire.to(member)
    found.hello()
    return found


def put(wire: Wire, partition: int, count: int, size: int = 10) -> None:
    keys = keys_of(partition, count)
    columns = own.ColumnBatch.of(keys, [bytes(size)] * count)
    assert wire.ask(own.PutColumns, "m", [partition], [count], columns).stored == count


def malformed(answer: Any) -> bool:
    return isinstance(answer, own.Fault) and answer.kind is own.FaultKind.MALFORMED


def test_a_partition_is_asked_for_once(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    put(wire, partition, 3)
    answer = wire.ask(own.AskHeads, "m", [partition])
    assert [head.counter for head in answer.heads] == [3]
    assert malformed(wire.ask(own.AskHeads, "m", [partition] * 2))


@pytest.mark.parametrize("repeated", [True, False])
def test_no_more_partitions_than_there_are_can_be_asked_for(
    member: MemoryMember, wire: Wire, repeated: bool
) -> None:
    partition = owned(member)[0]
    many = [partition] * (COUNT + 1) if repeated else list(range(COUNT + 1))
    assert malformed(wire.ask(own.AskHeads, "m", many))
    nothing = own.ColumnBatch.of([], [])
    assert malformed(wire.ask(own.PutColumns, "m", many, [0] * len(many), nothing))
    assert malformed(wire.ask(own.AskDigests, many))


@pytest.mark.rule("routing/R-12")
@pytest.mark.parametrize("master", ["", "ben"])
def test_a_member_that_has_not_joined_reports_no_heads_of_zones(master: str) -> None:
    """It may lead a group of one replica, and not know that the map has moved away (seed 80203, power cuts)."""
    head = Reach(0, 0, 0, [])
    grid = SimpleNamespace(
        master=master,
        local_copies=SimpleNamespace(led=lambda name, partition: object()),
        zone_entries=lambda name: SimpleNamespace(zone=1),
        zone_batch=lambda batch, done: done(ZoneBatchDone()),
        changes=SimpleNamespace(heads=lambda name, partitions: (dict.fromkeys(partitions, head), [])),
    )
    found: list[tuple[Mapping[int, Reach], list[int]]] = []
    changes.zone_heads(cast("Grid", grid), "m", [3], lambda heads, missing: found.append((heads, missing)))
    assert found == [({3: head}, []) if master else ({}, [3])]


def test_what_is_lost_is_told_in_no_way(member: MemoryMember, wire: Wire) -> None:
    """Also where somebody who holds it is back; but for who compares copies."""
    partition, other = owned(member)[:2]
    columns = own.ColumnBatch.of(keys_of(partition, 1), [b"value"])
    assert wire.ask(own.PutColumns, "safe", [partition], [1], columns).stored == 1
    member.losses.learn(partition, ("safe",))
    member.lane_access.on_losses()
    cut = bytes(16)
    for name, lost in (("safe", True), ("other", False)):
        answers = [
            wire.ask(own.Scan, name, partition),
            wire.ask(own.AskHeads, name, [other, partition]),
            wire.ask(own.AskChanges, name, partition, 0, 0, 1),
            wire.ask(own.Cut, cut, ["other", name], [other, partition], 1000),
        ]
        assert [isinstance(one, own.Fault) and one.kind is own.FaultKind.LOST for one in answers] == [
            lost
        ] * 4
    assert not isinstance(wire.ask(own.Scan, "safe", other), own.Fault)
    assert not isinstance(wire.ask(own.AskHeads, "safe", [other]), own.Fault)
    assert wire.ask(own.Scan, "safe", partition, any_copy=True).columns.rows == 1


def test_names_and_numbers_have_bounds(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    for name in ("", "m" * 1025):
        assert malformed(wire.ask(own.AskHeads, name, [partition]))
        assert malformed(wire.ask(own.AskChanges, name, partition, 0, 0, 1))
    for numbers in (
        (-1, 0, 5, 1 << 20, 0),
        (0, -1, 5, 1 << 20, 0),
        (0, 0, -5),
        (0, 0, 5, 1, -1),
        (0, 0, 2**63),
    ):
        assert malformed(wire.ask(own.AskChanges, "m", partition, *numbers)), numbers
    assert isinstance(wire.ask(own.AskChanges, "m", partition, 0, 0, 2**63 - 1), own.Changes)


def test_an_answer_is_not_as_large_as_somebody_wants(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    held = member.held[partition].open("m")
    member.world.changes_bytes = 64 << 20
    put(wire, partition, 60, size=100_000)
    assert held.counter == 60
    for bytes_max in (2**62, -1):
        answer = wire.ask(own.AskChanges, "m", partition, 0, 0, 60, bytes_max)
        assert answer.columns.size_bytes <= changes.ANSWER_BYTES_MAX
        assert answer.upto == (41 if bytes_max > 0 else 1)
