"""What a join of two maps refuses, and which types a frame can have; without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.errors import ConfigError

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructType

from holdfast.spark.pipeline import tables
from holdfast.spark.pipeline.tables import ddl, join_maps
from holdfast.spark.rows.column_schemas import StoredSchema, arrow_schema, store_schema
from holdfast.spark.rows.stored import EntryMaker

KEYED = StructType().add("id", LongType())
LISTS = StructType().add("id", LongType()).add("all", ArrayType(IntegerType()))


class ReplicaList:
    """As much of a session as a join asks for before it is planned."""

    class sparkContext:  # noqa: N801 - the name is Spark's
        defaultParallelism = 2  # noqa: N815


@pytest.fixture
def work(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Maps `a` and `b` with the keys 0 to 49, `lists` with a list; a join is answered with its rows."""
    with Client(cluster.addresses()) as client:
        for name, struct in (("a", KEYED), ("b", KEYED), ("lists", LISTS)):
            store_schema(client, name, StoredSchema(struct.jsonValue(), ["id"], "json"))
            rows = pa.Table.from_pylist([{"id": number, "all": [1]} for number in range(50)])
            batch = rows.select(struct.names).cast(arrow_schema(struct)).combine_chunks().to_batches()[0]
            client.put_columns(name, *EntryMaker(batch.schema, ["id"], "json").entries(batch))

    def plan(spark: object, shares: list[Any], work: Any, columns: str) -> list[int]:
        batches = [batch for share in shares for batch in work(share)]
        return sorted(pa.Table.from_batches(batches)["id"].to_pylist()) if batches else []

    monkeypatch.setattr(tables.jobs, "plan", plan)

    def join(left: str, right: str, how: Any = "inner", **more: Any) -> Any:
        spark: Any = ReplicaList()
        return join_maps(spark, left, right, "id", how, address=cluster.addresses(), **more)

    return join


def test_only_the_keys_that_are_asked_for_are_joined(work: Any) -> None:
    assert work("a", "b") == list(range(50))
    for how in ("inner", "full", "semi"):
        assert work("a", "b", how, keys="[3, 5, 77]") == [3, 5], how
    assert work("a", "b", "anti", keys="[3, 5, 77]") == []


def test_a_limit_is_refused(work: Any) -> None:
    with pytest.raises(ConfigError, match="a join has no limit"):
        work("a", "b", limit=3)


def test_columns_that_cannot_be_joined_are_refused_by_name(work: Any) -> None:
    for left, right in (("lists", "a"), ("a", "lists")):
        with pytest.raises(ConfigError, match="column 'all' is array<int>, which cannot be joined so"):
            work(left, right)
    assert work("a", "lists", right_columns=["id"]) == list(range(50))
    assert work("a", "lists", "semi") == list(range(50))


def test_names_of_fields_are_quoted_wherever_they_are() -> None:
    inner = StructType().add("a b", IntegerType()).add("c`d", StringType())
    struct = StructType().add("s", inner).add("l", ArrayType(inner)).add("m", MapType(StringType(), inner))
    text = "struct<`a b`: int, `c``d`: string>"
    assert ddl(struct) == f"`s` {text}, `l` array<{text}>, `m` map<string, {text}>"
