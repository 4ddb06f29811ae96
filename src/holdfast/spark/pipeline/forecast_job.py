"""Forecasts of plans as a Spark job, for clusters of any size.

    question = ask(["join:100", "crash-zone"], members=1000, groups=10, partitions=1_000_000, copies=3)
    forecast = foresee_on_spark(spark, question)
    print(forecast)

Targets and plans are made by the members' own functions within the tasks (`holdfast.planning.walk`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
import pyarrow as pa

from holdfast.core.model.migration import NONE, Migration
from holdfast.core.placement.dryrun import Outlook
from holdfast.planning.forecast import (
    Figures,
    Forecast,
    Hazards,
    MemberLoad,
    Network,
    OtherOrder,
    forecast_of,
)
from holdfast.planning.strategies import ARRANGE
from holdfast.planning.walk import Part, Question, Share, Walk, shares, work
from holdfast.spark import jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "`part` binary"
_INDEXES = ("source_current", "source_new", "destination_current", "destination_new")
MOVES_SCHEMA = pa.schema(
    [pa.field(name, pa.string()) for name in ("strategy", "scenario")]
    + [pa.field(name, pa.int32()) for name in ("step", "partition", "place")]
    + [pa.field(name, pa.string()) for name in ("kind", "owner", "source", "destination")]
    + [pa.field(name, pa.int32()) for name in _INDEXES]
    + [pa.field("bytes", pa.int64())]
)
MOVES_DDL = "strategy string, scenario string, step int, partition int, place int, " + ", ".join(
    ["kind string", "owner string", "source string", "destination string"]
    + [f"{name} int" for name in _INDEXES]
    + ["bytes bigint"]
)
"""`place`: position among the migrations of the partition; `owner`: supplier of the content."""


def _struct(text: str, *numbers: str) -> pa.DataType:
    return pa.struct([pa.field(text, pa.string()), *(pa.field(name, pa.int64()) for name in numbers)])


_CELLS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    list[int]: pa.list_(pa.int64()),
    tuple[int, int]: pa.list_(pa.int64()),
    dict[str, int]: pa.list_(_struct("kind", "migrations")),
    list[MemberLoad]: pa.list_(_struct("member", "owned", "replicas", "bytes")),
    dict[str, OtherOrder]: pa.list_(_struct("order", "dips", "stuck", "fewest")),
}


def foresee_on_spark(
    spark: SparkSession,
    question: Question,
    strategies: Sequence[str] = (ARRANGE,),
    network: Network | None = None,
    hazards: Hazards | None = None,
    progress: jobs.Show = jobs.nothing,
) -> Forecast:
    """As `planning.forecast.foresee`, with a block of partitions in each task. Raises JobFailed."""
    began = time.monotonic()
    every = shares(question, strategies, jobs.slots(spark))
    counted = jobs.Counted(spark)

    def task(share: Share) -> Iterator[pa.RecordBatch]:
        for part in work(question, share):
            counted.add(0, part.counts["partitions"])
            yield pa.RecordBatch.from_pydict({"part": [msgspec.msgpack.encode(part)]})

    table = jobs.run(spark, every, task, DDL, title="plan", progress=progress, counted=counted)
    parts = [msgspec.msgpack.decode(row or b"", type=Part) for row in table.column("part").to_pylist()]
    return forecast_of(question, parts, strategies, network, hazards, time.monotonic() - began, len(every))


def frame(spark: SparkSession, forecast: Forecast) -> DataFrame:
    """A row for each strategy, scenario and step; step -1 is the cluster as it is."""
    rows = [msgspec.to_builtins(each) for each in forecast.figures]
    for row in rows:
        row["orders"] = [{"order": name, **counts} for name, counts in row["orders"].items()]
        row["kinds"] = [{"kind": name, "migrations": count} for name, count in row["kinds"].items()]
    schema = pa.schema([pa.field(name, _CELLS[hint]) for name, hint in get_type_hints(Figures).items()])
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema))


def moves(spark: SparkSession, question: Question, strategies: Sequence[str] = (ARRANGE,)) -> DataFrame:
    """A row for each migration (`MOVES_DDL`). Indices are -1 for none."""

    def task(share: Share) -> Iterator[pa.RecordBatch]:
        yield from moves_of(question, share)

    return jobs.plan(spark, shares(question, strategies, jobs.slots(spark)), task, MOVES_DDL)


def moves_of(question: Question, share: Share) -> Iterator[pa.RecordBatch]:
    for number in share.scenarios:
        walk = Walk(question, share, number)
        own = {name: uuid for uuid, name in walk.name.items()}
        for step, outlooks in walk.outlooks(walk.first_rows()):
            named = {"strategy": walk.strategy, "scenario": walk.scenario.text, "step": step}
            rows = [
                named | {"partition": partition} | row
                for partition, size, outlook in zip(walk.partitions, walk.sizes, outlooks, strict=True)
                for row in _moves(outlook, size, own)
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=MOVES_SCHEMA)


def _moves(outlook: Outlook, size: int, own: dict[str, str]) -> Iterator[dict[str, Any]]:
    def name(member: str | None) -> str | None:
        return None if member is None else own.get(member, member)

    place = 0
    for step, row in zip(outlook.plan.steps, outlook.plan.states(), strict=False):
        if isinstance(step, Migration):
            yield {
                "place": place,
                "kind": step.kind.value,
                "owner": name(row[0]),
                "source": name(step.source),
                "destination": name(step.destination),
                **{field: getattr(step, field) for field in _INDEXES},
                "bytes": size if step.destination_current == NONE else 0,
            }
            place += 1
