"""The last members that hold data leave: joiners take it over, else a warning says how many entries are gone."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from tests.lab.sim.test_scenarios import Stage

from holdfast.actions.drain import Drain
from holdfast.actions.shut_down import ShutDown
from holdfast.core.effects import Note
from holdfast.core.events import ActionRequested
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind, encode_step
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

KEYS = [f"k{number}" for number in range(20)]


def filled(hosts: int, *, spare: int = 0, backups: int = 1) -> Stage:
    stage = Stage(hosts, spare=spare, settings=simulated_settings(backups, 7))
    for key in KEYS:
        stage.put(stage.processes[0], key, key)
    return stage


def warnings_of(process: Process) -> list[Note]:
    """Watch what this process says about entries that are lost with it."""
    heard: list[Note] = []
    note = process.note

    def watched(said: Note) -> None:
        if said.kind == "last data member leaves: entries are lost":
            heard.append(said)
        note(said)

    process.note = watched  # type: ignore[method-assign]
    return heard


def drain(process: Process) -> None:
    process.step(partial(process.driver.handle, ActionRequested(Drain())))


def until_gone(stage: Stage, process: Process, seconds: int = 60) -> None:
    world = stage.world
    end_ns = world.now_ns + seconds * SECOND
    while not process.dead and world.now_ns < end_ns:
        world.run_until(world.now_ns + 10 * MILLISECOND)
    assert not world.failures, world.failures
    assert process.dead


def test_last_member_waits_for_a_join_request_under_way() -> None:
    stage = filled(1, spare=1)
    only, joiner = stage.processes[0], stage.cluster.start(1)
    lost = warnings_of(only)
    assert not only.picture.is_member(joiner.driver.member.me)
    drain(only)
    until_gone(stage, only)
    assert lost == []
    stage.processes = [joiner]
    stage.rest()
    assert [stage.get(joiner, key) for key in KEYS] == KEYS


@pytest.mark.parametrize("hosts", [1, 2])
def test_last_members_without_a_joiner_warn_and_leave(hosts: int) -> None:
    """Two that leave at the same time: together they name each entry once."""
    stage = filled(hosts)
    lost = [warnings_of(process) for process in stage.processes]
    began_ns = stage.world.now_ns
    for process in stage.processes:
        drain(process)
    for process in stage.processes:
        until_gone(stage, process)
    assert stage.world.now_ns - began_ns < 5 * SECOND
    notes = [note for heard in lost for note in heard]
    assert sum(note.fields["entries"] for note in notes) == len(KEYS)
    assert {note.level for note in notes} == {"warning"}


def test_second_of_two_leaves_later_and_joiner_takes_over_everything() -> None:
    """Nobody goes alone with what it holds while the others still wait for joiners."""
    stage = filled(2, spare=1, backups=0)
    first, second = stage.processes
    drain(first)
    drain(second)
    stage.wait(0.5)
    joiner = stage.cluster.start(2)
    until_gone(stage, first)
    until_gone(stage, second)
    stage.processes = [joiner]
    stage.rest()
    assert [stage.get(joiner, key) for key in KEYS] == KEYS


def test_empty_last_member_leaves_silently_and_at_once() -> None:
    stage = Stage(1)
    only = stage.processes[0]
    lost = warnings_of(only)
    began_ns = stage.world.now_ns
    drain(only)
    assert only.driver.member.membership.has_left, "it waits for no joiner"
    until_gone(stage, only)
    assert stage.world.now_ns - began_ns < 100 * MILLISECOND, "there is no other member to notify"
    assert lost == []


def test_wait_ends_when_the_joiner_dies_before_it_is_admitted() -> None:
    stage = filled(1, spare=1)
    only, joiner = stage.processes[0], stage.cluster.start(1)
    lost = warnings_of(only)
    drain(only)
    joiner.crash()
    until_gone(stage, only)
    assert [note.fields["entries"] for note in lost] == [len(KEYS)]


def test_items_of_a_queue_count_as_entries() -> None:
    stage = Stage(1)
    only = stage.processes[0]
    items = [b"a", b"b"]
    step = encode_step(CollectionStep(StepKind.ADD))
    queue = CollectionKind.QUEUE.map_of("q")
    answers: list[Outcome] = []
    add = Request(Op.ADD_TO_COLLECTION, queue, [0], value=step, items=items)
    only.step(partial(only.driver.execute, add, answers.append))
    stage.wait(1)
    assert [answer.value for answer in answers] == [True]
    lost = warnings_of(only)
    drain(only)
    assert not only.driver.member.membership.has_left, "it waits for a joiner"
    until_gone(stage, only)
    assert [note.fields["maps"] for note in lost] == [[queue]]


def test_cluster_that_is_shut_down_warns_of_nothing() -> None:
    stage = filled(1)
    only = stage.processes[0]
    lost = warnings_of(only)
    only.step(lambda: only.driver.handle(ActionRequested(ShutDown())))
    until_gone(stage, only)
    assert lost == []


def test_journalled_maps_are_named_apart() -> None:
    settings = simulated_settings(1, 7, journal="sync")
    memory_only = msgspec.structs.replace(settings.map("m"), journal="off")
    settings = msgspec.structs.replace(settings, maps={**settings.maps, "in-memory": memory_only})
    stage = Stage(1, settings=settings)
    only = stage.processes[0]
    lost = warnings_of(only)
    stage.put(only, "k", "v")
    raw = wire_key("k")
    request = Request(Op.SET, "in-memory", [partition_of(raw, 0, 7)], raw, b"v")
    answers: list[Outcome] = []
    only.step(lambda: only.driver.execute(request, answers.append))
    stage.wait(1)
    assert [answer.status for answer in answers] == [Status.OK]
    drain(only)
    until_gone(stage, only)
    assert [note.fields["entries"] for note in lost] == [1]
    assert [note.fields["maps"] for note in lost] == [["in-memory"]]
    assert [note.fields["kept"] for note in lost] == [[MAP]]


def test_journalled_maps_alone_are_no_loss() -> None:
    stage = Stage(1, settings=simulated_settings(1, 7, journal="sync"))
    only = stage.processes[0]
    lost = warnings_of(only)
    stage.put(only, "k", "v")
    drain(only)
    until_gone(stage, only)
    assert lost == []
