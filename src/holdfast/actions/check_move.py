"""Check whether a map could be moved to the other replication engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from holdfast.actions.operator_action import Declaration, MachineQuery, Name, Target
from holdfast.config.permissions import Action

if TYPE_CHECKING:
    from holdfast.core.member import Member


class MoveCheck(msgspec.Struct, frozen=True):
    """The answer of one member."""

    home: Annotated[str, Meta(description="the zone in which the map lives; empty: in none")]
    rejection: Annotated[str, Meta(description="why it would reject the move; empty: it would not")]


class CheckMove(MachineQuery, frozen=True):
    """Check whether a member would reject the move of a map into a zone, or without one out of zones."""

    declared = Declaration("check-move", Action.STATUS, target=Target.EACH, timeout_s=5)
    result = MoveCheck

    name: Annotated[Name, Meta(description="The map.")]
    zone: Annotated[Name, Meta(description="The zone; empty: out of zones.")] = ""

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        from holdfast.core.model.map_changes import MapOrder

        view = member.picture
        why = member.membership.map_orders.rejection(MapOrder(self.name, to=self.zone))
        if not why and self.zone:
            why = view.consensus.zones.homes.zone_problem(self.zone)
        reply(MoveCheck(view.maps.home(self.name), why))
