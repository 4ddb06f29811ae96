"""A reader of change streams in a simulated world, and what it must never see.

It asks now this member and then that one, remembers where it is in each partition, and judges: an update has one
content, whoever tells it; each change fits what the changes before it have made; what was told is never gone.
"""

from __future__ import annotations

import random
from functools import partial

from holdfast.core.machine import MILLISECOND, SECOND
from holdfast.core.replication.changes import Asked, Reach, Told, term_of
from holdfast.core.store.partition import Change, Record
from holdfast.sim.cluster import Cluster
from holdfast.sim.world import Process, World

CONTENTS = tuple[Change, bytes, bytes, bytes | None, int]


class Reader:
    """Reads the changes of one map, a few at a time."""

    def __init__(self, world: World, cluster: Cluster, name: str) -> None:
        self.world = world
        self.cluster = cluster
        self.name = name
        self.random = random.Random(f"{world.seed}/reader")
        self.running = True
        self.at: dict[int, tuple[int, int]] = {}
        """By partition: counter and term of the last update that was read."""
        self.seen: dict[tuple[int, int, int], CONTENTS] = {}
        """By partition, term and counter."""
        self.content: dict[int, dict[bytes, bytes]] = {}
        self.problems: list[str] = []
        self.gone = 0
        """How often a partition had to be begun anew, because its history is forgotten."""

    def start(self) -> None:
        """Begin."""
        self.world.after(self.random.randint(SECOND, 3 * SECOND), self._look)

    def _look(self) -> None:
        if not self.running:
            return
        self.world.after(self.random.randint(20 * MILLISECOND, 500 * MILLISECOND), self._look)
        if not self.cluster.settings.map(self.name).changes_bytes:
            return
        living = self.cluster.living()
        if living:
            process = self.random.choice(living)
            process.whenever_awake(lambda: process.step(lambda: self._ask(process)))

    def _ask(self, process: Process) -> None:
        """Learn the heads of what this member serves, and ask another one for what is new."""
        if process.driver.stopped:
            return
        partitions = range(len(process.driver.member.table.rows))
        heads, _ = process.driver.member.changes.heads(self.name, partitions)
        for partition, head in heads.items():
            counter, term = self.at.get(partition, (0, 0))
            if head.counter <= counter:
                if head.counter == counter and head.term != term:
                    self._problem(f"{partition}: update {counter} of term {term} is of term {head.term} now")
                continue
            asked = Asked(
                self.name, partition, counter, term, head.counter, head.term, self.random.randint(1, 3000)
            )
            other = self.random.choice([process, *self.cluster.living()])
            other.whenever_awake(partial(self._ask_for, other, asked, head))

    def _ask_for(self, process: Process, asked: Asked, head: Reach) -> None:
        def deed() -> None:
            driver = process.driver
            driver.enter()
            driver.member.changes.ask(asked, lambda told: self._take(asked, head, told))
            driver.leave_lane()

        process.step(deed)

    def _take(self, asked: Asked, head: Reach, told: Told) -> None:
        partition = asked.partition
        if self.at.get(partition, (0, 0)) != (asked.after, asked.after_term):
            return
        if told.upto == asked.after:
            if asked.after and term_of(head.lineage, asked.after) != asked.after_term:
                self._problem(
                    f"{partition}: update {asked.after} of term {asked.after_term} is gone from {head}"
                )
            elif "remembered" in told.why and self.random.random() < 0.02:
                self._begin_anew(partition, head)
            return
        content = self.content.setdefault(partition, {})
        for term, record in told.records:
            self._see(partition, term, record, content)
        self.at[partition] = (told.upto, told.term)

    def _begin_anew(self, partition: int, head: Reach) -> None:
        """The history is forgotten here, and perhaps everywhere: go on at the head, and know nothing of the content."""
        self.gone += 1
        self.at[partition] = (head.counter, head.term)
        self.content[partition] = {}

    def _see(self, partition: int, term: int, record: Record, content: dict[bytes, bytes]) -> None:
        found = (record.change, record.key, record.value, record.old, record.time_ms)
        known = self.seen.setdefault((partition, term, record.counter), found)
        if known != found:
            self._problem(f"{partition}: update {record.counter} of term {term} is {found}, and was {known}")
        before = content.pop(record.key, None)
        if before is not None and before != record.old:
            self._problem(
                f"{partition}: update {record.counter} says {record.old!r} was there, not {before!r}"
            )
        if record.change is Change.SET:
            content[record.key] = record.value

    def _problem(self, what: str) -> None:
        self.problems.append(f"change stream of {self.name}, partition {what}")
