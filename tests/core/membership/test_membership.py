"""One member among others: what it knows of them, what the operator wants of it, and when it goes."""

from __future__ import annotations

import pytest
from tests.core.membership.one_member import (
    HEARTBEAT_NS,
    TIMING,
    A,
    B,
    C,
    D,
    One,
    a,
    b,
    c,
    d,
    home,
    info,
    parting,
    row,
    view,
)

from holdfast.core.effects import Datagram, SetTimer, Stop
from holdfast.core.membership.membership import LAST_WORDS_NS
from holdfast.core.membership.membership_status import RETURN_FACTOR, MembershipState
from holdfast.core.messages import (
    Accept,
    Heartbeat,
    Prepare,
    ViewDecided,
)
from holdfast.core.model.baseline import FIXED, Baseline, BaselineMember
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.views import ClusterState, FilesProof, FilesSeen, Intent, Room

# -- what others ask


def test_a_new_process_is_in_no_cluster() -> None:
    one = One()
    membership = one.membership
    assert (membership.me, membership.info, membership.state, membership.refusal) == (a, A, "joining", "")
    assert (membership.view, membership.master, membership.is_master) == (None, None, False)
    assert (membership.members(), membership.missing(), membership.data_members()) == ([], [], [])
    assert (membership.ending, membership.known_by_all, membership.leaving) == (False, False, False)
    assert membership.cluster_state is ClusterState.ACTIVE
    assert (membership.departing, membership.may_be_missed) == (set(), False)
    assert (membership.carried, membership.numbers_from) == ([], 0)
    assert set(membership.leftovers.values()) == {0}
    assert membership.member(a) is None
    assert (membership.outside(), membership.away(), membership.adjusts_in_ms) == ([], (), None)
    assert (membership.may_hold(A), membership.join_advice) == (False, "")


@pytest.mark.rule("membership/V-1")
def test_a_member_knows_who_is_here_and_who_leads() -> None:
    one = One(B, A, B, C)
    membership = one.membership
    assert (membership.master, membership.is_master) == (a, False)
    assert One(A, A, B).membership.is_master is True
    assert membership.members() == [A, B, C]
    assert membership.members() is not membership.view.members  # type: ignore[union-attr]
    assert (membership.member(c), membership.member(d), membership.member(None)) == (C, None, None)
    one.membership.install(view(B, number=6, state=ClusterState.FROZEN, missing=[C], ending=True))
    assert (membership.cluster_state, membership.missing(), membership.ending) == (
        ClusterState.FROZEN,
        [C],
        True,
    )
    assert One(A, A, B).membership.ending is False


def owners(*names: str, adjust_ms: int = 700, away: str = "") -> Baseline:
    members = tuple(BaselineMember(f"name-{name}", "", name == away) for name in names)
    return Baseline(members, adjust_ms, 1, ("x",))


@pytest.mark.rule("membership/B-3")
def test_a_member_outside_the_baseline_holds_nothing() -> None:
    one = One()
    lite = info("d", lite=True)
    one.membership.install(view(A, B, C, lite, baseline=owners("a", "b", "e", away="e")))
    membership = one.membership
    assert membership.outside() == [C]
    assert membership.data_members() == [A, B]
    assert [member.consistent_id for member in membership.away()] == ["name-e"]
    one = One(A, A, B)
    assert (one.membership.outside(), one.membership.away()) == ([], ()), "there is no baseline"


def test_when_the_baseline_will_become_the_present_members() -> None:
    one = One()
    one.membership.install(view(A, B, info("c", lite=True), baseline=owners("a")))
    assert one.membership.adjusts_in_ms == 700
    one.out.now_ns += 200 * MILLISECOND
    assert one.membership.adjusts_in_ms == 500
    one.out.now_ns += 501 * MILLISECOND
    assert one.membership.adjusts_in_ms == 0
    for baseline in (None, owners("a", adjust_ms=FIXED), owners("a", "b")):
        other = One()
        other.membership.install(view(A, B, info("c", lite=True), baseline=baseline))
        assert other.membership.adjusts_in_ms is None
    early = One()
    early.out.now_ns = 0
    early.membership.view = view(A, B, baseline=owners("a"))
    assert early.membership.adjusts_in_ms == 700


