"""Membership of this process as other machines read it. Only `membership` changes it.

- membership/B-3: A member outside the baseline holds nothing: it gets no replicas, and the data that it brings back
  counts only once it is in the baseline.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final

import msgspec

from holdfast.core.membership.desired_state import DesiredState
from holdfast.core.membership.failure_detector import FailureDetector
from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.known_files import KnownFiles
from holdfast.core.membership.view_agreement import is_quorum
from holdfast.core.model.baseline import FIXED, BaselineMember
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, View
from holdfast.core.outbox import Outbox

RETURN_FACTOR = 3
"""A removed member is expected back for so many suspicion times."""


@unique
class MembershipState(StrEnum):
    JOINING = "joining"
    """Never admitted so far."""
    MEMBER = "member"
    """The process is in the newest view that it knows."""
    EXILED = "exiled"
    """Removed though alive; asks to return."""
    PARTING = "parting"
    """Has left by a view, and waits until enough others know it."""
    GONE = "gone"
    """The process ends."""


@unique
class MembershipStep(StrEnum):
    ADMITTED = "a view names it"
    REMOVED = "a view leaves it out"
    LEFT = "a view says that it has left"
    ENDED = "it has nothing to wait for any more"


HAVING_A_VIEW = (MembershipState.MEMBER, MembershipState.PARTING)
SEEKING = (MembershipState.JOINING, MembershipState.EXILED)

MEMBERSHIP: Final = Lifecycle(
    "a member",
    MembershipState.JOINING,
    {
        (MembershipState.JOINING, MembershipStep.ADMITTED): MembershipState.MEMBER,
        (MembershipState.JOINING, MembershipStep.ENDED): MembershipState.GONE,
        (MembershipState.MEMBER, MembershipStep.ADMITTED): MembershipState.MEMBER,
        (MembershipState.MEMBER, MembershipStep.REMOVED): MembershipState.EXILED,
        (MembershipState.MEMBER, MembershipStep.LEFT): MembershipState.PARTING,
        (MembershipState.EXILED, MembershipStep.ADMITTED): MembershipState.MEMBER,
        (MembershipState.EXILED, MembershipStep.ENDED): MembershipState.GONE,
        (MembershipState.PARTING, MembershipStep.ENDED): MembershipState.GONE,
    },
)


class MembershipStatus:
    def __init__(self, identity: Identity, timing: Timing, out: Outbox, *, majority: bool) -> None:
        self.me = identity.info.uuid
        self.info = identity.info
        self.identity = identity
        self.timing = timing
        self._out = out
        self._majority = majority
        self.view: View | None = None
        self.last_view: View | None = None
        """Even one without this member."""
        self.state = MEMBERSHIP.begins
        self.refusal = ""
        """By the cluster, or empty."""
        self.join_advice = ""
        """While no cluster admits it."""
        self.detector = FailureDetector(timing.suspect_after_ns, 2 * timing.heartbeat_ns)
        self.evicted_without_majority: set[MemberId] = set()
        """Members that do not count in majorities of the view."""
        self.evicted: dict[MemberId, None] = {}
        """In order: suspected at once, and not admitted again (membership/V-9)."""
        self.intents = DesiredState(self.me, out)
        self.files = KnownFiles(identity.seen)
        self.numbers_from = 0
        """As master: the highest known number of an earlier view."""
        self.carried: list[tuple[int, Assignment]] = []
        """Left out by the present view (membership/A-2)."""
        self.fenced_since: dict[MemberId, int] = {}
        """Members that have accepted a next view -> since when."""
        self.evicted_at_ns: int | None = None
        """When a member was last removed, or last heard after its removal."""
        self.members_changed_ns = 0
        """Since when exactly these members are present, as far as this one knows."""

    def step(self, step: MembershipStep) -> None:
        self.state = MEMBERSHIP.after(self.state, step)
        assert self.view is not None or self.state not in HAVING_A_VIEW, (
            "who is in a view, or leaves with it, has it"
        )
        assert self.view is None or self.state not in SEEKING, "who looks for a cluster is in none"

    # -- queries

    @property
    def admitted(self) -> bool:
        return self.state is MembershipState.MEMBER

    @property
    def has_left(self) -> bool:
        state = self.state
        return state is MembershipState.PARTING or state is MembershipState.GONE

    @property
    def master(self) -> MemberId | None:
        return self.view.members[0].uuid if self.view and self.view.members else None

    @property
    def is_master(self) -> bool:
        return self.master == self.me and self.admitted

    def is_member(self, member: MemberId) -> bool:
        return self.member(member) is not None

    def hears(self, member: MemberId) -> bool:
        """Whether this member is in the cluster, and heard that one recently."""
        return self.admitted and self.detector.hears(member, self._out.now_ns)

    def member(self, uuid: MemberId | None) -> MemberInfo | None:
        return next((info for info in self.members() if info.uuid == uuid), None)

    def members(self) -> list[MemberInfo]:
        return list(self.view.members) if self.view else []

    def missing(self) -> list[MemberInfo]:
        """Gone while the table is frozen; they keep their replicas."""
        return self.view.missing if self.view else []

    @property
    def ending(self) -> bool:
        return self.view is not None and self.view.ending

    @property
    def known_by_all(self) -> bool:
        here = {info.uuid for info in self.members()}
        return self.admitted and self.intents.heard_from >= here

    def is_quorum(self, members: set[MemberId]) -> bool:
        assert self.view is not None
        return not self._majority or is_quorum(self.view, members)

    def may_decide(self, view: View, members: set[MemberId]) -> bool:
        """Whether these members can decide the view after this one: membership/A-1, membership/V-6."""
        if not self._majority:
            return True
        counted = [info for info in view.members if info.uuid not in self.evicted_without_majority]
        return is_quorum(msgspec.structs.replace(view, members=counted), members)

    @property
    def cluster_state(self) -> ClusterState:
        return self.view.state if self.view is not None else ClusterState.ACTIVE

    @property
    def leaving(self) -> bool:
        return self.intents.mine is Intent.LEAVE

    @property
    def departing(self) -> set[MemberId]:
        return self.intents.departing(self.view) if self.view is not None else set()

    def may_hold(self, info: MemberInfo) -> bool:
        """See membership/B-3."""
        return self.view is not None and self.view.may_hold(info)

    def data_members(self) -> list[MemberInfo]:
        """Members that hold partitions and will continue to."""
        departing = self.departing
        return [info for info in self.members() if self.may_hold(info) and info.uuid not in departing]

    def outside(self) -> list[MemberInfo]:
        view = self.view
        return [info for info in view.members if not info.lite and view.is_outside(info)] if view else []

    def away(self) -> tuple[BaselineMember, ...]:
        """Absent members of the baseline, whose places are kept."""
        return self.view.baseline.away if self.view is not None and self.view.baseline is not None else ()

    @property
    def adjusts_in_ms(self) -> int | None:
        view = self.view
        baseline = view.baseline if view is not None else None
        if view is None or baseline is None or baseline.adjust_ms == FIXED:
            return None
        if baseline.ids == {info.consistent_id for info in view.members if not info.lite}:
            return None
        since_ms = (self._out.now_ns - self.members_changed_ns) // MILLISECOND
        return max(0, baseline.adjust_ms - since_ms)

    @property
    def may_be_missed(self) -> bool:
        """Whether a member was removed, or heard after its removal, so recently that it may return. Safety
        does not depend on this: it only delays the last member when it leaves with all the data.
        """
        since = self.evicted_at_ns
        return since is not None and self._out.now_ns - since < RETURN_FACTOR * self.timing.suspect_after_ns
