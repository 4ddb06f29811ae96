"""Orders about the cluster go to the master, which accepts them for its view."""

from __future__ import annotations

from tests.core.membership.one_member import (
    A,
    B,
    C,
    One,
    a,
    b,
    info,
    view,
)

from holdfast.core.membership.membership_status import MembershipState
from holdfast.core.messages import BaselineWanted, LevelWanted, StateWanted
from holdfast.core.model.baseline import Baseline, BaselineMember
from holdfast.core.model.levels import FeatureLevels
from holdfast.core.model.views import ClusterState


def test_orders_for_the_cluster_go_to_the_master() -> None:
    one = One(B, A, B)
    one.membership.orders.set_state(ClusterState.FROZEN)
    assert one.sent(StateWanted) == [(a, StateWanted(5, ClusterState.FROZEN, False))]
    one.membership.orders.set_state(ClusterState.ACTIVE, ending=True)
    assert one.sent(StateWanted) == [(a, StateWanted(5, ClusterState.ACTIVE, True))]
    one.membership.state = MembershipState.PARTING
    one.membership.orders.set_state(ClusterState.FROZEN)
    joining = One()
    joining.membership.orders.set_state(ClusterState.FROZEN)
    assert one.out.effects == joining.out.effects == []


def test_the_master_takes_orders_of_this_view() -> None:
    one = One(A, A, B, C)
    one.membership.orders.on_state_wanted(b, StateWanted(4, ClusterState.FROZEN, False))
    assert not one.proposes
    one.membership.orders.on_state_wanted(b, StateWanted(5, ClusterState.FROZEN, False))
    assert one.proposes
    assert one.wanted().state is ClusterState.FROZEN
    one = One(A, A, B, C)
    one.membership.orders.on_state_wanted(b, StateWanted(6, ClusterState.FROZEN, False))
    assert one.proposes, "somebody knows a newer view already"
    for other in (One(B, A, B), One()):
        other.membership.orders.on_state_wanted(a, StateWanted(5, ClusterState.FROZEN, False))
        other.silence(A)
        assert not other.proposes
        assert other.membership.intents.wanted(view(A))[0] is ClusterState.ACTIVE


def test_an_ending_cluster_keeps_its_state() -> None:
    one = One(A)
    one.membership.install(view(A, B, ending=True))
    one.fresh()
    one.membership.orders.on_state_wanted(b, StateWanted(5, ClusterState.FROZEN, True))
    assert one.out.effects == [], "it ends already"
    one.membership.orders.on_state_wanted(b, StateWanted(5, ClusterState.FROZEN, False))
    assert one.noted("state change refused: the cluster is shutting down") == [
        {"wanted": ClusterState.FROZEN, "level": "warning"}
    ]
    assert one.membership.intents.wanted(view(A, ending=True)) == (ClusterState.ACTIVE, True)


def test_orders_about_baseline_and_level_go_to_the_master_of_the_view() -> None:
    one = One(B, A, B)
    one.membership.orders.set_baseline("point", ["name-a", "name-b"], 700)
    assert one.sent(BaselineWanted) == [(a, BaselineWanted(5, "point", ["name-a", "name-b"], 700))]
    one.membership.orders.set_level(3)
    assert one.sent(LevelWanted) == [(a, LevelWanted(5, 3))]
    leaving, joining = One(B, A, B), One()
    leaving.membership.state = MembershipState.PARTING
    for other in (leaving, joining):
        other.membership.orders.set_baseline("point", ["name-a"], 700)
        other.membership.orders.set_level(3)
        assert other.out.effects == [], "it is no member"


def test_only_the_master_of_a_cluster_that_stays_accepts_a_baseline_or_a_level() -> None:
    newer = FeatureLevels(1, 2)
    members = [info(name, levels=newer) for name in "abc"]
    owners = Baseline((BaselineMember("name-a"),), 700, 1, ("x",))
    wanted = BaselineWanted(5, "x", ["name-a", "name-b", "name-c"], 700)

    def member(who: int, **changed: bool) -> One:
        one = One(members[who])
        one.membership.install(view(*members, baseline=owners, **changed))
        one.fresh()
        return one

    one = member(0)
    one.membership.orders.on_baseline_wanted(wanted)
    assert one.proposes
    baseline = one.wanted().baseline
    assert baseline is not None
    assert baseline.ids == {"name-a", "name-b", "name-c"}
    one = member(0)
    one.membership.orders.on_level_wanted(LevelWanted(5, 2))
    assert one.proposes
    assert one.wanted().level == 2
    for other in (member(1), member(0, ending=True), One(A)):
        other.membership.orders.on_baseline_wanted(wanted)
        other.membership.orders.on_level_wanted(LevelWanted(5, 2))
        assert not other.proposes
        intents = other.membership.intents
        assert (intents.baseline_order(other.out.now_ns), intents.level_order(other.out.now_ns)) == (None, 1)
