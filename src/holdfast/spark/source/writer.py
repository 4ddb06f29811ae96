"""Writer of a DataFrame into a map: idempotent puts, sent directly to the owners of the keys.

A row is stored under its key, so a task that Spark repeats changes nothing. A job is not a transaction: the
rows of a failed job stay and are reported; writing them again is safe. Groups of rows may be stored in
transactions (`transactionRows`), so that readers see whole groups only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.client.blocking import Client, PutCount
from holdfast.client.cut_handles import Cut
from holdfast.client.grouped_putting import GroupedRows, GroupSender, grouped_put_problem
from holdfast.client.row_sender import RowSender, check_writable
from holdfast.core.model.operations import DEFAULT_TTL
from holdfast.errors import ConfigError, HoldfastError
from holdfast.spark.rows.bad_rows import BadRow
from holdfast.spark.rows.cells import partitions_of
from holdfast.spark.rows.column_schemas import StoredSchema, arrow_schema, load_schema, store_schema
from holdfast.spark.rows.entry_encoder import Entries, EntryEncoder, Limits, Shape, Wrong
from holdfast.spark.source.entry_rows import EntryRows
from holdfast.spark.source.options import Options
from holdfast.spark.source.overwriting import clear_for_overwriting, end_overwriting
from holdfast.spark.source.rejects import DeadLetters, clear_away, prepare_folder
from holdfast.spark.source.token_bucket import TokenBucket
from holdfast.spark.task import leave_garbage, task_number
from holdfast.wire.hazelcast.compact_schemas import SCHEMAS_MAP as COMPACT_SCHEMAS_MAP
from holdfast.wire.hazelcast.compact_schemas import schema_entry

SAMPLES = 3


class WriteFailed(HoldfastError):
    """A task could not write all its rows; the message says what it has written."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    task: int
    rows: int
    rows_resent: int
    """Rows sent more than once, because their partition moved or an answer was lost."""
    partitions: frozenset[int]
    kept: int = 0
    """Those of `rows` that were not inserted, because their key had another value."""
    rejected: int = 0


@dataclass(frozen=True)
class Work:
    options: Options
    schema: pa.Schema
    job: str = field(default_factory=lambda: uuid4().hex[:12])
    """The same in all tasks and attempts."""
    addresses: tuple[str, ...] = ()
    """Members found later, in case the given ones are gone."""

    @property
    def shape(self) -> Shape:
        write = self.options.write
        return Shape(
            self.options.key,
            self.options.value_format or "json",
            write.value_column,
            write.type_name or self.options.map,
            write.ttl_column,
            self.ttl_ms,
            write.corrupt_column,
        )

    @property
    def ttl_ms(self) -> int:
        return DEFAULT_TTL if self.options.ttl_ms is None else self.options.ttl_ms

    def encoder(self) -> EntryEncoder:
        """Raises ConfigError if columns and options do not fit together."""
        return EntryEncoder(self.schema, self.shape)


def write_rows(
    work: Work,
    batches: Iterable[pa.RecordBatch],
    task: int,
    counted: Callable[[int], None] = lambda rows: None,
) -> Written:
    """Raises WriteFailed, which says what was written. `counted` is called with rows."""
    options, write = work.options, work.options.write
    encoder = work.encoder()
    bucket = TokenBucket(write.rows_per_second)
    letters = None if write.rejects is None else DeadLetters(write.rejects, work.job, task)
    count = PutCount()
    try:
        with options.client(work.addresses) as client:
            limits = Limits(*client.limits())
            sender, send = _sending(work, client)
            count = sender.count
            try:
                for batch in batches:
                    entries = encoder.encode(batch, limits)
                    if letters is not None:
                        letters.add(batch, entries.wrong)
                    elif entries.wrong:
                        raise BadRow(describe(batch.num_rows, entries.wrong))
                    for part in _steps(entries, bucket.step):
                        bucket.take(len(part))
                        send(part)
                    counted(len(entries))
            except HoldfastError:
                # Rows in flight still count.
                with suppress(HoldfastError):
                    sender.settle()
                raise
            sender.finish()
        if letters is not None:
            letters.keep()
    except (HoldfastError, OSError, pa.ArrowException) as failed:
        if letters is not None:
            letters.drop()
        raise WriteFailed(
            f"task {task} has written {count.rows} rows into {len(count.partitions)} partitions "
            f"of map {options.map!r}, and then failed: {failed}"
        ) from failed
    return Written(
        task,
        count.rows,
        count.rows_resent,
        frozenset(count.partitions),
        count.kept,
        0 if letters is None else letters.rows,
    )


