"""Cuts of maps in zones, alone and together with a map that has a primary, on simulated members."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from tests.lab.sim.stage import change
from tests.lab.sim.zone_stage import ZONED, ZoneStage

from holdfast.core.messages import Forward
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import ZONE_CUTS, FeatureLevels
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.views import ClusterState
from holdfast.core.primary_backup.cuts import PinMark, Taken
from holdfast_lab.sim.calls import key_of, name_of
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

CUT = b"z" * 16
PARTITIONS = tuple(range(7))
KEYS = [f"k{number}" for number in range(20)]


@pytest.fixture
def stage() -> ZoneStage:
    return ZoneStage(4)


def ask(
    process: Process, maps: Sequence[str], partitions: Sequence[int] = PARTITIONS, lease_ms: int = 60_000
) -> list[Taken]:
    """Ask for a cut; the answer comes into the list."""
    answers: list[Taken] = []
    process.step(
        partial(
            process.driver.callers.take_cut, CUT, tuple(maps), tuple(partitions), lease_ms, answers.append
        )
    )
    return answers


def cut(
    stage: ZoneStage, process: Process, maps: Sequence[str], partitions: Sequence[int] = PARTITIONS
) -> Taken:
    answers = ask(process, maps, partitions)
    stage.wait(3)
    [taken] = answers
    return taken


def read(stage: ZoneStage, holder: MemberId, mark: PinMark) -> dict[str, str | None] | None:
    """The content of a cut on one of its holders; None: it keeps none."""
    [process] = [one for one in stage.living() if one.driver.member.me == holder]
    pin = process.driver.member.copies.cuts.find(CUT, mark.partition, mark.map)
    if pin is None:
        return None
    assert (pin.counter, pin.term, pin.entries) == (mark.counter, mark.term, mark.entries)
    return {key_of(key): name_of(value) for key, value in pin.content().items()}


def fill(stage: ZoneStage, value: str) -> None:
    answers = [stage.request(stage.living()[0], Op.SET, key, value) for key in KEYS]
    stage.wait(3)
    assert all(answer for answer in answers)


@pytest.mark.rule("raft_partition/Z-7")
def test_any_member_takes_a_cut_that_all_holders_show(stage: ZoneStage) -> None:
    for turn, process in enumerate(stage.processes):
        fill(stage, f"before-{turn}")
        taken = cut(stage, process, [ZONED])
        assert (taken.known, taken.moved, taken.left) == (True, [], [])
        fill(stage, f"after-{turn}")
        shown: dict[str, str | None] = {}
        for mark in taken.in_zones:
            assert len(mark.holders) == 3
            assert mark.holders[0] == stage.leader(mark.partition).driver.member.me
            contents = [read(stage, holder, mark) for holder in mark.holders]
            assert contents[0] is not None and contents == [contents[0]] * 3
            shown |= contents[0]
        assert shown == dict.fromkeys(KEYS, f"before-{turn}")
        assert {mark.partition for mark in taken.in_zones} | {part for part, _ in taken.unwritten} == {
            *PARTITIONS
        }
    stage.same()


@pytest.mark.rule("raft_partition/C-1")
def test_one_cut_is_over_maps_of_both_engines(stage: ZoneStage) -> None:
    fill(stage, "v")
    process = stage.processes[1]
    for key in KEYS:
        stage.put(process, key, "w")
    owned = [part for part in PARTITIONS if process.picture.leading[part] is not None]
    taken = cut(stage, process, [ZONED, MAP])
    assert taken.known
    assert sorted(taken.moved) == sorted(set(PARTITIONS) - set(owned)), "of these it is not the primary"
    named = {(pin.partition, pin.map) for pin in taken.pins} | {
        (mark.partition, mark.map) for mark in taken.in_zones
    }
    assert named | set(taken.unwritten) == {(part, name) for part in owned for name in (MAP, ZONED)}
    assert {(mark.partition, mark.map) for mark in taken.in_zones} <= {(part, ZONED) for part in owned}
    again = cut(stage, process, [ZONED, MAP], owned)
    assert all(pin.known for pin in again.pins)
    for mark in again.in_zones:
        assert read(stage, mark.holders[0], mark) is not None
    told: list[int] = []
    for one in stage.living():
        one.step(partial(one.driver.callers.hold_cut, CUT, 0, told.append))
    assert sum(told) and all(not one.driver.member.copies.cuts.pins for one in stage.living())


@pytest.mark.rule("raft_partition/C-1")
def test_a_partition_without_a_leader_is_left_out_of_the_answer(stage: ZoneStage) -> None:
    fill(stage, "v")
    asker = stage.processes[0]
    down = 3
    apart = [process for process in stage.replicas(down) if process is not asker]
    for process in apart:
        process.crash()
    answers = ask(asker, [ZONED])
    stage.wait(70)
    [taken] = answers
    assert down in taken.moved and taken.why
    named = {mark.partition for mark in taken.in_zones} | {part for part, _ in taken.unwritten}
    assert not named & {*taken.moved}


def test_a_new_leader_shows_the_cut_of_the_former_one(stage: ZoneStage) -> None:
    fill(stage, "before")
    taken = cut(stage, stage.processes[0], [ZONED])
    mark = taken.in_zones[0]
    before = read(stage, mark.holders[0], mark)
    stage.leader(mark.partition).crash()
    stage.wait(15)
    fill(stage, "after")
    assert [read(stage, holder, mark) for holder in mark.holders[1:]] == [before, before]


def test_an_older_cluster_rejects_cuts_of_zones_by_name() -> None:
    old = FeatureLevels(1, ZONE_CUTS - 1)
    stage = ZoneStage(3, builds=[old] * 3)
    fill(stage, "v")
    taken = cut(stage, stage.processes[0], [ZONED])
    assert not taken.known
    assert "feature level 5" in taken.why and "holdfast cluster upgrade" in taken.why
    leader = stage.leader(0)
    assert not stage.replicas(0)[leader].state.counted, "older replicas do not know terms"


def test_a_cut_of_a_map_whose_zone_is_not_there_says_so(stage: ZoneStage) -> None:
    zones = stage.processes[0].driver.member.agreed.zones
    for known in zones.known:
        zones.forget(known)
    taken = cut(stage, stage.processes[0], [ZONED])
    assert taken.moved == [*PARTITIONS] and "holdfast zone create z" in taken.why


def test_a_passive_cluster_can_be_cut(stage: ZoneStage) -> None:
    fill(stage, "v")
    change(stage, ClusterState.PASSIVE)
    taken = cut(stage, stage.processes[0], [ZONED])
    assert taken.known and not taken.moved
    assert sum(mark.entries for mark in taken.in_zones) == len(KEYS)


def test_a_request_that_cuts_a_map_outside_zones_is_rejected(stage: ZoneStage) -> None:
    """The fuzzer ended a member with it. Another member may send it as well, if its settings are others."""
    request = Request(Op.PIN, MAP, [1], CUT, items=[MAP.encode()], ttl_ms=60_000)
    for process in stage.living():
        answers: list[Outcome] = []
        process.step(partial(process.driver.execute, request, answers.append))
        other = next(one for one in stage.living() if one is not process)
        sender = other.driver.member.me
        process.step(partial(process.driver.member.on_forward, sender, Forward(99, request)))
        stage.wait(1)
        assert [answer.status for answer in answers] == [Status.FAILED]
    assert stage.world.failures == []
