"""Columns of maps that Spark wrote, stored in the grid itself, so that reads need no schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from holdfast.client.blocking import Client
from holdfast.errors import ConfigError
from holdfast.spark.rows.stored import json_data, string_data

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SCHEMAS_MAP = "__schemas.spark"
"""`StoredSchema` as JSON, by map name."""


class StoredSchema(msgspec.Struct, frozen=True, rename={"value_format": "format"}):
    schema: dict[str, Any]
    """In Spark's JSON form."""
    key: list[str]
    value_format: str
    version: int = 1
    type_name: str = ""

    @classmethod
    def of(cls, schema: StructType, key: list[str], value_format: str, type_name: str = "") -> StoredSchema:
        """All columns become nullable, because other clients write to the map too."""
        return cls(json.loads(nullable(schema).json()), key, value_format, type_name=type_name)

    @property
    def struct(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(self.schema)


def nullable(schema: StructType) -> StructType:
    from pyspark.sql.types import StructType

    loose = StructType()
    for field in schema.fields:
        loose.add(field.name, field.dataType, nullable=True)
    return loose


def arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def load_schema(client: Client, map_name: str) -> StoredSchema | None:
    found = client.get(SCHEMAS_MAP, string_data(map_name))
    if found is None:
        return None
    try:
        return msgspec.json.decode(found[8:], type=StoredSchema)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as broken:
        raise ConfigError(
            f"the entry of map {map_name!r} in {SCHEMAS_MAP!r} is damaged ({broken}); "
            "write the map again with mode 'overwrite', or read it with .schema(...) and the option valueFormat"
        ) from broken


def store_schema(client: Client, map_name: str, schema: StoredSchema) -> None:
    client.set(SCHEMAS_MAP, string_data(map_name), json_data(msgspec.json.encode(schema)), ttl_ms=0)
