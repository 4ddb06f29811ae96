"""An open-loop client, which sends at fixed moments, whether or not earlier responses have arrived: `python -m
holdfast_lab.bench.paced RATE ADDRESS…`.

Half of its operations are writes. It runs until its standard input ends, and then prints one line of JSON: for
each operation its due time in seconds of the epoch, and the milliseconds from then to the response.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.aio import Client

ROOT = Path(__file__).parents[3]
MAP = "paced"
KEYS = 5000
VALUE = "v" * 100

Answered = tuple[float, float]
"""Due time, and delay of the response."""


async def play(rate: float, addresses: list[str]) -> list[Answered]:
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    found: list[Answered] = []
    under_way: set[asyncio.Task[None]] = set()
    async with Client(addresses) as client:
        entries = client.map(MAP)
        await entries.put_all((f"k{key}", VALUE) for key in range(KEYS))
        print("playing", flush=True)
        begun_s, epoch_s = loop.time(), time.time() - loop.time()

        async def ask(number: int, due_s: float) -> None:
            key = f"k{number * 7919 % KEYS}"
            await (entries.set(key, VALUE) if number % 2 else entries.get(key))
            found.append((epoch_s + due_s, (loop.time() - due_s) * 1000))

        number = 0
        while not ended.done():
            due_s = begun_s + number / rate
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            task = asyncio.create_task(ask(number, due_s))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            number += 1
        await asyncio.gather(*under_way)
    return found


@dataclass(slots=True)
class Paced:
    """The client as a process."""

    rate: float
    addresses: list[str]
    process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "holdfast_lab.bench.paced", str(self.rate), *self.addresses]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "playing\n":
            raise RuntimeError("the paced client did not begin")
        return self

    def end(self) -> list[Answered]:
        assert self.process is not None
        told, _ = self.process.communicate(timeout=60)
        return [(due, late) for due, late in json.loads(told)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(play(float(sys.argv[1]), sys.argv[2:]))))
