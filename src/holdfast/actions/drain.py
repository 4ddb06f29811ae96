"""Let a member leave when its data is safe elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import Declaration, OperatorAction, Target
from holdfast.config.permissions import Action

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.model.member_status import MemberStatus


class Drain(OperatorAction, frozen=True):
    r"""Drain members: each leaves the cluster as soon as all its data is safe on others, and its process ends.

    Several members leave in parallel. A zone that is left with fewer members than its number of replicas keeps fewer
    replicas and survives fewer crashes; the command warns about it.

    \b
      holdfast member drain three
      holdfast member drain 127.0.0.1:5703 127.0.0.1:5704 --timeout 1min
    """

    declared = Declaration(
        "drain",
        Action.DRAIN,
        "member drain",
        "Remove members as soon as their data is safe elsewhere.",
        target=Target.MEMBERS,
        timeout_s=600,
        ends_member=True,
    )

    def warnings(self, seen: Sequence[MemberStatus]) -> Iterator[str]:
        """Zones that will have too few replicas when these members have left."""
        leaving = {status.name for status in seen}
        zones = {zone.name: zone for status in seen for zone in status.zones}
        for name, zone in sorted(zones.items()):
            before, wanted = set(zone.eligible_members), int(zone.settings["replicas"])
            left = len(before - leaving)
            if not left and before:
                yield (
                    f"no other member may hold replicas of zone {name}: the last one that may cannot leave. Start "
                    f"another such member, or alter the zone (holdfast zone alter {name} --filter ...)"
                )
            elif left < min(wanted, len(before)):
                yield (
                    f"zone {name} is configured for {wanted} replicas, and only {left} members that may hold them "
                    f"stay: it continues with {left} replicas, and survives fewer crashes"
                )

    def check(self, view: MemberView, process: MemberProcess) -> None:
        """A member may leave in any state."""

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.leave()

    def waits_for(self, view: MemberView) -> str:
        return view.leave_blocker() or "the other members have not agreed yet that it may leave"

    def done_text(self, view: MemberView) -> str:
        return "has left"
