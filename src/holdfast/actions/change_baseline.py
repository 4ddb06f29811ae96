"""Change the baseline: the members that own data, even while they are away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    TIMEOUT_MS_MAX,
    Declaration,
    Listed,
    Name,
    OperatorAction,
    must_be_member,
    must_not_shut_down,
    silent_members,
)
from holdfast.config.permissions import Action
from holdfast.core.model.baseline import FIXED
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.membership.baseline_orders import Owners
    from holdfast.core.model.member_status import MemberStatus
    from holdfast.core.model.views import View

GIVES_UP = "After that the command gives up."
MEMBERS = Meta(
    description="Members, as `holdfast cluster baseline show` lists them.", extra={"argument": "MEMBER"}
)


class _ChangeBaseline(OperatorAction, frozen=True):
    """Base of the four changes."""

    def owners(self, view: View) -> Owners:
        """The baseline after the change. Raises Refused."""
        raise NotImplementedError

    def is_in(self, view: View) -> bool:
        return self.owners(view).are_in(view)

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        must_not_shut_down(view)
        if unserved := view.unserved_reason():
            raise Refused(
                f"{unserved}: start the members that hold them, or accept the loss (holdfast cluster accept-loss), "
                "before you change the baseline"
            )
        assert view.view is not None, "a member is in a view"
        self.owners(view.view)

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        # Based on the present view, which others may change.
        view = member.picture.view
        if view is not None and not self.is_in(view):
            members, adjust_ms = self.owners(view)
            member.membership.orders.set_baseline(view.baseline_point, sorted(members), adjust_ms)

    def waits_for(self, view: MemberView) -> str:
        must_not_shut_down(view)
        if view.view is not None and self.is_in(view.view) and view.known_by_all:
            return ""
        return "the baseline has not changed yet" + silent_members(view)

    def done_text(self, view: MemberView) -> str:
        return "the baseline is changed"


def _declared(change: str, summary: str) -> Declaration:
    return Declaration(
        f"baseline-{change}",
        Action.BASELINE,
        f"cluster baseline {change}",
        summary,
        repeat_s=1,
        withdrawn=True,
        at_timeout=GIVES_UP,
    )


class SetBaseline(_ChangeBaseline, frozen=True):
    r"""Set the baseline to exactly these members, which are present or in the baseline already. Turns automatic
    adjustment off.

    \b
      holdfast cluster baseline set
      holdfast cluster baseline set one two three --yes
    """

    declared = _declared("set", "Set the members; by default those that are present.")

    members: Annotated[Listed[Name], MEMBERS] = []

    def question(self, seen: MemberStatus) -> str:
        return f"Let only {', '.join(self.members) or 'the members that are here'} own data"

    def owners(self, view: View) -> Owners:
        from holdfast.core.membership.baseline_orders import BaselineChange, owners_wanted

        return owners_wanted(view, BaselineChange.SET, self.members, FIXED)


class AddToBaseline(_ChangeBaseline, frozen=True):
    r"""Add present members to the baseline. They receive their share of the partitions.

    \b
      holdfast cluster baseline add four
    """

    declared = _declared("add", "Add members.")

    members: Annotated[Listed[Name], MEMBERS]

    def owners(self, view: View) -> Owners:
        from holdfast.core.membership.baseline_orders import BaselineChange, owners_wanted

        return owners_wanted(view, BaselineChange.ADD, self.members, FIXED)


class RemoveFromBaseline(_ChangeBaseline, frozen=True):
    r"""Remove absent members from the baseline. The cluster copies their data to other members.

    A present member has to leave first: holdfast member drain.

    \b
      holdfast cluster baseline remove two
    """

    declared = _declared("remove", "Remove absent members.")

    members: Annotated[Listed[Name], MEMBERS]

    def question(self, seen: MemberStatus) -> str:
        return f"Keep nothing for {', '.join(self.members)} any longer, and copy what they held to others"

    def owners(self, view: View) -> Owners:
        from holdfast.core.membership.baseline_orders import BaselineChange, owners_wanted

        return owners_wanted(view, BaselineChange.REMOVE, self.members, FIXED)

    def is_in(self, view: View) -> bool:
        baseline = view.baseline
        return bool(self.members) and baseline is not None and not baseline.ids & set(self.members)


class AdjustBaseline(_ChangeBaseline, frozen=True):
    r"""Adjust the baseline to the present members, this long after the last join or leave: seconds, or 5min. 0: at
    once.

    The cluster does not adjust it while partitions wait for copies, or while its state is not active.

    \b
      holdfast cluster baseline auto 5min
      holdfast cluster baseline auto off
    """

    declared = _declared("auto", "Turn automatic adjustment on or off.")

    adjust_ms: Annotated[
        int,
        Meta(
            ge=FIXED,
            le=TIMEOUT_MS_MAX,
            description="Time without changes of the members after which they become the baseline; -1: never.",
            extra={"argument": "TIME|off", "reads": "milliseconds"},
        ),
    ]

    def owners(self, view: View) -> Owners:
        from holdfast.core.membership.baseline_orders import BaselineChange, owners_wanted

        return owners_wanted(view, BaselineChange.AUTO, [], self.adjust_ms)
