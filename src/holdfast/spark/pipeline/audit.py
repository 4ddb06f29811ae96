"""The replica audit: every replica of every partition compared with its owner, by counters and digests.

    result = audit(spark, "127.0.0.1:5701", keys=True)
    print(result)
    assert result.sound

The work is done where the tasks are: each asks the members for what they hold of its share of the partitions, and
compares as `holdfast verify` does (`client.verification`); of large clusters the findings stay on Spark, too. For
copies outside of a running cluster, and for some members alone, see `audit_copies`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

import pyarrow as pa

from holdfast.client.differences import find_differences
from holdfast.client.holdings import check_maps
from holdfast.client.verification import Finding, Verdict, compare_partitions
from holdfast.core.model.object_names import is_service
from holdfast.errors import HoldfastError
from holdfast.spark.failures import in_our_words
from holdfast.spark.jobs import TASKS_PER_SLOT, Counted, Show, nothing, plan, run, slots, watched
from holdfast.spark.pipeline.loose_copies import KeyFinding, key_finding
from holdfast.spark.pipeline.record_columns import Columns
from holdfast.spark.source.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 4
"""Tasks of an audit of a small cluster."""
KEYS_MAX = 100
"""So many differing keys of a map in a partition are told one by one."""
PARTITIONS_GATHERED = 4096
"""The findings of so many partitions are gathered on the driver; those of more stay on Spark."""
FINDINGS_MAX = 10_000
"""Of those that stay on Spark so many that are not equal are gathered."""
PARTITIONS_A_TASK = 2048

FINDINGS = Columns(Finding)
KEYS = Columns(KeyFinding)
ARROW = FINDINGS.arrow
DDL = FINDINGS.ddl


@dataclass(frozen=True, slots=True)
class Sum:
    """Replicas with one verdict."""

    verdict: Verdict
    kept: bool
    """Whether they are to hold the map."""
    replicas: int
    entries: int


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What an audit has found."""

    findings: list[Finding]
    """Of a large cluster only those that are not equal, and of these the first `FINDINGS_MAX`."""
    partitions: int
    """Partitions of the cluster; every one was looked at."""
    seconds: float
    keys: list[KeyFinding] = field(default_factory=list)
    """If asked for: what each copy holds of the keys that differ, up to `KEYS_MAX` of a map in a partition."""
    keys_open: int = 0
    """Maps in partitions whose copies differ in keys that could not be told, because they never stood still."""
    sums: tuple[Sum, ...] = ()
    """Of all findings, where not all of them are in `findings`."""
    kept_frame: DataFrame | None = field(default=None, repr=False, compare=False)
    """All findings, where they stay on Spark."""

    def totals(self) -> tuple[Sum, ...]:
        """Replicas by verdict, and by whether they are to hold the map."""
        return self.sums or sum_findings(self.findings)

    def count(self, verdict: Verdict) -> int:
        """Replicas (of a map in a partition) with this verdict."""
        return sum(each.replicas for each in self.totals() if each.verdict == verdict)

    @property
    def copies(self) -> int:
        """Replicas, of a map in a partition, that were compared with their owner."""
        compared = ("equal", "differs")
        return sum(each.replicas for each in self.totals() if each.kept and each.verdict in compared)

    @property
    def not_kept(self) -> int:
        """Replicas that need not hold the map, because it has fewer backups than others; they hold nothing of it."""
        return sum(each.replicas for each in self.totals() if not each.kept and each.verdict == "equal")

    @property
    def entries(self) -> int:
        """Entries of the replicas that are equal to their owner's."""
        return sum(each.entries for each in self.totals() if each.verdict == "equal")

    @property
    def sound(self) -> bool:
        """Every replica was compared, and is equal to its owner."""
        return all(each.verdict == "equal" for each in self.totals() if each.replicas)

    @property
    def differs(self) -> bool:
        """Some replica is not equal to its owner."""
        return self.count("differs") > 0

    def frame(self, spark: SparkSession) -> DataFrame:
        """All findings as a DataFrame."""
        return (
            self.kept_frame if self.kept_frame is not None else spark.createDataFrame(_table(self.findings))
        )

    def keys_frame(self, spark: SparkSession) -> DataFrame:
        """The differing keys as a DataFrame, a row for each copy of each."""
        return spark.createDataFrame(KEYS.table(self.keys))

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in get_args(Verdict))
        lines = [
            f"{self.partitions} partitions, {self.copies} copies compared in {self.seconds:.1f} s: {counts}"
        ]
        lines += [str(finding) for finding in self.findings if finding.verdict != "equal"][:20]
        return "\n".join(lines)


def sum_findings(findings: Sequence[Finding]) -> tuple[Sum, ...]:
    """The findings by verdict, and by whether the map is to be held."""
    found: dict[tuple[Verdict, bool], tuple[int, int]] = {}
    for finding in findings:
        replicas, entries = found.get((finding.verdict, finding.kept), (0, 0))
        found[finding.verdict, finding.kept] = replicas + 1, entries + finding.entries
    return tuple(Sum(*key, *totals) for key, totals in sorted(found.items()))


