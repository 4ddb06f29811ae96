"""Maps as DataFrames on a fast path: Python workers read the partitions and pass whole columns to Spark.

    frame = table(spark, "orders", address="127.0.0.1:5701", columns=["id", "amount"], where={"id": [5, 7]})
    both = join_maps(spark, "orders", "payments", "id", address="127.0.0.1:5701", how="left", cut=True)

`table` reads what `spark.read.format("holdfast")` reads, with the same options, but through `mapInArrow`.
Spark sees a Python function instead of a source, so it pushes no filters (use `where`), and a following
`mapInArrow` does not cross the JVM twice. `join_maps` joins two maps partition by partition, without a
shuffle, which Spark cannot do with Python data sources: they cannot declare their partitioning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import EqualTo, Filter, In
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from holdfast.client.ahead import Wanted, read_ahead
from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, end_cut, take_cut
from holdfast.errors import ConfigError
from holdfast.spark import jobs
from holdfast.spark.rows.bad_rows import BadRow
from holdfast.spark.rows.batch_maker import BatchMaker
from holdfast.spark.rows.column_schemas import arrow_schema
from holdfast.spark.rows.stored import EntryMaker, key_text
from holdfast.spark.source.keeping import Keeper, kept
from holdfast.spark.source.options import Options
from holdfast.spark.source.read_plan import Reading, Share, known_columns, plan_shares, reading
from holdfast.spark.source.reader import advised, share_batches
from holdfast.spark.source.sampling import CompactSchemas
from holdfast.wire import own

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

How = Literal["inner", "left", "right", "full", "semi", "anti"]

_LEFT_ALONE = ("semi", "anti")
JOINED_ROWS = 65_536
"""Rows of both sides that are joined at once, if a few partitions have so many."""

_ACERO: dict[str, Any] = {
    "inner": "inner",
    "left": "left outer",
    "right": "right outer",
    "full": "full outer",
    "semi": "left semi",
    "anti": "left anti",
}


def parse_options(
    map_name: str, address: str, columns: Sequence[str], options: Mapping[str, object]
) -> Options:
    """Options from Python values: `cut=True`, `numPartitions=4`. Raises ConfigError."""
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }
    if columns:
        texts["columns"] = ",".join(columns)
    return Options.parse({"address": address, "map": map_name, **texts})


def table(
    spark: SparkSession,
    map_name: str,
    *,
    address: str,
    columns: Sequence[str] = (),
    where: Mapping[str, object] | None = None,
    schema: StructType | None = None,
    cut: Cut | bool = False,
    on_bad: Callable[[int], object] | None = None,
    **options: object,
) -> DataFrame:
    """A map as a DataFrame, read by Python workers. Planned now, like a DataFrame of the data source; read when used.

    `where`: required value or values by column; for key columns, only those keys are read. `cut`: a cut to read
    at (`one_cut`), or whether to take one now. `on_bad`: called in tasks with the number of entries that did
    not fit the columns (`Counted.add`). `options`: those of the data source. Raises ConfigError.
    """
    parsed, known = _opened(map_name, address, columns, schema, cut, options)
    filters = _filters(known.struct, where or {})
    shares = plan_shares(parsed, known, filters, cut=_given(cut), tasks=_tasks(spark))

    def work(share: Share) -> Iterator[pa.RecordBatch]:
        return share_batches(parsed, known, share, on_bad)

    if not shares:
        return spark.createDataFrame([], known.struct)
    frame = jobs.plan(spark, shares, work, ddl(known.struct))
    for one in filters:
        if isinstance(one, In):
            frame = frame.where(frame[quoted(one.attribute[0])].isin(list(one.value)))
        elif isinstance(one, EqualTo):
            frame = frame.where(frame[quoted(one.attribute[0])] == one.value)
    return frame


def map_batches(
    spark: SparkSession,
    map_name: str,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    into: str,
    *,
    address: str,
    columns: Sequence[str] = (),
    schema: StructType | None = None,
    cut: Cut | bool = False,
    **options: object,
) -> DataFrame:
    """Apply `function` to a map's rows in the workers that read them; only what it yields goes to Spark.

    It gets the record batches of one share after the other, and yields batches with the columns `into` (Spark's
    DDL): sums, samples, model scores. Otherwise like `table`. Raises ConfigError.
    """
    parsed, known = _opened(map_name, address, columns, schema, cut, options)
    shares = plan_shares(parsed, known, [], cut=_given(cut), tasks=_tasks(spark))

    def work(share: Share) -> Iterator[pa.RecordBatch]:
        return function(share_batches(parsed, known, share))

    if not shares:
        return spark.createDataFrame([], into)
    return jobs.plan(spark, shares, work, into)


def _opened(
    map_name: str,
    address: str,
    columns: Sequence[str],
    schema: StructType | None,
    cut: Cut | bool,
    options: Mapping[str, object],
) -> tuple[Options, Reading]:
    more = {**options, "cut": True} if cut is True else options
    parsed = parse_options(map_name, address, columns, more)
    return parsed, known_columns(parsed) if schema is None else reading(parsed, schema, None)


def _given(cut: Cut | bool) -> Cut | None:
    return cut if isinstance(cut, Cut) else None


def _tasks(spark: SparkSession) -> int:
    return jobs.slots(spark) * jobs.TASKS_PER_SLOT


def _filters(struct: StructType, where: Mapping[str, object]) -> list[Filter]:
    found: list[Filter] = []
    for name, value in where.items():
        if name not in struct.names:
            raise ConfigError(
                f"where: there is no column {name!r}; the columns are {', '.join(struct.names)}"
            )
        if isinstance(value, list | tuple | set | frozenset):
            found.append(In((name,), tuple(value)))
        else:
            found.append(EqualTo((name,), value))
    return found


def ddl(struct: StructType) -> str:
    return ", ".join(f"{quoted(field.name)} {_type_ddl(field.dataType)}" for field in struct.fields)


def _type_ddl(kind: DataType) -> str:
    """Adds the quotes around names of fields that Spark's own text lacks."""
    if isinstance(kind, StructType):
        inner = ", ".join(f"{quoted(field.name)}: {_type_ddl(field.dataType)}" for field in kind.fields)
        return f"struct<{inner}>"
    if isinstance(kind, ArrayType):
        return f"array<{_type_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_type_ddl(kind.keyType)}, {_type_ddl(kind.valueType)}>"
    return kind.simpleString()


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# -- cuts of several maps


