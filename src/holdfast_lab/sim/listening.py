"""Listeners of a simulated run, and the events that they must receive.

Each listens on one member to changes of one map, or one of its keys, on all members, for some seconds or
until the end. `holdfast_lab/check/heard_events.py` judges the events.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial

from holdfast.core.messages import Message
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import EntryEvent
from holdfast.engine.link import Link
from holdfast_lab.check.heard_events import Heard, Listening, judge
from holdfast_lab.check.linearizability import UNTOLD, Call
from holdfast_lab.sim.calls import PROBE, key_of, name_of, wire_key
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.steady import LOOK_NS, Offices, Spans
from holdfast_lab.sim.world import Process, World
from holdfast_lab.sim.zone_runs import ZONED

Way = Link[Message] | Process
"""How a member sends events to a listener: over its link to the listener's member, which changes with each
life of either; or directly, within one process.
"""


class Registration:
    def __init__(self, name: str, process: Process, map_name: str, key: str | None) -> None:
        self.process = process
        self.map = map_name
        self.listening = Listening(name, key)
        self.known: dict[MemberId, Spans[Way]] = {}
        """When each member knew of this listener, and its way to it."""
        self.whole: Spans[dict[MemberId, Way]] = Spans()
        self.over = False

    def hear(self, event: EntryEvent) -> None:
        key = key_of(event.key) if event.key is not None else None
        if key is not None and key.startswith(PROBE):
            return
        self.listening.heard.append(
            Heard(
                event.kind,
                key,
                name_of(event.value),
                name_of(event.old),
                event.member,
                self.process.world.now_ns,
            )
        )

    def look(self, cluster: Cluster, now_ns: int) -> None:
        """Record which members know of it. Earlier events of a member are certain once everything that it
        sent to the listener's member has arrived: events in flight are lost with their sender.
        """
        living = [] if self.over or self.process.dead else cluster.living()
        ways = {process.driver.member.me: self._way(process) for process in living}
        for member in ways:
            self.known.setdefault(member, Spans())
        for member, spans in self.known.items():
            way = ways.get(member)
            spans.note(now_ns, way, sure=way is not None and _arrived(way))
        known = {member: way for member, way in ways.items() if way is not None}
        whole = bool(ways) and len(known) == len(ways)
        self.whole.note(now_ns, known if whole else None, sure=all(_arrived(way) for way in known.values()))

    def _way(self, process: Process) -> Way | None:
        if not self._is_known_to(process):
            return None
        return process if process is self.process else process.driver.links.get(self.process.driver.member.me)

    def _is_known_to(self, process: Process) -> bool:
        mine, its = self.process.picture, process.picture
        if mine is its:
            return True
        together = mine.is_member(its.me) and its.is_member(mine.me)
        return together and mine.me in its.subscribers(self.map)

    def must_hear(self, offices: Offices, partition: int, call: Call) -> bool:
        """Whether it certainly received a change in this partition during the call: from the primary, or, for
        a cleared map, from the member that was asked.
        """
        if call.result is UNTOLD:
            return self.whole.over(call.start, call.end) is not None
        office = offices.over(partition, call.start, call.end)
        known = self.known.get(MemberId(office.member)) if office is not None else None
        return known is not None and known.over(call.start, call.end) is not None


class Listeners:
    def __init__(
        self,
        world: World,
        cluster: Cluster,
        keys: Mapping[str, Sequence[str]],
        offices: Callable[[str], Offices],
    ) -> None:
        """`keys`: frequently written keys by map, for listeners of one key. `offices`: leaderships of a map's
        partitions.
        """
        self.world = world
        self.cluster = cluster
        self.keys = keys
        self.offices = offices
        self.random = random.Random(f"{world.seed}/listeners")
        self.running = True
        self.registrations: list[Registration] = []

    def start(self) -> None:
        self.world.after(self.random.randint(SECOND, 3 * SECOND), self._begin)
        self._look()

    @property
    def heard(self) -> int:
        return sum(len(one.listening.heard) for one in self.registrations)

    def _look(self) -> None:
        if self.running:
            for one in self.registrations:
                one.look(self.cluster, self.world.now_ns)
            self.world.after(LOOK_NS, self._look)

    def _begin(self) -> None:
        if not self.running:
            return
        living = self.cluster.living()
        if living:
            process = self.random.choice(living)
            process.whenever_awake(partial(process.step, partial(self._listen, process)))
        self.world.after(self.random.randint(2 * SECOND, 8 * SECOND), self._begin)

    def _listen(self, process: Process) -> None:
        name = self.random.choice(sorted(self.keys))
        key = self.random.choice(self.keys[name]) if self.random.random() < 0.2 else None
        one = Registration(f"{len(self.registrations)} at {process.name}", process, name, key)
        if name == ZONED:
            self.world.marks.hit("zone: listener")
        self.registrations.append(one)
        raw = None if key is None else wire_key(key)
        end = process.driver.callers.listen(name, key=raw, local_only=False, on_event=one.hear)
        if self.random.random() < 0.7:
            length_ns = self.random.randint(SECOND, 25 * SECOND)
            self.world.after(
                length_ns, lambda: process.whenever_awake(partial(process.step, partial(_end, one, end)))
            )

    def problems(
        self,
        calls: Sequence[Call],
        map_of: Callable[[str], str],
        lost_of: Callable[[str], Container[int]],
    ) -> list[str]:
        problems: list[str] = []
        for name in sorted(self.keys):
            of_map = [call for call in calls if map_of(call.key) == name]
            mine = [one for one in self.registrations if one.map == name]
            lost = lost_of(name)
            for one in mine:
                heard = one.listening.heard
                one.listening.heard = [
                    each for each in heard if each.key is None or self._partition(each.key) not in lost
                ]
                one.listening.must_hear = partial(self._must_hear, one)
                one.listening.offices = partial(self._offices, one)
            problems += judge(of_map, [one.listening for one in mine])
        return problems

    def _partition(self, key: str) -> int:
        return partition_of(wire_key(key), 0, self.cluster.settings.partitions.count)

    def _must_hear(self, one: Registration, call: Call) -> bool:
        return one.must_hear(self.offices(one.map), self._partition(call.key), call)

    def _offices(self, one: Registration, heard: Heard) -> list[int]:
        if heard.key is None:
            return []
        return self.offices(one.map).begun(self._partition(heard.key), heard.member)


def _arrived(way: Way) -> bool:
    return isinstance(way, Process) or not way.unacknowledged


def _end(one: Registration, end: Callable[[], None]) -> None:
    one.over = True
    end()
