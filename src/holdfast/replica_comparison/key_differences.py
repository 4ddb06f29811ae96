"""The keys in which replicas of a map in one partition differ. Only the key ranges that differ are read.

Writes continue: a value on its way from the primary to a backup is no difference. The reference is read
before and after the others; a key counts only if it was the same there both times, and a replica only if it
had applied by then everything that the reference held at the first reading, or is known to stand still at
another counter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.client.blocking import Client, pages_of
from holdfast.client.cut_handles import Cut, end_cut, take_cut
from holdfast.client.replica_questions import (
    CANNOT_ASK,
    PAGE_BYTES,
    PAGE_ROWS,
    Connects,
    EntryCopy,
    ReplicaPage,
    ask_ranges,
    read_ranges,
)
from holdfast.core.store.digest import RANGES
from holdfast.core.store.replica_comparison import Finding
from holdfast.replica_comparison.comparison_report import KeyFinding, key_finding
from holdfast.wire import own

TRIES = 4
PAUSE_S = 0.2
CUT_LEASE_S = 120.0
CUT_LOOKS = 8
CUT_PAUSE_S = 0.1

Pause = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Differences:
    partition: int
    map: str
    members: tuple[str, ...]
    """Members whose replicas were read: the reference first, then by replica index."""
    entries: dict[bytes, dict[str, EntryCopy]]
    """Key -> member -> entry; without members that do not hold the key."""

    def rows(self, limit: int | None = None) -> list[KeyFinding]:
        """A row for each replica of these keys, or of the first `limit` ones."""
        return [
            key_finding(self.partition, self.map, key, member, value_of(held.get(member)))
            for key, held in list(self.entries.items())[:limit]
            for member in self.members
        ]


def find_differences(
    client: Connects, findings: Sequence[Finding], *, pause: Pause = time.sleep
) -> Differences | None:
    """None if the partition never stands still. `findings`: of one map in one partition; equal ones take
    part, since their replicas vote. Replicas that could not be compared are left out.
    """
    compared = [
        one for one in findings if one.verdict in ("equal", "differs") and (one.kept or one.content_conflict)
    ]
    for attempt in range(1, TRIES + 1):
        found = _read_at_cut(client, compared, pause) if compared[0].zone else _read(client, compared)
        if found is not None:
            return found
        if attempt < TRIES:
            pause(PAUSE_S * attempt)
    return None


def _read(client: Connects, findings: Sequence[Finding]) -> Differences | None:
    partition, name = findings[0].partition, findings[0].map
    reference = next((one.reference for one in findings if one.content_conflict), findings[0].reference)
    ordered = sorted(
        (one for one in findings if one.member != reference), key=lambda one: (one.replica, one.member)
    )
    members = (reference, *(one.member for one in ordered))
    answers = ask_ranges(client, members, partition, name)
    if len(answers) < len(members) or len({ranges.version for ranges in answers.values()}) != 1:
        return None
    # A member without any replica returns no ranges: it holds nothing in each.
    columns = [ranges.digests or [0] * RANGES for ranges in answers.values()]
    wanted = [at for at in range(RANGES) if len({digests[at] for digests in columns}) > 1]
    if not wanted:
        return Differences(partition, name, members, {})
    first = read_ranges(client, reference, partition, name, wanted)
    others = {member: read_ranges(client, member, partition, name, wanted) for member in members[1:]}
    again = read_ranges(client, reference, partition, name, wanted)
    if first is None or again is None:
        return None
    parts = {reference: first}
    for finding in ordered:
        part = others[finding.member]
        if part is None or not _arrived(finding, first, part, again):
            return None
        parts[finding.member] = part
    return Differences(partition, name, members, keys_that_differ(parts, first, again))


def _read_at_cut(client: Connects, findings: Sequence[Finding], pause: Pause) -> Differences | None:
    """The same for replicas of a zone, which a new cut shows at one index; None if one of them does not keep
    it.
    """
    assert isinstance(client, Client), "only a cluster has zones"
    partition, name = findings[0].partition, findings[0].map
    members = (findings[0].reference, *sorted(one.member for one in findings))
    cut = take_cut(client, [name], lease_s=CUT_LEASE_S, partitions=[partition])
    try:
        parts: dict[str, ReplicaPage] = {}
        for member in members:
            part = parts[member] = ReplicaPage(cut.marks[name, partition].counter, {})
            for page in _pages_at_cut(client, member, cut, name, partition, pause):
                keys, values = page.columns.split()
                part.entries.update(zip(keys, map(EntryCopy, values), strict=True))
    except CANNOT_ASK:
        return None
    finally:
        end_cut(client, cut)
    first = parts[members[0]]
    return Differences(partition, name, members, keys_that_differ(parts, first, first))


def _pages_at_cut(
    client: Client, member: str, cut: Cut, name: str, partition: int, pause: Pause
) -> list[own.Page]:
    """A holder of a cut may have to catch up first. Raises one of `CANNOT_ASK`."""
    question = own.Scan(0, name, partition, PAGE_ROWS, PAGE_BYTES, cut=cut.id)
    for look in range(1, CUT_LOOKS):
        try:
            return pages_of(client.to(member), question)
        except CANNOT_ASK:
            pause(CUT_PAUSE_S * look)
    return pages_of(client.to(member), question)


def _arrived(finding: Finding, first: ReplicaPage, part: ReplicaPage, again: ReplicaPage) -> bool:
    """Whether nothing that the reference held at first can still be on its way to this replica."""
    if not (finding.counter_conflict and finding.kept):
        return not finding.kept or part.counter >= first.counter
    before = (finding.reference_counter, finding.reference_counter, finding.counter)
    return (first.counter, again.counter, part.counter) == before


def keys_that_differ(
    parts: dict[str, ReplicaPage], first: ReplicaPage, again: ReplicaPage
) -> dict[bytes, dict[str, EntryCopy]]:
    """The keys that not all parts hold with the same value, without those that changed meanwhile."""
    found: dict[bytes, dict[str, EntryCopy]] = {}
    for key in dict.fromkeys(key for part in parts.values() for key in part.entries):
        if value_of(first.entries.get(key)) != value_of(again.entries.get(key)):
            continue
        if len({value_of(part.entries.get(key)) for part in parts.values()}) > 1:
            found[key] = {member: part.entries[key] for member, part in parts.items() if key in part.entries}
    return found


def value_of(entry: EntryCopy | None) -> bytes | None:
    return entry.value if entry is not None else None
