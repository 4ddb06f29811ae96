"""Orders about the cluster go to the master, which accepts them for its view."""

from __future__ import annotations

from tests.core.membership.one_member import (
    A,
    B,
    C,
    One,
    a,
    b,
    view,
)

from holdfast.core.membership.membership_status import MembershipState
from holdfast.core.messages import StateWanted
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
