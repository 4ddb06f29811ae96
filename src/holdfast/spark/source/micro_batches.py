"""The change stream of maps: every insert, update and remove once, in order within a partition.

    spark.readStream.format("holdfast").option("address", ...).option("startingPosition", "snapshot").load("flights")

The driver asks the members for their heads and plans where the next batch ends (`offsets`). The tasks read
exactly these changes (`member_changes`). Both can be repeated with other members, since all sync backups hold
every reported change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast.client.blocking import Client
from holdfast.client.change_reader import MOVED_BY
from holdfast.errors import ChangesGone, ConfigError
from holdfast.spark.rows.changed import (
    INSERT,
    REMOVE,
    RESTART,
    UPDATE,
    ChangeMaker,
    ChangeRow,
    change_columns,
)
from holdfast.spark.rows.column_schemas import load_schema
from holdfast.spark.source.member_changes import GridHistory, Head, History
from holdfast.spark.source.offsets import (
    BEGINNING,
    At,
    Backlog,
    BadOffset,
    Limit,
    Offset,
    Piece,
    Place,
    check_same_stream,
    ends,
    moved_on,
    pieces,
    shares,
)
from holdfast.spark.source.stream_options import STREAM_FORMATS, StreamOptions
from holdfast.spark.task import leave_garbage
from holdfast.wire.answers import ChangeKind

TASKS_MAX = 8
ROWS_PER_TASK = 4096
"""Batches are mostly small: an extra task costs more than so many rows."""

ROWS_OF_ENTRIES = 10_000
"""Assumed rows of a partition whose entries are read first, at most, when a batch is divided."""

_OPS = {ChangeKind.INSERT: INSERT, ChangeKind.UPDATE: UPDATE, ChangeKind.REMOVE: REMOVE}


def stream_columns(options: StreamOptions) -> tuple[StructType, str]:
    """Columns of this change stream, and the format of its values. Raises ConfigError."""
    bad = options.options.read.bad
    if options.value_format in ("binary", "text"):
        return change_columns(options.value_format, None, bad), options.value_format
    found: dict[str, tuple[StructType, str]] = {}
    with options.options.client() as client:
        for name in options.maps:
            stored = load_schema(client, name)
            if stored is None:
                raise ConfigError(
                    f"the map {name!r} was not written through Spark, so its columns are unknown: "
                    "follow it with valueFormat=text or binary"
                )
            if stored.value_format not in STREAM_FORMATS:
                raise ConfigError(
                    f"the values of the map {name!r} are {stored.value_format}: follow it with valueFormat=text or "
                    "binary"
                )
            found[name] = change_columns(stored.value_format, stored, bad), stored.value_format
    first = found[options.maps[0]]
    for name, other in found.items():
        if other != first:
            raise ConfigError(
                f"the maps {options.maps[0]!r} and {name!r} have different columns: follow each with a stream of its "
                "own, or all with valueFormat=text or binary"
            )
    return first


@dataclass(frozen=True)
class ChangeShare(InputPartition):
    cluster: str
    pieces: tuple[Piece, ...]
    addresses: tuple[str, ...]


class HoldfastStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Pickled by Spark: plans on the driver, reads in the tasks. Connects at its first use."""

    def __init__(self, options: StreamOptions, schema: StructType, value_format: str) -> None:
        """Raises ConfigError if the schema is not that of the stream."""
        self._options = options
        self._struct = schema
        self._format = value_format
        ChangeMaker(schema, value_format, options.maps, options.options.read.bad)
        self._client: Client | None = None
        self._history: GridHistory | None = None
        self._first: Offset | None = None
        self._target: dict[At, Head] | None = None
        self._latest: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Connections are not pickled.
        return {**self.__dict__, "_client": None, "_history": None}

    # -- on the driver

    def history(self) -> GridHistory:
        if self._history is None:
            self._client = self._options.options.client()
            self._history = GridHistory(self._client, self._options.options.timeout_s)
        return self._history

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Start of a new query. The same if it is asked again before the first batch."""
        if self._first is None:
            self._first = first_offset(
                self.history(), self._options.maps, self._options.starting, self._target
            )
        return self._first.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        rows = self._options.rows_max
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """End of the next batch; `start` if there is nothing new.

        Raises BadOffset if the checkpoint is of another cluster or history, NotReady if a partition has no
        primary for too long.
        """
        history, maps = self.history(), self._options.maps
        begin = Offset.of_json(start)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        heads = heads_of(history, maps)
        self._latest = Offset(begin.cluster, maps, {at: head.place for at, head in heads.items()}).to_json()
        if self._target is not None:
            heads = self._until_target(begin, heads)
        end = plan(history, begin, maps, heads, Limit(rows, jump=self._options.on_gap == "restart"))
        return start if end is begin else end.to_json()

    def _until_target(self, start: Offset, heads: dict[At, Head]) -> dict[At, Head]:
        """The heads, limited to those at the start of a query with `availableNow`."""
        assert self._target is not None
        found: dict[At, Head] = {}
        for at, head in heads.items():
            target, begun = self._target[at].place, start.at(at) or BEGINNING
            until = target if target.counter >= begun.counter else begun
            found[at] = replace(head, place=until) if until.counter < head.place.counter else head
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = heads_of(self.history(), self._options.maps)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Each grid partition is in one share."""
        begin, last = Offset.of_json(start), Offset.of_json(end)
        history = self.history()
        _check_cluster(history, begin)
        _check_maps(begin, self._options.maps)
        todo = pieces(begin, last)
        if not todo:
            return []
        table = history.table()
        rows = {
            (piece.map, piece.partition): min(piece.end.counter, ROWS_OF_ENTRIES)
            if piece.start is None
            else (piece.end.counter - piece.start.counter) % MOVED_BY
            for piece in todo
        }
        parts = self._options.options.tasks or min(TASKS_MAX, -(-sum(rows.values()) // ROWS_PER_TASK))
        owners = [table.owner(partition) or "" for partition in range(len(table))]
        addresses = tuple(member.address for member in table.members.values())
        return [
            ChangeShare(begin.cluster, tuple(share), addresses) for share in shares(todo, rows, owners, parts)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Members keep as much history as `maps.*.changes_bytes` says, for any reader."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = self._history = None

    # -- in the tasks

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Raises ChangesGone where history is lost, unless the stream restarts there."""
        if partition is None:
            return
        assert isinstance(partition, ChangeShare), partition
        options = self._options.options
        with options.client(partition.addresses) as client:
            history = GridHistory(client, options.timeout_s)

            def current(row: ChangeRow) -> bytes | None:
                return history.value((row.map, row.partition), row.key or b"")

            maker = ChangeMaker(self._struct, self._format, self._options.maps, options.read.bad, current)
            if history.cluster() != partition.cluster:
                raise BadOffset(
                    f"the batch is of cluster {partition.cluster}, but {history.cluster()} answers"
                )
            yield from maker.batches(rows_of(history, partition.pieces, self._options.on_gap))
        leave_garbage()


# -- independent of Spark


def heads_of(history: History, maps: Sequence[str]) -> dict[At, Head]:
    return {(name, partition): head for name in maps for partition, head in history.heads(name).items()}


def first_offset(
    history: History, maps: Sequence[str], starting: str, target: dict[At, Head] | None = None
) -> Offset:
    cluster = history.cluster()
    if starting == "snapshot":
        every = range(history.partition_count())
        return Offset(cluster, tuple(maps), {(name, at): None for name in maps for at in every}, first=True)
    heads = heads_of(history, maps) if target is None else target
    if starting == "latest":
        return Offset(cluster, tuple(maps), {at: head.place for at, head in heads.items()}, first=True)
    return Offset(
        cluster, tuple(maps), {at: head.place_of(head.since) for at, head in heads.items()}, first=True
    )


def plan(history: History, start: Offset, maps: Sequence[str], heads: dict[At, Head], limit: Limit) -> Offset:
    """Offset at the end of the next batch; `start` itself if there is nothing new. Raises BadOffset."""
    _check_cluster(history, start)
    _check_maps(start, maps)
    sizes = _sizes(history, start, heads) if limit.rows is not None else {}
    backlogs: dict[At, Backlog] = {}
    for at, head in heads.items():
        place, last = start.at(at), head.place
        if place is None:
            backlogs[at] = Backlog(None, last, head.since, sizes.get(at, 0))
            continue
        if place.counter > last.counter:
            raise _diverged(at, place, f"the last update is {last.counter} there")
        if head.term_of(place.counter) != place.term:
            raise _diverged(at, place, f"that update is of term {head.term_of(place.counter)} there")
        gaps = tuple(gap for gap in head.gaps if gap[0] >= place.counter)
        rows = last.counter - place.counter - sum(start - end for end, start in gaps)
        backlogs[at] = Backlog(place, last, head.since, rows, gaps)
    told = {at: heads[at].place_of(counter) for at, counter in ends(backlogs, limit).items()}
    return moved_on(start, told)


def rows_of(history: History, todo: Sequence[Piece], on_gap: str) -> Iterator[ChangeRow]:
    """The rows of these pieces of a batch. Raises ChangesGone where history is lost and `on_gap` is `fail`."""
    for piece in todo:
        if piece.start is None:
            yield from _entries(history, piece, on_gap)
            continue
        at = piece.map, piece.partition
        try:
            changes = list(history.changes(at, piece.start, piece.end))
        except ChangesGone:
            if on_gap == "fail":
                raise
            yield ChangeRow(piece.map, piece.partition, piece.end.term, piece.end.counter, RESTART)
            yield from _entries(history, piece, on_gap)
            continue
        for change in changes:
            yield ChangeRow(
                piece.map,
                piece.partition,
                change.term,
                change.counter,
                _OPS[change.kind],
                change.time_ms,
                change.key,
                change.before,
                change.after,
                change.transaction,
            )


def _entries(history: History, piece: Piece, on_gap: str) -> Iterator[ChangeRow]:
    at = piece.map, piece.partition
    if piece.end == BEGINNING:
        return
    try:
        found = history.entries(at, piece.end)
    except ChangesGone:
        if on_gap == "fail":
            raise
        # Changes since then are lost too, so the next batch will restart again: the present entries are good enough.
        found = history.entries(at, history.heads(piece.map)[piece.partition].place)
    for key, value in sorted(found.items()):
        yield ChangeRow(
            piece.map, piece.partition, piece.end.term, piece.end.counter, INSERT, key=key, after=value
        )


def _sizes(history: History, start: Offset, heads: dict[At, Head]) -> dict[At, int]:
    """Number of rows of partitions whose entries are read first; a guess where it cannot be found out."""
    wanted: dict[str, list[int]] = {}
    for at, head in heads.items():
        if start.at(at) is None and head.place != BEGINNING:
            wanted.setdefault(at[0], []).append(at[1])
    found: dict[At, int] = {}
    for name, partitions in wanted.items():
        told = history.sizes(name, partitions)
        found |= {(name, partition): told.get(partition, ROWS_OF_ENTRIES) for partition in partitions}
    return found


def _check_cluster(history: History, offset: Offset) -> None:
    check_same_stream(offset, Offset(history.cluster(), offset.maps))


def _check_maps(offset: Offset, maps: Sequence[str]) -> None:
    check_same_stream(offset, Offset(offset.cluster, tuple(maps)))


def _diverged(at: At, place: Place, why: str) -> BadOffset:
    return BadOffset(
        f"map {at[0]!r}, partition {at[1]} has another history than the stream: the checkpoint is at update "
        f"{place.counter} of term {place.term}, but {why}. Copies were lost and the loss accepted, or an older state "
        "was restored. The sink may have changes that do not exist: begin with a new checkpoint and "
        "startingPosition=snapshot, into an empty sink"
    )
