"""Spark reads the checkpoints of a member as they lie there, without Holdfast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.wire.checkpoint import encode_checkpoint
from holdfast.wire.values import to_stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_reads_a_directory_of_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    for partition in range(3):
        keys = [to_stored(10 * partition + number) for number in range(10)]
        values = [to_stored(f"v{number}") for number in range(10)]
        ttls = [5000 * partition] * 10
        copy = Snapshot(
            partition, 0, [MapSnapshot("m", [(1, 0)], b"", keys, values, ttls if partition else [])]
        )
        name, data = encode_checkpoint(copy, 9, "store")
        (tmp_path / name).write_bytes(data)
    frame = spark.read.parquet(str(tmp_path))
    assert frame.dtypes == [
        ("map", "string"),
        ("key", "binary"),
        ("value", "binary"),
        ("ttl_ms", "bigint"),
        ("max_idle_ms", "bigint"),
        ("key_hash", "bigint"),
    ]
    rows = {
        (bytes(row.key), bytes(row.value), row.map, row.ttl_ms, row.max_idle_ms) for row in frame.collect()
    }
    assert rows == {
        (to_stored(number), to_stored(f"v{number % 10}"), "m", 5000 * (number // 10), 0)
        for number in range(30)
    }
    # The stored form of an integer: its last four bytes, big-endian.
    total = frame.selectExpr("sum(cast(conv(hex(substring(key, 5, 4)), 16, 10) as bigint)) as s").first()
    assert total is not None
    assert total.s == sum(range(30))
