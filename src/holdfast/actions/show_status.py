"""Show the status of a member, and of the cluster as it knows it."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import Declaration, OperatorQuery, Target
from holdfast.config.permissions import Action
from holdfast.core.model.member_status import MemberStatus


class ShowStatus(OperatorQuery, frozen=True):
    r"""Show members, master, partitions, entries, migrations and safety.

    The command discovers all members from those that -a names. With --watch it switches to another member when one
    goes away. Operations per second count writes only.

    \b
      holdfast status
      holdfast status --watch -a 10.0.0.1:5701,10.0.0.2:5701
    """

    declared = Declaration(
        "status",
        Action.STATUS,
        "status",
        "Show members, master, partitions, entries, migrations and safety.",
        target=Target.EACH,
        timeout_s=5,
    )
    result = MemberStatus

    def ask(self, process: MemberProcess, reply: Callable[[MemberStatus], None]) -> None:
        process.status(reply)
