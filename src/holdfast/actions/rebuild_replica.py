"""Replace the state of a replica of a zone by its leader's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.operator_action import AnsweredAction, Declaration, Partition, Target
from holdfast.config.permissions import Action
from holdfast.core.model.ids import group_of
from holdfast.errors import NotReady

if TYPE_CHECKING:
    from holdfast.core.member import Member


class RebuildReplica(AnsweredAction, frozen=True):
    """Replace the state of a replica on the member that gets this action by the leader's. Done when that is requested;
    the member repeats the request until it has the state.

    A leader transfers its leadership instead, and rejects the action: repeat it.
    """

    declared = Declaration("rebuild-replica", Action.REPAIR, target=Target.MEMBERS, timeout_s=15)

    zone: Annotated[int, Meta(ge=1, le=1 << 40, description="The number of the zone.")]
    partition: Annotated[Partition, Meta(description="The partition of the zone.")]

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        if (advised := member.agreed.advised(reply)) is not None:
            reason = member.agreed.groups.rebuilds.begin(group_of(self.zone, self.partition))
            advised(NotReady(reason) if reason else None)

    def answer_text(self, answer: None) -> str:
        return "the leader's state was requested"
