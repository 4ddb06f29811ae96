"""Show the supervisor of a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.actions.operator_action import Declaration, OperatorQuery, Target
from holdfast.config.permissions import Action
from holdfast.core.model.result_columns import column

if TYPE_CHECKING:
    from holdfast.actions.member_process import MemberProcess


class Supervisor(msgspec.Struct, frozen=True):
    """The supervisor of a member."""

    supervisor: Annotated[
        str, column("supervisor", about="systemd, kubernetes, holdfast (start --members), or empty: nothing")
    ]


class Supervision(OperatorQuery, frozen=True):
    """Show the supervisor of a member, which starts its process again when it ends."""

    declared = Declaration("supervision", Action.STATUS, target=Target.EACH, timeout_s=5)
    result = Supervisor

    def answer(self, process: MemberProcess) -> Supervisor:
        return Supervisor(process.supervisor)
