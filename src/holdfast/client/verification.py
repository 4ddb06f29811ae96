"""Are all copies of every partition the same? Asked of a running cluster, without false alarms.

Every backup is compared with its primary, map by map: the update counters with their terms, and then the content, by
number of entries and digest. Copies that differ are looked at again: a write may have been on its way, or the
partition moved. A difference counts when several looks in a row have shown the very same one; what never stands still
is busy, and said to be. The tables of all members are compared, too. Maps that live in zones have no primary: their
replicas are compared as `zone_verification` says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from holdfast.client.blocking import Client
from holdfast.client.replica_questions import ask_digests, ask_tables
from holdfast.client.zone_verification import ZoneReport, compare_zones, zone_maps
from holdfast.client_core.routing import PASSING, RoutingTable, TableRow
from holdfast.wire.own import MapDigest, PartitionDigest

Verdict = Literal["equal", "differs", "busy", "unreachable"]
"""`busy`: the copies never stood still, or were never known to belong to the same row, at two looks in a row.
`unreachable`: the primary does not serve, or one of the two members does not answer."""

LOOKS = 3
"""So many looks in a row must show the same difference."""
LOOKS_BUSY = 12
"""How often at most copies are looked at that do not stand still."""
PAUSE_S = 0.15
"""After the first look, for a write that was on its way to arrive; each further pause is longer by the same."""
AT_A_TIME = 64
"""Partitions asked for together at the first look."""

Progress = Callable[[int, int, int], None]
"""Told: partitions that are decided, all that are looked at, and how often the rest was looked at so far."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One map in one partition: a backup against its primary. Without `map`: nothing could be compared."""

    partition: int
    map: str
    owner: str
    member: str
    replica: int
    """The replica index of `member`: 1 or more."""
    verdict: Verdict
    owner_counter: int = 0
    counter: int = 0
    owner_entries: int = 0
    entries: int = 0
    kept: bool = False
    """Whether the primary sends this map to that member; false for maps with fewer backups than others."""
    owner_term: int = 0
    term: int = 0
    """Of the last update; equal counters of different terms are different histories."""
    owner_digest: str = ""
    digest: str = ""
    """64 bits over all entries, in hexadecimal."""
    other_epoch: bool = False
    """The copy is of another life of the partition: it was declared lost, and began anew."""

    @property
    def counter_conflict(self) -> bool:
        """The two copies do not hold the same updates."""
        return self.verdict == "differs" and (
            self.other_epoch or (self.counter, self.term) != self._expected[:2]
        )

    @property
    def content_conflict(self) -> bool:
        """The two copies do not hold the same entries."""
        return self.verdict == "differs" and (self.entries, self.digest) != self._expected[2:]

    @property
    def _expected(self) -> tuple[int, int, int, str]:
        if self.kept:
            return self.owner_counter, self.owner_term, self.owner_entries, self.owner_digest
        return 0, 0, 0, _hex(0)


@dataclass(frozen=True, slots=True)
class RowFinding:
    """A member whose table is not the one that most others have. Partition -1: only the stamps differ."""

    partition: int
    member: str
    version: int
    replicas: tuple[str | None, ...]
    expected_version: int
    expected: tuple[str | None, ...]
    stamp: str
    expected_stamp: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was found."""

    findings: list[Finding]
    partitions: int
    """Partitions that were looked at."""
    seconds: float
    rows: list[RowFinding] = field(default_factory=list)
    silent: tuple[str, ...] = ()
    """Members that did not tell their table."""
    zones: ZoneReport = field(default_factory=ZoneReport)
    """Maps that live in zones."""

    def of(self, verdict: Verdict) -> list[Finding]:
        """Findings with this verdict."""
        return [finding for finding in self.findings if finding.verdict == verdict]

    @property
    def conflicts(self) -> list[Finding]:
        """Copies that differ from their primary's."""
        return self.of("differs")

    @property
    def undecided(self) -> list[Finding]:
        """Copies that could not be compared."""
        return [finding for finding in self.findings if finding.verdict in ("busy", "unreachable")]

    @property
    def compared(self) -> int:
        """Copies, of a map in a partition, that were compared with their primary's."""
        return sum(1 for finding in self.findings if finding.kept and finding.verdict in ("equal", "differs"))


