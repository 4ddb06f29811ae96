"""Displays a run in progress: a line for each phase, and the state of members and client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from holdfast_lab.demo.report import Phase
from holdfast_lab.processes.hazelcast_writer import WorkloadProcess
from holdfast_lab.processes.local_cluster import Status
from holdfast_lab.processes.ownership import Sampler

REFRESH_PER_S = 4


class Display:
    """A context manager. On a terminal it is updated continuously, otherwise it prints a line for each finished
    phase.
    """

    def __init__(self, console: Console, phases: list[Phase]) -> None:
        self.console = console
        self.phases = phases
        self.sampler: Sampler | None = None
        self.client: WorkloadProcess | None = None
        self._running = ""
        self._since_s = 0.0
        self._spinner = Spinner("dots")
        self._live = Live(
            get_renderable=self._render, console=console, refresh_per_second=REFRESH_PER_S, transient=True
        )

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    @contextmanager
    def phase(self, title: str) -> Iterator[list[str]]:
        """Text that the block adds to the list is shown next to the title at the end."""
        self._running, self._since_s = title, time.monotonic()
        words: list[str] = []
        yield words
        done = Phase(title, time.monotonic() - self._since_s, ", ".join(words))
        self.phases.append(done)
        self._running = ""
        if not self.console.is_terminal:
            self.console.print(
                f"{done.seconds:7.1f} s  {done.title}  {done.detail}".rstrip(), highlight=False
            )

    def _render(self) -> Group:
        steps = Table.grid(padding=(0, 1))
        for phase in self.phases:
            steps.add_row(
                Text("✓", "green"), phase.title, f"{phase.seconds:.1f} s", Text(phase.detail, "dim")
            )
        if self._running:
            steps.add_row(
                self._spinner, Text(self._running, "bold"), f"{time.monotonic() - self._since_s:.1f} s", ""
            )
        parts: list[Table | Text] = [steps]
        if self.sampler is not None and self.sampler.status:
            parts += [Text(""), _members(self.sampler.status)]
        if self.client is not None:
            parts += [Text(""), _client(self.client)]
        return Group(*parts)


def _members(status: Status) -> Table:
    table = Table.grid(padding=(0, 2))
    members = status.members
    most = max([1, *(member.primaries for member in members)])
    for member in members:
        bar = ProgressBar(total=most, completed=member.primaries, width=36, complete_style="blue")
        role = "master" if member.master else ""
        table.add_row(member.name, bar, f"{member.primaries} owned, {member.backups} backups", role)
    moving = status.migrations.active + status.migrations.queued
    safe = (
        Text("all copies complete", "green") if status.safe else Text("copies are being restored", "yellow")
    )
    table.add_row("", safe, f"{moving} migrations to do" if moving else "", f"table {status.table.version}")
    return table


def _client(client: WorkloadProcess) -> Text:
    now = client.progress
    return Text(
        f"client: {now.acknowledged:,} writes acknowledged, {now.read:,} reads, "
        f"longest pause {now.longest_pause_ms:,.0f} ms",
        "cyan",
    )
