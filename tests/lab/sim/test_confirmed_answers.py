"""An answer that changed nothing must hold, too, also when it was given by a primary that had been replaced.

A primary is cut off from all others and does not know yet that it has been replaced; clients still reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, settings

from holdfast.config import MapSettings, Settings
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import READS, Op, Outcome, Request, Status
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

PRESENT, ABSENT = "there", "gone"
"""Before the cut the one is there and the other is not; behind the cut primary's back it is the other way round."""


def request(op: Op, key: str, value: str = "", expected: str = "") -> Request:
    raw = wire_key(key)
    items = [raw] if op is Op.GET_ALL else []
    partitions = [partition_of(raw, 0, 7)]
    return Request(op, MAP, partitions, raw, value.encode(), expected.encode(), items)


QUIET = {
    "put-if-absent": request(Op.PUT_IF_ABSENT, PRESENT, "2"),
    "replace-absent": request(Op.REPLACE, ABSENT, "2"),
    "replace-if-same": request(Op.REPLACE_IF_SAME, PRESENT, "2", "another"),
    "remove": request(Op.REMOVE, ABSENT),
    "delete": request(Op.DELETE, ABSENT),
    "remove-if-same": request(Op.REMOVE_IF_SAME, PRESENT, expected="another"),
    "set-ttl": request(Op.SET_TTL, ABSENT),
    "evict": request(Op.EVICT, ABSENT),
    "clear": msgspec.structs.replace(request(Op.CLEAR, ABSENT), key=b""),
}
"""Requests that change nothing on a primary that holds one key and not the other."""

READING = {
    op.name: msgspec.structs.replace(
        request(op, PRESENT), key=b"" if op in (Op.SIZE, Op.KEYS) else wire_key(PRESENT)
    )
    for op in (Op.GET, Op.CONTAINS_KEY, Op.ENTRY_VIEW, Op.GET_ALL, Op.SIZE, Op.KEYS)
}


def confirmed(reads: str) -> Settings:
    base = settings()
    return msgspec.structs.replace(base, maps={**base.maps, MAP: MapSettings(reads=reads)})


def send(process: Process, what: Request) -> list[Outcome]:
    answers: list[Outcome] = []
    process.step(partial(process.driver.execute, what, answers.append))
    return answers


class Deposed:
    """A cluster whose primary of both keys is cut off and was replaced; both keys have changed since."""

    def __init__(self, *, reads: str = "primary") -> None:
        self.stage = stage = Stage(4, settings=confirmed(reads))
        self.old = stage.owner_of(PRESENT)
        stage.put(self.old, PRESENT, "1")
        stage.isolate(self.old)
        stage.wait(20)
        self.others = [process for process in stage.processes if process is not self.old]
        assert [answer.status for answer in self.ask(self.others[0], request(Op.DELETE, PRESENT))] == [
            Status.OK
        ]
        assert [answer.status for answer in self.ask(self.others[0], request(Op.SET, ABSENT, "3"))] == [
            Status.OK
        ]

    def ask(self, process: Process, what: Request) -> list[Outcome]:
        answers = send(process, what)
        self.stage.wait(2)
        return answers


def same_partition() -> None:
    partitions = {partition_of(wire_key(key), 0, 7) for key in (PRESENT, ABSENT)}
    assert len(partitions) == 1, "one primary for both keys: choose other names"


@pytest.mark.parametrize("name", QUIET)
def test_a_primary_that_was_replaced_gives_no_answer_that_changed_nothing(name: str) -> None:
    same_partition()
    deposed = Deposed()
    answers = deposed.ask(deposed.old, QUIET[name])
    if name == "clear":
        # It takes out what this primary holds: a write, which waits for the backup as ever.
        assert answers == []
        return
    assert [answer for answer in answers if answer.status is Status.OK] == []
    deposed.stage.heal()
    deposed.stage.rest(120)
    refused = {Status.NOT_READY, Status.MOVED, Status.UNKNOWN}
    assert all(answer.status in refused for answer in answers), "it is not told as done afterwards"
    assert deposed.stage.cluster.leftovers() == []


@ablated("confirmed-answers")
def test_without_the_rule_it_does() -> None:
    deposed = Deposed()
    answers = deposed.ask(deposed.old, QUIET["put-if-absent"])
    assert [(answer.status, answer.value) for answer in answers] == [(Status.OK, b"1")]


