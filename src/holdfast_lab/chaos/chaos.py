"""Rounds of faults on real processes under load; every answer to official clients is judged.

    python -m holdfast_lab chaos --nemesis pause --minutes 10 --seed 7

Official Hazelcast clients, in Python and Java, call a few hot keys all the time, and a thousand more keys rarely; some
route to owners, others use one member each. The hot keys change each minute. After each fault has healed, all keys that
were ever called are read. The map has confirmed reads, so the judge of linearizability checks every answer against one
register for each key, in three modes: calls that changed something; also those that changed nothing; also reads.

With `--zones` hot keys are also called in a map in a zone. With `--zones move` each round also moves the other map into
that zone or out of it, and the fault strikes meanwhile.

Two clients also use a queue, a counter, a lock and a semaphore, which are in the zone if there is one. Their answers
are judged by simple models (`check.structure_histories`).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NoReturn, Self

from rich.console import Console

from holdfast.errors import HoldfastError
from holdfast.replica_comparison.live import diverged
from holdfast_lab.chaos.nemeses import MAP, NEMESES, SETTLE_S, ZONED_MAP, Clock, Nemesis
from holdfast_lab.chaos.recorded_calls import CHOSEN, Keys, call_of
from holdfast_lab.chaos.structure_calls import StructureHistory
from holdfast_lab.check.linearizability import READS, Broken, Call, Outcome, changed_nothing, judge
from holdfast_lab.processes.campaign import SHOWN, Campaign, CampaignVerdict, run_campaign
from holdfast_lab.processes.hazelcast_writer import DemoError

HOT = Keys(8, "k", 60)
COLD = Keys(1000, "c")
ZONED = Keys(8, "z", 60)
"""Their names show the judge to which map they belong."""
LOAD_S = 0.7
ROUTING = {"threads": 8, "pause-us": 80_000, "ops": ",".join([*CHOSEN, *["get"] * 20])}
"""A client that routes to owners and mostly reads: a value that is never read proves nothing."""
PINNED = {"threads": 12, "pause-us": 1_500_000, "ops": ",".join(CHOSEN)}
"""A client that uses one member for all keys. Its threads rest long: a replaced primary must not answer calls
that begin after its replacement, and only threads that rested at that time can make such calls.
"""
SPREAD = {"threads": 4, "pause-us": 40_000, "ops": ",".join([*CHOSEN, "put", "replace"])}
MODES = {
    "what changed something": {"quiet": False, "reads": False},
    "also what changed nothing": {"quiet": True, "reads": False},
    "also reads": {"quiet": True, "reads": True},
}
MOST = 1_000_000
"""Most configurations of one key at a time: about a gigabyte, and some minutes."""
READY_S = 120.0
MOVE = "move"
ORDER_S = 0.3
READ_S = 200.0
"""Time for a client to read every key: longer than its own retries."""
FINISH_S = 240.0


def kind_of(call: Call) -> str:
    if call.outcome is not Outcome.DONE:
        return str(call.outcome.value)
    if call.operation in READS:
        return "read"
    return "changed nothing" if changed_nothing(call) else "changed something"


@dataclass(slots=True)
class Judged:
    counts: dict[str, int]
    broken: dict[str, list[Broken]]
    """By mode: failures that no narrower mode has."""
    undecided: dict[str, str] = field(default_factory=dict)
    """Keys with too many calls in progress at a time, and the judge's message."""


def judge_modes(calls: list[Call]) -> Judged:
    """A history that holds with all calls holds with fewer, so narrower modes are only tried for keys that
    fail.
    """
    kinds = Counter(
        kind_of(call) for call in calls if not (call.operation in READS and call.outcome is not Outcome.DONE)
    )
    changing = kinds["changed something"] + kinds["unknown"]
    quiet = changing + kinds["changed nothing"]
    counts = dict(zip(MODES, (changing, quiet, quiet + kinds["read"]), strict=True))
    judged = Judged(counts, {mode: [] for mode in MODES})
    histories: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        histories[call.key].append(call)
    for key, history in sorted(histories.items()):
        try:
            if not judge(history, most=MOST):
                continue
        except RuntimeError as failure:
            judged.undecided[key] = str(failure)
        for mode, believed in MODES.items():
            try:
                found = judge(history, most=MOST, **believed)
            except RuntimeError:
                continue
            if found:
                judged.broken[mode] += found
                judged.undecided.pop(key, None)
                break
    return judged


