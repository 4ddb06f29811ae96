"""Finds query and batch of a streaming task. Spark passes them to its tasks, but not through a public interface.

This works in Spark 4.1 to 4.3; everything that depends on it is in this module.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext
from pyspark import __version__ as spark_version

from holdfast.errors import ConfigError

QUERY_PROPERTIES = ("sql.streaming.queryId",)
BATCH_PROPERTIES = ("streaming.sql.batchId",)


@dataclass(frozen=True, slots=True)
class Batch:
    query: str
    """The same as long as the query continues from one checkpoint."""
    number: int


def this_batch() -> Batch | None:
    context = TaskContext.get()
    if context is None:
        return None
    query = _first(context, QUERY_PROPERTIES)
    number = _first(context, BATCH_PROPERTIES)
    if query is None or number is None or not number.isdecimal():
        return None
    return Batch(query, int(number))


def must_know(batch: Batch | None) -> Batch:
    """Raises ConfigError, with advice, if the batch is unknown."""
    if batch is None:
        raise ConfigError(
            f"Spark {spark_version} does not pass query and batch to its tasks "
            f"({QUERY_PROPERTIES[0]}, {BATCH_PROPERTIES[0]}), so written batches cannot be distinguished from new "
            "ones. The option idempotent=false turns the check off: a batch that is written again "
            "stores the same rows"
        )
    return batch


def _first(context: TaskContext, names: tuple[str, ...]) -> str | None:
    for name in names:
        value = context.getLocalProperty(name)
        if value:
            return value
    return None
