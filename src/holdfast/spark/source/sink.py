"""Stream into a map: each batch takes effect once, and the last of several rows of a key wins.

    frame.writeStream.format("holdfast").option("address", ...).option("key", "id").option("checkpointLocation", ...)
        .start("flights")

A restarted query replays the last batch of its checkpoint, perhaps partly written before. Rows are stored
under their keys, so writing them again stores the same. But a replay must not overwrite later batches.
Example: batch 7 sets k=1 and is finished, batch 8 sets k=2, and an attempt of batch 7 that Spark had given up
is still running. The grid keeps the last finished batch of each query and map (`Finished`); each write checks
it first, so the old attempt of batch 7 stops.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import IntegralType, StringType, StructType

from holdfast.client.blocking import Client, PutCount
from holdfast.client.row_sender import check_writable
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import DEFAULT_TTL
from holdfast.errors import ConfigError, HoldfastError
from holdfast.spark.rows.column_schemas import StoredSchema, arrow_schema, load_schema, store_schema
from holdfast.spark.rows.stored import EntryMaker, json_data, string_data
from holdfast.spark.source.query_batch import Batch, must_know, this_batch
from holdfast.spark.source.stream_options import SinkOptions
from holdfast.spark.source.writer import WriteFailed
from holdfast.spark.task import leave_garbage, task_number
from holdfast.wire.own import PutKind

STREAMS_MAP = "__streams.spark"
"""`query id/map` -> `Finished` as JSON."""

STORE_OPS = frozenset({"insert", "update", "upsert", "put", "set"})
REMOVE_OPS = frozenset({"remove", "delete"})
RESTART = "restart"

PLACES = ("partition", "term", "counter")
"""With `opColumn`, integer columns with these names give the position of a row's change, and are not stored."""

HELD_BYTES = 16 << 20
"""Rows are buffered up to so many bytes; a later row of the same key replaces a buffered one."""

_NO_VALUE = b"\0\0\0\0"


class Finished(msgspec.Struct, frozen=True):
    batch: int
    time_ms: int


@dataclass(frozen=True)
class StreamWritten(WriterCommitMessage):
    batch: Batch | None
    stored: int
    removed: int
    again: bool
    """Whether the batch was already finished, or was finished by another attempt: nothing was written after
    that.
    """


class _Overtaken(Exception):
    """The batch was finished by another attempt: later batches may be in the map and must not be overwritten."""


