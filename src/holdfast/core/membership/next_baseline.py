"""Choice of the next view's baseline by the master.

- membership/B-2: An order names the end of the history that its sender has seen, so it is carried out once, or not at
  all if the history has changed. It never removes a present member that holds data. The sender repeats it; it becomes
  void some time after the last repetition.
- membership/B-4: With automatic adjustment the baseline becomes the present members when none has joined or left for
  the set time; only in an active cluster, and not while partitions wait for their copies.
- membership/B-5: When a cluster continues without some members by order of the operator, the history gets a new entry
  before any of the others serves (primary_backup/O-5). If these members also continue on their own, membership/B-1
  keeps the two histories apart.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core.membership import admission
from holdfast.core.membership.admission import Admission
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import BaselineWanted
from holdfast.core.model.baseline import Baseline, BaselineMember
from holdfast.core.model.ids import MemberId
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, View
from holdfast.core.outbox import Outbox


class DataPermissions(Protocol):
    def is_assigned(self) -> bool: ...

    def waits_for_copies(self) -> bool:
        """As master: partitions wait for members that hold them."""


class NextBaseline:
    def __init__(
        self, membership: MembershipStatus, candidates: Admission, out: Outbox, permissions: DataPermissions
    ) -> None:
        self._membership = membership
        self._candidates = candidates
        self._out = out
        self._permissions = permissions

    def wanted(
        self, view: View, members: list[MemberInfo], left: list[MemberId], *, recovering: bool
    ) -> Baseline | None:
        """`left` leave with this view."""
        baseline = self._candidates.newest_baseline(view, members)
        order = self._membership.intents.baseline_order(self._out.now_ns)
        here = [info for info in members if not info.lite]
        if order is not None and self._may(order, baseline, here):
            baseline = _ordered(order, view, baseline)
        elif baseline is not None and self._adjusts_now(view, members):
            kept = [_entry(info) for info in here]
            baseline = baseline.changed(kept, baseline.adjust_ms, "adjusted")
        if baseline is None:
            return None
        evicted = self._membership.evicted_without_majority - {info.uuid for info in members}
        made_without = view.recovering and not recovering and admission.awaited(view, members)
        if evicted or made_without:
            baseline = baseline.continued({info.consistent_id for info in members})
        return self._with_places(view, baseline, members, left)

    def _may(self, order: BaselineWanted, baseline: Baseline | None, here: list[MemberInfo]) -> bool:
        """membership/B-2."""
        point = baseline.point if baseline is not None else ""
        if order.after != point or not self._permissions.is_assigned():
            return False
        living = {info.consistent_id for info in here}
        owning = living if baseline is None else living & baseline.ids
        return owning <= {*order.members} and not living.isdisjoint(order.members)

    def _adjusts_now(self, view: View, members: list[MemberInfo]) -> bool:
        """membership/B-4."""
        return (
            self._membership.adjusts_in_ms == 0
            and [info.uuid for info in members] == [info.uuid for info in view.members]
            and view.state is ClusterState.ACTIVE
            and not view.ending
            and any(not info.lite for info in members)
            and self._permissions.is_assigned()
            and not self._permissions.waits_for_copies()
        )

    def _with_places(
        self, view: View, baseline: Baseline, members: list[MemberInfo], left: list[MemberId]
    ) -> Baseline:
        """Keep the places of members that went without moving their data elsewhere."""
        here = {info.consistent_id: info for info in members}
        leaving = {
            info.uuid for info in view.members if self._membership.intents.of(info.uuid) is Intent.LEAVE
        }
        drains = (
            view.state.migrates
            and not view.ending
            and any(not info.lite and info.uuid not in leaving for info in members)
        )
        before = {
            info.consistent_id: not info.lite and not (drains and info.uuid in left) for info in view.members
        }
        entries = tuple(
            _entry(here[one.consistent_id])
            if one.consistent_id in here
            else BaselineMember(one.consistent_id, one.group, before.get(one.consistent_id, one.away))
            for one in baseline.members
        )
        return Baseline(entries, baseline.adjust_ms, baseline.changes, baseline.history)


def _entry(info: MemberInfo) -> BaselineMember:
    return BaselineMember(info.consistent_id, info.group)


def _ordered(order: BaselineWanted, view: View, baseline: Baseline | None) -> Baseline:
    known = {one.consistent_id: one for one in baseline.members} if baseline is not None else {}
    wanted = [known.get(name, BaselineMember(name)) for name in sorted(set(order.members))]
    return (baseline or Baseline(())).changed(wanted, order.adjust_ms, view.cluster_id)
