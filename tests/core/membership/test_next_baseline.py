"""Which baseline the next view has: by an order, by itself, or as before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.membership.one_member import A, B, C, D, info

from holdfast.core.membership.admission import Admission
from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.membership_status import MembershipState, MembershipStatus
from holdfast.core.membership.next_baseline import NextBaseline
from holdfast.core.messages import BaselineWanted, Heartbeat
from holdfast.core.model.baseline import FIXED, Baseline, BaselineMember
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, View
from holdfast.core.outbox import Outbox

LITE = info("e", lite=True)
EVERYBODY = {"a": A, "b": B, "c": C, "d": D, "e": LITE}


def of(*letters: str, away: str = "") -> list[BaselineMember]:
    return [BaselineMember(f"name-{one}", away=one in away) for one in letters]


def made(letters: str, adjust_ms: int = FIXED, away: str = "") -> Baseline:
    return Baseline((), FIXED).changed(of(*letters, away=away), adjust_ms, "cluster")


def infos(letters: str) -> list[MemberInfo]:
    return [EVERYBODY[one] for one in letters]


class Master:
    """The first member, in a view of these."""

    def __init__(self, members: str, baseline: Baseline | None, **changed: Any) -> None:
        self.out = Outbox()
        self.out.now_ns = 100 * SECOND
        mine = infos(members)[0]
        identity = Identity(mine, "prod", {}, (), False, "new")
        self.standing = MembershipStatus(identity, Timing(SECOND // 2, 3 * SECOND), self.out, majority=True)
        self.view = View(5, "id", infos(members), baseline=baseline, **changed)
        self.standing.view = self.view
        self.standing.state = MembershipState.MEMBER
        self.standing.members_changed_ns = self.out.now_ns
        self.candidates = Admission()
        self.assigned = True
        self.waits = False
        self.next = NextBaseline(self.standing, self.candidates, self.out, self)

    def is_assigned(self) -> bool:
        return self.assigned

    def waits_for_copies(self) -> bool:
        return self.waits

    def order(self, after: str, members: str, adjust_ms: int = FIXED) -> None:
        order = BaselineWanted(5, after, [f"name-{one}" for one in members], adjust_ms)
        self.standing.intents.order_baseline(order, self.out.now_ns)

    def leaves(self, letter: str) -> None:
        who = EVERYBODY[letter]
        beat = Heartbeat(who.uuid, who.life, 5)
        self.standing.intents.heard(msgspec.structs.replace(beat, wish=Intent.LEAVE, wish_number=1), 5)

    def wanted(self, members: str, left: str = "", *, recovering: bool = False) -> Baseline | None:
        return self.next.wanted(
            self.view, infos(members), [EVERYBODY[one].uuid for one in left], recovering=recovering
        )


def shown(baseline: Baseline | None) -> tuple[str, str, int, int] | None:
    """Who is in it, who of these is away, how it is adjusted, and how often it was changed."""
    if baseline is None:
        return None
    members = "".join(one.consistent_id[-1] for one in baseline.members)
    away = "".join(one.consistent_id[-1] for one in baseline.away)
    return members, away, baseline.adjust_ms, baseline.changes


# -- as before


def test_without_a_baseline_there_is_none() -> None:
    one = Master("abc", None)
    assert one.wanted("abc") is None
    assert one.wanted("ab") is None
    one.standing.evicted_without_majority = {C.uuid}
    assert one.wanted("ab") is None


def test_it_stays_as_it_is_and_keeps_the_places_of_those_who_go() -> None:
    baseline = made("abc")
    one = Master("abc", baseline)
    assert one.wanted("abc") == baseline
    assert shown(one.wanted("ab")) == ("abc", "c", FIXED, 1)
    assert shown(one.wanted("abd")) == ("abc", "c", FIXED, 1), "who is not in it is not added"
    one = Master("ab", made("abc", away="c"))
    assert shown(one.wanted("ab")) == ("abc", "c", FIXED, 1)
    assert shown(one.wanted("abc")) == ("abc", "", FIXED, 1), "it is back"


def test_the_group_of_a_member_is_that_of_its_last_life() -> None:
    baseline = made("abc")
    one = Master("ab", baseline)
    moved = msgspec.structs.replace(C, group="rack")
    found = one.next.wanted(one.view, [A, B, moved], [], recovering=False)
    assert found is not None
    assert [entry.group for entry in found.members] == ["", "", "rack"]
    one.view = View(6, "id", [A, B, moved], baseline=found)
    away = one.next.wanted(one.view, [A, B], [], recovering=False)
    assert away is not None
    assert [(entry.group, entry.away) for entry in away.members] == [("", False), ("", False), ("rack", True)]


@pytest.mark.parametrize(
    ("state", "ending", "members", "leaving", "left", "away"),
    [
        # Who leaves in order gives away what it held: no place is kept.
        (ClusterState.ACTIVE, False, "ab", "c", "c", ""),
        (ClusterState.ACTIVE, False, "ab", "c", "", "c"),
        (ClusterState.ACTIVE, False, "a", "bc", "bc", ""),
        (ClusterState.ACTIVE, False, "a", "c", "c", "b"),
        # Where nothing moves it keeps what it holds.
        (ClusterState.NO_MIGRATION, False, "ab", "c", "c", "c"),
        (ClusterState.FROZEN, False, "ab", "c", "c", "c"),
        # All leave: nobody is there to whom it could be given.
        (ClusterState.ACTIVE, True, "ab", "c", "c", "c"),
        (ClusterState.ACTIVE, False, "ab", "abc", "c", "c"),
    ],
)
def test_whose_places_are_kept(
    state: ClusterState, ending: bool, members: str, leaving: str, left: str, away: str
) -> None:
    one = Master("abc", made("abc"), state=state, ending=ending)
    for letter in leaving:
        one.leaves(letter)
    assert shown(one.wanted(members, left)) == ("abc", away, FIXED, 1)


def test_a_lite_member_takes_over_nothing() -> None:
    one = Master("ace", made("ac"))
    for letter in "ac":
        one.leaves(letter)
    assert shown(one.wanted("e", "ac")) == ("ac", "ac", FIXED, 1)


def test_one_that_takes_over_is_enough() -> None:
    one = Master("acde", made("ac"))
    one.leaves("c")
    one.leaves("d")
    assert shown(one.wanted("ade", "c")) == ("ac", "", FIXED, 1), "though another one leaves, and one is lite"


def test_a_member_that_was_lite_held_nothing() -> None:
    """It is in the baseline by an order from when it owned data."""
    one = Master("ae", Baseline(()).changed([*of("a"), BaselineMember("name-e")], FIXED, "x"))
    assert shown(one.wanted("a")) == ("ae", "", FIXED, 1)


# -- membership/B-2: orders


@pytest.mark.rule("membership/B-2")
@pytest.mark.parametrize(
    ("there", "members", "order", "done"),
    [
        (None, "abc", "abc", True),
        (None, "abc", "abcd", True),
        (None, "abc", "ab", False),
        (None, "abce", "abc", True),
        ("ab", "abc", "abc", True),
        ("ab", "abc", "abd", True),
        ("ab", "abc", "ac", False),
        ("abd", "abc", "ab", True),
        ("bd", "abc", "abcd", True),
        ("d", "abc", "d", False),
        ("d", "abc", "a", True),
    ],
)
def test_an_order_takes_out_nobody_who_is_here_and_holds_data(
    there: str | None, members: str, order: str, done: bool
) -> None:
    baseline = made(there, 7) if there is not None else None
    one = Master(members, baseline)
    one.order(baseline.point if baseline is not None else "", order, 9)
    found = one.wanted(members)
    if done:
        away = "".join(letter for letter in order if letter not in members and there and letter in there)
        assert shown(found) == (order, "", 9, 1 if baseline is None else 2)
        assert away in order
    else:
        assert found == baseline


@pytest.mark.rule("membership/B-2")
def test_an_order_that_rests_on_an_older_history_is_not_carried_out() -> None:
    first = made("ab")
    second = first.changed(of("a", "b", "c"), FIXED, "cluster")
    one = Master("abcd", second)
    one.order(first.point, "abcd")
    assert one.wanted("abcd") == second
    one.order("", "abcd")
    assert one.wanted("abcd") == second
    one.order(second.point, "abcd")
    assert shown(one.wanted("abcd")) == ("abcd", "", FIXED, 3)
    one.assigned = False
    assert one.wanted("abcd") == second, "the partitions have no owners yet"


def test_an_order_that_nobody_repeats_is_void() -> None:
    one = Master("abc", made("ab"))
    one.order(made("ab").point, "abc")
    one.out.now_ns += 3 * SECOND
    assert shown(one.wanted("abc")) == ("abc", "", FIXED, 2)
    one.out.now_ns += 1
    assert one.wanted("abc") == made("ab")


def test_what_is_known_of_the_ordered_is_kept() -> None:
    """The group of one that is away, and that it is away; of one that nobody knows its name alone."""
    baseline = Baseline(()).changed([*of("a"), BaselineMember("name-d", "rack", True)], 7, "x")
    one = Master("ab", baseline)
    one.order(baseline.point, "dabx", 8)
    found = one.wanted("ab")
    assert found is not None
    assert found.members == (
        BaselineMember("name-a"),
        BaselineMember("name-b"),
        BaselineMember("name-d", "rack", True),
        BaselineMember("name-x"),
    )
    assert found == baseline.changed(found.members, 8, "id"), "the cluster is part of the history"
    racked = msgspec.structs.replace(B, group="row")
    one.order(baseline.point, "dab", 8)
    found = one.next.wanted(one.view, [A, racked], [], recovering=False)
    assert found is not None
    assert found.members[1] == BaselineMember("name-b", "row")
    one = Master("ab", None)
    one.order("", "abb", 8)
    assert one.wanted("ab") == Baseline(()).changed(of("a", "b"), 8, "id")


# -- membership/B-4: adjusted by itself


def adjusting(members: str = "abc", baseline: str = "ab", **changed: Any) -> Master:
    one = Master(members, made(baseline, 5000), **changed)
    one.out.now_ns += 5000 * MILLISECOND
    return one


@pytest.mark.rule("membership/B-4")
def test_it_becomes_who_is_here_when_nobody_has_come_or_gone_for_so_long() -> None:
    one = adjusting()
    assert one.wanted("abc") == made("ab", 5000).changed(of("a", "b", "c"), 5000, "adjusted")
    one.out.now_ns -= MILLISECOND
    assert one.wanted("abc") == made("ab", 5000)
    assert shown(adjusting("ab", "abc").wanted("ab")) == ("ab", "", 5000, 2)
    assert shown(adjusting("abe", "abc").wanted("abe")) == ("ab", "", 5000, 2), "not lite ones"
    fixed = Master("abc", made("ab"))
    fixed.out.now_ns += 5000 * MILLISECOND
    assert fixed.wanted("abc") == made("ab")


@pytest.mark.rule("membership/B-4")
@pytest.mark.parametrize(
    "hindered",
    [
        lambda one: setattr(one, "assigned", False),
        lambda one: setattr(one, "waits", True),
        lambda one: setattr(one, "view", msgspec.structs.replace(one.view, state=ClusterState.NO_MIGRATION)),
        lambda one: setattr(one, "view", msgspec.structs.replace(one.view, state=ClusterState.FROZEN)),
        lambda one: setattr(one, "view", msgspec.structs.replace(one.view, ending=True)),
    ],
)
def test_it_is_not_adjusted_while_something_stands_in_the_way(hindered: Any) -> None:
    one = adjusting()
    hindered(one)
    found = one.wanted("abc")
    assert found is not None
    assert (found.changes, found.ids) == (1, made("ab").ids)


@pytest.mark.rule("membership/B-4")
def test_it_is_not_adjusted_with_a_view_of_other_members() -> None:
    one = adjusting()
    assert shown(one.wanted("abcd")) == ("ab", "", 5000, 1)
    assert shown(one.wanted("ac")) == ("ab", "b", 5000, 1)


@pytest.mark.rule("membership/B-4")
def test_lite_members_alone_are_no_baseline() -> None:
    one = adjusting("e", "ab")
    assert shown(one.wanted("e")) == ("ab", "", 5000, 1)


def test_an_order_comes_before_that() -> None:
    one = adjusting()
    one.order(made("ab", 5000).point, "abd", 5000)
    assert shown(one.wanted("abc")) == ("abd", "", 5000, 2)


# -- membership/B-5: going on without some


@pytest.mark.rule("membership/B-5")
def test_going_on_without_the_dead_is_a_change_of_the_history() -> None:
    one = Master("abc", made("abc"))
    one.standing.evicted_without_majority = {C.uuid}
    found = one.wanted("ab")
    assert found is not None
    assert found.point == made("abc").continued({"name-a", "name-b"}).point
    assert shown(found) == ("abc", "c", FIXED, 2)
    assert one.wanted("abc") == made("abc"), "not while it is in the view"


FILED = {letter: msgspec.structs.replace(EVERYBODY[letter], store=f"files-{letter}") for letter in "abc"}


@pytest.mark.rule("membership/B-5")
@pytest.mark.parametrize(
    ("was", "becomes", "here", "changes"),
    [
        (True, False, "ab", 2),
        (True, False, "abc", 1),
        (True, True, "ab", 1),
        (False, False, "ab", 1),
    ],
)
def test_going_on_without_files_is_a_change_of_the_history(
    was: bool, becomes: bool, here: str, changes: int
) -> None:
    one = Master("abc", made("abc"))
    one.view = View(5, "id", list(FILED.values()), recovering=was, baseline=made("abc"))
    found = one.next.wanted(one.view, [FILED[letter] for letter in here], [], recovering=becomes)
    assert found is not None
    assert found.changes == changes


def test_while_a_cluster_comes_back_the_newest_baseline_that_anybody_knows_counts() -> None:
    newer = made("abc").changed(of("a", "b"), FIXED, "x")
    one = Master("ab", made("abc"), recovering=True)
    one.candidates.ask(C, one.out.now_ns, newer)
    assert one.wanted("ab", recovering=True) == msgspec.structs.replace(
        made("abc"), members=tuple(of("a", "b", "c"))
    )
    found = one.wanted("abc", recovering=True)
    assert found is not None
    assert found.point == newer.point
