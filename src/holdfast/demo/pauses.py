"""Rounds of SIGSTOP under load: the primary of a hot key is paused until others have taken its place, and goes on.

    holdfast pauses --rounds 200 --seed 7

What clients had sent to it waits in its sockets meanwhile, and it answers all of that before it has heard that it was
replaced. Official Hazelcast clients call a few hot keys all the while: some route to owners, some speak to one member
each, so that calls of both kinds wait at a paused primary. The map has confirmed reads, so the judge of linearizability
holds every answer against one register for each key: those that changed something, those that did not, and reads.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Self

from rich.console import Console
from rich.table import Table

from holdfast.check.linearizability import Broken, Call, Outcome, changed_nothing, judge
from holdfast.client.blocking import Client
from holdfast.client.verify import diverged
from holdfast.core.placement.key import partition_of
from holdfast.demo.calls import CHOSEN, history, key_names
from holdfast.demo.cluster import LocalCluster, ManagedMember
from holdfast.demo.workload import DemoError
from holdfast.errors import HoldfastError
from holdfast.wire.values import to_stored

MAP = "hot"
HEARTBEAT_MS, SUSPECT_MS = 300, 1500
CONFIG = f"""
[cluster]
heartbeat_ms = {HEARTBEAT_MS}
suspect_after_ms = {SUSPECT_MS}
[maps.{MAP}]
backups = 1
reads = "confirmed"
"""
PAUSE_S = (SUSPECT_MS / 1000 + 1.0, SUSPECT_MS / 1000 + 3.0)
"""How long a member is paused: longer than it takes to be replaced."""
LOAD_S = 0.7
"""How long clients call undisturbed before each pause, at least; a random part of it is added."""
KEYS = 4
ROUTING = {"threads": 8, "pause-us": 40_000, "ops": ",".join([*CHOSEN, *["get"] * 30])}
"""A client that calls owners. It mostly reads: what nobody reads may have been anything."""
PINNED = {"threads": 24, "pause-us": 3_000_000, "ops": ",".join(CHOSEN)}
"""A client that speaks to one member, whoever owns the key. Its threads rest long: who has called before the pause sees
only what was so before. A replaced primary must not answer calls that began when others had taken its place, and for
those some threads have to be left.
"""
SAFE_S = 90.0


@dataclass(slots=True)
class Verdict:
    """What a run found."""

    calls: Counter[str] = field(default_factory=Counter)
    """By kind and outcome."""
    replaced: int = 0
    """Rounds in which the paused member had been removed before it went on."""
    broken: list[Broken] = field(default_factory=list)
    diverged: int = 0

    @property
    def good(self) -> bool:
        """Whether every answer holds, and all copies are alike."""
        return not (self.broken or self.diverged)


class CallingProcess:
    """A client's process, and its history."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        """What it prints is the history; `folder` keeps that and its log."""
        self._file, self._log = folder / f"{name}.json", folder / f"{name}.log"
        with self._log.open("wb") as errors, self._file.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=errors, start_new_session=True
            )

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Until it is connected."""
        deadline = time.monotonic() + timeout
        while not self._file.stat().st_size:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._fail("does not connect")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def finish(self) -> list[Call]:
        """Let it end; what it has called."""
        try:
            self._process.communicate(b"stop\n", timeout=180)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._process.returncode != 0:
            self._fail("failed")
        with self._file.open(encoding="utf-8") as lines:
            return list(history(lines))

    def _fail(self, what: str) -> NoReturn:
        raise DemoError(f"a client {what}:\n{self._log.read_text(errors='replace')[-3000:]}")


def python_client(addresses: list[str], folder: Path, name: str, *, smart: bool) -> CallingProcess:
    """The official Python client."""
    command = [sys.executable, "-m", "holdfast.demo.calls", "--map", MAP, "--client", name]
    for option, value in {"keys": KEYS, **(ROUTING if smart else PINNED)}.items():
        command += [f"--{option}", str(value)]
    command += ["--smart" if smart else "--no-smart"]
    for address in addresses:
        command += ["--address", address]
    return CallingProcess(command, folder, name)


def java_client(
    addresses: list[str], folder: Path, name: str, *, smart: bool, target: Path
) -> CallingProcess:
    """The official Java client, by `HotKeys`, which `make java-client` has built into `target`."""
    newest = max((target / "clients").glob("hazelcast-*.jar"))
    command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    command += ["-cp", f"{target / 'classes'}:{newest}", "holdfast.interop.HotKeys", "run"]
    options = {
        "addresses": ",".join(addresses),
        "map": MAP,
        "client": name,
        "keys": KEYS,
    }
    options |= {"seconds": 1_000_000, "smart": str(smart).lower(), **(ROUTING if smart else PINNED)}
    for option, value in options.items():
        command += [f"--{option}", str(value)]
    return CallingProcess(command, folder, name)


@contextmanager
def paused(member: ManagedMember) -> Iterator[None]:
    """The member's process stands still while the block runs."""
    member.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        member.process.send_signal(signal.SIGCONT)


