"""Driver of campaigns on real processes: prepare a cluster and its load, rounds of faults, judgement, report.

A campaign defines its cluster, a round (the nemesis), its load, and the judgement. The driver has the rest:
folders, the number or time of rounds, an orderly end after a failure, the table of findings, JSON and the
exit status.
"""

from __future__ import annotations

import json
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import click
from rich.console import Console
from rich.table import Table

from holdfast.errors import HoldfastError

SHOWN = 10


@dataclass(kw_only=True)
class CampaignVerdict:
    rounds: int = 0
    seconds: float = 0.0
    failure: str = ""
    """Why the rounds ended early; empty if they did not."""
    problems: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, str]:
        return {"rounds": f"{self.rounds} in {self.seconds:.0f} s"}

    def failures(self) -> dict[str, int]:
        """Counts that have to be 0, by name."""
        return {"stuck": int(bool(self.failure))}

    @property
    def good(self) -> bool:
        return not any(self.failures().values())

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "good": self.good}

    def add_rows(self, found: Table) -> None:
        for name, value in self.facts().items():
            found.add_row(name, value)
        for name, count in self.failures().items():
            found.add_row(name, f"{count:,}", style="bold red" if count else "bold green")


V = TypeVar("V", bound=CampaignVerdict)


class Campaign(ABC, Generic[V]):
    """One run. Its choices, but not its timing, are determined by its seed."""

    rounds = 0
    """0: as many as begin within `seconds`."""
    seconds = 0.0
    judges_failures = True
    """Whether the responses are judged also after a failed round."""

    def __init__(self, verdict: V, console: Console, keep: Path | None = None) -> None:
        """`keep`: folder for logs, files and histories, which are deleted otherwise."""
        self.verdict = verdict
        self.console = console
        self.keep = keep

    @abstractmethod
    def prepare(self, stack: ExitStack, folder: Path) -> None:
        """Start the cluster and its load; `stack` ends them. Raises HoldfastError."""

    @abstractmethod
    def round(self, number: int) -> str:
        """One round of faults, until the cluster has recovered; in words, if any. Raises HoldfastError."""

    @abstractmethod
    def judge(self) -> None:
        """End the load, and judge its responses and the copies. Raises HoldfastError, OSError."""

    def run(self) -> V:
        """Raises HoldfastError if the cluster does not start."""
        with ExitStack() as stack:
            folder = self.keep or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-campaign-"))
            )
            folder.mkdir(parents=True, exist_ok=True)
            self.prepare(stack, folder)
            verdict = self.verdict
            try:
                self._run_rounds()
            except HoldfastError as failure:
                verdict.failure = str(failure)
            if self.judges_failures or not verdict.failure:
                try:
                    self.judge()
                except (HoldfastError, OSError) as failure:
                    verdict.failure = verdict.failure or str(failure)
        return verdict

    def _run_rounds(self) -> None:
        verdict = self.verdict
        begun_s = time.monotonic()
        while verdict.rounds < self.rounds or (not self.rounds and time.monotonic() < begun_s + self.seconds):
            words = self.round(verdict.rounds + 1)
            verdict.rounds += 1
            verdict.seconds = time.monotonic() - begun_s
            if words:
                self.say(f"round {verdict.rounds:3}: {words}")

    def say(self, words: str, style: str = "") -> None:
        self.console.print(words, style=style, highlight=False, markup=False)

    def show(self) -> None:
        for problem in self.verdict.problems:
            self.say(problem, "red")
        found = Table(show_header=False)
        self.verdict.add_rows(found)
        self.console.print(found)
        if self.verdict.failure:
            self.say(self.verdict.failure, "red")


def run_campaign(campaign: Campaign[V], headline: str = "", as_json: dict[str, object] | None = None) -> int:
    """Returns the exit status: 0 good, 1 not. `as_json`: also print one object with these keys and those of
    the verdict's `as_dict`.
    """
    if headline:
        campaign.say(headline)
    try:
        verdict = campaign.run()
    except HoldfastError as failure:
        campaign.say(f"The run failed: {failure}", "red")
        return 1
    campaign.show()
    if as_json is not None:
        click.echo(json.dumps({**as_json, **verdict.as_dict()}))
    return 0 if verdict.good else 1