@contextmanager
def one_cut(maps: Sequence[str], *, address: str, lease_s: float = 600.0, **options: object) -> Iterator[Cut]:
    """A cut of these maps for the block, kept while the block runs and then released.

    with one_cut(["orders", "payments"], address=...) as cut:
        orders = table(spark, "orders", address=..., cut=cut)
    """
    parsed = parse_options("any", address, (), options)
    with parsed.client() as client:
        cut = take_cut(client, maps, lease_s=lease_s)
        addresses = [member.address for member in client.table().members.values()]
        try:
            with kept(parsed, addresses, cut):
                yield cut
        finally:
            end_cut(client, cut)


# -- joins


def join_maps(
    spark: SparkSession,
    left: str,
    right: str,
    on: str | Sequence[str],
    how: How = "inner",
    *,
    address: str,
    columns: Sequence[str] = (),
    right_columns: Sequence[str] = (),
    right_suffix: str = "_right",
    cut: bool = False,
    **options: object,
) -> DataFrame:
    """Join two maps with the same key, partition by partition and without a shuffle.

    Both maps must have been written by Spark with the key `on`, of the same types, so that equal keys are in
    one partition. Raises ConfigError for other maps, which Spark can join: `table(...).join(table(...))`; also
    if a column beside the key is an array, a struct or a map, and for `limit`. `columns`, `right_columns`: only
    these, in addition to the key. Columns of the right side with names of the left side get `right_suffix`.
    `cut`: read both maps as of one moment of each partition. `keys`: only these keys of both maps.
    """
    if how not in get_args(How):
        raise ConfigError(f"how is {', '.join(get_args(How))}; not {how!r}")
    key = [on] if isinstance(on, str) else list(on)
    if any(name.lower() == "limit" and value is not None for name, value in options.items()):
        raise ConfigError("a join has no limit: call .limit(...) on its result, or give keys")
    sides = []
    alone = how in _LEFT_ALONE
    for name, some in ((left, columns), (right, key if alone else right_columns)):
        wanted = [*key, *(column for column in some if column not in key)] if some else []
        options_of = parse_options(name, address, wanted, {**options, "cut": cut})
        sides.append((options_of, known_columns(options_of)))
    (left_options, left_known), (right_options, right_known) = sides
    _check_keys(left_known, right_known, key)
    joined = _joined_columns(left_known.struct, right_known.struct, key, how, right_suffix)
    shares = plan_shares(left_options, left_known, also=[right], tasks=_tasks(spark))
    schema = arrow_schema(joined)

    def work(share: Share) -> Iterator[pa.RecordBatch]:
        with (
            left_options.client(share.addresses) as one,
            right_options.client(share.addresses) as other,
            advised(left_options),
        ):
            lefts = _Side(one, left_options, left_known, share, key)
            rights = _Side(other, right_options, right_known, share, key)
            yield from _join(lefts, rights, key, how, right_suffix, schema)

    return jobs.plan(spark, shares, work, ddl(joined))


