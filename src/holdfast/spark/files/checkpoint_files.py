"""Checkpoints of stopped or copied members as a DataFrame: a row for each entry, each map and each damage.

checkpoint_frame(spark, ["/copies/m1"]).where("kind = 'entry'").groupBy("map").count().show()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.model.ids import METASTORE_GROUP
from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.raft_partition.recovered_replica import RecoveredReplica
from holdfast.errors import CounterBroken, JournalBroken
from holdfast.spark import jobs
from holdfast.spark.files.journals import BATCH_ROWS, DAMAGE, StoreFiles, find
from holdfast.wire.checkpoint import CheckpointHeader, parse_name, read_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTRY, MAP = "entry", "map"

TYPES: dict[str, pa.DataType] = {
    "store": pa.string(),
    "member": pa.string(),
    "directory": pa.string(),
    "file": pa.string(),
    "kind": pa.string(),
    "partition": pa.int32(),
    "epoch": pa.int64(),
    "lsn": pa.int64(),
    "map": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "key_bytes": pa.int64(),
    "value_bytes": pa.int64(),
    "ttl_ms": pa.int64(),
    "max_idle_ms": pa.int64(),
    "entries": pa.int64(),
    "term": pa.int64(),
    "low": pa.int64(),
    "high": pa.int64(),
    "missing": pa.int64(),
    "digest": pa.string(),
    "note": pa.string(),
}
"""A `map` row has the number of entries, bytes of keys and values, the term of the last update, the watermarks of the
update counter, and the number of missing updates between them.
"""
SCHEMA = pa.schema(TYPES)
DDL = (
    "store string, member string, directory string, file string, kind string, partition int, epoch bigint, lsn bigint, "
    "map string, key binary, value binary, key_bytes bigint, value_bytes bigint, ttl_ms bigint, max_idle_ms bigint, "
    "entries bigint, term bigint, low bigint, high bigint, missing bigint, digest string, note string"
)


@dataclass(frozen=True, slots=True)
class Share:
    files: StoreFiles
    names: tuple[str, ...]
    values: bool


def checkpoint_frame(
    spark: SparkSession, directories: Sequence[str | Path], *, values: bool = False, newest: bool = True
) -> DataFrame:
    """The files are read when the frame is used. Raises ConfigError. `values`: include the stored values of
    entries. `newest`: read only the newest file of each partition.
    """
    parts = shares(find(directories), jobs.TASKS_PER_SLOT * jobs.slots(spark), values=values, newest=newest)
    if not parts:
        return spark.createDataFrame(pa.Table.from_pylist([], schema=SCHEMA))
    return jobs.plan(spark, parts, read, DDL)


def shares(
    files: Sequence[StoreFiles], tasks: int, *, values: bool = False, newest: bool = True
) -> list[Share]:
    wanted = [(each, _newest(each.checkpoints) if newest else each.checkpoints) for each in files]
    size = max(1, -(-sum(len(names) for _, names in wanted) // max(1, tasks)))
    return [
        Share(each, names[first : first + size], values)
        for each, names in wanted
        for first in range(0, len(names), size)
    ]


def _newest(names: Sequence[str]) -> tuple[str, ...]:
    found: dict[int, tuple[int, str]] = {}
    for name in names:
        if said := parse_name(name):
            found[said.partition] = max(found.get(said.partition, (-1, "")), (said.lsn, name))
    return tuple(name for _, (_, name) in sorted(found.items()))


def read(share: Share) -> Iterator[pa.RecordBatch]:
    for name in share.names:
        told = {
            "store": share.files.store or None,
            "member": share.files.member or None,
            "directory": share.files.directory,
            "file": name,
        }
        try:
            header, snapshot = read_checkpoint(name, share.files.load(name), share.files.store or None)
            if header.partition > METASTORE_GROUP:
                yield from _of_zone(told, header, snapshot, values=share.values)
                continue
            for each, digest in zip(snapshot.maps, header.maps, strict=True):
                yield _map(told, header, each, digest.digest)
                yield from _entries(told, header, each, values=share.values)
        except (JournalBroken, CounterBroken, msgspec.MsgspecError) as broken:
            said = parse_name(name)
            row = told | {"kind": DAMAGE, "partition": said.partition if said else None, "note": str(broken)}
            yield pa.RecordBatch.from_pylist([row], schema=SCHEMA)


def _of_zone(
    told: dict[str, Any], header: CheckpointHeader, snapshot: Snapshot, *, values: bool
) -> Iterator[pa.RecordBatch]:
    """The maps in the checkpoint of a zone's replica, with the committed entries of the log that it has. Raises
    msgspec.MsgspecError.
    """
    found = RecoveredGroup([piece for each in snapshot.maps for piece in each.values])
    replica = RecoveredReplica(header.partition, found)
    named = told | {"note": f"zone {replica.zone}, index {replica.index}"}
    for partition, copy in replica.copies.items():
        place = msgspec.structs.replace(header, partition=partition)
        for held in copy.maps.values():
            taken = MapSnapshot(held.name, list(held.lineage), held.updates.encode(), [], [])
            held.state.write_to(taken, 0)
            yield _map(named, place, taken, f"{held.state.digest():016x}")
            yield from _entries(named, place, taken, values=values)


def _map(told: dict[str, Any], header: CheckpointHeader, each: MapSnapshot, digest: str) -> pa.RecordBatch:
    counter = UpdateCounter.decode(each.counter)
    row = told | {
        "kind": MAP,
        "partition": header.partition,
        "epoch": header.epoch,
        "lsn": header.lsn,
        "map": each.name,
        "key_bytes": sum(map(len, each.keys)),
        "value_bytes": sum(map(len, each.values)),
        "entries": len(each.keys),
        "term": each.lineage[-1][0] if each.lineage else 0,
        "low": counter.lwm,
        "high": counter.hwm,
        "missing": sum(count for _, count in counter.gaps()),
        "digest": digest,
    }
    return pa.RecordBatch.from_pylist([row], schema=SCHEMA)


def _entries(
    told: dict[str, Any], header: CheckpointHeader, each: MapSnapshot, *, values: bool
) -> Iterator[pa.RecordBatch]:
    same = told | {
        "kind": ENTRY,
        "partition": header.partition,
        "epoch": header.epoch,
        "lsn": header.lsn,
        "map": each.name,
    }
    for first in range(0, len(each.keys), BATCH_ROWS):
        some = slice(first, first + BATCH_ROWS)
        keys, contents = each.keys[some], each.values[some]
        columns: dict[str, Any] = {
            "key": keys,
            "value": contents if values else None,
            "key_bytes": list(map(len, keys)),
            "value_bytes": list(map(len, contents)),
            "ttl_ms": [cell or None for cell in each.ttls_ms[some]] or None,
            "max_idle_ms": [cell or None for cell in each.max_idles_ms[some]] or None,
        }
        cells: list[list[Any]] = [columns.get(name) or [same.get(name)] * len(keys) for name in TYPES]
        yield pa.RecordBatch.from_arrays(
            [pa.array(cell, kind) for cell, kind in zip(cells, TYPES.values(), strict=True)], schema=SCHEMA
        )
