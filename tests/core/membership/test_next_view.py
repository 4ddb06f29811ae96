"""What makes a member want the next view, and what it does with one that was decided."""

from __future__ import annotations

import pytest
from tests.core.membership.one_member import (
    SEEDS,
    TIMING,
    A,
    B,
    C,
    D,
    E,
    F,
    One,
    a,
    b,
    c,
    d,
    e,
    home,
    info,
    parting,
    recovering,
    row,
    view,
)

from holdfast.core.effects import CloseLink, Datagram, Note, OpenLink, SetTimer
from holdfast.core.membership.joining import JOIN_INTERVAL_NS
from holdfast.core.membership.membership_status import MembershipState
from holdfast.core.messages import (
    Accept,
    Accepted,
    EvictMembersWithoutMajority,
    Heartbeat,
    Prepare,
    Promise,
    StateWanted,
    ViewDecided,
)
from holdfast.core.model.ids import SECOND, Address
from holdfast.core.model.views import ClusterState, FilesProof, FilesSeen, Intent

# -- wanting and agreeing on the next view


@pytest.mark.rule("membership/A-4")
def test_the_oldest_that_is_not_suspected_proposes() -> None:
    """membership/A-4."""
    one = One(B, A, B, C)
    turn = one.membership.may_propose
    assert (turn(a), turn(b), turn(c), turn(d)) == (True, True, False, False)
    assert one.membership.next_view.is_next(b) is False
    one.silence(A)
    assert (turn(a), turn(b), turn(c)) == (True, True, False), "A is older, whatever is suspected"
    assert one.membership.next_view.is_next(b) is True
    one = One(C, A, B, C)
    one.silence(A, B)
    assert (one.membership.may_propose(b), one.membership.next_view.is_next(c)) == (True, True)
    one.membership.view = view(A, B)
    assert (one.membership.next_view.is_next(a), one.membership.next_view.is_next(b)) == (True, True), (
        "all are suspected"
    )


def test_only_a_member_whose_turn_it_is_wants_anything() -> None:
    one = One(B, A, B, C)
    one.silence(C)
    assert one.membership.wanted() is None
    one.silence(A)
    one = One(A, A, B, C)
    one.silence(C)
    assert one.wanted() == view(A, B, number=6)
    one.membership.state = MembershipState.PARTING
    assert one.membership.wanted() is None
    one.membership.consider()
    assert not one.proposes
    joining = One()
    assert joining.membership.wanted() is None
    joining.membership.consider()
    assert not joining.proposes


def test_nothing_is_wanted_when_all_is_right() -> None:
    one = One(A, A, B)
    one.assigned = False
    assert one.membership.wanted() is None, "a new cluster has no table at first, and awaits no files"
    assert one.membership.wanted() is None
    one.membership.consider()
    assert one.out.effects == []


def test_without_a_majority_nothing_is_wanted_and_that_is_told_once() -> None:
    one = One(A, A, B, C)
    one.silence(B, C)
    for _ in range(2):
        assert one.membership.wanted() is None
    why = "no majority: waiting for silent members to return; partitions that need them are not served"
    assert one.noted(why) == [{"silent": ["name-b", "name-c"], "members": 3, "level": "debug"}]
    one.beat(B)
    one.wanted()
    one.silence(B)
    one.membership.wanted()
    assert len(one.noted(why)) == 1, "and again when it was over in between"
    assert One(A, A, B, C, majority=False).membership.next_view._minority_reported is False
    one = One(A, A, B, C, majority=False)
    one.silence(B, C)
    assert one.wanted().members == [A]


def test_who_may_part_leaves_with_the_next_view() -> None:
    one = One(A, A, B, C)
    one.beat(B, wish=Intent.LEAVE, wish_number=1)
    assert one.membership.wanted() is None, "it still holds something"
    one.can_leave = {b, c}
    assert one.wanted() == view(A, C, number=6, left=[b])
    one.silence(C)
    assert one.wanted() == view(A, B, number=6), "never both at once"


def test_two_that_leave_count_for_the_majority() -> None:
    one = One(A, A, B, C)
    for who in (B, C):
        one.beat(who, wish=Intent.LEAVE, wish_number=1)
    one.can_leave = {b, c}
    assert one.wanted() == view(A, number=6, left=[b, c])


def test_wishes_are_granted() -> None:
    one = One(A, A, B)
    one.beat(B, wish=Intent.LITE, wish_number=1)
    assert one.membership.wanted() is None
    one.may_demote = {b}
    assert one.wanted() == view(A, info("b", lite=True), number=6)


