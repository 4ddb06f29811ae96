"""A client whose every write is noted, for the judge of durability: the official one, in a process of its own.

    python -m holdfast.demo.witness write --address HOST:PORT ... --map NAME ... --file HISTORY
    python -m holdfast.demo.witness read --address HOST:PORT ... --map NAME ... --file FOUND

`write` keeps several writes and removals under way until its standard input ends, waits for what still is, and leaves
a history: for each write the key, the value, when it began and ended by the clock of this machine, and whether it was
answered. It keeps the client's defaults for timeouts and retries, so it lives through a cut of the whole cluster.
`read` leaves what it finds in the maps. Both files are for `History`, which judges them.
"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import click

from holdfast.check.durability import Write, judge_final
from holdfast.demo.workload import REPORT_S, ClientProcess, DemoError, Progress, connect, report

KEYS = 2000
"""Keys of each map."""
UNDER_WAY = 16
"""Writes that wait for an answer at the same time."""
REMOVE_SHARE = 10
"""One in so many writes is a removal."""
DIGITS = 12
REPEATED = 20
"""A value is its number, so often: what is torn in the middle is no value of ours."""
WRITE_PAUSE_S = 0.0004
"""Between two writes: the cores are the members' too."""
LAST_WAIT_S = 130.0
"""How long the client waits at its end for what is under way: longer than it goes on trying by itself."""

Noted = tuple[str, int, int | None, int, int | None]
"""Map, key, number of the value (None: a removal), begin and end in nanoseconds (None: not answered)."""


def text_of(number: int) -> str:
    """The value of this number."""
    return f"{number:0{DIGITS}d}" * REPEATED


def name_of(value: object) -> str:
    """What the judge calls a value that was read: its number, or the value itself when it is none of ours."""
    head = value[:DIGITS] if isinstance(value, str) else ""
    return str(int(head)) if head.isdigit() and value == text_of(int(head)) else repr(value)


class Answer(Protocol):
    """The client's future."""

    def add_done_callback(self, callback: Any) -> None: ...

    def result(self) -> Any: ...


class Witness:
    """Writes, and notes each write."""

    def __init__(self, maps: dict[str, Any], first_value: int, dice: random.Random) -> None:
        """`maps`: by name, without blocking. Values are numbered from `first_value` on."""
        self._maps = maps
        self._value = first_value
        self._dice = dice
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(UNDER_WAY)
        self._open: dict[int, Noted] = {}
        self._noted: list[Noted] = []
        self._count = 0
        self.progress = Progress()

    def step(self) -> None:
        """Begin one write, when fewer than `UNDER_WAY` are waiting for an answer."""
        if not self._turns.acquire(timeout=REPORT_S):
            return
        self._value += 1
        self._count += 1
        name = self._dice.choice(list(self._maps))
        key = self._dice.randrange(KEYS)
        number = None if self._dice.randrange(REMOVE_SHARE) == 0 else self._value
        with self._lock:
            self._open[self._count] = (name, key, number, time.monotonic_ns(), None)
        target = self._maps[name]
        answer: Answer = target.delete(key) if number is None else target.set(key, text_of(number))
        answer.add_done_callback(partial(self._answered, self._count))

    def _answered(self, turn: int, answer: Answer) -> None:
        """On the client's own thread."""
        ended = time.monotonic_ns()
        try:
            answer.result()
        except Exception:  # noqa: BLE001 - whatever the client raises, the caller was not answered
            known = False
        else:
            known = True
        with self._lock:
            name, key, number, begun, _ = self._open.pop(turn)
            self._noted.append((name, key, number, begun, ended if known else None))
            self.progress.acknowledged += known
            self.progress.unknown += not known
            took_ms = (ended - begun) / 1e6
            self.progress.longest_pause_ms = max(self.progress.longest_pause_ms, took_ms)
            self.progress.pause_ms = max(self.progress.pause_ms, took_ms)
        self._turns.release()

    def end(self, patience_s: float = LAST_WAIT_S) -> list[Noted]:
        """Everything that was written, once all is answered; what is not in `patience_s` counts as unknown."""
        deadline_s = time.monotonic() + patience_s
        while self._open and time.monotonic() < deadline_s:
            time.sleep(0.01)
        with self._lock:
            self.progress.unknown += len(self._open)
            return [*self._noted, *self._open.values()]


