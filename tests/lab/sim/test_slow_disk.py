"""A disk that does not keep up: nothing is promised that is not on it, and nothing waits for it for ever."""

from __future__ import annotations

from functools import partial

from tests.lab.sim.stage import Stage

from holdfast.actions.drain import Drain
from holdfast.config import Settings
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.disk import SimDisk
from holdfast_lab.sim.world import Process

SLOW = 1_000_000.0
PARTITIONS = 7


def kept(backups: int = 1) -> Settings:
    return simulated_settings(backups, PARTITIONS, journal="sync")


def stage_of(hosts: int, backups: int = 1) -> Stage:
    stage = Stage(hosts, settings=kept(backups))
    # Who is dead refuses connections: nobody waits for it longer than needed. What may be lost is said by the story.
    stage.world.weather.refusal = 1.0
    stage.cluster.counts_copies = False
    return stage


def by_uuid(stage: Stage) -> dict[MemberId, Process]:
    return {process.driver.member.me: process for process in stage.processes}


def disk(stage: Stage, process: Process) -> SimDisk:
    found = stage.cluster.disk_of(process)
    assert found is not None
    return found


def key_in(partition: int) -> str:
    return next(f"k{n}" for n in range(999) if partition_of(wire_key(f"k{n}"), 0, PARTITIONS) == partition)


def ask_again_until(stage: Stage, answers: list[Outcome], seconds: float = 30) -> None:
    until = stage.world.now_ns + seconds * 1e9
    while not answers and stage.world.now_ns < until:
        stage.world.run_until(stage.world.now_ns + 2 * MILLISECOND)
    assert not stage.world.failures, stage.world.failures


def test_what_a_new_primary_has_not_on_its_disk_it_does_not_promise() -> None:
    """A backup has applied a write, and not written it down, when it becomes the primary and the caller asks again."""
    stage = stage_of(4)
    members = by_uuid(stage)
    master = stage.view().members[0].uuid
    rows = stage.processes[0].driver.member.table.rows
    partition = next(p for p, row in enumerate(rows) if master not in row.replicas[:2])
    primary, backup = (members[uuid] for uuid in rows[partition].replicas if uuid is not None)
    asking = next(p for p in stage.processes if p not in (primary, backup))
    key = key_in(partition)
    stage.put(asking, key, "first")
    disk(stage, backup).slowness = SLOW
    stage.cut(primary, asking)
    answers = stage.ask(asking, Op.SET, key, "second")
    stage.wait(0.2)
    stage.cluster.power_cut(primary)
    ask_again_until(stage, answers)
    promised = bool(answers) and answers[0].status is Status.OK
    stage.cluster.power_cut_everywhere()
    stage.wait(1)
    for one in stage.cluster.disks:
        one.slowness = 1.0
    stage.heal()
    stage.processes = [stage.cluster.start(index) for index in range(4)]
    stage.rest()
    found = stage.get(stage.processes[0], key)
    assert found == "second" if promised else found in ("first", "second")


def test_who_has_left_is_not_needed_after_a_power_cut() -> None:
    """A member without backups drains and goes: the disks of the others say who has its partitions."""
    stage = stage_of(3, backups=0)
    for number in range(20):
        stage.put(stage.processes[0], f"k{number}", "v")
    leaver = stage.processes.pop()
    leaver.step(partial(leaver.driver.handle, ActionRequested(Drain())))
    while not leaver.dead:
        stage.wait(0.05)
    stage.cluster.power_cut_everywhere()
    stage.wait(2)
    stage.processes = [stage.cluster.start(0, bootstrap=True), stage.cluster.start(1)]
    stage.rest()
    assert {stage.get(stage.processes[0], f"k{number}") for number in range(20)} == {"v"}


def test_a_handover_does_not_close_a_partition_for_a_slow_backup() -> None:
    stage = stage_of(3)
    members = by_uuid(stage)
    master = stage.view().members[0].uuid
    rows = stage.processes[0].driver.member.table.rows
    partition = next(p for p, row in enumerate(rows) if master not in row.replicas[:2])
    primary, backup = (members[uuid] for uuid in rows[partition].replicas if uuid is not None)
    key = key_in(partition)
    stage.put(primary, key, "v")
    disk(stage, backup).slowness = SLOW
    stage.ask(primary, Op.SET, key, "w")
    stage.wait(1)
    migrations = members[master].driver.member.migrations
    migrations.layout = lambda now, candidates, width: [
        (master, *row[1:]) if number == partition else row for number, row in enumerate(now)
    ]
    members[master].step(lambda: (migrations._discard_plan(), migrations.control()))
    read = 0
    for _ in range(10):
        stage.wait(3)
        answers = stage.ask(primary, Op.GET, key)
        stage.wait(3)
        read += bool(answers) and answers[0].status is Status.OK
    assert read >= 8, "reads wait for a handover for a few seconds at most"
