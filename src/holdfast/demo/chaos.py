"""Rounds of kill -9 under load: a random member is killed, copies are restored, another member joins; nothing is lost.

    python -m holdfast.demo.chaos --rounds 20 --seed 7

Official Hazelcast clients write all the while, each in its own process and map, and remember what was acknowledged. At
the end everything acknowledged is read back, and every replica is compared with its owner.
"""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from holdfast.client.verify import diverged
from holdfast.demo.cluster import LocalCluster
from holdfast.demo.workload import WorkloadProcess, read_back
from holdfast.errors import HoldfastError

CONFIG = "[maps.default]\nbackups = 1\n"
LOAD_S = 1.0
"""How long the clients write undisturbed before each kill, at least; a random part of it is added."""
SAFE_S = 90.0


@dataclass(slots=True)
class Verdict:
    """What a run found."""

    acknowledged: int = 0
    unknown: int = 0
    wrong_reads: int = 0
    lost: int = 0
    diverged: int = 0

    @property
    def good(self) -> bool:
        """Whether every acknowledged write was read back, and all copies are alike."""
        return not (self.lost or self.diverged or self.wrong_reads)


class Chaos:
    """One run, replayable in its choices (not in its timing) by its seed."""

    def __init__(self, rounds: int, members: int, clients: int, seed: int, console: Console) -> None:
        self.rounds = rounds
        self.clients = clients
        self.console = console
        self.dice = random.Random(seed)  # noqa: S311 - which member dies is no secret
        self.cluster = LocalCluster(members, CONFIG)
        self.writers: list[WorkloadProcess] = []

    def run(self) -> Verdict:
        """All rounds, and the comparisons after them."""
        with ExitStack() as stack:
            stack.enter_context(self.cluster)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-chaos-")))
            self.cluster.wait_settled(SAFE_S)
            addresses = self.cluster.client_addresses()
            for number in range(self.clients):
                log = self.cluster.log_dir / f"client-{number}.log"
                writer = WorkloadProcess(addresses, f"chaos-{number}", folder / f"{number}.json", log)
                self.writers.append(stack.enter_context(writer))
            for writer in self.writers:
                writer.wait_started()
            for number in range(1, self.rounds + 1):
                self._round(number)
            return self._judge()

    def _round(self, number: int) -> None:
        time.sleep(LOAD_S * (1 + self.dice.random()))
        victim = self.dice.choice(self.cluster.alive)
        was_master = self.cluster.status()["master"] == victim.uuid
        begun_s = time.monotonic()
        self.cluster.kill(victim)
        self.cluster.wait_safe(SAFE_S)
        restored_s = time.monotonic() - begun_s
        joined = self.cluster.start_member()
        self.cluster.wait_settled(SAFE_S)
        self.console.print(
            f"round {number:3}: killed {victim.name}{' (the master)' if was_master else ''}, "
            f"copies restored in {restored_s:.1f} s, {joined.name} joined; "
            f"{sum(writer.progress.acknowledged for writer in self.writers):,} writes acknowledged",
            highlight=False,
        )

    def _judge(self) -> Verdict:
        verdict = Verdict()
        for writer in self.writers:
            last = writer.finish()
            answer = read_back(self.cluster.client_addresses(), writer.name, writer.ledger)
            verdict.acknowledged += last.acknowledged
            verdict.unknown += last.unknown
            verdict.wrong_reads += last.wrong_reads
            verdict.lost += int(answer["lost"])
            for key in answer["examples"]:
                self.console.print(f"lost: key {key} of map {writer.name}", style="red")
        differences = diverged(self.cluster.client_addresses()[0])
        verdict.diverged = len(differences)
        for difference in differences[:10]:
            self.console.print(difference, style="red", highlight=False)
        return verdict


def table(verdict: Verdict, *, reads: bool = True) -> Table:
    """What was found, for the terminal. `reads`: whether the clients read while they wrote."""
    found = Table(show_header=False)
    found.add_row("writes acknowledged", f"{verdict.acknowledged:,}")
    found.add_row("writes not answered", f"{verdict.unknown:,}")
    if reads:
        found.add_row("wrong reads", f"{verdict.wrong_reads:,}")
    for name, count in (("lost", verdict.lost), ("diverged", verdict.diverged)):
        found.add_row(name, f"{count:,}", style="bold red" if count else "bold green")
    return found


def main(
    rounds: int = 20,
    members: int = 4,
    clients: int = 2,
    seed: int | None = None,
    console: Console | None = None,
) -> int:
    """Run the rounds and show what was found; answers 0 when nothing was lost, else 1."""
    console = console or Console()
    seed = random.randrange(1_000_000) if seed is None else seed  # noqa: S311 - see above
    console.print(
        f"{rounds} rounds of kill -9, {members} members, one sync backup, seed {seed}", highlight=False
    )
    try:
        verdict = Chaos(rounds, members, clients, seed, console).run()
    except HoldfastError as failure:
        console.print(f"The run failed: {failure}", style="red", highlight=False, markup=False)
        return 1
    console.print(table(verdict))
    return 0 if verdict.good else 1


@click.command()
@click.option("--rounds", default=20, show_default=True)
@click.option("--members", default=4, show_default=True)
@click.option("--clients", default=2, show_default=True)
@click.option("--seed", type=int, help="Which members die; random by default.")
def command(rounds: int, members: int, clients: int, seed: int | None) -> None:
    """Kill members under load and see whether anything is lost."""
    raise SystemExit(main(rounds, members, clients, seed))


if __name__ == "__main__":
    command()
