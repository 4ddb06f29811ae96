"""Exports maps, or the whole grid, to Parquet as of one cut, with a manifest that describes the files.

    done = export(spark, "127.0.0.1:5701", "/backup/monday")
    print(done)

Tasks read their share of the partitions from members that keep the cut, and write the files themselves: no row passes
through Spark's JVM. Members may die and partitions may move in the meantime. `manifest` describes the files.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, end_cut, scan_cut
from holdfast.client.holdings import KnownMaps, check_names, known_maps
from holdfast.client.replica_questions import CANNOT_ASK
from holdfast.client.whole_cuts import take_whole_cut
from holdfast.config.local_paths import local_path
from holdfast.config.schema import INTERNAL
from holdfast.core.store.digest import batch_digest
from holdfast.errors import ConfigError, HoldfastError, Unreachable
from holdfast.spark.jobs import TASKS_PER_SLOT, Counted, Show, nothing, run, slots
from holdfast.spark.pipeline.manifest import (
    ENTRIES,
    FORMAT,
    NAME,
    TABLES,
    BadExport,
    FileInfo,
    Manifest,
    MapInfo,
    StoredEntry,
    file_checksum,
    file_of,
    has_links,
    hex_digest,
    publish,
    sum_digests,
    temporary_of,
    write_manifest,
)
from holdfast.spark.pipeline.record_columns import Columns
from holdfast.spark.rows.bad_rows import BadRow, BadRows
from holdfast.spark.rows.batch_maker import BatchMaker
from holdfast.spark.rows.column_schemas import SCHEMAS_MAP, StoredSchema, arrow_schema
from holdfast.spark.rows.row_reader import Layout
from holdfast.spark.rows.stored import string_data
from holdfast.spark.source.keeping import kept
from holdfast.spark.source.options import Options
from holdfast.version import __version__
from holdfast.wire import own

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACT_SCHEMAS_MAP = "__schemas"
"""Schemas of compact classes, which members keep for clients."""

LEASE_S = 600.0
ROWS_A_SHARE = 2_000_000
SCAN_WEIGHT = 64
"""Cost of a scan in addition to its rows, in rows."""
GROUP_ROWS = 131_072
GROUP_BYTES = 64 << 20
"""A row group ends with the page that reaches so many rows, or bytes of keys and values."""
PAGE_ROWS = 65_536
PAGE_BYTES = 4 << 20

_CELLS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "ttl_ms": pa.int64(),
    "max_idle_ms": pa.int64(),
    "key_hash": pa.int32(),
    "partition": pa.int32(),
}
SCHEMA = pa.schema(_CELLS)
"""`ttl_ms`: remaining time at the cut; 0: for ever."""

LEFT_OUT = "left out"

_FOOTER = "holdfast"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    map: str
    kind: str
    """`ENTRIES` or `TABLES`; `LEFT_OUT`: no file, because an entry does not fit the columns, for the reason in `path`.
    """
    path: str
    rows: int
    bytes: int
    digest: str
    checksum: str
    row_groups: int
    expiring: int
    unfit: int = 0


_WRITTEN = Columns(WrittenFile)


@dataclass(frozen=True, slots=True)
class Exported:
    folder: str
    manifest: Manifest
    seconds: float
    maps_without_zone: dict[str, str] = field(default_factory=dict)
    """Maps that have no entries, because their zones do not exist: not exported."""

    @property
    def rows(self) -> int:
        return self.manifest.rows

    @property
    def bytes(self) -> int:
        return self.manifest.bytes

    @property
    def files(self) -> int:
        return sum(len(each.files) + len(each.tables) for each in self.manifest.maps)

    def __str__(self) -> str:
        rate = self.rows / self.seconds if self.seconds else 0.0
        maps, files = _count(len(self.manifest.maps), "map"), _count(self.files, "file")
        total = (
            f"exported {self.rows:,} rows of {maps} into {files} with "
            f"{self.bytes:,} bytes in {self.folder}, in {self.seconds:.1f} s ({rate:,.0f} rows/s)"
        )
        lines = [total]
        for each in self.manifest.maps:
            lines.append(f"  {each.name}: {each.rows:,} rows, digest {each.digest}")
            if each.tables_left_out:
                lines.append(f"    not written in columns: {each.tables_left_out}")
            if each.tables_unfit:
                lines.append(f"    did not fit the columns: {_entries(each.tables_unfit)}")
        lines += [
            f"  {name}: left out, because it lives in zone {zone}, which does not exist"
            for name, zone in self.maps_without_zone.items()
        ]
        return "\n".join(lines)


def export(
    spark: SparkSession | None,
    address: str,
    to: str | Path,
    *,
    maps: Sequence[str] = (),
    decoded: bool = False,
    lease_s: float = LEASE_S,
    progress: Show = nothing,
    **options: str,
) -> Exported:
    """Write these maps (none: all), as of one cut taken now, into the folder `to`, which must be empty. Without
    Spark (None) threads of this process do the work.

    The folder must be visible to the driver and all executors. `decoded`: also write rows of maps that Spark
    wrote as columns, for other programs. `lease_s`: how long members keep the cut if this driver disappears.
    With `bad="fail"` (default) a map with an entry that does not fit gets no such columns, and the manifest
    says why. `options` are those of the data source (bad, user, password, token, cluster, timeout).

    Raises: ConfigError before anything is written, CutLost if more members die than the maps have backups, JobFailed.
    """
    began = time.monotonic()
    parsed = Options.parse({"address": address, "map": "any", **options})
    folder = Path(local_path(to)).absolute()
    with parsed.client() as client:
        known = known_maps(client, timeout_s=parsed.timeout_s)
        names = _names(known, maps)
        without_zone = {} if maps else known.without_zone
        hello = _hello(client)
        _prepare(folder)
        taken = datetime.now(UTC)
        internal = [SCHEMAS_MAP, COMPACT_SCHEMAS_MAP]
        cut = take_whole_cut(client, [*names, *internal], lease_s=lease_s, timeout=parsed.timeout_s)
        table = client.table()
        addresses = tuple(member.address for member in table.members.values())
        try:
            with kept(parsed, addresses, cut):
                schemas = {entry.key: entry for entry in _stored(client, cut, SCHEMAS_MAP)}
                compact = _stored(client, cut, COMPACT_SCHEMAS_MAP)
                counted = Counted(spark)
                readable = _readable(names, schemas, parsed.read.bad) if decoded else {}
                work = Exporter(parsed, addresses, cut, str(folder), readable, counted)
                shares = plan_shares(cut, names, TASKS_PER_SLOT * slots(spark))
                rows = run(
                    spark, shares, work, _WRITTEN.ddl, title="export", progress=progress, counted=counted
                )
        finally:
            with suppress(HoldfastError):
                end_cut(client, cut)
    written = whole_tables(folder, _WRITTEN.rows(rows))
    _look(folder, written)
    manifest = Manifest(
        FORMAT,
        __version__,
        hello.cluster_id,
        hello.cluster_name,
        hello.partition_count,
        taken.isoformat(),
        cut.id.hex(),
        [_map_info(name, cut, hello.partition_count, written, schemas) for name in names],
        compact,
    )
    write_manifest(folder, manifest)
    return Exported(str(folder), manifest, time.monotonic() - began, without_zone)


# -- preparation


def _names(known: KnownMaps, wanted: Sequence[str]) -> list[str]:
    """Raises ConfigError for an unknown map."""
    if not wanted:
        return known.present
    for name in wanted:
        if name.startswith(INTERNAL):
            raise ConfigError(f"{name!r} is Holdfast's own: its entries for a map are exported with the map")
    check_names(wanted, known.present)
    return list(dict.fromkeys(wanted))


def _hello(client: Client) -> own.HelloOk:
    silent: list[str] = []
    for member in client.table().members:
        try:
            return client.to(member).hello
        except CANNOT_ASK as why:
            silent.append(str(why))
    raise Unreachable(f"no member answers: {'; '.join(silent)}")


def _prepare(folder: Path) -> None:
    """Raises ConfigError if the folder is not empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        inside = next(iter(sorted(folder.iterdir())), None)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used: {error.strerror}") from error
    if inside is None:
        return
    if inside.name == ENTRIES and not (folder / NAME).exists():
        raise ConfigError(f"{folder} has an export that did not finish: remove it, or give another folder")
    raise ConfigError(f"{folder} is not empty ({inside.name}): an export needs an empty folder")


