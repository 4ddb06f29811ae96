"""Reading a map: a few tasks, each pulling its share of the partitions straight from the members that own them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from holdfast.spark.rows.schemas import arrow_schema
from holdfast.spark.rows.stored import RowMaker
from holdfast.spark.source.options import Options
from holdfast.spark.task import leave_garbage

TASKS = 4
"""Tasks of a read, if there are fewer members than that and nothing else is asked for."""

TASKS_MAX = 16

BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20
"""A record batch is handed to Spark once it has so many rows, or so many bytes of keys and values."""


@dataclass(frozen=True)
class Share(InputPartition):
    """The partitions of the grid that one task reads, and where it may ask."""

    partitions: tuple[int, ...]
    addresses: tuple[str, ...]


class HoldfastReader(DataSourceReader):
    """Pickled by Spark: made on the driver, used in the tasks.

    A partition is read as it was at one moment, from its primary. Partitions that move while the job runs are read at
    their new primary: no row comes twice, none is missed. A job that runs again over the same plan asks anew who owns
    what.
    """

    def __init__(self, options: Options, schema: StructType, value_format: str) -> None:
        """Raises ConfigError when the schema does not go with the format."""
        self._options = options
        self._value_format = value_format
        self._schema = arrow_schema(schema)
        RowMaker(self._schema, value_format, options.map)

    def partitions(self) -> Sequence[InputPartition]:
        """One share for each task, each with as few owners as possible."""
        with self._options.client() as client:
            table = client.table()
        tasks = self._options.tasks or min(TASKS_MAX, max(TASKS, len(table.data_members)))
        addresses = tuple(member.address for member in table.members.values())
        return [Share(tuple(share), addresses) for share in table.shares(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one share."""
        assert isinstance(partition, Share), partition
        maker = RowMaker(self._schema, self._value_format, self._options.map)
        keys: list[bytes] = []
        values: list[bytes] = []
        size = 0
        with self._options.client(partition.addresses) as client:
            for number in partition.partitions:
                # The whole partition first: if its member is lost half-way, it is read again from the beginning.
                for page in client.scan(self._options.map, number):
                    more_keys, more_values = page.split()
                    keys += more_keys
                    values += more_values
                    size += page.size_bytes
                    if len(keys) >= BATCH_ROWS or size >= BATCH_BYTES:
                        yield maker.batch(keys, values)
                        keys, values, size = [], [], 0
        if keys:
            yield maker.batch(keys, values)
        leave_garbage()
