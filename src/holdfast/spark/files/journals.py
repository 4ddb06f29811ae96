"""Journals of stopped or copied members as a DataFrame: a row for each update and each other record.

    journal_frame(spark, ["/copies/m1", "/copies/m2"]).where("map = 'flights' and change = 'remove'").show()

A task reads consecutive segments of one journal, and looks at the neighbouring ones, which show whether the end
of a segment was cut off or lost. Unreadable parts are rows too: kind `damage` (durable bytes) or `cut` (the
torn end after a crash), with the missing blocks. Nothing is changed in the directories, which every executor
must see under the same path. Files of a running member can be read as well, but their end is in flux.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pyarrow as pa

from holdfast.config.local_paths import local_path
from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    GroupWrote,
    Meta,
    Seen,
    TableAssignments,
    Wrote,
    WrotePuts,
)
from holdfast.core.model.records import Change, Record
from holdfast.core.raft_partition.logged_changes import changes_in
from holdfast.core.store.request_ids import id_of
from holdfast.errors import ConfigError, JournalBroken
from holdfast.spark import jobs
from holdfast.wire.checkpoint import parse_name
from holdfast.wire.journal_blocks import HEADER_BYTES, Block, read_header, segment_lsn, segments
from holdfast.wire.journal_reader import JournalReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDENTITY = "identity.json"
RECORD, DAMAGE, CUT = "record", "damage", "cut"
"""Others are `row`, `view`, `began`, `dropped`, `checkpoint`, `store` and `seal`, and `zone` for a change in the log of
a zone's partition: it counts if its entry was committed, and each replica has it.
"""

TYPES: dict[str, pa.DataType] = {
    "store": pa.string(),
    "member": pa.string(),
    "directory": pa.string(),
    "segment": pa.string(),
    "lsn": pa.int64(),
    "place": pa.int32(),
    "time": pa.timestamp("us", "UTC"),
    "exact": pa.bool_(),
    "kind": pa.string(),
    "partition": pa.int32(),
    "term": pa.int64(),
    "map": pa.string(),
    "counter": pa.int64(),
    "change": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "key_bytes": pa.int64(),
    "value_bytes": pa.int64(),
    "old_bytes": pa.int64(),
    "ttl_ms": pa.int64(),
    "max_idle_ms": pa.int64(),
    "client": pa.string(),
    "note": pa.string(),
}
"""`time` is that of the update if its map keeps times (`exact`), else of the beginning of its segment. `place`: number
in its block. `client`: sender of a request with an id. `value`: only if requested.
"""
SCHEMA = pa.schema(TYPES)
DDL = (
    "store string, member string, directory string, segment string, lsn bigint, place int, time timestamp, "
    "exact boolean, kind string, partition int, term bigint, map string, counter bigint, change string, key binary, "
    "value binary, key_bytes bigint, value_bytes bigint, old_bytes bigint, ttl_ms bigint, max_idle_ms bigint, "
    "client string, note string"
)
BATCH_ROWS = 16_384
BATCH_BYTES = 4 << 20
_UUID_BYTES = 16


@dataclass(frozen=True, slots=True)
class StoreFiles:
    directory: str
    store: str
    member: str
    segments: tuple[str, ...]
    checkpoints: tuple[str, ...]
    cluster: str = ""

    def load(self, name: str) -> bytes:
        try:
            return Path(self.directory, name).read_bytes()
        except OSError as error:
            raise JournalBroken(f"{self.directory}/{name} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Share:
    files: StoreFiles
    first: int
    end: int
    values: bool


def find(directories: Sequence[str | Path]) -> list[StoreFiles]:
    """Raises ConfigError if a directory is not a member's."""
    if not directories:
        raise ConfigError("give at least one directory of a member's files")
    return [_find(Path(local_path(directory))) for directory in directories]


def _find(directory: Path) -> StoreFiles:
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as error:
        raise ConfigError(f"{directory} cannot be read: {error.strerror}") from error
    told: Any = {}
    if IDENTITY in names:
        try:
            told = json.loads((directory / IDENTITY).read_bytes())
        except (OSError, ValueError):
            pass  # damage is reported by readable content
    told = told if isinstance(told, dict) else {}
    found = StoreFiles(
        str(directory),
        str(told.get("store") or ""),
        str(told.get("member") or ""),
        tuple(segments(names)),
        tuple(name for name in names if parse_name(name)),
        str(told.get("cluster_id") or ""),
    )
    if not found.segments and not found.checkpoints:
        raise ConfigError(
            f"{directory} holds no journal: no file like j000000000001.seg or p00017-….parquet. "
            "Give the one that persistence.directory names, or a copy of it"
        )
    return found


