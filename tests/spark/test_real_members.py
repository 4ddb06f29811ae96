"""The pipeline against member processes that are drained and killed while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from holdfast.spark.pipeline.compare import compare_with_source
from holdfast.spark.pipeline.verify import verify
from holdfast_lab.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[maps.default]
backups = 1
"""
ROWS = 20_000


@pytest.fixture
def members(java: None) -> Iterator[LocalCluster]:
    with LocalCluster(4, CONFIG) as running:
        running.wait_settled()
        yield running


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 4).selectExpr("id", "concat('word-', id) as word", "id / 7 as part")


def addresses(members: LocalCluster) -> str:
    return ",".join(members.client_addresses())


def test_a_map_is_read_while_a_member_is_drained(spark: SparkSession, members: LocalCluster) -> None:
    frame = rows(spark)
    frame.write.format("holdfast").options(address=addresses(members), key="id").mode("append").save("m")
    known = addresses(members)
    leaving = members.members[1]
    drain = threading.Thread(target=members.drain, args=(leaving,))
    drain.start()
    try:
        reads = 0
        while drain.is_alive() or not reads:
            # One address is gone in the end, and every partition of that member has moved.
            back = spark.read.format("holdfast").options(address=known).load("m")
            assert back.selectExpr("count(*)", "count(distinct id)", "sum(id)").first() == (
                ROWS,
                ROWS,
                ROWS * (ROWS - 1) // 2,
            )
            reads += 1
    finally:
        drain.join()
    assert not leaving.alive
    members.wait_safe(60)
    assert compare_with_source(spark, frame, "m", "id", address=addresses(members)).same
    result = verify(spark, addresses(members))
    assert result.sound, result
    assert result.entries == ROWS + 1


def test_a_member_is_killed_while_a_map_is_written(spark: SparkSession, members: LocalCluster) -> None:
    frame = rows(spark)
    known = addresses(members)
    victim = members.members[2]

    def kill() -> None:
        from holdfast.client.blocking import Client

        with Client(members.client_addresses()) as client:
            while client.size("m") < 1000:
                time.sleep(0.01)
        members.kill(victim)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        # Several times over the same rows, so that the kill falls into the writing.
        while True:
            done = not victim.alive
            frame.write.format("holdfast").options(address=known, key="id").mode("append").save("m")
            if done:
                break
    finally:
        killer.join()
    members.wait_safe(60)
    compared = compare_with_source(spark, frame, "m", "id", address=addresses(members))
    assert compared.same, compared
    result = verify(spark, addresses(members))
    assert result.sound, result
