"""Preference of returning members for partitions that they have files of, where that changes nothing else.

Among equal choices of the layout a partition that a member would have to get whole is exchanged for one that needs only
a delta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from holdfast.core.model.migration import ReplicaList


def kept_first(partitions: int, kept: Mapping[str, AbstractSet[int]]) -> list[int]:
    """Among equals the layout takes the first partition in this order."""
    wanted = set().union(*kept.values())
    return sorted(range(partitions), key=lambda partition: (partition not in wanted, partition))


def preferring(
    now: Sequence[ReplicaList],
    targets: Sequence[ReplicaList],
    kept: Mapping[str, AbstractSet[int]],
    group_of: Mapping[str, str],
) -> list[ReplicaList]:
    """Every member keeps its number of replicas at each index, and no additional replica is copied. `now`: the present
    rows; `kept`: partitions in files by member; `group_of`: failure group of each member that may be in a target.
    """
    rows = list(targets)
    for member in sorted(kept):
        _exchange_whole(now, rows, member, kept[member])
        _exchange_slots(now, rows, member, kept[member], group_of)
    return rows


def _comes(now: ReplicaList, target: ReplicaList, member: str) -> bool:
    return member in target and member not in now


def _exchange_whole(
    now: Sequence[ReplicaList], rows: list[ReplicaList], member: str, kept: AbstractSet[int]
) -> None:
    """Exchange the targets of two partitions with the same present row: this changes nothing else."""
    wanted: dict[ReplicaList, list[int]] = {}
    for partition in sorted(kept):
        if partition < len(rows) and member not in rows[partition] and member not in now[partition]:
            wanted.setdefault(now[partition], []).append(partition)
    for partition, row in enumerate(rows):
        if partition not in kept and _comes(now[partition], row, member):
            others = wanted.get(now[partition])
            if others:
                other = others.pop()
                rows[partition], rows[other] = rows[other], row


def _exchange_slots(
    now: Sequence[ReplicaList],
    rows: list[ReplicaList],
    member: str,
    kept: AbstractSet[int],
    group_of: Mapping[str, str],
) -> None:
    """Exchange the members at one index of two partitions, if that copies no additional replica."""
    wanted = [p for p in sorted(kept) if p < len(rows) and member not in rows[p] and member not in now[p]]
    for partition in range(len(rows)):
        if not wanted:
            return
        row = rows[partition]
        if partition in kept or not _comes(now[partition], row, member):
            continue
        slot = row.index(member)
        for place, other in enumerate(wanted):
            theirs = rows[other]
            if slot >= len(theirs) or theirs[slot] is None:
                continue
            mine, his = _with(row, slot, theirs[slot]), _with(theirs, slot, member)
            before = _copied(now[partition], row) + _copied(now[other], theirs)
            after = _copied(now[partition], mine) + _copied(now[other], his)
            if after <= before and _apart(mine, group_of) and _apart(his, group_of):
                rows[partition], rows[other] = mine, his
                del wanted[place]
                break


def _with(row: ReplicaList, slot: int, member: str | None) -> ReplicaList:
    return (*row[:slot], member, *row[slot + 1 :])


def _copied(now: ReplicaList, target: ReplicaList) -> int:
    return sum(member is not None and member not in now for member in target)


def _apart(row: ReplicaList, group_of: Mapping[str, str]) -> bool:
    groups = [group_of.get(member, member) for member in row if member is not None]
    return len(set(groups)) == len(groups)
