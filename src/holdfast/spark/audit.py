"""The replica audit: every replica of every partition compared with its owner, by counters and digests.

    result = audit(spark, "127.0.0.1:5701")
    print(result)
    assert result.sound

The work is done where the tasks are: each asks the members for what they hold of its share of the partitions. Two
copies whose update counters are equal must hold the same; copies whose counters differ are looked at again, because a
write may have been on its way between the two looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args, get_type_hints

import pyarrow as pa

from holdfast.client.blocking import Client
from holdfast.client.connection import Broken
from holdfast.client.routing import PASSING, Table
from holdfast.spark.options import Options
from holdfast.spark.task import leave_garbage
from holdfast.wire.own import MapDigest, PartitionDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Verdict = Literal["equal", "differs", "busy", "unreachable"]
"""`busy`: the owner's counter went on each time, so that the copies were never seen at the same counter.
`unreachable`: the owner does not serve, or one of the two members does not answer."""

TASKS = 4
LOOKS = 3
"""How often copies that differ are looked at before they are said to."""

LOOKS_BUSY = 12
"""And how often when the owner's counter goes on between the looks."""

PAUSE_S = 0.15
"""After the first look, for a write that was on its way to arrive; each further pause is longer by the same."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One map in one partition: a replica against its owner. Without `map`: nothing could be compared."""

    partition: int
    map: str
    owner: str
    member: str
    replica: int
    """The replica index of `member`: 1 or more."""
    verdict: Verdict
    owner_counter: int
    counter: int
    owner_entries: int
    entries: int
    kept: bool
    """Whether the owner sends this map to that member; false for maps with fewer backups than others."""


_TYPES: dict[type, tuple[str, pa.DataType]] = {
    int: ("bigint", pa.int64()),
    str: ("string", pa.string()),
    bool: ("boolean", pa.bool_()),
}
_COLUMNS = {name: _TYPES.get(kind, _TYPES[str]) for name, kind in get_type_hints(Finding).items()}
ARROW = pa.schema({name: arrow for name, (_, arrow) in _COLUMNS.items()})
DDL = ", ".join(f"{name} {spark}" for name, (spark, _) in _COLUMNS.items())


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What an audit has found."""

    findings: list[Finding]
    partitions: int
    """Partitions of the cluster; every one was looked at."""
    seconds: float

    def count(self, verdict: Verdict) -> int:
        """Replicas (of a map in a partition) with this verdict."""
        return sum(1 for finding in self.findings if finding.verdict == verdict)

    @property
    def copies(self) -> int:
        """Replicas, of a map in a partition, that were compared with their owner."""
        return sum(1 for finding in self.findings if finding.kept and finding.verdict in ("equal", "differs"))

    @property
    def not_kept(self) -> int:
        """Replicas that need not hold the map, because it has fewer backups than others; they hold nothing of it."""
        return sum(1 for finding in self.findings if not finding.kept and finding.verdict == "equal")

    @property
    def entries(self) -> int:
        """Entries of the replicas that are equal to their owner's."""
        return sum(finding.entries for finding in self.findings if finding.verdict == "equal")

    @property
    def sound(self) -> bool:
        """Every replica was compared, and is equal to its owner."""
        return all(finding.verdict == "equal" for finding in self.findings)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The findings as a DataFrame."""
        return spark.createDataFrame(_table(self.findings))

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in get_args(Verdict))
        lines = [
            f"{self.partitions} partitions, {self.copies} copies compared in {self.seconds:.1f} s: {counts}"
        ]
        lines += [str(finding) for finding in self.findings if finding.verdict != "equal"][:20]
        return "\n".join(lines)


def audit(
    spark: SparkSession,
    address: str,
    *,
    maps: Sequence[str] = (),
    tasks: int = TASKS,
    **options: str,
) -> AuditResult:
    """Compare every replica with its owner, for all maps or those named, in a Spark job of a few tasks.

    `options` are those of the data source (user, password, token, cluster, timeout).
    """
    began = time.monotonic()
    parsed = Options.parse({"address": address, "map": "any", **options})
    with parsed.client() as client:
        table = client.table()
    shares = table.shares(tasks)
    addresses = tuple(member.address for member in table.members.values())
    task = partial(_audit_task, parsed, addresses, shares, tuple(maps))
    plan = spark.range(0, len(shares), 1, len(shares))
    found = plan.mapInArrow(task, DDL).toArrow().to_pylist()
    findings = sorted((Finding(**row) for row in found), key=lambda finding: (finding.partition, finding.map))
    return AuditResult(findings, len(table), time.monotonic() - began)


def _audit_task(
    options: Options,
    addresses: tuple[str, ...],
    shares: list[list[int]],
    maps: tuple[str, ...],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The findings of the shares whose numbers come in."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with options.client(addresses) as client:
                findings = audit_partitions(client, shares[int(number or 0)], maps)
            yield from _table(findings).to_batches()
    leave_garbage()


def _table(findings: Sequence[Finding]) -> pa.Table:
    return pa.Table.from_pylist([asdict(finding) for finding in findings], schema=ARROW)


# -- the comparison, without Spark


def audit_partitions(
    client: Client,
    partitions: Sequence[int],
    maps: Sequence[str] = (),
    *,
    pause: Callable[[float], None] = time.sleep,
) -> list[Finding]:
    """Compare the replicas of these partitions with their owners."""
    seen: dict[int, list[Finding]] = {}
    left = list(partitions)
    for look in range(1, LOOKS_BUSY + 1):
        undecided: list[int] = []
        # The first look takes the whole share, later ones a partition at a time: the nearer the answers of owner and
        # replica are in time, the likelier they are of the same counter.
        for group in [left] if look == 1 else [[partition] for partition in left]:
            for partition, findings in _look(client, group, maps).items():
                now = _judge(findings, seen.get(partition, []))
                seen[partition] = now
                verdicts = {finding.verdict for finding in now}
                if verdicts - {"equal"} and (look < LOOKS or "busy" in verdicts):
                    undecided.append(partition)
        left = undecided
        if not left:
            break
        pause(PAUSE_S * look)
    return [finding for partition in partitions for finding in seen[partition]]


def _judge(findings: list[Finding], before: list[Finding]) -> list[Finding]:
    """A copy that differs is only busy when its owner's counter has moved since the look before."""
    counters = {finding.map: finding.owner_counter for finding in before}
    return [
        replace(finding, verdict="busy")
        if finding.verdict == "differs"
        and counters.get(finding.map, finding.owner_counter) != finding.owner_counter
        else finding
        for finding in findings
    ]


