"""Draws a run as one SVG: who owned which partition over time, how many copies there were, how long a client waited."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import log10

from holdfast.demo.hazelcast_writer import Progress
from holdfast.demo.ownership import Event, Timeline

COLOURS = (
    *("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948"),
    *("#e15759", "#9c755f", "#ff9da7", "#86bcb6", "#d37295", "#a0cbe8"),
)
NOBODY = "#ffffff"
INK, FAINT, ALARM, BARS = "#1f2933", "#9aa5b1", "#c0392b", "#5b7fa6"

WIDTH, LEFT, RIGHT = 1080, 64, 16
TOP = 46
RASTER_HEIGHT = 488
STRIP_HEIGHT = 64
GAP = 40
EVENT_WORDS = {"kill": "killed", "join": "joined", "drain": "drained"}
MARGIN_S = 1.0
"""Shown before the client began and after it ended."""

TOGETHER_S = 1.0
"""Events of one kind this close together share a mark."""


class Picture:
    """One drawing. Coordinates are pixels; time runs to the right."""

    def __init__(
        self, timeline: Timeline, waits: Sequence[Progress], copies: str = "copies of all partitions"
    ) -> None:
        """`copies`: what the timeline counts as copies."""
        self.timeline = timeline
        self.copies = copies
        self.waits = waits
        self.begin_s, self.end_s = self._span()
        self.snapshots = [item for item in timeline.snapshots if self.begin_s <= item.at_s <= self.end_s]
        names = sorted(timeline.names, key=lambda uuid: (len(timeline.names[uuid]), timeline.names[uuid]))
        self.colours = {uuid: COLOURS[index % len(COLOURS)] for index, uuid in enumerate(names)}
        self.parts: list[str] = []

    def _span(self) -> tuple[float, float]:
        """The time in which something happened: while the client ran, within the samples."""
        first, last = self.timeline.snapshots[0].at_s, self.timeline.snapshots[-1].at_s
        if self.waits:
            first = max(first, self.waits[0].at_s - MARGIN_S)
            last = min(last, self.waits[-1].at_s + MARGIN_S)
        return first, max(last, first + 1)

    def x(self, at_s: float) -> float:
        """Where a moment is."""
        share = (at_s - self.begin_s) / (self.end_s - self.begin_s)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def svg(self) -> str:
        """The drawing, complete."""
        copies_top = TOP + RASTER_HEIGHT + GAP
        wait_top = copies_top + STRIP_HEIGHT + GAP
        bottom = wait_top + STRIP_HEIGHT
        self._raster(TOP, RASTER_HEIGHT)
        self._copies(copies_top, STRIP_HEIGHT)
        self._waits(wait_top, STRIP_HEIGHT)
        self._events(TOP - 8, bottom)
        self._axis(bottom)
        height = bottom + 40
        return (
            f'<svg viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg" '
            f'aria-label="Owners of the partitions over time">{"".join(self.parts)}</svg>'
        )

    # -- the three charts

    def _raster(self, top: float, height: float) -> None:
        """A line of pixels for each partition, in the colour of its owner. Lines with the same story lie together."""
        lines = self.timeline.stretches()
        rank = {uuid: index for index, uuid in enumerate(self.colours)}
        lines.sort(
            key=lambda line: ([rank.get(part.owner, -1) for part in line], [part.begin_s for part in line])
        )
        step = height / max(1, len(lines))
        paths: dict[str, list[str]] = {}
        for index, line in enumerate(lines):
            y = top + index * step
            for stretch in line:
                left, right = self.x(stretch.begin_s), self.x(stretch.end_s)
                if right > left:
                    piece = f"M{left:.1f} {y:.2f}h{right - left:.1f}v{step + 0.15:.2f}h{left - right:.1f}z"
                    paths.setdefault(stretch.owner, []).append(piece)
        for owner, pieces in paths.items():
            name = self.timeline.names.get(owner, "nobody")
            colour = self.colours.get(owner, NOBODY)
            self.parts.append(
                f'<path fill="{colour}" d="{"".join(pieces)}"><title>{escape(name)}</title></path>'
            )
        self._frame(top, height, "")
        self._rotated(f"{len(lines)} partitions", top + height / 2)

    def _copies(self, top: float, height: float) -> None:
        """How many replicas there were: full, or fewer after a crash until they are restored."""
        snapshots = self.snapshots
        full = max(1, *(snapshot.copies for snapshot in snapshots))
        points = [(self.x(item.at_s), top + height * (1 - item.copies / full)) for item in snapshots]
        self._area(points, top + height, "#7fb685")
        lowest = min(snapshot.copies for snapshot in snapshots)
        self._frame(top, height, f"{self.copies}: {full} when complete, {lowest} at the lowest")

    def _waits(self, top: float, height: float) -> None:
        """The client's longest wait in each quarter of a second, on a logarithmic scale."""
        longest = max([item.pause_ms for item in self.waits], default=0.0)
        decades = max(1.0, log10(max(longest, 1.0) * 1.2))
        for power in range(1, int(decades) + 1):
            y = top + height * (1 - power / decades)
            self.parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e9ee"/>'
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">{_short(10.0**power)}</text>'
            )
        for item in self.waits:
            tall = height * log10(max(1.0, item.pause_ms)) / decades
            x = self.x(item.at_s)
            self.parts.append(
                f'<rect x="{x - 1.5:.1f}" y="{top + height - tall:.1f}" width="2.4" height="{tall:.1f}" fill="{BARS}"/>'
            )
        self._frame(
            top, height, f"the client's longest wait in each quarter second: at most {longest:,.0f} ms"
        )

    # -- what surrounds them

    def _events(self, top: float, bottom: float) -> None:
        for event, members in grouped(self.timeline.events):
            x = self.x(event.at_s)
            words = f"{', '.join(members)} {EVENT_WORDS.get(event.kind, event.kind)}"
            colour = ALARM if event.kind == "kill" else INK
            anchor = "start" if x < WIDTH - 160 else "end"
            shift = 4 if anchor == "start" else -4
            self.parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 14}" y2="{bottom}" stroke="{colour}" stroke-width="1.4" '
                f'stroke-dasharray="4 3"/>'
                f'<text x="{x + shift:.1f}" y="{top - 6}" fill="{colour}" text-anchor="{anchor}" '
                f'font-weight="600">{escape(words)}</text>'
            )

    def _axis(self, bottom: float) -> None:
        span = self.end_s - self.begin_s
        step = next(
            size
            for size in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3600)
            if span / size <= 12 or size == 3600
        )
        moment = 0
        while moment <= span:
            x = self.x(self.begin_s + moment)
            self.parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="{FAINT}"/>'
                f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="middle" fill="{INK}">{moment} s</text>'
            )
            moment += step

    def _frame(self, top: float, height: float, title: str) -> None:
        self.parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{height}" fill="none" '
            f'stroke="{FAINT}"/>'
            f'<text x="{LEFT}" y="{top - 8}" fill="{INK}">{escape(title)}</text>'
        )

    def _rotated(self, words: str, middle: float) -> None:
        self.parts.append(
            f'<text transform="translate({LEFT - 14} {middle}) rotate(-90)" text-anchor="middle" fill="{INK}">'
            f"{escape(words)}</text>"
        )

    def _area(self, points: list[tuple[float, float]], floor: float, colour: str) -> None:
        way = " ".join(f"L{x:.1f} {y:.1f}" for x, y in points)
        first, last = points[0][0], points[-1][0]
        self.parts.append(f'<path fill="{colour}" d="M{first:.1f} {floor} {way} L{last:.1f} {floor}z"/>')


def _short(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.0f} s"


def grouped(events: Iterable[Event]) -> list[tuple[Event, list[str]]]:
    """Events of one kind at nearly one time, as one with the names of all its members."""
    found: list[tuple[Event, list[str]]] = []
    for event in events:
        if found and found[-1][0].kind == event.kind and event.at_s - found[-1][0].at_s < TOGETHER_S:
            found[-1][1].append(event.member)
        else:
            found.append((event, [event.member]))
    return found
