"""What a run of the demo found, as a table on the terminal and as one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from rich.console import Console
from rich.table import Table

from holdfast.demo.hazelcast_writer import Progress
from holdfast.demo.ownership import Timeline
from holdfast.demo.picture import Picture

VERDICTS = ("lost", "diverged")
"""The figures that decide whether the run was good."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of the story and how long it took."""

    title: str
    seconds: float
    detail: str = ""


@dataclass(slots=True)
class Findings:
    """Everything that the demo measured and checked."""

    title: str
    rows: int
    key: tuple[str, ...]
    phases: list[Phase] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    waits: list[Progress] = field(default_factory=list)
    zone_line: Timeline = field(default_factory=Timeline)
    """Who led the partitions of the zone; empty when there was none."""
    zone_waits: list[Progress] = field(default_factory=list)
    migrations: int = 0
    rows_lost: int = 0
    """Rows of the source that the map does not hold, or holds otherwise; and rows it should not hold."""
    writes_lost: int = 0
    """The client's acknowledged writes that were not read back."""
    acknowledged: int = 0
    unknown: int = 0
    wrong_reads: int = 0
    diverged: int = 0
    """Partitions with a replica that differs from its owner."""
    replicas_compared: int = 0
    longest_pause_ms: float = 0.0
    seconds: float = 0.0
    """The whole run, the pauses between the phases too."""
    examples: list[str] = field(default_factory=list)
    """A few differences in words, when there are any."""

    @property
    def lost(self) -> int:
        """Everything that should be there and is not, or is there otherwise."""
        return self.rows_lost + self.writes_lost + self.wrong_reads

    @property
    def good(self) -> bool:
        """Whether nothing was lost and nothing diverged."""
        return self.lost == 0 and self.diverged == 0

    def figures(self) -> list[tuple[str, str, bool]]:
        """What counts: a name, a figure, and whether it is as it should be."""
        return [
            ("rows loaded and compared", f"{self.rows:,}", True),
            ("migrations", f"{self.migrations:,}", True),
            ("replicas compared with their owners", f"{self.replicas_compared:,}", True),
            ("client's acknowledged writes", f"{self.acknowledged:,}", True),
            ("client's unanswered writes", f"{self.unknown:,}", True),
            ("longest pause the client saw", _milliseconds(self.longest_pause_ms), True),
            ("lost", f"{self.lost:,}", self.lost == 0),
            ("diverged", f"{self.diverged:,}", self.diverged == 0),
        ]


def show(findings: Findings, console: Console) -> None:
    """The table at the end of the demo."""
    table = Table(title="The run", title_justify="left", show_header=False, min_width=64)
    table.add_column()
    table.add_column(justify="right")
    for phase in findings.phases:
        table.add_row(phase.title, f"{phase.seconds:.1f} s")
    table.add_row("all, with the pauses between", f"{findings.seconds:.1f} s", end_section=True)
    for name, figure, good in findings.figures():
        mark = "" if good and name not in VERDICTS else "bold green" if good else "bold red"
        table.add_row(name, figure, style=mark)
    console.print(table)
    for example in findings.examples:
        console.print(f"  {example}", style="red", markup=False)


