"""Operators evict members, with a majority and without."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.membership.one_member import (
    HEARTBEAT_NS,
    A,
    B,
    C,
    D,
    E,
    One,
    a,
    b,
    c,
    d,
    e,
    home,
    info,
    view,
)

from holdfast.core.effects import Note, Send, Stop
from holdfast.core.membership.evictions import EVICTED_KEPT
from holdfast.core.membership.membership_status import MembershipState
from holdfast.core.messages import EvictMembers, EvictMembersWithoutMajority, JoinAnswer
from holdfast.core.model.views import MemberInfo


def pass_beats(one: One, *heard: MemberInfo) -> None:
    """Four heartbeats pass, in which these are heard, and nobody else."""
    for _ in range(4):
        one.out.now_ns += HEARTBEAT_NS
        one.membership.detector.awake(one.out.now_ns)
        for info_ in heard:
            one.beat(info_)


@pytest.mark.rule("membership/V-6")
def test_the_operator_may_evict_silent_members_without_a_majority() -> None:
    """membership/V-6."""
    one = One(A, A, B, C, D, E)
    one.silence(C, D, E)
    one.membership.consider()
    assert not one.proposes, "two of five"
    assert one.membership.evictions.evict_without_majority({b, c, d}) == {b}, "of B something was heard"
    assert one.proposes, "two of three"
    told = EvictMembersWithoutMajority(5, [c, d])
    effects = one.out.take()
    assert [effect for effect in effects if isinstance(effect, Send) and effect.message == told] == [
        Send(b, told)
    ]
    notes = [effect for effect in effects if isinstance(effect, Note) and effect.kind.startswith("evicted")]
    assert notes == [
        Note("evicted by the operator, without a majority", {"member": name}, "warning")
        for name in ("name-c", "name-d")
    ]
    assert one.membership.evictions.evict_without_majority({c}) == set()
    assert one.noted("evicted by the operator, without a majority") == [], "once"
    assert One(A, A, B).membership.evictions.evict_without_majority({b}) == {b}


def test_no_member_is_notified_when_none_is_evicted() -> None:
    one = One(A, A, B, C)
    one.silence(C)
    one.membership.evictions.evict_without_majority({b})
    assert (one.out.effects, one.proposes) == ([], False)
    joining = One()
    assert joining.membership.evictions.evict_without_majority({b}) == {b}
    assert joining.out.effects == []
    joining.membership.evicted_without_majority = {b}
    assert joining.membership.evictions.evict_without_majority({b}) == {b}, "it is in no view"


def test_the_word_of_somebody_elses_operator_counts_in_this_view() -> None:
    one = One(A, A, B, C, D, E)
    one.silence(C, D, E)
    one.membership.evictions.on_evict_members_without_majority(EvictMembersWithoutMajority(4, [c, d]))
    one.membership.evictions.on_evict_members_without_majority(EvictMembersWithoutMajority(6, [c, d]))
    assert not one.proposes
    one.membership.evictions.on_evict_members_without_majority(EvictMembersWithoutMajority(5, [c, d]))
    assert one.proposes
    one.membership.install(view(A, B, C, D, E, number=6))
    assert not one.membership.may_decide(view(A, B, C, D, E), {a, b}), "it was for one view"
    one.membership.state = MembershipState.PARTING
    one.membership.evictions.on_evict_members_without_majority(EvictMembersWithoutMajority(6, [c, d]))
    assert one.membership.evicted_without_majority == set()
    joining = One()
    joining.membership.evictions.on_evict_members_without_majority(EvictMembersWithoutMajority(5, [c]))
    assert joining.membership.evicted_without_majority == set()


def test_who_is_heard_of_is_not_dead_whatever_was_said() -> None:
    one = One(A, A, B, C, D, E)
    one.membership.evictions.on_evict_members_without_majority(EvictMembersWithoutMajority(5, [c, d]))
    assert one.membership.may_decide(view(A, B, C, D, E), {b, e})
    one.beat(C)
    assert not one.membership.may_decide(view(A, B, C, D, E), {b, e})


@pytest.mark.rule("membership/V-9")
def test_an_operator_ends_the_wait_for_a_silent_member_and_nobodys_majority() -> None:
    """membership/V-9."""
    one = One(A, A, B, C)
    pass_beats(one, B)
    one.membership.consider()
    one.out.take()
    assert not one.proposes, "nobody was silent for long"
    assert one.membership.evictions.evict({b}) == {b}, "of B something was heard"
    assert not one.proposes
    assert one.membership.evictions.evict({c}) == set()
    assert one.proposes
    effects = one.out.take()
    told = [
        effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, EvictMembers)
    ]
    assert told == [Send(b, EvictMembers(5, [c]))]
    note = Note("evicted by the operator", {"member": "name-c"}, "warning")
    assert note in effects

    few = One(A, A, B, C)
    pass_beats(few)
    assert few.membership.evictions.evict({b, c}) == set()
    assert not few.proposes, "one of three is no majority, whatever an operator says"
    assert few.membership.evictions.evict({d}) == set(), "who is no member is no matter"
    joining = One()
    assert joining.membership.evictions.evict({b}) == set()
    assert joining.out.effects == []


@pytest.mark.rule("membership/V-9")
def test_who_still_hears_a_member_does_not_suspect_it_because_somebodys_operator_does() -> None:
    one = One(A, A, B, C)
    pass_beats(one, B, C)
    one.membership.evictions.on_evict_members(EvictMembers(5, [c]))
    assert one.membership.evicted == {}
    assert not one.proposes
    pass_beats(one, B)
    one.membership.evictions.on_evict_members(EvictMembers(4, [c]))
    assert not one.proposes, "that was said in another view"
    one.membership.evictions.on_evict_members(EvictMembers(5, [c]))
    assert one.proposes
    one.beat(C)
    assert one.membership.evicted == {}, "it lives"
    assert one.membership.wanted() is None


@pytest.mark.rule("membership/V-9")
def test_who_was_said_to_have_ended_is_told_so_when_it_asks_to_return() -> None:
    one = One(A, A, B, C)
    pass_beats(one, B)
    one.membership.evictions.evict({c})
    one.ask(C)
    assert [answer for _, answer in one.datagram_received(JoinAnswer) if answer.refusal] == [], (
        "it is still a member"
    )
    one.membership.install(view(A, B, number=6))
    one.ask(C)
    (answer,) = [answer for _, answer in one.datagram_received(JoinAnswer) if answer.asker == c]
    assert answer.evicted
    one.ask(D)
    assert not [answer for _, answer in one.datagram_received(JoinAnswer) if answer.asker == d], (
        "others may join"
    )

    exiled = One(C, A, B, C)
    exiled.membership.on_join_answer(home(A), answer)
    assert exiled.membership.state == "member", "it is in the view that it knows"
    exiled.membership.install(view(A, B, number=6))
    other = msgspec.structs.replace(answer, asker=d)
    exiled.membership.on_join_answer(home(A), other)
    assert exiled.membership.state == "exiled", "that was said to another process"
    exiled.membership.on_join_answer(home(A), answer)
    assert exiled.membership.state == "gone"
    (stop,) = exiled.done(Stop)
    assert stop.why == exiled.membership.refusal
    assert "this member was evicted by an operator" in stop.why


def test_only_so_many_are_remembered_of_whom_an_operator_has_seen_the_end() -> None:
    one = One(A, A, *(info(f"m{number}") for number in range(EVICTED_KEPT + 3)))
    pass_beats(one)
    for other in one.membership.members()[1:]:
        one.membership.evictions.evict({other.uuid})
    assert len(one.membership.evicted) == EVICTED_KEPT
    assert one.membership.members()[-1].uuid in one.membership.evicted


@pytest.mark.rule("membership/V-9")
def test_a_member_that_is_leaving_suspects_nobody_by_order() -> None:
    one = One(A, A, B, C)
    pass_beats(one, B)
    one.membership.state = MembershipState.PARTING
    one.membership.evictions.on_evict_members(EvictMembers(5, [c]))
    assert one.membership.evicted == {}


def test_a_repeated_eviction_is_logged_once() -> None:
    one = One(A, A, B, C)
    pass_beats(one, B)
    for _ in range(2):
        one.membership.evictions.evict({c})
    assert len(one.noted("evicted by the operator")) == 1


def crowd() -> One:
    """A member with more silent ones than it remembers."""
    one = One(A, A, *(info(f"m{number:02}") for number in range(EVICTED_KEPT + 3)))
    pass_beats(one)
    return one


def test_a_repeated_eviction_is_remembered_as_the_newest() -> None:
    one = crowd()
    first, *others = [each.uuid for each in one.membership.members()[1:]]
    for each in (first, *others[: EVICTED_KEPT - 1], first, others[EVICTED_KEPT]):
        one.membership.evictions.evict({each})
    assert len(one.membership.evicted) == EVICTED_KEPT
    assert first in one.membership.evicted
    assert others[0] not in one.membership.evicted


def test_evictions_without_a_majority_are_forgotten_alike() -> None:
    one = crowd()
    others = [each.uuid for each in one.membership.members()[1:]]
    one.membership.evictions.on_evict_members_without_majority(EvictMembersWithoutMajority(5, others))
    assert list(one.membership.evicted) == others[-EVICTED_KEPT:]
