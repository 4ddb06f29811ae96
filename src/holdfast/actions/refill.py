"""Fill a backup again from its primary."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.operator_action import AnsweredAction, Declaration, Name, Partition, Target
from holdfast.config.permissions import Action
from holdfast.core.model.ids import MemberId
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member import Member


class Refill(AnsweredAction, frozen=True):
    """Fill a backup of a partition again from its primary, the member that gets this action."""

    declared = Declaration("refill", Action.REPAIR, target=Target.MEMBERS, timeout_s=600)

    partition: Annotated[Partition, Meta(description="The partition.")]
    member: Annotated[Name, Meta(description="The UUID of the backup.")]

    def problem(self, partitions: int) -> str:
        return "" if self.partition < partitions else f"partitions are 0 to {partitions - 1}"

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        def done(reason: str) -> None:
            reply(Refused(reason) if reason else None)

        member.source.refill(self.partition, MemberId(self.member), done)

    def unfinished_reason(self) -> str:
        return f"the copy of partition {self.partition} on {self.member} is being filled"
