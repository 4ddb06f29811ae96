"""Compares a map, row by row, with the DataFrame from which it was loaded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError
from holdfast.spark.failures import in_our_words
from holdfast.spark.jobs import Show, nothing, watched
from holdfast.spark.pipeline.tables import quoted
from holdfast.spark.rows.bad_rows import BadRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLES = 10
UNFIT = "__unfit"
"""Not null in rows of entries that do not fit."""


@dataclass(frozen=True, slots=True)
class Comparison:
    equal: int
    missing: int
    extra: int
    different: int
    """In both under the same key, with other values. Duplicate keys of the source count here too."""
    seconds: float
    unfit: int = 0
    """Entries that did not fit the columns; they are compared with nulls for the bad cells."""
    samples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return self.missing == self.extra == self.different == 0

    def __str__(self) -> str:
        total = (
            f"{self.equal} rows equal, {self.missing} missing, {self.extra} extra, {self.different} different, "
            f"in {self.seconds:.1f} s"
        )
        if self.unfit:
            total += f"; {self.unfit} entries of the map did not fit its columns"
        return "\n".join([total, *map(str, self.samples)])


def compare_with_source(
    spark: SparkSession,
    source: DataFrame,
    map_name: str,
    key: Sequence[str] | str,
    *,
    address: str,
    samples: int = SAMPLES,
    progress: Show = nothing,
    **options: str,
) -> Comparison:
    """Compare a map with `source`, whose columns `key` identify a row, in a Spark job that joins the two.

    NaN equals NaN, and null equals null. `options` are those of the data source; `bad` is `fail` or `null`.
    Raises JobFailed, ConfigError if the map has other columns or types than the source.
    """
    from pyspark.sql import functions

    began = time.monotonic()
    keys = [part.strip() for part in key.split(",")] if isinstance(key, str) else list(key)
    bad = BadRows.parse(options.pop("bad", "fail"))
    if bad.mode not in ("fail", "null"):
        raise ConfigError(
            f"a comparison has the option bad = fail or null, not {bad}: every entry is compared"
        )
    if bad.mode == "null":
        options["bad"] = f"column {UNFIT}"
    reader = spark.read.format("holdfast").options(address=address, **options)
    with in_our_words("compare"):
        held = reader.load(map_name)
    if bad.mode == "fail":
        held = held.withColumn(UNFIT, functions.lit(None).cast("string"))
    wrong = set(source.dtypes) ^ set(held.drop(UNFIT).dtypes)
    if wrong:
        names = ", ".join(sorted({name for name, _ in wrong}))
        raise ConfigError(f"the map {map_name!r} and the source differ in the columns {names}: {wrong}")
    rest = [name for name in source.columns if name not in keys] or keys

    def side(frame: DataFrame, name: str, *more: str) -> DataFrame:
        return frame.select(*map(quoted, keys), functions.struct(*map(quoted, rest)).alias(name), *more)

    verdict = (
        functions.when(functions.col("_source").isNull(), "extra")
        .when(functions.col("_held").isNull(), "missing")
        .when(functions.col("_source").eqNullSafe(functions.col("_held")), "equal")
        .otherwise("different")
    )
    with in_our_words("compare"), watched(spark, "compare", 0, progress):
        sides = side(source, "_source").join(side(held, "_held", UNFIT), keys, "full_outer")
        joined = sides.withColumn("_verdict", verdict)
        told = joined.groupBy("_verdict").agg(
            functions.count("*").alias("count"), functions.count(UNFIT).alias("unfit")
        )
        found = told.collect()
        counts = {row["_verdict"]: row["count"] for row in found}
        unequal = sum(count for name, count in counts.items() if name != "equal")
        shown = joined.where("_verdict != 'equal'").limit(samples).collect() if unequal and samples else []
    return Comparison(
        counts.get("equal", 0),
        counts.get("missing", 0),
        counts.get("extra", 0),
        counts.get("different", 0),
        time.monotonic() - began,
        sum(row["unfit"] for row in found),
        [
            {
                **{name: row[name] for name in keys},
                "verdict": row["_verdict"],
                "source": row["_source"] and row["_source"].asDict(),
                "map": row["_held"] and row["_held"].asDict(),
            }
            for row in shown
        ],
    )
