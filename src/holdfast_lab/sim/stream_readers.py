"""Reader of change streams in a simulated world, with the errors that it must never see.

It asks members in turn, and checks: an update has the same content from every member; each change fits the
changes before; delivered updates never disappear. At its end, the stream has delivered each acknowledged
change once (`holdfast_lab/check/streamed_changes.py`), and equals the map.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial

from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.records import Change, Record
from holdfast.core.store.replica import term_of
from holdfast.core.streams.change_streams import Reach
from holdfast.server import change_questions
from holdfast.wire import answers
from holdfast_lab.check import streamed_changes as changes
from holdfast_lab.check.linearizability import FOREVER, Call
from holdfast_lab.sim.calls import PROBE, key_of, name_of, wire_key
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

ASKED = 3
HEARD_NS = 10 * SECOND
"""Time until the loss of a majority is known: earlier writes may be lost."""
STUCK_NS = 5 * SECOND
"""After so long without progress or changes of members, all are asked for changes that one member does not
have.
"""
CONTENTS = tuple[Change, bytes, bytes, bytes | None, int, bytes]


class Reader:
    DRAWS = "reader"

    def __init__(self, world: World, cluster: Cluster, name: str, map_of: Callable[[str], str]) -> None:
        self.world = world
        self.cluster = cluster
        self.name = name
        self._map_of = map_of
        self.random = random.Random(f"{world.seed}/{self.DRAWS}")
        self.running = True
        self.at: dict[int, tuple[int, int]] = {}
        self.seen: dict[tuple[int, int, int], CONTENTS] = {}
        self.content: dict[int, dict[bytes, bytes]] = {}
        self.problems: list[tuple[int, str]] = []
        self.gone: dict[int, int] = {}
        self._refused: dict[int, set[str]] = {}
        self._answered: dict[int, str] = {}
        """Members that knew changes which another had forgotten, by partition."""
        self._progress: dict[int, int] = {}
        self._there: list[str] = []
        self._there_since = 0
        self.told: list[changes.Told] = []
        self._begun = False
        self._left: list[int] = []

    def start(self) -> None:
        self._begun = bool(self.cluster.settings.map(self.name).changes_bytes)
        self.world.after(self.random.randint(0, SECOND), self._look)

    def _look(self) -> None:
        if not self.running:
            return
        self.world.after(self.random.randint(20 * MILLISECOND, 500 * MILLISECOND), self._look)
        if not self._begun:
            return
        living = self.cluster.living()
        if (there := [process.name for process in living]) != self._there:
            self._there, self._there_since = there, self.world.now_ns
        for process in self.random.sample(living, min(len(living), ASKED)):
            process.whenever_awake(partial(process.step, partial(self._ask, process)))

    def _ask(self, process: Process) -> None:
        if not process.driver.stopped:
            self._read_heads(process, partial(self._ask_after, process))

    def _read_heads(self, process: Process, done: Callable[[Mapping[int, Reach]], None]) -> None:
        done(process.picture.change_streams.heads(self.name, range(len(process.picture.assignments)))[0])

    def _ask_after(self, process: Process, heads: Mapping[int, Reach]) -> None:
        for partition, head in heads.items():
            counter, term = self.at.get(partition, (0, 0))
            if head.counter <= counter:
                if head.counter == counter and head.term != term:
                    self._gone(partition, head, f"update {counter} of term {term} is of term {head.term} now")
                continue
            upto = (head.counter, head.term)
            switch = answers.Head(partition, *upto, head.since, head.lineage).switch_after(counter)
            if switch is not None and counter == switch.end and term == switch.end_term:
                self._go_over(partition, switch)
                continue
            if switch is not None and counter < switch.end:
                upto = (switch.end, switch.end_term)
            most = self.random.choice([self.random.randint(1, 3000), 100_000])
            asked = Asked(self.name, partition, counter, term, *upto, most)
            for other in self._whom_to_ask(process, partition):
                other.whenever_awake(partial(self._ask_for, other, asked, head))

    def _whom_to_ask(self, primary: Process, partition: int) -> list[Process]:
        """Mostly the primary itself; other members know as much, or nothing. If the primary has forgotten what comes
        next, mostly the member that knew it last.
        """
        living = self.cluster.living()
        stuck_since = max(self._there_since, self._progress.get(partition, 0))
        if partition in self._refused and self.world.now_ns > stuck_since + STUCK_NS:
            return living
        known = self._answered.get(partition, primary.name)
        first = next((process for process in living if process.name == known), primary)
        return [first if self.random.random() < 0.6 else self.random.choice(living)]

    def _ask_for(self, process: Process, asked: Asked, head: Reach) -> None:
        def deed() -> None:
            process.driver.callers.ask_changes(asked, lambda found: self._take(process, asked, head, found))

        process.step(deed)

    def _take(self, process: Process, asked: Asked, head: Reach, found: ChangesSince) -> None:
        partition = asked.partition
        if self.at.get(partition, (0, 0)) != (asked.after, asked.after_term):
            return
        if found.upto == asked.after:
            if asked.after and term_of(head.lineage, asked.after) != asked.after_term:
                self._gone(
                    partition, head, f"update {asked.after} of term {asked.after_term} is gone from {head}"
                )
            elif "remembered" in found.why or "nothing of this map" in found.why:
                refused = self._refused.setdefault(partition, set())
                refused.add(process.name)
                if self._answered.get(partition) == process.name:
                    del self._answered[partition]
                if all(other.name in refused for other in self.cluster.running()):
                    self._restart(partition, head)
            return
        if partition in self._refused:
            self._answered[partition] = process.name
        self._got_on(partition)
        content = self.content.setdefault(partition, {})
        for term, record in found.records:
            self._see(partition, term, record, content)
        self.at[partition] = (found.upto, found.term)

    def _gone(self, partition: int, head: Reach, what: str) -> None:
        """An update that was read is not in the history of this head: it was lost."""
        self._problem(partition, what)

    def _restart(self, partition: int, head: Reach) -> None:
        """History is gone here, and perhaps everywhere: continue at the head, with unknown contents."""
        self._got_on(partition)
        self.gone[partition] = self.world.now_ns
        self.at[partition] = (head.counter, head.term)
        self.content[partition] = {}

    def _go_over(self, partition: int, switch: answers.Switch) -> None:
        """The map has moved (streams/G-5)."""
        self.world.marks.hit("zone: stream goes over a move")
        self._got_on(partition)
        self.at[partition] = (switch.start, switch.start_term)

    def _got_on(self, partition: int) -> None:
        self._refused.pop(partition, None)
        self._progress[partition] = self.world.now_ns

    def _see(self, partition: int, term: int, record: Record, content: dict[bytes, bytes]) -> None:
        found = (record.change, record.key, record.value, record.old, record.time_ms, record.request)
        known = self.seen.setdefault((partition, term, record.counter), found)
        if known != found:
            self._problem(partition, f"update {record.counter} of term {term} is {found}, and was {known}")
        before = content.pop(record.key, None)
        if before is not None and before != record.old:
            self._problem(partition, f"update {record.counter} says {record.old!r} was there, not {before!r}")
        if record.change is Change.SET:
            content[record.key] = record.value
        if key_of(record.key).startswith(PROBE):
            return
        value = record.value if record.change is Change.SET else None
        update = (partition, term, record.counter)
        self.told.append(changes.Told(key_of(record.key), name_of(value), name_of(record.old), update))

    # -- at the end

    def lost(self) -> set[int]:
        return {partition for partition, _ in self.cluster.lost}

    @property
    def caught_up(self) -> bool:
        return not self._begun or not self._behind()

    def end(self) -> None:
        if self.running:
            self.running = False
            self._left = self._behind() if self._begun else []

    def _behind(self) -> list[int]:
        """Partitions with unread changes, including those that are not safe yet, and expired entries that the
        primary still has to remove: they are unreadable already, but their end is not delivered yet.

        Lost partitions do not count: their history began again, so the reader may never reach it. Waiting for
        them would end at a random moment, when another partition has perhaps just removed an expired entry.
        """
        lost = self.lost()
        behind = []
        for member in self.cluster.members():
            for partition in range(len(member.picture.assignments)):
                led = member.picture.copies.led(self.name, partition)
                held = led.copy.maps.get(self.name) if led is not None else None
                if led is None or held is None or partition in lost:
                    continue
                ended = any(held.state.expired(key, led.now_ns, touch=False) for key in held.state.expiries)
                if ended or self.at.get(partition, (0, 0)) != (held.counter, held.term):
                    behind.append(partition)
        return sorted(behind)

    def judge(self, calls: Sequence[Call], final: Mapping[str, str | None]) -> list[str]:
        """Errors in the delivered changes. `calls`: of all maps; `final`: values of all keys, if the cluster
        came to rest. Partitions that have begun again prove nothing.
        """
        lost = self.lost()
        calls = [call for call in calls if self._reads(call.key, lost)]
        final = {key: value for key, value in final.items() if self._reads(key, lost)}
        found = [
            f"partition {partition}: {what}" for partition, what in self.problems if partition not in lost
        ]
        if self._begun and final:
            found += self._judge_whole(calls, final, lost)
        return [f"change stream of {self.name}: {problem}" for problem in found]

    def _judge_whole(
        self, calls: Sequence[Call], final: Mapping[str, str | None], lost: Container[int]
    ) -> list[str]:
        behind = [partition for partition in self._left if partition not in lost]
        found = [f"there is more to be read of partitions {behind}"] if behind else []
        found += changes.judge(
            calls, [one for one in self.told if one.update[0] not in lost], self._known_from
        )
        ending = {call.key for call in calls if min(call.ttl, call.idle) < FOREVER}
        for key, value in sorted(final.items()):
            partition = self._partition(key)
            content = self.content.get(partition, {}).get(wire_key(key))
            if content is None and (partition in self.gone or key in ending):
                continue  # It may be older than the read changes, or have expired after that look.
            if name_of(content) != value and partition not in behind:
                found.append(f"{key} is {value}, and {name_of(content)} by what was told")
        return found

    def _reads(self, key: str, lost: Container[int]) -> bool:
        return self._map_of(key) == self.name and self._partition(key) not in lost

    def _partition(self, key: str) -> int:
        return partition_of(wire_key(key), 0, self.cluster.settings.partitions.count)

    def _known_from(self, key: str) -> int:
        return self.gone.get(self._partition(key), 0)

    def _problem(self, partition: int, what: str) -> None:
        self.problems.append((partition, what))


class ZoneReader(Reader):
    """Reader of a map in a zone. Its heads come as a session reports them: from leaders that a majority has confirmed,
    so they never go back.
    """

    DRAWS = "zone reader"

    def __init__(
        self, world: World, cluster: Cluster, name: str, map_of: Callable[[str], str], doors: Doors
    ) -> None:
        super().__init__(world, cluster, name, map_of)
        self._doors = doors

    def lost(self) -> set[int]:
        """None, unless the map moves: changes of partitions that have begun again are judged, too."""
        return super().lost() if self.cluster.settings.map(self.name).reads == "confirmed" else set()

    def _reset_ns(self, partition: int) -> int:
        """When the partition's group has lost its majority; 0: never."""
        return max((at_ns for lost, at_ns in self.cluster.zone_lost if lost == partition), default=0)

    def _known_from(self, key: str) -> int:
        """Writes from before a reset may be lost, also after they were read."""
        reset_ns = self._reset_ns(self._partition(key))
        return max(super()._known_from(key), reset_ns + HEARD_NS if reset_ns else 0)

    def _gone(self, partition: int, head: Reach, what: str) -> None:
        """Allowed after a reset: the reader begins again with a snapshot."""
        if self._reset_ns(partition):
            self._restart(partition, head)
        else:
            super()._gone(partition, head, what)

    def _read_heads(self, process: Process, done: Callable[[Mapping[int, Reach]], None]) -> None:
        if not process.picture.copies.in_zone(self.name):
            super()._read_heads(process, done)
            return
        before = dict(self.at)

        def on_heads(heads: Mapping[int, Reach], _: Sequence[int]) -> None:
            for partition, head in heads.items():
                counter, term = before.get(partition, (0, 0))
                if head.counter < counter and self.at[partition] == (counter, term):
                    self._gone(
                        partition,
                        head,
                        f"{process.name} reports update {head.counter} of term {head.term} as the last one, and update "
                        f"{counter} of term {term} was read before",
                    )
            process.soon(partial(done, {p: head for p, head in heads.items() if self._has_term(p, head)}))

        partitions = range(self.cluster.settings.partitions.count)
        change_questions.zone_heads(self._doors.grid(process), self.name, partitions, on_heads)

    def _has_term(self, partition: int, head: Reach) -> bool:
        """Whether the last update has a term. Those of older builds have none, and are not remembered."""
        if head.counter and not head.term and head.counter > self.at.get(partition, (0, 0))[0]:
            self._restart(partition, head)
        return not head.counter or head.term > 0

    def _take(self, process: Process, asked: Asked, head: Reach, found: ChangesSince) -> None:
        leads = process.picture.copies.led(self.name, asked.partition) is not None
        if found.upto > asked.after and not leads:
            self.world.marks.hit("zone: changes from a follower")
        if found.upto > asked.after and asked.upto < head.counter:
            self.world.marks.hit("zone: changes from before a move")
        super()._take(process, asked, head, found)

    def _restart(self, partition: int, head: Reach) -> None:
        self.world.marks.hit("zone: stream begins again")
        if self._reset_ns(partition):
            # A lost change may come again: its writer got no response, and has repeated it.
            self.told = [one for one in self.told if one.update[0] != partition]
        super()._restart(partition, head)
