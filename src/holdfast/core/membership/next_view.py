"""Choice of the next view, and of its proposer. Changes nothing.

- membership/V-4: A member leaves with a view that names it as left, once it holds nothing any more. It ends when a
  majority of that view knows the view. If no member stays, all that left with it have to know it, or stop asking.
- membership/V-6: If so many members have died that the rest is no majority, the operator may evict the silent ones, and
  the majority of the others decides. If one of the evicted were alive there would be two clusters; only the operator
  can exclude that.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.config import Settings
from holdfast.core.membership import admission
from holdfast.core.membership.admission import Admission
from holdfast.core.membership.map_orders import CopyProofs, MapOrders, NextMaps
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.membership.metastore_orders import MetastoreOrders, NextMetastore
from holdfast.core.membership.next_baseline import DataPermissions, NextBaseline
from holdfast.core.membership.next_level import NextLevel
from holdfast.core.membership.view_agreement import ViewAgreement
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox


class Permissions(DataPermissions, CopyProofs, Protocol):
    def can_leave(self, member: MemberId) -> bool:
        """As master: it holds nothing any more, and all members know that."""

    def may_demote(self, member: MemberId) -> bool: ...


class NextView:
    def __init__(
        self,
        membership: MembershipStatus,
        candidates: Admission,
        out: Outbox,
        permissions: Permissions,
        settings: Settings,
        map_orders: MapOrders,
        metastore_orders: MetastoreOrders,
    ) -> None:
        self._membership = membership
        self._candidates = candidates
        self._out = out
        self._permissions = permissions
        self._minority_reported = False
        self._baseline = NextBaseline(membership, candidates, out, permissions)
        self._level = NextLevel(membership, candidates, out)
        self._maps = NextMaps(settings, candidates, map_orders, permissions)
        self._metastore = NextMetastore(membership, candidates, metastore_orders)

    def may_propose(self, candidate: MemberId) -> bool:
        """membership/A-4, for this member as an acceptor."""
        return candidate == self._membership.me or self.is_next(candidate)

    def is_next(self, candidate: MemberId) -> bool:
        assert self._membership.view is not None
        suspects = set(self._membership.detector.suspects(self._out.now_ns))
        first = next((info.uuid for info in self._membership.view.members if info.uuid not in suspects), None)
        older = [info.uuid for info in self._membership.view.members]
        if candidate not in older:
            return False
        return first is None or older.index(candidate) <= older.index(first)

    def wanted(self, agreement: ViewAgreement) -> View | None:
        """The next view; None: the present one is right, or no majority could agree."""
        view = self._membership.view
        if view is None or not self._membership.admitted or not self.is_next(self._membership.me):
            return None
        suspects = self._membership.detector.unwanted(self._membership.me, view.members, self._out.now_ns)
        if view.recovering:
            suspects = suspects | self._membership.files.outdated(view.members)
        # Never both at once: a leaving member must know that those which stay are alive.
        left = (
            [uuid for uuid in self._membership.intents.leaving(view) if self._permissions.can_leave(uuid)]
            if not suspects
            else []
        )
        if not self._membership.may_decide(view, {info.uuid for info in view.members} - suspects):
            self._report_minority(suspects)
            return None
        self._minority_reported = False
        assert not left or not suspects, "never both at once"
        members = self._next_members(view, suspects | set(left))
        state, ending = self._membership.intents.wanted(view)
        recovering = view.recovering and not self._permissions.is_assigned()
        baseline = self._baseline.wanted(view, members, left, recovering=recovering)
        missing = admission.missing(view, members) if state.frozen else []
        if recovering or not members:
            missing = self._candidates.awaited(view, members)
        level = self._level.wanted(view, members, missing)
        maps = self._maps.wanted(view, members)
        metastore = self._metastore.wanted(view, members, level)
        now = (view.members, view.state, view.ending, view.recovering, view.baseline, view.level, view.maps)
        same = (members, state, ending, recovering, baseline, level, maps) == now
        if same and metastore == view.metastore and not self._long_fenced(agreement):
            return None
        number = max(view.number, self._membership.numbers_from) + 1
        stores = self._membership.files.stores(view, () if recovering else members)
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
            maps,
            metastore,
        )

    def _next_members(self, view: View, without: set[MemberId]) -> list[MemberInfo]:
        staying = [info for info in view.members if info.uuid not in without]
        admitted = self._candidates.admissible(view, staying, self._out.now_ns, self._membership.files)
        assert len(admitted) <= len(staying), "who stays can decide without those who come"
        return [self._granted(info) for info in staying] + admitted

    def _granted(self, info: MemberInfo) -> MemberInfo:
        """The member in the role that it wants; a data member becomes lite only when allowed."""
        desired = self._membership.intents.wished(info)
        demoted = desired.lite and not info.lite
        return info if demoted and not self._permissions.may_demote(info.uuid) else desired

    def _report_minority(self, suspects: set[MemberId]) -> None:
        """Report once why no view can be decided, and what ends that."""
        if not self._minority_reported:
            self._minority_reported = True
            assert self._membership.view is not None
            names = [info.name for info in self._membership.view.members if info.uuid in suspects]
            self._out.note(
                "no majority: waiting for silent members to return; partitions that need them are not served",
                level="debug",  # `observe.alarms` reports it on every member.
                silent=names,
                members=len(self._membership.view.members),
            )

    def _long_fenced(self, agreement: ViewAgreement) -> bool:
        """Whether a failed proposal has fenced a member: another view has to be agreed to release it."""
        limit = self._out.now_ns - 2 * self._membership.timing.heartbeat_ns - 1000 * MILLISECOND
        return agreement.fenced or any(since < limit for since in self._membership.fenced_since.values())
