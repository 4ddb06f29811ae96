"""Judge of leaks: in a cluster at rest no member keeps foreign or outdated state."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import SECOND, place_of
from holdfast.core.model.transactions import BranchState, decode_lock, transaction_of
from holdfast.core.operations.transaction_branches import TransactionBranches
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy

OVER_NS = 10 * SECOND
"""How long after its end an entry, and notes about it, may remain, since only some are swept at a time."""


def judge(members: Sequence[MemberView]) -> list[str]:
    problems: list[str] = []
    for member in members:
        name = member.info.name
        left = [f"{count} left: {what}" for what, count in member.leftovers().items()]
        found = left + _copies(member) + _zones(member) + _subscriptions(member, members)
        problems += [f"{name}: {problem}" for problem in found]
    return problems


def _copies(member: MemberView) -> list[str]:
    problems: list[str] = []
    for partition, row in enumerate(member.assignments):
        index = row.index_of(member.me)
        owner = row.owner == member.me
        if (member.serves(partition) or partition in member.primary_of) and not owner:
            problems.append(f"partition {partition}: in office, and not the owner")
        copy = member.held.get(partition)
        if copy is None:
            continue
        if index < 0:
            problems.append(f"partition {partition}: keeps a copy that is not its own")
            continue
        problems += [f"partition {partition}: {what}" for what in _locks(copy, owner=owner)]
        for held in copy:
            if not member.maps.holds(held.name, index):
                problems.append(
                    f"partition {partition}: keeps map {held.name}, which index {index} does not hold"
                )
            if isinstance(held.state, MapState):
                found = _entries(held.state, member.now_ns - OVER_NS, backup=not owner)
                problems += [f"partition {partition}: map {held.name}: {what}" for what in found]
    return problems


def _locks(copy: PartitionCopy, *, owner: bool) -> list[str]:
    """Locks of transactions that have ended: a look later those of running ones are gone."""
    kept = copy.maps.get(TRANSACTIONS_MAP)
    stored = kept.state.entries if kept is not None else {}
    entries = {key: decode_lock(value) for key, value in stored.items() if transaction_of(key) is None}
    problems = [] if owner or not copy.locks.held else ["locks in memory, and not the owner"]
    problems += (
        [] if entries.keys() <= copy.locks.held.keys() or not owner else ["stored locks that are not held"]
    )
    return problems + [f"a lock of {lock.transaction.hex()}" for lock in (copy.locks.held | entries).values()]


def _zones(member: MemberView) -> list[str]:
    """Locks and prepared branches of transactions in the replicas of zones."""
    problems: list[str] = []
    for replica in member.consensus.zones.replicas():
        zone, group = place_of(replica.number)
        if replica.locks.count and not replica.leads:
            problems.append(f"zone {zone}: group {group}: locks of a leader, and does not lead")
        for partition, copy in replica.state.copies.items():
            held = dict(copy.locks.held)
            if replica.locks.count:
                held |= replica.locks.of(partition).held
            branches = TransactionBranches(copy, 0).all_branches()
            prepared = {name for name, branch in branches if branch.state is BranchState.PREPARED}
            found = [f"a prepared branch of {name.hex()}" for name in sorted(prepared)]
            found += [f"a lock of {lock.transaction.hex()}" for lock in held.values()]
            problems += [f"zone {zone}: partition {partition}: {what}" for what in found]
    return problems


def _entries(held: MapState, since_ns: int, *, backup: bool) -> list[str]:
    """Notes about entries that do not exist, or should have ended before `since_ns`. `backup`: the primary
    decides when entries of this copy end.
    """
    problems: list[str] = []
    if not held.expiries.keys() <= held.entries.keys():
        problems.append("expiries of entries that are gone")
    if not held.hashes.keys() <= held.entries.keys():
        problems.append("hashes of keys that are gone")
    # A noted deadline is postponed when it comes up, so it is only left over if its entry is gone or has
    # really ended. In a table the deadline is part of the entry, which a backup keeps as long as its primary
    # does.
    waits = backup and held.packed is not None
    first = held.endings.first_ns
    if first is not None and first < since_ns:
        of_it = [one for one in held.expiries.values() if one.noted_ns == first]
        if not any(waits or one.deadline_ns() >= since_ns for one in of_it):
            problems.append("deadlines that are over")
    return problems


def _subscriptions(member: MemberView, members: Sequence[MemberView]) -> list[str]:
    problems: list[str] = []
    names = {name for other in members for name in other.subscribed_maps}
    for name in sorted(names):
        wrong = 0
        for relayed in (False, True):
            wanting = {
                other.me
                for other in members
                if other is not member and name in other.cluster_subscriptions(relayed=relayed)
            }
            wrong += len(member.subscribers(name, relayed=relayed) ^ wanting)
        if wrong:
            problems.append(f"{wrong} subscriptions of map {name} are wrong")
    if member.listening != member.subscribed_maps:
        problems.append(
            f"listens for {sorted(member.listening)}, wanted are {sorted(member.subscribed_maps)}"
        )
    return problems
