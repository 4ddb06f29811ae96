"""Which feature level does the next view have?

- membership/L-1: The level rises only when every member of the next view, and everybody who is waited for, can do it;
  and, while a cluster is running, only when an operator wants it: so whoever has not ordered it may go back.
- membership/L-2: Who cannot do the level is not let in, and is told why.
- membership/L-3: The level never falls: in files there may be what came with it. While a stopped cluster comes back its
  members tell what level they know of.
- membership/L-4: What is sent, and what is written down, is of the level in force; what is read may be of any level
  that the build can do. So a member whose view is older is understood, and so is one whose view is newer.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.machine import Outbox
from holdfast.core.membership.admission import Admission
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.model.levels import common
from holdfast.core.model.views import MemberInfo, View


def all_can(members: Iterable[MemberInfo], level: int) -> bool:
    """membership/L-1: whether all of these can do this level."""
    return all(info.levels.can(level) for info in members)


def possible(view: View) -> int:
    """The highest feature level that all who are here, or are waited for, can do."""
    return common(info.levels for info in (*view.members, *view.missing))


def raise_problem(view: View, level: int) -> str:
    """Why the cluster cannot be brought to this level as it is, in words that say what to do; empty when it can."""
    if level < view.level:
        return f"the cluster is at feature level {view.level}, and a level never falls"
    short = [info for info in (*view.members, *view.missing) if not info.levels.can(level)]
    if short:
        names = ", ".join(sorted(f"{info.name} ({info.levels})" for info in short))
        return f"not all members can do feature level {level}: {names}; start a version there that can"
    return ""


class NextLevel:
    """The feature level that the next view should have."""

    def __init__(self, standing: MembershipStatus, candidates: Admission, out: Outbox) -> None:
        self._standing = standing
        self._candidates = candidates
        self._out = out

    def wanted(self, view: View, members: list[MemberInfo], missing: list[MemberInfo]) -> int:
        """As whoever proposes. `missing`: who is waited for, and may come back as it was."""
        known = self._candidates.newest_level(view, members)
        ordered = self._standing.intents.level_order(self._out.now_ns)
        possible = [level for level in (known, ordered) if all_can([*members, *missing], level)]
        return max([view.level, *possible])
