"""How does this member stand to its cluster? The installed view, what is known of everybody in it, and what others ask.

Whoever only reads is given a `MembershipStatus`; what changes it is in `membership`.

- membership/B-3: Who is not in the baseline holds nothing: no replica is given to it, and what it brings back counts
  only when it is.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final

import msgspec

from holdfast.core.machine import Outbox
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

RETURN_FACTOR = 3
"""For how many times of suspicion a removed member may still come back."""


@unique
class MembershipState(StrEnum):
    """How a member stands to its cluster."""

    JOINING = "joining"
    """It looks for the cluster, and was never admitted."""
    MEMBER = "member"
    """It is in the newest view that it knows."""
    EXILED = "exiled"
    """It was removed though alive, and asks to return."""
    PARTING = "parting"
    """A view says that it has left; it waits until enough others know."""
    GONE = "gone"
    """It is no member any more, and will not be one: its process ends."""


@unique
class MembershipStep(StrEnum):
    """What changes how a member stands to its cluster."""

    ADMITTED = "a view names it"
    REMOVED = "a view does without it"
    LEFT = "a view says that it has left"
    ENDED = "it has nothing to wait for any more"


HAVING_A_VIEW = (MembershipState.MEMBER, MembershipState.PARTING)
SEEKING = (MembershipState.JOINING, MembershipState.EXILED)
"""Who looks for a cluster that takes it."""

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
    """What one member knows of its cluster."""

    def __init__(self, identity: Identity, timing: Timing, out: Outbox, *, majority: bool) -> None:
        self.me = identity.info.uuid
        self.info = identity.info
        self.identity = identity
        self.timing = timing
        self._out = out
        self._majority = majority
        self.view: View | None = None
        self.last_view: View | None = None
        """The newest that it knows, also one without it."""
        self.state = MEMBERSHIP.begins
        self.refusal = ""
        """Why no cluster takes it; empty while one may."""
        self.way_in = ""
        """What an operator can do while no cluster admits it; empty: nothing yet."""
        self.detector = FailureDetector(timing.suspect_after_ns, 2 * timing.heartbeat_ns)
        self.evicted_without_majority: set[MemberId] = set()
        """Members that the operator has evicted without a majority: they do not count in majorities of the view."""
        self.evicted: dict[MemberId, None] = {}
        """Members that the operator has evicted, the last ones, in this order: they were suspected at once, and are not
        admitted again (membership/V-9).
        """
        self.intents = DesiredState(self.me, out)
        self.files = KnownFiles(identity.seen)
        self.numbers_from = 0
        """As master: the highest number that a view of an earlier time is known to have had."""
        self.carried: list[tuple[int, Assignment]] = []
        """Assignments that members left out of the present view knew (membership/A-2)."""
        self.fenced_since: dict[MemberId, int] = {}
        """Since when members say that they have accepted a next view."""
        self.evicted_at_ns: int | None = None
        """When somebody was last removed, or heard though removed."""
        self.members_changed_ns = 0
        """Since when just these members are here, as far as this one knows."""

    def step(self, step: MembershipStep) -> None:
        self.state = MEMBERSHIP.after(self.state, step)
        assert self.view is not None or self.state not in HAVING_A_VIEW, (
            "who is in a view, or leaves with it, has it"
        )
        assert self.view is None or self.state not in SEEKING, "who looks for a cluster is in none"

    # -- what others ask

    @property
    def admitted(self) -> bool:
        """Whether this member is in the newest view that it knows."""
        return self.state is MembershipState.MEMBER

    @property
    def has_left(self) -> bool:
        """Whether this member has left for good."""
        state = self.state
        return state is MembershipState.PARTING or state is MembershipState.GONE

    @property
    def master(self) -> MemberId | None:
        """The oldest member of the view."""
        return self.view.members[0].uuid if self.view and self.view.members else None

    @property
    def is_master(self) -> bool:
        """Whether this member leads."""
        return self.master == self.me and self.admitted

    def is_member(self, member: MemberId) -> bool:
        """Whether it is in the view."""
        return self.member(member) is not None

    def hears(self, member: MemberId) -> bool:
        """Whether this member is in the cluster, and has heard of that one not long ago."""
        return self.admitted and self.detector.hears(member, self._out.now_ns)

    def member(self, uuid: MemberId | None) -> MemberInfo | None:
        """The member's entry in the view."""
        return next((info for info in self.members() if info.uuid == uuid), None)

    def members(self) -> list[MemberInfo]:
        """The members of the view, oldest first; none before admission."""
        return list(self.view.members) if self.view else []

    def missing(self) -> list[MemberInfo]:
        """Who has gone while the table is frozen, and keeps its slots."""
        return self.view.missing if self.view else []

    @property
    def ending(self) -> bool:
        """Whether the cluster is being shut down."""
        return self.view is not None and self.view.ending

    @property
    def known_by_all(self) -> bool:
        """Whether every member has said that it has the present view, and so the state of the cluster."""
        here = {info.uuid for info in self.members()}
        return self.admitted and self.intents.heard_from >= here

    def is_quorum(self, members: set[MemberId]) -> bool:
        """Whether these members can decide for the view."""
        assert self.view is not None
        return not self._majority or is_quorum(self.view, members)

    def may_decide(self, view: View, members: set[MemberId]) -> bool:
        """Whether these members can decide on the view after this one: membership/A-1, and membership/V-6."""
        if not self._majority:
            return True
        counted = [info for info in view.members if info.uuid not in self.evicted_without_majority]
        return is_quorum(msgspec.structs.replace(view, members=counted), members)

    @property
    def cluster_state(self) -> ClusterState:
        """What the operator allows; ACTIVE before admission."""
        return self.view.state if self.view is not None else ClusterState.ACTIVE

    @property
    def leaving(self) -> bool:
        """Whether this member wants to leave."""
        return self.intents.mine is Intent.LEAVE

    @property
    def departing(self) -> set[MemberId]:
        """Who shall hold no partition any more: leavers, and data members that want to be lite."""
        return self.intents.departing(self.view) if self.view is not None else set()

    def may_hold(self, info: MemberInfo) -> bool:
        """Whether this member of the view may hold partitions: membership/B-3, and it is no lite one."""
        return self.view is not None and self.view.may_hold(info)

    def data_members(self) -> list[MemberInfo]:
        """Members that may hold partitions, and go on doing so."""
        departing = self.departing
        return [info for info in self.members() if self.may_hold(info) and info.uuid not in departing]

    def outside(self) -> list[MemberInfo]:
        """Members that hold nothing because they are not in the baseline."""
        view = self.view
        return [info for info in view.members if not info.lite and view.is_outside(info)] if view else []

    def away(self) -> tuple[BaselineMember, ...]:
        """Members of the baseline that have gone, and whose places are kept."""
        return self.view.baseline.away if self.view is not None and self.view.baseline is not None else ()

    @property
    def adjusts_in_ms(self) -> int | None:
        """In how long the baseline becomes who is here, if nobody comes or goes; None: it is that, or stays so."""
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
        """Whether somebody was removed, or heard though removed, so short a time ago that he may be about to come back.

        Only whether the last member may take everything with it depends on this time; no safety rule does.
        """
        since = self.evicted_at_ns
        return since is not None and self._out.now_ns - since < RETURN_FACTOR * self.timing.suspect_after_ns