@dataclass(slots=True)
class History:
    """What is known of the writes to one map, over as many cuts as there are."""

    name: str
    writes: list[Write] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0

    def add(self, noted: Iterable[Noted]) -> None:
        """Take those writes that are to this map."""
        for name, key, number, begun, ended in noted:
            if name != self.name:
                continue
            write = Write(str(key), None if number is None else str(number), begun)
            if ended is None:
                self.unknown += 1
            else:
                self.acknowledged += 1
                write.end, write.outcome = ended, "ok"
            self.writes.append(write)

    def judge(self, found: dict[str, str], read_at: int) -> list[str]:
        """What is wrong with what was read, in words.

        From now on, what was read is what must be there: nothing is under way, and what was not answered has been done
        by now, or never will be.
        """
        problems = judge_final(self.writes, found)
        known = {write.key for write in self.writes}
        problems += [
            f"key {key}: nobody ever wrote to it, and it holds {found[key]}" for key in found.keys() - known
        ]
        self.writes = [
            Write(key, found.get(key), read_at, read_at, "ok") for key in sorted(known | found.keys())
        ]
        return problems


# -- the client's side


@click.group()
def main() -> None:
    """The client whose writes are noted."""


_addresses = click.option(
    "--address", "addresses", multiple=True, required=True, help="host:port of a client door."
)
_maps = click.option("--map", "maps", multiple=True, required=True, help="Name of a map.")
_file = click.option("--file", required=True, type=click.Path(path_type=Path), help="File for the result.")


@main.command()
@_addresses
@_maps
@_file
@click.option("--first", default=0, help="Number before the first value.")
@click.option("--seed", default=0, help="Which keys are written.")
def write(addresses: tuple[str, ...], maps: tuple[str, ...], file: Path, first: int, seed: int) -> None:
    """Write until standard input ends."""
    client = connect(addresses, "holdfast-witness")
    named = {name: client.get_map(name) for name in maps}
    witness = Witness(named, first, random.Random(seed))  # noqa: S311 - which key is written is no secret
    next_report_s = time.monotonic()
    while True:
        witness.step()
        if time.monotonic() >= next_report_s:
            next_report_s = time.monotonic() + REPORT_S
            report(witness.progress)
            if select.select([sys.stdin], [], [], 0)[0]:
                break
        time.sleep(WRITE_PAUSE_S)
    file.write_text(json.dumps(witness.end()), encoding="utf-8")
    report(witness.progress)
    client.shutdown()


@main.command()
@_addresses
@_maps
@_file
def read(addresses: tuple[str, ...], maps: tuple[str, ...], file: Path) -> None:
    """Read the maps whole."""
    client = connect(addresses, "holdfast-witness-read")
    found = {name: client.get_map(name).blocking().entry_set() for name in maps}
    client.shutdown()
    plain = {name: {str(key): name_of(value) for key, value in entries} for name, entries in found.items()}
    file.write_text(json.dumps(plain), encoding="utf-8")


# -- the side of whoever started it


class WitnessProcess(ClientProcess):
    """The client's process."""

    def __init__(
        self, addresses: list[str], maps: list[str], file: Path, log: Path, first: int, seed: int
    ) -> None:
        """`file` is for the history, `log` for what the client says of itself."""
        self.file = file
        super().__init__(
            [*_command("write", addresses, maps, file), "--first", str(first), "--seed", str(seed)], log
        )

    def noted(self) -> list[Noted]:
        """What was written, after `finish`."""
        return [
            (name, key, number, begun, ended)
            for name, key, number, begun, ended in json.loads(self.file.read_text())
        ]


def read_all(
    addresses: list[str], maps: list[str], file: Path, timeout: float = 150.0
) -> dict[str, dict[str, str]]:
    """What a fresh client process finds: map -> key -> what the judge calls the value."""
    done = subprocess.run(
        _command("read", addresses, maps, file), capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        raise DemoError(f"the reading Hazelcast client failed:\n{done.stderr[-3000:]}")
    found: dict[str, dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _command(what: str, addresses: list[str], maps: list[str], file: Path) -> list[str]:
    command = [sys.executable, "-m", "holdfast.demo.witness", what, "--file", str(file)]
    for name in maps:
        command += ["--map", name]
    for address in addresses:
        command += ["--address", address]
    return command


if __name__ == "__main__":
    main()
