"""Who is suspected, and of whom the others are told."""

from __future__ import annotations

from holdfast.core.membership.failure_detector import FailureDetector
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.views import MemberInfo

ONE, TWO, THREE = (MemberId(name) for name in ("one", "two", "three"))
ORDER = [MemberInfo(uuid, 1, "h", 1, "h", 2, uuid, False, "") for uuid in (ONE, TWO, THREE)]


def watching(me: MemberId) -> FailureDetector:
    detector = FailureDetector(2 * SECOND, pause_ns=SECOND // 2)
    detector.watch([info.uuid for info in ORDER if info.uuid != me], 0)
    return detector


def live(detector: FailureDetector, until_ns: int) -> None:
    """Time passes in which the member does what it has to do."""
    for now_ns in range(0, until_ns, SECOND // 4):
        detector.awake(now_ns)


def test_a_member_that_stood_still_hears_the_others_before_it_judges_them() -> None:
    master = watching(ONE)
    live(master, SECOND)
    assert master.suspects(20 * SECOND) == master.overdue(20 * SECOND) == []
    assert not master.hears(TWO, 20 * SECOND), "what it knows of them is old nevertheless"
    master.heard(TWO, 20 * SECOND)
    for tenth in range(200, 207):
        assert master.suspects(tenth * SECOND // 10) == []
    assert master.suspects(22 * SECOND) == [THREE], "now it was there, and heard nothing"
    assert master.hears(TWO, 22 * SECOND)


def test_whoever_finds_a_crash_first_is_not_left_out_for_it() -> None:
    master, third = watching(ONE), watching(THREE)
    # Two is killed. Three sees that it refuses connections, and says so before the master has tried.
    third.silent(TWO)
    assert third.suspects(SECOND) == [TWO]
    master.accuse(THREE, third.overdue(SECOND))
    assert master.unwanted(ONE, ORDER, SECOND) == set()
    master.silent(TWO)
    assert master.unwanted(ONE, ORDER, SECOND) == {TWO}


def test_of_two_that_do_not_hear_each_other_the_younger_goes() -> None:
    master, third = watching(ONE), watching(THREE)
    for one in (master, third):
        live(one, 3 * SECOND)
    third.heard(ONE, 3 * SECOND)
    master.heard(TWO, 3 * SECOND)
    master.heard(THREE, 3 * SECOND)
    master.accuse(THREE, third.overdue(3 * SECOND))
    assert master.unwanted(ONE, ORDER, 3 * SECOND) == {THREE}
