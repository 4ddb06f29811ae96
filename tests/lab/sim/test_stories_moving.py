"""Directed stories of partitions on the move while clients write."""

from __future__ import annotations

from functools import partial

from tests.lab.sim.test_scenarios import Stage

from holdfast.core.messages import MigrationRequest
from holdfast.core.model.ids import MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.migration import Migration
from holdfast.core.model.operations import Op, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process


def key_in(partition: int) -> bytes:
    return next(raw for n in range(999) if partition_of(raw := wire_key(f"k{n}"), 0, 7) == partition)


def two_partitions(stage: Stage) -> tuple[Process, int, int]:
    """A primary, and two of its partitions that have different backups."""
    for process in stage.processes:
        rows = process.driver.member.table.rows
        mine = [p for p, row in enumerate(rows) if row.owner == process.driver.member.me]
        for one in mine:
            for other in mine:
                if rows[one].replicas[1] != rows[other].replicas[1]:
                    return process, one, other
    raise AssertionError("no primary has partitions with different backups")


def test_a_removed_entry_does_not_come_back_with_a_write_that_is_sent_again() -> None:
    """A write waits for the backup of another partition that it was made together with; its entry is removed, and that
    is acknowledged. Then the partition is supplied to a new member: it is not to hear of the write again.
    """
    stage = Stage(4)
    primary, moving, other = two_partitions(stage)
    member = primary.driver.member
    row: Assignment = member.table.rows[moving]
    by_uuid = {process.driver.member.me: process for process in stage.processes}
    slow = member.table.rows[other].replicas[1]
    assert slow is not None
    stage.cut(primary, by_uuid[slow])
    lane = member.lane

    def write() -> None:
        primary.driver.enter()
        for partition in (moving, other):
            copy = lane.serving[partition]
            assert copy is not None
            lane.set(copy, MAP, key_in(partition), b"v", 0, 0, 0)
        lane.close_batch(lambda known: None)
        primary.driver.leave_lane()

    primary.step(write)
    stage.wait(0.2)
    answers: list[Status] = []
    request = Request(Op.DELETE, MAP, [moving], key_in(moving))
    primary.step(partial(primary.driver.execute, request, lambda outcome: answers.append(outcome.status)))
    stage.wait(0.2)
    assert answers == [Status.OK]
    assert lane.unfinished(moving), "the write still waits, with the one of the other partition"
    taken = {*row.replicas, slow}
    destination = next(process for process in stage.processes if process.driver.member.me not in taken)
    migration = Migration(moving, row.replicas[1], 1, -1, destination.driver.member.me, -1, 1)
    ask = MigrationRequest(stage.view().number, migration, row.version)
    master = MemberId(stage.view().members[0].uuid)
    primary.step(lambda: (member.source.on_request(master, ask), primary.driver.leave_lane()))
    stage.wait(0.5)
    staged = destination.driver.member.copies.staging[moving]
    assert staged.complete
    assert key_in(moving) not in staged.copy.open(MAP).state.entries
