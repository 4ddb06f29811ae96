"""Checkpoints: one partition's journalled maps at one moment, as a Parquet file.

A row is an entry: its map, key and value in stored form (type id and payload), the rest of its time to live,
its maximum idle time (0: none) and the hash word of its key. Keys and values are plain and uncompressed, so
reading them is copying them. Facts that only Holdfast needs are JSON in the metadata of the file, under
`holdfast`.

The name ends in a digest of the file, which is verified before the file is read. pyarrow is imported on first
use, because a member without a journal does not need it: without pyarrow, writing or reading a checkpoint
raises NotInstalled, and a member with files does not start (`need_arrow`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import mmh3
import msgspec

from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.core.model.object_names import is_service
from holdfast.errors import JournalBroken, NewerFiles, NotInstalled

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

VERSION = 1
WITH_SERVICES = 2
"""Version of a checkpoint with services. The rows of a service are the pieces of its share: key is the
piece's number, 8 bytes, value the piece. A Holdfast that knows only version 1 would take them for a map.
"""
METADATA = b"holdfast"
_PAGE_BYTES = 64 << 20
"""A page of a column must have less than 2 GiB, whatever the size of the values; it holds at least one."""
_ARRAY_BYTES = 2**31 - 1
_BATCH_ROWS = 1024
_NAME = re.compile(r"p([0-9]{5,10})-([0-9]{12,20})-([0-9a-f]{32})\.parquet", re.ASCII)
_EXTRAS = ("ttl_ms", "max_idle_ms", "key_hash")


class MapHeader(msgspec.Struct, frozen=True):
    """Metadata of one map. Its rows follow those of the map before."""

    name: str
    entries: int
    lineage: list[tuple[int, int]]
    counter: bytes
    digest: str
    """As `MapReplica.digest`, 16 hexadecimal digits."""
    extras: bool = False
    """Whether any entry has a time to live, a maximum idle time or a hash word."""


class CheckpointHeader(msgspec.Struct, frozen=True):
    version: int
    store: str
    partition: int
    epoch: int
    lsn: int
    """The content has every record of the blocks up to this one."""
    maps: list[MapHeader]
    requests: bytes = b""
    wall_ms: int = 0
    """When the content was taken, since 1970 by the member's clock: `ttl_ms` counts from then. 0: unknown, in
    older files.
    """

    @property
    def entries(self) -> int:
        return sum(each.entries for each in self.maps)


class CheckpointName(msgspec.Struct, frozen=True):
    partition: int
    lsn: int
    digest: str


def need_arrow() -> None:
    """Raises NotInstalled."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as absent:
        raise NotInstalled.of("checkpoints are Parquet files", "pyarrow", "arrow") from absent


# -- names ------------------------------------------------------------------------------------------------------------


def checkpoint_name(partition: int, lsn: int, data: bytes) -> str:
    return f"p{partition:05}-{lsn:012}-{mmh3.mmh3_x64_128_digest(data).hex()}.parquet"


def parse_name(name: str) -> CheckpointName | None:
    found = _NAME.fullmatch(name)
    return CheckpointName(int(found[1]), int(found[2]), found[3]) if found else None


# -- writing ----------------------------------------------------------------------------------------------------------


