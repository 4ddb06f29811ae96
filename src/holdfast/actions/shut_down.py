"""Shut the whole cluster down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    Declaration,
    OperatorAction,
    Target,
    must_be_member,
)
from holdfast.config.permissions import Action
from holdfast.core.model.views import ClusterState

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.model.member_status import MemberStatus


class ShutDown(OperatorAction, frozen=True):
    r"""Shut the whole cluster down: it stops accepting writes, and then every member leaves.

    Journalled maps are in the members' files, and return when all members are started. All other maps are in memory
    only, and are gone.

    \b
      holdfast cluster shutdown --yes
    """

    declared = Declaration(
        "shutdown",
        Action.SHUTDOWN,
        "cluster shutdown",
        "Shut all members down. Data in memory only is gone.",
        target=Target.EACH,
        timeout_s=120,
        ends_member=True,
        partial="still there",
    )

    def question(self, seen: MemberStatus) -> str:
        gone = "Their data is only in memory, and is lost then"
        if seen.files:
            gone = "Journalled maps remain in their files; all other maps are lost then"
        return f"End all {len(seen.members)} members of cluster {seen.cluster!r}? {gone}"

    def check(self, view: MemberView, process: MemberProcess) -> None:
        if not view.ending:
            must_be_member(view)

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        if not member.membership.ending:
            member.membership.orders.set_state(ClusterState.PASSIVE, ending=True)

    def waits_for(self, view: MemberView) -> str:
        return view.leave_blocker() or "the other members have not agreed yet that it may leave"

    def done_text(self, view: MemberView) -> str:
        return "has ended"
