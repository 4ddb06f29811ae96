"""Which view does this member want next, and whose turn is it to propose one? It changes nothing.

- membership/V-4: A leaving member goes with a view that names it as left, when it holds nothing any more and a majority
  of that view knows it; where nobody stays, all who left with it, or nobody of them asks any more.
- membership/V-6: When so many have died that the rest is no majority, the operator may evict the silent members; then
  the majority of the others decides. Were one of them alive, there would be two clusters: only the operator can know.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core.machine import Outbox
from holdfast.core.membership import admission
from holdfast.core.membership.admission import Admission
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.membership.next_baseline import DataPermissions, NextBaseline
from holdfast.core.membership.next_level import NextLevel
from holdfast.core.membership.view_agreement import ViewAgreement
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.views import MemberInfo, View


class Permissions(DataPermissions, Protocol):
    """What has to be asked of the machines above before the next view is wanted."""

    def may_part(self, member: MemberId) -> bool:
        """As master: whether this member may leave: it holds nothing any more, and all know that."""

    def may_demote(self, member: MemberId) -> bool:
        """As master: whether this member may become a lite one: it holds nothing any more."""


class NextView:
    """What this member would like the next view to be."""

    def __init__(
        self, standing: MembershipStatus, candidates: Admission, out: Outbox, permissions: Permissions
    ) -> None:
        self._standing = standing
        self._candidates = candidates
        self._out = out
        self._permissions = permissions
        self._minority_told = False
        self._baseline = NextBaseline(standing, candidates, out, permissions)
        self._level = NextLevel(standing, candidates, out)

    def may_propose(self, candidate: MemberId) -> bool:
        """membership/A-4, for this member as a consenting one."""
        return candidate == self._standing.me or self.is_next(candidate)

    def is_next(self, candidate: MemberId) -> bool:
        """Whether every older member is suspected, so that it is this one's turn to propose."""
        assert self._standing.view is not None
        suspects = set(self._standing.detector.suspects(self._out.now_ns))
        first = next((info.uuid for info in self._standing.view.members if info.uuid not in suspects), None)
        older = [info.uuid for info in self._standing.view.members]
        if candidate not in older:
            return False
        return first is None or older.index(candidate) <= older.index(first)

    def wanted(self, agreement: ViewAgreement) -> View | None:
        """The next view this member would like, or None when the present one is right (or no majority could agree)."""
        view = self._standing.view
        if view is None or not self._standing.admitted or not self.is_next(self._standing.me):
            return None
        suspects = self._standing.detector.unwanted(self._standing.me, view.members, self._out.now_ns)
        if view.recovering:
            suspects = suspects | self._standing.files.outdated(view.members)
        # Never both at once: who goes must know that those who stay are there.
        left = (
            [uuid for uuid in self._standing.intents.leaving(view) if self._permissions.may_part(uuid)]
            if not suspects
            else []
        )
        if not self._standing.may_decide(view, {info.uuid for info in view.members} - suspects):
            self._tell_minority(suspects)
            return None
        self._minority_told = False
        assert not left or not suspects, "never both at once"
        members = self._next_members(view, suspects | set(left))
        state, ending = self._standing.intents.wanted(view)
        recovering = view.recovering and not self._permissions.is_assigned()
        baseline = self._baseline.wanted(view, members, left, recovering=recovering)
        missing = admission.missing(view, members) if state.frozen else []
        if recovering or not members:
            missing = admission.awaited(view, members)
        level = self._level.wanted(view, members, missing)
        now = (view.members, view.state, view.ending, view.recovering, view.baseline, view.level)
        same = (members, state, ending, recovering, baseline, level) == now
        if same and not self._long_fenced(agreement):
            return None
        number = max(view.number, self._standing.numbers_from) + 1
        stores = self._standing.files.stores(view, () if recovering else members)
        return View(
            number,
            view.cluster_id,
            members,
            left,
            state,
            ending,
            missing,
            stores,
            recovering,
            baseline,
            level,
        )

    def _next_members(self, view: View, without: set[MemberId]) -> list[MemberInfo]:
        """Who stays, as data or lite members as they wish, and then who is let in."""
        staying = [info for info in view.members if info.uuid not in without]
        admitted = self._candidates.admissible(view, staying, self._out.now_ns, self._standing.files)
        assert len(admitted) <= len(staying), "who stays can decide without those who come"
        return [self._granted(info) for info in staying] + admitted

    def _granted(self, info: MemberInfo) -> MemberInfo:
        """A data member becomes a lite one only when it may."""
        wished = self._standing.intents.wished(info)
        demoted = wished.lite and not info.lite
        return info if demoted and not self._permissions.may_demote(info.uuid) else wished

    def _tell_minority(self, suspects: set[MemberId]) -> None:
        """Say once why nothing can be decided, and what ends that."""
        if not self._minority_told:
            self._minority_told = True
            assert self._standing.view is not None
            names = [info.name for info in self._standing.view.members if info.uuid in suspects]
            self._out.note(
                "no majority: waiting for silent members to return; partitions that need them are not served",
                level="debug",  # `observe.alarms` tells it on every member, not only where a view would be proposed.
                silent=names,
                members=len(self._standing.view.members),
            )

    def _long_fenced(self, agreement: ViewAgreement) -> bool:
        """Whether someone has been sealed by a proposal that came to nothing: a view must be agreed to free it."""
        limit = self._out.now_ns - 2 * self._standing.timing.heartbeat_ns - 1000 * MILLISECOND
        return agreement.fenced or any(since < limit for since in self._standing.fenced_since.values())
