"""The baseline without Spark: a process that pulls a share of a map's partitions, or pushes a share of a Parquet file.

    python -m holdfast_lab.bench.plain pull ADDRESS MAP PART PARTS
    python -m holdfast_lab.bench.plain push ADDRESS MAP PART PARTS FILE

It uses pyarrow and the project's client. It prints `ready` once everything is imported and connected, waits for
a line on its standard input, works, and prints one line of JSON: rows and seconds.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.client.blocking import Client
from holdfast.spark.source.options import Options
from holdfast.spark.source.writer import Work, write_rows
from holdfast.wire.columns import ColumnBatch

TIMEOUT_S = 120.0


def batch_of(columns: ColumnBatch) -> pa.RecordBatch:
    """Without copying its bytes."""

    def column(offsets: bytes, data: bytes) -> pa.Array:
        return pa.Array.from_buffers(
            pa.binary(), columns.rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )

    return pa.RecordBatch.from_arrays(
        [column(columns.key_offsets, columns.keys), column(columns.value_offsets, columns.values)],
        names=["key", "value"],
    )


def pull(client: Client, name: str, part: int, parts: int) -> int:
    """Returns the number of rows."""
    rows = 0
    for partition in client.table().shares(parts)[part]:
        for page in client.scan(name, partition, rows_max=16_384, bytes_max=4 << 20):
            rows += batch_of(page).num_rows
    return rows


def push(address: str, name: str, part: int, parts: int, file: str) -> int:
    """Push every `parts`th row group of a Parquet file with the columns key and value; returns the number of rows.

    The messages are encoded by the same code as in Spark's tasks, so that only Spark makes the difference.
    """
    parquet = pq.ParquetFile(file)
    options = Options.parse(
        {"address": address, "map": name, "valueFormat": "binary", "timeout": str(TIMEOUT_S)}
    )
    batches = (
        batch
        for group in range(part, parquet.num_row_groups, parts)
        for batch in parquet.read_row_group(group).to_batches()
    )
    return write_rows(Work(options, parquet.schema_arrow), batches, part).rows


def main() -> None:
    what, address, name, part, parts, *rest = sys.argv[1:]
    with Client(address, timeout_s=TIMEOUT_S) as client:
        client.table()
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        if what == "pull":
            rows = pull(client, name, int(part), int(parts))
        else:
            rows = push(address, name, int(part), int(parts), rest[0])
        seconds = time.perf_counter() - began
    print(json.dumps({"rows": rows, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
