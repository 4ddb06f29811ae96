"""Liveness and readiness of a member, for supervisors and load balancers.

- observe/H-1: A member is ready when it has joined, knows the partition table, and is not leaving.
- observe/H-2: Readiness ignores whether the cluster is safe. Otherwise a load balancer would take away the remaining
  members just when a failed member makes them necessary.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.member import Member
from holdfast.core.membership.membership_status import MembershipState


@dataclass(frozen=True, slots=True)
class Health:
    not_live: str = ""
    """Reason to restart it."""
    not_ready: str = ""
    """Reason to send no clients to it now."""


STANDINGS = {
    MembershipState.JOINING: "it is looking for the cluster",
    MembershipState.EXILED: "the cluster has removed it, and it is rejoining",
    MembershipState.PARTING: "it has left the cluster",
    MembershipState.GONE: "it has left the cluster",
}
"""A member in another state may be ready."""


def unready_reason(member: Member) -> str:
    picture = member.picture
    if picture.refusal:
        return f"no cluster admits it: {picture.refusal}"
    standing = MembershipState(picture.state)
    if standing in STANDINGS:
        return STANDINGS[standing]
    if picture.leaving:
        return "it is leaving: " + (picture.leave_blocker() or "waiting for the other members to confirm")
    if picture.ending:
        return "the cluster is shutting down"
    if not picture.assigned:
        missing = picture.waits_for_members
        waits = f", for {missing} more data members" if missing else ""
        return f"partitions are not assigned yet{waits}"
    return ""
