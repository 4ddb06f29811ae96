"""The limit of this machine for two servers that replicate each other's stores, compared with three systems.

    python -m holdfast_lab.bench.limit [--rounds 5]

Two servers in C (`src/holdfast_lab/bench/limit.c`) only copy stores, send them to each other, and respond: a
system with backups does at least as much. All processes of a system share one core, and the generator has
another; 50 connections, as in `python -m holdfast_lab.bench`.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import click

from holdfast_lab.bench import frames, systems
from holdfast_lab.bench.lives import BATCH
from holdfast_lab.bench.load import HERE, generate, generator_command
from holdfast_lab.bench.run import shape_of
from holdfast_lab.bench.systems import System
from holdfast_lab.processes.local_cluster import HOST, free_ports

SHAPES = (1, 32)
OLD_S = 35.0
"""Age from which a member keeps digests."""


@contextmanager
def in_c(folder: Path) -> Iterator[System]:
    program = folder / "limit"
    subprocess.run(
        [shutil.which("cc") or "gcc", "-O2", "-o", str(program), str(HERE / "limit.c")], check=True
    )
    doors, links = free_ports(2), free_ports(2)
    with ExitStack() as stack:
        pids: list[int] = []
        for mine, other in ((0, 1), (1, 0)):
            numbers = (doors[mine], links[mine], links[other], frames.redis_shape("set").request_bytes)
            with systems.server_core():
                process = subprocess.Popen([str(program), *map(str, numbers)])
            stack.callback(systems.end, process)
            pids.append(process.pid)
        time.sleep(0.5)
        yield System("two servers in C", pids, [(HOST, door) for door in doors], [], is_redis=True)


def play(
    system: System, command: tuple[str, ...], folder: Path, depth: int, seconds: float
) -> tuple[float, float]:
    kind = "set+wait" if system.waits else "set"
    files = system.write_frames(kind, frames.shuffled(BATCH), folder)
    if system.is_redis:
        files = files * len(system.addresses)
    cpu = system.cpu_seconds()
    with system.targets(files) as targets:
        sample = generate(command, targets, shape_of(kind, system), depth=depth, seconds=seconds)
    return sample.per_second, (system.cpu_seconds() - cpu) / sample.requests * 1e6


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--seconds", default=2.0, show_default=True)
def main(rounds: int, seconds: float) -> None:
    """Measure all systems, alternating, and print medians."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        command = generator_command(folder)
        compared = [stack.enter_context(in_c(folder)), stack.enter_context(systems.holdfast(2, 1))]
        if systems.redis_program():
            compared.append(stack.enter_context(systems.redis(replicas=1, name="Redis + WAIT 1")))
        if not systems.hazelcast_problem():
            compared.append(stack.enter_context(systems.hazelcast("2g", members=2, backups=1)))
        found: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for system in compared:
            play(system, command, folder, 32, max(seconds, 2 * system.warm_up_s))
        time.sleep(OLD_S)
        for turn in range(rounds):
            for depth in SHAPES:
                for system in compared if turn % 2 else reversed(compared):
                    told = play(system, command, folder, depth, seconds)
                    found.setdefault((depth, system.name), []).append(told)
    for depth in SHAPES:
        click.echo(f"set with a sync backup, {depth} in flight: a second, and processor time of each")
        for system in compared:
            rate, cpu = (median(column) for column in zip(*found[depth, system.name], strict=True))
            click.echo(f"  {system.name:18}{rate:10,.0f}  {cpu:6.1f} us")


if __name__ == "__main__":
    main()
