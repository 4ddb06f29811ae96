"""The judge of CP objects: what each wrong history is called, and runs that have them, with and without lies."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.core.collections import collection_steps
from holdfast.core.cp import cp_steps, fenced_lock_steps, semaphore_steps, session_steps
from holdfast.core.cp.cp_entries import LockEntry, SemaphoreEntry, SessionEntry, encode_entry
from holdfast.core.model.cp import CpKind, session_key
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Op, Request
from holdfast.core.primary_backup import primary_copy
from holdfast.core.raft_partition import session_expiry, state_machine
from holdfast.core.store.map_state import MapState
from holdfast_lab.check.structure_histories import (
    Addition,
    ClientSession,
    Holding,
    judge_counter,
    judge_holders,
)
from holdfast_lab.sim.cp_user import NAME, judge_left
from holdfast_lab.sim.run import simulate

LOCK = CpKind.LOCK


def test_a_history_that_a_counter_explains() -> None:
    history = [Addition(0, 10, 0), Addition(5, 15, 1), Addition(20, 30), Addition(40, 50, rejected=True)]
    assert judge_counter(history, 2) == judge_counter(history, 3) == []


@pytest.mark.parametrize(
    ("history", "value", "told"),
    [
        ([Addition(0, 10, 0)], 2, "after 1 additions"),
        ([Addition(0, 10, 0), Addition(0, 10, 1, rejected=False)], 1, "after 2 additions"),
        ([Addition(0, 10, 0), Addition(5, 15, 0)], 2, "a number twice"),
        ([Addition(0, 10, 1), Addition(20, 30, 0)], 2, "was 1, and then 0"),
    ],
)
def test_a_history_that_no_counter_explains(history: list[Addition], value: int, told: str) -> None:
    assert any(told in problem for problem in judge_counter(history, value))


def test_holders_of_a_lock() -> None:
    good = [Holding(0, 10, 20, 1), Holding(1, 30, 40, 2), Holding(0, 50, 0, 4)]
    assert judge_holders(LOCK, good, 1) == []
    assert "2 holders" in judge_holders(LOCK, [*good, Holding(1, 60, 70, 5)], 1)[0]
    assert "given after" in judge_holders(LOCK, [*good[:2], Holding(0, 50, 60, 2, asked_ns=45)], 1)[0]
    assert judge_holders(CpKind.SEMAPHORE, [*good, Holding(1, 60, 70)], 2) == []


def test_holders_whose_sessions_end() -> None:
    """A session lives at least as long as its client can know."""
    silent = ClientSession(1, heard_ns=10, sure_ns=50)
    held = Holding(0, 20, fence=1, session=silent)
    assert held.end_ns == silent.safe_ns == 60
    after, before = Holding(1, 61, 70, 2, asked_ns=30), Holding(1, 59, 70, 2)
    assert judge_holders(LOCK, [held, after], 1) == []
    assert "2 holders" in judge_holders(LOCK, [held, before], 1)[0]
    released = Holding(0, 20, 40, 1, session=silent)
    assert judge_holders(LOCK, [released, before], 1) == []
    late = Holding(2, 80, 90, 1, asked_ns=15, session=silent)
    assert judge_holders(LOCK, [after, late], 1) == [], "its answer came after the session may have ended"
    repeated = Holding(0, 80, 90, 1, asked_ns=75, session=ClientSession(3, 75, 50))
    assert judge_holders(LOCK, [after, repeated], 1) == ["fence 1 was given after 2"]


def test_what_ended_sessions_leave() -> None:
    def left(lock: LockEntry, semaphore: SemaphoreEntry, *sessions: int, ended: bool = False) -> list[str]:
        entries = {CpKind.LOCK.key(NAME): encode_entry(lock)}
        entries[CpKind.SEMAPHORE.key(NAME)] = encode_entry(semaphore)
        entries |= {session_key(session): encode_entry(SessionEntry()) for session in sessions}
        return judge_left(entries, all_ended=ended)

    free, held = LockEntry(3), LockEntry(3, session=1, uids=[b"x"])
    all_there = SemaphoreEntry(is_initialised=True, available=2)
    assert left(free, SemaphoreEntry(), ended=True) == left(free, all_there, ended=True) == []
    assert left(held, all_there, 1) == []
    assert left(held, all_there) == ["session 1 has ended, and holds something"]
    assert left(free, SemaphoreEntry(True, 1, {4: 1})) == ["session 4 has ended, and holds something"]
    assert left(free, SemaphoreEntry(True, 1)) == ["the semaphore has 1 permits, and not 2"]
    assert left(free, all_there, 7, ended=True) == ["silent sessions were not closed: session:7"]


def _closed_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_expiry, "MILLISECOND", MILLISECOND // 5)


def _permits_not_returned(patch: pytest.MonkeyPatch) -> None:
    def released(entry: SemaphoreEntry, session: int) -> SemaphoreEntry:
        return replace(entry, held={one: held for one, held in entry.held.items() if one != session})

    patch.setattr(semaphore_steps, "released", released)


def _lock_not_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fenced_lock_steps, "released", lambda entry: entry)


def _fences_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fenced_lock_steps, "released", lambda _: LockEntry())


def _ended_session_accepted(patch: pytest.MonkeyPatch) -> None:
    for module in (cp_steps, session_steps):
        patch.setattr(module, "is_open", lambda _, step: step.session > 0)


def _old_fence_accepted(patch: pytest.MonkeyPatch) -> None:
    for module in (primary_copy, state_machine):
        patch.setattr(module, "answer_again", lambda *values: values[-1])


SHORT_SEED = 96_694
"""Small, with sessions that end."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (None, ""),
        (_closed_early, "too early"),
        (_permits_not_returned, "permits, and not"),
        (_lock_not_released, "has ended, and holds something"),
        (_fences_again, "was given after"),
        (_ended_session_accepted, "cp: "),
        (_old_fence_accepted, "cp: "),
    ],
)
def test_a_run_whose_sessions_end_shows_a_lie(
    monkeypatch: pytest.MonkeyPatch, lie: Callable[[pytest.MonkeyPatch], None] | None, told: str
) -> None:
    if lie is not None:
        lie(monkeypatch)
    verdict = simulate(SHORT_SEED, journal="mixed")
    if lie is None:
        assert verdict.figures["cp_sessions_ended"] > 5
        assert verdict.ok
    assert any(told in problem for problem in verdict.problems) is (lie is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "zones"), [(94_022, False), (94_022, True)])
@pytest.mark.parametrize("operation", [None, Op.CHANGE_CP, Op.RELEASE_CP])
def test_a_run_with_cp_objects_shows_a_lie(
    monkeypatch: pytest.MonkeyPatch, seed: int, operation: Op | None, *, zones: bool
) -> None:
    """Some steps answer as if they were done, and change nothing."""
    decide = collection_steps.decide_cp_step

    def lies(state: MapState | None, request: Request, *, behind: bool = False) -> Decision | Wait:
        decision = decide(state, request, behind=behind)
        changes = isinstance(decision, Decision) and decision.updates
        # All replicas of a zone tell the same lie.
        if (
            request.op is operation
            and request.key
            and changes
            and random.Random(request.value).random() < 0.1
        ):
            assert isinstance(decision, Decision)
            return Decision(decision.answer)
        return decision

    monkeypatch.setattr(collection_steps, "decide_cp_step", lies)
    verdict = simulate(seed, journal="mixed", zones=zones)
    if operation is None:
        assert verdict.figures["cp_additions"] > 50
        assert verdict.figures["cp_holdings"] > 50
    assert any(problem.startswith("cp: ") for problem in verdict.problems) is (operation is not None)