def test_who_asks_is_let_in_and_the_newest_known_number_is_passed() -> None:
    one = One(A, A, B)
    one.ask(C)
    assert one.wanted() == view(A, B, info("c", life=6), number=6)
    one.membership.numbers_from = 40
    assert one.wanted().number == 41
    one.out.now_ns += 3 * SECOND
    assert one.membership.wanted() is None
    seen = {"s": FilesSeen(1, "t", 9)}
    one.membership.view = view(A, B, stores=seen)
    one.ask(info("c", store="s", incarnation=1, proof=FilesProof("t", reached=8, cut=True)))
    assert one.wanted().members[-1].behind is True


def test_what_is_ordered_is_wanted() -> None:
    one = One(A, A, B)
    one.membership.intents.ordered(StateWanted(5, ClusterState.FROZEN, True))
    assert one.wanted() == view(A, B, number=6, state=ClusterState.FROZEN, ending=True)


def test_a_frozen_view_names_who_is_missing_and_one_that_ends_who_is_awaited() -> None:
    kept = info("c", store="s")
    one = One(A)
    one.membership.install(view(A, B, kept, state=ClusterState.FROZEN, missing=[D]))
    one.silence(kept)
    assert one.wanted().missing == [D, kept]
    one.membership.view = view(A, B, kept, missing=[D])
    assert one.wanted().missing == []
    one = One(A, info("a", store="mine"), kept)
    for who in (A, kept):
        one.membership.intents.heard(Heartbeat(who.uuid, 1, 5, [], Intent.LEAVE, 1), 5)
    one.can_leave = {a, c}
    assert one.wanted() == view(number=6, left=[a, c], missing=[info("a", store="mine"), kept], stores={}), (
        "all leave: what they hold is awaited when the cluster comes back"
    )


def test_a_cluster_that_comes_back_awaits_files_until_its_table_is_made() -> None:
    kept = info("c", store="s", incarnation=4, proof=FilesProof("t"))
    one = recovering(info("a", store="mine"), B, kept)
    one.assigned = False
    assert one.membership.wanted() is None
    one.silence(kept)
    wanted = one.wanted()
    assert (wanted.recovering, wanted.missing, wanted.stores) == (True, [kept], {})
    one.assigned = True
    wanted = one.wanted()
    assert (wanted.recovering, wanted.missing) == (False, [])
    assert wanted.stores == {"mine": FilesSeen(0, "", 0)}, "now their lives count"
    one.membership.detector.heard(c, one.out.now_ns)
    assert one.wanted().stores["s"] == FilesSeen(4, "t", 0)


def test_a_proposal_is_not_disturbed_by_another_one() -> None:
    one = One(A, A, B, C)
    one.silence(C)
    one.membership.consider()
    one.membership.consider()
    assert [message.ballot for _, message in one.sent(Prepare)] == [(1, a), (1, a)]


def test_a_decided_view_is_told_to_the_old_and_the_new_members_once() -> None:
    one = One(A, A, B, C)
    one.ask(D)
    one.silence(C)
    one.membership.agreement.install(one.membership.view)
    one.fresh()
    one.rows = [(1, row(3))]
    one.membership.consider()
    one.membership.agreement.on_promise(b, Promise(5, (1, a), None, None))
    one.membership.agreement.on_accepted(b, Accepted(5, (1, a), [(2, row(4))]))
    now = view(A, B, info("d", life=6), number=6)
    decided = ViewDecided(now, [(1, row(3)), (2, row(4))])
    effects = one.out.take()
    told = [
        effect
        for effect in effects
        if isinstance(effect, Datagram) and isinstance(effect.message, ViewDecided)
    ]
    assert told == [Datagram(home(who), decided) for who in (B, C, D)]
    assert (one.membership.view, one.membership.carried) == (now, decided.rows)
    assert one.changes == [(view(A, B, C), now)]


def test_members_decide_only_as_the_operator_and_the_majority_allow() -> None:
    """The agreement asks this member who may propose and who may decide."""
    one = One(B, A, B, C)
    one.membership.agreement.on_prepare(c, Prepare(5, (1, c)))
    assert one.sent(Promise) == [], "it is not C's turn"
    one.membership.agreement.on_prepare(a, Prepare(5, (1, a)))
    assert one.sent(Promise) == [(a, Promise(5, (1, a), None, None))]
    one.rows = [(1, row(3))]
    one.membership.agreement.on_accept(a, Accept(5, (1, a), view(A, number=6)))
    assert one.sent(Accepted) == [(a, Accepted(5, (1, a), [(1, row(3))]))]


# -- a view that was decided


def test_the_newest_view_of_this_cluster_is_believed() -> None:
    one = One(A, A, B)
    for other in (view(A, number=6, cluster_id="other"), view(A, number=5), view(A, number=4)):
        one.membership.on_view(ViewDecided(other, [(1, row(9))]))
        assert (one.membership.view, one.membership.carried) == (view(A, B), [])
    one.membership.on_view(ViewDecided(view(A, number=6), [(1, row(2))]))
    assert (one.membership.view, one.membership.carried) == (view(A, number=6), [(1, row(2))])


