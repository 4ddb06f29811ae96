"""Entry processors in a zone: the leader's lock, and the result in the log."""

from __future__ import annotations

import pytest
from tests.core.raft_partition.test_consensus_replication import request
from tests.core.raft_partition.test_leader_locks import T1, Leader, lock

from holdfast.core.model.decisions import Wait
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.processors import (
    EntryChange,
    ProcessorCall,
    ProcessorResult,
    RunBegun,
    begin_run,
    encode_call,
    finish_run,
)
from holdfast.core.model.transactions import StepFate

ADDED = ProcessorResult(EntryChange.STORE, b"2", b"answer")


def process(run: int = 1, *, request_id: bytes = b"", only_present: bool = False) -> Request:
    call = encode_call(ProcessorCall("add", only_present=only_present))
    return begin_run(Request(Op.PROCESS, "m", [3], b"a", call, id=request_id), run)


def ask(leader: Leader, some: Request, *, late: bool = False) -> list[Outcome | Wait | RunBegun]:
    answers: list[Outcome | Wait | RunBegun] = []
    leader.maps.replications[leader.at].submit(some, answers.append, late=late)
    leader.end_step()
    leader.go()
    return answers


def finish(leader: Leader, some: Request, result: ProcessorResult = ADDED, *, found: bool = True) -> Outcome:
    [answer] = ask(leader, finish_run(some, result, found=found))
    assert isinstance(answer, Outcome)
    return answer


@pytest.mark.rule("raft_partition/L-6")
def test_a_result_is_applied_by_all_replicas() -> None:
    leader = Leader()
    leader.change(Op.SET, "a", "1")
    assert ask(leader, process()) == [RunBegun(b"1")]
    assert finish(leader, process()) == Outcome(Status.OK, b"answer")
    assert {one.look(3, "m", b"a") for one in leader.maps.partitions} == {b"2"}
    assert leader.locks.count == 0


@pytest.mark.rule("raft_partition/L-6")
def test_others_wait_for_the_run() -> None:
    leader = Leader()
    leader.change(Op.SET, "a", "1")
    ask(leader, process())
    [waits] = leader.change(Op.SET, "a", "later")
    assert isinstance(waits, Wait)
    [waits] = ask(leader, process(2))  # type: ignore[assignment]
    assert isinstance(waits, Wait)
    [late] = ask(leader, process(2), late=True)
    assert isinstance(late, Outcome)
    assert late.status is Status.NOT_READY
    assert leader.fates(lock("a")) == [StepFate.LOCKED]
    assert leader.locks.store(), "nothing is to be stored for the next leader"
    finish(leader, process())
    assert ask(leader, process(2)) == [RunBegun(b"2")]


@pytest.mark.rule("raft_partition/L-6")
def test_a_result_is_not_proposed_when_another_has_led_meanwhile() -> None:
    leader = Leader()
    leader.change(Op.SET, "a", "1")
    first = leader.at
    ask(leader, process())
    leader.depose()
    leader.change(Op.SET, "a", "of the other")
    leader.depose(first)
    assert finish(leader, process()).status is Status.MOVED
    assert leader.value("a") == b"of the other"


def test_a_run_waits_for_a_transaction_and_its_end_is_reported() -> None:
    leader = Leader()
    leader.fates(lock("a", transaction=T1))
    [waits] = ask(leader, process())
    assert isinstance(waits, Wait)


@pytest.mark.rule("raft_partition/L-2")
def test_a_processor_sees_changes_that_came_before_it() -> None:
    leader = Leader()
    first = leader.maps.ask(leader.at, request(Op.SET, "a", "1"))
    answers = ask(leader, process())
    assert first == [Outcome(Status.OK)]
    assert answers == [RunBegun(b"1")]


@pytest.mark.rule("raft_partition/Z-3")
def test_a_repeated_request_gets_its_first_answer() -> None:
    leader = Leader()
    ask(leader, process(request_id=b"id"))
    finish(leader, process(request_id=b"id"), found=False)
    assert ask(leader, process(2, request_id=b"id")) == [Outcome(Status.OK, b"answer")]
    assert leader.locks.count == 0


def test_an_absent_entry_may_be_skipped() -> None:
    leader = Leader()
    assert ask(leader, process(only_present=True)) == [Outcome(Status.OK)]
    assert leader.locks.count == 0


def test_an_entry_that_has_gone_meanwhile_is_not_stored() -> None:
    leader = Leader()
    ask(leader, process())
    assert finish(leader, process()).status is Status.PROCESSOR_FAILED
    assert leader.value("a") is None


def test_a_run_without_a_result_unlocks_its_entry() -> None:
    leader = Leader()
    ask(leader, process())
    replication = leader.maps.replications[leader.at]
    replication.end_run(process())
    replication.end_run(process())
    assert leader.locks.count == 0
