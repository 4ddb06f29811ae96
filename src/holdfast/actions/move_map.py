"""Move a map to the other replication engine, or to another zone, while it is used."""

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


class MoveMap(OperatorAction, frozen=True):
    r"""Move a map into a zone, into another one, or with --no-zone out of zones, while it is used.

    It is copied in the background. Then requests on it wait, usually less than half a second, until all members use the
    new place. The place is kept through restarts, and wins over the setting raft_zone. Until the map is there, --cancel
    lets it stay where it is.

    \b
      holdfast map move orders --zone z
      holdfast map move orders --no-zone
    """

    declared = Declaration(
        "move-map",
        Action.CONFIGURE,
        "map move",
        "Move a map into a zone, or out of it, while it is used.",
        timeout_s=24 * 3600,
        repeat_s=1,
        at_timeout="After that the cluster continues with the move.",
    )

    name: Annotated[Name, Meta(description="The map.", extra={"argument": "NAME"})]
    zone: Annotated[Name, Meta(description="The zone to move it to.", extra={"metavar": "ZONE"})] = ""
    no_zone: Annotated[bool, Meta(description="Move it out of zones, to partitions with a primary.")] = False
    cancel: Annotated[bool, Meta(description="Cancel its move.")] = False

    def problem(self, partitions: int) -> str:
        if bool(self.zone) + self.no_zone + self.cancel != 1:
            return "say where the map moves: --zone ZONE or --no-zone; or --cancel"
        return ""

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        must_not_shut_down(view)
        from holdfast.config.loading import move_problem
        from holdfast.core.model.map_changes import targets

        changes = view.maps.changes
        if self.cancel:
            if changes.moves.get(self.name) is None:
                raise Refused(f"{self.name} is not being moved")
            return
        if self._order().is_in(changes) and self.name in changes.moves:
            return
        why = move_problem(targets(process.settings, changes), self.name, self.zone)
        if not why and self.zone:
            why = view.consensus.zones.homes.zone_problem(self.zone)
        if why:
            raise Refused(why)

    def _order(self) -> MapOrder:
        from holdfast.core.model.map_changes import MapOrder

        return MapOrder(self.name, to=None if self.cancel else self.zone, cancels=self.cancel)

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.map_orders.order(self._order())

    def waits_for(self, view: MemberView) -> str:
        from holdfast.core.model.map_moves import MovePhase

        must_not_shut_down(view)
        move = view.maps.changes.moves.get(self.name)
        if move is not None and move.phase is MovePhase.CANCELLING and not self.cancel:
            raise Refused(f"{self.name} stays where it is: {move.why or 'its move was cancelled'}")
        if not self._order().is_in(view.maps.changes):
            if why := view.maps.refusal_of(self._order(), view.now_ns):
                raise Refused(f"nothing was changed: {why}")
            return "not every member has accepted it" + silent_members(view)
        if move is not None:
            return view.maps.moves.described(self.name) + silent_members(view)
        return "" if view.known_by_all else "not every member has confirmed it" + silent_members(view)

    def done_text(self, view: MemberView) -> str:
        home = view.maps.home(self.name)
        return f"{self.name} lives in zone {home}" if home else f"{self.name} lives in no zone"
