"""Conditions for a member to leave, as far as the evaluating member knows."""

from __future__ import annotations

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import Intent


def leave_blocker(
    member: MemberId, rows: list[Assignment], membership: MembershipStatus, complete: int
) -> str:
    """Why the member cannot leave, with advice; empty: it can. `complete`: number of replicas, from the owner on, that
    hold every map.
    """
    members = membership.members()
    present = {info.uuid for info in members}
    going = {m for m in present if membership.intents.of(m) is Intent.LEAVE}
    state = membership.cluster_state
    if any(membership.may_hold(info) and info.uuid not in going for info in members):
        if state.migrates:
            left = sum(member in row.replicas for row in rows)
            return f"{left} partition replicas are still here" if left else ""
        only = _only_here(member, rows, present - going, complete)
        return (
            f"the cluster is {state}: this member holds the only copy of {only} partitions; "
            "set the state to active, so that they can move"
            if only
            else ""
        )
    # All data members leave: the cluster ends, unless an absent member holds what no present one does. By order it ends
    # all the same.
    if membership.ending:
        return ""
    if membership.may_be_missed:
        return "all data members leave, and one that was just removed may return"
    gone = sum(not present.intersection(row.replicas) for row in rows if row.version)
    return (
        f"all data members leave, and {gone} partitions have no copy here; "
        "start the members that hold them, or stop this member at once"
        if gone
        else ""
    )


def _only_here(member: MemberId, rows: list[Assignment], staying: set[MemberId], complete: int) -> int:
    """Partitions that this member holds, and no staying member with every map."""
    return sum(
        member in row.replicas and not staying.intersection(filter(None, row.holding[:complete]))
        for row in rows
    )
