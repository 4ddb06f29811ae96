"""One question for a cut over maps of both engines: which partitions it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.core.events import CutRequested
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.cuts import OnTaken, PinMark, Taken
from holdfast.core.raft_partition.cutter import Cutter
from holdfast.core.routing.pending import Within

ME = MemberId("00000001-0000-4000-8000-000000000001")
CUT = b"c" * 16


@dataclass
class Pinned:
    """A pin of engine 1."""

    partition: int
    map: str


@dataclass
class Primaries:
    """Engine 1: serves partitions 0 to 2 of the map `p`, and has no time for partition 2."""

    begun: list[tuple[str, ...]] = field(default_factory=list)

    def begin(self, cut: bytes, names: list[str], lease_ms: int) -> None:
        self.begun.append(tuple(names))

    def take(
        self,
        cut: bytes,
        maps: list[str],
        partitions: tuple[int, ...],
        lease_ms: int,
        done: OnTaken,
        *,
        passive: bool,
    ) -> None:
        pins: list[Any] = [Pinned(one, name) for one in partitions if one < 2 for name in maps]
        done(Taken(pins, moved=[one for one in partitions if one > 2], left=[2]))


class Zones:
    """Zones: maps that begin with their letter, y and z."""

    def __init__(self, answers: dict[tuple[int, str], Outcome]) -> None:
        self.answers = answers
        self.asked: list[Request] = []
        self.homes = self

    def houses(self, name: str) -> bool:
        return name[0] in "yz"

    def zone_of(self, name: str) -> int:
        return "yz".index(name[0])

    def execute(self, request: Request, asker: Within) -> None:
        self.asked.append(request)
        kept: list[None | int | bytes] = []
        for _ in request.items:
            kept += (5, 2, 1)
        usual = Outcome(Status.OK, [*kept, ME.encode()])
        asker.receiver.answered(asker.ticket, self.answers.get((request.partitions[0], request.map), usual))


def take(
    answers: dict[tuple[int, str], Outcome], *maps: str, out: Outbox | None = None
) -> tuple[Taken, Zones]:
    zones, told = Zones(answers), list[Taken]()
    cutter = Cutter(out or Outbox(), Primaries(), zones)  # type: ignore[arg-type]
    cutter.take(CutRequested(1, CUT, maps, (0, 1, 2, 3), 1000), told.append)
    [taken] = told
    assert cutter.leftovers == {"cuts in zones": 0}
    return taken, zones


@pytest.mark.rule("raft_partition/C-1")
def test_maps_of_each_zone_are_cut_together_where_engine_1_has_cut_its_own() -> None:
    taken, zones = take({}, "p", "z1", "y1", "z2")
    assert [(one.op, one.partitions, one.items, one.key, one.ttl_ms) for one in zones.asked] == [
        (Op.PIN, [0], [b"z1", b"z2"], CUT, 1000),
        (Op.PIN, [0], [b"y1"], CUT, 1000),
        (Op.PIN, [1], [b"z1", b"z2"], CUT, 1000),
        (Op.PIN, [1], [b"y1"], CUT, 1000),
    ]
    assert (taken.moved, taken.left, taken.known) == ([3], [2], True)
    assert taken.in_zones == [
        PinMark(partition, name, 5, 2, 1, (ME,)) for partition in (0, 1) for name in ("z1", "z2", "y1")
    ]


@pytest.mark.rule("raft_partition/C-1")
def test_a_partition_of_which_one_zone_fails_names_no_mark() -> None:
    taken, _ = take({(1, "y1"): Outcome(Status.MOVED)}, "p", "z1", "y1")
    assert (taken.known, sorted(taken.moved)) == (True, [1, 3])
    assert [pin.partition for pin in taken.pins] == [0]
    assert {mark.partition for mark in taken.in_zones} == {0}


def test_a_failure_other_than_a_move_is_told() -> None:
    taken, _ = take({(1, "z1"): Outcome(Status.NO_ROOM, None, "the disk is full")}, "z1")
    assert (taken.known, taken.why, taken.moved) == (True, "the disk is full", [1])
    assert {mark.partition for mark in taken.in_zones} == {0, 2, 3}


def test_maps_outside_zones_alone_are_cut_by_engine_1() -> None:
    taken, zones = take({}, "p")
    assert zones.asked == []
    assert [pin.partition for pin in taken.pins] == [0, 1]
