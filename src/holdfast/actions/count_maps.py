"""Count the maps of a member."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import Declaration, OperatorQuery, Target
from holdfast.config.permissions import Action
from holdfast.core.model.member_status import MemberCount


class CountMaps(OperatorQuery, frozen=True):
    """Count entries, bytes, updates and reads of each map at one member."""

    declared = Declaration("maps", Action.STATUS, target=Target.EACH, timeout_s=5)
    result = MemberCount

    def ask(self, process: MemberProcess, reply: Callable[[MemberCount], None]) -> None:
        process.count_maps(reply)
