"""The replica audit: every replica of every partition compared with its owner, by counters and digests.

    result = audit(spark, "127.0.0.1:5701")
    print(result)
    assert result.sound

The work is done where the tasks are: each asks the members for what they hold of its share of the partitions, and
compares as `holdfast verify` does (`client.verify`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, get_args, get_type_hints

import pyarrow as pa

from holdfast.client.verify import Finding, Verdict, compare_partitions
from holdfast.spark.source.options import Options
from holdfast.spark.task import leave_garbage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 4

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
                findings = compare_partitions(client, shares[int(number or 0)], maps)
            yield from _table(findings).to_batches()
    leave_garbage()


def _table(findings: Sequence[Finding]) -> pa.Table:
    return pa.Table.from_pylist([asdict(finding) for finding in findings], schema=ARROW)
