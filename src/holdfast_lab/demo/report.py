"""Findings of a demo run, as a table for the terminal and as a self-contained page."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Self

import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.runtime.http.console_files import console_text
from holdfast.version import __version__
from holdfast_lab.demo.picture import Picture
from holdfast_lab.processes.campaign import CampaignVerdict
from holdfast_lab.processes.hazelcast_writer import Progress
from holdfast_lab.processes.ownership import Timeline

CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Phase:
    title: str
    seconds: float
    detail: str = ""


@dataclass
class Findings(CampaignVerdict):
    title: str
    rows: int
    key: tuple[str, ...]
    phases: list[Phase] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    waits: list[Progress] = field(default_factory=list)
    zone_line: Timeline = field(default_factory=Timeline)
    zone_waits: list[Progress] = field(default_factory=list)
    zone: bool = False
    rows_restored: int = 0
    """Rows that were compared after a restore into another cluster."""
    restored_lost: int = 0
    """The missing, different and additional ones."""
    not_restored: int = 0
    """Maps whose restored content is not that of the export."""
    migrations: int = 0
    rows_lost: int = 0
    writes_lost: int = 0
    acknowledged: int = 0
    unknown: int = 0
    wrong_reads: int = 0
    diverged: int = 0
    replicas_compared: int = 0
    longest_pause_ms: float = 0.0

    @property
    def lost(self) -> int:
        return self.rows_lost + self.restored_lost + self.not_restored + self.writes_lost + self.wrong_reads

    def facts(self) -> dict[str, str]:
        return {
            "rows loaded and compared": f"{self.rows:,}",
            **({"rows restored elsewhere and compared": f"{self.rows_restored:,}"} if self.zone else {}),
            "migrations": f"{self.migrations:,}",
            "replicas compared with their owners": f"{self.replicas_compared:,}",
            "client's acknowledged writes": f"{self.acknowledged:,}",
            "client's unanswered writes": f"{self.unknown:,}",
            "longest pause the client saw": _milliseconds(self.longest_pause_ms),
        }

    def failures(self) -> dict[str, int]:
        return {"lost": self.lost, "diverged": self.diverged, **super().failures()}


@dataclass(frozen=True, slots=True)
class Circumstances:
    date: str
    version: str
    machine: str
    command: str

    @classmethod
    def now(cls) -> Self:
        cores = os.cpu_count() or 0
        return cls(
            datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z"),
            f"Holdfast {__version__}, Python {platform.python_version()}",
            f"{cores} cores, {_processor()}, {platform.system()} {platform.release()}",
            shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        )


def _processor() -> str:
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def show(findings: Findings, console: Console) -> None:
    table = Table(title="The run", title_justify="left", show_header=False, min_width=64)
    table.add_column()
    table.add_column(justify="right")
    for phase in findings.phases:
        table.add_row(phase.title, f"{phase.seconds:.1f} s")
    table.add_row("all, with the pauses between", f"{findings.seconds:.1f} s", end_section=True)
    findings.add_rows(table)
    console.print(table)
    for problem in findings.problems:
        console.print(f"  {problem}", style="red", markup=False)


def write_page(findings: Findings, target: Path) -> None:
    """Write the page: the verdict, the picture, the phases. It loads nothing from elsewhere."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(findings), encoding="utf-8")


def page(findings: Findings, run: Circumstances | None = None) -> str:
    run = run or Circumstances.now()
    verdict = "Nothing lost, nothing diverged."
    if not findings.good:
        verdict = (
            f"The run ended early: {findings.failure}"
            if findings.failure
            else "Data was lost or has diverged."
        )
    stories: list[dict[str, object]] = []
    if findings.timeline.snapshots:
        stories.append(
            {
                **Picture(findings.timeline, findings.waits).story(),
                "title": "Who owned which partition",
                "note": "Each line of the upper chart is one partition, in the colour of its owner; partitions with "
                "the same story lie together. Sampled ten times a second from the partition table of a member.",
            }
        )
    if findings.zone_line.snapshots:
        stories.append(
            {
                **Picture(
                    findings.zone_line, findings.zone_waits, "partitions with all their replicas"
                ).story(),
                "title": "Who led which partition of the zone",
                "note": "The same for the partitions of the zone, in the colour of the leader, as one member knew it.",
            }
        )
    cards = "".join(
        f'<div class="card {kind}"><b>{escape(figure)}</b><span>{escape(name)}</span></div>'
        for name, figure, kind in (
            *(
                (name, f"{count:,}", "alarm" if count else "fine")
                for name, count in findings.failures().items()
            ),
            *((name, figure, "") for name, figure in findings.facts().items()),
        )
    )
    examples = "".join(f"<li>{escape(problem)}</li>" for problem in findings.problems)
    return _PAGE.format(
        style=console_text("look.css") + _STYLE,
        script=console_text("ownership.js").replace("\nexport ", "\n") + _SCRIPT,
        stories=msgspec.json.encode(stories).decode().replace("<", "\\u003c"),
        pictures="" if stories else '<div class="sheet"><p>There are no samples.</p></div>',
        title=escape(f"Holdfast: {findings.rows:,} {findings.title}"),
        verdict=escape(verdict),
        mood="good" if findings.good else "bad",
        story=escape(_story(findings)),
        cards=cards,
        examples=f"<ul class='examples'>{examples}</ul>" if examples else "",
        phases=_phase_rows(findings.phases),
        date=escape(run.date),
        version=escape(run.version),
        machine=escape(run.machine),
        command=escape(run.command),
    )


