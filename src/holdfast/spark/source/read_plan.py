"""Plan of a read: columns and format of the map, and the division of its partitions between tasks.

With partitions 0..5 owned by members 1 (0, 1, 2) and 2 (3, 4, 5), two tasks get [0, 1, 2] and [3, 4, 5], so
that each asks one member. The plan only records partitions and the addresses of all members: if partition 2
moves to member 2 before or while the task runs, member 1 rejects the request as moved, and the task reads
partition 2 from member 2, from its beginning. Rows of a partition are passed on only when all of it was read,
so none comes twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, take_cut
from holdfast.errors import ConfigError
from holdfast.spark.rows.batch_maker import PARTITION, BatchMaker
from holdfast.spark.rows.column_schemas import StoredSchema, arrow_schema, load_schema
from holdfast.spark.rows.row_reader import Layout
from holdfast.spark.source.options import Options
from holdfast.spark.source.overwriting import overwriting
from holdfast.spark.source.pushdown import KeyColumns, key_columns, narrow, stored_keys
from holdfast.spark.source.sampling import BINARY, CompactSchemas, guess, sample

TASKS = 4
"""Unless options ask for fewer."""

TASKS_MAX = 16


@dataclass(frozen=True)
class Reading:
    struct: StructType
    layout: Layout
    wrote: StructType | None = None
    """Columns with which Spark wrote the map; None for a map of other clients."""
    all: StructType | None = None
    fields: tuple[str, ...] | None = None
    """Fields of JSON values that members have to send; None: whole values."""

    @property
    def there(self) -> StructType:
        return self.all or self.wrote or self.struct


@dataclass(frozen=True)
class Share(InputPartition):
    """The partitions of the grid that one task reads, and the addresses it may ask."""

    partitions: tuple[int, ...]
    addresses: tuple[str, ...]
    keys: Mapping[int, Sequence[bytes]] | None = None
    cut: Cut | None = None
    overwriting: bytes = b""
    """The job that was overwriting the map when this was planned (`source.overwriting`)."""


def known_columns(options: Options) -> Reading:
    """The columns as far as the grid knows them. Raises ConfigError if they are unknown."""
    if options.value_format == "binary":
        return _chosen(options, Reading(BINARY, _layout(options, "binary", ("key",))))
    with options.client() as client:
        found = _of_map(client, options)
    if found is None:
        raise ConfigError(
            f"the map {options.map!r} was not written through Spark, and has no entries, so its "
            "columns are unknown: give them with .schema(...), or read it with the option valueFormat=binary"
        )
    return _chosen(options, found)


def _of_map(client: Client, options: Options) -> Reading | None:
    stored = load_schema(client, options.map)
    if stored is not None:
        return _of_stored(options, stored)
    if not options.read.sample_rows:
        return None
    entries = sample(client, options.map, options.read.sample_rows)
    found = guess(entries, CompactSchemas(client), mostly=options.read.bad.mode != "fail")
    if found is None:
        return None
    return Reading(found.struct, _layout(options, found.value_format, found.key))


def _layout(options: Options, value_format: str, key: tuple[str, ...] = ()) -> Layout:
    return Layout(options.map, value_format, key, options.read.bad)


def _of_stored(options: Options, stored: StoredSchema) -> Reading:
    value_format = options.value_format or stored.value_format
    key = tuple(stored.key) if value_format != "binary" else ("key",)
    return Reading(stored.struct, _layout(options, value_format, key), stored.struct)


def _chosen(options: Options, known: Reading) -> Reading:
    """Restrict to the option `columns`, and add the columns for the partition and raw values if requested."""
    struct = known.struct
    fields = None
    if options.columns:
        columns = {field.name: field for field in struct.fields}
        columns.setdefault(PARTITION, StructField(PARTITION, IntegerType()))
        for name in options.columns:
            if name not in columns:
                raise ConfigError(
                    f"the map {options.map!r} has no column {name!r}; it has {', '.join(struct.names)}"
                )
        struct = StructType([columns[name] for name in options.columns])
        fields = _fields(known.layout, struct, known.struct)
    if options.read.partition_column and PARTITION not in struct.names:
        struct = StructType([*struct.fields]).add(PARTITION, IntegerType())
    bad = options.read.bad
    if bad.mode == "column":
        if bad.column in (*known.struct.names, PARTITION):
            raise ConfigError(
                f"the option bad names {bad.column!r}, which is a column of map {options.map!r}"
            )
        struct = StructType([*struct.fields]).add(bad.column, StringType())
    return Reading(struct, known.layout, known.wrote, known.struct, fields)


def _fields(layout: Layout, wanted: StructType, there: StructType | None) -> tuple[str, ...] | None:
    """The fields to request; None if that would save nothing."""
    names = [name for name in wanted.names if name not in (PARTITION, layout.bad.column)]
    if layout.value_format != "json" or there is None or set(names) >= set(there.names):
        return None
    if layout.bad.mode == "column":
        return None  # the raw value is the whole value
    return tuple(names)


def reading(options: Options, schema: StructType, known: Reading | None) -> Reading:
    """How to read a map as these columns. `known`: what is already known about it.

    Raises ConfigError if columns and format do not fit together.
    """
    if known is None or known.struct != schema:
        found: Reading | None = known
        if found is None and options.value_format == "binary":
            found = Reading(schema, _layout(options, "binary", ("key",)))
        if found is None:
            with options.client() as client:
                found = _of_map(client, options)
        layout = found.layout if found is not None else _layout(options, "json")
        if options.value_format is not None and options.value_format != layout.value_format:
            layout = _layout(options, options.value_format, layout.key or ("key",))
        there = found.struct if found is not None else None
        wrote = found.wrote if found is not None else None
        known = Reading(schema, layout, wrote, there, _fields(layout, schema, there))
    BatchMaker(arrow_schema(known.struct), known.layout)
    return known


def plan_shares(
    options: Options,
    known: Reading,
    filters: Sequence[Filter] = (),
    *,
    also: Sequence[str] = (),
    cut: Cut | None = None,
    tasks: int | None = None,
) -> list[Share]:
    """Shares for the tasks of a read in the present cluster: even, each with as few owners as possible.

    `filters`: hold for all wanted rows. `also`: maps to cut at the same moment, in the same partitions. `cut`:
    the cut to read at, if there is one already. `tasks`: number of tasks, unless the options set it.
    """
    with options.client() as client:
        table = client.table(options.map)
        wanted = _wanted_partitions(options, len(table))
        layout = known.layout
        verbatim = layout.value_format == "binary"
        key = key_columns(known.struct, layout.key, known.wrote, verbatim=verbatim)
        narrowed = narrow(filters, key, len(table))
        if options.read.keys is not None:
            narrowed = narrowed.only(
                _given_keys(
                    options.read.keys,
                    key_columns(known.there, layout.key, known.wrote, verbatim=verbatim),
                    options.map,
                    verbatim=verbatim,
                )
            )
        keys = narrowed.by_partition(len(table))
        if narrowed.partitions is not None:
            wanted = [partition for partition in wanted if partition in narrowed.partitions]
        if keys is not None:
            wanted = [partition for partition in wanted if partition in keys]
        if cut is None and options.read.cut and wanted:
            cut = take_cut(client, [options.map, *also], lease_s=options.read.lease_s, partitions=wanted)
        under_way = b"" if cut is not None else overwriting(client, options.map)
    addresses = tuple(member.address for member in table.members.values())
    count = options.tasks or tasks or min(TASKS_MAX, max(TASKS, len(table.data_members)))
    return [
        Share(
            tuple(share),
            addresses,
            None if keys is None else {partition: keys[partition] for partition in share},
            None if cut is None else _part_of(cut, [options.map, *also], share),
            under_way,
        )
        for share in table.shares(1 if options.read.limit is not None else count, wanted)
    ]


def _given_keys(
    keys: Sequence[Sequence[object]], key: KeyColumns | None, map_name: str, *, verbatim: bool
) -> frozenset[bytes]:
    if key is None:
        raise ConfigError(
            f"the key columns of map {map_name!r} are unknown, because it was not written through Spark: "
            "leave out keys, and use a filter"
        )
    if verbatim:
        # JSON has no bytes: the stored form as hexadecimal digits.
        try:
            keys = [[bytes.fromhex(str(cell)) for cell in row] for row in keys]
        except ValueError:
            raise ConfigError("keys of a binary read are texts of hexadecimal digits") from None
    return stored_keys(keys, key)


def _wanted_partitions(options: Options, count: int) -> list[int]:
    """Raises ConfigError if the cluster has fewer partitions."""
    chosen = options.read.partitions
    if chosen is None:
        return list(range(count))
    if chosen[-1] >= count:
        raise ConfigError(f"partitions: there is no partition {chosen[-1]}; they are 0 to {count - 1}")
    return list(chosen)


def cut_now(options: Options) -> Cut | None:
    if not options.read.cut:
        return None
    with options.client() as client:
        partitions = _wanted_partitions(options, client.partition_count)
        return take_cut(client, [options.map], lease_s=options.read.lease_s, partitions=partitions)


def _part_of(cut: Cut, maps: Sequence[str], partitions: Sequence[int]) -> Cut:
    return Cut(cut.id, {(name, at): cut.marks[name, at] for name in maps for at in partitions}, cut.lease_s)
