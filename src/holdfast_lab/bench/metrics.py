"""The cost of metrics and the slow operation log on the data lane: a default member against one without, alternating.

    python -m holdfast_lab.bench.metrics [--lives 6] [--rounds 6] [--seconds 0.5]

One member each, on the servers' core, by `holdfast_lab.bench.lives`: two that count nothing
(`holdfast_lab.bench.unmeasured`), without slow operation log and HTTP port, and one with default settings,
whose metrics are read every second.
"""

from __future__ import annotations

import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from holdfast_lab.bench import systems
from holdfast_lab.bench.lives import compare, tell
from holdfast_lab.bench.systems import System
from holdfast_lab.processes.local_cluster import LocalCluster

WITHOUT = "[log]\nslow_operation_ms = 0\n[http]\nenabled = false\n"
OFF, AGAIN, ON = "without", "another without", "with metrics and slow log"
READ_EACH_S = 1.0


class Unmeasured(LocalCluster):
    def program(self, name: str) -> list[str]:
        return [sys.executable, "-m", "holdfast_lab.bench.unmeasured"]


@contextmanager
def running() -> Iterator[dict[str, System]]:
    with ExitStack() as stack:
        off = stack.enter_context(systems.holdfast(1, 0, name=OFF, more=WITHOUT, kind=Unmeasured))
        again = stack.enter_context(systems.holdfast(1, 0, name=AGAIN, more=WITHOUT, kind=Unmeasured))
        on = stack.enter_context(systems.holdfast(1, 0, name=ON, more="[http]\nport = 0\n"))
        stack.enter_context(_read(on))
        yield {OFF: off, AGAIN: again, ON: on}


@contextmanager
def _read(system: System) -> Iterator[None]:
    page = f"http://{system.http}/metrics"
    over = threading.Event()

    def read() -> None:
        while not over.wait(READ_EACH_S):
            with urllib.request.urlopen(page, timeout=10) as answer:
                assert b"holdfast_ready 1" in answer.read(), "these are its metrics"

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()


@click.command()
@click.option("--lives", default=6, show_default=True, help="How often the members are started.")
@click.option("--rounds", default=6, show_default=True, help="Of each life.")
@click.option("--seconds", default=0.5, show_default=True, help="Of each round of each case.")
def main(lives: int, rounds: int, seconds: float) -> None:
    """Measure the cost of metrics and the slow operation log."""
    load = os.getloadavg()[0]
    tell(compare(running, lives, rounds, seconds), (OFF, AGAIN, ON), load, lives, rounds, seconds)


if __name__ == "__main__":
    main()
