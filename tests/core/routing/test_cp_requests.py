"""Requests for CP objects at a primary."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.routing.test_collection_waits import Stage

from holdfast.core.model.cp import NO_SESSION, CpAnswer, CpFate, CpStep, CpStepKind, cp_request, decode_answer

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


def test_steps_without_a_session_are_remembered_by_their_id_alone() -> None:
    assert cp_request("g", 1, CpStep(K.COUNT_DOWN, 1, uid=uid(1)), "x").id == uid(1)
    with_session = CpStep(K.ACQUIRE, 1, uid=uid(1), session=NO_SESSION)
    assert cp_request("g", 1, with_session, "x").id == uid(1)
