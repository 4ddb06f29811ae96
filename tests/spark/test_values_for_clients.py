"""What is written as plain values and as Compact rows is read by the official client, and the other way round."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
hazelcast = pytest.importorskip("hazelcast")

from hazelcast.serialization.api import CompactReader, CompactSerializer, CompactWriter  # noqa: E402

from holdfast.client.blocking import Client  # noqa: E402
from holdfast.spark.rows.compact import CompactDecoder  # noqa: E402
from holdfast.spark.rows.primitive import primitive_column  # noqa: E402
from holdfast.spark.source.options import Options  # noqa: E402
from holdfast.spark.source.writer import HoldfastWriter, Work, write_rows  # noqa: E402
from holdfast.wire.hazelcast.compact_schemas import SCHEMAS_MAP, schema_key, schema_of_entry  # noqa: E402
from holdfast_lab.processes.local_cluster import LocalCluster  # noqa: E402

pytestmark = pytest.mark.interop

FIELDS = {
    "flag": ("boolean", pa.bool_()),
    "small": ("int8", pa.int8()),
    "short": ("int16", pa.int16()),
    "number": ("int32", pa.int32()),
    "long": ("int64", pa.int64()),
    "single": ("float32", pa.float32()),
    "double": ("float64", pa.float64()),
}
OTHERS = {
    "text": ("string", pa.string()),
    "exact": ("decimal", pa.decimal128(20, 3)),
    "day": ("date", pa.date32()),
    "at": ("timestamp", pa.timestamp("us")),
    "zoned": ("timestamp_with_timezone", pa.timestamp("us", "UTC")),
    "raw": ("array_of_int8", pa.binary()),
    "flags": ("array_of_boolean", pa.list_(pa.bool_())),
    "numbers": ("array_of_int32", pa.list_(pa.int32())),
    "longs": ("array_of_int64", pa.list_(pa.int64())),
    "doubles": ("array_of_float64", pa.list_(pa.float64())),
}
MOMENT = dt.datetime(2013, 12, 31, 23, 59, 58, 999_999)  # noqa: DTZ001 - it has no zone


class Thing:
    """An object of the client's side."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields


class Things(CompactSerializer[Thing]):
    """As an application writes it: a field at a time."""

    def __init__(self, *, nullable: bool) -> None:
        self._nullable = nullable

    def _methods(self) -> Iterator[tuple[str, str]]:
        for name, (method, _) in FIELDS.items():
            yield name, f"nullable_{method}" if self._nullable else method
        for name, (method, _) in OTHERS.items():
            yield name, method

    def read(self, reader: CompactReader) -> Thing:
        return Thing({name: getattr(reader, f"read_{method}")(name) for name, method in self._methods()})

    def write(self, writer: CompactWriter, thing: Thing) -> None:
        for name, method in self._methods():
            getattr(writer, f"write_{method}")(name, thing.fields[name])

    def get_type_name(self) -> str:
        return "thing"

    def get_class(self) -> type[Thing]:
        return Thing


def full(number: int) -> dict[str, Any]:
    return {
        "flag": number % 2 == 0,
        "small": -number,
        "short": number * 300,
        "number": number * 70_000,
        "long": -number * 2**40,
        "single": number / 4,
        "double": number / 7,
        "text": "é" * number * 100,
        "exact": decimal.Decimal(f"-{number}.125"),
        "day": dt.date(1969, 12, 31 - number),
        "at": MOMENT,
        "zoned": MOMENT.replace(tzinfo=dt.UTC),
        "raw": bytes([number, 255]),
        "flags": [True, False] * number * 3,
        "numbers": [number, -number],
        "longs": [],
        "doubles": [number / 3],
    }


ROWS = [full(number) for number in range(1, 8)]
EMPTY = dict.fromkeys(ROWS[0])


@pytest.fixture(scope="module")
def members() -> Iterator[LocalCluster]:
    with LocalCluster(2) as running:
        running.wait_settled()
        yield running


def client(members: LocalCluster, *, nullable: bool = True) -> Any:
    return hazelcast.HazelcastClient(
        cluster_members=members.client_addresses(), compact_serializers=[Things(nullable=nullable)]
    )


def write(members: LocalCluster, name: str, part: Any, value_format: str, **options: str) -> None:
    """Through the writer, with the Arrow schema as it is."""
    address = ",".join(members.client_addresses())
    parsed = Options.parse(
        {"address": address, "map": name, "key": "id", "valueFormat": value_format, **options}
    )
    from pyspark.sql.pandas.types import from_arrow_schema

    from holdfast.spark.source.writer import prepare_map

    work = Work(parsed, part.schema)
    struct = from_arrow_schema(part.schema, prefer_timestamp_ntz=True)
    HoldfastWriter(parsed, struct)
    with parsed.client() as own_client:
        prepare_map(own_client, work, struct, overwrite=False)
    assert write_rows(work, [part], 0).rows == part.num_rows


