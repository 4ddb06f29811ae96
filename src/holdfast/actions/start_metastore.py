"""Start the metastore of a running cluster, or change the number of its voters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    Declaration,
    Needed,
    OperatorAction,
    must_be_member,
    must_not_shut_down,
    silent_members,
)
from holdfast.config.permissions import Action, Kind
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView

USUAL_VOTERS = 3


class StartMetastore(OperatorAction, frozen=True):
    r"""Start the metastore of a cluster that has none, while the cluster is used: zones need one. If it has one, change
    the number of its voters.

    With fewer members there are fewer voters, until others join. The metastore stays available while a majority of its
    voters runs. The number is kept through restarts, and wins over the setting metastore.voters.

    \b
      holdfast metastore start
      holdfast metastore start --voters 5 -a 127.0.0.1:5702
    """

    declared = Declaration(
        "start-metastore",
        Action.START,
        "metastore start",
        "Start the metastore in a running cluster.",
        repeat_s=1,
        kind=Kind.METASTORE,
        at_timeout="After that the cluster continues with it if a majority of the members has agreed.",
    )

    voters: Annotated[
        int,
        Meta(ge=1, le=7, description="Number of voters: 1, 3, 5 or 7. Default: 3.", extra={"metavar": "N"}),
    ] = USUAL_VOTERS

    def needs(self) -> list[Needed]:
        return [Needed(self.declared.permission, self.declared.kind, every=True)]

    def problem(self, partitions: int) -> str:
        from holdfast.core.model.metastore_founding import VOTERS

        if self.voters in VOTERS:
            return ""
        return (
            f"a metastore has 1, 3, 5 or 7 voters, not {self.voters}: an even number survives no more losses"
        )

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        must_not_shut_down(view)
        from holdfast.core.membership.metastore_orders import founding_problem

        assert view.view is not None, "a member is in a view"
        if why := founding_problem(view.view):
            raise Refused(why)

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.metastore_orders.order(self.voters)

    def waits_for(self, view: MemberView) -> str:
        must_not_shut_down(view)
        founding = view.view.metastore if view.view is not None else None
        if founding is None or founding.voters != self.voters:
            return "the members have not agreed yet" + silent_members(view)
        if not view.metastore_leader:
            return f"the metastore has no leader yet: {view.cluster_unsafe_reason()}" + silent_members(view)
        return ""

    def done_text(self, view: MemberView) -> str:
        return f"the metastore is started: {self.voters} voters, if there are as many members"