def verify(
    client: Client,
    *,
    maps: Sequence[str] = (),
    partitions: Sequence[int] | None = None,
    progress: Progress = lambda decided, total, looks: None,
    pause: Callable[[float], None] = time.sleep,
) -> Report:
    """Compare all copies, or those of these maps and partitions, and the tables of all members.

    Raises NotReady when no member answers.
    """
    began = time.monotonic()
    wanted = list(range(client.partition_count)) if partitions is None else list(partitions)
    rows, silent = compare_tables(client, pause=pause)
    findings: list[Finding] = []
    housed = zone_maps(client) if maps else {}
    led = [name for name in maps if name not in housed]
    if led or not maps:
        findings = compare_partitions(client, wanted, led, progress=progress, pause=pause)
    zones = ZoneReport()
    zoned = [name for name in maps if name in housed]
    if zoned or not maps:
        zones = compare_zones(client, zoned, partitions, progress=progress, pause=pause)
    return Report(findings, len(wanted), time.monotonic() - began, rows, silent, zones)


def diverged(address: str) -> list[str]:
    """Every copy that is not proved equal to its primary's, and every replica of a zone that is not proved to be as the
    others of its partition, in words; for a cluster at rest.
    """
    with Client(address) as client:
        findings = compare_partitions(client, range(client.partition_count))
        zones = compare_zones(client)
    wrong = [str(finding) for finding in findings if finding.verdict != "equal"]
    wrong += [str(finding) for finding in zones.findings if finding.verdict != "equal"]
    return [*wrong, zones.unknown] if zones.unknown else wrong


# -- copies


def compare_partitions(
    client: Client,
    partitions: Sequence[int],
    maps: Sequence[str] = (),
    *,
    progress: Progress = lambda decided, total, looks: None,
    pause: Callable[[float], None] = time.sleep,
) -> list[Finding]:
    """Compare the backups of these partitions with their primaries, looking again where that is needed."""
    judged = {partition: Judged() for partition in partitions}
    left = list(judged)
    for look in range(1, LOOKS_BUSY + 1):
        undecided: list[int] = []
        # Later looks take a partition at a time: the nearer the answers of primary and backup are in time, the likelier
        # they are of the same counter.
        size = AT_A_TIME if look == 1 else 1
        for at in range(0, len(left), size):
            for partition, (findings, unfinished) in _look(client, left[at : at + size], maps).items():
                if not judged[partition].hear(findings, unfinished=unfinished):
                    undecided.append(partition)
            decided = len(judged) - len(left[at + size :]) - len(undecided)
            progress(decided, len(judged), look)
        left = undecided
        if not left:
            break
        pause(PAUSE_S * look)
    return [finding for partition in judged for finding in judged[partition].verdicts()]


class Judged:
    """What the looks at one partition have shown."""

    def __init__(self) -> None:
        self._last: list[Finding] = []
        self._times: dict[tuple[str, str], int] = {}
        """Map and member -> looks in a row that have shown this difference."""

    def hear(self, findings: list[Finding], *, unfinished: bool) -> bool:
        """Take the findings of a look; answers whether no further look is needed.

        `unfinished`: the primary waits for a backup, so that a difference may be about to end.
        """
        before = {(finding.map, finding.member): finding for finding in self._last}
        times: dict[tuple[str, str], int] = {}
        for finding in findings:
            key = finding.map, finding.member
            if finding.verdict in ("differs", "unreachable"):
                times[key] = self._times.get(key, 0) + 1 if _same(before.get(key), finding) else 1
        self._last, self._times = findings, times
        return all(finding.verdict == "equal" or self._firm(finding, unfinished) for finding in findings)

    def _firm(self, finding: Finding, unfinished: bool) -> bool:
        seen = self._times.get((finding.map, finding.member), 0)
        if finding.verdict == "differs" and unfinished and finding.counter_conflict:
            return False
        return seen >= LOOKS

    def verdicts(self) -> list[Finding]:
        """The findings of the last look; differences that did not stand still are busy."""
        return [
            replace(finding, verdict="busy")
            if finding.verdict == "differs" and not self._firm(finding, unfinished=False)
            else finding
            for finding in self._last
        ]


def _same(before: Finding | None, now: Finding) -> bool:
    """Whether a look shows what the one before has shown.

    Copies at equal counters that hold different entries are wrong whatever is written meanwhile.
    """
    if before is None or before.verdict != now.verdict:
        return False
    if now.content_conflict and not now.counter_conflict:
        return before.content_conflict and not before.counter_conflict and before.owner == now.owner
    return before == now


def _look(
    client: Client, partitions: Sequence[int], maps: Sequence[str]
) -> dict[int, tuple[list[Finding], bool]]:
    """Ask every member that holds a replica of these partitions, and compare; and whether writes are under way."""
    try:
        table = client.table()
    except PASSING:
        return {partition: ([_nothing(partition, "unreachable")], False) for partition in partitions}
    wanted: dict[str, list[int]] = {}
    for partition in partitions:
        for member in table.rows[partition].replicas:
            if member is not None:
                wanted.setdefault(member, []).append(partition)
    held, silent = ask_digests(client, wanted, maps[0] if len(maps) == 1 else None)
    found: dict[int, tuple[list[Finding], bool]] = {}
    for partition in partitions:
        row = table.rows[partition]
        owner = held.get((row.owner or "", partition))
        copies = {member: held.get((member, partition)) for member in row.replicas if member is not None}
        found[partition] = compare(row, copies, silent, maps), owner is not None and owner.unfinished
    return found


