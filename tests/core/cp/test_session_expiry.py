"""Sessions whose clients are silent are closed, by the leader that has waited for them long enough."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.cp.cp_steps import decide_cp_step
from holdfast.core.model.cp import CpStep, CpStepKind, cp_request, decode_cp_step
from holdfast.core.model.decisions import Decision
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Outcome, Request, Status
from holdfast.core.model.records import Record
from holdfast.core.raft_partition import session_expiry
from holdfast.core.raft_partition.copy_lookup import FoundCopy
from holdfast.core.raft_partition.session_expiry import SessionExpiry
from holdfast.core.routing.pending import Asker, Within
from holdfast.core.store.partition_copy import PartitionCopy

TTL_MS = 10_000


class Leader:
    """One copy that this member leads, with the clock and the router of the member."""

    def __init__(self) -> None:
        self.copy = PartitionCopy(0, 0)
        self.term = 1
        self.now_ns = 0
        self.asked: list[tuple[Request, Within]] = []
        self.expiry = SessionExpiry(self, self, 1)  # type: ignore[arg-type]
        self.expiry.attach(self)

    def led_everywhere(self) -> list[tuple[str, PartitionCopy]]:
        return [("", self.copy)] if self.term else []

    def led(self, name: str, partition: int) -> FoundCopy | None:
        return FoundCopy(self.copy, 0, self.term) if self.term else None

    def submit(self, request: Request, asker: Asker) -> None:
        assert isinstance(asker, Within)
        self.asked.append((request, asker))

    def apply(self, request: Request) -> None:
        held = self.copy.open(request.map)
        decision = decide_cp_step(held.state, request)
        assert isinstance(decision, Decision)
        for update in decision.updates:
            held.state.apply(
                Record(request.map, held.updates.next(), update.change, update.key, update.value), 0
            )

    def create(self, count: int = 1, client: bytes = b"") -> None:
        for _ in range(count):
            self.apply(cp_request("g", 1, CpStep(CpStepKind.CREATE_SESSION, TTL_MS, client=client)))

    def heartbeat(self, session: int, client: bytes = b"") -> None:
        step = CpStep(CpStepKind.HEARTBEAT, session=session, client=client)
        self.expiry.on_heartbeat(cp_request("g", 1, step))

    def pass_ms(self, ms: int) -> list[int]:
        """Sweep twice a second; returns the sessions that are to be closed now."""
        before = len(self.asked)
        for _ in range(ms // 500):
            self.now_ns += 500 * MILLISECOND
            self.expiry.sweep()
        return self.stall(ms % 500, before)

    def stall(self, ms: int, before: int | None = None) -> list[int]:
        """Sweep once, after this time."""
        self.now_ns += ms * MILLISECOND
        before = len(self.asked) if before is None else before
        self.expiry.sweep()
        return [
            session
            for request, _ in self.asked[before:]
            for session in decode_cp_step(request.value).sessions
        ]

    def carry_out(self) -> None:
        for request, asker in self.asked:
            self.apply(request)
            asker.receiver.answered(asker.ticket, Outcome(Status.OK))
        self.asked.clear()


@pytest.mark.rule("raft_partition/S-1")
def test_a_session_without_heartbeats_is_closed_after_its_time() -> None:
    leader = Leader()
    leader.create(2)
    assert leader.pass_ms(0) == []
    assert leader.pass_ms(TTL_MS - 1) == []
    leader.heartbeat(2)
    assert leader.pass_ms(1) == [1]
    assert leader.pass_ms(500) == [], "one step at a time"
    leader.carry_out()
    assert leader.pass_ms(TTL_MS - 502) == []
    assert leader.pass_ms(1) == [2]


@pytest.mark.rule("cp/S-4")
def test_a_heartbeat_of_another_client_keeps_no_session_open() -> None:
    leader = Leader()
    leader.create(2, b"anna")
    leader.pass_ms(0)
    assert leader.pass_ms(TTL_MS - 1) == []
    leader.heartbeat(1, b"ben")
    leader.heartbeat(2, b"anna")
    leader.heartbeat(77, b"anna")
    assert leader.pass_ms(1) == [1]


@pytest.mark.rule("raft_partition/S-1")
@pytest.mark.parametrize("between", [(0,), ()])
def test_a_new_leader_waits_for_a_whole_time_to_live(between: tuple[int, ...]) -> None:
    """Also one that has led before, and does not know what others have heard meanwhile."""
    leader = Leader()
    leader.create()
    leader.pass_ms(0)
    leader.pass_ms(TTL_MS - 1)
    for term in between:
        leader.term = term
        assert leader.pass_ms(TTL_MS) == []
    leader.term = 2
    assert leader.pass_ms(1) == []
    assert leader.pass_ms(TTL_MS - 1) == []
    assert leader.pass_ms(1) == [1]


@pytest.mark.rule("raft_partition/S-2")
def test_the_time_in_which_this_member_heard_nothing_does_not_count() -> None:
    """Example: it was stopped, and the heartbeats of that time are still in its sockets."""
    leader = Leader()
    leader.create(2)
    leader.pass_ms(0)
    assert leader.stall(TTL_MS) == []
    leader.now_ns += 400 * MILLISECOND
    leader.heartbeat(2)
    assert leader.pass_ms(TTL_MS - 1000 - 401) == []
    assert leader.pass_ms(1) == [1]
    leader.carry_out()
    assert leader.pass_ms(1399) == [], "it counts from the heartbeat, and not from a sweep before it"
    assert leader.pass_ms(1) == [2]


@pytest.mark.rule("raft_partition/S-1")
def test_its_steps_are_for_this_leader_alone() -> None:
    leader = Leader()
    leader.create()
    leader.pass_ms(0)
    leader.pass_ms(TTL_MS)
    assert [asker.here for _, asker in leader.asked] == [True]


def test_a_step_that_was_not_done_is_proposed_again() -> None:
    leader = Leader()
    leader.create()
    leader.pass_ms(0)
    assert leader.pass_ms(TTL_MS) == [1]
    _, asker = leader.asked.pop()
    asker.receiver.answered(asker.ticket, Outcome(Status.UNKNOWN))
    assert leader.pass_ms(1) == [1]


def test_many_sessions_are_looked_at_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_expiry, "LOOKED_MAX", 3)
    leader = Leader()
    leader.create(7)
    for _ in range(3):
        leader.pass_ms(0)
    closed: list[Any] = []
    closed += leader.pass_ms(TTL_MS - 1)
    leader.now_ns += MILLISECOND
    for _ in range(6):
        closed += leader.pass_ms(0)
        leader.carry_out()
    assert sorted(closed) == list(range(1, 8))
