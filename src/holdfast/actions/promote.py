"""Turn a lite member into a data member."""

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


class Promote(OperatorAction, frozen=True):
    r"""Turn lite members into data members. They receive their share of the partitions afterwards: see `holdfast
    cluster watch`.

    \b
      holdfast member promote 127.0.0.1:5702
    """

    declared = Declaration(
        "promote",
        Action.DATA,
        "member promote",
        "Turn a lite member into a data member.",
        target=Target.MEMBERS,
        partial="still a lite member",
    )

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_not_leave(view)
        settings = process.settings
        journalled = [
            f"maps.{name}.journal" for name, chosen in settings.maps.items() if chosen.journal != "off"
        ]
        journalled += [
            f"service {name}: journal" for name, one in settings.services.items() if one.journal != "off"
        ]
        if journalled and not process.has_files:
            raise Refused(
                f"{journalled[0]} is set, and this member has no files open: start it as a data member, "
                "with a persistence.directory"
            )

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.set_intent(Intent.DATA)

    def waits_for(self, view: MemberView) -> str:
        return "it is still a lite member" + silent_members(view) if view.info.lite else ""

    def done_text(self, view: MemberView) -> str:
        return "may hold partitions now"