def journal_frame(
    spark: SparkSession,
    directories: Sequence[str | Path],
    *,
    values: bool = False,
    counted: jobs.Counted | None = None,
) -> DataFrame:
    """All records (`TYPES`), read when the frame is used. Raises ConfigError. `values`: include stored
    values, not only their sizes. `counted`: counts all rows.
    """
    parts = shares(find(directories), jobs.TASKS_PER_SLOT * jobs.slots(spark), values=values)
    if not parts:
        return spark.createDataFrame(pa.Table.from_pylist([], schema=SCHEMA))
    if counted is None:
        return jobs.plan(spark, parts, read, DDL)
    told = counted

    def work(share: Share) -> Iterator[pa.RecordBatch]:
        for batch in read(share):
            told.add(batch.num_rows)
            yield batch

    return jobs.plan(spark, parts, work, DDL)


def shares(files: Sequence[StoreFiles], tasks: int, *, values: bool = False) -> list[Share]:
    total = sum(len(each.segments) for each in files)
    size = max(1, -(-total // max(1, tasks)))
    return [
        Share(each, first, min(first + size, len(each.segments)), values)
        for each in files
        for first in range(0, len(each.segments), size)
    ]


def read(share: Share) -> Iterator[pa.RecordBatch]:
    files = share.files
    own = files.segments[share.first : share.end]
    # The previous segment says where this range begins; later ones show which part of it was durable.
    around = files.segments[max(0, share.first - 1) :]
    reading = JournalReader(around, files.load, files.store or None)
    rows = _Rows(files, values=share.values)
    told = 0
    try:
        for block in reading:
            for damage in reading.damage[told:]:
                if damage.segment in own:
                    rows.problem(DAMAGE, damage.segment, damage.lsn, str(damage))
            told = len(reading.damage)
            if block.segment not in own:
                if files.segments.index(block.segment) >= share.end:
                    break
                continue
            rows.block(block)
            if rows.full:
                yield rows.batch()
        else:
            for damage in reading.damage[told:]:
                if damage.segment in own:
                    rows.problem(DAMAGE, damage.segment, damage.lsn, str(damage))
            if reading.torn is not None and reading.torn.segment in own:
                rows.problem(CUT, reading.torn.segment, reading.torn.lsn, str(reading.torn))
    except JournalBroken as broken:
        # An unknown version, or an unreadable file: rows before it stay.
        rows.problem(DAMAGE, own[0], segment_lsn(own[0]) or 0, str(broken))
    yield rows.batch()


@dataclass(slots=True)
class _Rows:
    files: StoreFiles
    values: bool
    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in TYPES})
    size: int = 0
    clients: dict[bytes, str] = field(default_factory=dict)
    _time: dict[str, int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return len(self.columns["lsn"]) >= BATCH_ROWS or self.size >= BATCH_BYTES

    def batch(self) -> pa.RecordBatch:
        columns, self.columns = self.columns, {name: [] for name in TYPES}
        self.size = 0
        return pa.RecordBatch.from_arrays(
            [pa.array(columns[name], kind) for name, kind in TYPES.items()], schema=SCHEMA
        )

    def _add(self, kind: str, segment: str, lsn: int, place: int, **more: Any) -> None:
        row = {
            "store": self.files.store or None,
            "member": self.files.member or None,
            "directory": self.files.directory,
            "segment": segment,
            "lsn": lsn,
            "place": place,
            "time": self._begun(segment),
            "exact": False,
            "kind": kind,
            **more,
        }
        for name, column in self.columns.items():
            column.append(row.get(name))

    def _begun(self, segment: str) -> int | None:
        if segment not in self._time:
            try:
                with Path(self.files.directory, segment).open("rb") as file:
                    header = read_header(file.read(HEADER_BYTES))
            except (OSError, JournalBroken):
                header = None
            self._time[segment] = header.wall_ms * 1000 if header is not None else 0
        return self._time[segment] or None

    def problem(self, kind: str, segment: str, lsn: int, note: str) -> None:
        self._add(kind, segment, lsn, 0, note=note)

    def block(self, block: Block) -> None:
        place = 0
        for entry in block.entries:
            if isinstance(entry, Wrote | WrotePuts):
                for record in entry.records:
                    self._record(block, place, entry, record)
                    place += 1
                continue
            for told in self._other(entry):
                self._add(told.pop("kind"), block.segment, block.lsn, place, **told)
                place += 1
        if not block.entries:
            self._add("seal", block.segment, block.lsn, 0)

    def _record(self, block: Block, place: int, entry: Wrote | WrotePuts, record: Record) -> None:
        time_ms = getattr(record, "time_ms", 0)
        old = getattr(record, "old", None)
        exact = {"time": time_ms * 1000, "exact": True} if time_ms else {}
        self.size += len(record.key) + (len(record.value) if self.values else 0)
        self._add(
            RECORD,
            block.segment,
            block.lsn,
            place,
            partition=entry.partition,
            term=entry.term,
            map=record.map,
            counter=record.counter,
            change=record.change.name.lower(),
            key=record.key if record.change in _KEYED else None,
            value=record.value if self.values and record.change in _VALUED else None,
            key_bytes=len(record.key),
            value_bytes=len(record.value),
            old_bytes=len(old) if old is not None else None,
            ttl_ms=record.ttl_ms or None,
            max_idle_ms=record.max_idle_ms or None,
            client=self._client(id_of(record.request)),
            **exact,
        )

    def _client(self, request_id: bytes) -> str | None:
        """Sender of a request: a client by its UUID, or a member that forwarded it."""
        if len(request_id) < _UUID_BYTES:
            return None
        who = request_id[:_UUID_BYTES]
        return self.clients.get(who) or str(UUID(bytes=who))

    def _other(self, entry: Entry) -> Iterator[dict[str, Any]]:
        match entry:
            case TableAssignments(rows):
                for partition, row in rows:
                    note = json.dumps(msgspec.to_builtins(msgspec.structs.asdict(row)))
                    yield {"kind": "row", "partition": partition, "note": note}
            case Seen(view):
                for each in view.members:
                    # Requests that members forward for clients without ids have ids with this prefix
                    # (`core.routing.router`).
                    self.clients[blake2b(each.uuid.encode(), digest_size=_UUID_BYTES).digest()] = (
                        f"member {each.uuid}"
                    )
                yield {
                    "kind": "view",
                    "note": f"view {view.number}, {len(view.members)} members, {view.state.value}",
                }
            case Began(partition, epoch):
                yield {"kind": "began", "partition": partition, "note": f"epoch {epoch}"}
            case Dropped(partition, name):
                yield {"kind": "dropped", "partition": partition, "map": name or None}
            case GroupWrote(number, data):
                yield from self._of_group(number, data)
            case Checkpointed(partition, lsn, file):
                yield {"kind": "checkpoint", "partition": partition, "note": f"{file}, up to {lsn}"}
            case Meta(store, incarnation, cluster_id):
                yield {"kind": "store", "note": f"{store}, life {incarnation}, cluster {cluster_id}"}

    def _of_group(self, number: int, data: bytes) -> Iterator[dict[str, Any]]:
        """The changes in new entries of a zone's log, which have no update counters."""
        changes = changes_in(number, data)
        if not changes:
            yield {"kind": "group", "partition": number, "note": f"{len(data)} bytes"}
        for change in changes:
            self.size += len(change.key) + (len(change.value) if self.values else 0)
            yield {
                "kind": "zone",
                "partition": change.partition,
                "term": change.term,
                "map": change.map,
                "change": change.operation,
                "key": change.key or None,
                "value": change.value if self.values and change.value else None,
                "key_bytes": len(change.key),
                "value_bytes": len(change.value),
                "ttl_ms": change.ttl_ms or None,
                "note": f"zone {change.zone}, partition {change.group}, index {change.log_index}",
            }


_KEYED = frozenset({Change.SET, Change.REMOVE, Change.EXPIRY})
_VALUED = frozenset({Change.SET, Change.CALL})
