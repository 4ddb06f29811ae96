"""Set the state of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    Declaration,
    OperatorAction,
    must_be_member,
    must_not_shut_down,
    silent_members,
)
from holdfast.config.permissions import Action
from holdfast.core.model.views import ClusterState

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView


class SetState(OperatorAction, frozen=True):
    r"""Show the state of the cluster, or change it. Returns when every member has adopted it.

    \b
      active         everything is allowed
      no-migration   no rebalancing and no restoring of lost copies; backups are still promoted
      frozen         also no promotions, and no new members; for restarts
      passive        also no writes

    \b
      holdfast cluster state frozen -a 127.0.0.1:5702
    """

    declared = Declaration("state", Action.STATE, "cluster state", "Show or change the state of the cluster.")

    state: Annotated[ClusterState, Meta(description="The state to set.", extra={"argument": "STATE"})]

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        must_not_shut_down(view)

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.orders.set_state(self.state)

    def waits_for(self, view: MemberView) -> str:
        must_not_shut_down(view)
        if view.cluster_state is not self.state:
            return f"the cluster is {view.cluster_state}" + silent_members(view)
        if not view.known_by_all:
            return "not every member has confirmed it; " + (view.silence_problem() or "wait")
        return ""

    def done_text(self, view: MemberView) -> str:
        return f"the cluster is {self.state}"
