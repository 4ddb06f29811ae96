"""Raise the feature level of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    Declaration,
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
    from holdfast.core.model.member_status import MemberStatus


class Upgrade(OperatorAction, frozen=True):
    r"""Raise the feature level of the cluster after all members run a newer version, so that they use its new
    features.

    Before this command you can downgrade members one by one; afterwards you cannot, and the cluster rejects members
    that do not support the level.

    \b
      holdfast cluster upgrade --show
      holdfast cluster upgrade --yes
    """

    declared = Declaration(
        "upgrade",
        Action.UPGRADE,
        "cluster upgrade",
        "Raise the feature level after a rolling upgrade.",
        repeat_s=1,
        withdrawn=True,
        at_timeout="After that the command gives up.",
    )

    level: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="The feature level. Default: the highest that all members support.",
            extra={"metavar": "N"},
        ),
    ] = 0

    def question(self, seen: MemberStatus) -> str:
        before = seen.level.in_force
        wanted = self.level or seen.level.possible
        if wanted == before:
            return ""
        return f"Raise the feature level from {before} to {wanted}? Older versions cannot be used afterwards"

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        must_not_shut_down(view)
        self._check_level(view)

    def _check_level(self, view: MemberView) -> None:
        from holdfast.core.membership.next_level import raise_problem

        assert view.view is not None, "a member is in a view"
        if problem := raise_problem(view.view, self._wanted(view)):
            raise Refused(problem)

    def _wanted(self, view: MemberView) -> int:
        from holdfast.core.membership.next_level import possible

        return self.level or (max(possible(view.view), view.view.level) if view.view is not None else 0)

    def remaining(self, view: MemberView) -> Upgrade:
        """The level is chosen once: a member that joins later may support less."""
        return self if self.level else msgspec.structs.replace(self, level=self._wanted(view))

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.orders.set_level(self._wanted(member.picture))

    def waits_for(self, view: MemberView) -> str:
        must_not_shut_down(view)
        if view.view is None or view.view.level < self.level:
            if view.view is not None:
                self._check_level(view)  # A member that has just joined may prevent it.
        elif view.known_by_all:
            return ""
        return f"not every member is at level {self.level}" + silent_members(view)

    def done_text(self, view: MemberView) -> str:
        return f"the cluster is at feature level {self._wanted(view)}"