def _sending(work: Work, client: Client) -> tuple[RowSender | GroupSender, Callable[[Entries], None]]:
    """The sender for the rows of a task, and the function that passes them to it."""
    name, write, partitions = work.options.map, work.options.write, client.partition_count
    if write.transaction_rows is None:
        plain = RowSender(client, name, ttl_ms=work.ttl_ms)
        return plain, lambda part: plain.send(EntryRows.of(part, partitions, insert=write.insert))
    grouped = GroupSender(client, name, write.transaction_rows, ttl_ms=work.ttl_ms)
    return grouped, lambda part: grouped.send(_as_lists(part, partitions))


def _as_lists(entries: Entries, partition_count: int) -> GroupedRows:
    return GroupedRows(
        entries.keys.to_pylist(),
        entries.values.to_pylist(),
        partitions_of(entries.keys, partition_count).tolist(),
        [] if entries.ttls_ms is None else entries.ttls_ms.tolist(),
    )


def _steps(entries: Entries, step: int | None) -> Iterator[Entries]:
    if step is None or len(entries) <= step:
        if len(entries):
            yield entries
        return
    for start in range(0, len(entries), step):
        yield entries.slice(start, min(step, len(entries) - start))


def describe(rows: int, wrong: Sequence[Wrong]) -> str:
    reasons = list(dict.fromkeys(one.why for one in wrong))
    told = "; ".join(reasons[:SAMPLES]) + ("; ..." if len(reasons) > SAMPLES else "")
    return f"{len(wrong)} of {rows} rows cannot be stored: {told}"


class HoldfastWriter(DataSourceArrowWriter):
    """Pickled by Spark: created on the driver, used in the tasks, and committed or aborted on the driver."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises ConfigError if columns, key and format do not fit together. Sends nothing yet."""
        self._options = options
        self._struct = schema
        if options.columns:
            raise ConfigError(
                "the option columns is for reading; select the columns of the DataFrame instead"
            )
        self._work = Work(options, arrow_schema(schema))
        self._before: Cut | None = None
        """Contents of the map before it was overwritten."""
        self._work.encoder()

    def prepare(self, *, overwrite: bool) -> None:
        """Clear the map if it is overwritten, and store its columns.

        Raises ConfigError, and changes nothing, if the map has other columns, another key or another format.
        """
        with self._options.client() as client:
            self._before = prepare_map(client, self._work, self._struct, overwrite=overwrite)
            members = client.table().members.values()
        self._work = replace(self._work, addresses=tuple(member.address for member in members))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Raises WriteFailed."""
        written = write_rows(self._work, iterator, task_number())
        leave_garbage()
        return written

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A finished task has stored all rows but the rejected ones, on sync backups too."""
        self._clear_away()
        self._end_overwriting()
        finished = [message for message in messages if isinstance(message, Written)]
        rejected, kept = sum(one.rejected for one in finished), sum(one.kept for one in finished)
        said = [
            f"{rejected} rows cannot be stored; they are in {self._options.write.rejects}"
            if rejected
            else "",
            f"{kept} rows were not inserted: their keys have other values" if kept else "",
        ]
        for words in filter(None, said):
            print(f"holdfast: {words}", file=sys.stderr, flush=True)  # noqa: T201 - Spark shows it on the driver

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._clear_away()
        self._end_overwriting()
        print(self.account(messages), file=sys.stderr, flush=True)  # noqa: T201 - Spark shows it on the driver

    def _clear_away(self) -> None:
        if self._options.write.rejects is not None:
            clear_away(self._options.write.rejects, self._work.job)

    def _end_overwriting(self) -> None:
        if self._before is not None:
            # A member that cannot be reached drops the cut when its lease ends.
            with suppress(HoldfastError), self._options.client(self._work.addresses) as client:
                end_overwriting(client, self._options.map, self._before)

    def account(self, messages: Sequence[WriterCommitMessage | None]) -> str:
        finished = [message for message in messages if isinstance(message, Written)]
        rows = sum(message.rows for message in finished)
        partitions = frozenset[int]().union(*(message.partitions for message in finished))
        return (
            f"holdfast: the job failed. {len(finished)} of its {len(messages)} tasks have finished; they have written "
            f"{rows} rows into {len(partitions)} partitions of map {self._options.map!r}, which stay. The other tasks "
            "may have written rows too; their errors say how many. Writing the same rows again is safe."
        )


