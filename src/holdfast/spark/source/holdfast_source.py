"""The PySpark data source `holdfast`: a map of the grid as a DataFrame.

    spark.read.format("holdfast").option("address", "127.0.0.1:5701").load("flights")
    frame.write.format("holdfast").option("address", ...).option("key", "id").mode("append").save("flights")

Options are described in `options`, the mapping of rows to entries in `stored`.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from holdfast.client.cut_handles import Cut
from holdfast.errors import ConfigError
from holdfast.spark.source.options import Options
from holdfast.spark.source.read_plan import Reading, cut_now, known_columns, reading
from holdfast.spark.source.stream_options import SinkOptions, StreamOptions, is_change_stream

_PUSHES_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"


class HoldfastSource(DataSource):
    def __init__(self, options: dict[str, str]) -> None:
        """Spark creates one for each `load()` and pickles it; all queries on that DataFrame are planned with
        it. The cut is taken here, because a query may be planned more than once.
        """
        super().__init__(options)
        self._known: Reading | None = None
        wants_cut = any(name.lower() in ("cut", "readfrom") for name in options)
        self._cut: Cut | None = cut_now(Options.parse(options)) if wants_cut else None

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        """The columns of the map, as written by Spark or found in a sample of entries; for a change stream, its own."""
        if is_change_stream(self.options):
            from holdfast.spark.source.micro_batches import stream_columns

            return stream_columns(StreamOptions.parse(self.options))[0]
        self._known = known_columns(Options.parse(self.options))
        return self._known.struct

    def reader(self, schema: StructType) -> DataSourceReader:
        from holdfast.spark.source.reader import FilteringReader, HoldfastReader

        options = Options.parse(self.options)
        known = reading(options, schema, self._known)
        filtering = options.read.pushdown and _takes_filters()
        kind = FilteringReader if filtering else HoldfastReader
        return kind(options, known, self._cut)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from holdfast.spark.source.writer import HoldfastWriter

        writer = HoldfastWriter(Options.parse(self.options), schema)
        writer.prepare(overwrite=overwrite)
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            from holdfast.spark.source.micro_batches import HoldfastStreamReader, stream_columns
        except ImportError as old:
            raise ConfigError(f"change streams need Spark 4.2 or newer ({old})") from old

        options = StreamOptions.parse(self.options)
        return HoldfastStreamReader(options, schema, stream_columns(options)[1])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from holdfast.spark.source.sink import HoldfastStreamWriter

        if overwrite:
            raise ConfigError(
                "a stream into a map has outputMode append or update; complete would clear the map"
            )
        writer = HoldfastStreamWriter(SinkOptions.parse(self.options), schema)
        writer.prepare()
        return writer


def _takes_filters() -> bool:
    """Whether the planner that runs this passes filters.

    Spark rejects every read of a reader that accepts filters while `spark.sql.python.filterPushdown.enabled` is
    false, which is the default. Only the name of the planner's module tells which planner runs.
    """
    main: Any = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHES_FILTERS in sys.modules or getattr(main, "name", "") == _PUSHES_FILTERS