def compare(
    row: TableRow, copies: dict[str, PartitionDigest | None], silent: set[str], maps: Sequence[str] = ()
) -> list[Finding]:
    """Compare the copies of one partition, by member, as one look has shown them (None: it holds none)."""
    partition, owner = row.partition, row.owner or ""
    first = copies.get(owner)
    if first is None or not first.serving:
        moving = first is not None and first.version != row.version
        return [_nothing(partition, "busy" if moving else "unreachable", owner, owner)]
    findings: list[Finding] = []
    for replica, member in enumerate(row.replicas[1:], 1):
        if member is None:
            continue
        copy = copies.get(member)
        if member in silent:
            findings.append(_nothing(partition, "unreachable", owner, member, replica))
        elif (
            first.version != row.version
            or (copy is not None and copy.version != first.version)
            or member in first.behind
        ):
            # They are not of the same row, or this backup is known not to be complete.
            findings.append(_nothing(partition, "busy", owner, member, replica))
        else:
            findings += _compare_maps(first, copy, owner, member, replica, maps)
    return findings


def _compare_maps(
    owner: PartitionDigest,
    copy: PartitionDigest | None,
    owner_uuid: str,
    member: str,
    replica: int,
    maps: Sequence[str],
) -> list[Finding]:
    theirs = {digest.map: digest for digest in copy.maps} if copy is not None else {}
    ours = {digest.map: digest for digest in owner.maps}
    findings: list[Finding] = []
    for name in sorted(ours.keys() | theirs.keys()):
        if maps and name not in maps:
            continue
        mine = ours.get(name) or MapDigest(name, 0, 0, 0, [])
        other = theirs.get(name) or MapDigest(name, 0, 0, 0, [])
        if not (mine.entries or other.entries) and not (mine.counter and other.counter):
            # Nothing is held; where one of the two still has a counter, it is about to forget the map.
            continue
        finding = Finding(
            owner.partition,
            name,
            owner_uuid,
            member,
            replica,
            "differs",
            mine.counter,
            other.counter,
            mine.entries,
            other.entries,
            # A map with fewer backups than others is not sent to every replica of the row: that one must hold nothing.
            member in mine.targets,
            mine.term,
            other.term,
            _hex(mine.digest),
            _hex(other.digest),
            copy is not None and copy.epoch != owner.epoch,
        )
        equal = not (finding.counter_conflict or finding.content_conflict)
        findings.append(replace(finding, verdict="equal") if equal else finding)
    return findings


def _hex(digest: int) -> str:
    return f"{digest:016x}"


def _nothing(
    partition: int, verdict: Verdict, owner: str = "", member: str = "", replica: int = 0
) -> Finding:
    return Finding(partition, "", owner, member, replica, verdict)


# -- tables


def compare_tables(
    client: Client, *, pause: Callable[[float], None] = time.sleep
) -> tuple[list[RowFinding], tuple[str, ...]]:
    """The rows in which tables of members differ, at several looks in a row; and the members that are silent."""
    before: list[RowFinding] = []
    times = 0
    silent: tuple[str, ...] = ()
    for look in range(1, LOOKS_BUSY + 1):
        members = list(client.table().members)
        tables = ask_tables(client, members)
        silent = tuple(member for member in members if member not in tables)
        now = different_rows(tables)
        times = times + 1 if now and now == before else 1
        before = now
        if not now or times >= LOOKS:
            break
        pause(PAUSE_S * look)
    # A table that changed at every look was never seen to differ for good: a commit was on its way each time.
    return (before if times >= LOOKS else []), silent


def different_rows(tables: dict[str, RoutingTable]) -> list[RowFinding]:
    """The rows in which some member's table differs from the one that most members have (of several, the newest)."""
    stamps = [table.stamp for table in tables.values()]
    if len(set(stamps)) < 2:
        return []
    best = max(tables.values(), key=lambda table: (stamps.count(table.stamp), table.version))
    found: list[RowFinding] = []
    for member, table in tables.items():
        if table.stamp == best.stamp:
            continue
        stamp = _hex(table.stamp), _hex(best.stamp)
        wrong = [
            RowFinding(
                mine.partition, member, mine.version, mine.replicas, good.version, good.replicas, *stamp
            )
            for mine, good in zip(table, best, strict=True)
            if (mine.version, mine.replicas) != (good.version, good.replicas)
        ]
        found += wrong or [RowFinding(-1, member, table.version, (), best.version, (), *stamp)]
    return found
