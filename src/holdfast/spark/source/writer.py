"""Writing a DataFrame into a map: idempotent puts, straight to the members that own the keys.

A row is stored under its key, so a task that Spark runs again changes nothing. There is no transaction: what a failed
job has written stays, and is told; writing the same rows again is always safe.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.client.blocking import PutCount
from holdfast.core.store.operations import DEFAULT_TTL
from holdfast.errors import ConfigError, HoldfastError
from holdfast.spark.rows.schemas import StoredSchema, arrow_schema, load_schema, store_schema
from holdfast.spark.rows.stored import EntryMaker
from holdfast.spark.source.options import Options
from holdfast.spark.task import leave_garbage, task_number


class WriteFailed(HoldfastError):
    """A task could not write all its rows; the message says what it has written."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has written."""

    task: int
    rows: int
    rows_again: int
    """Rows that were sent more than once, because their partition moved or an answer was lost."""
    partitions: frozenset[int]


class HoldfastWriter(DataSourceArrowWriter):
    """Pickled by Spark: made on the driver, used in the tasks, and told the end on the driver."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises ConfigError when columns, key and format do not go together. Nothing is sent yet."""
        self._options = options
        self._struct = schema
        self._schema = arrow_schema(schema)
        self._format = options.value_format or "json"
        if options.columns:
            raise ConfigError(
                "the option columns is for reading; select the columns of the DataFrame instead"
            )
        EntryMaker(self._schema, options.key, self._format)

    def prepare(self, *, overwrite: bool) -> None:
        """Clear the map if it is to be overwritten, and remember its columns.

        Raises ConfigError, and changes nothing, when the map has other columns, another key or another format already.
        """
        name = self._options.map
        wanted = StoredSchema.of(self._struct, list(self._options.key), self._format)
        with self._options.client() as client:
            if overwrite:
                client.clear(name)
            else:
                present = load_schema(client, name)
                if present is not None and present != wanted:
                    raise ConfigError(_difference(name, present, wanted))
            store_schema(client, name, wanted)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Write the rows of one task. Raises WriteFailed."""
        task = task_number()
        options = self._options
        maker = EntryMaker(self._schema, options.key, self._format)
        ttl_ms = DEFAULT_TTL if options.ttl_ms is None else options.ttl_ms
        count = PutCount()
        try:
            with options.client() as client:
                for batch in iterator:
                    keys, values = maker.entries(batch)
                    client.put_columns(options.map, keys, values, ttl_ms=ttl_ms, count=count)
        except HoldfastError as failed:
            raise WriteFailed(
                f"task {task} has written {count.rows} rows into {len(count.partitions)} partitions "
                f"of map {options.map!r}, and then failed: {failed}"
            ) from failed
        leave_garbage()
        return Written(task, count.rows, count.rows_again, frozenset(count.partitions))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: every row is stored, on its sync backups too, when its task has ended."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what stays written."""
        print(self.account(messages), file=sys.stderr, flush=True)  # noqa: T201 - Spark shows it on the driver

    def account(self, messages: Sequence[WriterCommitMessage | None]) -> str:
        """What the finished tasks of a failed job have written, in words."""
        finished = [message for message in messages if isinstance(message, Written)]
        rows = sum(message.rows for message in finished)
        partitions = frozenset[int]().union(*(message.partitions for message in finished))
        return (
            f"holdfast: the job failed. {len(finished)} of its {len(messages)} tasks have finished; they have written "
            f"{rows} rows into {len(partitions)} partitions of map {self._options.map!r}, which stay. The other tasks "
            "may have written rows too; their errors say how many. Writing the same rows again is safe."
        )


def _difference(name: str, present: StoredSchema, wanted: StoredSchema) -> str:
    what: list[str] = []
    if present.value_format != wanted.value_format:
        what.append(f"its format is {present.value_format}, not {wanted.value_format}")
    if present.key != wanted.key:
        what.append(f"its key is {','.join(present.key) or 'key'}, not {','.join(wanted.key) or 'key'}")
    if present.schema != wanted.schema:
        what.append(f"its columns are {present.struct.simpleString()}, not {wanted.struct.simpleString()}")
    return (
        f"the map {name!r} was written differently: {'; '.join(what)}. Use mode 'overwrite', or another map"
    )
