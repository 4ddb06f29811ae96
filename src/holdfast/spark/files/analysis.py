"""Reports on the files of stopped or copied members: writers, large entries, hot partitions, growth, gaps, damage.

    result = analyse(spark, ["/copies/m1", "/copies/m2"], ["writers", "gaps"])
    print(result)

An update is in the journal of every member that holds the partition, and is counted once. In a zone an update is a
change in an entry of the log (`zone_updates`).
Reports are tables of a few rows; for other questions use the DataFrames themselves (`journals.journal_frame`,
`checkpoint_files.checkpoint_frame`).
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from holdfast.errors import ConfigError
from holdfast.spark import jobs
from holdfast.spark.failures import in_our_words
from holdfast.spark.files.checkpoint_files import checkpoint_frame
from holdfast.spark.files.journals import DAMAGE, StoreFiles, find, journal_frame, shares
from holdfast.wire.values import Serialized, from_stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY = "1 hour"
LIMIT = 20
SHOWN = 60

OF_ENTRIES = "change in ('set', 'remove', 'expiry', 'clear')"
"""Selects updates of map contents; others belong to services or note a cut."""

_UNITS = "microsecond|millisecond|second|minute|hour|day|week"
_EVERY = re.compile(rf"\s*(?:interval\s+)?((?:\d+\s+(?:{_UNITS})s?\s*)+)", re.IGNORECASE)
"""Lengths of time that Spark supports; months are not among them."""

_CHANGES = (
    ("set", ("put", "put_if_absent", "replace", "replace_if_same", "try_put", "put_all")),
    ("remove", ("delete", "remove_if_same", "try_remove", "evict")),
    ("expiry", ("set_ttl",)),
    ("clear", ("evict_all", "destroy")),
)
"""Changes of entries, with the requests in logs of zones that make them."""

SAME_UPDATE = ["partition", "map", "term", "counter"]

REPORTS = {
    "writers": "updates and bytes by map, change, client and time",
    "largest": "the largest entries, of checkpoints and of updates since",
    "hottest": "the partitions with the most updates",
    "growth": "updates and bytes over time, by map, and in sum since the beginning",
    "gaps": "missing updates between two existing ones, by member, partition and map",
    "damage": "unreadable blocks, and torn ends",
}


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    table: pa.Table

    def rows(self) -> list[dict[str, Any]]:
        return [{name: _plain(value) for name, value in row.items()} for row in self.table.to_pylist()]

    def __str__(self) -> str:
        return "\n".join(_text(self))


@dataclass(frozen=True, slots=True)
class Analysis:
    reports: tuple[Report, ...]
    updates: int
    members: int
    damaged: int
    """Unreadable places, even if that report was not requested."""
    missing: int
    """Updates that no checkpoint covers, even if that report was not requested."""
    seconds: float = field(compare=False)

    def __getitem__(self, name: str) -> Report:
        return next(report for report in self.reports if report.name == name)

    @property
    def sound(self) -> bool:
        """Whether everything was readable and no update is missing, whatever was requested."""
        return not self.damaged and not self.missing

    def __str__(self) -> str:
        parts = [str(report) for report in self.reports]
        verdict = "" if self.sound else f": {self.damaged:,} damaged places, {self.missing:,} updates missing"
        parts.append(
            f"{self.updates:,} updates in the files of {self.members} members, {self.seconds:.0f} s{verdict}"
        )
        return "\n\n".join(parts)


def analyse(
    spark: SparkSession,
    directories: Sequence[str | Path],
    reports: Sequence[str] = tuple(REPORTS),
    *,
    every: str = EVERY,
    limit: int = LIMIT,
    progress: jobs.Show = jobs.nothing,
) -> Analysis:
    """`every`: length of the time windows. Damage and missing updates are always looked for and never raise
    an error. Raises ConfigError, or JobFailed.
    """
    began = time.monotonic()
    check(reports, every)
    files = find(directories)
    one_cluster(files)
    counted = jobs.Counted(spark)
    frames = Frames(spark, directories, every, limit, counted)
    found: dict[str, Report] = {}
    updates = 0
    with in_our_words("analyse"):
        frames.journal.persist()
        try:
            tasks = len(shares(files, jobs.TASKS_PER_SLOT * jobs.slots(spark)))
            with jobs.watched(spark, "read journals", tasks, progress, counted):
                updates = frames.updates.count()
            for name in dict.fromkeys([*reports, "gaps", "damage"]):
                found[name] = Report(name, _MAKERS[name](frames).toArrow())
        finally:
            frames.journal.unpersist()
    damaged = sum(row["kind"] == DAMAGE for row in found["damage"].table.to_pylist())
    missing = sum(row["missing"] for row in found["gaps"].table.to_pylist() if not row["covered"])
    asked = tuple(found[name] for name in reports)
    return Analysis(asked, updates, len(files), damaged, missing, time.monotonic() - began)


def check(reports: Sequence[str], every: str = EVERY) -> None:
    """Raises ConfigError for an unknown report or an invalid length of time."""
    if unknown := [name for name in reports if name not in REPORTS]:
        raise ConfigError(f"the report {unknown[0]!r} is not known: {', '.join(REPORTS)}")
    told = _EVERY.fullmatch(every)
    if told is None or not any(int(number) for number in re.findall(r"\d+", told[1])):
        raise ConfigError(
            f"the length of time {every!r} is not allowed: write it like 1 hour, 5 minutes or 2 days"
        )


def one_cluster(files: Sequence[StoreFiles]) -> None:
    """Raises ConfigError if the files are of several clusters, whose updates would be confused."""
    first: dict[str, str] = {}
    for each in files:
        if each.cluster:
            first.setdefault(each.cluster, each.directory)
    if len(first) > 1:
        told = ", ".join(f"{directory} of {cluster}" for cluster, directory in first.items())
        raise ConfigError(f"these are files of several clusters: {told}. Analyse each separately")


# -- reports ----------------------------------------------------------------------------------------------------------


class Frames:
    __slots__ = ("checkpoints", "every", "journal", "limit", "records", "updates")

    def __init__(
        self,
        spark: SparkSession,
        directories: Sequence[str | Path],
        every: str,
        limit: int,
        counted: jobs.Counted | None = None,
    ) -> None:
        self.journal = journal_frame(spark, directories, counted=counted)
        self.checkpoints = checkpoint_frame(spark, directories)
        self.every = every
        self.limit = limit
        self.records = self.journal.where("kind = 'record'")
        self.updates = self.records.dropDuplicates(SAME_UPDATE).unionByName(zone_updates(self.journal))


def zone_updates(journal: DataFrame) -> DataFrame:
    """The changes in the logs of zones, each once, as updates without a counter.

    Each replica has an entry in its journal, perhaps twice, and perhaps one of an earlier term at the same index that
    was replaced before it was committed. So the newest term of an index counts, as one of the members has it. The last
    entries of a log may not be committed. Whether a conditional request changed anything is not in the log.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = f.struct(-f.col("term"), "directory", "segment", "lsn")
    change = f.coalesce(*(f.when(f.col("change").isin(*ops), name) for name, ops in _CHANGES), "change")
    return (
        journal.where("kind = 'zone'")
        .withColumn("found", place)
        .withColumn("first", f.min("found").over(Window.partitionBy("note")))
        .where("found = first")
        .withColumn("change", change)
        .drop("found", "first")
    )


