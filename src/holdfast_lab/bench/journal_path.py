"""The path of a set with a lazy journal, in process: processor time per operation, stage by stage.

    python -m holdfast_lab.bench.journal_path [--rounds 7]

One member without backups, compiled, with a real lane, log and journal; sockets, the event loop and the system calls of
the disk are left out. The operations before a flush are those that a member finds in one turn of its event loop, and
those of 2 ms, for which it holds updates that nothing waits for (`engine.driver.HOLD_NS`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial

import click

from holdfast.config import MapSettings, PartitionSettings, PersistenceSettings, Settings
from holdfast.core.effects import Append
from holdfast.core.journal.log import Log
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.engine.journal import Journal
from holdfast.engine.ports import Deed, DeedsDone
from holdfast.runtime.data_lane import DataLane, data_lane
from holdfast.server.hazelcast.reference_lane import Served
from holdfast_lab.bench import frames
from holdfast_lab.bench.lane import ME, PARTITIONS, buffers_of

STAGES = ("serve", "lay out", "append", "make blocks")
SHAPES = ((1, 12), (1, 200), (32, 4), (32, 40))
"""Requests per buffer, and buffers per flush."""


class NoDisk:
    """A disk on which everything succeeds, and nothing is kept."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []
        self._later: list[Callable[[], None]] = []

    def names(self) -> list[str]:
        return []

    def size(self, name: str) -> int:
        raise FileNotFoundError(name)

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        raise FileNotFoundError(name)

    def submit(self, deeds: Sequence[Deed], done: DeedsDone, *, line: str = "journal") -> None:
        self._due.append(partial(done, None))

    def wall_ms(self) -> int:
        return 1

    def after(self, delay_ns: int, deed: Callable[[], None]) -> None:
        (self._later if delay_ns else self._due).append(deed)

    def close(self) -> None: ...

    def run(self) -> None:
        """Until nothing is due; then what was to come later, and so on once more."""
        for _ in range(2):
            while self._due:
                due, self._due = self._due, []
                for deed in due:
                    deed()
            self._due, self._later = self._later, []


class Journalled:
    """A primary of all partitions with a lazy journal."""

    def __init__(self, way: DataLane) -> None:
        self.way = way
        settings = Settings(
            partitions=PartitionSettings(count=PARTITIONS),
            maps={"default": MapSettings(backups=0, journal="lazy")},
            persistence=PersistenceSettings(directory="none"),
        )
        self.out = Outbox()
        self.log = Log(self.out, on=True)
        self.lane = Lane(ME, settings, self.out, self.log, puts=way.ways.puts)
        self.lane.attach([Assignment(1, (ME,))] * PARTITIONS)
        self.lane.serving[:] = [
            PartitionCopy(partition, 0, entries=way.ways.entries) for partition in range(PARTITIONS)
        ]
        self.disk = NoDisk()
        self.journal, _ = Journal.open(
            self.disk,
            settings.persistence,
            name="one",
            uuid="one",
            new_id=lambda: "store",
            now_ns=0,
            wall_ms=1,
        )
        self.journal.connect(lambda event: None, lambda error: None)
        self.disk.run()

    def run(self, buffers: list[bytes], together: int) -> list[int]:
        """Nanoseconds of each stage for all buffers, with `together` buffers per flush."""
        clock, code, lane = time.process_time_ns, self.way.code, self.lane
        names = dict[bytes, Served]({frames.MAP.encode(): frames.MAP})
        spent = [0] * len(STAGES)
        for first in range(0, len(buffers), together):
            at = [clock()]
            for buffer in buffers[first : first + together]:
                sink = code.PrimarySink(lane, bytearray(), bytearray())
                code.serve_entries(buffer, 0, sink, names, (1 << 20, 1 << 20), 1 << 30)
                assert lane.settle(), "no response waits"
            at.append(clock())
            lane.flush()
            at.append(clock())
            self.log.flush()
            effects, self.out.effects = self.out.effects, []
            for effect in effects:
                if isinstance(effect, Append):
                    self.journal.carry_out(effect)
            at.append(clock())
            self.disk.run()
            at.append(clock())
            for stage in range(len(STAGES)):
                spent[stage] += at[stage + 1] - at[stage]
        return spent


@click.command()
@click.option("--rounds", default=7, show_default=True)
def main(rounds: int) -> None:
    """Measure the path of a set with a lazy journal."""
    way = data_lane()
    if way.kind == "python":
        click.echo(f"only plain Python is measured: {way.why}")
    gc.disable()
    for depth, together in SHAPES:
        buffers = buffers_of("set", depth)
        one = Journalled(way)
        rows = [one.run(buffers, together) for _ in range(rounds)]
        least = [min(column) / len(buffers) / depth for column in zip(*rows, strict=True)]
        told = "".join(f"{name} {ns:.0f}, " for name, ns in zip(STAGES, least, strict=True))
        click.echo(f"{depth} in a buffer, {together} buffers: {told}all {sum(least):.0f} ns an operation")


if __name__ == "__main__":
    main()
