"""The history of a baseline: one is a beginning of the other, or they have branched."""

from __future__ import annotations

import pytest

from holdfast.core.model.baseline import FIXED, HISTORY_KEPT, Baseline, BaselineMember, is_beginning
from holdfast.core.model.ids import MemberId
from holdfast.core.model.views import MemberInfo, View


def members(*names: str) -> list[BaselineMember]:
    return [BaselineMember(name) for name in names]


def made(*names: str) -> Baseline:
    return Baseline(()).changed(members(*names), FIXED, "cluster")


@pytest.mark.rule("membership/B-1")
def test_a_history_is_the_beginning_of_what_follows_from_it() -> None:
    first = made("a", "b", "c")
    then = first.changed(members("a", "b"), FIXED, "cluster")
    assert is_beginning(None, first)
    assert is_beginning(None, None)
    assert not is_beginning(first, None)
    assert is_beginning(first, first)
    assert is_beginning(first, then)
    assert not is_beginning(then, first)


@pytest.mark.rule("membership/B-1")
def test_two_that_follow_from_the_same_have_branched() -> None:
    first = made("a", "b", "c")
    one = first.changed(members("a", "b"), FIXED, "cluster")
    other = first.changed(members("b", "c"), FIXED, "cluster")
    further = other.changed(members("a", "b"), FIXED, "cluster")
    for left, right in ((one, other), (one, further)):
        assert not is_beginning(left, right)
        assert not is_beginning(right, left)
    assert is_beginning(other, further)
    assert one.point != further.point, "the same members, by another way"


def test_what_a_change_is_decides_where_it_leads_to() -> None:
    first = made("a", "b")
    assert first.point == made("b", "a").point
    points = {
        first.changed(members("a"), FIXED, "cluster").point,
        first.changed(members("a"), 1000, "cluster").point,
        first.changed(members("a"), FIXED, "adjusted").point,
        first.continued({"a"}).point,
        first.continued({"b"}).point,
    }
    assert len(points) == 5
    assert first.continued({"a"}).members == first.members


def test_only_so_many_changes_are_remembered() -> None:
    history = [made("a")]
    for number in range(HISTORY_KEPT + 5):
        history.append(history[-1].changed(members(f"m{number}"), FIXED, "cluster"))
    newest = history[-1]
    assert len(newest.history) == HISTORY_KEPT
    assert newest.changes == HISTORY_KEPT + 6
    known = [is_beginning(one, newest) for one in history]
    assert known == [False] * 6 + [True] * HISTORY_KEPT


def test_who_is_away_is_no_part_of_the_history() -> None:
    first = made("a", "b")
    away = Baseline((BaselineMember("a"), BaselineMember("b", "", True)), FIXED, 1, first.history)
    assert away.away == (BaselineMember("b", "", True),)
    assert away.changed(away.members, 5, "x").point == first.changed(first.members, 5, "x").point


def info(name: str, *, lite: bool = False) -> MemberInfo:
    return MemberInfo(MemberId(f"{name}-uuid"), 1, "host", 1, "host", 2, name, lite)


@pytest.mark.rule("membership/B-3")
def test_who_may_hold_partitions() -> None:
    a, b, lite = info("a"), info("b"), info("l", lite=True)
    plain = View(1, "id", [a, b, lite])
    assert [plain.may_hold(one) for one in (a, b, lite)] == [True, True, False]
    based = View(1, "id", [a, b, lite], baseline=made("a", "l"))
    assert [based.may_hold(one) for one in (a, b, lite)] == [True, False, False]
    assert based.baseline_point
    assert plain.baseline_point == ""
