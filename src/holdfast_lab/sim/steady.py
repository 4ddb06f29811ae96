"""When did something stay as it was? What happens at rest is promised more about than what happens under faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import World

What = TypeVar("What")
LOOK_NS = 100 * MILLISECOND
"""Between two looks: what changes and changes back meanwhile is not seen."""


class Spans(Generic[What]):
    """From when until when something was seen to be one and the same, look by look."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, int, What | None]] = []
        """First and last look at which it was so."""

    def note(self, now_ns: int, what: What | None, *, sure: bool = True) -> None:
        """It is so now; None: there is nothing to be seen. Not `sure`: it may turn out not to have been so since."""
        if not self._seen or self._seen[-1][2] != what:
            self._seen.append((now_ns, now_ns, what))
        elif sure:
            self._seen[-1] = (self._seen[-1][0], now_ns, what)

    def over(self, start_ns: int, end_ns: int) -> What | None:
        """What it was all the time; None if there was no such thing, or if it became so, or ended, in the very moment
        of the start or of the end: nobody can say then what came first.
        """
        for at, (begin, end, what) in enumerate(self._seen):
            if begin <= start_ns and end_ns <= end:
                came = at and self._seen[at - 1][1] == start_ns
                went = at + 1 < len(self._seen) and self._seen[at + 1][0] == end_ns
                return None if came or went else what
        return None

    def begun(self) -> list[tuple[int, What]]:
        """What was seen, each with the first look at it."""
        return [(begin, what) for begin, _, what in self._seen if what is not None]


@dataclass(frozen=True, slots=True)
class Office:
    """Who is the serving primary of a partition, and since which version of its row."""

    member: str
    term: int


class Serving(Protocol):
    """What a member serves of a partition."""

    @property
    def term(self) -> int:
        """Of the office in which it does."""


class Offices:
    """Who served each partition, and when: as seen by somebody who sees everybody at once."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.running = True
        self._of: list[Spans[Office]] = [Spans() for _ in range(cluster.settings.partitions.count)]

    def start(self) -> None:
        """Begin to look."""
        if self.running:
            self.look()
            self.world.after(LOOK_NS, self.start)

    def look(self) -> None:
        """Who serves now. To be asked for also when somebody was just answered: a primary that others have replaced
        may serve for a moment between two looks.
        """
        self._note([(member.me, member.picture.leading) for member in self.cluster.members()])

    def _note(self, serving: Sequence[tuple[MemberId, Sequence[Serving | None]]]) -> None:
        """By member, what it serves of each partition. Where two serve at once nobody can say who made a change."""
        found: list[Office | None] = [None] * len(self._of)
        rivals: list[int] = []
        for member, of_partitions in serving:
            for partition, served in enumerate(of_partitions):
                if served is not None:
                    if found[partition] is not None:
                        rivals.append(partition)
                    found[partition] = Office(member, served.term)
        for partition in rivals:
            found[partition] = None
        for spans, office in zip(self._of, found, strict=True):
            spans.note(self.world.now_ns, office)

    def over(self, partition: int, start_ns: int, end_ns: int) -> Office | None:
        """Who alone served the partition all the time, if anybody did."""
        return self._of[partition].over(start_ns, end_ns)

    def begun(self, partition: int, member: str) -> list[int]:
        """Since when at the earliest a member served the partition, for each of its offices."""
        first: dict[int, int] = {}
        """By term."""
        for seen_ns, office in self._of[partition].begun():
            if office.member == member:
                first.setdefault(office.term, seen_ns - LOOK_NS)
        return list(first.values())


class ZoneOffices(Offices):
    """Who led the group of each partition of a zone, and when."""

    def __init__(self, world: World, cluster: Cluster, map_name: str) -> None:
        """`map_name`: a map of the zone."""
        super().__init__(world, cluster)
        self._map = map_name

    def look(self) -> None:
        """Who leads now."""
        zones = [(member.me, member.picture.zone_entries(self._map)) for member in self.cluster.members()]
        self._note([(member, zone.serving) for member, zone in zones if zone is not None])