def encode_checkpoint(snapshot: Snapshot, lsn: int, store: str) -> tuple[str, bytes]:
    """Name and bytes. The content must have every record of the blocks up to `lsn`. `store`: its owner.
    Raises ValueError if the columns of a map differ in length.
    """
    need_arrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    services = any(is_service(each.name) for each in snapshot.maps)
    header = CheckpointHeader(
        WITH_SERVICES if services else VERSION,
        store,
        snapshot.partition,
        snapshot.epoch,
        lsn,
        [_map_header(each) for each in snapshot.maps],
        snapshot.requests,
        snapshot.wall_ms,
    )
    kinds: list[tuple[str, pa.DataType]] = [
        ("map", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
    kinds += [(name, pa.int64()) for name in _EXTRAS]
    fields = [pa.field(name, kind, nullable=False) for name, kind in kinds]
    schema = pa.schema(fields, {METADATA: msgspec.json.encode(header)})
    maps = snapshot.maps
    columns: list[Any] = [
        pa.chunked_array(
            [pa.repeat(_cells([each.name.encode()], pa.string())[0][0], len(each.keys)) for each in maps],
            pa.string(),
        ),
        pa.chunked_array([piece for each in maps for piece in _cells(each.keys)], pa.binary()),
        pa.chunked_array([piece for each in maps for piece in _cells(each.values)], pa.binary()),
    ]
    for extra in ("ttls_ms", "max_idles_ms", "key_hashes"):
        pieces = [_numbers(getattr(each, extra), len(each.keys)) for each in maps]
        columns.append(pa.chunked_array(pieces, pa.int64()))
    longest = max((len(cell) for each in maps for cell in _longest(each)), default=0)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns, schema=schema),
        sink,
        compression="none",
        use_dictionary=["map", *_EXTRAS],  # type: ignore[arg-type]  # the stubs know only yes and no
        write_statistics=False,
        write_batch_size=max(1, min(_BATCH_ROWS, _PAGE_BYTES // (longest + 1))),
    )
    data = sink.getvalue().to_pybytes()
    return checkpoint_name(snapshot.partition, lsn, data), data


def _map_header(each: MapSnapshot) -> MapHeader:
    rows = len(each.keys)
    columns = (each.ttls_ms, each.max_idles_ms, each.key_hashes)
    if len(each.values) != rows or any(len(column) not in {0, rows} for column in columns):
        raise ValueError(f"the columns of map {each.name!r} are not of one length")
    hash64 = mmh3.hash64
    total = 0
    for key, value in zip(each.keys, each.values, strict=True):
        total += hash64(key + value, len(key), signed=False)[0]
    digest = f"{total & 0xFFFF_FFFF_FFFF_FFFF:016x}"
    return MapHeader(
        each.name, rows, each.lineage, each.counter, digest, any(any(column) for column in columns)
    )


def _longest(each: MapSnapshot) -> list[bytes]:
    return [max(each.keys, key=len), max(each.values, key=len)] if each.keys else []


# `pyarrow.array` and `scalar` import pandas where it is installed: 0.4 s and 50 MB for a member's first
# checkpoint.


def _cells(cells: Sequence[bytes], kind: Any = None) -> list[Any]:
    """Arrays of binary cells by default. One holds at most `_ARRAY_BYTES`, as far as its offsets reach."""
    import pyarrow as pa

    if len(cells) > 1 and sum(map(len, cells)) > _ARRAY_BYTES:
        half = len(cells) // 2
        return [*_cells(cells[:half], kind), *_cells(cells[half:], kind)]
    offsets = array("i", accumulate(map(len, cells), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(cells))]
    return [pa.Array.from_buffers(kind or pa.binary(), len(cells), buffers)]


def _numbers(cells: Sequence[int], count: int) -> Any:
    import pyarrow as pa

    buffer = pa.py_buffer(array("q", cells) if cells else bytes(8 * count))
    return pa.Array.from_buffers(pa.int64(), count, [None, buffer])


# -- reading ----------------------------------------------------------------------------------------------------------


def read_header(data: bytes) -> CheckpointHeader:
    """The content is not verified. Raises JournalBroken."""
    return _open(data)[1]


def read_checkpoint(name: str, data: bytes, store: str | None = None) -> tuple[CheckpointHeader, Snapshot]:
    """`store`: its expected owner, if known. Raises JournalBroken if the bytes are not those that were
    written under this name.
    """
    need_arrow()
    import pyarrow as pa

    said = parse_name(name)
    if said is None:
        raise JournalBroken(f"{name}: not the name of a checkpoint")
    if mmh3.mmh3_x64_128_digest(data).hex() != said.digest:
        raise JournalBroken(f"{name}: damaged: these are not the {len(data)} bytes that were written")
    file, header = _open(data, name)
    if (header.partition, header.lsn) != (said.partition, said.lsn):
        raise JournalBroken(
            f"{name}: this is partition {header.partition} at {header.lsn} under another name"
        )
    if store not in {None, header.store}:
        raise JournalBroken(f"{name}: a checkpoint of another store, {header.store}")
    wanted = ["key", "value"] + [extra for extra in _EXTRAS if any(each.extras for each in header.maps)]
    try:
        table = file.read(columns=wanted, use_threads=False)
        columns: list[list[Any]] = [table.column(column).to_pylist() for column in wanted]
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise JournalBroken(f"{name}: not a checkpoint of this Holdfast: {error}") from error
    if table.num_rows != header.entries or any(each.entries < 0 for each in header.maps):
        raise JournalBroken(f"{name}: {table.num_rows} entries where the metadata say {header.entries}")
    if len(header.maps) != 1:
        maps = []
        reached = 0
        for each in header.maps:
            maps.append(_map(each, [column[reached : reached + each.entries] for column in columns]))
            reached += each.entries
    else:
        maps = [_map(header.maps[0], columns)]
    return header, Snapshot(header.partition, header.epoch, maps, header.requests, header.wall_ms)


def _map(header: MapHeader, columns: list[list[Any]]) -> MapSnapshot:
    extras = [column if any(column) else [] for column in columns[2:]] if header.extras else []
    return MapSnapshot(header.name, header.lineage, header.counter, columns[0], columns[1], *extras)


def _open(data: bytes, name: str = "checkpoint") -> tuple[pq.ParquetFile, CheckpointHeader]:
    need_arrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        header = msgspec.json.decode((file.metadata.metadata or {})[METADATA], type=CheckpointHeader)
    except (pa.ArrowException, OSError, msgspec.MsgspecError, KeyError, ValueError) as error:
        raise JournalBroken(f"{name}: not a checkpoint: {error}") from error
    if header.version not in (VERSION, WITH_SERVICES):
        raise NewerFiles(
            f"{name}: of format version {header.version}; this Holdfast reads versions {VERSION} and {WITH_SERVICES}: "
            "start the version that wrote it, or a newer one; nothing was changed"
        )
    return file, header
