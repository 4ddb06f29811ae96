"""Show zones, their partitions and their leaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.operator_action import ANSWER_S, Declaration, MachineQuery, Needed, Target
from holdfast.config.permissions import Action, Kind
from holdfast.core.model.zone_answers import KnownLeaders, ZoneDetails, ZoneList

if TYPE_CHECKING:
    from holdfast.core.member import Member


class ListZones(MachineQuery, frozen=True):
    r"""List all zones with their settings, and how many of their partitions lack a leader or a replica, or move.

    \b
      holdfast zone list
    """

    declared = Declaration(
        "zones", Action.SHOW, "zone list", "List zones.", timeout_s=ANSWER_S, kind=Kind.ZONE
    )
    result = ZoneList

    def needs(self) -> list[Needed]:
        return [Needed(Action.SHOW, Kind.ZONE, every=True)]

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        if (advised := member.agreed.advised(reply)) is not None:
            member.agreed.zone_orders.list_zones(advised)


class ShowZone(MachineQuery, frozen=True):
    r"""Show the settings of the zone NAME, and for each partition its leader, its current replicas (stable), those
    that it is changing to (pending) and those after that (planned), the last index of the leader's log, and how many
    entries each follower lacks.

    \b
      holdfast zone show orders
    """

    declared = Declaration(
        "show-zone",
        Action.SHOW,
        "zone show",
        "Show the leader, replicas and moves of each partition of a zone.",
        timeout_s=ANSWER_S,
        kind=Kind.ZONE,
    )
    result = ZoneDetails

    name: Annotated[str, Meta(max_length=256), Meta(description="The zone.", extra={"argument": "NAME"})]

    def needs(self) -> list[Needed]:
        return [Needed(Action.SHOW, Kind.ZONE, self.name)]

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        if (advised := member.agreed.advised(reply)) is not None:
            member.agreed.zone_orders.show(self.name, advised)


class ShowLeaders(MachineQuery, frozen=True):
    """Show the leader of each partition of all zones, as far as the member knows, and its replicas with trouble."""

    declared = Declaration("zone-leaders", Action.VERIFY, target=Target.EACH, timeout_s=5)
    result = KnownLeaders

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        if (advised := member.agreed.advised(reply)) is not None:
            advised(member.agreed.zone_leaders())
