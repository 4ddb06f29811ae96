"""Make lost partitions available again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    Declaration,
    Listed,
    Name,
    OperatorAction,
    Partition,
    must_be_member,
)
from holdfast.config.permissions import Action
from holdfast.config.schema import DEFAULT_MAP
from holdfast.core.partition_table.event_log import ranges_of
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.model.member_status import MemberStatus


class ResetLost(OperatorAction, frozen=True):
    r"""Make lost partitions available again to maps with a loss policy. `holdfast status` lists them.

    The maps continue with the data that members have brought back, or empty if the loss was accepted. A partition
    without any copy is not reset: start its members, or run accept-loss first.

    \b
      holdfast cluster reset-lost --map flights --partitions 3,7-12
    """

    declared = Declaration(
        "reset-lost",
        Action.RESET_LOST,
        "cluster reset-lost",
        "Make lost partitions available again, with the data that is left.",
        repeat_s=1,
        withdrawn=True,
        at_timeout="Partitions that are not reset by then stay lost.",
    )

    partitions: Annotated[
        Listed[Partition] | None,
        Meta(
            description="Only these, such as 3,7-12. Default: all that are lost.",
            extra={"metavar": "LIST", "reads": "partitions"},
        ),
    ] = None
    maps: Annotated[
        Listed[Name],
        Meta(
            description="Only for this map, by its configured name; may be repeated. Default: all maps.",
            extra={"option": "--map", "metavar": "NAME"},
        ),
    ] = []

    def problem(self, partitions: int) -> str:
        named = self.partitions or []
        if any(partition >= partitions for partition in named):
            return f"partitions are 0 to {partitions - 1}"
        return "" if len(set(named)) == len(named) else "a partition is named once"

    def question(self, seen: MemberStatus) -> str:
        return "Make lost partitions available again? Clients will not notice which entries are gone"

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        known = {DEFAULT_MAP, *process.settings.maps}
        if unknown := [name for name in self.maps if name not in known]:
            raise Refused(f"map {unknown[0]!r} has no settings of its own: it is reset with {DEFAULT_MAP!r}")
        lost = self._lost(view)
        if not lost:
            raise Refused("no such partition is lost: there is nothing to reset")
        gone = [partition for partition in lost if not view.is_member(view.assignment(partition).owner)]
        if gone:
            raise Refused(
                f"no copy of partitions {ranges_of(gone)} is here: start the members that held them, or accept the "
                "loss (holdfast cluster accept-loss); then reset them"
            )

    def remaining(self, view: MemberView) -> ResetLost:
        """Only the partitions that are lost since the action was given: one that is lost again is a new loss."""
        return msgspec.structs.replace(self, partitions=sorted(self._lost(view)))

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        # Repeated: a partition that is moving is skipped.
        lost = self._lost(member.picture)
        member.reset_lost(sorted(lost), sorted(set[str]().union(*lost.values())))

    def waits_for(self, view: MemberView) -> str:
        lost = self._lost(view)
        return f"partitions {ranges_of(sorted(lost))} are still lost" if lost else ""

    def _lost(self, view: MemberView) -> dict[int, set[str]]:
        """These of the lost partitions, each with the maps that lost it."""
        return {
            partition: names
            for partition, lost in view.lost_partitions.items()
            if (names := {name for name in lost if not self.maps or name in self.maps})
            and (self.partitions is None or partition in self.partitions)
        }

    def done_text(self, view: MemberView) -> str:
        return "lost partitions are reset"
