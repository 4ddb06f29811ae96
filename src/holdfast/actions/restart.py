"""Let a member leave, so that its supervisor starts it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.actions.operator_action import Declaration, OperatorAction, Target, must_not_leave
from holdfast.config.permissions import Action
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.actions.member_process import MemberProcess
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView


class Restart(OperatorAction, frozen=True):
    """Let a member leave as soon as all its data is safe on others, and end its process with status 75, after which its
    supervisor starts it again. `holdfast cluster restart` does so with one member after the other.
    """

    declared = Declaration("restart", Action.RESTART, target=Target.MEMBERS, timeout_s=600, ends_member=True)

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_not_leave(view)
        if not process.supervisor:
            raise Refused(
                "no supervisor would start this member again: it runs neither under systemd, nor in Kubernetes, nor "
                "under holdfast start --members. Drain it (holdfast member drain), and start it"
            )
        if [info.uuid for info in view.data_members()] == [view.info.uuid]:
            raise Refused("this is the last data member: its data would be lost")

    def begin(self, process: MemberProcess) -> None:
        process.restart_at_end()

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.leave()

    def waits_for(self, view: MemberView) -> str:
        return view.leave_blocker() or "the other members have not agreed yet that it may leave"

    def done_text(self, view: MemberView) -> str:
        return "has left"