@dataclass
class Verdict(CampaignVerdict):
    faults: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    zoned: Counter[str] = field(default_factory=Counter)
    judged: Judged = field(default_factory=lambda: judge_modes([]))
    structures: Counter[str] = field(default_factory=Counter)
    structures_broken: int = 0
    keys: int = 0
    diverged: int = 0
    served_s: list[float] = field(default_factory=list)

    def facts(self) -> dict[str, str]:
        found = super().facts()
        found |= {f"faults: {fault}": f"{count:,}" for fault, count in sorted(self.faults.items())}
        if self.served_s:
            found["seconds until served"] = (
                f"median {median(self.served_s):.1f}, longest {max(self.served_s):.1f}"
            )
        for kind in ("changed something", "changed nothing", "read", "unknown", "refused"):
            found[f"calls: {kind}"] = f"{self.calls[kind]:,}"
        if self.zoned:
            found["of these in the zone"] = ", ".join(
                f"{kind} {count:,}" for kind, count in sorted(self.zoned.items())
            )
        found["keys"] = f"{self.keys:,}"
        found |= {f"structures: {what}": f"{count:,}" for what, count in self.structures.items()}
        return found | {f"judged: {mode}": f"{count:,}" for mode, count in self.judged.counts.items()}

    def failures(self) -> dict[str, int]:
        broken = self.judged.broken.items()
        return {
            **{f"keys that break: {mode}": len(found) for mode, found in broken},
            "keys that are not decided": len(self.judged.undecided),
            "errors of queue, counter, lock and semaphore": self.structures_broken,
            "partitions whose copies differ": self.diverged,
            **super().failures(),
        }


