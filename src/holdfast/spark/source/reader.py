"""Reader of a map: a few tasks, each reading its share of the partitions directly from their owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from holdfast.client.ahead import Wanted, read_ahead
from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut
from holdfast.errors import CutLost
from holdfast.spark.rows.batch_maker import BatchMaker
from holdfast.spark.rows.column_schemas import arrow_schema
from holdfast.spark.source.keeping import Keeper
from holdfast.spark.source.options import Options
from holdfast.spark.source.overwriting import cut_before
from holdfast.spark.source.read_plan import Reading, Share, plan_shares
from holdfast.spark.source.sampling import CompactSchemas
from holdfast.spark.task import check_release, leave_garbage
from holdfast.version import __version__
from holdfast.wire import own

BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20
"""A record batch is passed to Spark at so many bytes of keys and values."""


class HoldfastReader(DataSourceReader):
    """Pickled by Spark: created on the driver, used in the tasks.

    A partition is read from its primary as it was at one moment. A partition that moves while the job runs is
    read from its new primary: no row comes twice, none is missed. With a cut, partitions are read as they were
    when the DataFrame was made, from any member that keeps the cut.
    """

    def __init__(self, options: Options, known: Reading, cut: Cut | None = None) -> None:
        self._options = options
        self._cut = cut
        self._known = known
        self._filters: list[Filter] = []
        self._release = __version__

    def partitions(self) -> Sequence[InputPartition]:
        return plan_shares(self._options, self._known, self._filters, cut=self._cut)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        check_release(self._release)
        if isinstance(partition, Share):
            yield from share_batches(self._options, self._known, partition)
        leave_garbage()


class FilteringReader(HoldfastReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - the name is Spark's
        """Remember the filters for `partitions`, and leave all of them to Spark too."""
        self._filters = list(filters)
        return self._filters


def share_batches(
    options: Options, known: Reading, share: Share, on_bad: Callable[[int], object] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one share as record batches. Raises BadRow, NotReady or CutLost.

    `on_bad`: called at the end with the number of entries that did not fit the columns.
    """
    limit = options.read.limit
    if limit == 0:
        return
    with options.client(share.addresses) as client:
        maker = BatchMaker(arrow_schema(known.struct), known.layout, CompactSchemas(client))
        wanted = Wanted(
            options.map,
            fields=known.fields if maker.needs_values else (),
            keys=share.keys,
            # With `skip`, more entries are needed than rows are wanted.
            limit=0 if options.read.bad.mode == "skip" else limit or 0,
            cut=share.cut or cut_before(client, options.map, share.overwriting, share.partitions),
            spread=options.read.spread,
        )
        with advised(options):
            yield from _batches(client, maker, wanted, share.partitions, limit)
        if on_bad is not None and maker.bad:
            on_bad(maker.bad)


@contextmanager
def advised(options: Options) -> Iterator[None]:
    try:
        yield
    except CutLost as lost:
        raise CutLost(
            f"map {options.map!r} cannot be read at its cut any more: {lost}. A cut is kept for cutLease "
            f"({options.read.lease_s:g} s) after a task has read from it: make a new DataFrame, "
            "and set a longer cutLease if it is used again so late"
        ) from lost


def _batches(
    client: Client, maker: BatchMaker, wanted: Wanted, partitions: Sequence[int], limit: int | None
) -> Iterator[pa.RecordBatch]:
    keep = Keeper(client, wanted.cut)
    rows, size = 0, 0
    left = limit
    pages: list[tuple[int, own.ColumnBatch]] = []
    for partition, found in read_ahead(client, wanted, partitions):
        keep()
        for page in found:
            pages.append((partition, page))
            rows += page.rows
            size += page.size_bytes
            full = rows >= BATCH_ROWS or size >= BATCH_BYTES
            if full or (left is not None and rows >= left):
                batch = maker.batch(pages).slice(0, left)
                yield batch
                left = None if left is None else left - batch.num_rows
                if left == 0:
                    return
                pages, rows, size = [], 0, 0
    if pages:
        yield maker.batch(pages).slice(0, left)
