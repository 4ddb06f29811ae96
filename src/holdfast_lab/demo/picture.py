"""Data for the pictures of a run: owners of partitions over time, numbers of copies, waiting times of a client.
The console's own code draws them (`console/ownership.js`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast_lab.processes.hazelcast_writer import Progress
from holdfast_lab.processes.ownership import Event, Timeline

EVENT_WORDS = {"kill": "killed", "join": "joined", "drain": "drained"}
MARGIN_S = 1.0
TOGETHER_S = 1.0
"""Events of one kind this close together share a mark."""


class Picture:
    def __init__(
        self, timeline: Timeline, waits: Sequence[Progress], copies: str = "copies of all partitions"
    ) -> None:
        """`copies`: label of the timeline's copies."""
        self.timeline = timeline
        self.copies = copies
        self.waits = waits
        self.begin_s, self.end_s = self._span()
        self.snapshots = [item for item in timeline.snapshots if self.begin_s <= item.at_s <= self.end_s]
        names = sorted(timeline.names, key=lambda uuid: (len(timeline.names[uuid]), timeline.names[uuid]))
        self.places = {uuid: place for place, uuid in enumerate(names)}

    def _span(self) -> tuple[float, float]:
        first, last = self.timeline.snapshots[0].at_s, self.timeline.snapshots[-1].at_s
        if self.waits:
            first = max(first, self.waits[0].at_s - MARGIN_S)
            last = min(last, self.waits[-1].at_s + MARGIN_S)
        return first, max(last, first + 1)

    def ms(self, at_s: float) -> int:
        return round(1000 * (min(max(at_s, self.begin_s), self.end_s) - self.begin_s))

    def story(self) -> dict[str, object]:
        full = max(1, *(snapshot.copies for snapshot in self.snapshots))
        lowest = min(snapshot.copies for snapshot in self.snapshots)
        longest = max((item.pause_ms for item in self.waits), default=0.0)
        return {
            "members": [
                {"name": self.timeline.names[uuid], "place": place} for uuid, place in self.places.items()
            ],
            "begin": 0,
            "end": self.ms(self.end_s),
            **self._owners(),
            "marks": [
                {
                    "at": self.ms(event.at_s),
                    "text": f"{', '.join(members)} {EVENT_WORDS.get(event.kind, event.kind)}",
                    "alarm": event.kind == "kill",
                }
                for event, members in grouped(self.timeline.events)
                if self.begin_s <= event.at_s <= self.end_s
            ],
            "copies": [[self.ms(item.at_s), item.copies] for item in self.snapshots],
            "copies_title": f"{self.copies}: {full} when complete, {lowest} at the lowest",
            "waits": [[self.ms(item.at_s), round(item.pause_ms)] for item in self.waits],
            "waits_title": f"the client's longest wait in each quarter second: at most {longest:,.0f} ms",
        }

    def _owners(self) -> dict[str, object]:
        first: list[list[int]] = []
        changes: list[tuple[int, int, list[int]]] = []
        for partition, line in enumerate(self.timeline.stretches()):
            shown = [part for part in line if part.end_s >= self.begin_s and part.begin_s <= self.end_s]
            owners = [self.places.get(part.owner, -1) for part in shown] or [-1]
            first.append([owners[0]])
            changes += [
                (self.ms(part.begin_s), partition, [owner])
                for part, owner in zip(shown[1:], owners[1:], strict=True)
            ]
        return {"base": first, "changes": sorted(changes)}


def grouped(events: Iterable[Event]) -> list[tuple[Event, list[str]]]:
    """Combine events of one kind at nearly one time, with the names of all members."""
    found: list[tuple[Event, list[str]]] = []
    for event in sorted(events, key=lambda one: one.at_s):
        if found and found[-1][0].kind == event.kind and event.at_s - found[-1][0].at_s < TOGETHER_S:
            found[-1][1].append(event.member)
        else:
            found.append((event, [event.member]))
    return found