@pytest.mark.rule("membership/V-6")
def test_members_without_whom_the_operator_decides_do_not_count() -> None:
    one = One(A, A, B, C)
    assert not one.membership.may_decide(view(A, B, C), {b})
    one.membership.evicted_without_majority = {a, c}
    assert one.membership.may_decide(view(A, B, C), {b})


def test_a_member_hears_whom_it_has_heard_not_long_ago_while_it_is_in_the_cluster() -> None:
    one = One(A, A, B)
    assert (one.membership.is_member(b), one.membership.is_member(c)) == (True, False)
    assert one.membership.hears(b) is True
    one.out.now_ns += TIMING.suspect_after_ns + 1
    assert one.membership.hears(b) is False
    one = One(A, A, B)
    one.membership.install(view(B, number=6))
    assert (one.membership.hears(b), one.membership.is_member(b)) == (False, False), "it was removed"


def test_who_has_left_leads_nothing() -> None:
    one = One(A, A, B)
    one.membership.install(view(number=6, left=[a]))
    assert (one.membership.master, one.membership.is_master) == (None, False)
    one.membership.view = view(A)
    assert one.membership.is_master is False, "it is parting"


def test_the_view_is_known_by_all_when_all_have_said_so() -> None:
    one = One(A, A, B, C)
    one.beat(B)
    one.beat(C, 4)
    assert one.membership.known_by_all is False
    one.beat(C)
    assert one.membership.known_by_all is True
    one.membership.install(view(A, B, C, number=6))
    assert one.membership.known_by_all is False, "that was another view"
    one.beat(B, 6)
    one.beat(C, 6)
    assert one.membership.known_by_all is True
    one.membership.state = MembershipState.PARTING
    assert one.membership.known_by_all is False


@pytest.mark.rule("membership/V-1")
def test_more_than_half_decide_unless_any_may() -> None:
    for majority in (True, False):
        one = One(A, A, B, C, majority=majority)
        assert one.membership.is_quorum({a, b}) is True
        assert one.membership.is_quorum({a}) is not majority
        assert one.membership.may_decide(view(A, B, C), {a}) is not majority
        assert one.membership.may_decide(view(A, B, C), {a, c}) is True


def test_members_that_leave_or_become_lite_hold_nothing_any_more() -> None:
    lite = info("l", lite=True)
    one = One(A, A, B, C, lite)
    one.beat(B, wish=Intent.LEAVE, wish_number=1)
    one.beat(C, wish=Intent.LITE, wish_number=1)
    assert one.membership.departing == {b, c}
    assert one.membership.data_members() == [A]
    assert one.membership.leaving is False
    one.membership.set_intent(Intent.LEAVE)
    assert one.membership.leaving is True


def test_leftovers_are_notes_about_strangers_and_those_who_ask_no_more() -> None:
    one = One(A, A, B)
    one.ask(C)
    one.beat(B, sealed=True, wish=Intent.LEAVE, wish_number=1)
    assert set(one.membership.leftovers.values()) == {0}
    one.out.now_ns += 10 * SECOND
    assert one.membership.leftovers["candidates that ask no more"] == 1
    one.membership.view = view(A)
    assert one.membership.leftovers["notes about members that are gone"] == 1
    one.membership.intents.safe.add(c)
    assert one.membership.leftovers["notes about members that are gone"] == 2


# -- start, time, and the operator


def test_it_looks_for_the_cluster_at_once_and_beats_from_then_on() -> None:
    one = One()
    one.membership.start()
    assert one.out.effects == [SetTimer("join", MILLISECOND), SetTimer("heartbeat", HEARTBEAT_NS)]


def test_who_has_not_joined_leaves_at_once() -> None:
    one = One()
    one.membership.leave()
    assert one.membership.state == "gone"
    assert one.done(Stop) == [Stop("left before it had joined a cluster")]


def test_a_wish_is_told_at_once_and_considered() -> None:
    one = One(A, A, B)
    one.can_leave = {a}
    one.membership.leave()
    assert one.membership.state == "member"
    assert one.proposes
    ((host, beat),) = one.datagram_received(Heartbeat)
    assert (host, beat.wish, beat.wish_number) == ("b", Intent.LEAVE, 1)
    one = One()
    one.membership.set_intent(Intent.LITE)
    assert (one.out.effects, one.membership.intents.mine) == ([], Intent.LITE)


