"""Turn a data member into a lite member."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    Declaration,
    OperatorAction,
    Target,
    must_not_leave,
    silent_members,
)
from holdfast.config.permissions import Action
from holdfast.core.model.views import Intent
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView


class Demote(OperatorAction, frozen=True):
    r"""Turn data members into lite members as soon as their partitions are safe elsewhere. They still serve clients,
    and hold no data.

    The last data member cannot be demoted.

    \b
      holdfast member demote 127.0.0.1:5702
    """

    declared = Declaration(
        "demote",
        Action.LITE,
        "member demote",
        "Turn a data member into a lite member.",
        target=Target.MEMBERS,
        timeout_s=600,
        withdrawn=True,
        at_timeout="After that the demotion is cancelled.",
    )

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_not_leave(view)
        if [info.uuid for info in view.data_members()] == [view.info.uuid]:
            raise Refused("this is the last data member: without it no member would hold the partitions")

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.set_intent(Intent.LITE)

    def waits_for(self, view: MemberView) -> str:
        if view.info.lite:
            return ""
        left = sum(1 for row in view.assignments if view.info.uuid in row.replicas)
        state = view.cluster_state
        reason = (
            f"{left} partition replicas are still here" if left else "the other members have not agreed yet"
        )
        if not state.migrates:
            reason += f"; the cluster is {state}: set the state to active to move them"
        return reason + silent_members(view)

    def withdraw(self, member: Member) -> None:
        member.membership.set_intent(Intent.NONE)

    def done_text(self, view: MemberView) -> str:
        return "is a lite member"