def _story(findings: Findings) -> str:
    kinds = [event.kind for event in findings.timeline.events]
    where = " into a map in a zone" * findings.zone
    restored = (
        " An export at a cut, taken while clients wrote, was restored into another cluster and compared with the file."
    ) * findings.zone
    return (
        f"Spark loaded {findings.rows:,} rows of {findings.title}{where} (key: {', '.join(findings.key)}). "
        f"While a Hazelcast client kept writing and reading, members were killed ({kinds.count('kill')}), "
        f"joined ({kinds.count('join')}) and were drained ({kinds.count('drain')}). "
        f"Then Spark compared every replica with its owner and every row with the file.{restored}"
    )


def _phase_rows(phases: Sequence[Phase]) -> str:
    longest = max((phase.seconds for phase in phases), default=1.0) or 1.0
    return "".join(
        f"<span>{escape(phase.title)}</span><span class='number'>{phase.seconds:.1f} s</span>"
        f"<span class='length'><span class='bar' style='width:{phase.seconds / longest * 100:.0f}%'></span></span>"
        f"<span class='detail quiet'>{escape(phase.detail)}</span>"
        for phase in phases
    )


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


_STYLE = """
main { position: relative }
#theme { position: absolute; right: 20px; top: 20px; font: inherit; font-size: 14px; color: var(--quiet) }
#theme { background: none; border: 1px solid var(--line); border-radius: 6px; padding: 4px 10px; cursor: pointer }
h1 { padding-right: 90px }
.cards { grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)) }
h3 { font-size: 14px; font-weight: 400; margin: 14px 0 0 }
.phases { display: grid; grid-template-columns: max-content max-content minmax(40px, 220px) 1fr; gap: 6px 16px }
.phases { font-size: 14px; align-items: center }
.phases .number { color: var(--ink) }
@media (max-width: 640px) {
  .cards { grid-template-columns: repeat(2, 1fr) }
  .phases { grid-template-columns: 1fr max-content }
  .phases .length { display: none }
  .phases .detail { grid-column: 1 / -1; margin: -6px 0 6px }
  #theme { right: 12px; top: 10px }
}
"""

_SCRIPT = """
const make = (name, parent, words = "", className = "") => {
  const element = document.createElement(name);
  element.textContent = words;
  element.className = className;
  parent.append(element);
  return element;
};
themeSwitch(document.getElementById("theme"));
for (const story of JSON.parse(document.getElementById("stories").textContent)) {
  const place = document.getElementById("pictures");
  make("h2", place, story.title);
  const sheet = make("div", place, "", "sheet");
  legend(make("ul", sheet, "", "legend"), story.members);
  new OwnershipOverTime(make("div", sheet), { height: 488 }).show(story);
  const strip = (title, options) => {
    make("h3", sheet, title);
    new Strip(make("div", sheet), { label: title, begin: story.begin, end: story.end, marks: story.marks, ...options });
  };
  strip(story.copies_title, { points: story.copies, kind: "area", words: (count) => `${count} copies` });
  strip(story.waits_title, { points: story.waits, kind: "bars", words: (ms) => `${ms} ms` });
  make("p", sheet, story.note, "note");
}
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body><main>
<button id="theme" type="button"></button>
<h1>{title}</h1>
<p class="verdict {mood}">{verdict}</p>
<p>{story}</p>
<div class="cards">{cards}</div>
{examples}
<noscript><p class="note">The pictures need JavaScript.</p></noscript>
<div id="pictures">{pictures}</div>
<h2>Phases</h2>
<div class="sheet phases">{phases}</div>
<h2>The run</h2>
<div class="sheet"><dl class="facts">
<dt>When</dt><dd>{date}</dd>
<dt>Version</dt><dd>{version}</dd>
<dt>Machine</dt><dd>{machine}</dd>
<dt>Command</dt><dd><code>{command}</code></dd>
</dl></div>
<script type="application/json" id="stories">{stories}</script>
<script type="module">{script}</script>
</main></body>
</html>
"""
