"""What members and operators want, and until when it counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.membership.one_member import A, B, C, D, a, b, c, d, view

from holdfast.core.effects import Send
from holdfast.core.membership.desired_state import DesiredState
from holdfast.core.messages import BaselineWanted, Heartbeat, StateWanted
from holdfast.core.model.baseline import Baseline, BaselineMember
from holdfast.core.model.ids import SECOND
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, Room, View
from holdfast.core.outbox import Outbox

ACTIVE, FROZEN, PASSIVE = ClusterState.ACTIVE, ClusterState.FROZEN, ClusterState.PASSIVE


class Wanting:
    """What one member knows of wishes, in view 5 unless another one comes."""

    def __init__(self, me: MemberInfo = A) -> None:
        self.me = me
        self.out = Outbox()
        self.intents = DesiredState(me.uuid, self.out)

    def beat(self, who: MemberInfo, number: int = 5, **said: Any) -> None:
        beat = msgspec.structs.replace(Heartbeat(who.uuid, who.life, number), **said)
        self.intents.heard(beat, 5)

    def install(self, *members: MemberInfo, **changed: Any) -> None:
        mine = next(info for info in members if info.uuid == self.me.uuid)
        self.intents.installed(view(*members, **changed), mine)

    def sent(self) -> list[tuple[str, object]]:
        return [(effect.to, effect.message) for effect in self.out.take() if isinstance(effect, Send)]


# -- wishes of members


def test_a_member_wants_one_thing_at_a_time_and_says_which_is_newer() -> None:
    one = Wanting().intents
    assert (one.mine, one.number, one.of(a)) == (Intent.NONE, 0, Intent.NONE)
    one.set_intent(Intent.LITE)
    assert (one.mine, one.number, one.of(a)) == (Intent.LITE, 1, Intent.LITE)
    one.set_intent(Intent.DATA)
    assert (one.mine, one.number, one.of(a)) == (Intent.DATA, 2, Intent.DATA)
    one.set_intent(Intent.LEAVE)
    one.set_intent(Intent.DATA)
    assert (one.mine, one.number, one.of(a)) == (Intent.LEAVE, 3, Intent.LEAVE), "who leaves keeps to it"


def test_of_the_wishes_of_others_the_newest_counts() -> None:
    one = Wanting()
    one.beat(B, wish=Intent.LITE, wish_number=2)
    assert (one.intents.of(b), one.intents.of(c)) == (Intent.LITE, Intent.NONE)
    one.beat(B, wish=Intent.DATA, wish_number=1)
    one.beat(B, wish=Intent.DATA, wish_number=2)
    assert one.intents.of(b) is Intent.LITE, "heartbeats may arrive out of order"
    one.beat(B, wish=Intent.LEAVE, wish_number=3)
    assert one.intents.of(b) is Intent.LEAVE
    assert one.intents.leaving(view(A, B, C)) == [b]
    assert one.intents.leaving(view(A, C)) == []


def test_only_who_has_this_view_says_that_it_is_safe() -> None:
    one = Wanting()
    assert one.intents.heard_from == {a}
    one.beat(B, 4, safe=True)
    one.beat(C, 6, safe=True)
    assert (one.intents.heard_from, one.intents.safe) == ({a}, set())
    one.beat(B, safe=True)
    one.beat(C)
    assert (one.intents.heard_from, one.intents.safe) == ({a, b, c}, {b})
    one.beat(B, safe=False)
    assert one.intents.safe == set(), "it has taken that back"
    one.intents.note_safe(c, safe=True)
    one.intents.note_safe(c, safe=False)
    assert one.intents.safe == set()


def test_who_has_room_is_known_from_any_heartbeat() -> None:
    one = Wanting()
    rooms = [room for room in Room if room is not Room.PLENTY]
    one.beat(B, 4, full=True, room=rooms[0])
    assert (one.intents.full, one.intents.short) == ({b}, {b: rooms[0]})
    one.beat(B, 4, full=True, room=rooms[-1])
    assert (one.intents.full, one.intents.short) == ({b}, {b: rooms[-1]})
    one.beat(B, 4, full=False, room=Room.PLENTY)
    one.beat(C, 4, full=False, room=Room.PLENTY)
    assert (one.intents.full, one.intents.short) == (set(), {})


def owned_by(*who: MemberInfo) -> Baseline:
    return Baseline(tuple(BaselineMember(info.consistent_id) for info in who), history=("x",))


@pytest.mark.parametrize(
    ("wishes", "members", "baseline", "departing"),
    [
        ({}, "abc", None, ""),
        ({"b": Intent.LEAVE}, "abc", None, "b"),
        ({"b": Intent.LITE}, "abc", None, "b"),
        ({"b": Intent.LITE, "c": Intent.LEAVE}, "abc", None, "bc"),
        # Somebody has to hold the data.
        ({"a": Intent.LITE, "b": Intent.LITE, "c": Intent.LITE}, "abc", None, ""),
        ({"a": Intent.LITE, "b": Intent.LITE, "c": Intent.LEAVE}, "abc", None, "c"),
        ({"a": Intent.LEAVE, "b": Intent.LEAVE, "c": Intent.LEAVE}, "abc", None, "abc"),
        ({"b": Intent.DATA}, "abc", None, ""),
        # Lite ones, and those outside of the baseline, hold nothing to begin with.
        ({"L": Intent.LITE, "b": Intent.LITE}, "bL", None, ""),
        ({"c": Intent.LITE}, "abc", "ab", ""),
        ({"a": Intent.LITE, "b": Intent.LITE}, "abc", "ab", ""),
        ({"a": Intent.LITE}, "abc", "ab", "a"),
    ],
)
def test_who_shall_hold_nothing_any_more(
    wishes: dict[str, Intent], members: str, baseline: str | None, departing: str
) -> None:
    lite = msgspec.structs.replace(D, lite=True)
    everybody = {"a": A, "b": B, "c": C, "L": lite}
    one = Wanting()
    for name, wish in wishes.items():
        one.beat(everybody[name], wish=wish, wish_number=1)
    owning = owned_by(*(everybody[name] for name in baseline)) if baseline else None
    there = view(*(everybody[name] for name in members), baseline=owning)
    assert one.intents.departing(there) == {everybody[name].uuid for name in departing}


@pytest.mark.parametrize("lite", [False, True])
@pytest.mark.parametrize("wish", list(Intent))
def test_a_member_as_it_wants_to_be(wish: Intent, lite: bool) -> None:
    one = Wanting()
    info = msgspec.structs.replace(B, lite=lite)
    one.beat(B, wish=wish, wish_number=1)
    wanted = {Intent.LITE: True, Intent.DATA: False}.get(wish, lite)
    assert one.intents.wished(info) == msgspec.structs.replace(B, lite=wanted)


# -- orders of the operator


@pytest.mark.parametrize(
    ("state", "ending", "now", "now_ending", "fulfilled"),
    [
        (FROZEN, False, FROZEN, False, True),
        (FROZEN, False, ACTIVE, False, False),
        (FROZEN, False, FROZEN, True, True),
        (PASSIVE, True, PASSIVE, False, False),
        (PASSIVE, True, PASSIVE, True, True),
        (ACTIVE, True, PASSIVE, True, False),
    ],
)
def test_an_order_is_said_again_to_each_new_master_until_it_is_so(
    state: ClusterState, ending: bool, now: ClusterState, now_ending: bool, fulfilled: bool
) -> None:
    one = Wanting(C)
    one.intents.order(view(A, B, C), state, ending=ending)
    assert one.sent() == [(a, StateWanted(5, state, ending))]
    one.install(B, C, number=6, state=now, ending=now_ending)
    again = [] if fulfilled else [(b, StateWanted(6, state, ending))]
    assert one.sent() == again
    one.install(B, C, number=7)
    assert one.sent() == ([] if fulfilled else [(b, StateWanted(7, state, ending))]), "carried out it is over"


def test_an_order_for_what_is_so_already_is_said_once() -> None:
    """The master may have taken another one since, that it could not carry out so far."""
    one = Wanting(B)
    one.intents.order(view(A, B), ACTIVE, ending=False)
    assert one.sent() == [(a, StateWanted(5, ACTIVE, False))]
    one.install(A, B, number=6, state=FROZEN)
    assert one.sent() == []


def test_a_removed_member_orders_nothing_any_more() -> None:
    one = Wanting(B)
    one.intents.order(view(A, B), FROZEN, ending=False)
    one.out.take()
    one.intents.exiled()
    one.install(A, B, number=6)
    assert one.sent() == []


def wanted(one: Wanting, there: View | None = None) -> tuple[ClusterState, bool]:
    return one.intents.wanted(there or view(A, B))


def test_the_master_carries_out_the_newest_order() -> None:
    one = Wanting()
    assert wanted(one) == (ACTIVE, False)
    assert wanted(one, view(A, B, state=PASSIVE, ending=True)) == (PASSIVE, True)
    one.intents.ordered(StateWanted(5, FROZEN, False))
    one.intents.ordered(StateWanted(5, PASSIVE, True))
    assert wanted(one) == (PASSIVE, True)
    one.install(A, B, number=6)
    assert wanted(one) == (PASSIVE, True), "it is not so yet"
    one.install(A, B, number=7, state=PASSIVE, ending=True)
    assert wanted(one) == (ACTIVE, False), "it was carried out"


def test_an_order_that_is_half_carried_out_stands() -> None:
    one = Wanting()
    one.intents.ordered(StateWanted(5, PASSIVE, True))
    one.install(A, B, number=6, state=PASSIVE)
    assert wanted(one) == (PASSIVE, True)


def test_who_is_master_no_more_carries_out_nothing() -> None:
    one = Wanting(B)
    one.intents.ordered(StateWanted(5, FROZEN, False))
    one.install(B, A, number=6)
    assert wanted(one) == (FROZEN, False)
    one.install(A, B, number=7)
    assert wanted(one) == (ACTIVE, False)


def test_orders_about_the_baseline_and_the_level_count_for_three_seconds() -> None:
    one = Wanting().intents
    assert one.baseline_order(0) is None
    assert one.level_order(0) == LOWEST
    now_ns = 100 * SECOND
    order = BaselineWanted(5, "point", ("x",), -1)
    one.order_baseline(order, now_ns)
    one.order_level(7, now_ns)
    for later_ns, counts in ((0, True), (3 * SECOND, True), (3 * SECOND + 1, False), (0, False)):
        assert one.baseline_order(now_ns + later_ns) == (order if counts else None)
        assert one.level_order(now_ns + later_ns) == (7 if counts else LOWEST)


@pytest.mark.parametrize("master", [True, False])
def test_only_the_master_keeps_them_over_a_change_of_the_view(master: bool) -> None:
    one = Wanting()
    order = BaselineWanted(5, "point", ("x",), -1)
    one.intents.order_baseline(order, 0)
    one.intents.order_level(7, 0)
    one.install(*((A, B) if master else (B, A)), number=6)
    assert one.intents.baseline_order(0) == (order if master else None)
    assert one.intents.level_order(0) == (7 if master else LOWEST)


# -- a new view


def test_with_a_new_view_those_who_have_gone_are_forgotten() -> None:
    one = Wanting()
    short = next(room for room in Room if room is not Room.PLENTY)
    for who in (B, C):
        one.beat(who, safe=True, full=True, room=short, wish=Intent.LITE, wish_number=3)
    assert one.intents.noted == {b, c}
    one.install(A, B, number=6)
    assert one.intents.noted == {b}
    assert (one.intents.of(b), one.intents.of(c)) == (Intent.LITE, Intent.NONE)
    assert (one.intents.safe, one.intents.full, one.intents.short) == (set(), {b}, {b: short})
    assert one.intents.heard_from == {a}, "nobody else has said that it has it"


def test_each_thing_that_is_remembered_of_a_member_is_noted() -> None:
    one = Wanting().intents
    one.note_safe(b, safe=True)
    one.note_full(c, full=True)
    one.note_room(d, next(room for room in Room if room is not Room.PLENTY))
    one.set_intent(Intent.LITE)
    assert one.noted == {a, b, c, d}


@pytest.mark.parametrize(
    ("wish", "lite", "stays"),
    [
        (Intent.LITE, True, False),
        (Intent.LITE, False, True),
        (Intent.DATA, False, False),
        (Intent.DATA, True, True),
        (Intent.LEAVE, False, True),
        (Intent.LEAVE, True, True),
    ],
)
def test_a_wish_that_has_come_true_is_none_any_more(wish: Intent, lite: bool, stays: bool) -> None:
    one = Wanting()
    one.intents.set_intent(wish)
    mine = msgspec.structs.replace(A, lite=lite)
    one.install(mine, B, number=6)
    assert one.intents.mine is (wish if stays else Intent.NONE)
    assert one.intents.of(a) is one.intents.mine
    assert one.intents.number == (1 if stays else 2)


def test_a_wish_of_before_it_was_removed_is_remembered_when_it_is_back() -> None:
    one = Wanting()
    one.intents.set_intent(Intent.LEAVE)
    one.intents._of.clear()
    one.install(A, B, number=6)
    assert one.intents.leaving(view(A, B)) == [a]
    none = Wanting()
    none.install(A, B, number=6)
    assert none.intents.noted == set(), "who wants nothing has said nothing"


def test_all_leave_a_cluster_that_ends() -> None:
    one = Wanting(B)
    one.install(A, B, number=6, ending=True)
    assert one.intents.mine is Intent.LEAVE
    assert one.intents.of(b) is Intent.LEAVE
    other = Wanting(B)
    other.install(A, B, number=6)
    assert other.intents.mine is Intent.NONE
