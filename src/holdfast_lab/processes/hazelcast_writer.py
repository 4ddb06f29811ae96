"""The demo's client: the official Hazelcast client, unmodified, in a separate process with one thread.

    python -m holdfast_lab.processes.hazelcast_writer write --address HOST:PORT ... --map NAME --ledger FILE
    python -m holdfast_lab.processes.hazelcast_writer check --address HOST:PORT ... --map NAME --ledger FILE

`write` puts and gets its own keys until its standard input ends, prints its progress every quarter of a second (a line
of JSON), and writes a ledger of acknowledged values. `check` compares a ledger with what it reads back.

Every value is written once in the run, and one client writes each key. A key whose write was not answered is not
written again, because that write may take effect later. So the possible values are known exactly: the last acknowledged
one, or the unanswered one.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import click

from holdfast.errors import HoldfastError

REPORT_S = 0.25
FRESH_SHARE = 2
"""One in so many steps writes a new key; the others overwrite or read an old one."""

STEP_PAUSE_S = 0.0005
"""Leaves the cores to the members."""


class DemoError(HoldfastError):
    """The demo cannot continue; the message says why."""


@dataclass(slots=True)
class KeyRecord:
    acknowledged: int = 0
    unknown: int = 0
    """A later value whose write was not answered, so it may or may not be there; 0: none."""

    def may_be(self, value: int | None) -> bool:
        """Whether a read may return this value."""
        if self.unknown and value == self.unknown:
            return True
        return value == self.acknowledged if self.acknowledged else value is None


@dataclass(slots=True)
class Progress:
    acknowledged: int = 0
    unknown: int = 0
    read: int = 0
    wrong_reads: int = 0
    longest_pause_ms: float = 0.0
    pause_ms: float = 0.0
    """Longest wait for one answer since the last report."""
    at_s: float = 0.0


class Writer:
    def __init__(self, grid_map: Any, unknown_errors: tuple[type[Exception], ...]) -> None:
        self.map = grid_map
        self.unknown_errors = unknown_errors
        self.keys: list[KeyRecord] = []
        self.progress = Progress()
        self.value = 0

    def step(self, number: int) -> None:
        if number % FRESH_SHARE == 0 or not self.keys:
            self.keys.append(KeyRecord())
            self._write(len(self.keys) - 1)
            return
        index = (number * 7919) % len(self.keys)
        if number % 4 == 1 and not self.keys[index].unknown:
            self._write(index)
        else:
            self._read(index)

    def _write(self, index: int) -> None:
        self.value += 1
        record = self.keys[index]
        asked = time.monotonic()
        try:
            self.map.set(index, self.value)
        except self.unknown_errors:
            record.unknown = self.value
            self.progress.unknown += 1
        else:
            record.acknowledged = self.value
            self.progress.acknowledged += 1
        self._waited(asked)

    def _read(self, index: int) -> None:
        asked = time.monotonic()
        try:
            value = self.map.get(index)
        except self.unknown_errors:
            value = None
        else:
            self.progress.read += 1
            if not self.keys[index].may_be(value):
                self.progress.wrong_reads += 1
        self._waited(asked)

    def _waited(self, asked: float) -> None:
        took_ms = (time.monotonic() - asked) * 1000
        self.progress.pause_ms = max(self.progress.pause_ms, took_ms)
        self.progress.longest_pause_ms = max(self.progress.longest_pause_ms, took_ms)


def connect(addresses: tuple[str, ...], name: str) -> Any:
    from hazelcast.client import HazelcastClient

    return HazelcastClient(
        cluster_members=list(addresses),
        client_name=name,
        cluster_connect_timeout=60,
        reconnect_mode="ON",
        statistics_enabled=False,
    )


@click.group()
def main() -> None:
    """The demo's client."""


_addresses = click.option(
    "--address", "addresses", multiple=True, required=True, help="host:port of a client door."
)
_map = click.option("--map", "name", required=True, help="Name of the map.")
_ledger = click.option(
    "--ledger", required=True, type=click.Path(path_type=Path), help="File with what was answered."
)


