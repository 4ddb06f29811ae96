"""Queues, lists and sets whose items are in a Raft group: decided alike on all replicas, and waits of their leader."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.core.raft_partition.test_consensus_replication import Maps

from holdfast.config import Settings
from holdfast.core.collections.changed_collections import ChangedCollections
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind, encode_step
from holdfast.core.model.cp import CpAnswer, CpFate, CpStep, CpStepKind, cp_request, decode_answer
from holdfast.core.model.decisions import Wait
from holdfast.core.model.operations import Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneRequests
from holdfast.core.raft_partition.partition_commands import ZoneCommand
from holdfast.core.raft_partition.state_machine import StateMachine

QUEUE, SET = CollectionKind.QUEUE, CollectionKind.SET
PARTITION = 3


def step(
    kind: StepKind,
    *items: bytes,
    of: CollectionKind = QUEUE,
    request_id: bytes = b"",
    **more: int,
) -> Request:
    value = encode_step(CollectionStep(kind, **more))
    return Request(kind.op, of.map_of("q"), [PARTITION], value=value, items=list(items), id=request_id)


def values(outcomes: list[Outcome]) -> list[object]:
    return [each.value if each.status is Status.OK else each.status for each in outcomes]


@pytest.mark.rule("raft_partition/Z-14")
def test_all_replicas_decide_steps_alike() -> None:
    maps = Maps()
    at = maps.leader
    told = maps.ask(
        at,
        step(StepKind.ADD, b"a", b"b"),
        step(StepKind.POLL),
        step(StepKind.ADD, b"c", max_size=1),
    )
    maps.cluster.go(5)
    size = maps.ask(at, step(StepKind.SIZE))
    maps.cluster.go(5)
    assert values([*told, *size]) == [True, b"a", False, 1]
    kept = [
        dict(one.state.copies[PARTITION].maps[QUEUE.map_of("q")].state.entries) for one in maps.partitions
    ]
    assert kept[0] == kept[1] == kept[2]
    assert list(kept[0].values()) == [b"b"]


@pytest.mark.rule("raft_partition/Z-14")
def test_a_step_that_has_to_wait_changes_nothing_and_is_decided_by_what_is_there_when_it_is_applied() -> None:
    maps = Maps()
    at = maps.leader
    told: list[Outcome | Wait] = list(maps.ask(at, step(StepKind.POLL, wait_ms=500)))
    assert told == [Wait(500)], "known at once"
    one = maps.ask(at, step(StepKind.ADD, b"a"))
    maps.cluster.go(3)
    assert values(one) == [True]
    # Both are proposed, since both find the item; the second one finds none when it is applied.
    both: list[Outcome | Wait] = maps.ask(
        at, step(StepKind.POLL, wait_ms=500), step(StepKind.POLL, wait_ms=400)
    )  # type: ignore[assignment]
    maps.cluster.go(3)
    assert both == [Outcome(Status.OK, b"a"), Wait(400)]
    late: list[Outcome] = []
    maps.replications[at].submit(step(StepKind.POLL, wait_ms=400), late.append, late=True)  # type: ignore[arg-type]
    maps.end_step(at)
    maps.cluster.go(3)
    assert values(late) == [None]


@pytest.mark.rule("raft_partition/Z-14")
def test_a_leader_reports_what_waiting_steps_may_be_decided_again() -> None:
    maps = Maps()
    at = maps.leader
    changed = maps.partitions[at]._zone.changed
    place = (maps.partitions[at].number, PARTITION, QUEUE.map_of("q"), b"")
    maps.ask(at, step(StepKind.ADD, b"a"))
    maps.cluster.go(3)
    assert list(changed) == [place]
    changed.clear()
    maps.ask(at, step(StepKind.SIZE))
    maps.cluster.go(3)
    assert not changed
    maps.ask(at, step(StepKind.REMOVE, b"unknown"))
    maps.cluster.go(3)
    assert list(changed) == [place], "the next one in its line is decided now"
    assert not maps.partitions[(at + 1) % 3]._zone.changed, "only a leader has steps that wait"


@pytest.mark.rule("raft_partition/Z-3")
def test_a_repeated_step_gets_its_first_answer() -> None:
    maps = Maps()
    at = maps.leader
    maps.ask(at, step(StepKind.ADD, b"a", b"b"))
    maps.cluster.go(3)
    first = maps.ask(at, step(StepKind.POLL, request_id=b"me1", wait_ms=10))
    again = maps.ask(at, step(StepKind.POLL, request_id=b"me1", wait_ms=10))
    maps.cluster.go(3)
    assert values(first) == values(again) == [b"a"]


@pytest.mark.rule("raft_partition/Z-14")
def test_an_answer_that_is_too_large_leaves_the_items_where_they_are() -> None:
    maps = Maps()
    at = maps.leader
    many = step(StepKind.DRAIN, end=-1, answer_bytes=3)
    maps.ask(at, step(StepKind.ADD, b"aa", b"bb"))
    maps.cluster.go(3)
    told = maps.replications[at].partitions[PARTITION].state.carry_out(many, 1, None)
    assert isinstance(told, Outcome)
    assert told.status is Status.TOO_LARGE
    size = maps.ask(at, step(StepKind.SIZE))
    maps.cluster.go(3)
    assert values(size) == [2]


@pytest.mark.rule("collections/S-2")
def test_a_replica_that_was_filled_numbers_items_of_a_set_as_the_others_do() -> None:
    def apply(state: StateMachine, index: int, *requests: Request) -> None:
        state.apply(ZoneCommand(0, (ZoneRequests(list(requests)),), False, True), index, 1)

    one, other = (StateMachine([PARTITION], Settings()) for _ in range(2))
    apply(one, 1, step(StepKind.ADD, b"a", b"b", of=SET), step(StepKind.REMOVE, b"b", of=SET))
    other.restore(list(one.pieces()))
    for state in (one, other):
        apply(state, 2, step(StepKind.ADD, b"c", of=SET))
    first, second = (
        dict(state.copies[PARTITION].maps[SET.map_of("q")].state.entries) for state in (one, other)
    )
    assert first == second
    assert first[b"c"] > first[b"a"]


def test_changes_of_other_maps_wake_nothing() -> None:
    noted = ChangedCollections()
    noted.note(1, "orders")
    assert not noted


@pytest.mark.rule("cp/L-2")
def test_a_repeated_call_gets_no_lock_that_its_closed_session_has_lost() -> None:
    state = StateMachine([PARTITION], Settings())

    def ask(kind: CpStepKind, **fields: Any) -> CpAnswer:
        request = replace(cp_request("g", 1, CpStep(kind, **fields), "x"), partitions=[PARTITION])
        [answer] = state.apply(ZoneCommand(0, (ZoneRequests([request]),), False, True), 1, 1)
        assert isinstance(answer, bytes)
        return decode_answer(answer)

    ada, ben = [ask(CpStepKind.CREATE_SESSION, number=1000).number for _ in range(2)]
    mine, theirs = ({"session": one, "thread": 1, "uid": bytes([one] * 16)} for one in (ada, ben))
    fence = ask(CpStepKind.LOCK, **mine).number
    assert ask(CpStepKind.LOCK, **mine).number == fence
    ask(CpStepKind.CLOSE_SESSIONS, sessions=[ada])
    assert ask(CpStepKind.LOCK, **theirs).number == fence + 1
    assert ask(CpStepKind.LOCK, **mine).fate is CpFate.NO_SESSION