def test_who_is_not_in_any_view_takes_only_one_that_it_is_in() -> None:
    one = One(A, seeds=SEEDS)
    one.membership.on_view(ViewDecided(view(B), [(1, row(2))]))
    assert (one.membership.state, one.membership.carried) == ("joining", [])
    one.membership.on_view(ViewDecided(view(B, A)))
    assert (one.membership.state, one.membership.master) == ("member", b)
    one.membership.on_view(ViewDecided(view(B, number=6)))
    assert one.membership.state == "exiled"
    one.fresh()
    one.membership.on_view(ViewDecided(view(B, C, number=7)))
    assert (one.membership.last_view, one.out.effects) == (view(B, number=6), [])
    one.membership.on_view(ViewDecided(view(B, info("a", life=8), number=8)))
    assert one.changes == [(None, view(B, info("a", life=8), number=8))]
    assert (one.membership.state, one.membership.info.life) == ("member", 8)


def test_who_is_parting_goes_when_it_hears_of_a_newer_view() -> None:
    one = parting(B, C, D)
    one.membership.on_view(ViewDecided(view(B, C, D, number=6)))
    assert one.membership.state == "parting"
    one.membership.on_view(ViewDecided(view(B, C, number=7), [(1, row(2))]))
    assert (one.membership.state, one.membership.carried) == ("gone", [])


def test_links_follow_the_members_and_their_lives() -> None:
    one = One(A, A, B, C, D)
    again = info("c", life=6, host="elsewhere")
    one.membership.install(view(A, B, again, E, number=6))
    effects = one.out.take()
    assert [effect for effect in effects if isinstance(effect, CloseLink)] == [CloseLink(c), CloseLink(d)]
    assert [effect for effect in effects if isinstance(effect, OpenLink)] == [
        OpenLink(c, 6, Address("elsewhere", 5701)),
        OpenLink(e, 1, home(E)),
    ]


def test_the_first_view_opens_links_to_all_others() -> None:
    one = One(B, seeds=SEEDS)
    one.membership.install(view(A, B, C))
    assert [effect.to for effect in one.done(OpenLink)] == [a, c]
    assert one.changes == [(None, view(A, B, C))]


def test_who_has_left_keeps_its_links_to_those_who_stay() -> None:
    one = One(A, A, B, C)
    one.membership.install(view(B, number=6, left=[a, c]))
    effects = one.out.take()
    assert [effect for effect in effects if isinstance(effect, CloseLink)] == [CloseLink(c)]
    assert [effect for effect in effects if isinstance(effect, OpenLink)] == []
    assert Note("left the view", {"view": 6}) in effects
    assert one.membership.state == "parting"
    assert one.membership.view == view(B, number=6, left=[a, c])
    assert one.changes == [(view(A, B, C), view(B, number=6, left=[a, c]))]
    assert (one.membership.agreement.view, one.membership.may_be_missed) == (None, False)


def test_a_new_view_is_told_and_heartbeats_are_of_it() -> None:
    one = One(A, A, B)
    one.membership.refusal = "once"
    beats: list[bool] = []
    one.looks = lambda: beats.append(bool(one.datagram_received(Heartbeat)))
    one.membership.install(view(A, B, C, number=6, left=[d], state=ClusterState.FROZEN))
    assert beats == [False], "the other machines know the view before others hear of it"
    assert [(host, beat.view) for host, beat in one.datagram_received(Heartbeat)] == [("b", 6), ("c", 6)]
    assert (one.membership.refusal, one.membership.agreement.view) == ("", one.membership.view)
    one.pass_time(TIMING.suspect_after_ns + 1)
    assert one.membership.detector.suspects(one.out.now_ns) == [b, c], "it watches all others"
    one.looks = lambda: None
    one.membership.install(view(A, B, number=7))
    (note,) = one.noted("view")
    assert note == {
        "number": 7, "state": ClusterState.ACTIVE, "master": "name-a", "members": ["name-a", "name-b"],
        "removed": ["name-c"], "level": "info",
    }  # fmt: skip


def test_a_view_says_who_came_and_went_by_name() -> None:
    one = One(A, A, B, C, D)
    one.membership.install(view(A, info("b", life=6), E, number=6, left=[c]))
    (note,) = one.noted("view")
    told = {how: note.get(how) for how in ("joined", "returned", "left_after_draining", "removed")}
    assert told == {
        "joined": ["name-e"], "returned": ["name-b"], "left_after_draining": ["name-c"], "removed": ["name-d"]
    }  # fmt: skip
    one = One(A)
    one.membership.install(view(A, B))
    (note,) = one.noted("view")
    assert "joined" not in note, "who is there when one comes has not joined"


