"""Entries with a time to live: their memory, their cost in the lane, and the longest pause of an expiry sweep.

    python -m holdfast_lab.bench.endings [--entries 200000]

In process, with a real lane of 271 partitions without backups; each line in a separate process. Memory is the
growth of the resident set. Times are processor times, in buffers of 32 requests. A turn of the sweep is that of
a member (`Serving.sweep`), when all entries expire at about the same time.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import time
from pathlib import Path

import click

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.routing.serving import SWEEP_LIMIT
from holdfast.runtime.data_lane import data_lane
from holdfast_lab.bench import frames
from holdfast_lab.bench.lane import PARTITIONS, Primary

FORMS = {"no end": (0, 0), "a time to live": (60_000, 0), "and a maximum idle time": (60_000, 60_000)}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def measure(kind: str, times: tuple[int, int], entries: int) -> list[float]:
    """Bytes per entry, nanoseconds of a set and of a get, milliseconds of the longest turn and of the mean one."""
    primary = Primary(data_lane("python" if kind == "python" else "auto"), backups=0)
    lane = primary.lane
    lane.leading[:] = lane.serving
    lane._out.now_ns = 1
    lane._defaults[frames.MAP] = times
    value = frames.data("v" * frames.VALUE_BYTES)
    sets, gets = [], []
    for begin in range(0, entries, 32):
        some = []
        for number in range(begin, min(begin + 32, entries)):
            key = frames.data(frames.key_text(number))
            some.append((key, frames.partition_of(key, PARTITIONS)))
        sets.append(b"".join(frames.set_message(key, value, partition) for key, partition in some))
        gets.append(b"".join(frames.get_message(key, partition) for key, partition in some))
    gc.collect()
    gc.disable()
    before = resident()
    primary.run(sets)
    taken = resident() - before
    spent = []
    for buffers in (sets, gets):
        began = time.process_time()
        for buffer in buffers:
            lane._out.now_ns += 1000
            primary.run([buffer])
        spent.append(1e9 * (time.process_time() - began) / entries)
    lane._out.now_ns += 120_000 * MILLISECOND
    turns = []
    more = True
    while more and any(times):
        began = time.process_time()
        more = lane.sweep(SWEEP_LIMIT)
        turns.append(1000 * (time.process_time() - began))
        lane.batches.unsent.clear()
    left = sum(len(held.state.entries) for copy in lane.serving if copy for held in copy.maps.values())
    assert left == (0 if any(times) else entries), "what has ended is gone"
    return [
        taken / entries,
        *spent,
        max(turns, default=0),
        sum(turns) / max(1, len(turns)),
    ]


@click.command()
@click.option("--entries", default=200_000, show_default=True)
def main(entries: int) -> None:
    """Measure entries with a time to live."""
    click.echo(
        "| entries have | way | bytes an entry | set, ns | get, ns | longest turn, ms | mean turn, ms |"
    )
    click.echo("|---|---|---:|---:|---:|---:|---:|")
    for title, times in FORMS.items():
        for kind in ("python", "compiled"):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                told = pool.apply(measure, (kind, times, entries))
            figures = " | ".join(f"{one:.0f}" if one >= 100 else f"{one:.1f}" for one in told)
            click.echo(f"| {title} | {kind} | {figures} |")


if __name__ == "__main__":
    main()