def writers(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        frames.updates.groupBy(
            f.window("time", frames.every).getField("start").alias("since"), "map", "change", "client"
        )
        .agg(
            f.count("*").alias("updates"),
            f.countDistinct("key").alias("keys"),
            f.sum(f.col("key_bytes") + f.col("value_bytes")).alias("bytes"),
            f.min("time").alias("first"),
            f.max("time").alias("last"),
        )
        .orderBy("since", f.desc("updates"), "map", "change", "client")
    )


def largest(frames: Frames) -> DataFrame:
    """The largest entries, by the last known state of each key.

    The contents of a map in a partition start with the checkpoint, of any member, that has most of its
    updates; entries that only older checkpoints show are outdated. Later updates follow, from the last one
    that cleared the map on, in the order of term and counter. Changes in the logs of zones have no counter: of these
    maps the entries of the newest checkpoint count.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    columns = ["map", "partition", "key", "key_bytes", "value_bytes"]
    of_map = ["map", "partition"]
    of_file = ["directory", "file", *of_map]
    reached = frames.checkpoints.where("kind = 'map'").select(
        *of_file, "term", f.col("high").alias("counter"), "low"
    )
    base = reached.groupBy(*of_map).agg(f.max(f.struct("term", "counter", "low")).alias("base"))
    counted = frames.updates.where("counter is not null")
    cleared = (
        counted.where("change = 'clear'")
        .groupBy(*of_map)
        .agg(f.max(f.struct("term", "counter")).alias("cleared"))
    )
    held = (
        frames.checkpoints.where("kind = 'entry'")
        .select(*of_file, "key", "key_bytes", "value_bytes")
        .join(reached, of_file)
        .join(base, of_map)
        .where(f.struct("term", "counter") == f.struct("base.term", "base.counter"))
        .select(*columns, "term", "counter", f.lit("set").alias("change"))
    )
    written = (
        counted.where("change in ('set', 'remove')")
        .join(base, of_map, "left")
        .where(f.col("base").isNull() | (f.struct("term", "counter") > f.struct("base.term", "base.low")))
        .select(*columns, "term", "counter", "change")
    )
    newest = Window.partitionBy("map", "partition", "key").orderBy(f.desc("term"), f.desc("counter"))
    return (
        held.unionByName(written)
        .join(cleared, of_map, "left")
        .where(f.col("cleared").isNull() | (f.struct("term", "counter") > f.col("cleared")))
        .withColumn("place", f.row_number().over(newest))
        .where("place = 1 and change = 'set'")
        .withColumn("bytes", f.col("key_bytes") + f.col("value_bytes"))
        .orderBy(f.desc("bytes"), "map", "key")
        .limit(frames.limit)
        .select("map", "partition", "key", "bytes", "key_bytes", "value_bytes")
    )


def hottest(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    updates = frames.updates.where(OF_ENTRIES)
    total = updates.count() or 1
    return (
        updates.groupBy("partition")
        .agg(
            f.count("*").alias("updates"),
            f.countDistinct("map", "key").alias("keys"),
            f.sum(f.col("key_bytes") + f.col("value_bytes")).alias("bytes"),
        )
        .withColumn("share", f.round(f.col("updates") / total, 4))
        .orderBy(f.desc("updates"), "partition")
        .limit(frames.limit)
    )


def growth(frames: Frames) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    so_far = Window.partitionBy("map").orderBy("since").rowsBetween(Window.unboundedPreceding, 0)
    return (
        frames.updates.where(OF_ENTRIES)
        .groupBy(f.window("time", frames.every).getField("start").alias("since"), "map")
        .agg(
            f.count("*").alias("updates"),
            f.count_if(f.col("change") == "set").alias("sets"),
            f.count_if(f.col("change") == "remove").alias("removes"),
            f.sum(f.col("key_bytes") + f.col("value_bytes")).alias("bytes"),
        )
        .withColumn("updates_so_far", f.sum("updates").over(so_far))
        .withColumn("bytes_so_far", f.sum("bytes").over(so_far))
        .orderBy("since", "map")
    )


def gaps(frames: Frames) -> DataFrame:
    """Updates that are missing between two present ones, in the journal of one member and one copy of a
    partition.

    A copy that is begun (`began`) or given up (`dropped`) starts another one: the contents it was filled with
    have no records. A row means: update `highest` is there, the `missing` ones after it are not, `next` is
    there. Gaps are `covered` if the newest checkpoint contains them: a copy that had missed updates was
    filled up without records.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("directory", "partition").orderBy("lsn", "place")
    copies = frames.journal.where("kind in ('record', 'began', 'dropped')").withColumn(
        "copy", f.sum(f.when(f.col("kind") == "record", 0).otherwise(1)).over(order)
    )
    same = ["directory", "partition", "map", "copy"]
    held = frames.checkpoints.where("kind = 'map'").select("directory", "partition", "map", "low")
    return (
        copies.where("kind = 'record'")
        .dropDuplicates([*same, "counter"])
        .withColumn("highest", f.lag("counter").over(Window.partitionBy(*same).orderBy("counter")))
        .where("counter > highest + 1")
        .join(held, ["directory", "partition", "map"], "left")
        .select(
            "member",
            "directory",
            "partition",
            "map",
            "term",
            "highest",
            (f.col("counter") - f.col("highest") - 1).alias("missing"),
            f.col("counter").alias("next"),
            f.coalesce(f.col("low") >= f.col("counter") - 1, f.lit(False)).alias("covered"),
            "segment",
            "lsn",
        )
        .orderBy("directory", "partition", "map", "next")
    )


