"""Requests for CP objects at a primary: repeated calls, those that wait, and steps that only this member may do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.routing.test_collection_waits import BEN, LONG_MS, OTHER, Stage

from holdfast.core.messages import Forward
from holdfast.core.model.cp import NO_SESSION, CpAnswer, CpFate, CpStep, CpStepKind, cp_request, decode_answer
from holdfast.core.model.operations import Outcome, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.routing.pending import Within

K = CpStepKind


def uid(number: int) -> bytes:
    return number.to_bytes(16, "big")


class CpStage(Stage):
    def call(self, kind: CpStepKind, **fields: Any) -> int:
        """Returns the token."""
        return self.ask(cp_request("g", 1, CpStep(kind, **fields), "x"))

    def answer(self, kind: CpStepKind, **fields: Any) -> CpAnswer:
        before = len(self.told)
        self.call(kind, **fields)
        return self.answers[before]

    @property
    def answers(self) -> list[CpAnswer]:
        return [decode_answer(value) for value in self.values if isinstance(value, bytes)]

    def lock(self, session: int, call: int) -> CpAnswer:
        return self.answer(K.LOCK, session=session, thread=1, uid=uid(call))


@pytest.mark.rule("cp/L-2")
def test_a_repeated_call_gets_no_lock_that_its_closed_session_has_lost() -> None:
    stage = CpStage()
    ada, ben = [stage.answer(K.CREATE_SESSION, number=1000).number for _ in range(2)]
    fence = stage.lock(ada, 1).number
    assert stage.lock(ada, 1).number == fence, "repeated while it holds the lock"
    stage.answer(K.CLOSE_SESSIONS, sessions=[ada])
    assert stage.lock(ben, 2).number == fence + 1
    assert stage.lock(ada, 1).fate is CpFate.NO_SESSION, "another one holds the lock"


@pytest.mark.rule("cp/L-2")
def test_a_repeated_call_gets_no_lock_that_was_released() -> None:
    stage = CpStage()
    ada = stage.answer(K.CREATE_SESSION, number=1000).number
    stage.lock(ada, 1)
    for call in (2, 2):
        assert stage.answer(K.UNLOCK, session=ada, thread=1, uid=uid(call)).fate is CpFate.DONE
    assert stage.lock(ada, 1).fate is CpFate.CANCELLED


@pytest.mark.rule("cp/P-2")
@pytest.mark.parametrize("kind", [K.ACQUIRE, K.DRAIN])
def test_a_call_that_is_repeated_in_another_session_acquires_permits_for_that_one(kind: CpStepKind) -> None:
    """Clients do so when their session is closed before they have the answer."""
    stage = CpStage()
    ada = stage.answer(K.CREATE_SESSION, number=1000).number
    stage.answer(K.INIT_PERMITS, number=2)
    mine = {"uid": uid(1), "number": 2}
    first = stage.answer(kind, session=ada, **mine)
    assert stage.answer(kind, session=ada, **mine) == first
    stage.answer(K.CLOSE_SESSIONS, sessions=[ada])
    assert stage.answer(kind, session=ada, **mine).fate is CpFate.NO_SESSION
    again = stage.answer(K.CREATE_SESSION, number=1000).number
    assert stage.answer(kind, session=again, **mine) == first
    assert stage.answer(K.AVAILABLE).number == 0, "the new session holds them"


@pytest.mark.rule("cp/P-3")
@pytest.mark.parametrize("end", ["late", "withdrawn", "its member has gone"])
def test_those_behind_a_request_for_many_permits_get_theirs_when_it_ends(end: str) -> None:
    stage = CpStage()
    stage.call(K.INIT_PERMITS, number=3)
    many = cp_request("g", 1, CpStep(K.ACQUIRE, 5, uid=uid(1), wait_ms=10), "x")
    if end == "its member has gone":
        stage.router.on_forward(BEN, Forward(7, many))
    else:
        token = stage.ask(many)
    stage.call(K.ACQUIRE, number=1, uid=uid(2), wait_ms=LONG_MS)
    assert len(stage.answers) == 1
    if end == "late":
        stage.pass_ms(10)
    elif end == "withdrawn":
        stage.router.withdraw(token)
    else:
        stage.router.askers_gone({BEN})
    assert stage.answers[-1].number == 1


class _Receiver:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def answered(self, ticket: int, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@pytest.mark.rule("raft_partition/S-1")
@pytest.mark.parametrize("deposed", ["before it is decided", "while it is decided"])
def test_no_other_leader_closes_sessions_that_this_one_has_found_silent(
    deposed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Example: this leader was cut off, and clients have sent their heartbeats to the next one."""
    stage = CpStage()
    receiver = _Receiver()
    step = cp_request("g", 1, CpStep(K.CLOSE_SESSIONS, sessions=[1]))
    if deposed == "before it is decided":
        stage.lane.leading[0] = None
    else:
        moved = Outcome(Status.MOVED, None, "another leader's entry has taken its place")
        monkeypatch.setattr(stage.engine, "submit", lambda _, done, **__: done(moved))
    stage.rows[0] = Assignment(2, (OTHER,))
    stage.router.execute(step, Within(receiver, 1, here=True))
    stage.router.served(0)
    assert [one.status for one in receiver.outcomes] == [Status.MOVED]
    assert not stage.sent()


def test_steps_without_a_session_are_remembered_by_their_id_alone() -> None:
    assert cp_request("g", 1, CpStep(K.COUNT_DOWN, 1, uid=uid(1)), "x").id == uid(1)
    with_session = CpStep(K.ACQUIRE, 1, uid=uid(1), session=NO_SESSION)
    assert cp_request("g", 1, with_session, "x").id == uid(1)
