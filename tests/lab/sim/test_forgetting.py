"""A destroyed map costs no member anything, and what comes after it is never confused with it."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, settings

from holdfast.config import Settings
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind, encode_step
from holdfast.core.model.levels import FORGETS
from holdfast.core.model.operations import Op, Outcome, Request, Status, Value
from holdfast.core.state_transfer.forgetting import Forgetting
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast_lab.sim.builds import OLDER
from holdfast_lab.sim.workload import MAP

KEYS = [f"k{number}" for number in range(40)]
EVERY = list(range(7))


def chosen(*, interval_ms: int = 1000, directory: str = "", **of_map: object) -> Settings:
    made = settings(1, replication={"anti_entropy_ms": interval_ms}, persistence={"directory": directory})
    maps = {**made.maps, MAP: msgspec.structs.replace(made.map(MAP), **of_map)} if of_map else made.maps
    return msgspec.structs.replace(made, maps=maps)


def fill(stage: Stage, value: str = "old") -> None:
    answers = [stage.ask(stage.processes[0], Op.SET, key, value) for key in KEYS]
    stage.wait(1)
    assert all(answer[0].status is Status.OK for answer in answers)


def destroy(stage: Stage, seconds: float = 1) -> None:
    answers: list[Outcome] = []
    process = stage.processes[0]
    process.step(partial(process.driver.execute, Request(Op.DESTROY, MAP, EVERY), answers.append))
    stage.wait(seconds)
    assert [answer.status for answer in answers] == [Status.OK]


def copies(stage: Stage) -> list[PartitionCopy]:
    return [
        copy
        for process in stage.processes
        if process.up
        for copy in process.driver.member.copies.held.values()
    ]


def holding(stage: Stage) -> int:
    """How many copies of partitions hold something of the map."""
    return sum(MAP in copy.maps for copy in copies(stage))


def judge_equal(stage: Stage, expected: dict[str, str]) -> None:
    """All copies are alike, and clients find this."""
    stage.rest()
    found = {key: value for key in KEYS if (value := stage.get(stage.processes[0], key)) is not None}
    assert found == expected


@pytest.mark.rule("store/R-1")
def test_a_destroyed_map_is_held_by_no_member() -> None:
    stage = Stage(3)
    fill(stage)
    assert holding(stage) > 7
    destroy(stage)
    assert holding(stage) == 0
    assert not any(name == MAP for copy in copies(stage) for name, _, _ in copy.counters())
    judge_equal(stage, {})


@pytest.mark.rule("state_transfer/M-1")
def test_a_map_of_the_same_name_begins_after_the_one_that_was_destroyed() -> None:
    stage = Stage(3)
    for value in ("first", "second", "third"):
        fill(stage, value)
        reached = max(copy.maps[MAP].counter for copy in copies(stage) if MAP in copy.maps)
        destroy(stage)
        assert max(copy.forgotten_to for copy in copies(stage)) >= reached
    fill(stage, "last")
    starts = {copy.maps[MAP].lineage[0][1] for copy in copies(stage) if MAP in copy.maps}
    assert all(starts)
    judge_equal(stage, dict.fromkeys(KEYS, "last"))


@pytest.mark.rule("state_transfer/M-2")
@pytest.mark.parametrize("again", [False, True])
def test_backups_that_were_not_told_forget_by_the_next_summary(
    monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    monkeypatch.setattr(Forgetting, "on_forget", lambda *_: None)
    stage = Stage(3, settings=chosen(interval_ms=20_000))
    fill(stage)
    destroy(stage)
    assert holding(stage) == 7, "the backups still hold what their primaries have forgotten"
    if again:
        # Their counters are the highest that the former map has reached: they must not take the new one for it.
        fill(stage, "new")
        judge_equal(stage, dict.fromkeys(KEYS, "new"))
    stage.wait(45)
    assert holding(stage) == (14 if again else 0)
    judge_equal(stage, dict.fromkeys(KEYS, "new") if again else {})


@pytest.mark.rule("state_transfer/M-1")
def test_nothing_is_forgotten_while_a_backup_has_not_acknowledged_the_end() -> None:
    stage = Stage(3)
    fill(stage)
    owner = stage.owner_of(KEYS[0])
    for other in stage.processes:
        if other is not owner:
            stage.cut(other, owner)
    answers: list[Outcome] = []
    owner.step(partial(owner.driver.execute, Request(Op.DESTROY, MAP, EVERY), answers.append))
    stage.wait(0.3)
    assert not answers
    assert any(MAP in copy.maps for copy in owner.driver.member.lane.leading if copy is not None)
    stage.heal()
    stage.wait(5)
    judge_equal(stage, {})


@pytest.mark.rule("state_transfer/M-3")
def test_a_map_that_stays_empty_is_forgotten_unless_it_has_a_change_stream() -> None:
    for changes_bytes, left in ((0, 0), (1 << 16, 14)):
        stage = Stage(3, settings=chosen(changes_bytes=changes_bytes))
        fill(stage)
        for key in KEYS:
            stage.ask(stage.processes[0], Op.DELETE, key)
        stage.wait(0.5)
        assert holding(stage) == 14
        stage.wait(6)
        assert holding(stage) == left
        destroy(stage, 2)
        assert holding(stage) == 0
        judge_equal(stage, {})


def test_a_queue_that_stays_empty_is_forgotten() -> None:
    """Clients choose the names of queues, as those of replies, and use many of them once."""
    stage = Stage(3, settings=chosen())
    queue = CollectionKind.QUEUE.map_of("q")

    def step(kind: StepKind, *items: bytes) -> Value:
        answers: list[Outcome] = []
        process = stage.processes[0]
        content = encode_step(CollectionStep(kind))
        some = Request(kind.op, queue, [0], value=content, items=list(items))
        process.step(partial(process.driver.execute, some, answers.append))
        stage.wait(0.5)
        return answers[0].value

    def holders() -> int:
        return sum(queue in copy.maps for copy in copies(stage))

    for item in (b"a", b"b"):
        assert step(StepKind.ADD, item) is True
        assert holders() == 2
        assert step(StepKind.POLL) == item
        stage.wait(6)
        assert holders() == 0
    judge_equal(stage, {})


@pytest.mark.rule("state_transfer/C-1")
def test_a_copy_from_before_the_end_is_no_base_for_the_map_that_came_after() -> None:
    """A member that was away brings back the former map at the same counters as the new one has, of the same term."""
    stage = Stage(3, settings=chosen(directory="d", journal="sync"), spare=0)
    fill(stage)
    away = stage.processes[2]
    host = stage.cluster.addresses.index(away.address)
    away.crash()
    stage.processes.pop()
    stage.rest()
    fill(stage, "more")
    destroy(stage)
    fill(stage, "new")
    stage.processes.append(stage.cluster.start(host))
    judge_equal(stage, dict.fromkeys(KEYS, "new"))


@pytest.mark.rule("journal/R-2")
@pytest.mark.parametrize("again", [False, True])
def test_what_was_destroyed_does_not_come_back_from_files(*, again: bool) -> None:
    stage = Stage(3, settings=chosen(directory="d", journal="sync"))
    fill(stage)
    destroy(stage)
    if again:
        fill(stage, "new")
    stage.wait(1)
    stage.cluster.power_cut_everywhere()
    stage.world.weather.refusal = 1.0
    stage.processes = [stage.cluster.start(host, bootstrap=host == 0) for host in range(3)]
    judge_equal(stage, dict.fromkeys(KEYS, "new") if again else {})
    assert holding(stage) == (14 if again else 0)


def test_partitions_move_while_maps_come_and_go() -> None:
    stage = Stage(2, spare=1)
    for number in range(3):
        fill(stage, f"v{number}")
        if number == 1:
            stage.processes.append(stage.cluster.start(2))
        destroy(stage, 0.2)
        fill(stage, f"w{number}")
    stage.rest()
    judge_equal(stage, dict.fromkeys(KEYS, "w2"))


def test_a_primary_dies_before_its_backups_know_that_it_has_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(3)
    fill(stage)
    with monkeypatch.context() as patched:
        patched.setattr(Forgetting, "on_forget", lambda *_: None)
        destroy(stage, 0.3)
    stage.processes.pop().crash()
    stage.rest()
    fill(stage, "new")
    judge_equal(stage, dict.fromkeys(KEYS, "new"))
    destroy(stage, 3)
    assert holding(stage) == 0


@pytest.mark.rule("membership/L-4")
def test_nothing_is_forgotten_before_every_member_understands_it() -> None:
    stage = Stage(3, builds=[OLDER, OLDER, OLDER])
    fill(stage)
    destroy(stage)
    assert holding(stage) == 14
    for process in stage.processes:
        assert not process.driver.member.out.does(FORGETS)
    judge_equal(stage, {})
