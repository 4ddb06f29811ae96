"""The client of a resize run: the official Hazelcast client at a fixed rate, as a separate process.

    python -m holdfast_lab.processes.paced --address HOST:PORT ... --map NAME=LEDGER ... --log FILE --rate 400

Operations are due at fixed moments, whether or not earlier ones have finished, and latencies count from the due time.
So at 400 operations a second, a pause of one second shows as 400 slow operations, not as one. The client keeps its
default timeouts and retries.

Every value is written once per run, a key has at most one operation in flight, and a key whose write was not answered
is not written again: so the possible results of each read are known exactly (see `workload`).
"""

from __future__ import annotations

import gc
import json
import random
import select
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import click

from holdfast_lab.processes.hazelcast_writer import (
    REPORT_S,
    ClientProcess,
    KeyRecord,
    Progress,
    connect,
    report,
)
from holdfast_lab.processes.latency import Log, Operation

KEYS = 5000
"""Per map. All are written before the first measured operation."""
FILL_AT_ONCE = 200
TRIES = 20
LAST_WAIT_S = 60.0


class Answer(Protocol):
    def add_done_callback(self, callback: Any) -> None: ...

    def result(self) -> Any: ...


class Keys:
    def __init__(self, number: int, grid_map: Any, name: str, ledger: Path) -> None:
        self.number = number
        self.map = grid_map
        self.name = name
        self.ledger = ledger
        self.records = [KeyRecord() for _ in range(KEYS)]
        self.busy = [False] * KEYS

    def pick(self, dice: random.Random, *, to_write: bool) -> int | None:
        """A random key with no operation in flight (and, with `to_write`, that may be written); None if none
        was found.
        """
        for _ in range(TRIES):
            key = dice.randrange(KEYS)
            if not self.busy[key] and not (to_write and self.records[key].unknown):
                return key
        return None

    def save(self) -> None:
        text = json.dumps([[record.acknowledged, record.unknown] for record in self.records])
        self.ledger.write_text(text, encoding="utf-8")


class Pacer:
    def __init__(self, maps: list[Keys], seed: int) -> None:
        self.maps = maps
        self.log = Log()
        self.progress = Progress()
        self.skipped = 0
        self.under_way = 0
        self._value = 0
        self._dice = random.Random(seed)  # noqa: S311 - which key is read is no secret
        self._lock = threading.Lock()

    def fill(self) -> None:
        for keys in self.maps:
            for begin in range(0, KEYS, FILL_AT_ONCE):
                part = range(begin, min(begin + FILL_AT_ONCE, KEYS))
                answers = []
                for key in part:
                    self._value += 1
                    keys.records[key].acknowledged = self._value
                    answers.append(keys.map.set(key, self._value))
                for answer in answers:
                    answer.result()
                self.progress.acknowledged += len(part)

    def send(self, number: int, due_s: float) -> None:
        """Send operation `number`: it alternates between the maps, and between writes and reads."""
        keys = self.maps[number % len(self.maps)]
        writes = number // len(self.maps) % 2 == 0
        key = keys.pick(self._dice, to_write=writes)
        if key is None:
            self.skipped += 1
            return
        keys.busy[key] = True
        with self._lock:
            self.under_way += 1
        if writes:
            self._value += 1
            answer: Answer = keys.map.set(key, self._value)
        else:
            answer = keys.map.get(key)
        value = self._value if writes else 0
        answer.add_done_callback(partial(self._answered, keys, key, value, due_s))

    def _answered(self, keys: Keys, key: int, written: int, due_s: float, answer: Answer) -> None:
        took_s = time.monotonic() - due_s
        record = keys.records[key]
        progress = self.progress
        done = True
        try:
            value = answer.result()
        except Exception:  # noqa: BLE001 - whatever the client raises, the caller was not answered
            done = False
            if written:
                record.unknown = written
                progress.unknown += 1
        else:
            if written:
                record.acknowledged = written
                progress.acknowledged += 1
            else:
                progress.read += 1
                progress.wrong_reads += not record.may_be(value)
        keys.busy[key] = False
        self.log.add(Operation(due_s, took_s, bool(written), done, keys.number))
        with self._lock:
            progress.pause_ms = max(progress.pause_ms, 1000 * took_s)
            progress.longest_pause_ms = max(progress.longest_pause_ms, 1000 * took_s)
            self.under_way -= 1

    def run(self, rate: float) -> None:
        """Send `rate` operations a second until standard input ends."""
        begin_s = next_report_s = time.monotonic()
        number = 0
        while True:
            due_s = begin_s + number / rate
            now_s = time.monotonic()
            if now_s >= next_report_s:
                next_report_s = now_s + REPORT_S
                report(self.progress)
                if select.select([sys.stdin], [], [], 0)[0]:
                    return
            if due_s > now_s:
                time.sleep(due_s - now_s)
            self.send(number, due_s)
            number += 1

    def end(self) -> None:
        deadline_s = time.monotonic() + LAST_WAIT_S
        while self.under_way and time.monotonic() < deadline_s:
            time.sleep(0.01)
        if self.under_way:
            raise SystemExit(f"{self.under_way} operations were not answered in {LAST_WAIT_S:g} s")
        for keys in self.maps:
            keys.save()


@click.command()
@click.option("--address", "addresses", multiple=True, required=True, help="host:port of a client door.")
@click.option("--map", "maps", multiple=True, required=True, help="NAME=LEDGER: a map and its ledger.")
@click.option("--log", required=True, type=click.Path(path_type=Path), help="File for the operations.")
@click.option("--rate", required=True, type=float, help="Operations a second.")
@click.option("--seed", default=0, help="Which keys are used.")
def main(addresses: tuple[str, ...], maps: tuple[str, ...], log: Path, rate: float, seed: int) -> None:
    """Read and write at a fixed rate until standard input ends."""
    client = connect(addresses, "holdfast-resize")
    named = [one.partition("=") for one in maps]
    pacer = Pacer(
        [
            Keys(number, client.get_map(name), name, Path(ledger))
            for number, (name, _, ledger) in enumerate(named)
        ],
        seed,
    )
    pacer.fill()
    # Hide long-lived objects from the garbage collector, so that its pauses are not measured.
    gc.collect()
    gc.freeze()
    pacer.run(rate)
    pacer.end()
    pacer.log.save(log)
    report(pacer.progress)
    client.shutdown()


class PacedProcess(ClientProcess):
    def __init__(
        self, addresses: list[str], ledgers: dict[str, Path], folder: Path, log: Path, rate: float, seed: int
    ) -> None:
        """`ledgers`: map name -> file for acknowledged values. `log`: the client's own log file."""
        self.operations = folder / "operations"
        self.ledgers = ledgers
        command = [sys.executable, "-m", "holdfast_lab.processes.paced", "--log", str(self.operations)]
        command += ["--rate", str(rate), "--seed", str(seed)]
        for name, ledger in ledgers.items():
            command += ["--map", f"{name}={ledger}"]
        for address in addresses:
            command += ["--address", address]
        super().__init__(command, log)


if __name__ == "__main__":
    main()