@main.command()
@_addresses
@_map
@_ledger
def write(addresses: tuple[str, ...], name: str, ledger: Path) -> None:
    """Write and read until standard input ends."""
    from hazelcast.errors import HazelcastError

    client = connect(addresses, "holdfast-demo")
    writer = Writer(client.get_map(name).blocking(), (HazelcastError, OSError, TimeoutError))
    next_report = time.monotonic()
    number = 0
    while True:
        writer.step(number)
        number += 1
        if time.monotonic() >= next_report:
            next_report = time.monotonic() + REPORT_S
            report(writer.progress)
            if select.select([sys.stdin], [], [], 0)[0]:
                break
        time.sleep(STEP_PAUSE_S)
    report(writer.progress)
    ledger.write_text(
        json.dumps([[record.acknowledged, record.unknown] for record in writer.keys]), encoding="utf-8"
    )
    client.shutdown()


def report(progress: Progress) -> None:
    """Print the progress as a line of JSON, and begin a new period."""
    progress.at_s = time.monotonic()
    click.echo(json.dumps(asdict(progress)))
    sys.stdout.flush()
    progress.pause_ms = 0.0


@main.command()
@_addresses
@_map
@_ledger
@click.option(
    "--by-key", is_flag=True, help="Ask for the ledger's keys: maps in zones are not read as a whole."
)
def check(addresses: tuple[str, ...], name: str, ledger: Path, *, by_key: bool) -> None:
    """Compare a ledger with what is read back; print the difference as a line of JSON."""
    records = [KeyRecord(*item) for item in json.loads(ledger.read_text(encoding="utf-8"))]
    client = connect(addresses, "holdfast-demo-check")
    grid_map = client.get_map(name).blocking()
    unasked = 0
    if by_key:
        found = dict(grid_map.get_all(range(len(records))))
        unasked = abs(grid_map.size() - len(found))
    else:
        found = dict(grid_map.entry_set())
    client.shutdown()
    lost = [index for index, record in enumerate(records) if not record.may_be(found.get(index))]
    invented = [key for key in found if not isinstance(key, int) or not 0 <= key < len(records)]
    click.echo(
        json.dumps(
            {
                "keys": len(records),
                "lost": len(lost) + len(invented) + unasked,
                "examples": lost[:5] + invented[:5],
            }
        )
    )


# -- the demo's side


class ClientProcess:
    """A client's process for its starter. A context manager: the process is gone after the block."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        self.history: list[Progress] = []
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, name="client-reports", daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def progress(self) -> Progress:
        return self.history[-1] if self.history else Progress()

    def wait_started(self, timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while not self.progress.acknowledged:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._fail()
            time.sleep(0.05)

    def finish(self, timeout: float = 150.0) -> Progress:
        """Let it finish and write the ledger; returns its last report."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._fail()
        if self._process.returncode != 0:
            self._fail()
        self._listener.join()
        return self.progress

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.history.append(Progress(**json.loads(line)))

    def _fail(self) -> NoReturn:
        status = self._process.poll()
        what = f"ended with status {status}" if status is not None else "does not get on"
        raise DemoError(f"the Hazelcast client {what}:\n{self.log.read_text(errors='replace')[-3000:]}")


class WorkloadProcess(ClientProcess):
    def __init__(self, addresses: list[str], name: str, ledger: Path, log: Path) -> None:
        self.name = name
        self.ledger = ledger
        super().__init__(_command("write", addresses, name, ledger), log)


def read_back(
    addresses: list[str], name: str, ledger: Path, timeout: float = 120.0, *, by_key: bool = False
) -> dict[str, Any]:
    """Findings of a new client process about a ledger: `keys`, `lost` (wrong, missing or additional),
    `examples`.

    `by_key`: the map is in a zone. Additional keys are counted there, but not named.
    """
    command = _command("check", addresses, name, ledger) + ["--by-key"] * by_key
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise DemoError(f"the checking Hazelcast client failed:\n{done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _command(what: str, addresses: list[str], name: str, ledger: Path) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "holdfast_lab.processes.hazelcast_writer",
        what,
        "--map",
        name,
        "--ledger",
        str(ledger),
    ]
    for address in addresses:
        command += ["--address", address]
    return command


if __name__ == "__main__":
    main()
