"""The PySpark data source `holdfast`: a map of the grid as a DataFrame.

    spark.read.format("holdfast").option("address", "127.0.0.1:5701").load("flights")
    frame.write.format("holdfast").option("address", ...).option("key", "id").mode("append").save("flights")

What the options mean is in `options`; how rows become entries is in `stored`.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from holdfast.errors import ConfigError
from holdfast.spark.rows.schemas import BINARY, StoredSchema, load_schema
from holdfast.spark.source.options import Options
from holdfast.spark.source.stream_options import SinkOptions, StreamOptions, is_change_stream


class HoldfastSource(DataSource):
    """What Spark makes of `format("holdfast")`."""

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "holdfast"

    def schema(self) -> StructType:
        """The columns of the map, as they were when it was written through Spark; of a change stream: its own."""
        if is_change_stream(self.options):
            from holdfast.spark.source.stream import stream_columns

            return stream_columns(StreamOptions.parse(self.options))[0]
        options = Options.parse(self.options)
        if options.value_format == "binary":
            return BINARY
        stored = _stored(options)
        if stored is None:
            raise ConfigError(
                f"nobody has written the map {options.map!r} through Spark, so its columns are not known: "
                "give them with .schema(...), or read it with the option valueFormat=binary"
            )
        if not options.columns:
            return stored.struct
        known = {field.name: field for field in stored.struct.fields}
        for name in options.columns:
            if name not in known:
                raise ConfigError(
                    f"the map {options.map!r} has no column {name!r}; it has {', '.join(known)}"
                )
        return StructType([known[name] for name in options.columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of all entries."""
        from holdfast.spark.source.reader import HoldfastReader

        options = Options.parse(self.options)
        value_format = options.value_format
        if value_format is None:
            stored = _stored(options)
            value_format = stored.value_format if stored is not None else "json"
        return HoldfastReader(options, schema, value_format)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer. With `overwrite` the map is cleared now, before the first row is written."""
        from holdfast.spark.source.writer import HoldfastWriter

        writer = HoldfastWriter(Options.parse(self.options), schema)
        writer.prepare(overwrite=overwrite)
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The changes of the map."""
        try:
            from holdfast.spark.source.stream import HoldfastStreamReader, stream_columns
        except ImportError as old:
            raise ConfigError(f"change streams need Spark 4.2 or newer ({old})") from old

        options = StreamOptions.parse(self.options)
        return HoldfastStreamReader(options, schema, stream_columns(options)[1])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """A writer of one batch of a stream."""
        from holdfast.spark.source.sink import HoldfastStreamWriter

        if overwrite:
            raise ConfigError(
                "a stream into a map has outputMode append or update; complete would clear the map"
            )
        writer = HoldfastStreamWriter(SinkOptions.parse(self.options), schema)
        writer.prepare()
        return writer


def _stored(options: Options) -> StoredSchema | None:
    with options.client() as client:
        return load_schema(client, options.map)