class CallingProcess:
    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        """Its output is the history; `folder` has that and its log."""
        self.calls: list[Call] = []
        self.structures = StructureHistory()
        self._log = folder / f"{name}.log"
        self._ready = False
        self._unread: list[list[str]] = []
        file, self._rest = folder / f"{name}.json", b""
        with self._log.open("wb") as errors, file.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=errors, start_new_session=True
            )
        self._file = file.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._file.close()

    def wait_ready(self) -> None:
        deadline_s = time.monotonic() + READY_S
        while not self._ready:
            self._wait("does not connect", deadline_s)

    def read_each(self, keys: list[str]) -> list[str]:
        before = len(self._unread)
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.write(json.dumps(keys).encode() + b"\n")
        self._process.stdin.flush()
        deadline_s = time.monotonic() + READ_S
        while len(self._unread) == before:
            self._wait("does not read", deadline_s)
        return self._unread[-1]

    def finish(self, last: bytes = b"stop\n") -> None:
        try:
            self._process.communicate(last, timeout=FINISH_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._process.returncode != 0:
            self._fail("failed")
        self.gather()

    def gather(self) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "what" in said:
                self.structures.note(said)
            elif "op" in said:
                self.calls.append(call_of(said))
            elif "read" in said:
                self._unread.append(said["unread"])
            else:
                self._ready = True

    def _wait(self, what: str, deadline_s: float) -> None:
        self.gather()
        if self._process.poll() is not None or time.monotonic() > deadline_s:
            self._fail(what)
        time.sleep(0.05)

    def _fail(self, what: str) -> NoReturn:
        raise DemoError(f"a client {what}:\n{self._log.read_text(errors='replace')[-3000:]}")


def python_client(
    addresses: list[str], folder: Path, name: str, load: dict[str, object], keys: Keys, *, smart: bool
) -> CallingProcess:
    """Keys of `ZONED` are in the map in a zone."""
    called = ZONED_MAP if keys is ZONED else MAP
    command = [sys.executable, "-m", "holdfast_lab.chaos.recorded_calls", "--map", called, "--client", name]
    options = {"keys": keys.count, "prefix": keys.prefix, "rotate-s": keys.rotate_s, **load}
    for option, value in options.items():
        command += [f"--{option}", str(value)]
    command += ["--smart" if smart else "--no-smart"]
    for address in addresses:
        command += ["--address", address]
    return CallingProcess(command, folder, name)


def structure_client(addresses: list[str], folder: Path, name: str, *, smart: bool) -> CallingProcess:
    command = [sys.executable, "-m", "holdfast_lab.chaos.structure_calls", "--client", name]
    command += ["--smart" if smart else "--no-smart"]
    for address in addresses:
        command += ["--address", address]
    return CallingProcess(command, folder, name)


def java_client(
    addresses: list[str], folder: Path, name: str, load: dict[str, object], *, smart: bool, target: Path
) -> CallingProcess:
    """`HotKeys`, which `make java-client` has built into `target`."""
    newest = max((target / "clients").glob("hazelcast-*.jar"))
    command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    command += ["-cp", f"{target / 'classes'}:{newest}", "holdfast.interop.HotKeys", "run"]
    options: dict[str, object] = {
        "addresses": ",".join(addresses),
        "map": MAP,
        "client": name,
        "keys": HOT.count,
        "rotate-s": HOT.rotate_s,
        "seconds": 1_000_000,
        "connect-ms": 600_000,
        "smart": str(smart).lower(),
        **load,
    }
    for option, value in options.items():
        command += [f"--{option}", str(value)]
    return CallingProcess(command, folder, name)


class Chaos(Campaign[Verdict]):
    def __init__(
        self,
        nemesis: Nemesis,
        console: Console,
        *,
        seconds: float = 0.0,
        rounds: int = 0,
        java: Path | None = None,
        keep: Path | None = None,
        pinned: int = 3,
    ) -> None:
        """`java`: folder of the built Java client; without it only Python clients call. `pinned`: number of
        Python clients that use one member each.
        """
        super().__init__(Verdict(faults=nemesis.faults, served_s=nemesis.served_s), console, keep)
        self.nemesis = nemesis
        self.seconds = seconds
        self.rounds = rounds
        self.java = java
        self.pinned = pinned

    def prepare(self, stack: ExitStack, folder: Path) -> None:
        self.cluster = stack.enter_context(self.nemesis.prepare(stack, folder))
        self.cluster.wait_settled(SETTLE_S)
        if self.nemesis.zones:
            self.nemesis.create_zone()
            self.cluster.wait_settled(SETTLE_S)
        self.clients = [stack.enter_context(client) for client in self._start_clients(folder)]
        self.readers = self.clients[: 2 if self.nemesis.zones else 1]
        self.users = [stack.enter_context(client) for client in self._start_users(folder)]
        for client in [*self.clients, *self.users]:
            client.wait_ready()
        self.nemesis.hot = lambda: HOT.names(HOT.turn(time.monotonic_ns()))

    def _start_clients(self, folder: Path) -> list[CallingProcess]:
        if not self.nemesis.calls_maps:
            return []
        addresses = self.cluster.client_addresses()
        ones = [[address] for address in addresses]
        if not self.nemesis.keeps_doors:
            ones = [addresses[number:] + addresses[:number] for number in range(len(addresses))]
        clients = [python_client(addresses, folder, "python", ROUTING, HOT, smart=True)]
        if self.nemesis.zones:
            clients.append(python_client(addresses, folder, "zoned", ROUTING, ZONED, smart=True))
        else:
            clients.append(python_client(addresses, folder, "python-many", SPREAD, COLD, smart=True))
        for number, one in enumerate(ones[: self.pinned]):
            # With zones the pinned clients are shared between the maps, which is enough load for two cores.
            keys = ZONED if self.nemesis.zones and number % 3 != 1 else HOT
            clients.append(python_client(one, folder, f"python-{number}", PINNED, keys, smart=False))
        if self.java is not None:
            clients.append(java_client(addresses, folder, "java", ROUTING, smart=True, target=self.java))
            clients.append(java_client(ones[0], folder, "java-1", PINNED, smart=False, target=self.java))
        return clients

    def _start_users(self, folder: Path) -> list[CallingProcess]:
        """Those of structures. One routes to the owner. A member forwards and repeats the requests of the other."""
        if not self.nemesis.keeps_structures:
            return []
        addresses = self.cluster.client_addresses()
        return [
            structure_client(addresses, folder, "structures", smart=True),
            structure_client(addresses[::-1], folder, "structures-forwarded", smart=False),
        ]

    def round(self, number: int) -> str:
        time.sleep(LOAD_S * (1 + self.nemesis.dice.random()))
        into = number % 2 == 1
        if self.nemesis.moves:
            # The order is accepted, and the move continues.
            self.nemesis.move(into=into, timeout_s=ORDER_S)
        words = self.nemesis.strike()
        self.cluster.wait_settled(SETTLE_S)
        if self.nemesis.moves:
            if why := self.nemesis.move(into=into, timeout_s=SETTLE_S):
                raise DemoError(f"map {MAP} is not moved: {why}")
            self.nemesis.faults["map moved"] += 1
        self._read_all()
        return words

    def _read_all(self) -> None:
        for client in self.clients:
            client.gather()
        called = sorted({call.key for client in self.clients for call in client.calls})
        unread: list[str] = []
        assert self.readers or not called, "no calls without clients"
        for number, reader in enumerate(self.readers):
            unread += reader.read_each(
                [key for key in called if key.startswith(ZONED.prefix) == bool(number)]
            )
        if unread:
            raise DemoError(f"{len(unread)} keys cannot be read: {', '.join(unread[:SHOWN])}")

    def judge(self) -> None:
        """End the clients, those that read all keys last, and judge all calls so far, also after a failure."""
        try:
            self._finish()
        finally:
            self._judge_calls()

    def _finish(self) -> None:
        for number, user in enumerate(reversed(self.users), 1):
            user.finish(b"empty\n" if number == len(self.users) else b"stop\n")
        for client in self.clients[len(self.readers) :]:
            client.finish()
        self._read_all()
        for client in self.readers:
            client.finish()
        differences = diverged(self.cluster.client_addresses()[0])
        self.verdict.diverged = len(differences)
        self.verdict.problems += map(str, differences[:SHOWN])

    def _judge_calls(self) -> None:
        verdict = self.verdict
        for client in self.clients:
            client.gather()
        calls = [call for client in self.clients for call in client.calls]
        verdict.calls.update(map(kind_of, calls))
        verdict.zoned.update(kind_of(call) for call in calls if call.key.startswith(ZONED.prefix))
        verdict.keys = len({call.key for call in calls})
        verdict.judged = judge_modes(calls)
        for mode, broken in verdict.judged.broken.items():
            verdict.problems += [f"{mode}: {one}" for one in broken[:SHOWN]]
        self._judge_structures()
        verdict.problems += [
            f"key {key} is not decided: {why}" for key, why in verdict.judged.undecided.items()
        ]

    def _judge_structures(self) -> None:
        whole = StructureHistory()
        for user in self.users:
            user.gather()
            whole.add(user.structures)
        self.verdict.structures.update(whole.counts())
        # The counter is read, and the queue emptied, at the very end.
        problems = whole.problems() if self.users and not self.verdict.failure else []
        self.verdict.structures_broken = len(problems)
        self.verdict.problems += problems[:SHOWN]


def main(
    nemesis: str,
    *,
    minutes: float = 10.0,
    rounds: int = 0,
    seed: int | None = None,
    java: Path | None = None,
    faketime: Path | None = None,
    keep: Path | None = None,
    zones: str = "",
    console: Console | None = None,
) -> int:
    """Returns 0 if every answer holds, else 1. `zones`: not empty: there is also a map in a zone; `MOVE`: the
    other one moves.
    """
    console = console or Console()
    seed = random.randrange(1_000_000) if seed is None else seed  # noqa: S311 - who is struck is no secret
    dice = random.Random(seed)  # noqa: S311 - as above
    try:
        chosen = Clock(dice, faketime) if nemesis == Clock.name else NEMESES[nemesis](dice)
    except HoldfastError as failure:
        console.print(f"The run failed: {failure}", style="red", highlight=False, markup=False)
        return 1
    chosen.zones, chosen.moves = bool(zones), zones == MOVE
    length = f"{rounds} rounds" if rounds else f"{minutes:g} minutes"
    clients = "Python and Java clients" if java else "Python clients (make java-client builds the Java one)"
    maps = ("a map in a zone, " if chosen.zones else "") + ("another that moves, " if chosen.moves else "")
    return run_campaign(
        Chaos(chosen, console, seconds=60 * minutes, rounds=rounds, java=java, keep=keep),
        f"{length} of {nemesis}: {chosen.members} members, {chosen.backups} sync backups, journal {chosen.journal}, "
        f"{maps}{clients}, seed {seed}",
    )