def audit(
    spark: SparkSession,
    address: str,
    *,
    maps: Sequence[str] = (),
    keys: bool = False,
    tasks: int | None = None,
    progress: Show = nothing,
    **options: str,
) -> AuditResult:
    """Compare every replica with its owner, for all maps or those named, in a Spark job of a few tasks.

    With `keys` also find the keys in which they differ. The cluster may be in use: what is being written or moved is
    looked at again, and called busy if it never stands still. `options` are those of the data source (user, password,
    token, cluster, timeout). Raises ConfigError for a map that nobody knows, NotReady when no member answers,
    JobFailed.
    """
    began = time.monotonic()
    parsed = Options.parse({"address": address, "map": "any", **options})
    with parsed.client() as client:
        table = client.table()
        check_maps(client, maps)
    wanted = tasks or max(TASKS, TASKS_PER_SLOT * slots(spark), len(table) // PARTITIONS_A_TASK)
    shares = table.shares(wanted)
    addresses = tuple(member.address for member in table.members.values())
    counted = Counted(spark)
    work = Auditor(parsed, addresses, tuple(maps), counted)
    kept = None
    sums: tuple[Sum, ...] = ()
    if len(table) <= PARTITIONS_GATHERED:
        told = run(spark, shares, work, DDL, title="audit", progress=progress, counted=counted)
        findings = FINDINGS.rows(told)
    else:
        with in_our_words("audit"), watched(spark, "audit", len(shares), progress, counted):
            kept, sums, findings = _on_spark(plan(spark, shares, work, DDL))
    findings.sort(key=lambda finding: (finding.partition, finding.map))
    told_keys: list[KeyFinding] = []
    left = 0
    if keys:
        told_keys, left = _find_keys(spark, parsed, addresses, findings, progress)
    seconds = time.monotonic() - began
    return AuditResult(findings, len(table), seconds, told_keys, left, sums, kept)


def _on_spark(frame: DataFrame) -> tuple[DataFrame, tuple[Sum, ...], list[Finding]]:
    """All findings, kept where they were made; their sums, and the first that are not equal."""
    # Made once, and kept: looking at the members again would find something else.
    kept = frame.localCheckpoint(eager=True)
    from pyspark.sql import functions

    grouped = kept.groupBy("verdict", "kept").agg(
        functions.count("*").alias("replicas"), functions.sum("entries").alias("entries")
    )
    sums = tuple(
        Sum(row["verdict"], row["kept"], row["replicas"], row["entries"]) for row in grouped.collect()
    )
    wrong = kept.where("verdict <> 'equal'").orderBy("partition", "map").limit(FINDINGS_MAX)
    return kept, sums, FINDINGS.rows(wrong.toArrow())


@dataclass(frozen=True)
class Auditor:
    """Compares a share of the partitions; pickled."""

    options: Options
    addresses: tuple[str, ...]
    maps: tuple[str, ...]
    counted: Counted

    def __call__(self, share: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The findings."""
        with self.options.client(self.addresses) as client:
            findings = compare_partitions(client, share, self.maps)
        self.counted.add(sum(finding.entries for finding in findings), len(share))
        yield from _table(findings).to_batches()


# -- keys


def _find_keys(
    spark: SparkSession,
    options: Options,
    addresses: tuple[str, ...],
    findings: Sequence[Finding],
    progress: Show,
) -> tuple[list[KeyFinding], int]:
    """The keys in which copies differ, and of how many groups they could not be told."""
    groups: dict[tuple[int, str], list[Finding]] = {}
    for finding in findings:
        if finding.verdict == "differs" and finding.content_conflict and not is_service(finding.map):
            groups.setdefault((finding.partition, finding.map), []).append(finding)
    if not groups:
        return [], 0
    work = _Keys(options, addresses)
    found = run(spark, list(groups.values()), work, KEYS.ddl, title="differing keys", progress=progress)
    rows = sorted(KEYS.rows(found), key=lambda row: (row.partition, row.map, row.key, row.where))
    told = {(row.partition, row.map) for row in rows}
    return rows, len(groups.keys() - told)


@dataclass(frozen=True)
class _Keys:
    """Finds the keys in which copies of one map in one partition differ; pickled."""

    options: Options
    addresses: tuple[str, ...]

    def __call__(self, findings: list[Finding]) -> Iterator[pa.RecordBatch]:
        with self.options.client(self.addresses) as client:
            try:
                names = {uuid: row.address for uuid, row in client.table().members.items()}
                found = find_differences(client, findings)
            except HoldfastError:
                # The cluster changes: what could not be told is counted by its absence.
                return
        if found is None:
            return
        rows = [
            key_finding(
                found.partition,
                found.map,
                key,
                names.get(member, member),
                held[member].value if member in held else None,
            )
            for key, held in list(found.entries.items())[:KEYS_MAX]
            for member in found.members
        ]
        yield from KEYS.table(rows).to_batches()


def _table(findings: Sequence[Finding]) -> pa.Table:
    return FINDINGS.table(findings)
