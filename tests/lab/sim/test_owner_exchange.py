"""One of three members crashes while clients write; those that stay own equal parts, and lose nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import pytest
from tests.lab.sim.stage import Stage, clean

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.partition_table import survivors
from holdfast.core.placement.layout import Candidate, Layout
from holdfast.core.placement.planner import put
from holdfast_lab.check.durability import Write
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

PARTITIONS = 31
KEYS = 60


class Writer:
    """Writes to keys of all partitions in turn, each through another member, and notes what was acknowledged."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.writes: list[Write] = []
        self.running = True
        self._next()

    def _next(self) -> None:
        if not self.running:
            return
        world, living = self.stage.world, self.stage.cluster.living()
        number = len(self.writes)
        write = Write(f"k{number % KEYS}", f"v{number}", world.now_ns)
        self.writes.append(write)
        raw = wire_key(write.key)
        request = Request(Op.SET, MAP, [partition_of(raw, 0, PARTITIONS)], raw, str(write.value).encode())
        process = living[number % len(living)]
        process.step(partial(process.driver.execute, request, partial(self._told, write)))
        world.after(3 * MILLISECOND, self._next)

    def _told(self, write: Write, outcome: Outcome) -> None:
        write.end = self.stage.world.now_ns
        known = {Status.OK: "ok", Status.UNKNOWN: "unknown"}
        write.outcome = known.get(outcome.status, "refused")


def rows_of(process: Process) -> list[ReplicaList]:
    return [row.replicas for row in process.driver.member.table.rows]


def owned(process: Process) -> list[int]:
    return sorted(Counter(row[0] for row in rows_of(process)).values())


def copies(row: ReplicaList) -> list[int]:
    return list(accumulate(member is not None for member in row))


def ring(rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int) -> list[ReplicaList]:
    """A layout by which one member is the first backup of all that another one owns."""
    names = sorted(candidate.uuid for candidate in candidates)
    orders = [tuple(names[(first + slot) % len(names)] for slot in range(len(names))) for first in range(3)]
    return [orders[number % len(names)] + (None,) * (replicas - len(names)) for number in range(len(rows))]


def closed(rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int) -> list[ReplicaList]:
    """A layout that closes holes and leaves the owners where they are."""
    return [put(put(row, 2, None), 1, row[1] or row[2]) for row in rows]


def plan_by(stage: Stage, layout: Layout | None) -> None:
    """Let the master plan by this layout; None: by its own."""
    for process in stage.cluster.living():
        process.driver.member.migrations.layout = layout
    master = stage.processes[0]

    def replan() -> None:
        master.driver.enter()
        master.driver.member.migrations.departures_known()
        master.driver.leave_lane()

    master.step(replan)


def begin() -> tuple[Stage, Writer]:
    """Three members that own equal parts and hold everything, and clients that write."""
    stage = Stage(3, settings=simulated_settings(2, PARTITIONS))
    plan_by(stage, ring)
    stage.rest()
    writer = Writer(stage)
    stage.wait(1)
    assert owned(stage.processes[0]) == [10, 10, 11]
    return stage, writer


def crash_one(stage: Stage) -> list[ReplicaList]:
    """One that is not the master dies; the rows that it leaves, of which one member owns two thirds."""
    crashed = stage.processes.pop()
    here = {process.driver.member.me for process in stage.processes}
    left = [survivors(row, here)[0] for row in rows_of(crashed)]
    counts = Counter(row[0] for row in left).values()
    assert max(counts) - min(counts) > 8
    crashed.crash()
    return left


def end(stage: Stage, writer: Writer) -> None:
    """Owners are even, and nothing that was acknowledged is lost."""
    assert owned(stage.processes[0]) == [15, 16]
    writer.running = False
    acknowledged = sum(write.outcome == "ok" for write in writer.writes)
    assert acknowledged > 1000, acknowledged
    clean(stage, writer.writes, again=False)


def keep_watch(stage: Stage, left: Sequence[ReplicaList], seconds: float) -> None:
    """Let time pass; whatever any member's table says meanwhile, for no backup count are copies fewer than `left`."""
    floors = [copies(row) for row in left]
    until = stage.world.now_ns + round(seconds * 1000) * MILLISECOND
    while stage.world.now_ns < until:
        stage.wait(0.01)
        for process in stage.cluster.living():
            for row, floor in zip(rows_of(process), floors, strict=True):
                assert all(have >= least for have, least in zip(copies(row), floor, strict=True)), (
                    row,
                    floor,
                )


@pytest.mark.rule("placement/O-1")
def test_a_crash_of_one_of_three_with_two_backups_leaves_even_owners() -> None:
    stage, writer = begin()
    plan_by(stage, None)
    left = crash_one(stage)
    done = stage.processes[0].driver.member.migrations.completed
    keep_watch(stage, left, 5)
    master = stage.processes[0].driver.member.migrations
    holes = sum(row[1] is None for row in left)
    assert (master.completed - done, master.failed) == (holes, 0), "holes are closed, and that is all"
    end(stage, writer)


@pytest.mark.rule("placement/O-1")
def test_roles_are_exchanged_where_nothing_else_is_to_be_done() -> None:
    """Each exchange is one migration of an owner, and the fewest that make owners even."""
    stage, writer = begin()
    plan_by(stage, closed)
    keep_watch(stage, crash_one(stage), 5)
    few, many = owned(stage.processes[0])
    assert many - few > 8, "owners have stayed where they were"
    master = stage.processes[0].driver.member.migrations
    done, rows = master.completed, rows_of(stage.processes[0])
    plan_by(stage, None)
    keep_watch(stage, rows, 2)
    assert (master.completed - done, master.failed) == ((many - few) // 2, 0)
    end(stage, writer)
