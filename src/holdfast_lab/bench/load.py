"""Runs the load generator as a separate process on its own core, over connections that are opened here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Sample:
    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    max_us: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def generator_busy(self) -> float:
        """The generator's share of its core; near 1, the generator is the limit."""
        return self.cpu_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of requests and responses: all requests of a run, and all its responses, have the same size."""

    request_bytes: int
    answer_bytes: int
    answer_prefix: bytes


@dataclass(frozen=True, slots=True)
class Target:
    frames: Path
    connections: list[socket.socket]


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores of the servers and of the generator; equal if the machine has only one."""

    server: int
    generator: int


@cache
def cores() -> Cores:
    """The first two cores that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(allowed[0], allowed[min(1, len(allowed) - 1)])


def core_seconds(core: int) -> float:
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen, *_ = map(int, ticks)
            return (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")
    return 0.0


@cache
def generator_command(build_dir: Path) -> tuple[str, ...]:
    """The generator compiled with the machine's C compiler, or else the one in Python."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler:
        build_dir.mkdir(parents=True, exist_ok=True)
        program = build_dir / "generator"
        built = subprocess.run([compiler, "-O2", "-o", str(program), str(HERE / "generator.c")], check=False)
        if built.returncode == 0:
            return (str(program.resolve()),)
    return (sys.executable, str(HERE / "generator.py"))


def generate(
    command: tuple[str, ...],
    targets: list[Target],
    shape: Shape,
    *,
    depth: int,
    seconds: float = 0.0,
    count: int = 0,
) -> Sample:
    """With `depth` in flight per connection."""
    numbers = (seconds, count, depth, shape.request_bytes, shape.answer_bytes)
    arguments = [*command, *map(str, numbers), shape.answer_prefix.hex()]
    fds: list[int] = []
    for target in targets:
        open_here = [connection.fileno() for connection in target.connections]
        arguments += [str(target.frames), ",".join(map(str, open_here))]
        fds += open_here
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores().generator})
    try:
        done = subprocess.run(arguments, pass_fds=fds, capture_output=True, text=True, check=False)
    finally:
        os.sched_setaffinity(0, before)
    if done.returncode != 0:
        raise RuntimeError(f"the load generator failed: {done.stderr.strip() or done.stdout.strip()}")
    return Sample(**json.loads(done.stdout))
