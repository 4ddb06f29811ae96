"""Remove members whose processes have ended."""

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
    must_be_member,
    silent_members,
)
from holdfast.config.permissions import Action
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import EVICTS
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.model.member_status import MemberStatus


class Evict(OperatorAction, frozen=True):
    r"""Remove crashed members at once, without waiting for cluster.suspect_after_ms.

    The cluster rejects the command for a member that sent a heartbeat within the last three intervals, and a majority
    of the members must agree. A member that still runs cannot rejoin: its process ends with status 1.

    If the remaining members are no majority, name every crashed member, with --without-majority. Make sure that all
    have ended: one that is only cut off may still serve clients, and the writes that it acknowledges are lost.

    \b
      holdfast member evict three
      holdfast member evict two three --without-majority
    """

    declared = Declaration(
        "evict",
        Action.EVICT,
        "member evict",
        "Remove crashed members at once.",
        timeout_s=30,
        repeat_s=1,
        withdrawn=True,
        at_timeout="After that the usual suspicion applies (cluster.suspect_after_ms).",
    )

    members: Annotated[
        Listed[Name],
        Meta(min_length=1, description="Their UUIDs.", extra={"argument": "MEMBER", "reads": "members"}),
    ]
    without_majority: Annotated[
        bool,
        Meta(
            description="Continue even if the remaining members are no majority. If a named member still runs, there "
            "will be two clusters."
        ),
    ] = False

    def question(self, seen: MemberStatus) -> str:
        names = {row.uuid: row.label for row in seen.members}
        then = (
            "there are two clusters, and one of them loses its writes"
            if self.without_majority
            else "it will end itself"
        )
        listed = ", ".join(names.get(uuid, uuid) for uuid in self.members)
        return f"Has {listed} ended for sure? Should it still run, {then}"

    def _ended(self) -> list[MemberId]:
        return [MemberId(member) for member in self.members]

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        if rejection := view.eviction_rejection(self._ended(), without_majority=self.without_majority):
            raise Refused(rejection)
        if not self.without_majority and view.level < EVICTS:
            raise Refused(
                f"eviction needs feature level {EVICTS} (holdfast cluster upgrade); without it a member is removed "
                "after cluster.suspect_after_ms of silence"
            )

    def remaining(self, view: MemberView) -> Evict:
        left = [str(member) for member in self._ended() if view.is_member(member)]
        return msgspec.structs.replace(self, members=left)

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        # Repeated: a new view drops the command, and a member that was heard at first may be silent by now.
        evictions = member.membership.evictions
        if self.without_majority:
            evictions.evict_without_majority(set(self._ended()))
        else:
            evictions.evict(set(self._ended()))

    def waits_for(self, view: MemberView) -> str:
        left = self._ended()
        if not left:
            return ""
        if not self.without_majority:
            if not set(left) <= set(view.unheard()):
                raise Refused(
                    "it sent a heartbeat within the last three intervals, so it runs: end its process first, or "
                    "drain it (holdfast member drain)"
                )
            if rejection := view.eviction_rejection(left, without_majority=False):
                raise Refused(rejection)
        return "the other members have not agreed to the eviction" + silent_members(view)

    def done_text(self, view: MemberView) -> str:
        return "the cluster has evicted them"
