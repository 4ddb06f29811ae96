"""Give a map the settings of the configuration again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    Declaration,
    Name,
    OperatorAction,
    must_be_member,
    must_not_shut_down,
    silent_members,
)
from holdfast.config.permissions import Action
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.model.map_changes import MapOrder


class ResetMap(OperatorAction, frozen=True):
    r"""Give a map the settings of the configuration files again, on all members or on none: undo `holdfast map set`.

    NAME is a map, or default. A map without settings of its own in the files follows default again. Every member must
    have the same settings for the map in its configuration. A map that was moved into a zone stays there. Copies are
    made or dropped while the map is used; the command returns when that is complete.

    \b
      holdfast map reset flights
    """

    declared = Declaration(
        "reset-map",
        Action.CONFIGURE,
        "map reset",
        "Give a map the settings of the configuration files again.",
        timeout_s=600,
        repeat_s=1,
        at_timeout="After that the cluster continues with the change if all members have accepted it.",
    )

    name: Annotated[Name, Meta(description="The map, or `default`.", extra={"argument": "NAME"})]

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        must_not_shut_down(view)

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.map_orders.order(self._order())

    def _order(self) -> MapOrder:
        from holdfast.core.model.map_changes import MapOrder

        return MapOrder(self.name, resets=True)

    def waits_for(self, view: MemberView) -> str:
        must_not_shut_down(view)
        change = view.maps.changes.find(self.name)
        if not self._order().is_in(view.maps.changes):
            if why := view.maps.refusal_of(self._order(), view.now_ns):
                raise Refused(f"nothing was changed: {why}")
            return "not every member has accepted it" + silent_members(view)
        if change is not None and change.values:
            return (
                f"copies of {self.name} are being made or dropped: {view.cluster_unsafe_reason() or 'wait'}"
            )
        return "" if view.known_by_all else "not every member has confirmed it" + silent_members(view)

    def done_text(self, view: MemberView) -> str:
        return f"{self.name} has the settings of the configuration"