def _stored(client: Client, cut: Cut, name: str) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    for (of, partition), mark in sorted(cut.marks.items()):
        if of == name and mark.entries:
            for page in scan_cut(client, cut, name, partition):
                found += [StoredEntry(key, value) for key, value in zip(*page.columns.split(), strict=True)]
    return sorted(found, key=lambda entry: entry.key)


def _readable(
    names: Iterable[str], schemas: Mapping[bytes, StoredEntry], bad: BadRows
) -> dict[str, StoredSchema]:
    """Columns of maps with JSON values. Raises ConfigError if the option `bad` names one of them."""
    found: dict[str, StoredSchema] = {}
    for name in names:
        entry = schemas.get(string_data(name))
        if entry is not None:
            stored = msgspec.json.decode(entry.value[8:], type=StoredSchema)
            if stored.value_format == "json":
                if bad.mode == "column" and bad.column in stored.struct.names:
                    raise ConfigError(
                        f"the option bad names {bad.column!r}, which is a column of map {name!r}"
                    )
                found[name] = stored
    return found


# -- division between tasks


@dataclass(frozen=True, slots=True)
class Piece:
    map: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Share:
    number: int
    pieces: tuple[Piece, ...]


def plan_shares(cut: Cut, maps: Sequence[str], wanted: int) -> list[Share]:
    """Even shares of the entries at the cut, each with few members and few maps; at least one, which may be empty."""
    marks = [
        (mark.holders[0] if mark.holders else "", name, partition, mark.entries + SCAN_WEIGHT)
        for (name, partition), mark in cut.marks.items()
        if name in set(maps) and mark.entries
    ]
    marks.sort()
    total = sum(weight for *_, weight in marks)
    count = max(1, min(len(marks), max(wanted, -(-total // ROWS_A_SHARE))))
    inside: list[list[tuple[str, int]]] = [[] for _ in range(count)]
    reached = 0
    for _, name, partition, weight in marks:
        inside[min(count - 1, (reached + weight // 2) * count // total)].append((name, partition))
        reached += weight
    shares: list[Share] = []
    for scans in inside:
        if scans or not shares:
            by_map: dict[str, list[int]] = {}
            for name, partition in scans:
                by_map.setdefault(name, []).append(partition)
            pieces = tuple(Piece(name, tuple(partitions)) for name, partitions in by_map.items())
            shares.append(Share(len(shares), pieces))
    return shares


# -- in the tasks


class _Footer(msgspec.Struct, frozen=True):
    """Description inside a file, by which a repeated task finds it finished."""

    cut: str
    map: str
    digest: str
    expiring: int
    unfit: int = 0


@dataclass(frozen=True)
class Exporter:
    """Writes the files of a share, idempotently; pickled."""

    options: Options
    addresses: tuple[str, ...]
    cut: Cut
    folder: str
    readable: dict[str, StoredSchema]
    counted: Counted

    def __call__(self, share: Share) -> Iterator[pa.RecordBatch]:
        with self.options.client(self.addresses) as client:
            for piece in share.pieces:
                told = [self._file(ENTRIES, piece.map, share.number)]
                if piece.map in self.readable:
                    told.append(self._file(TABLES, piece.map, share.number))
                why = ""
                if not all(final.exists() for _, final in told):
                    why = self._write(client, piece, [final for _, final in told])
                kinds = [kind for kind, _ in told if kind == ENTRIES or not why]
                rows = [self._describe(kind, piece.map, share.number) for kind in kinds]
                if why:
                    rows.append(WrittenFile(piece.map, LEFT_OUT, why, 0, 0, "", "", 0, 0))
                yield from _WRITTEN.table(rows).to_batches()

    def _file(self, kind: str, name: str, number: int) -> tuple[str, Path]:
        return kind, Path(self.folder) / file_of(kind, name, number)

    def _write(self, client: Client, piece: Piece, finals: list[Path]) -> str:
        temporaries = [temporary_of(final) for final in finals]
        try:
            for final in finals:
                final.parent.mkdir(parents=True, exist_ok=True)
            why = self._fill(client, piece, temporaries)
            for temporary, final in list(zip(temporaries, finals, strict=True))[: 1 if why else None]:
                publish(temporary, final)
        finally:
            for temporary in temporaries:
                temporary.unlink(missing_ok=True)
        return why

    def _fill(self, client: Client, piece: Piece, paths: list[Path]) -> str:
        stored = self.readable.get(piece.map)
        entries = _Writer(paths[0], SCHEMA)
        rows = maker = None
        if stored is not None:
            maker = self._maker(piece.map, stored)
            rows = _Writer(paths[1], maker.schema)
        why = ""
        digest = expiring = 0
        for partition in piece.partitions:
            pages = scan_cut(
                client,
                self.cut,
                piece.map,
                partition,
                whole=True,
                rows_max=PAGE_ROWS,
                bytes_max=PAGE_BYTES,
            )
            for page in pages:
                keys, values = page.columns.split()
                digest += batch_digest(keys, values)
                ends = zip_longest(page.ttls_ms, page.max_idles_ms, fillvalue=0)
                expiring += sum(1 for ttl_ms, max_idle_ms in ends if ttl_ms or max_idle_ms)
                entries.add(entry_batch(page, partition), page.columns.size_bytes)
                self.counted.add(len(keys))
                if maker is not None and rows is not None and keys and not why:
                    try:
                        rows.add(maker.batch([(partition, page.columns)]), page.columns.size_bytes)
                    except BadRow as unfit:
                        # The entries are the backup; write them even if one of them does not fit the columns.
                        why = str(unfit)
            self.counted.add(0, partitions=1)
        said = _Footer(self.cut.id.hex(), piece.map, hex_digest(digest), expiring)
        entries.close(said)
        if rows is not None and maker is not None:
            rows.close(_Footer(said.cut, said.map, "", 0, maker.bad))
        return why

    def _maker(self, name: str, stored: StoredSchema) -> BatchMaker:
        bad = self.options.read.bad
        struct = stored.struct
        if bad.mode == "column":
            struct = struct.add(bad.column, "string")
        layout = Layout(name, stored.value_format, tuple(stored.key), bad)
        return BatchMaker(arrow_schema(struct), layout)

    def _describe(self, kind: str, name: str, number: int) -> WrittenFile:
        path, (_, final) = file_of(kind, name, number), self._file(kind, name, number)
        found = pq.read_metadata(final)
        said = msgspec.json.decode((found.metadata or {})[_FOOTER.encode()], type=_Footer)
        if (said.cut, said.map) != (self.cut.id.hex(), name):
            raise BadExport(f"{final} belongs to another export: give each its own folder")
        total, size = file_checksum(final)
        return WrittenFile(
            name,
            kind,
            path,
            found.num_rows,
            size,
            said.digest,
            total,
            found.num_row_groups,
            said.expiring,
            said.unfit,
        )


def entry_batch(page: own.Page, partition: int) -> pa.RecordBatch:
    columns, rows = page.columns, page.columns.rows
    zeros = [0] * rows

    def binary(offsets: bytes, data: bytes) -> pa.Array[Any]:
        return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    return pa.RecordBatch.from_arrays(
        [
            binary(columns.key_offsets, columns.keys),
            binary(columns.value_offsets, columns.values),
            pa.array(page.ttls_ms or zeros, pa.int64()),
            pa.array(page.max_idles_ms or zeros, pa.int64()),
            pa.array(page.key_hashes or zeros, pa.int32()),
            pa.array([partition] * rows, pa.int32()),
        ],
        schema=SCHEMA,
    )


@dataclass
class _Writer:
    path: Path
    schema: pa.Schema
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0

    def __post_init__(self) -> None:
        few = [name for name in self.schema.names if name not in ("key", "value")]
        stored = self.schema is SCHEMA
        self._file = pq.ParquetWriter(
            self.path,
            self.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=few if stored else True,  # type: ignore[arg-type]  # the stubs know only yes and no
            write_statistics=["partition"] if stored else True,
        )

    def add(self, batch: pa.RecordBatch, size: int) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += size
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self, said: _Footer) -> None:
        self._flush()
        self._file.add_key_value_metadata({_FOOTER: msgspec.json.encode(said).decode()})
        self._file.close()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(pa.Table.from_batches(self._held, schema=self.schema), self._rows)
        self._held, self._rows, self._bytes = [], 0, 0


# -- completion


def whole_tables(folder: Path, written: Sequence[WrittenFile]) -> list[WrittenFile]:
    """The written files, without columns of maps in which an entry does not fit; their files are removed."""
    partial = {file.map for file in written if file.kind == LEFT_OUT}
    for file in written:
        if file.kind == TABLES and file.map in partial:
            (folder / file.path).unlink(missing_ok=True)
    return [file for file in written if not (file.kind == TABLES and file.map in partial)]


def _look(folder: Path, written: Sequence[WrittenFile]) -> None:
    """Check that the driver sees the files of the tasks, and remove files of interrupted tasks."""
    linked = has_links(folder)
    for file in written:
        if file.kind == LEFT_OUT:
            continue
        path = folder / file.path
        try:
            size = path.stat().st_size
        except OSError:
            size = -1
        if size != file.bytes:
            raise BadExport(
                f"{path}, which a task has written, is not seen by the driver: the folder must be one that the driver "
                "and all executors share"
            )
        if not linked and file_checksum(path)[0] != file.checksum:
            raise BadExport(
                f"{path} was written by two tasks at the same time, and the folder is on a file system without hard "
                "links, where the second one wins: export again, without spark.speculation"
            )
    for kind in (ENTRIES, TABLES):
        for path in (folder / kind).glob("*/.*"):
            path.unlink(missing_ok=True)


def _map_info(
    name: str,
    cut: Cut,
    partitions: int,
    written: Sequence[WrittenFile],
    schemas: Mapping[bytes, StoredEntry],
) -> MapInfo:
    """Raises BadExport if the files do not have all entries of the cut."""
    files: dict[str, list[FileInfo]] = {ENTRIES: [], TABLES: []}
    left_out = sorted(file.path for file in written if file.map == name and file.kind == LEFT_OUT)
    for file in sorted(written, key=lambda file: file.path):
        if file.map == name and file.kind in files:
            files[file.kind].append(
                FileInfo(
                    file.path,
                    file.rows,
                    file.bytes,
                    file.digest,
                    file.checksum,
                    file.row_groups,
                    file.expiring,
                )
            )
    marks = [cut.marks.get((name, partition)) for partition in range(partitions)]
    rows = sum(file.rows for file in files[ENTRIES])
    wanted = sum(mark.entries for mark in marks if mark is not None)
    if rows != wanted:
        raise BadExport(
            f"the tasks have written {rows:,} entries of map {name!r}; at the cut there were {wanted:,}"
        )
    return MapInfo(
        name,
        rows,
        sum_digests(files[ENTRIES]),
        [mark.counter if mark is not None else 0 for mark in marks],
        [mark.term if mark is not None else 0 for mark in marks],
        files[ENTRIES],
        schemas.get(string_data(name)),
        files[TABLES],
        left_out[0] if left_out else msgspec.UNSET,
        sum(file.unfit for file in written if file.map == name and file.kind == TABLES) or msgspec.UNSET,
    )


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number:,} entries"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
