"""Choice of the next view's feature level.

- membership/L-1: The level rises only if all members of the next view, and all that are waited for, support it, and in
  a running cluster only by order of an operator. Until then all members can be downgraded.
- membership/L-2: A process that does not support the level is rejected, with the reason.
- membership/L-3: The level never falls: files may contain what it introduced. While a stopped cluster recovers, its
  members report the level that they know.
- membership/L-4: Messages and files are written at the level in force; any level that the build supports is read. So
  members with different views understand each other.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.membership.admission import Admission
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.model.levels import common
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox


def all_can(members: Iterable[MemberInfo], level: int) -> bool:
    return all(info.levels.can(level) for info in members)


def possible(view: View) -> int:
    return common(info.levels for info in (*view.members, *view.missing))


def raise_problem(view: View, level: int) -> str:
    """Why the level cannot be raised, with advice; empty: it can."""
    if level < view.level:
        return f"the cluster is at feature level {view.level}, and a level never falls"
    short = [info for info in (*view.members, *view.missing) if not info.levels.can(level)]
    if short:
        names = ", ".join(sorted(f"{info.name} ({info.levels})" for info in short))
        return f"not all members support feature level {level}: {names}; upgrade them first"
    return ""


class NextLevel:
    def __init__(self, membership: MembershipStatus, candidates: Admission, out: Outbox) -> None:
        self._membership = membership
        self._candidates = candidates
        self._out = out

    def wanted(self, view: View, members: list[MemberInfo], missing: list[MemberInfo]) -> int:
        """`missing` members may return with their present build."""
        known = self._candidates.newest_level(view, members)
        ordered = self._membership.intents.level_order(self._out.now_ns)
        possible = [level for level in (known, ordered) if all_can([*members, *missing], level)]
        return max([view.level, *possible])
