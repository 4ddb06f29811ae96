"""Are replicas equal? Digests are compared at a *point* of the update counter, wherever they come from.

A point is the epoch, term and counter of a map in a partition. Replicas at the same point have applied the same
updates, so they must hold the same entries. Others cannot be compared: a write may be on its way. Example: the primary
is at 120 and a backup at 117. Their digests may differ. If both are at 120 and the digests differ, one of them is
damaged, however much is written meanwhile.

A replica of a Raft partition is compared at a cut, which is at one index of its log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

Verdict = Literal["equal", "differs", "older", "busy", "unreachable", "uncertain"]
"""`older`: in files, the replica stopped at an earlier point, which is no error. `busy`: it was never seen at the point
of its reference, or the partition moves. `unreachable`: it does not respond, or its partition is not served.
`uncertain`: it differs, and its files are known to be incomplete.
"""

Relation = Literal["equal", "differs", "behind", "ahead", "parted"]
"""`differs`: other content at the same point. `parted`: another epoch or term."""

LOOKS = 3
"""Looks that must show the same difference."""
LOOKS_MAX = 12
"""Looks at replicas that never stand still."""
LOOKS_SURE = 2
"""With other content at the same point they prove damage, if no look has shown the replicas equal since."""


class Point(NamedTuple):
    epoch: int
    """Raised when the partition starts empty after a loss."""
    term: int
    """Term of the last update."""
    counter: int


def relate(point: Point, content: object, reference: Point, reference_content: object) -> Relation:
    if point == reference:
        return "equal" if content == reference_content else "differs"
    if point.epoch != reference.epoch or point.counter == reference.counter:
        return "parted"
    return "behind" if point.counter < reference.counter else "ahead"


class ReplicaDigest(msgspec.Struct, frozen=True):
    """The state of one replica of one map in one partition."""

    member: str
    """UUID, address, node or directory."""
    partition: int
    map: str
    counter: int
    entries: int
    digest: int
    epoch: int = 0
    lineage: tuple[tuple[int, int], ...] = ()
    """Terms of the updates: from the counter start + 1 on, ascending."""
    index: int = 0
    """Log entry at which a Raft replica was read; 0: another engine."""
    doubt: str = ""
    """Why this may be incomplete; empty: it is complete."""

    @property
    def term(self) -> int:
        return self.term_of(self.counter)

    def term_of(self, counter: int) -> int:
        return next((term for term, start in reversed(self.lineage) if start < counter), 0)

    @property
    def point(self) -> Point:
        return Point(self.epoch, 0 if self.index else self.term, self.index or self.counter)

    @property
    def updates(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Counter and lineage of a Raft replica; they are the same at one index of the log."""
        return (self.counter, self.lineage) if self.index else (0, ())

    @property
    def content(self) -> tuple[object, int, int]:
        return self.updates, self.entries, self.digest

    @property
    def empty(self) -> bool:
        return not (self.counter or self.entries or self.digest)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of one map in one partition, compared with its reference."""

    partition: int
    map: str = ""
    """Empty: nothing could be compared."""
    member: str
    verdict: Verdict
    reason: str = ""
    reference: str = ""
    """The primary, the newest replica, or one of the majority."""
    replica: int = 0
    kept: bool = True
    """The replica must hold the map; false for maps with fewer backups than others."""
    zone: str = ""
    """Zone of a Raft partition; empty: another engine."""
    leads: bool = False
    index: int = 0
    """Log entry at which Raft replicas were compared."""
    epoch: int = 0
    term: int = 0
    counter: int = 0
    entries: int = 0
    digest: str = ""
    reference_epoch: int = 0
    reference_term: int = 0
    reference_counter: int = 0
    reference_entries: int = 0
    reference_digest: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.map, self.member

    @property
    def parted(self) -> bool:
        """Whether the replica has other updates than its reference."""
        return (self.epoch, self.term, self.counter) != (
            self.reference_epoch,
            self.reference_term,
            self.reference_counter,
        )

    @property
    def counter_conflict(self) -> bool:
        return self.verdict == "differs" and self.parted

    @property
    def content_conflict(self) -> bool:
        mine, theirs = (self.entries, self.digest), (self.reference_entries, self.reference_digest)
        return self.verdict == "differs" and mine != theirs

    @property
    def undecided(self) -> bool:
        return self.verdict in ("busy", "unreachable", "uncertain")


def compare(copy: ReplicaDigest, reference: ReplicaDigest) -> Finding:
    """Compare one replica with another one; at another point it is `older`.

    Raft replicas at different indexes can be compared when the map has the same updates at both: entries of the log
    between them were of other maps. Files mostly have them so, because a follower learns with the next entry that one
    is committed.
    """
    relation = relate(copy.point, copy.content, reference.point, reference.content)
    if copy.index != reference.index and copy.lineage and copy.updates == reference.updates:
        relation = "equal" if copy.content == reference.content else "differs"
    verdict: Verdict
    if relation == "equal":
        verdict, reason = "equal", ""
    elif relation != "differs":
        verdict, reason = "older", _distance(copy, reference)
    elif copy.doubt or reference.doubt:
        verdict, reason = "uncertain", copy.doubt or f"{reference.member}: {reference.doubt}"
    else:
        same = copy.updates == reference.updates
        what = "the same updates, other entries" if same else "other updates at the same index of the log"
        verdict, reason = "differs", what
    return Finding(
        partition=copy.partition,
        map=copy.map,
        member=copy.member,
        verdict=verdict,
        reason=reason,
        reference=reference.member,
        index=copy.index,
        epoch=copy.epoch,
        term=copy.term,
        counter=copy.counter,
        entries=copy.entries,
        digest=f"{copy.digest:016x}",
        reference_epoch=reference.epoch,
        reference_term=reference.term,
        reference_counter=reference.counter,
        reference_entries=reference.entries,
        reference_digest=f"{reference.digest:016x}",
    )


def _distance(copy: ReplicaDigest, reference: ReplicaDigest) -> str:
    if copy.epoch != reference.epoch:
        return f"of another life of the partition, {copy.epoch} instead of {reference.epoch}"
    if copy.index or reference.index:
        distance = copy.index - reference.index
        return f"{abs(distance)} entries of the log {'ahead' if distance > 0 else 'behind'}"
    common = reference.term_of(copy.counter)
    superseded = copy.counter > reference.counter or (common and common != copy.term)
    if copy.term and copy.term < reference.term and superseded:
        return f"its last updates are of term {copy.term}, which others did not take over"
    if copy.counter == reference.counter:
        return f"its last update is of term {copy.term} instead of {reference.term}"
    distance = copy.counter - reference.counter
    words = f"{distance} updates ahead" if distance > 0 else f"{-distance} updates behind"
    return f"{words} ({copy.doubt})" if copy.doubt else words


def compare_with_newest(copies: Sequence[ReplicaDigest], preferred: str = "") -> list[Finding]:
    """All replicas of one map in one partition. Among equally new ones the reference is one of the majority, so that a
    single deviating replica is reported; without a majority it is the replica of `preferred`.
    """
    if len(copies) < 2:
        return []
    votes = Counter((copy.point, copy.content) for copy in copies)
    newest = max(
        copies,
        key=lambda copy: (
            copy.point,
            not copy.doubt,
            votes[copy.point, copy.content],
            copy.member == preferred,
        ),
    )
    return [compare(copy, newest) for copy in copies if copy is not newest]


class Looks:
    """Findings of repeated looks at the replicas of one partition while its members run and write.

    A replica that one look showed equal is equal. Other content at the same point is damage. Replicas at different
    points are looked at again, until they stood still at different points for some looks.
    """

    def __init__(self) -> None:
        self._last: list[Finding] = []
        self._equal: dict[tuple[str, str], Finding] = {}
        self._references: set[tuple[str, str]] = set()
        """Map and member that another replica was equal to."""
        self._damaged: dict[tuple[str, str], tuple[int, Finding]] = {}
        """Looks with other content at the same point, and the last one."""
        self._still: dict[tuple[str, str], int] = {}
        """Looks in a row with the same finding."""
        self._looks = 0

    def add(self, findings: list[Finding], *, unfinished: bool = False) -> bool:
        """Returns whether no further look is needed.

        `unfinished`: some write waits for a replica, so a replica that is behind may catch up.
        """
        self._looks += 1
        before = {finding.key: finding for finding in self._last}
        still: dict[tuple[str, str], int] = {}
        for finding in findings:
            key = finding.key
            if finding.verdict == "equal":
                self._equal[key] = finding
                self._references.add((finding.map, finding.reference))
                self._damaged.pop(key, None)
            elif finding.verdict == "differs" and not finding.parted:
                self._damaged[key] = self._damaged.get(key, (0, finding))[0] + 1, finding
                self._equal.pop(key, None)
            else:
                still[key] = self._still.get(key, 0) + 1 if finding == before.get(key) else 1
        self._last, self._still = findings, still
        return self._looks >= LOOKS_MAX or all(
            self._decided(finding.key)
            or (self._still.get(finding.key, 0) >= LOOKS and not (unfinished and finding.parted))
            for finding in findings
        )

    def _decided(self, key: tuple[str, str]) -> bool:
        damaged = self._damaged.get(key)
        return damaged[0] >= LOOKS if damaged else key in self._equal or key in self._references

    def findings(self) -> list[Finding]:
        """Replicas that were neither equal nor damaged nor still are busy."""
        found = dict(self._equal)
        for finding in self._last:
            key = finding.key
            if key in self._equal:
                continue
            if self._damaged.get(key, (0, finding))[0] >= LOOKS_SURE:
                found[key] = self._damaged[key][1]
            elif finding.verdict in ("differs", "older"):
                firm = finding.verdict == "differs" and self._still.get(key, 0) >= LOOKS
                if firm:
                    found[key] = finding
                elif finding.verdict == "differs" or key not in self._references:
                    reason = f"{finding.reason}, at {self._looks} looks"
                    found[key] = msgspec.structs.replace(finding, verdict="busy", reason=reason)
            else:
                found[key] = finding
        return sorted(found.values(), key=lambda one: (one.map, one.replica, one.member))