def test_want_of_room_is_told_at_once() -> None:
    one = One(A, A, B)
    one.membership.note_full(full=True)
    assert [(host, beat.full, beat.room) for host, beat in one.datagram_received(Heartbeat)] == [
        ("b", True, Room.PLENTY)
    ]
    one.membership.note_room(Room.LITTLE)
    assert [(beat.full, beat.room) for _, beat in one.datagram_received(Heartbeat)] == [(True, Room.LITTLE)]
    one = One()
    one.membership.note_full(full=True)
    one.membership.note_room(Room.NONE)
    assert one.out.effects == []
    assert (one.membership.intents.full, one.membership.intents.short) == ({a}, {a: Room.NONE})


def test_who_was_removed_a_short_time_ago_may_come_back() -> None:
    one = One(A, A, B)
    one.membership.install(view(A, number=6))
    assert one.membership.may_be_missed is True
    one.out.now_ns += RETURN_FACTOR * TIMING.suspect_after_ns - 1
    assert one.membership.may_be_missed is True
    one.out.now_ns += 1
    assert one.membership.may_be_missed is False
    assert RETURN_FACTOR == 3


# -- timers


def test_with_each_heartbeat_it_beats_considers_and_forgets() -> None:
    one = One(A, A, B, D)
    one.membership.on_timer("heartbeat")
    effects = one.out.take()
    assert SetTimer("heartbeat", HEARTBEAT_NS) in effects
    assert [effect.address.host for effect in effects if isinstance(effect, Datagram)] == ["b", "d"]
    assert not one.proposes
    one.ask(C)
    one.membership.agreement.install(one.membership.view)
    one.out.now_ns += 3 * SECOND
    one.membership.on_timer("heartbeat")
    assert not one.proposes
    assert one.membership._candidates._asked == {}
    one.silence(B)
    one.membership.on_timer("heartbeat")
    assert one.proposes
    joining = One()
    joining.membership.on_timer("heartbeat")
    assert joining.out.effects == [SetTimer("heartbeat", HEARTBEAT_NS)]


def test_a_proposal_is_tried_again_by_its_timer_alone() -> None:
    one = One(A, A, B, C)
    one.silence(C)
    one.membership.consider()
    one.fresh()
    one.membership.on_timer("other")
    assert one.out.effects == []
    one.membership.on_timer("propose")
    assert one.sent(Prepare) == [(b, Prepare(5, (2, a))), (c, Prepare(5, (2, a)))]


def test_when_all_leave_together_it_goes_after_its_last_words() -> None:
    one = One(A, A, B)
    one.membership.install(view(number=6, left=[a, b]))
    assert SetTimer("part", LAST_WORDS_NS) in one.out.effects
    assert LAST_WORDS_NS == 1000 * MILLISECOND
    one.membership.on_timer("other")
    assert one.membership.state == "parting"
    one.membership.on_timer("part")
    assert one.membership.state == "gone"
    one.fresh()
    one.membership.on_timer("part")
    assert one.out.effects == []
    one = One(A, A, B)
    one.membership.install(view(B, number=6, left=[a]))
    assert not [effect for effect in one.done(SetTimer) if effect.name == "part"], "B will say that it knows"


@pytest.mark.rule("membership/V-4")
def test_when_all_leave_together_who_does_not_know_is_told_and_waited_for() -> None:
    """Alone it would be a minority that waits for ever for those who have ended."""
    one = One(A, A, B, C)
    one.fresh()
    one.membership.install(view(number=6, left=[a, b, c]))
    assert [address for address, beat in one.datagram_received(Heartbeat) if beat.view == 6] == [
        B.host,
        C.host,
    ]
    one.fresh()
    one.beat(B, 6)
    one.beat(C, 5)
    assert one.membership.state == "parting"
    assert SetTimer("part", LAST_WORDS_NS) in one.out.effects, "from now on"
    assert [address for address, _ in one.datagram_received(ViewDecided)] == [C.host]
    one.beat(C, 6)
    assert one.membership.state == "gone"


# -- heartbeats


