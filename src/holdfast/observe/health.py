"""Does a member live, and should clients be sent to it? For whoever starts members, and for load balancers.

- observe/H-1: A member is ready when it is in the cluster, knows where the partitions are, and does not want to leave.
- observe/H-2: Whether the cluster is safe has no say in it: a member that is needed more than ever is not taken away.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.member import Member
from holdfast.core.membership.membership_status import MembershipState


@dataclass(frozen=True, slots=True)
class Health:
    """How a member is, in words; empty means well."""

    not_live: str = ""
    """Why it has to be started anew."""
    not_ready: str = ""
    """Why nobody should be sent to it now."""


STANDINGS = {
    MembershipState.JOINING: "it looks for the cluster",
    MembershipState.EXILED: "the cluster has removed it, and it asks to return",
    MembershipState.PARTING: "it has left the cluster",
    MembershipState.GONE: "it has left the cluster",
}
"""What is told of the states in which nobody should come."""


def unready_reason(member: Member) -> str:
    """Why nobody should be sent to this member now, in words; empty: it is ready."""
    picture = member.picture
    if picture.refusal:
        return f"no cluster takes it: {picture.refusal}"
    standing = MembershipState(picture.state)
    if standing in STANDINGS:
        return STANDINGS[standing]
    if picture.leaving:
        return "it is leaving: " + (picture.leave_blocker() or "as soon as the others know")
    if picture.ending:
        return "the cluster is being shut down"
    if not picture.assigned:
        missing = picture.waits_for_members
        waits = f", for {missing} more data members" if missing else ""
        return f"partitions are not assigned yet{waits}"
    return ""
