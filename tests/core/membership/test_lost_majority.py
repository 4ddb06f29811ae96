"""Which order helps when a majority of the view is silent, and why another one is rejected."""

from __future__ import annotations

import re

import pytest

from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.lost_majority import called, eviction_rejection, recovery_advice, silent_members
from holdfast.core.membership.membership_status import MembershipState, MembershipStatus
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox

LONG_AGO = 1000 * MILLISECOND
"""Members are suspected after 100 ms."""


def info(name: str, uuid: str = "") -> MemberInfo:
    return MemberInfo(MemberId(uuid or name), 1, "h", 1, "h", 1, name, store="")


def standing(members: str, heard: str, *, me: str = "A") -> MembershipStatus:
    """A member of this view that has heard from these just now, and from the others long ago."""
    found = MembershipStatus(
        Identity(info(me), "c", {}, (), False, ""), Timing(10, 100), Outbox(), majority=True
    )
    found.view = View(1, "c", [info(name) for name in members])
    found.state = MembershipState.MEMBER
    found.detector.watch([MemberId(name) for name in members if name != me], 0)
    for name in heard:
        found.detector.heard(MemberId(name), LONG_AGO)
    return found


def reject(here: MembershipStatus, ended: str, *, without_majority: bool = False) -> str:
    return eviction_rejection(
        here, [MemberId(one) for one in ended], LONG_AGO, without_majority=without_majority
    )


def test_members_are_called_by_their_names_or_by_digits() -> None:
    members = [info("one", "1" * 36), info("same", "2" * 36), info("same", "3" * 36), info("", "4" * 36)]
    assert called(members) == "one 22222222 33333333 44444444"
    assert called([]) == ""


@pytest.mark.parametrize(
    ("members", "heard", "silent"),
    [("ABC", "", "BC"), ("ABCDE", "B", "CDE"), ("BA", "", "B")],
)
def test_a_lost_majority_names_the_order_for_all_silent_members(
    members: str, heard: str, silent: str
) -> None:
    here = standing(members, heard)
    assert "".join(one.uuid for one in silent_members(here, LONG_AGO)) == silent
    said = recovery_advice(here, LONG_AGO)
    assert said.startswith(f"{len(silent)} of {len(members)} members are silent")
    assert said.endswith(f"holdfast member evict {' '.join(silent)} --without-majority")
    assert reject(here, silent) == said
    assert reject(here, silent, without_majority=True) == ""


@pytest.mark.rule("membership/M-1")
@pytest.mark.parametrize(("members", "heard"), [("ABC", "B"), ("ABCDE", "BC"), ("AB", ""), ("A", "")])
def test_while_a_majority_is_heard_nothing_goes_without_it(members: str, heard: str) -> None:
    here = standing(members, heard)
    assert recovery_advice(here, LONG_AGO) == ""
    ended = "".join(set(members) - set(heard) - {"A"})[:1]
    if ended:
        assert reject(here, ended) == ""
        said = reject(here, ended, without_majority=True)
        assert "omit --without-majority" in said
        assert f"(holdfast member evict {ended})" in said


def test_without_a_view_or_before_the_admission_there_is_no_way_out_to_name() -> None:
    here = standing("ABC", "")
    here.state = MembershipState.JOINING
    assert recovery_advice(here, LONG_AGO) == ""
    here = standing("ABC", "")
    here.view = None
    assert recovery_advice(here, LONG_AGO) == ""


def test_a_member_evicts_neither_itself_nor_a_stranger() -> None:
    here = standing("ABC", "")
    assert "send it through another member (-a)" in reject(here, "A", without_majority=True)
    assert reject(here, "BYX", without_majority=True).startswith("X, Y is not a member")


@pytest.mark.rule("membership/M-2")
def test_members_that_are_heard_are_not_given_up() -> None:
    here = standing("ABCDE", "B")
    said = reject(here, "BCDE", without_majority=True)
    assert said.startswith("B responded recently")
    assert re.search(r"\(holdfast member evict C D E --without-majority\)", said)


@pytest.mark.rule("membership/M-2")
def test_what_remains_has_to_be_a_majority_of_itself() -> None:
    here = standing("ABCDE", "")
    said = reject(here, "BC", without_majority=True)
    assert said.startswith("even without them the rest is no majority")
    assert "(holdfast member evict B C D E --without-majority)" in said
    assert reject(here, "BCD", without_majority=True) == "", "A is the older one of A and E"
    assert reject(standing("EABCD", ""), "BCD", without_majority=True) != "", "E is older than A"