def test_a_heartbeat_says_how_this_member_is() -> None:
    one = One(B, A, B, C, info("c2"))
    one.safe = True
    one.membership.durable(12)
    one.membership.intents.note_full(b, full=True)
    one.membership.intents.note_room(b, Room.LITTLE)
    one.membership.set_intent(Intent.LITE)
    one.membership.agreement.on_accept(a, Accept(5, (1, a), view(A, B, number=6)))
    for who in (A, C):
        one.beat(who)
    one.pass_time(2000 * MILLISECOND)
    one.beat(A)
    one.beat(C)
    one.pass_time(1500 * MILLISECOND)
    one.fresh()
    one.membership.on_timer("heartbeat")
    beats = one.datagram_received(Heartbeat)
    said = Heartbeat(b, 1, 5, [MemberId("c2")], Intent.LITE, 1, True, True, 4, 3, True, 12, Room.LITTLE)
    assert beats == [("a", said), ("c", said), ("c2", said)]
    assert b in one.membership.intents.safe
    one.safe = False
    one.membership.on_timer("heartbeat")
    assert b not in one.membership.intents.safe


def test_a_pause_of_its_own_is_nobodys_silence() -> None:
    one = One(A, A, B)
    one.out.now_ns += 4 * SECOND  # of which it has stood still for all but two heartbeats
    assert one.membership.detector.suspects(one.out.now_ns) == []
    one.pass_time(2 * SECOND)
    assert one.membership.detector.suspects(one.out.now_ns) == []
    one.pass_time(1)
    assert one.membership.detector.suspects(one.out.now_ns) == [b]


def test_who_is_silent_is_left_out_and_who_is_heard_is_not() -> None:
    one = One(A, A, B, C)
    one.pass_time(2500 * MILLISECOND)
    one.beat(B)
    one.pass_time(1000 * MILLISECOND)
    assert one.wanted().members == [A, B]
    one.beat(info("c", life=2))
    assert one.wanted().members == [A, B], "another life of it"
    one.beat(C)
    assert one.membership.wanted() is None


def test_what_members_say_is_remembered() -> None:
    one = One(A, A, B, C)
    one.beat(B, suspects=[c], wish=Intent.LEAVE, wish_number=1)
    assert one.membership.departing == {b}
    assert one.wanted().members == [A, B], "of two that do not hear each other, the younger goes"
    one = One(A, A, info("b", store="s", proof=FilesProof("t")))
    one.beat(info("b"), reached=9)
    one.silence(B)
    assert one.wanted().stores == {"s": FilesSeen(0, "t", 9)}


def test_somebody_who_stays_sealed_makes_a_new_view_wanted() -> None:
    one = One(A, A, B)
    one.beat(B, sealed=True)
    limit = 2 * HEARTBEAT_NS + 1000 * MILLISECOND
    one.out.now_ns += limit
    one.beat(B, sealed=True)
    assert one.membership.wanted() is None
    one.out.now_ns += 1
    assert one.wanted().members == [A, B]
    assert one.membership.next_view._long_fenced(one.membership.agreement) is True
    one.beat(B, sealed=False)
    assert one.membership.wanted() is None
    one.beat(B, sealed=True)
    one.out.now_ns += limit + 1
    one.beat(B, 4, sealed=True)
    assert one.membership.wanted() is None, "it was sealed in another view"
    one.beat(B, sealed=True)
    one.membership.install(view(A, B, number=6))
    one.out.now_ns += limit + 1
    assert one.membership.next_view._long_fenced(one.membership.agreement) is False, "a new view frees it"


def test_who_is_sealed_itself_wants_a_new_view() -> None:
    one = One(A, A, B)
    assert one.membership.next_view._long_fenced(one.membership.agreement) is False
    one.membership.agreement.on_accept(b, Accept(5, (1, b), view(B, number=6)))
    assert one.membership.next_view._long_fenced(one.membership.agreement) is True
    assert one.wanted() == view(A, B, number=6)


def test_who_knows_an_older_view_is_told_the_present_one() -> None:
    one = One(A, A, B)
    one.membership.carried = [(1, row(2))]
    decided = ViewDecided(view(A, B), [(1, row(2))])
    one.beat(B, 4)
    assert one.out.take() == [Datagram(home(B), decided)]
    one.beat(B)
    assert one.out.take() == []
    one.beat(C, 4)
    assert one.out.take() == [Datagram(home(C), decided)]
    assert one.membership.may_be_missed is False, "nobody was removed"


def test_who_was_removed_and_is_heard_may_still_come_back() -> None:
    one = One(A, A, B, C)
    one.membership.install(view(A, C, number=6))
    one.out.now_ns += 8 * SECOND
    one.beat(C, 5)
    one.out.now_ns += 8 * SECOND
    assert one.membership.may_be_missed is False, "C is here"
    one.beat(B, 6)
    assert one.membership.may_be_missed is False
    one.beat(B, 5)
    assert one.membership.may_be_missed is True