class Pauses:
    """One run, replayable in its choices (not in its timing) by its seed."""

    def __init__(
        self, rounds: int, seed: int, console: Console, java: Path | None = None, keep: Path | None = None
    ) -> None:
        """`java`: where the Java client's program was built; without it the Python client calls alone. `keep`: the
        folder for the histories of the clients; a temporary one without.
        """
        self.rounds = rounds
        self.console = console
        self.java = java
        self.keep = keep
        self.dice = random.Random(seed)  # noqa: S311 - which member is paused is no secret
        self.cluster = LocalCluster(3, CONFIG)
        self.verdict = Verdict()

    def run(self) -> Verdict:
        """All rounds, and the judge after them."""
        with ExitStack() as stack:
            stack.enter_context(self.cluster)
            folder = self.keep or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-pauses-"))
            )
            folder.mkdir(parents=True, exist_ok=True)
            self.cluster.wait_settled(SAFE_S)
            addresses = self.cluster.client_addresses()
            clients = [
                python_client(addresses, folder, "python", smart=True),
                python_client(addresses[:1], folder, "python-1", smart=False),
                python_client(addresses[1:2], folder, "python-2", smart=False),
                python_client(addresses[2:], folder, "python-3", smart=False),
            ]
            if self.java is not None:
                clients += [
                    java_client(addresses, folder, "java", smart=True, target=self.java),
                    java_client(addresses[:1], folder, "java-1", smart=False, target=self.java),
                ]
            for client in clients:
                stack.enter_context(client)
            for client in clients:
                client.wait_ready()
            for number in range(1, self.rounds + 1):
                self._round(number)
            calls = [call for client in clients for call in client.finish()]
            self._judge(calls)
        return self.verdict

    def _round(self, number: int) -> None:
        time.sleep(LOAD_S * (1 + self.dice.random()))
        victim = self._primary_of(self.dice.choice(key_names(KEYS)))
        pause_s = self.dice.uniform(*PAUSE_S)
        with paused(victim):
            time.sleep(pause_s)
            others = [member for member in self.cluster.alive if member is not victim]
            known = {row["uuid"] for row in self.cluster.status(others[0])["members"]}
            self.verdict.replaced += victim.uuid not in known
        self.cluster.wait_settled(SAFE_S)
        self.console.print(
            f"round {number:3}: {victim.name} paused for {pause_s:.1f} s, "
            f"{'replaced' if victim.uuid not in known else 'not replaced'}",
            highlight=False,
        )

    def _primary_of(self, key: str) -> ManagedMember:
        with Client(self.cluster.client_addresses()) as client:
            table = client.table()
        uuid = table.owner(partition_of(to_stored(key), 0, len(table)))
        return next(member for member in self.cluster.alive if member.uuid == uuid)

    def _judge(self, calls: list[Call]) -> None:
        verdict = self.verdict
        for call in calls:
            kind = (
                "read" if call.operation == "get" else "changed nothing" if changed_nothing(call) else "write"
            )
            verdict.calls[kind if call.outcome is Outcome.DONE else call.outcome.value] += 1
        verdict.broken = judge(calls)
        differences = diverged(self.cluster.client_addresses()[0])
        verdict.diverged = len(differences)
        for problem in [*map(str, verdict.broken), *differences[:10]]:
            self.console.print(problem, style="red", highlight=False, markup=False)


def table(verdict: Verdict) -> Table:
    """What was found, for the terminal."""
    found = Table(show_header=False)
    found.add_row("pauses in which the member was replaced", f"{verdict.replaced:,}")
    for kind in ("write", "changed nothing", "read", "unknown", "refused"):
        found.add_row(f"calls: {kind}", f"{verdict.calls[kind]:,}")
    for name, count in (
        ("keys with an answer that does not hold", len(verdict.broken)),
        ("diverged", verdict.diverged),
    ):
        found.add_row(name, f"{count:,}", style="bold red" if count else "bold green")
    return found


def main(
    rounds: int = 200,
    seed: int | None = None,
    java: Path | None = None,
    keep: Path | None = None,
    console: Console | None = None,
) -> int:
    """Run the rounds and show what was found; answers 0 when every answer holds, else 1."""
    console = console or Console()
    seed = random.randrange(1_000_000) if seed is None else seed  # noqa: S311 - see above
    clients = "Python and Java clients" if java else "Python clients (make java-client builds the Java one)"
    console.print(
        f"{rounds} rounds of SIGSTOP, 3 members, one sync backup, {clients}, seed {seed}", highlight=False
    )
    try:
        verdict = Pauses(rounds, seed, console, java, keep).run()
    except HoldfastError as failure:
        console.print(f"The run failed: {failure}", style="red", highlight=False, markup=False)
        return 1
    console.print(table(verdict))
    return 0 if verdict.good else 1
