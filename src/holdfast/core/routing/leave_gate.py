"""Ends the requests of clients before a member leaves, so that their connections close without an unanswered request.

A client that uses one member alone cannot learn beforehand that the member leaves. If its connection closes while a
write is on its way, the client must report an unknown outcome, although no member failed.

- routing/R-17: A member that leaves, and has held nothing for `HELD_NOTHING_NS`, accepts no new request of a client: it
  rejects them as not applied, which clients retry by themselves. Those that it accepted before have the rest of
  `migration_master.PARTING_NS` to end. Example: a client of member 1 alone writes k=1, and member 1 forwards it to
  member 2. If member 1 left now, it would not receive the response.
- routing/R-18: A member that does not leave within `CLOSED_MAX_NS` after that accepts requests again, for at
  least `OPEN_MIN_NS`.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.routing.frame_forwarding import FrameForwarding
from holdfast.core.routing.lane_access import LaneAccess

CHECK_NS = 25 * MILLISECOND
HELD_NOTHING_NS = 100 * MILLISECOND
"""Clients that use all members send no requests here any more by then."""
CLOSED_MAX_NS = 2 * SECOND
OPEN_MIN_NS = 3 * SECOND
"""Longer than the pauses of clients between two tries."""


class LeavingMember(Protocol):
    def leave_blocker(self) -> str:
        """Why this member cannot leave yet; empty: it can."""


class LeaveGate:
    def __init__(
        self,
        out: Outbox,
        membership: MembershipStatus,
        access: LaneAccess,
        forwarding: FrameForwarding,
    ) -> None:
        self._out = out
        self._membership = membership
        self._access = access
        self._forwarding = forwarding
        self._since_ns: int | None = None
        """Since when this member could leave, as far as it knows."""

    def update(self, member: LeavingMember) -> None:
        """Called when the member begins to leave, in every view, and by its timer."""
        membership = self._membership
        if membership.has_left:
            self._set(leaving=True)
        elif membership.leaving:
            self._set(leaving=self._has_held_nothing(member))
            self._out.timer(TimerName.LEAVE_GATE, CHECK_NS)
        else:
            self._since_ns = None
            self._set(leaving=False)

    def _has_held_nothing(self, member: LeavingMember) -> bool:
        membership = self._membership
        if not membership.admitted or not membership.data_members() or member.leave_blocker():
            self._since_ns = None
            return False
        if self._since_ns is None:
            self._since_ns = self._out.now_ns
        waited_ns = self._out.now_ns - self._since_ns
        if waited_ns >= HELD_NOTHING_NS + CLOSED_MAX_NS + OPEN_MIN_NS:
            self._since_ns = None
        return HELD_NOTHING_NS <= waited_ns < HELD_NOTHING_NS + CLOSED_MAX_NS

    def _set(self, *, leaving: bool) -> None:
        if self._access.leaving is not leaving:
            self._access.leaving = leaving
            self._forwarding.look_at_all()
