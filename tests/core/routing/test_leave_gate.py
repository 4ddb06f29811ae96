"""When a member that leaves accepts no more requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.config import Settings
from holdfast.core.effects import SetTimer
from holdfast.core.migration.migration_master import PARTING_NS
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.routing.lane_access import LaneAccess
from holdfast.core.routing.leave_gate import CHECK_NS, CLOSED_MAX_NS, HELD_NOTHING_NS, OPEN_MIN_NS, LeaveGate
from holdfast.core.routing.lost_partitions import LostPartitions


class Leaver:
    """A member with a gate, in a cluster in which another one stays."""

    def __init__(self) -> None:
        self.membership = SimpleNamespace(
            has_left=False, leaving=False, admitted=True, data_members=lambda: self.staying
        )
        self.staying = ["another"]
        self.blocker = ""
        self.access = LaneAccess(LostPartitions(Settings()))
        self.out = Outbox(cast("Any", None))
        self.changes: list[bool] = []
        self.gate = LeaveGate(
            self.out,
            cast("Any", self.membership),
            self.access,
            cast("Any", SimpleNamespace(look_at_all=lambda: self.changes.append(self.access.leaving))),
        )

    def leave_blocker(self) -> str:
        return self.blocker

    def look(self) -> bool:
        """Returns whether it looks again later."""
        self.gate.update(self)
        return self.out.take() == [SetTimer(TimerName.LEAVE_GATE, CHECK_NS)]

    def wait(self, ns: int) -> bool:
        """Returns whether new requests are rejected then."""
        for _ in range(ns // CHECK_NS):
            self.out.now_ns += CHECK_NS
            assert self.look()
        return self.access.leaving


@pytest.fixture
def leaver() -> Leaver:
    return Leaver()


@pytest.fixture
def leaving(leaver: Leaver) -> Leaver:
    leaver.membership.leaving = True
    assert leaver.look()
    return leaver


def test_a_member_that_stays_looks_at_nothing(leaver: Leaver) -> None:
    assert not leaver.look()
    assert leaver.changes == []


@pytest.mark.rule("routing/R-17")
def test_a_leaver_that_has_held_nothing_for_a_while_accepts_no_request(leaving: Leaver) -> None:
    assert not leaving.wait(HELD_NOTHING_NS - CHECK_NS)
    assert leaving.wait(CHECK_NS)
    assert leaving.wait(CLOSED_MAX_NS - CHECK_NS)
    assert leaving.changes == [True]


@pytest.mark.rule("routing/R-17")
def test_requests_have_time_to_end_before_the_master_lets_the_member_go() -> None:
    assert HELD_NOTHING_NS + CHECK_NS <= PARTING_NS - 100 * MILLISECOND


@pytest.mark.rule("routing/R-17")
def test_the_time_begins_again_when_it_held_something(leaving: Leaver) -> None:
    leaving.wait(HELD_NOTHING_NS - CHECK_NS)
    leaving.blocker = "a partition came"
    assert not leaving.wait(CHECK_NS)
    leaving.blocker = ""
    assert not leaving.wait(HELD_NOTHING_NS)
    assert leaving.wait(CHECK_NS)
    leaving.blocker = "another came"
    assert not leaving.wait(CHECK_NS)


@pytest.mark.parametrize("change", [{"admitted": False}, {"data_members": list}])
def test_a_member_accepts_requests_outside_a_cluster_and_as_one_of_the_last(
    leaving: Leaver, change: dict[str, Any]
) -> None:
    vars(leaving.membership).update(change)
    assert not leaving.wait(2 * HELD_NOTHING_NS)


@pytest.mark.rule("routing/R-18")
def test_a_member_that_may_not_leave_accepts_requests_again_for_a_while(leaving: Leaver) -> None:
    leaving.wait(HELD_NOTHING_NS)
    assert not leaving.wait(CLOSED_MAX_NS)
    assert not leaving.wait(OPEN_MIN_NS)
    assert not leaving.wait(HELD_NOTHING_NS)
    assert leaving.wait(CHECK_NS)
    assert leaving.changes == [True, False, True]


def test_a_member_that_stays_after_all_accepts_requests(leaving: Leaver) -> None:
    leaving.wait(HELD_NOTHING_NS)
    leaving.membership.leaving = False
    assert not leaving.look()
    assert leaving.changes == [True, False]
    leaving.membership.leaving = True
    leaving.look()
    assert not leaving.access.leaving


@pytest.mark.rule("routing/R-17")
def test_a_member_that_has_left_accepts_none_and_looks_no_more(leaving: Leaver) -> None:
    leaving.blocker = "something"
    leaving.membership.has_left = True
    assert not leaving.look()
    assert leaving.access.leaving
