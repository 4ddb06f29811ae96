"""All members are killed at once under load, again and again, and come back with their files: nothing is lost.

    holdfast powercut --rounds 50 --seed 7

Each round an official Hazelcast client writes to and removes from a journalled map with one sync backup, and a lazily
journalled one; at a random moment every member is killed with SIGKILL, in some rounds once more while they come back.
When every partition is served again everything is read back and judged (`check.durability`), and when all copies are
there again they are compared.

What a killed process has handed to the operating system stays there. So this shows that what is acknowledged has left
the process in order, and that the members find it again. Whether it had also reached the disk, the simulator shows: its
disks lose what was not synced.
"""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console

from holdfast.client.verify import diverged
from holdfast.demo import chaos
from holdfast.demo.cluster import LocalCluster
from holdfast.demo.witness import History, WitnessProcess, read_all
from holdfast.errors import HoldfastError

SYNC, LAZY = "powercut-sync", "powercut-lazy"
CONFIG = f"""
[persistence]
segment_bytes = 262144
checkpoint_bytes = 524288

[maps."{SYNC}"]
backups = 1
journal = "sync"

[maps."{LAZY}"]
backups = 1
journal = "lazy"
"""
"""Small files, so that segments end and checkpoints are made all the while."""
LOAD_S = 2.0
"""How long the client writes before the cut, at most; a random part of it."""
AGAIN_S = 2.0
"""How long after the restart the second cut comes, at most."""
AGAIN_SHARE = 0.25
"""Rounds with a second cut."""
SERVED_S = 90.0
VALUES_OF_A_ROUND = 1_000_000
SHOWN = 10


@dataclass(slots=True)
class Verdict(chaos.Verdict):
    """What a run found. `lost` and `acknowledged` are of the journalled map alone."""

    rounds: int = 0
    cuts: int = 0
    lazy_acknowledged: int = 0
    lazy_lost: int = 0
    served_s: list[float] = field(default_factory=list)
    """For each round, from the start of the processes until every partition was served."""


class PowerCut:
    """One run, replayable in its choices (not in its timing) by its seed."""

    def __init__(self, rounds: int, members: int, seed: int, console: Console, folder: Path) -> None:
        """`folder` takes the members' files and logs."""
        self.rounds = rounds
        self.seed = seed
        self.console = console
        self.folder = folder
        self.dice = random.Random(seed)  # noqa: S311 - when members die is no secret
        self.cluster = LocalCluster(
            members, CONFIG, log_dir=folder / "logs", data_dir=folder / "data", ready_timeout=SERVED_S
        )
        self.sync, self.lazy = History(SYNC), History(LAZY)
        self.verdict = Verdict()

    def run(self) -> Verdict:
        """All rounds."""
        verdict = self.verdict
        with self.cluster:
            self.cluster.wait_settled(SERVED_S)
            for number in range(1, self.rounds + 1):
                self._round(number)
                verdict.rounds = number
        verdict.acknowledged, verdict.unknown = self.sync.acknowledged, self.sync.unknown
        verdict.lazy_acknowledged = self.lazy.acknowledged
        return verdict

    def _round(self, number: int) -> None:
        verdict = self.verdict
        twice = self.dice.random() < AGAIN_SHARE
        file = self.folder / "history.json"
        log = self.cluster.log_dir / "client.log"
        addresses = self.cluster.client_addresses()
        first = number * VALUES_OF_A_ROUND
        with WitnessProcess(addresses, [SYNC, LAZY], file, log, first, self.seed + number) as client:
            client.wait_started()
            time.sleep(LOAD_S * self.dice.random())
            served_s = self._cut(again=twice)
            client.finish()
            noted = client.noted()
        acknowledged, lazy_before = self.sync.acknowledged, self.lazy.acknowledged
        lost, lazy_lost = self._judge(noted)
        self.cluster.wait_settled(SERVED_S)
        differences = diverged(self.cluster.client_addresses()[0])
        self._tell(differences)
        verdict.diverged += len(differences)
        self.console.print(
            f"round {number:3}: killed all {len(self.cluster.alive)}{', and again' if twice else ''}; served after "
            f"{served_s:.1f} s; {self.sync.acknowledged - acknowledged:,} writes acknowledged, {lost} lost; "
            f"lazily {self.lazy.acknowledged - lazy_before:,}, {lazy_lost} lost",
            highlight=False,
        )

    def _cut(self, *, again: bool) -> float:
        """Kill all, and start all; answers how many seconds it took from the last start until all is served."""
        gone = self.cluster.kill_all()
        self.verdict.cuts += 1
        if again:
            self.cluster.restart(gone, wait=False)
            time.sleep(AGAIN_S * self.dice.random())
            gone = self.cluster.kill_all()
            self.verdict.cuts += 1
        begun_s = time.monotonic()
        started = self.cluster.restart(gone, wait=False)
        self.cluster.wait_served(SERVED_S)
        served_s = self.cluster.seen_s - begun_s
        self.verdict.served_s.append(served_s)
        self.cluster.wait_ready(started)
        return served_s

    def _judge(self, noted: list[tuple[str, int, int | None, int, int | None]]) -> tuple[int, int]:
        """Read everything back; answers what the journalled map and the lazy one have lost."""
        read_at = time.monotonic_ns()
        found = read_all(self.cluster.client_addresses(), [SYNC, LAZY], self.folder / "found.json")
        lost: list[int] = []
        for history in (self.sync, self.lazy):
            history.add(noted)
            problems = history.judge(found[history.name], read_at)
            lost.append(len(problems))
            if history is self.sync:
                self._tell(problems)
        self.verdict.lost += lost[0]
        self.verdict.lazy_lost += lost[1]
        return lost[0], lost[1]

    def _tell(self, problems: list[str]) -> None:
        for problem in problems[:SHOWN]:
            self.console.print(problem, style="red", highlight=False, markup=False)


def main(
    rounds: int = 50,
    members: int = 3,
    seed: int | None = None,
    folder: Path | None = None,
    console: Console | None = None,
) -> int:
    """Run the rounds and show what was found; answers 0 when nothing journalled was lost, else 1.

    `folder` keeps the members' files and logs; without it they are thrown away.
    """
    console = console or Console()
    seed = random.randrange(1_000_000) if seed is None else seed  # noqa: S311 - see above
    console.print(
        f"{rounds} rounds of kill -9 of all {members} members, one sync backup, seed {seed}", highlight=False
    )
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-powercut-")))
        try:
            verdict = PowerCut(rounds, members, seed, console, folder).run()
        except HoldfastError as failure:
            console.print(f"The run failed: {failure}", style="red", highlight=False, markup=False)
            return 1
    table = chaos.table(verdict, reads=False)
    table.add_row("rounds, cuts", f"{verdict.rounds}, {verdict.cuts}")
    table.add_row("lazy map: acknowledged, lost", f"{verdict.lazy_acknowledged:,}, {verdict.lazy_lost:,}")
    table.add_row(
        "seconds until served", f"median {median(verdict.served_s):.1f}, longest {max(verdict.served_s):.1f}"
    )
    console.print(table)
    return 0 if verdict.good else 1
