"""In which keys do the copies of a map in one partition differ? Only the key ranges that differ are read.

The cluster goes on: a value that is on its way from the primary to a backup is no difference. The primary is read
before and after the backups; a key counts only if it was the same there both times, and a backup only if it had applied
by then all that the primary had done at the first reading, or is known to stand still at another counter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.client.blocking import Client
from holdfast.client.replica_questions import EntryCopy, ReplicaPage, ask_ranges, read_ranges
from holdfast.client.verification import Finding
from holdfast.core.store.digest import RANGES

TRIES = 4
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Differences:
    """The keys in which copies of one map in one partition differ."""

    partition: int
    map: str
    members: tuple[str, ...]
    """Whose copies were read, the primary first, then the backups by replica index."""
    ranges: int
    """How many of the 64 key ranges differ: what was read of each copy."""
    entries: dict[bytes, dict[str, EntryCopy]]
    """Key -> member -> what it holds; without members that do not hold the key."""


def find_differences(
    client: Client, findings: Sequence[Finding], *, pause: Callable[[float], None] = time.sleep
) -> Differences | None:
    """The differing keys of one map in one partition, of which these are the findings; None if it never stands still.

    Findings that are equal take part: their copies vote. Those that could not be compared must not be among them.
    """
    for attempt in range(1, TRIES + 1):
        found = _read(client, findings)
        if found is not None:
            return found
        if attempt < TRIES:
            pause(PAUSE_S * attempt)
    return None


def _read(client: Client, findings: Sequence[Finding]) -> Differences | None:
    partition, name, owner = findings[0].partition, findings[0].map, findings[0].owner
    ordered = sorted(findings, key=lambda finding: finding.replica)
    members = (owner, *(finding.member for finding in ordered))
    told = ask_ranges(client, members, partition, name)
    if len(told) < len(members) or len({ranges.version for ranges in told.values()}) != 1:
        return None
    # A member without any copy says nothing of ranges: it holds nothing in each.
    columns = [ranges.digests or [0] * RANGES for ranges in told.values()]
    wanted = [at for at in range(RANGES) if len({digests[at] for digests in columns}) > 1]
    if not wanted:
        return Differences(partition, name, members, 0, {})
    first = read_ranges(client, owner, partition, name, wanted)
    others = {member: read_ranges(client, member, partition, name, wanted) for member in members[1:]}
    again = read_ranges(client, owner, partition, name, wanted)
    if first is None or again is None:
        return None
    parts = {owner: first}
    for finding in ordered:
        part = others[finding.member]
        if part is None or not _arrived(finding, first, part, again):
            return None
        parts[finding.member] = part
    return Differences(partition, name, members, len(wanted), keys_that_differ(parts, first, again))


def _arrived(finding: Finding, first: ReplicaPage, part: ReplicaPage, again: ReplicaPage) -> bool:
    """Whether nothing of what the primary held at first can still be on its way to this copy."""
    if not finding.counter_conflict:
        return part.counter >= first.counter
    before = (finding.owner_counter, finding.owner_counter, finding.counter)
    return (first.counter, again.counter, part.counter) == before


def keys_that_differ(
    parts: dict[str, ReplicaPage], first: ReplicaPage, again: ReplicaPage
) -> dict[bytes, dict[str, EntryCopy]]:
    """The keys that not all parts hold with the same value, without those that were changed meanwhile."""
    found: dict[bytes, dict[str, EntryCopy]] = {}
    for key in dict.fromkeys(key for part in parts.values() for key in part.entries):
        if value_of(first.entries.get(key)) != value_of(again.entries.get(key)):
            continue
        if len({value_of(part.entries.get(key)) for part in parts.values()}) > 1:
            found[key] = {member: part.entries[key] for member, part in parts.items() if key in part.entries}
    return found


def value_of(entry: EntryCopy | None) -> bytes | None:
    """The value, or None for no entry: what copies are compared by."""
    return entry.value if entry is not None else None