def damage(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    journal = frames.journal.where("kind in ('damage', 'cut')").select(
        "member", "directory", "kind", f.col("segment").alias("file"), "lsn", "note"
    )
    checkpoints = frames.checkpoints.where("kind = 'damage'").select(
        "member", "directory", "kind", "file", f.lit(None).cast("bigint").alias("lsn"), "note"
    )
    return journal.unionByName(checkpoints).orderBy("directory", "file", "lsn")


_MAKERS: dict[str, Callable[[Frames], DataFrame]] = {
    "writers": writers,
    "largest": largest,
    "hottest": hottest,
    "growth": growth,
    "gaps": gaps,
    "damage": damage,
}


# -- for display


def shown(stored: bytes) -> str:
    try:
        value = from_stored(stored)
    except (ValueError, IndexError, RecursionError, struct.error, msgspec.MsgspecError):
        return f"{len(stored)} bytes {stored[:8].hex()}"
    if isinstance(value, Serialized):
        return f"type {value.type_id}, {len(stored)} bytes {stored[4:12].hex()}"
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return shown(value)
    return value if value is None or isinstance(value, int | float | str) else value.isoformat()


def _text(report: Report) -> Iterator[str]:
    rows = report.rows()
    yield f"{report.name}: {REPORTS[report.name]}"
    if not rows:
        yield "  nothing"
        return
    cells = [list(rows[0])] + [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