def _look(client: Client, partitions: Sequence[int], maps: Sequence[str]) -> dict[int, list[Finding]]:
    """Ask every member that holds a replica of these partitions, and compare."""
    try:
        table = client.table()
    except PASSING:
        return {partition: [_unreachable(partition, "", "", 0)] for partition in partitions}
    wanted: dict[str, list[int]] = {}
    for partition in partitions:
        for member in table.rows[partition].replicas:
            if member is not None:
                wanted.setdefault(member, []).append(partition)
    held: dict[tuple[str, int], PartitionDigest] = {}
    silent: set[str] = set()
    only = maps[0] if len(maps) == 1 else None
    for member, theirs in wanted.items():
        try:
            answers = client.digests(member, theirs, only)
        except (Broken, *PASSING):
            silent.add(member)
            continue
        for answer in answers:
            held[member, answer.partition] = answer
    return {partition: _compare(table, partition, held, silent, maps) for partition in partitions}


def _compare(
    table: Table,
    partition: int,
    held: dict[tuple[str, int], PartitionDigest],
    silent: set[str],
    maps: Sequence[str],
) -> list[Finding]:
    row = table.rows[partition]
    owner = held.get((row.owner, partition)) if row.owner is not None else None
    if row.owner is None or owner is None or not owner.serving:
        return [_unreachable(partition, row.owner or "", row.owner or "", 0)]
    findings: list[Finding] = []
    for replica, member in enumerate(row.replicas[1:], 1):
        if member is None:
            continue
        if member in silent:
            findings.append(_unreachable(partition, row.owner, member, replica))
            continue
        findings += _compare_copies(owner, held.get((member, partition)), row.owner, member, replica, maps)
    return findings


def _compare_copies(
    owner: PartitionDigest,
    copy: PartitionDigest | None,
    owner_uuid: str,
    member: str,
    replica: int,
    maps: Sequence[str],
) -> list[Finding]:
    theirs = {digest.map: digest for digest in copy.maps} if copy is not None else {}
    ours = {digest.map: digest for digest in owner.maps}
    same_epoch = copy is None or copy.epoch == owner.epoch
    findings: list[Finding] = []
    for name in sorted(ours.keys() | theirs.keys()):
        if maps and name not in maps:
            continue
        mine = ours.get(name) or MapDigest(name, 0, 0, 0, [])
        other = theirs.get(name) or MapDigest(name, 0, 0, 0, [])
        kept = member in mine.targets
        if not mine.counter and not other.counter:
            continue
        # A map with fewer backups than others is not sent to every replica of the row: that one must hold nothing.
        expected = (mine.counter, mine.entries, mine.digest) if kept else (0, 0, 0)
        equal = (other.counter, other.entries, other.digest) == expected and same_epoch
        findings.append(
            Finding(
                owner.partition,
                name,
                owner_uuid,
                member,
                replica,
                "equal" if equal else "differs",
                mine.counter,
                other.counter,
                mine.entries,
                other.entries,
                kept,
            )
        )
    return findings


def _unreachable(partition: int, owner: str, member: str, replica: int) -> Finding:
    return Finding(partition, "", owner, member, replica, "unreachable", 0, 0, 0, 0, kept=False)