class HoldfastStreamWriter(DataSourceStreamArrowWriter):
    """Created by Spark for each batch, and again for its end: all its state is in its options and the grid."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Raises ConfigError if columns, key and format do not fit together. Sends nothing yet."""
        self._options = options
        self._places: tuple[str, ...] = ()
        if options.op_column is not None:
            kinds = {one.name: one.dataType for one in schema.fields}
            if not isinstance(kinds.get(options.op_column), StringType):
                raise ConfigError(
                    f"opColumn: there is no text column {options.op_column!r}; the columns are "
                    f"{', '.join(schema.names)}"
                )
            self._places = tuple(name for name in PLACES if isinstance(kinds.get(name), IntegralType))
        aside = {options.op_column, *self._places}
        self._struct = StructType([one for one in schema.fields if one.name not in aside])
        self._schema = arrow_schema(self._struct)
        self._format = options.options.value_format or "json"
        EntryMaker(self._schema, options.options.key, self._format)

    def prepare(self) -> None:
        """Store the map's columns. Raises ConfigError if it has others, or the rejection of a member.

        Rows in their stored form may belong to any map: nothing is stored or compared.
        """
        common = self._options.options
        with common.client() as client:
            check_writable(client, common.map)
            if self._format == "binary":
                return
            wanted = StoredSchema.of(self._struct, list(common.key), self._format)
            present = load_schema(client, common.map)
            if present is None:
                store_schema(client, common.map, wanted)
            elif present != wanted:
                raise ConfigError(
                    f"the map {common.map!r} was written differently: {present.value_format} of "
                    f"{present.struct.simpleString()} by {','.join(present.key)}, not {wanted.value_format} of "
                    f"{wanted.struct.simpleString()} by {','.join(wanted.key)}. Use another map"
                )

    # -- in the tasks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Raises WriteFailed."""
        batch = this_batch()
        if self._options.idempotent:
            batch = must_know(batch)
        common = self._options.options
        with common.client() as client:
            rows = Rows(client, self._options, batch if self._options.idempotent else None)
            try:
                rows.check()
                maker = EntryMaker(self._schema, common.key, self._format)
                for arrived in iterator:
                    self._take(rows, maker, arrived)
                rows.flush()
            except _Overtaken:
                for _ in iterator:
                    pass
                return StreamWritten(batch, rows.stored, rows.removed, again=True)
            except HoldfastError as failed:
                raise WriteFailed(
                    f"task {task_number()} of batch {batch.number if batch else '?'} has applied {rows.applied} rows "
                    f"to map {common.map!r}, and then failed: {failed}. The batch will be written again, which is safe"
                ) from failed
        leave_garbage()
        return StreamWritten(batch, rows.stored, rows.removed, again=False)

    def _take(self, rows: Rows, maker: EntryMaker, arrived: pa.RecordBatch) -> None:
        if not arrived.num_rows:
            return
        op_column = self._options.op_column
        if op_column is None:
            keys, values = maker.entries(pa.RecordBatch.from_arrays(arrived.columns, schema=self._schema))
            for key, value in zip(keys, values, strict=True):
                rows.store(key, value, ())
            return
        ops = [_known_op(op) for op in arrived.column(op_column).to_pylist()]
        places = {name: arrived.column(name).to_pylist() for name in self._places}
        ranks = _ranks(places, len(ops))
        content = arrived.select(self._struct.names)
        begin = 0
        for at, op in enumerate(ops):
            if op == RESTART:
                self._apply(rows, maker, content.slice(begin, at - begin), ops[begin:at], ranks[begin:at])
                partition = places["partition"][at] if "partition" in places else None
                if partition is None:
                    raise ConfigError(
                        "a row with op restart names no partition: keep the column partition in the stream"
                    )
                if self._options.source_map is None:
                    raise ConfigError(
                        f"partition {partition} starts over: entries that the stream does not send again would "
                        "be removed, which is correct only if all of them came from one map, under its own keys. "
                        "If so, name it with the option sourceMap; otherwise follow the maps without onGap=restart"
                    )
                rows.wipe(partition, ranks[at])
                begin = at + 1
        self._apply(rows, maker, content.slice(begin), ops[begin:], ranks[begin:])

    def _apply(
        self,
        rows: Rows,
        maker: EntryMaker,
        content: pa.RecordBatch,
        ops: Sequence[str],
        ranks: Sequence[tuple[int, ...]],
    ) -> None:
        if not ops:
            return
        columns = list(content.columns)
        if self._format == "binary":
            at = self._struct.names.index("value")
            gone = pa.array([op in REMOVE_OPS for op in ops], pa.bool_())
            columns[at] = pc.if_else(gone, pa.scalar(_NO_VALUE, pa.binary()), columns[at])
        keys, values = maker.entries(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        for key, value, op, rank in zip(keys, values, ops, ranks, strict=True):
            if op in REMOVE_OPS:
                rows.remove(key, rank)
            else:
                rows.store(key, value, rank)

    # -- on the driver

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        queries = {
            told.batch.query
            for told in messages
            if isinstance(told, StreamWritten) and told.batch is not None
        }
        if not self._options.idempotent or not queries:
            return
        common = self._options.options
        with common.client() as client:
            for query in queries:
                last = finished(client, query, common.map)
                if last is None or last.batch < batchId:
                    finish(client, query, common.map, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        written = [told for told in messages if isinstance(told, StreamWritten)]
        print(  # noqa: T201 - Spark shows it on the driver
            f"holdfast: batch {batchId} of a stream into map {self._options.options.map!r} failed; {len(written)} of "
            f"its {len(messages)} tasks have written their rows, which stay. The batch will be written again, which is "
            "safe.",
            file=sys.stderr,
            flush=True,
        )


def _known_op(op: str | None) -> str:
    if op in STORE_OPS or op in REMOVE_OPS or op == RESTART:
        return str(op)
    known = ", ".join(sorted({*STORE_OPS, *REMOVE_OPS, RESTART}))
    raise ConfigError(f"opColumn has {op!r}, which is none of {known}")


def _ranks(places: dict[str, list[int | None]], count: int) -> list[tuple[int, ...]]:
    """Order of rows of a key, by term and counter; empty if only their sequence decides."""
    if "term" not in places or "counter" not in places:
        return [()] * count
    return [
        (term or 0, counter or 0) for term, counter in zip(places["term"], places["counter"], strict=True)
    ]


class Rows:
    """Rows of one task to write: the last one for each key."""

    def __init__(self, client: Client, options: SinkOptions, batch: Batch | None = None) -> None:
        """`batch`: nothing is written any more once it is finished."""
        self._client = client
        self._batch = batch
        self._map = options.options.map
        self._ttl_ms = DEFAULT_TTL if options.options.ttl_ms is None else options.options.ttl_ms
        self._source_partitions = options.source_partitions
        self._waiting: dict[bytes, bytes | None] = {}
        """None: remove."""
        self._ranks: dict[bytes, tuple[int, ...]] = {}
        """Latest position by key, of all rows of this batch with positions, written or not."""
        self._size = 0
        self.stored = 0
        self.removed = 0
        self.applied = 0
        """Sum of both. Correct also after an error."""

    def store(self, key: bytes, value: bytes, rank: tuple[int, ...]) -> None:
        self._change(key, value, rank)

    def remove(self, key: bytes, rank: tuple[int, ...]) -> None:
        self._change(key, None, rank)

    def _change(self, key: bytes, value: bytes | None, rank: tuple[int, ...]) -> None:
        if rank:
            if rank < self._ranks.get(key, ()):
                return
            self._ranks[key] = rank
        self._waiting[key] = value
        self._size += len(key) + len(value or b"")
        if self._size >= HELD_BYTES:
            self.flush()

    def wipe(self, partition: int, rank: tuple[int, ...]) -> None:
        """Remove all keys of this partition of the source stream."""
        client = self._client
        count = self._source_partitions or client.partition_count
        everywhere = range(client.partition_count) if count != client.partition_count else (partition,)
        for number in everywhere:
            for page in client.scan(self._map, number):
                for key in page.split()[0]:
                    if partition_of(key, 0, count) == partition:
                        self.remove(key, rank)
        for key in [key for key in self._waiting if partition_of(key, 0, count) == partition]:
            self.remove(key, rank)

    def check(self) -> None:
        """Raises _Overtaken if the batch must not be written any more."""
        if self._batch is None:
            return
        last = finished(self._client, self._batch.query, self._map)
        if last is not None and self._batch.number <= last.batch:
            raise _Overtaken

    def flush(self) -> None:
        """Raises NotReady at the timeout, and _Overtaken."""
        waiting, self._waiting, self._size = self._waiting, {}, 0
        if not waiting:
            return
        self.check()
        removed = sum(value is None for value in waiting.values())
        kinds = bytes(PutKind.REMOVE if value is None else PutKind.SET for value in waiting.values())
        values = [value or b"" for value in waiting.values()]
        count = PutCount()
        try:
            self._client.put_columns(
                self._map,
                list(waiting),
                values,
                ttl_ms=self._ttl_ms,
                kinds=kinds if removed else b"",
                count=count,
            )
        finally:
            self.applied += count.rows
        self.stored += len(waiting) - removed
        self.removed += removed


# -- finished batches


def finished(client: Client, query: str, map_name: str) -> Finished | None:
    """The last batch of this query that is in the map."""
    found = client.get(STREAMS_MAP, _name(query, map_name))
    if found is None:
        return None
    try:
        return msgspec.json.decode(found[8:], type=Finished)
    except msgspec.MsgspecError as broken:
        raise ConfigError(
            f"the entry {query}/{map_name} in {STREAMS_MAP!r} is damaged ({broken}): begin with a new checkpoint"
        ) from broken


def finish(client: Client, query: str, map_name: str, batch: int) -> None:
    told = Finished(batch, time.time_ns() // 1_000_000)
    client.set(STREAMS_MAP, _name(query, map_name), json_data(msgspec.json.encode(told)), ttl_ms=0)


def _name(query: str, map_name: str) -> bytes:
    return string_data(f"{query}/{map_name}")