def test_who_knows_a_newer_view_or_is_parting_hears_of_this_member() -> None:
    one = One(A, A, B)
    mine = Heartbeat(a, 1, 5)
    one.beat(B, 6)
    assert one.out.take() == [Datagram(home(B), mine)]
    one.beat(C, 5)
    assert one.out.take() == [Datagram(home(C), mine)], "it has left with this view, and wants to be told"
    one.beat(C, 6)
    assert one.out.take() == [Datagram(home(C), mine)]
    one.membership.state = MembershipState.PARTING
    one.membership.view = view(B, C, D)
    one.beat(C, 5)
    assert one.out.take() == []


def test_who_was_removed_tells_those_who_do_not_know() -> None:
    one = One(A, A, B)
    one.membership.on_view(ViewDecided(view(B, number=6), [(1, row(2))]))
    one.fresh()
    one.membership.carried = [(1, row(2))]
    one.beat(B, 5)
    assert one.out.take() == [Datagram(home(B), ViewDecided(view(B, number=6), [(1, row(2))]))]
    one.beat(B, 6)
    joining = One()
    joining.beat(B, 0)
    assert one.out.effects == joining.out.effects == []


@pytest.mark.rule("membership/V-4")
def test_it_parts_when_a_majority_of_the_rest_knows() -> None:
    """membership/V-4."""
    one = parting(B, C, D)
    one.beat(B, 6)
    one.beat(B, 5)
    one.beat(C, 5)
    assert one.membership.state == "parting"
    one.beat(D, 6)
    assert one.membership.state == "gone"
    assert one.done(Stop) == [Stop("left the cluster; everything it held is on other members")]


def test_it_parts_when_somebody_knows_a_newer_view() -> None:
    one = parting(B, C, D)
    one.beat(C, 7)
    assert one.membership.state == "gone"
    assert one.datagram_received(Heartbeat) == [], "it needs to learn nothing of this one any more"


def test_a_member_that_is_not_parting_does_not_count_who_knows() -> None:
    one = One(A, A, B)
    one.beat(B, 5)
    one.beat(B, 6)
    assert one.membership.state == "member"


def test_it_says_where_the_data_has_gone() -> None:
    for whole, rest, why in (
        (True, B, "left the cluster, which was shut down as a whole"),
        (False, info("b", lite=True), "left the cluster; all other members that held data have left too"),
    ):
        one = One(A, A, rest)
        one.membership.install(view(rest, number=6, left=[a], ending=whole))
        one.fresh()
        one.beat(rest, 6)
        assert one.done(Stop) == [Stop(why)]
    one = One(A, A, B)
    one.beat(B, wish=Intent.LEAVE, wish_number=1)
    one.membership.install(view(B, number=6, left=[a]))
    one.beat(B, 7)
    assert one.done(Stop) == [Stop("left the cluster; all other members that held data have left too")]
    one = parting(B, info("c", lite=True))
    one.beat(B, 7)
    assert one.done(Stop) == [Stop("left the cluster; everything it held is on other members")]


@pytest.mark.rule("membership/V-8")
def test_who_hears_no_majority_asks_the_seeds_whether_the_others_have_gone_on() -> None:
    """Its neighbours have left or ended since, so that nobody else tells it that it was removed."""
    one = One(A, A, B, C, seeds=(home(B), home(D)))
    one.membership.on_timer("heartbeat")
    assert [host for host, _ in one.datagram_received(Heartbeat)] == ["b", "c"], "no need"
    one.silence(B, C)
    one.membership.on_timer("heartbeat")
    assert [host for host, _ in one.datagram_received(Heartbeat)] == ["b", "c", "d"]
    other = One(D, D)
    other.membership.install(view(D, number=9))
    other.fresh()
    other.beat(A)
    ((host, told),) = other.datagram_received(ViewDecided)
    assert host == "a"
    one.membership.on_view(told)
    assert one.membership.state == "exiled", "and it asks to return"
    alone = One(A, A, B, C, seeds=(home(D),), majority=False)
    alone.silence(B, C)
    alone.membership.on_timer("heartbeat")
    assert "d" not in [host for host, _ in alone.datagram_received(Heartbeat)], "it goes on alone"