def table(rows: list[dict[str, Any]], *, nullable: bool) -> Any:
    fields = [pa.field("id", pa.int32(), nullable=nullable)]
    fields += [pa.field(name, kind, nullable=nullable) for name, (_, kind) in FIELDS.items()]
    fields += [pa.field(name, kind) for name, (_, kind) in OTHERS.items()]
    numbered = [{"id": number, **row} for number, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(numbered, schema=pa.schema(fields))


def unsigned(fields: dict[str, Any]) -> dict[str, Any]:
    """The client hands out int8 arrays as numbers below 128."""
    raw = fields["raw"]
    return {**fields, "raw": None if raw is None else bytes(number & 255 for number in raw)}


@pytest.mark.parametrize("nullable", [True, False])
def test_the_client_reads_compact_rows(members: LocalCluster, nullable: bool) -> None:
    rows = [*ROWS, EMPTY] if nullable else ROWS
    name = f"compact-{nullable}"
    write(members, name, table(rows, nullable=nullable), "compact", typeName="thing")
    asking = client(members, nullable=nullable)
    try:
        found = asking.get_map(name).blocking()
        entries = {key: unsigned(value.fields) for key, value in found.entry_set()}
    finally:
        asking.shutdown()
    assert entries == dict(enumerate(rows))


@pytest.mark.parametrize("nullable", [True, False])
def test_rows_that_the_client_wrote_are_read(members: LocalCluster, nullable: bool) -> None:
    rows = [*ROWS, EMPTY] if nullable else ROWS
    name = f"client-{nullable}"
    asking = client(members, nullable=nullable)
    try:
        target = asking.get_map(name).blocking()
        for number, row in enumerate(rows):
            raw = row["raw"]
            signed = None if raw is None else [byte - 256 if byte > 127 else byte for byte in raw]
            target.put(number, Thing({**row, "raw": signed}))
    finally:
        asking.shutdown()
    with Client(members.client_addresses()) as own_client:

        def fetch(number: int) -> Any:
            entry = own_client.get(SCHEMAS_MAP, schema_key(number))
            return None if entry is None else schema_of_entry(entry)

        decoder = CompactDecoder(fetch)
        values = [
            value
            for partition in range(own_client.partition_count)
            for page in own_client.scan(name, partition)
            for value in page.split()[1]
        ]
        found = [decoder.read(value) for value in values]
    for row in found:
        row["raw"] = row["raw"] if row["raw"] is None else bytes(byte & 255 for byte in row["raw"])
    assert sorted(found, key=lambda row: str(row["double"])) == sorted(
        rows, key=lambda row: str(row["double"])
    )


PLAIN = {
    "bool": (pa.array([True, False]), [True, False]),
    "byte": (pa.array([1, -1], pa.int8()), [1, -1]),
    "short": (pa.array([300, -1], pa.int16()), [300, -1]),
    "int": (pa.array([70_000, -1], pa.int32()), [70_000, -1]),
    "long": (pa.array([2**40, -1]), [2**40, -1]),
    "float": (pa.array([1.5, -1], pa.float32()), [1.5, -1]),
    "double": (pa.array([1.1, -1]), [1.1, -1]),
    "string": (pa.array(["é", ""]), ["é", ""]),
    "bytes": (pa.array([b"\xff", b""]), [b"\xff", b""]),
    "ints": (pa.array([[1, -2], []], pa.list_(pa.int32())), [[1, -2], []]),
    "longs": (pa.array([[1, -2], []], pa.list_(pa.int64())), [[1, -2], []]),
    "doubles": (pa.array([[1.5], []]), [[1.5], []]),
    "flags": (pa.array([[True, False], []]), [[True, False], []]),
    "texts": (pa.array([["é", "x"], []], pa.list_(pa.string())), [["é", "x"], []]),
}


def test_the_client_reads_plain_values_and_finds_them_by_key(members: LocalCluster) -> None:
    asking = client(members)
    try:
        for name, (column, expected) in PLAIN.items():
            part = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), column], names=["id", "value"])
            write(members, f"plain-{name}", part, "primitive")
            target = asking.get_map(f"plain-{name}").blocking()
            assert [target.get("a"), target.get("b")] == expected, name
    finally:
        asking.shutdown()


def test_plain_values_that_the_client_wrote_are_read(members: LocalCluster) -> None:
    asking = client(members)
    try:
        target = asking.get_map("written").blocking()
        target.put("a", "é")
    finally:
        asking.shutdown()
    with Client(members.client_addresses()) as own_client:
        values = [
            value
            for partition in range(own_client.partition_count)
            for page in own_client.scan("written", partition)
            for value in page.split()[1]
        ]
    assert primitive_column(values, pa.string()).to_pylist() == ["é"]