def _check_keys(left: Reading, right: Reading, key: list[str]) -> None:
    instead = "; Spark joins such maps: table(...).join(table(...), ...)"
    for known in (left, right):
        if known.wrote is None:
            raise ConfigError(
                f"the map {known.layout.map!r} was not written through Spark, so it is unknown whether its keys are "
                f"{', '.join(key)}{instead}"
            )
        if list(known.layout.key) != key:
            raise ConfigError(
                f"the key of map {known.layout.map!r} is {', '.join(known.layout.key)}, not {', '.join(key)}{instead}"
            )
    for name in key:
        one, other = left.struct[name].dataType, right.struct[name].dataType
        if one != other:
            raise ConfigError(
                f"the key column {name!r} is {one.simpleString()} in map {left.layout.map!r} and "
                f"{other.simpleString()} in map {right.layout.map!r}{instead}"
            )


def _joined_columns(left: StructType, right: StructType, key: list[str], how: str, suffix: str) -> StructType:
    joined = StructType([*left.fields])
    if how not in _LEFT_ALONE:
        for field in right.fields:
            if field.name not in key:
                name = field.name + suffix if field.name in left.names else field.name
                joined.add(name, field.dataType)
    for field in joined.fields:
        if field.name not in key and isinstance(field.dataType, ArrayType | MapType | StructType):
            raise ConfigError(
                f"the column {field.name!r} is {field.dataType.simpleString()}, which cannot be joined so: leave it "
                "out (columns, right_columns), or join with Spark: table(...).join(table(...), ...)"
            )
    if len(set(joined.names)) != len(joined.names):
        raise ConfigError(
            f"two columns of the join have one name: {', '.join(joined.names)}; give another right_suffix"
        )
    return joined


class _Side:
    def __init__(
        self, client: Client, options: Options, known: Reading, share: Share, key: list[str]
    ) -> None:
        self._layout = known.layout
        self._key = key
        self._maker = BatchMaker(arrow_schema(known.struct), known.layout, CompactSchemas(client))
        schema = arrow_schema(StructType([known.struct[name] for name in key]))
        self._keys = EntryMaker(schema, key, "json")
        self._keep = Keeper(client, share.cut)
        wanted = Wanted(
            options.map,
            fields=known.fields if self._maker.needs_values else (),
            keys=share.keys,
            cut=share.cut,
            spread=options.read.spread,
        )
        self._pages = read_ahead(client, wanted, share.partitions)

    def partitions(self) -> Iterator[list[tuple[int, own.ColumnBatch]]]:
        for partition, pages in self._pages:
            self._keep()
            yield [(partition, page) for page in pages]

    def rows(self, pages: list[tuple[int, own.ColumnBatch]]) -> pa.Table:
        """Raises BadRow for an entry whose key does not match its key columns."""
        batch, found = self._maker.rows(pages)
        made = self._keys.entries(batch.select(self._key))[0]
        same = pc.equal(pa.array(made, pa.binary()), found)
        if not pc.all(same, min_count=0).as_py():
            at = same.to_pylist().index(False)
            raise BadRow(
                f"the entry with key {key_text(found[at].as_py())} of map {self._layout.map!r} has other key columns: "
                f"{batch.select(self._key).slice(at, 1).to_pylist()[0]}. It may belong to rows in other partitions; "
                "join with Spark instead: table(...).join(table(...))"
            )
        return pa.Table.from_batches([batch])


def _join(
    left: _Side, right: _Side, key: list[str], how: str, suffix: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    mine: list[tuple[int, own.ColumnBatch]] = []
    theirs: list[tuple[int, own.ColumnBatch]] = []
    rows = 0

    def joined() -> Iterator[pa.RecordBatch]:
        found = left.rows(mine).join(
            right.rows(theirs), key, join_type=_ACERO[how], right_suffix=suffix, use_threads=False
        )
        yield from found.select(schema.names).cast(schema).to_batches()

    for one, other in zip(left.partitions(), right.partitions(), strict=True):
        mine += one
        theirs += other
        rows += sum(page.rows for _, page in (*one, *other))
        if rows >= JOINED_ROWS:
            yield from joined()
            mine, theirs, rows = [], [], 0
    if rows:
        yield from joined()
