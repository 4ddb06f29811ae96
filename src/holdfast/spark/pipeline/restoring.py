"""Restores maps from an export into a cluster of any size and any number of partitions.

    done = restore(spark, "/backup/monday", "127.0.0.1:5701", maps=["flights"], rename={"flights": "flights_monday"})
    assert done.sound, done

Files are compared with the manifest before the first row is written, and the grid with the manifest after the
last one. Entries are stored under their keys, so a restore, or a part of it, can be repeated without effect.
The remaining time to live at the cut starts when an entry is restored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from holdfast.client.blocking import Client, PutCount
from holdfast.client.holdings import Holding, read_holdings
from holdfast.config.schema import INTERNAL
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import MAP_NAME_MAX, Op, Request
from holdfast.core.store.digest import batch_digest
from holdfast.errors import ConfigError, HoldfastError
from holdfast.spark.jobs import TASKS_PER_SLOT, Counted, Show, nothing, run, slots
from holdfast.spark.pipeline.export import COMPACT_SCHEMAS_MAP
from holdfast.spark.pipeline.manifest import (
    BadExport,
    FileInfo,
    Manifest,
    MapInfo,
    StoredEntry,
    hex_digest,
    read_manifest,
)
from holdfast.spark.pipeline.record_columns import Columns
from holdfast.spark.pipeline.verified_export import (
    cells_of,
    check_bytes,
    check_files,
    numbers_of,
    read_batches,
)
from holdfast.spark.rows.column_schemas import SCHEMAS_MAP
from holdfast.spark.rows.stored import string_data
from holdfast.spark.source.options import Options
from holdfast.wire.hazelcast.compact_schemas import schema_entry_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["error", "append", "overwrite"]
MODES: tuple[Mode, ...] = ("error", "append", "overwrite")

Verdict = Literal["equal", "undecided", "differs"]
"""`undecided`: others may have written, entries have expired, or there were entries before."""

_APPEND, _OVERWRITE, _RENAME = (
    "--mode append (mode='append')",
    "--mode overwrite (mode='overwrite')",
    "--rename OLD=NEW (rename={'old': 'new'})",
)
PARTITIONS_ASKED = 4096
"""Up to so many partitions the driver asks for their contents itself; beyond, the tasks do."""


class RestoreFailed(HoldfastError):
    """A restore failed half-way; the message says what to do."""


@dataclass(frozen=True, slots=True)
class RestoredMap:
    name: str
    to: str
    rows: int
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    folder: str
    maps: list[RestoredMap]
    rows_resent: int
    """Rows sent more than once, because their partition moved or an answer was lost."""
    files: int
    seconds: float

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.maps)

    @property
    def sound(self) -> bool:
        return all(each.verdict == "equal" for each in self.maps)

    def of(self, verdict: Verdict) -> list[RestoredMap]:
        return [each for each in self.maps if each.verdict == verdict]

    def __str__(self) -> str:
        rate = self.rows / self.seconds if self.seconds else 0.0
        total = (
            f"restored {self.rows:,} rows of {len(self.maps)} maps from {self.files} files in {self.seconds:.1f} s "
            f"({rate:,.0f} rows/s)"
        )
        lines = [total]
        for each in self.maps:
            name = each.name if each.name == each.to else f"{each.name} as {each.to}"
            why = f": {each.reason}" if each.reason else ""
            lines.append(f"  {name}: {each.rows:,} rows, {each.verdict}{why}")
        return "\n".join(lines)


def restore(
    spark: SparkSession | None,
    folder: str | Path,
    address: str,
    *,
    maps: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    mode: Mode = "error",
    progress: Show = nothing,
    **options: str,
) -> Restored:
    """Store the contents of the export in `folder`, or these maps of it, under their names or those of
    `rename`. Without Spark (None) threads of this process do the work.

    `mode` applies to maps with entries: `error` rejects them, `append` stores over them, `overwrite` clears
    them first. `options` are those of the data source. Raises BadExport if the export differs from its
    manifest, and ConfigError, both before anything is written; RestoreFailed if some of it stays written.
    """
    began = time.monotonic()
    manifest = read_manifest(folder)
    chosen = [manifest.map(name) for name in dict.fromkeys(maps)] or manifest.maps
    names = _targets(chosen, rename or {})
    if mode not in MODES:
        raise ConfigError(f"mode is {', '.join(MODES)}, not {mode!r}")
    parsed = Options.parse({"address": address, "map": "any", **options})
    files = [file for each in chosen for file in each.files]
    with parsed.client() as client:
        _may_write(client, chosen, names, mode)
        damaged = check_files(spark, folder, files, check_bytes, title="check", progress=progress)
        if damaged:
            more = f" (and {len(damaged) - 1} more files)" if len(damaged) > 1 else ""
            raise BadExport(f"{damaged[0]}{more}; nothing was written")
        table = client.table()
        addresses = tuple(member.address for member in table.members.values())
        try:
            if mode == "overwrite":
                for to in names.values():
                    client.clear(to)
            before = _holdings(spark, client, parsed, addresses, names, progress)
            _store_schemas(client, manifest, chosen, names)
            written = _write(spark, parsed, addresses, Path(folder).absolute(), chosen, names, progress)
            after = _holdings(spark, client, parsed, addresses, names, progress)
        except HoldfastError as failed:
            how = "" if mode == "append" else f" with {_APPEND}"
            raise RestoreFailed(
                f"{failed}. The written rows stay; restoring again{how} is safe, and continues"
            ) from failed
    again = {name: sum(row.rows_resent for row in rows) for name, rows in written.items()}
    found = [
        judge(each, names[each.name], before[names[each.name]], after[names[each.name]], again[each.name])
        for each in chosen
    ]
    return Restored(str(folder), found, sum(again.values()), len(files), time.monotonic() - began)


# -- preparation


def _targets(chosen: Sequence[MapInfo], rename: Mapping[str, str]) -> dict[str, str]:
    """The target of each map, by its name in the export. Raises ConfigError."""
    inside = {each.name for each in chosen}
    for old, new in rename.items():
        if old not in inside:
            raise ConfigError(
                f"{old!r} is to be renamed, but is not restored: that are {', '.join(sorted(inside))}"
            )
        if not 1 <= len(new) <= MAP_NAME_MAX or new.startswith(INTERNAL):
            raise ConfigError(
                f"{new!r} is no name for a map: 1 to {MAP_NAME_MAX} characters, not {INTERNAL!r} first"
            )
    names = {each.name: rename.get(each.name, each.name) for each in chosen}
    twice = {to for to in names.values() if list(names.values()).count(to) > 1}
    if twice:
        raise ConfigError(f"two maps would become {min(twice)!r}: entries of one would replace the other's")
    return names


def _may_write(client: Client, chosen: Sequence[MapInfo], names: Mapping[str, str], mode: Mode) -> None:
    for each in chosen:
        to = names[each.name]
        size = client.size(to) if mode != "overwrite" else 0
        if size and mode == "error":
            raise ConfigError(
                f"the map {to!r} has {size:,} entries: {_APPEND} stores over them (and continues a restore that was "
                f"interrupted), {_OVERWRITE} clears the map first, {_RENAME} gives it another name"
            )
        present = client.get(SCHEMAS_MAP, string_data(to))
        ours = each.schema.value if each.schema is not None else None
        if size and present != ours:
            raise ConfigError(
                f"the map {to!r} was written with other columns, or another key or format, than {each.name!r} of the "
                f"export: use {_OVERWRITE} or {_RENAME}"
            )


def _store_schemas(
    client: Client, manifest: Manifest, chosen: Sequence[MapInfo], names: Mapping[str, str]
) -> None:
    # Old exports may contain invalid schemas, from before they were validated; nothing can be read with them.
    compact = [
        entry for entry in manifest.compact_schemas if not schema_entry_problem(entry.key, entry.value)
    ]
    _store_entries(client, COMPACT_SCHEMAS_MAP, compact)
    for each in chosen:
        key = string_data(names[each.name])
        if each.schema is not None:
            _store_entries(client, SCHEMAS_MAP, [StoredEntry(key, each.schema.value)])
        elif client.get(SCHEMAS_MAP, key) is not None:
            # The stored columns are those of former entries.
            partition = partition_of(key, 0, client.partition_count)
            client.execute(Request(Op.DELETE, SCHEMAS_MAP, [partition], key), idempotent=True)


def _store_entries(client: Client, name: str, entries: Sequence[StoredEntry]) -> None:
    client.put_columns(name, [entry.key for entry in entries], [entry.value for entry in entries], ttl_ms=0)


# -- contents of the grid


@dataclass(frozen=True, slots=True)
class _Sums:
    map: str
    updates: int
    entries: int
    digest: str


_SUMS = Columns(_Sums)


@dataclass(frozen=True)
class _Holdings:
    options: Options
    addresses: tuple[str, ...]
    maps: tuple[str, ...]

    def __call__(self, share: Sequence[int]) -> Iterator[pa.RecordBatch]:
        with self.options.client(self.addresses) as client:
            found = read_holdings(client, share, self.maps, timeout_s=self.options.timeout_s)
        rows = [
            _Sums(name, held.updates, held.entries, hex_digest(held.digest)) for name, held in found.items()
        ]
        yield from _SUMS.table(rows).to_batches()


def _holdings(
    spark: SparkSession | None,
    client: Client,
    options: Options,
    addresses: tuple[str, ...],
    names: Mapping[str, str],
    progress: Show,
) -> dict[str, Holding]:
    table = client.table()
    if len(table) <= PARTITIONS_ASKED:
        partitions = range(len(table))
        return read_holdings(client, partitions, list(names.values()), timeout_s=options.timeout_s)
    found = {to: Holding() for to in names.values()}
    work = _Holdings(options, addresses, tuple(names.values()))
    shares = table.shares(slots(spark))
    told = run(spark, shares, work, _SUMS.ddl, title="sums", progress=progress)
    for row in _SUMS.rows(told):
        found[row.map] += Holding(row.updates, row.entries, int(row.digest, 16))
    return found


# -- writing


@dataclass(frozen=True, slots=True)
class Part:
    map: str
    to: str
    file: FileInfo
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Written:
    map: str
    rows: int
    rows_resent: int
    digest: str


_WRITTEN = Columns(Written)


def plan_parts(chosen: Sequence[MapInfo], names: Mapping[str, str], wanted: int) -> list[Part]:
    files = [(each.name, file) for each in chosen for file in each.files if file.row_groups]
    groups = sum(file.row_groups for _, file in files)
    parts: list[Part] = []
    for name, file in files:
        count = max(1, min(file.row_groups, -(-file.row_groups * wanted // groups)))
        parts += [
            Part(name, names[name], file, tuple(range(at, file.row_groups, count))) for at in range(count)
        ]
    return parts


@dataclass(frozen=True)
class Restorer:
    """Stores some row groups, idempotently; pickled."""

    options: Options
    addresses: tuple[str, ...]
    folder: str
    counted: Counted

    def __call__(self, part: Part) -> Iterator[pa.RecordBatch]:
        count = PutCount()
        rows = digest = 0
        with self.options.client(self.addresses) as client:
            for batch in read_batches(Path(self.folder) / part.file.path, part.groups):
                keys, values = cells_of(batch, "key"), cells_of(batch, "value")
                rows += len(keys)
                digest += batch_digest(keys, values)
                # Always send lifetimes: the map in the grid may have default ones.
                zeros = [0] * len(keys)
                client.put_columns(
                    part.to,
                    keys,
                    values,
                    ttls_ms=numbers_of(batch, "ttl_ms") or zeros,
                    max_idles_ms=numbers_of(batch, "max_idle_ms") or zeros,
                    key_hashes=numbers_of(batch, "key_hash"),
                    count=count,
                )
                self.counted.add(len(keys))
        told = Written(part.map, rows, count.rows_resent, hex_digest(digest))
        yield from _WRITTEN.table([told]).to_batches()


def _write(
    spark: SparkSession | None,
    options: Options,
    addresses: tuple[str, ...],
    folder: Path,
    chosen: Sequence[MapInfo],
    names: Mapping[str, str],
    progress: Show,
) -> dict[str, list[Written]]:
    """Returns the stored entries, by map. Raises BadExport if they differ from the manifest."""
    found: dict[str, list[Written]] = {each.name: [] for each in chosen}
    parts = plan_parts(chosen, names, TASKS_PER_SLOT * slots(spark))
    if parts:
        counted = Counted(spark)
        work = Restorer(options, addresses, str(folder), counted)
        told = run(spark, parts, work, _WRITTEN.ddl, title="restore", progress=progress, counted=counted)
        for one in _WRITTEN.rows(told):
            found[one.map].append(one)
    for each in chosen:
        rows = sum(one.rows for one in found[each.name])
        digest = hex_digest(sum(int(one.digest, 16) for one in found[each.name]))
        if (rows, digest) != (each.rows, each.digest):
            raise BadExport(f"the files of map {each.name!r} have changed while they were restored")
    return found


# -- verification


def judge(each: MapInfo, to: str, before: Holding, after: Holding, rows_resent: int) -> RestoredMap:
    """Compare the grid with the export, using the primaries' sums before and after.

    Sums of digests decide if the map was empty, or if all keys were new: 100 entries before and 50 in the
    export must give 150, with the sum of both digests. If some keys were there before, sums prove nothing, and
    the verdict is `undecided`.
    """
    digest = int(each.digest, 16)
    alone = (after.entries, after.digest) == (each.rows, digest)
    both = before + Holding(0, each.rows, digest)
    if alone or (before.entries and (after.entries, after.digest) == (both.entries, both.digest)):
        return RestoredMap(each.name, to, each.rows, "equal")
    found = f"the grid holds {after.entries:,} entries with digest {hex_digest(after.digest)}"
    others = after.updates - before.updates - each.rows - rows_resent
    if others > 0:
        why = (
            f"{found}; there were {others:,} changes more than the finished tasks made: other writers, or tasks "
            "that ran twice, so sums are not conclusive"
        )
        return RestoredMap(each.name, to, each.rows, "undecided", why)
    if each.expiring:
        why = f"{found}; {each.expiring:,} of the restored entries have a time to live, and may have expired"
        return RestoredMap(each.name, to, each.rows, "undecided", why)
    if before.entries:
        why = (
            f"{found}; there were {before.entries:,} before, some with the same keys: sums are not conclusive"
        )
        return RestoredMap(each.name, to, each.rows, "undecided", why)
    wanted = f"the export {each.rows:,} with {each.digest}"
    return RestoredMap(each.name, to, each.rows, "differs", f"{found}, {wanted}")
