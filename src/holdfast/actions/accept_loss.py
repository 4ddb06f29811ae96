"""Give up missing members and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import Declaration, OperatorAction, must_be_member
from holdfast.config.permissions import Action
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.model.member_status import MemberStatus


class AcceptLoss(OperatorAction, frozen=True):
    r"""Stop waiting for members whose files may hold acknowledged writes, and for damaged files.

    After a full stop of the cluster, partitions wait until all its last members are back; a partition that has lost
    every copy waits for one of them. This command continues with the copies that are here, and with an empty
    partition where there is none. `holdfast cluster safe` shows what the cluster waits for.

    \b
      holdfast cluster accept-loss --yes
    """

    declared = Declaration(
        "accept-loss",
        Action.ACCEPT_LOSS,
        "cluster accept-loss",
        "Stop waiting for missing copies. Their data is lost.",
        repeat_s=1,
    )

    def question(self, seen: MemberStatus) -> str:
        return f"Continue without the missing copies ({seen.unsafe_reason})? Acknowledged writes may be lost"

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        if rejection := view.accept_loss_rejection():
            raise Refused(rejection)

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.accept_loss()

    def waits_for(self, view: MemberView) -> str:
        return view.unserved_reason()

    def done_text(self, view: MemberView) -> str:
        return "every partition has an owner"