def write_page(findings: Findings, target: Path) -> None:
    """The page: the verdict, the picture, the phases. Nothing in it is fetched from anywhere."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(findings), encoding="utf-8")


def page(findings: Findings) -> str:
    """The page as HTML."""
    verdict = "Nothing lost, nothing diverged." if findings.good else "Data was lost or has diverged."
    drawings = _drawing(
        "Who owned which partition",
        Picture(findings.timeline, findings.waits) if findings.timeline.snapshots else None,
        "Each line of the upper chart is one partition, in the colour of its owner; partitions with the same "
        "story lie together. Sampled ten times a second from the partition table of a member.",
    )
    if findings.zone_line.snapshots:
        drawings += _drawing(
            "Who led which partition of the zone",
            Picture(findings.zone_line, findings.zone_waits, "partitions with all their replicas"),
            "The same for the partitions of the zone, in the colour of the leader, as one member knew it.",
        )
    cards = "".join(
        f'<div class="card {"" if name not in VERDICTS else "fine" if good else "alarm"}">'
        f"<b>{escape(figure)}</b><span>{escape(name)}</span></div>"
        for name, figure, good in sorted(findings.figures(), key=lambda item: item[0] not in VERDICTS)
    )
    examples = "".join(f"<li>{escape(example)}</li>" for example in findings.examples)
    return _PAGE.format(
        style=_STYLE,
        title=escape(f"Holdfast: {findings.rows:,} {findings.title}"),
        verdict=verdict,
        mood="good" if findings.good else "bad",
        story=escape(_story(findings)),
        cards=cards,
        examples=f"<ul class='examples'>{examples}</ul>" if examples else "",
        drawings=drawings,
        phases=_phase_rows(findings.phases),
    )


def _drawing(title: str, picture: Picture | None, note: str) -> str:
    if picture is None:
        return f'<h2>{escape(title)}</h2>\n<div class="sheet"><p>There are no samples.</p></div>'
    names = picture.timeline.names
    legend = "".join(
        f'<li><span class="swatch" style="background:{colour}"></span>{escape(names[member])}</li>'
        for member, colour in picture.colours.items()
    )
    return (
        f'<h2>{escape(title)}</h2>\n<div class="sheet">\n<ul class="legend">{legend}</ul>\n{picture.svg()}\n'
        f'<p class="note">{escape(note)}</p>\n</div>\n'
    )


def _story(findings: Findings) -> str:
    kinds = [event.kind for event in findings.timeline.events]
    return (
        f"Spark loaded {findings.rows:,} rows of {findings.title} (key: {', '.join(findings.key)}). "
        f"While a Hazelcast client kept writing and reading, members were killed ({kinds.count('kill')}), "
        f"joined ({kinds.count('join')}) and were drained ({kinds.count('drain')}). "
        "Then Spark compared every replica with its owner and every row with the file."
    )


def _phase_rows(phases: Sequence[Phase]) -> str:
    longest = max((phase.seconds for phase in phases), default=1.0) or 1.0
    return "".join(
        f"<tr><td>{escape(phase.title)}</td><td class='number'>{phase.seconds:.1f} s</td>"
        f"<td><span class='bar' style='width:{phase.seconds / longest * 220:.0f}px'></span></td>"
        f"<td>{escape(phase.detail)}</td></tr>"
        for phase in phases
    )


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


_STYLE = """
:root { color-scheme: light }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; margin: 0 }
body { color: #1f2933; background: #f7f9fb }
main { max-width: 1160px; margin: 0 auto; padding: 32px 24px 64px }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 18px; margin: 36px 0 10px }
.verdict { font-size: 18px; font-weight: 600; margin: 0 0 10px } .good { color: #2f7d4f } .bad { color: #c0392b }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 12px; margin: 20px 0 }
.card { background: #fff; border: 1px solid #e1e7ec; border-radius: 8px; padding: 12px 14px; color: #1f2933 }
.card b { display: block; font-size: 22px } .card span { color: #52606d; font-size: 13px }
.card.fine b { color: #2f7d4f }
.card.alarm { border-color: #c0392b; background: #fdf1ef } .card.alarm b { color: #c0392b }
.sheet { background: #fff; border: 1px solid #e1e7ec; border-radius: 8px; padding: 14px 16px }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 6px 18px; padding: 0; margin: 0 0 8px }
.swatch { display: inline-block; width: 14px; height: 14px; border-radius: 3px }
.swatch { margin-right: 6px; vertical-align: -2px }
svg { width: 100%; height: auto; display: block; font: 12.5px system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
table { border-collapse: collapse; width: 100% }
td { padding: 5px 10px; border-top: 1px solid #eef2f5; vertical-align: middle }
tr:first-child td { border-top: 0 } td:last-child { color: #52606d }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
.bar { display: inline-block; height: 10px; background: #9db8d3; border-radius: 3px }
.examples { color: #c0392b } p.note { color: #52606d; margin: 8px 0 0; font-size: 13.5px }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body><main>
<h1>{title}</h1>
<p class="verdict {mood}">{verdict}</p>
<p>{story}</p>
<div class="cards">{cards}</div>
{examples}
{drawings}
<h2>Phases</h2>
<div class="sheet"><table>{phases}</table></div>
</main></body>
</html>
"""
