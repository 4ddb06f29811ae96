"""The data lane alone: nanoseconds per operation of `serve_entries`, in process, plain and compiled.

    python -m holdfast_lab.bench.lane [--rounds 15]

Buffers as clients send them, of one message and of 32, with a backup (each write makes a record) and without. The two
implementations alternate in each round; the report has the medians and their ratio. Closing a batch is not timed.
"""

from __future__ import annotations

import gc
import time
from statistics import median

import click

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.journal.log import Log
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.runtime.data_lane import DataLane, data_lane
from holdfast.server.hazelcast.reference_lane import Served
from holdfast_lab.bench import frames

ME, BEN = MemberId("me"), MemberId("ben")
PARTITIONS = 271
ENTRIES = 20_000
OPERATIONS = 32 * 300
"""Per round and implementation."""


class Primary:
    def __init__(self, way: DataLane, *, backups: int) -> None:
        self.way = way
        settings = Settings(
            partitions=PartitionSettings(count=PARTITIONS), maps={"default": MapSettings(backups=backups)}
        )
        out = Outbox()
        self.lane = Lane(ME, settings, out, Log(out, on=False))
        holders = (ME, BEN) if backups else (ME,)
        self.lane.attach([Assignment(1, holders)] * PARTITIONS)
        self.lane.serving[:] = [
            PartitionCopy(partition, 0, entries=way.ways.entries) for partition in range(PARTITIONS)
        ]

    def run(self, buffers: list[bytes], served: Served = frames.MAP) -> float:
        code, lane, names = self.way.code, self.lane, {frames.MAP.encode(): served}
        out, unsealed = bytearray(), bytearray()
        sink = code.PrimarySink(lane, out, unsealed)
        longest = (1 << 20, 1 << 20)
        spent = 0
        clock = time.perf_counter_ns
        for buffer in buffers:
            out.clear()
            unsealed.clear()
            began = clock()
            end = code.serve_entries(buffer, 0, sink, names, longest, 1 << 30)
            spent += clock() - began
            assert end == len(buffer), "all of it is for the lane"
            assert len(out) + len(unsealed), "and is answered"
            lane.open_records.clear()
            for held in lane.open_puts:
                assert held.unsent is not None
                held.unsent.take(held, 0)
                held.unsent.opened = False
            lane.open_puts.clear()
        return spent


def buffers_of(kind: str, depth: int) -> list[bytes]:
    value = frames.data("v" * frames.VALUE_BYTES)
    messages = []
    for number in frames.shuffled(ENTRIES)[:OPERATIONS]:
        key = frames.data(frames.key_text(number))
        partition = frames.partition_of(key, PARTITIONS)
        messages.append(
            frames.set_message(key, value, partition) if kind == "set" else frames.get_message(key, partition)
        )
    return [b"".join(messages[at : at + depth]) for at in range(0, len(messages), depth)]


@click.command()
@click.option("--rounds", default=15, show_default=True)
def main(rounds: int) -> None:
    """Measure the data lane alone."""
    ways = [data_lane("python"), data_lane()]
    if ways[1].kind == "python":
        del ways[1]
        click.echo(f"only plain Python is measured: {data_lane().why}")
    click.echo(f"{'':34}" + "".join(f"{way.kind:>12}" for way in ways) + "  ns an operation, medians")
    gc.disable()
    for backups in (0, 1):
        primaries = [Primary(way, backups=backups) for way in ways]
        for depth in (1, 32):
            for kind in ("set", "get"):
                buffers = buffers_of(kind, depth)
                for primary in primaries:
                    primary.run(buffers)
                told = [[primary.run(buffers) / OPERATIONS for primary in primaries] for _ in range(rounds)]
                found = [median(column) for column in zip(*told, strict=True)]
                title = f"{kind}, {depth} in a buffer, backups: {backups}"
                ratio = f"  {found[0] / found[1]:.2f} x" if len(found) > 1 else ""
                click.echo(f"{title:34}" + "".join(f"{one:12.0f}" for one in found) + ratio)


if __name__ == "__main__":
    main()
