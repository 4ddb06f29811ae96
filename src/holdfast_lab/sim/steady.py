"""Records the times during which a fact stayed the same: promises for stable times are stricter than during
faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import World

What = TypeVar("What")
LOOK_NS = 100 * MILLISECOND


class Spans(Generic[What]):
    def __init__(self) -> None:
        self._seen: list[tuple[int, int, What | None]] = []

    def note(self, now_ns: int, what: What | None, *, sure: bool = True) -> None:
        """Record the present value, if any. `sure` false: it may have changed already."""
        if not self._seen or self._seen[-1][2] != what:
            self._seen.append((now_ns, now_ns, what))
        elif sure:
            self._seen[-1] = (self._seen[-1][0], now_ns, what)

    def over(self, start_ns: int, end_ns: int) -> What | None:
        """The value during the whole time; None if there was none, or if it began or ended exactly at the
        start or the end, because the order is not known then.
        """
        for at, (begin, end, what) in enumerate(self._seen):
            if begin <= start_ns and end_ns <= end:
                came = at and self._seen[at - 1][1] == start_ns
                went = at + 1 < len(self._seen) and self._seen[at + 1][0] == end_ns
                return None if came or went else what
        return None

    def begun(self) -> list[tuple[int, What]]:
        return [(begin, what) for begin, _, what in self._seen if what is not None]


@dataclass(frozen=True, slots=True)
class Office:
    """Primary of a partition, and the assignment version with which it began to serve; or leader of its group."""

    member: str
    term: int
    in_zone: bool = False


class Serving(Protocol):
    @property
    def term(self) -> int: ...


class Offices:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.running = True
        self._of: list[Spans[Office]] = [Spans() for _ in range(cluster.settings.partitions.count)]

    def start(self) -> None:
        if self.running:
            self.look()
            self.world.after(LOOK_NS, self.start)

    def look(self) -> None:
        pictures = self.cluster.pictures()
        self._note(
            [(picture.me, picture.leading) for picture in pictures],
            [picture.assignments for picture in pictures],
        )

    def _note(
        self,
        serving: Sequence[tuple[MemberId, Sequence[Serving | None]]],
        tables: Sequence[Sequence[Assignment]],
        *,
        in_zone: bool = False,
    ) -> None:
        """Services of each partition, by member. If two serve at once, it is unknown which one made a change.
        `tables`: as the members know them. A primary does not count when a newer row names another one: it
        may have been paused or cut off, and its successor may serve, or have served, between two looks.
        """
        found: list[Office | None] = [None] * len(self._of)
        rivals: list[int] = []
        for member, of_partitions in serving:
            for partition, served in enumerate(of_partitions):
                if served is not None:
                    if found[partition] is not None:
                        rivals.append(partition)
                    found[partition] = Office(member, served.term, in_zone)
        for partition in [*rivals, *_replaced(found, tables)]:
            found[partition] = None
        for spans, office in zip(self._of, found, strict=True):
            spans.note(self.world.now_ns, office)

    def over(self, partition: int, start_ns: int, end_ns: int) -> Office | None:
        return self._of[partition].over(start_ns, end_ns)

    def begun(self, partition: int, member: str) -> list[int]:
        first: dict[Office, int] = {}
        for seen_ns, office in self._of[partition].begun():
            if office.member == member:
                first.setdefault(office, seen_ns - LOOK_NS)
        return list(first.values())


def _replaced(found: Sequence[Office | None], tables: Sequence[Sequence[Assignment]]) -> Iterator[int]:
    for partition, office in enumerate(found):
        if office is not None and tables:
            newest = max((table[partition] for table in tables), key=lambda row: row.version)
            if newest.version > office.term and newest.owner != office.member:
                yield partition


class ZoneOffices(Offices):
    """Leaders of groups for a map that may move into a zone and out of it; primaries while it is in no zone."""

    def __init__(self, world: World, cluster: Cluster, map_name: str) -> None:
        super().__init__(world, cluster)
        self._map = map_name

    def look(self) -> None:
        pictures = self.cluster.pictures()
        newest = max((picture.view.number for picture in pictures if picture.view is not None), default=0)
        current = [
            picture for picture in pictures if picture.view is not None and picture.view.number == newest
        ]
        in_zone = {picture.copies.zone_entries(self._map) is not None for picture in current}
        if in_zone == {True}:
            zones = [
                (picture.me, zone)
                for picture in pictures
                if (zone := picture.copies.zone_entries(self._map)) is not None
            ]
            serving = [(member, zone.serving) for member, zone in zones]
            self._note(serving, [zone.leaders for _, zone in zones], in_zone=True)
        elif in_zone == {False}:
            super().look()
        else:
            # It moves, and not every member knows that yet.
            self._note([], [])
