"""A stream into a map: each batch is stored as if once, and of several rows of a key the last one counts.

    frame.writeStream.format("holdfast").option("address", ...).option("key", "id").option("checkpointLocation", ...)
        .start("flights")

Rows are stored under their keys, so a batch that is written again stores the same. The last batch that a query has
finished is kept in the grid itself; one that is not later than that is not written again. Spark may leave an attempt
of a task running after the batch has been finished by another one: so that is asked before each write.
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
"""With `opColumn`, integer columns of these names say where a row's change was, and are not stored."""

HELD_BYTES = 16 << 20
"""Rows are held back until so many bytes of them wait: a later row of the same key takes their place."""

_NO_VALUE = b"\0\0\0\0"


class Finished(msgspec.Struct, frozen=True):
    """The last batch of a query that is in the map, all of it."""

    batch: int
    time_ms: int


@dataclass(frozen=True)
class StreamWritten(WriterCommitMessage):
    """What one task of a batch has written."""

    batch: Batch | None
    stored: int
    removed: int
    again: bool
    """The batch was finished before, or by another attempt meanwhile: from then on nothing was done."""


class _Overtaken(Exception):
    """The batch was finished meanwhile: later ones may be in the map, and what is left must not go over them."""


class HoldfastStreamWriter(DataSourceStreamArrowWriter):
    """Made anew by Spark for each batch, and once more for its end: what it knows is in its options and the grid."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Raises ConfigError when columns, key and format do not go together. Nothing is sent yet."""
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
        """Remember the map's columns. Raises ConfigError when it has others already.

        In the stored form rows may belong to any map: nothing is remembered, and nothing compared.
        """
        if self._format == "binary":
            return
        common = self._options.options
        wanted = StoredSchema.of(self._struct, list(common.key), self._format)
        with common.client() as client:
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
        """Write the rows of one task. Raises WriteFailed."""
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
                        "a row says that its partition starts over, and not which one: let the stream have its column "
                        "partition"
                    )
                if self._options.source_map is None:
                    raise ConfigError(
                        f"partition {partition} starts over: what the stream does not tell again would be removed, "
                        "and nobody has said that all of it came from one map, under that map's own keys. If so, say "
                        "which with the option sourceMap; else follow the maps without onGap=restart"
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
        """Remember that the batch is written."""
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
        """Say what stays written."""
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
    raise ConfigError(f"opColumn says {op!r}, which is none of {known}")


def _ranks(places: dict[str, list[int | None]], count: int) -> list[tuple[int, ...]]:
    """What says which of two rows of a key is the later one; empty where only their order does."""
    if "term" not in places or "counter" not in places:
        return [()] * count
    return [
        (term or 0, counter or 0) for term, counter in zip(places["term"], places["counter"], strict=True)
    ]


class Rows:
    """The rows of one task on their way into the map: of each key the last one."""

    def __init__(self, client: Client, options: SinkOptions, batch: Batch | None = None) -> None:
        """`batch`: nothing is written any more once it is finished."""
        self._client = client
        self._batch = batch
        self._map = options.options.map
        self._ttl_ms = DEFAULT_TTL if options.options.ttl_ms is None else options.options.ttl_ms
        self._source_partitions = options.source_partitions
        self._waiting: dict[bytes, bytes | None] = {}
        """Key -> value, None for one to be removed."""
        self._ranks: dict[bytes, tuple[int, ...]] = {}
        """Of every key of this batch whose rows say which is the later one, also when it is written already."""
        self._size = 0
        self.stored = 0
        self.removed = 0
        self.applied = 0
        """Both together. Right also when writing has failed."""

    def store(self, key: bytes, value: bytes, rank: tuple[int, ...]) -> None:
        """The key has this value now."""
        self._change(key, value, rank)

    def remove(self, key: bytes, rank: tuple[int, ...]) -> None:
        """The key is gone now."""
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
        """No key of this partition of the stream's source is here any more."""
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
        """Whether the batch may still be written. Raises _Overtaken."""
        if self._batch is None:
            return
        last = finished(self._client, self._batch.query, self._map)
        if last is not None and self._batch.number <= last.batch:
            raise _Overtaken

    def flush(self) -> None:
        """Write what waits. Raises NotReady when it cannot be written in time, and _Overtaken."""
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


# -- which batches are written


def finished(client: Client, query: str, map_name: str) -> Finished | None:
    """The last batch of this query that is in the map; None when none is."""
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
    """Remember that this batch and all before it are in the map."""
    told = Finished(batch, time.time_ns() // 1_000_000)
    client.set(STREAMS_MAP, _name(query, map_name), json_data(msgspec.json.encode(told)), ttl_ms=0)


def _name(query: str, map_name: str) -> bytes:
    return string_data(f"{query}/{map_name}")