@pytest.mark.parametrize("name", READING)
def test_so_do_reads_of_maps_that_ask_for_it(name: str) -> None:
    deposed = Deposed(reads="confirmed")
    answers = deposed.ask(deposed.old, READING[name])
    assert [answer for answer in answers if answer.status is Status.OK] == []
    for process in deposed.others:
        outcome = deposed.ask(process, READING[name])[0]
        assert outcome.status is Status.OK
    deposed.stage.heal()
    deposed.stage.rest(120)
    assert deposed.stage.cluster.leftovers() == []


def test_reads_of_the_primary_alone_may_be_old() -> None:
    deposed = Deposed()
    answers = deposed.ask(deposed.old, READING["GET"])
    assert [(answer.status, answer.value) for answer in answers] == [(Status.OK, b"1")]


# -- what an answer rests on


def through_the_router(process: Process, op: Op, told: Callable[[bool, object], None]) -> None:
    def done(outcome: Outcome) -> None:
        told(outcome.status is Status.OK, outcome.value)

    process.driver.execute(request(op, PRESENT), done)


def through_the_lane(process: Process, op: Op, told: Callable[[bool, object], None]) -> None:
    """As the session of a Hazelcast client does it."""
    process.driver.enter()
    lane = process.driver.member.lane
    copy = lane.serving[partition_of(wire_key(PRESENT), 0, 7)]
    assert copy is not None
    if op in (Op.REMOVE, Op.DELETE):
        value = lane.remove(copy, MAP, wire_key(PRESENT))
    else:
        value = lane.read(copy, MAP, wire_key(PRESENT))
        if lane.confirmed(MAP):
            lane.rest_on(copy, MAP)
    lane.close_batch(lambda known: told(known, value))
    process.driver.leave_lane()


@pytest.mark.parametrize("way", [through_the_router, through_the_lane])
@pytest.mark.parametrize("second", [Op.DELETE, Op.GET])
def test_a_delete_that_found_nothing_is_not_done_before_the_remove_that_it_rests_on(
    second: Op, way: Callable[[Process, Op, Callable[[bool, object], None]], None]
) -> None:
    """A's remove and B's delete reach a primary that is being replaced: B must not be told that nothing is there."""
    stage = Stage(4, settings=confirmed("confirmed"))
    owner = stage.owner_of(PRESENT)
    stage.put(owner, PRESENT, "1")
    stage.isolate(owner)
    first: list[bool] = []
    then: list[bool] = []
    owner.step(lambda: way(owner, Op.REMOVE, lambda known, value: first.append(known)))
    owner.step(lambda: way(owner, second, lambda known, value: then.append(known)))
    stage.wait(20)
    others = [process for process in stage.processes if process is not owner]
    assert stage.get(others[0], PRESENT) == "1", "the remove has not happened there"
    stage.heal()
    stage.rest(120)
    assert True not in first
    assert True not in then


@ablated("confirmed-answers")
def test_without_the_rule_it_is() -> None:
    stage = Stage(4, settings=confirmed("confirmed"))
    owner = stage.owner_of(PRESENT)
    stage.put(owner, PRESENT, "1")
    stage.isolate(owner)
    first = send(owner, request(Op.REMOVE, PRESENT))
    assert first == []
    assert [answer.status for answer in send(owner, request(Op.DELETE, PRESENT))] == [Status.OK]
    assert [answer.status for answer in send(owner, request(Op.GET, PRESENT))] == [Status.OK]


@pytest.mark.parametrize("name", [*QUIET, *READING])
def test_at_rest_everybody_is_answered_soon(name: str) -> None:
    stage = Stage(3, settings=confirmed("confirmed"))
    stage.put(stage.processes[0], PRESENT, "1")
    what = {**QUIET, **READING}[name]
    for process in stage.processes:
        answers = send(process, what)
        stage.wait(0.5)
        assert [answer.status for answer in answers] == [Status.OK]
    assert stage.cluster.leftovers() == []


def test_without_a_backup_there_is_nobody_to_ask() -> None:
    base = confirmed("confirmed")
    stage = Stage(
        3,
        settings=msgspec.structs.replace(
            base, maps={**base.maps, MAP: MapSettings(backups=0, reads="confirmed")}
        ),
    )
    owner = stage.owner_of(PRESENT)
    assert send(owner, READING["GET"])[0].status is Status.OK, "answered in the same step"
    assert send(owner, QUIET["delete"])[0].status is Status.OK


def test_every_operation_that_reads_can_be_confirmed() -> None:
    assert {Op[name] for name in READING} | {
        Op.CONTAINS_VALUE,
        Op.VALUES,
        Op.ENTRIES,
        Op.IS_EMPTY,
        Op.ASK,
        # Of internal maps, which have no such setting.
        Op.READ_COLLECTION,
        Op.AWAIT_ITEMS,
        Op.READ_CP,
    } == READS