def stored_schema(work: Work, struct: StructType) -> StoredSchema:
    kept = set(work.encoder().rows_schema.names)
    rows = StructType([one for one in struct.fields if one.name in kept])
    shape = work.shape
    type_name = shape.type_name if shape.value_format == "compact" else ""
    return StoredSchema.of(rows, list(work.options.key), shape.value_format, type_name)


def check_map(client: Client, work: Work, struct: StructType, *, overwrite: bool) -> None:
    """Raises ConfigError, or the rejection of a member, if rows with these columns do not fit the map, or cannot be
    written. With `overwrite` its present columns do not matter.
    """
    present = load_schema(client, work.options.map) if not overwrite else None
    wanted = stored_schema(work, struct)
    if present is not None and present != wanted:
        raise ConfigError(_difference(work.options.map, present, wanted))
    if work.options.write.transaction_rows is None:
        check_writable(client, work.options.map)
    elif why := grouped_put_problem(client, work.options.map):
        raise ConfigError(f"transactionRows: {why}")


def prepare_map(client: Client, work: Work, struct: StructType, *, overwrite: bool) -> Cut | None:
    """Prepare the map's columns, the Compact schema and the folder for rejects.

    With `overwrite` the map is cleared, as the last step that may fail. Returns the argument for
    `end_overwriting` at the end of the job. Raises ConfigError.
    """
    check_map(client, work, struct, overwrite=overwrite)
    if work.options.write.rejects is not None:
        prepare_folder(work.options.write.rejects)
    compact = work.encoder().compact
    if compact is not None:
        key, value = schema_entry(compact.schema)
        client.set(COMPACT_SCHEMAS_MAP, key, value, ttl_ms=0)
    before = None
    if overwrite:
        before = clear_for_overwriting(client, work.options.map, work.options.read.lease_s)
    try:
        store_schema(client, work.options.map, stored_schema(work, struct))
    except HoldfastError:
        end_overwriting(client, work.options.map, before)
        raise
    return before


def _difference(name: str, present: StoredSchema, wanted: StoredSchema) -> str:
    what: list[str] = []
    if present.value_format != wanted.value_format:
        what.append(f"its format is {present.value_format}, not {wanted.value_format}")
    if present.key != wanted.key:
        what.append(f"its key is {','.join(present.key) or 'key'}, not {','.join(wanted.key) or 'key'}")
    if present.type_name != wanted.type_name:
        what.append(f"its type name is {present.type_name!r}, not {wanted.type_name!r}")
    if present.schema != wanted.schema:
        what.append(f"its columns are {present.struct.simpleString()}, not {wanted.struct.simpleString()}")
    return (
        f"the map {name!r} was written differently: {'; '.join(what)}. Use mode 'overwrite', or another map"
    )
