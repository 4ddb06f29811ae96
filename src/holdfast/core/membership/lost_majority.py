"""Advice when a majority of the view is silent.

Heartbeats cannot distinguish a crashed member from one behind a cut cable. With members {A, B, C} and A, B silent, C
must wait: A and B may be serving clients. Only the operator can know that their processes have ended, and names each
(`member evict A B --without-majority`).

- membership/M-1: While a majority is heard, no order shrinks the cluster without it.
- membership/M-2: Only silent members are given up, and only if the others are then a majority of what remains.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.membership.view_agreement import is_quorum
from holdfast.core.model.ids import MemberId
from holdfast.core.model.views import MemberInfo


def called(members: Collection[MemberInfo]) -> str:
    """Names as commands accept them: the first digits of the UUID if a name is not unique."""
    names = [info.name for info in members]
    return " ".join(
        info.name if info.name and names.count(info.name) == 1 else info.uuid[:8] for info in members
    )


def silent_members(membership: MembershipStatus, now_ns: int) -> list[MemberInfo]:
    return [info for info in membership.members() if not _hears(membership, info.uuid, now_ns)]


def _hears(membership: MembershipStatus, member: MemberId, now_ns: int) -> bool:
    return member == membership.me or membership.detector.hears(member, now_ns)


def recovery_advice(membership: MembershipStatus, now_ns: int) -> str:
    """How to recover; empty while a majority is heard."""
    silent = silent_members(membership, now_ns)
    here = {info.uuid for info in membership.members()} - {info.uuid for info in silent}
    if membership.view is None or not membership.admitted or membership.may_decide(membership.view, here):
        return ""
    return (
        f"{len(silent)} of {len(membership.members())} members are silent; the rest is no majority and cannot continue "
        "without them. If they are only cut off, reconnect them. If their processes have ended, even if they were "
        f"restarted since: holdfast member evict {called(silent)} --without-majority"
    )


def eviction_rejection(
    membership: MembershipStatus, ended: Collection[MemberId], now_ns: int, *, without_majority: bool
) -> str:
    """See membership/M-1 and membership/M-2; empty: none."""
    if membership.me in ended:
        return "cannot evict the member that handles this request: send it through another member (-a)"
    known = {info.uuid: info for info in membership.members()}
    if unknown := sorted(set(ended) - known.keys()):
        return f"{', '.join(unknown)} is not a member: nothing to do"
    if not without_majority:
        return recovery_advice(membership, now_ns)
    if not recovery_advice(membership, now_ns):
        return (
            "a majority of the members responds and can agree to remove the others: omit --without-majority "
            f"(holdfast member evict {called([known[one] for one in ended])})"
        )
    if heard := [known[one] for one in ended if _hears(membership, one, now_ns)]:
        return (
            f"{called(heard)} responded recently, so it runs: end its process first, or do not name it "
            f"(holdfast member evict {called(silent_members(membership, now_ns))} --without-majority)"
        )
    assert membership.view is not None, "who hears no majority is in a view"
    rest = [info for info in membership.members() if info.uuid not in ended]
    left = msgspec.structs.replace(membership.view, members=rest)
    if not is_quorum(left, {info.uuid for info in rest if _hears(membership, info.uuid, now_ns)}):
        return (
            "even without them the rest is no majority: name all members that have ended "
            f"(holdfast member evict {called(silent_members(membership, now_ns))} --without-majority)"
        )
    return ""