def test_why_somebody_was_removed_is_told_as_far_as_it_is_known() -> None:
    def why(one: One) -> object:
        one.fresh()
        one.membership.install(view(A, C, number=6))
        (note,) = (each for each in one.done(Note) if each.kind.startswith("member gone"))
        return note.fields["reason"]

    one = One(A, A, B, C)
    one.pass_time(TIMING.suspect_after_ns + SECOND)
    assert why(one) == "silent for 4.0 s"
    one = One(A, A, B, C)
    one.silence(B)
    assert why(one) == "its port refuses connections: the process has ended"
    one = One(A, A, B, C)
    one.silence(B)
    one.membership.evicted_without_majority.add(b)
    assert why(one) == "evicted by the operator, without a majority"


def test_a_new_view_ends_what_was_wanted_of_the_old_one() -> None:
    one = One(A, A, B, C, D, E)
    one.ask(F)
    one.membership.evictions.on_evict_members_without_majority(EvictMembersWithoutMajority(5, [c]))
    one.beat(B, sealed=True)
    one.membership.intents.ordered(StateWanted(5, ClusterState.FROZEN, False))
    one.membership.install(view(A, B, C, D, E, F, number=6, state=ClusterState.FROZEN))
    assert one.membership._candidates._asked == {}
    assert (one.membership.evicted_without_majority, one.membership.fenced_since) == (set(), {})
    assert one.membership.wanted() is None


def test_who_is_gone_is_told_and_how() -> None:
    lost = "member gone without leaving: it crashed, or was cut off or stopped for too long"
    one = One(A, A, B, C)
    one.membership.install(view(A, number=6, left=[c]))
    effects = one.out.take()
    gone = [
        effect for effect in effects if isinstance(effect, Note) and effect.kind.startswith("member gone")
    ]
    why = "other members suspect it"
    assert gone == [Note(lost, {"name": "name-b", "address": "b:5701", "reason": why, "uuid": b}, "warning")]
    one = One(A, A, B)
    one.membership.install(view(A, number=7))
    assert one.noted("member gone while this member received no views"), "it may have left in between"
    one = One(A, A, B)
    one.membership.install(view(C, number=6))
    assert not [effect for effect in one.done(Note) if effect.kind.startswith("member gone")], (
        "A itself is out"
    )
    assert one.membership.may_be_missed is True
    one = One(A, A, B)
    one.membership.install(view(A, info("b", life=6), number=6))
    assert one.membership.may_be_missed is False, "B is here, in its next life"


@pytest.mark.rule("membership/V-2")
def test_who_is_removed_though_alive_asks_to_return() -> None:
    """membership/V-2."""
    one = One(A, A, B, C)
    one.membership.intents.order(view(A, B, C), ClusterState.FROZEN, ending=False)
    one.fresh()
    one.membership.install(view(B, C, E, number=6))
    effects = one.out.take()
    assert (one.membership.state, one.membership.view) == ("exiled", None)
    assert not [effect for effect in effects if isinstance(effect, OpenLink)]
    assert {effect.to for effect in effects if isinstance(effect, CloseLink)} == {b, c}
    assert SetTimer("join", JOIN_INTERVAL_NS, JOIN_INTERVAL_NS) in effects
    why = "removed from the cluster while alive: rejoining"
    assert Note(why, {"view": 6}, "warning") in effects
    assert one.changes == [(view(A, B, C), None)]
    assert one.membership.agreement.view is None
    one.pass_time(TIMING.suspect_after_ns + 1)
    assert one.membership.detector.suspects(one.out.now_ns) == [], "it watches nobody"
    assert one.membership.intents._order is None, "what was ordered here is void"


def test_who_was_removed_and_admitted_again_drops_what_was_under_way() -> None:
    one = One(A, A, B)
    back = info("a", life=7)
    one.membership.install(view(B, back, number=7))
    assert one.changes == [(view(A, B), None), (None, view(B, back, number=7))]
    effects = one.out.take()
    links = [effect for effect in effects if isinstance(effect, OpenLink | CloseLink)]
    assert links == [CloseLink(b), OpenLink(b, 1, home(B))]
    assert (one.membership.info, one.membership.state) == (back, "member")
    one = One(A, seeds=SEEDS)
    one.membership.install(view(B, back, number=7))
    assert one.changes == [(None, view(B, back, number=7))], "its first admission"
    assert one.membership.info == back


def test_a_view_without_this_process_means_nothing_to_one_that_joins() -> None:
    one = One(A, seeds=SEEDS)
    one.membership.install(view(B))
    assert (one.membership.state, one.changes) == ("joining", [])
