"""A client that takes cuts in a simulated run, reads them repeatedly from all holders, and judges the
results.

A cut counts as a read of each key, from the request to the answer, for the judge of linearizability. And all
holders must show the same, as long as they live and are asked within the lease.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.primary_backup.cuts import Pin, PinMark, Taken
from holdfast_lab.check.linearizability import Call
from holdfast_lab.check.linearizability import Outcome as Answered
from holdfast_lab.sim.calls import key_of, name_of
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.workload import is_idle
from holdfast_lab.sim.world import Process, World

PROBE = "p"
CLIENT = "cut"
"""Client of the calls that cuts answer. They are binding, because a cut waits for its backups."""
LEASE_MS = 60_000
PATIENCE_NS = 5 * SECOND
KEPT_NS = 15 * SECOND
KEYS_MAX = 30
"""Most keys of a partition that are judged as reads; holders are compared in all."""

Content = dict[bytes, bytes]


@dataclass(slots=True)
class Mark:
    counter: int
    term: int
    holders: tuple[MemberId, ...]
    start: int
    end: int
    content: Content | None = None


@dataclass(slots=True)
class Cut:
    id: bytes
    begun_ns: int
    maps: tuple[str, ...]
    asked: dict[int, int] = field(default_factory=dict)
    """Number of the last question by partition: only its answer counts."""
    first: dict[tuple[str, int], int] = field(default_factory=dict)
    """Time of the first question by member and partition. Asked again, a member shows the same state, if it
    still has it.
    """
    marks: dict[tuple[int, str], Mark] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class Cutter:
    def __init__(
        self,
        world: World,
        cluster: Cluster,
        maps: Sequence[str],
        noted: Callable[[Call], None],
        zoned: str = "",
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.maps = tuple(maps)
        self.zoned = zoned
        self.noted = noted
        self.random = random.Random(f"{world.seed}/cuts")
        self.running = True
        self.cuts = 0
        self.found: list[str] = []
        self.reads = 0
        self._questions = 0
        self._known: dict[tuple[int, str], dict[str, None]] = {}

    def start(self) -> None:
        self.world.after(self.random.randint(2 * SECOND, 5 * SECOND), self._begin)

    def _begin(self) -> None:
        if not self.running:
            return
        self.cuts += 1
        cut = Cut(self.random.randbytes(16), self.world.now_ns, self.maps)
        if self.zoned:
            cut.maps = self.random.choice([self.maps, (*self.maps, self.zoned), (self.zoned,)])
        self._take(cut)
        self._later(cut)
        self.world.after(self.random.randint(3 * SECOND, 10 * SECOND), self._begin)

    # -- taking cuts

    def _take(self, cut: Cut) -> None:
        """Ask the owners, as a member knows them, for partitions that are not cut yet, until there are none."""
        left = [p for p in range(self.cluster.settings.partitions.count) if p not in cut.done]
        living = self.cluster.living()
        if not left or not self.running or self.world.now_ns > cut.begun_ns + PATIENCE_NS:
            return
        self.world.after(self.random.randint(200 * MILLISECOND, SECOND), partial(self._take, cut))
        if not living:
            return
        rows = self.random.choice(living).picture.assignments
        for process in living:
            mine = [partition for partition in left if rows[partition].owner == process.driver.member.me]
            if mine:
                self._questions += 1
                cut.asked |= dict.fromkeys(mine, self._questions)
                for partition in mine:
                    cut.first.setdefault((process.name, partition), self.world.now_ns)
                ask = partial(self._ask, process, cut, mine, self._questions)
                process.whenever_awake(partial(process.step, ask))

    def _ask(self, process: Process, cut: Cut, partitions: list[int], question: int) -> None:
        member = process.driver.member
        if member.picture.passive:
            return

        def taken(told: Taken) -> None:
            if process.dead or not told.known:
                return
            pins: list[Pin | PinMark] = [*told.pins, *told.in_zones]
            for pin in pins:
                if cut.asked[pin.partition] == question:
                    start_ns = cut.first[process.name, pin.partition]
                    mark = Mark(pin.counter, pin.term, pin.holders, start_ns, self.world.now_ns)
                    cut.marks[pin.partition, pin.map] = mark
                    cut.done.add(pin.partition)

        process.driver.callers.take_cut(cut.id, cut.maps, tuple(partitions), LEASE_MS, taken)

    # -- reading cuts

    def _later(self, cut: Cut) -> None:
        self.world.after(self.random.randint(100 * MILLISECOND, 3 * SECOND), partial(self._read, cut))

    def _read(self, cut: Cut) -> None:
        if not self.running or self.world.now_ns > cut.begun_ns + KEPT_NS:
            for process in self.cluster.living():
                process.driver.callers.hold_cut(cut.id, 0, lambda count: None)
            return
        living = {process.driver.member.me: process for process in self.cluster.living()}
        for (partition, name), mark in sorted(cut.marks.items()):
            holders = [living[holder] for holder in mark.holders if holder in living]
            if holders and self.random.random() < 0.5:
                process = self.random.choice(holders)
                look = partial(self._look, process, cut, partition, name, mark)
                process.whenever_awake(partial(process.step, look))
        self._later(cut)

    def _look(self, process: Process, cut: Cut, partition: int, name: str, mark: Mark) -> None:
        cuts = process.driver.member.copies.cuts
        if not self.running or self.world.now_ns > cut.begun_ns + KEPT_NS:
            return  # The member was paused past the end of the cut.
        pin = cuts.find(cut.id, partition, name)
        where = f"cut of map {name} in partition {partition}, update {mark.counter} of term {mark.term}"
        where += f", on {process.name}"
        if pin is None or (pin.counter, pin.term) != (mark.counter, mark.term):
            if name == self.zoned:
                return  # A follower may not have applied it yet, or was filled by a later snapshot.
            found = "nothing" if pin is None else f"update {pin.counter} of term {pin.term}"
            self.found.append(f"{where}, which was named as a holder: {found} is kept")
            return
        content = dict(pin.content())
        self.reads += 1
        if name == self.zoned:
            self.world.marks.hit("zone: cut read")
        if mark.content is None:
            mark.content = content
            self._note(pin, partition, name, mark)
        elif content != mark.content:
            keys = sorted(key_of(key) for key, _ in content.items() ^ mark.content.items())
            self.found.append(f"{where}: {keys[:5]} differ from what was read of it before")

    def _note(self, pin: Pin, partition: int, name: str, mark: Mark) -> None:
        # A cut does not count as use, and only the primary knows the last use, so skip entries with an idle
        # time. Skip probes of Raft maps too: they are not among the judged writes.
        entries = ((key_of(key), name_of(value)) for key, value in pin.content().items())
        content = {key: value for key, value in entries if not is_idle(key) and key[0] != PROBE}
        # Record a key as absent only if an earlier cut has shown it: absent keys are endless.
        known = self._known.setdefault((partition, name), {})
        known |= dict.fromkeys(sorted(content))
        keys = list(known)
        for key in keys if len(keys) <= KEYS_MAX else self.random.sample(keys, KEYS_MAX):
            self.noted(
                Call(
                    "get",
                    key,
                    mark.start,
                    mark.end,
                    Answered.DONE,
                    result=content.get(key),
                    client=CLIENT,
                )
            )
