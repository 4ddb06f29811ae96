"""Members with small differences, alternating: the additional processor time per request.

Two processes of the same program differ by more than the effect to measure, as their memory is laid out differently.
Therefore the members are restarted several times, and a second member of the first kind shows the remaining noise. The
report has the medians of the rate, of the processor time per request, and of its ratio to the first member in the same
round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

import click

from holdfast_lab.bench import frames
from holdfast_lab.bench.load import generate, generator_command
from holdfast_lab.bench.run import shape_of
from holdfast_lab.bench.systems import System

BATCH = 100_000
CASES = (("get", 1), ("get", 32), ("set", 1), ("set", 32))

Found = dict[tuple[str, str, int], list[tuple[float, float]]]
"""Requests per second and microseconds of processor time each, for every round, by member, kind and depth."""


def compare(
    running: Callable[[], AbstractContextManager[dict[str, System]]],
    lives: int,
    rounds: int,
    seconds: float,
    only_read: tuple[str, ...] = (),
) -> Found:
    """`only_read`: members that may not write."""
    found: Found = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        for _ in range(lives):
            with running() as compared:
                _measure(compared, Path(name), rounds, seconds, only_read, found)
    return found


def _measure(
    compared: dict[str, System],
    folder: Path,
    rounds: int,
    seconds: float,
    only_read: tuple[str, ...],
    found: Found,
) -> None:
    command, numbers = generator_command(folder / "build"), frames.shuffled(BATCH)
    writing = [name for name in compared if name not in only_read]
    for name in writing:
        _play(compared[name], command, numbers, folder, "set", 1, count=BATCH)
    for turn in range(-1, rounds):
        for kind, depth in CASES:
            names = list(compared) if kind == "get" else writing
            # The first member alternates: the speed of the machine drifts over more than a turn.
            for name in names if turn % 2 else reversed(names):
                told = _play(compared[name], command, numbers, folder, kind, depth, seconds=seconds)
                if turn >= 0:
                    found.setdefault((name, kind, depth), []).append(told)


def _play(
    system: System,
    command: tuple[str, ...],
    numbers: list[int],
    folder: Path,
    kind: str,
    depth: int,
    *,
    seconds: float = 0.0,
    count: int = 0,
) -> tuple[float, float]:
    files = system.write_frames(kind, numbers, folder)
    cpu = system.cpu_seconds()
    with system.targets(files) as targets:
        sample = generate(command, targets, shape_of(kind, system), depth=depth, seconds=seconds, count=count)
    return sample.per_second, (system.cpu_seconds() - cpu) / sample.requests * 1e6


def tell(found: Found, names: tuple[str, ...], load: float, lives: int, rounds: int, seconds: float) -> None:
    """The first member is the reference. `load`: of the machine, before."""
    click.echo(
        f"load of the machine before: {load:.1f}; medians of {lives} lives, {rounds} rounds of {seconds:g} s, in turns"
    )
    for kind, depth in CASES:
        base = [cpu for _, cpu in found[names[0], kind, depth]]
        for name in names:
            told = found.get((name, kind, depth))
            if told is not None:
                more = median(cpu / other for (_, cpu), other in zip(told, base, strict=True)) - 1
                cpu, rate = median(cpu for _, cpu in told), median(rate for rate, _ in told)
                title = f"{kind}, {depth} in flight, {name}"
                click.echo(f"{title:48} {rate:10,.0f} /s {cpu:8.2f} us  {100 * more:+6.1f} %")
