"""The comparison of replicas as a Spark job, for clusters and files of any size.

    report = verify(spark, "127.0.0.1:5701", keys=True)
    report = verify(spark, files=["/copies/m1", "/copies/m2", "/copies/m3"])
    print(report)
    assert report.sound

It compares as `holdfast verify` does (`holdfast.replica_comparison`), a share of the partitions in each task. Entries
stay where they are, and equal replicas are only counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from holdfast.client.connection import Credentials
from holdfast.client.holdings import check_names
from holdfast.client_core.routing import parse_addresses
from holdfast.core.store.replica_comparison import Finding
from holdfast.errors import HoldfastError
from holdfast.replica_comparison.comparison_report import (
    KeyFinding,
    Notes,
    Report,
    Total,
    add_totals,
    groups_with_other_entries,
    totals_of,
)
from holdfast.replica_comparison.files_source import FilesSource
from holdfast.replica_comparison.live import verify_besides
from holdfast.replica_comparison.sources import Access, ClusterSource, ListedSource, Source
from holdfast.replica_comparison.stores import checkpoint_bytes
from holdfast.spark.jobs import TASKS_PER_SLOT, Counted, Show, nothing, run, slots
from holdfast.spark.pipeline.record_columns import Columns
from holdfast.spark.source.options import Options
from holdfast.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 4
KEYS_MAX = 100
PARTITIONS_A_TASK = 2048
SHARE_BYTES = 256 << 20
"""Bytes of files for one task, which holds its partitions of one directory at a time."""
LISTED_MAX = 2000
"""Replicas that are not equal that one task lists, wrong ones first; all are counted."""

Share = tuple[int, int]
"""Number of the share, and of all shares: it has the partitions whose remainder by that is the number."""


class Part(msgspec.Struct):
    """The result of one task; a row of the job in its encoded form."""

    findings: list[Finding] = []
    totals: list[Total] = []
    keys: list[KeyFinding] = []
    damage: list[str] = []
    maps: set[str] = set()

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"part": [msgspec.msgpack.encode(self)]})

    @classmethod
    def of_job(cls, table: pa.Table) -> list[Part]:
        return [msgspec.msgpack.decode(row or b"", type=cls) for row in table.column("part").to_pylist()]


DDL = "`part` binary"


def verify(
    spark: SparkSession,
    address: str = "",
    *,
    members: Sequence[str] = (),
    files: Sequence[str | Path] = (),
    maps: Sequence[str] = (),
    keys: bool = False,
    tasks: int | None = None,
    progress: Show = nothing,
    **options: str,
) -> Report:
    """Compare all replicas of the cluster at `address`, or only those of these members, or those in these directories.

    With `keys` also find the keys that differ. `options` are those of the data source (user, password, token, cluster,
    timeout). All executors must see the directories. Raises ConfigError for an unknown map, or for members or
    directories that cannot be compared; NotReady when no member answers; JobFailed.
    """
    began = time.monotonic()
    source = source_of(address, members, files, maps, options)
    report = source.check()
    if isinstance(source, ClusterSource):
        with source.access.client() as client:
            besides = verify_besides(client, maps=maps)
        besides.partitions, report = report.partitions, besides
    beside = report.findings
    wanted = tasks or _tasks(spark, source, report.partitions)
    shares = [(part, wanted) for part in range(wanted)]
    counted = Counted(spark)
    work = Work(source, counted, LISTED_MAX)
    table = run(spark, shares, work, DDL, title="verify", progress=progress, counted=counted)
    parts = Part.of_job(table)
    found = [finding for part in parts for finding in part.findings]
    found.sort(key=lambda one: (one.verdict == "older", one.partition, one.map, one.member))
    report.findings = found + beside
    report.damage = sorted({text for part in parts for text in part.damage})
    report.totals = add_totals(total for part in parts for total in part.totals)
    seen = set[str]().union(*(part.maps for part in parts))
    report.totals = add_totals([*report.totals, *totals_of(beside)])
    if isinstance(source, FilesSource):
        check_names(maps, seen, report.damage)
    if keys:
        _find_keys(spark, source, report, progress)
    report.seconds = time.monotonic() - began
    return report


def source_of(
    address: str,
    members: Sequence[str],
    files: Sequence[str | Path],
    maps: Sequence[str],
    options: dict[str, str],
) -> Source:
    """Raises ConfigError."""
    if files:
        return FilesSource.of(files, maps)
    given = [str(one) for one in parse_addresses(list(members) or address)]
    known = Options.parse({"address": ",".join(given), "map": "any", **options})
    token = known.token.encode() if known.token else None
    credentials = Credentials(known.cluster, known.user, known.password, token, tls=known.tls)
    access = Access(tuple(given), credentials, known.timeout_s, __version__)
    return (ListedSource if members else ClusterSource)(access, tuple(maps))


def _tasks(spark: SparkSession | None, source: Source, partitions: int) -> int:
    if isinstance(source, FilesSource):
        whole = sum(checkpoint_bytes(folder) for folder in source.folders)
        return max(slots(spark), -(-whole // SHARE_BYTES))
    wanted = max(TASKS, TASKS_PER_SLOT * slots(spark), partitions // PARTITIONS_A_TASK)
    return max(1, min(wanted, partitions))


FINDINGS = Columns(Finding)
KEYS = Columns(KeyFinding)


def frame(spark: SparkSession, report: Report) -> DataFrame:
    return spark.createDataFrame(FINDINGS.table(report.findings))


def keys_frame(spark: SparkSession, report: Report) -> DataFrame:
    """A row for each replica of each differing key."""
    return spark.createDataFrame(KEYS.table(report.keys))


@dataclass(frozen=True)
class Work:
    source: Source
    counted: Counted
    listed_max: int = LISTED_MAX

    def __call__(self, share: Share) -> Iterator[pa.RecordBatch]:
        notes = Notes()
        findings = self.source.compare(*share, notes)
        entries, partitions = sum(one.entries for one in findings), {one.partition for one in findings}
        self.counted.add(entries, len(partitions))
        wrong = [one for one in findings if one.verdict != "equal"]
        wrong.sort(key=lambda one: one.verdict == "older")
        part = Part(wrong[: self.listed_max], totals_of(findings), damage=notes.damage, maps=notes.maps)
        return part.rows()


def _find_keys(spark: SparkSession, source: Source, report: Report, progress: Show) -> None:
    groups = groups_with_other_entries(report.findings)
    if groups:
        work = KeysWork(source)
        table = run(spark, groups, work, DDL, title="differing keys", progress=progress)
        keys = [key for part in Part.of_job(table) for key in part.keys]
        report.keys = sorted(keys, key=lambda one: (one.partition, one.map, one.key, one.member))
        report.keys_open = len(groups) - len({(one.partition, one.map) for one in keys})


@dataclass(frozen=True)
class KeysWork:
    """Finds the keys in which replicas of one map in one partition differ; pickled."""

    source: Source

    def __call__(self, findings: list[Finding]) -> Iterator[pa.RecordBatch]:
        try:
            found = self.source.differences(findings)
        except HoldfastError:
            # The cluster changes: the group is counted as open because it has no keys.
            found = None
        rows = found.rows(KEYS_MAX) if found is not None else []
        return Part(keys=[msgspec.structs.replace(row, value=b"") for row in rows]).rows()
