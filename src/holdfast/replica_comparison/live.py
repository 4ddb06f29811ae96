"""Compares the replicas of a running cluster, without false alarms. The cluster may be in use.

Each backup is compared with its primary, map by map. Replicas of listed members, primaries or not, are compared with
the newest one. Differences are looked at again, for a write may be on its way. Partition tables of all members are
compared, too. Replicas of Raft partitions have no primary: see `zone_comparison`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from holdfast.client.blocking import Client
from holdfast.client.replica_questions import ask_digests, ask_tables
from holdfast.client_core.routing import PASSING, RoutingTable, TableRow
from holdfast.core.store.replica_comparison import (
    LOOKS,
    LOOKS_MAX,
    Finding,
    Looks,
    ReplicaDigest,
    Verdict,
    compare,
)
from holdfast.replica_comparison.comparison_report import Report, TableFinding, describe, totals_of
from holdfast.replica_comparison.key_differences import Pause
from holdfast.replica_comparison.zone_comparison import compare_zones, zone_maps
from holdfast.wire import own

PAUSE_S = 0.15
"""After the first look, for a write on its way to arrive; each further pause is longer by the same."""
AT_A_TIME = 64

Progress = Callable[[int, int, int], None]
"""Called with the number of decided partitions, of all, and of looks at the rest so far."""
Seen = tuple[list[Finding], bool]
"""Findings of a look at one partition, and whether some write waits for a backup."""


def _no_progress(decided: int, total: int, looks: int) -> None: ...


def verify(
    client: Client,
    *,
    maps: Sequence[str] = (),
    partitions: Sequence[int] | None = None,
    progress: Progress = _no_progress,
    pause: Pause = time.sleep,
) -> Report:
    """Compare all replicas, or those of these maps and partitions, and the tables of all members. Raises
    NotReady when no member answers.
    """
    began = time.monotonic()
    report = verify_besides(client, maps=maps, partitions=partitions, progress=progress, pause=pause)
    wanted = list(range(client.partition_count)) if partitions is None else list(partitions)
    report.partitions = len(wanted)
    led = maps_of_primaries(client, maps)
    if led or not maps:
        findings = compare_partitions(client, wanted, led, progress=progress, pause=pause)
        report.findings = findings + report.findings
    report.totals = totals_of(report.findings)
    report.seconds = time.monotonic() - began
    return report


def maps_of_primaries(client: Client, maps: Sequence[str]) -> list[str]:
    """Those of these maps that live in no zone."""
    housed = zone_maps(client) if maps else {}
    return [name for name in maps if name not in housed]


def verify_besides(
    client: Client,
    *,
    maps: Sequence[str] = (),
    partitions: Sequence[int] | None = None,
    progress: Progress = _no_progress,
    pause: Pause = time.sleep,
) -> Report:
    """Compare everything except the replicas of primaries: the tables of members, and zones."""
    report = Report()
    report.tables, report.unreachable_members = compare_tables(client, pause=pause)
    report.names = {uuid: row.address for uuid, row in client.table().members.items()}
    led = maps_of_primaries(client, maps)
    zoned = [name for name in maps if name not in led]
    if zoned or not maps:
        compare_zones(client, report, zoned, partitions, progress=progress, pause=pause)
    return report


def diverged(address: str) -> list[str]:
    """Every replica that is not proved equal, in words; for a cluster at rest."""
    with Client(address) as client:
        report = verify(client)
    wrong = [describe(finding, report.names) for finding in report.findings if finding.verdict != "equal"]
    return [*wrong, report.zones_unknown] if report.zones_unknown else wrong


# -- looks


def look_until_decided(
    look: Callable[[Sequence[int]], Mapping[int, Seen]],
    partitions: Sequence[int],
    *,
    progress: Progress = _no_progress,
    pause: Pause = time.sleep,
) -> list[Finding]:
    """Look at the replicas of these partitions until each is decided, or was looked at often enough."""
    seen = {partition: Looks() for partition in partitions}
    left, size, number = list(seen), AT_A_TIME, 1
    while left:
        undecided: list[int] = []
        for at in range(0, len(left), size):
            for partition, (findings, unfinished) in look(left[at : at + size]).items():
                if not seen[partition].add(findings, unfinished=unfinished):
                    undecided.append(partition)
            progress(len(seen) - len(left[at + size :]) - len(undecided), len(seen), number)
        # Later looks take a partition at a time: the nearer in time the answers of the members are, the
        # likelier they are of the same counter.
        left, size = undecided, 1
        if left:
            pause(PAUSE_S * number)
        number += 1
    return [finding for looks in seen.values() for finding in looks.findings()]


def compare_partitions(
    client: Client,
    partitions: Sequence[int],
    maps: Sequence[str] = (),
    *,
    progress: Progress = _no_progress,
    pause: Pause = time.sleep,
) -> list[Finding]:
    """Compare the backups of these partitions with their primaries."""

    def look(some: Sequence[int]) -> Mapping[int, Seen]:
        return _look_at_primaries(client, some, maps)

    return look_until_decided(look, partitions, progress=progress, pause=pause)


# -- backups and their primaries


def _look_at_primaries(client: Client, partitions: Sequence[int], maps: Sequence[str]) -> dict[int, Seen]:
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
    found: dict[int, Seen] = {}
    for partition in partitions:
        row = table.rows[partition]
        owner = held.get((row.owner or "", partition))
        copies = {member: held.get((member, partition)) for member in row.replicas if member is not None}
        findings = compare_with_primary(row, copies, silent, maps)
        found[partition] = findings, owner is not None and owner.unfinished
    return found


def compare_with_primary(
    row: TableRow, copies: dict[str, own.PartitionDigest | None], silent: set[str], maps: Sequence[str] = ()
) -> list[Finding]:
    """`copies`: by member, as one look has shown them (None: the member holds none)."""
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
            # The two have not the same row, or this backup is known to be incomplete.
            findings.append(_nothing(partition, "busy", owner, member, replica))
        else:
            found = _compare_maps(first, copy, owner, member, maps)
            findings += [msgspec.structs.replace(one, replica=replica) for one in found]
    return findings


def _compare_maps(
    primary: own.PartitionDigest,
    copy: own.PartitionDigest | None,
    owner: str,
    member: str,
    maps: Sequence[str],
) -> Iterator[Finding]:
    ours = {digest.map: digest for digest in primary.maps}
    theirs = {digest.map: digest for digest in copy.maps} if copy is not None else {}
    epoch = copy.epoch if copy is not None else primary.epoch
    for name in sorted(ours.keys() | theirs.keys()):
        if maps and name not in maps:
            continue
        nothing = own.MapDigest(name, 0, 0, 0, [])
        mine, other = ours.get(name, nothing), theirs.get(name, nothing)
        if not (mine.entries or other.entries) and not (mine.counter and other.counter):
            # Nothing is held; if one of the two still has a counter, it is about to forget the map.
            continue
        kept = member in mine.targets
        # A map with fewer backups than others is not sent to every replica of the row: that one must hold
        # nothing.
        expected = replica_digest(owner, primary, mine if kept else nothing)
        finding = compare(replica_digest(member, copy or primary, other, epoch), expected)
        verdict: Verdict = "differs" if finding.verdict == "older" else finding.verdict
        yield msgspec.structs.replace(finding, verdict=verdict, kept=kept)


def replica_digest(
    member: str, copy: own.PartitionDigest, held: own.MapDigest, epoch: int | None = None
) -> ReplicaDigest:
    return ReplicaDigest(
        member,
        copy.partition,
        held.map,
        held.counter,
        held.entries,
        held.digest,
        copy.epoch if epoch is None else epoch,
        tuple((term, start) for term, start in held.lineage),
    )


def _nothing(
    partition: int, verdict: Verdict, owner: str = "", member: str = "", replica: int = 0
) -> Finding:
    return Finding(partition=partition, member=member, verdict=verdict, reference=owner, replica=replica)


# -- tables


def compare_tables(
    client: Client, *, pause: Pause = time.sleep
) -> tuple[list[TableFinding], tuple[str, ...]]:
    """The rows in which tables of members differ, at several looks in a row; and the members that are silent."""
    before: list[TableFinding] = []
    times = 0
    silent: tuple[str, ...] = ()
    for look in range(1, LOOKS_MAX + 1):
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


def different_rows(tables: dict[str, RoutingTable]) -> list[TableFinding]:
    """The rows in which some member's table differs from the one that most members have (of several, the
    newest).
    """
    stamps = [table.stamp for table in tables.values()]
    if len(set(stamps)) < 2:
        return []
    best = max(tables.values(), key=lambda table: (stamps.count(table.stamp), table.version))
    found: list[TableFinding] = []
    for member, table in tables.items():
        if table.stamp == best.stamp:
            continue
        stamp = f"{table.stamp:016x}", f"{best.stamp:016x}"
        wrong = [
            TableFinding(
                mine.partition, member, mine.version, mine.replicas, good.version, good.replicas, *stamp
            )
            for mine, good in zip(table, best, strict=True)
            if (mine.version, mine.replicas) != (good.version, good.replicas)
        ]
        found += wrong or [TableFinding(-1, member, table.version, (), best.version, (), *stamp)]
    return found
