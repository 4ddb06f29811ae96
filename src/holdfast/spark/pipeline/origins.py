"""Finds the maps that a DataFrame reads, so that none of them is cleared before it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.client.blocking import Client
from holdfast.errors import ConfigError
from holdfast.spark.source.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RELATION = "DataSourceV2Relation"
SOURCE = "holdfast"


def refuse_own_map(frame: DataFrame, client: Client, map_name: str) -> None:
    """Raises ConfigError if the frame reads this map of this cluster without a cut: it would be empty.

    Only reads in Spark's own plan are found, not those of `pipeline.tables`, which are Python functions to Spark.
    """
    for options in reads(frame):
        if options.map == map_name and not options.read.cut and _same_cluster(options, client):
            raise ConfigError(
                f"the DataFrame reads the map {map_name!r}, which overwriting clears before its rows are computed: "
                "read it with the option cut=true, or write the rows to a file or another map first"
            )


def reads(frame: DataFrame) -> Iterator[Options]:
    """Including subqueries."""
    for node in _nodes(frame._jdf.queryExecution().analyzed()):  # noqa: SLF001 - PySpark shows plans in no other way
        if node.getClass().getSimpleName() == RELATION and node.table().name() == SOURCE:
            yield Options.parse(dict(node.options().asCaseSensitiveMap()))


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for below in (plan.children(), plan.subqueries()):
        for at in range(below.size()):
            yield from _nodes(below.apply(at))


def _same_cluster(options: Options, client: Client) -> bool:
    """Clusters share no member."""
    with options.client() as reader:
        there = {(member.uuid, member.address) for member in reader.table().members.values()}
    return any((member.uuid, member.address) in there for member in client.table().members.values())
