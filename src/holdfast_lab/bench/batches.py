"""The path of a batch in process: nanoseconds per operation from the read buffer to the backup's acknowledgement, stage
by stage, with a real lane, real messages and a real backup.

    python -m holdfast_lab.bench.batches [--rounds 15]

Sockets, links and the event loop are left out. A turn brings as many buffers as members find at once when 50
connections have one request in flight, or 32.
"""

from __future__ import annotations

import gc
import time
from statistics import median

import click

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Message, Replicate, Replicated
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.runtime.data_lane import DataLane, data_lane
from holdfast.server.hazelcast.reference_lane import Served
from holdfast.wire.codec import decode, encode
from holdfast_lab.bench import frames
from holdfast_lab.bench.lane import BEN, ME, PARTITIONS, buffers_of

STAGES = (
    "serve",
    "close",
    "flush",
    "encode",
    "decode",
    "take",
    "encode answer",
    "decode answer",
    "acknowledged",
)
SHAPES = ((1, 12), (32, 16))
"""Requests per buffer, and buffers per turn."""


class Pair:
    """A primary of all partitions with its backup."""

    def __init__(self, way: DataLane) -> None:
        self.way = way
        settings = Settings(
            partitions=PartitionSettings(count=PARTITIONS), maps={"default": MapSettings(backups=1)}
        )
        self.out, self.backup_out = Outbox(), Outbox()
        self.lane = Lane(ME, settings, self.out, Log(self.out, on=False), puts=way.ways.puts)
        rows = [Assignment(1, (ME, BEN))] * PARTITIONS
        self.lane.attach(rows)
        self.lane.serving[:] = [
            PartitionCopy(partition, 0, entries=way.ways.entries) for partition in range(PARTITIONS)
        ]
        self.copies = LocalReplicas(
            BEN,
            settings,
            self.backup_out,
            rows,
            Log(self.backup_out, on=False),
            entries=way.ways.entries,
            puts=way.ways.puts,
        )
        for partition in range(PARTITIONS):
            self.copies.held[partition] = PartitionCopy(partition, 0, entries=way.ways.entries)
        self.spent = dict.fromkeys(STAGES, 0)
        self.done = 0

    def turn(self, buffers: list[bytes]) -> None:
        clock, spent, lane = time.perf_counter_ns, self.spent, self.lane
        serve, names = self.way.code.serve_entries, dict[bytes, Served]({frames.MAP.encode(): frames.MAP})
        longest = (1 << 20, 1 << 20)
        at = clock()

        def stage(name: str) -> None:
            nonlocal at
            now = clock()
            spent[name] += now - at
            at = clock()

        for buffer in buffers:
            sink = self.way.code.PrimarySink(lane, bytearray(), bytearray())
            serve(buffer, 0, sink, names, longest, 1 << 30)
            stage("serve")
            lane.close_batch(self._done)
            stage("close")
        lane.flush()
        stage("flush")
        (message,) = self._sent(self.out)
        at = clock()
        data = encode(message)
        stage("encode")
        come = decode(data, PARTITIONS)
        stage("decode")
        assert isinstance(come, Replicate)
        self.copies.on_replicate(ME, come)
        stage("take")
        (answer,) = self._sent(self.backup_out)
        at = clock()
        data = encode(answer)
        stage("encode answer")
        back = decode(data, PARTITIONS)
        stage("decode answer")
        assert isinstance(back, Replicated)
        lane.on_replicated(BEN, back)
        stage("acknowledged")

    def _done(self, known: bool) -> None:
        assert known
        self.done += 1

    @staticmethod
    def _sent(out: Outbox) -> list[Message]:
        effects, out.effects = out.effects, []
        return [effect.message for effect in effects if isinstance(effect, Send)]

    def run(self, buffers: list[bytes], together: int) -> dict[str, int]:
        """Nanoseconds of each stage for all buffers, with `together` buffers per turn."""
        self.spent = dict.fromkeys(STAGES, 0)
        done = self.done
        for at in range(0, len(buffers), together):
            self.turn(buffers[at : at + together])
        assert self.done == done + len(buffers), "all are answered"
        return self.spent


@click.command()
@click.option("--rounds", default=15, show_default=True)
def main(rounds: int) -> None:
    """Measure the path of a batch."""
    ways = [data_lane("python"), data_lane()]
    if ways[1].kind == "python":
        del ways[1]
        click.echo(f"only plain Python is measured: {data_lane().why}")
    gc.disable()
    for depth, together in SHAPES:
        buffers = buffers_of("set", depth)
        operations = len(buffers) * depth
        told: list[list[float]] = []
        for way in ways:
            pair = Pair(way)
            pair.run(buffers, together)
            rows = [pair.run(buffers, together) for _ in range(rounds)]
            told.append([median(row[stage] for row in rows) / operations for stage in STAGES])
        click.echo(f"{depth} in a buffer, {together} buffers in a turn: ns an operation, medians")
        for stage, figures in zip(STAGES, zip(*told, strict=True), strict=True):
            click.echo(f"  {stage:16}" + "".join(f"{one:10.0f}" for one in figures))
        click.echo(f"  {'all':16}" + "".join(f"{sum(column):10.0f}" for column in told))


if __name__ == "__main__":
    main()
