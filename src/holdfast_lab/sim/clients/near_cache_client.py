"""A simulated client of the Hazelcast protocol with a near cache for one map.

It behaves like official clients and `holdfast.aio`: it reserves a key before it reads it, and keeps the answer
only if no invalidation came in between; it keeps only entries of partitions whose owner sends it invalidations;
it forgets a partition if its owner or the connection to it changes, or a number is missing. Some clients also
compare their numbers with those of the members every few seconds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from struct import Struct

from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.server.hazelcast import near_caches
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN,
    END,
    EVENT,
    IS_NULL,
    LONG,
    UUID,
    FrameReader,
    text,
)
from holdfast_lab.check.cached_entries import Kept, Numbering
from holdfast_lab.sim.calls import name_of, wire_key
from holdfast_lab.sim.clients.client import Line, Manners
from holdfast_lab.sim.clients.hazelcast import (
    HazelcastClient,
    HazelcastLine,
    answer_kind,
    first_end,
    read_error,
)
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.world import World

ONE, SEVERAL = near_caches.ADD_LISTENER + 2, near_caches.ADD_LISTENER + 3
INVALIDATION = Struct("<i").pack(256)
AGAIN_NS = SECOND
"""Pause after a rejected registration."""
_ONE = Struct("<17s17sq")
_SEQUENCE = Struct("<iq")
_HISTORY = Struct("<i17s")
Position = tuple[bytes, int]
"""History and number of an invalidation."""


class NearCacheClient(HazelcastClient):
    def __init__(
        self, name: str, world: World, doors: Doors, draw: random.Random, map_name: str, repair_ns: int
    ) -> None:
        """`repair_ns`: interval at which it asks members for their numbers; 0: never."""
        super().__init__(name, world, doors, draw, replace(Manners.drawn(draw), smart=True))
        self.map = map_name
        self.count = doors.cluster.settings.partitions.count
        self.kept: dict[bytes, Kept] = {}
        self.refusals: Counter[int] = Counter()
        """Rejected registrations by error code."""
        self.problems: list[str] = []
        self.invalidated = 0
        """Received invalidations of a key."""
        self.fed = 0
        """Accepted registrations."""
        self.missed = 0
        """How often numbers revealed a missing invalidation."""
        self._repair_ns = repair_ns
        self._feeds: dict[HazelcastLine, Numbering] = {}
        """Connections with invalidations."""
        self._registrations: dict[int, HazelcastLine] = {}
        self._route: list[HazelcastLine | None] = [None] * self.count
        """By partition: the connection to its owner, if that sends invalidations."""
        self._reserved: dict[bytes, object] = {}
        self._known: dict[int, Position] = {}

    def start(self) -> None:
        super().start()
        if self._repair_ns:
            self.world.after(self._repair_ns, self._repair)

    # -- reading

    def read(self, key: str) -> bool:
        """Read a key, from the near cache or the cluster; returns whether it was cached."""
        raw = wire_key(key)
        if raw in self.kept:
            return True
        partition = partition_of(raw, 0, self.count)
        token = object() if self._route[partition] is not None else None
        if token is not None:
            self._reserved[raw] = token
        asked = Request(Op.GET, self.map, [partition], raw)
        self.ask([(asked, partial(self._answered, key, raw, token))])
        return False

    def _answered(self, key: str, raw: bytes, token: object | None, outcome: Outcome) -> None:
        if token is None or self._reserved.get(raw) is not token:
            return
        del self._reserved[raw]
        value = name_of(outcome.value) if outcome.status is Status.OK else None
        if value is not None:
            self.kept[raw] = Kept(key, value, self.world.now_ns)

    # -- permission to keep entries

    def let_in(self, line: Line) -> None:
        super().let_in(line)
        assert isinstance(line, HazelcastLine)
        self._feed(line)

    def _feed(self, line: HazelcastLine) -> None:
        if line.lost_already:
            return

        def done(answer: bytes) -> None:
            if answer_kind(answer):
                self.fed += 1
                self._feeds[line] = Numbering(f"{self.name} at {line.host}", self.problems)
                self._rerouted()
            else:
                del self._registrations[correlation]
                self.refusals[read_error(answer)[0]] += 1
                self.world.after(AGAIN_NS, partial(self._feed, line))

        own = {"flags": INVALIDATION, "local_only": b"\x01", "name": text(self.map)}
        correlation = self._control(line, near_caches.ADD_LISTENER, done, own)
        self._registrations[correlation] = line

    def forget(self, line: Line) -> None:
        super().forget(line)
        assert isinstance(line, HazelcastLine)
        self._feeds.pop(line, None)
        self._registrations = {at: other for at, other in self._registrations.items() if other is not line}
        self._rerouted()

    def _take_owners(self, owners: dict[int, bytes]) -> None:
        super()._take_owners(owners)
        self._rerouted()

    def _rerouted(self) -> None:
        """Connections or owners have changed."""
        feeds = {line.member: line for line in self._feeds if line.ready}
        route = [feeds.get(self._owners.get(partition, b"")) for partition in range(self.count)]
        for partition, line in enumerate(route):
            if line is not self._route[partition]:
                self._forget(partition)
                self._known.pop(partition, None)
        self._route = route

    def _forget(self, partition: int) -> None:
        for held in (self.kept, self._reserved):
            for raw in [raw for raw in held if partition_of(raw, 0, self.count) == partition]:
                del held[raw]

    # -- invalidations

    def _event(self, line: HazelcastLine, kind: int, correlation: int, whole: bytes) -> None:
        if self._registrations.get(correlation) is not line:
            super()._event(line, kind, correlation, whole)
            return
        numbering = self._feeds.get(line)
        assert numbering is not None, "a registration is answered before its first event"
        reader = FrameReader(whole, first_end(whole), len(whole))
        if kind == ONE:
            _, history, number = _ONE.unpack_from(whole, EVENT.size)
            flags, payload = reader.next()
            if flags & IS_NULL:
                self.kept.clear()
                self._reserved.clear()
                self._known.clear()
                numbering.on_clear()
            else:
                self._invalidated(numbering, payload[4:], history, number)
        elif kind == SEVERAL:
            keys = [reader.next()[1][4:] for _ in reader.elements()]
            reader.next()
            histories, numbers = reader.next()[1], reader.next()[1]
            for place, (number,) in enumerate(LONG.iter_unpack(numbers)):
                history = histories[place * UUID.size : (place + 1) * UUID.size]
                self._invalidated(numbering, keys[place], history, number)

    def _invalidated(self, numbering: Numbering, raw: bytes, history: bytes, number: int) -> None:
        partition = partition_of(raw, 0, self.count)
        self.invalidated += 1
        self.kept.pop(raw, None)
        self._reserved.pop(raw, None)
        numbering.on_invalidation(partition, history, number)
        self._step(partition, (history, number), number - 1)

    def _step(self, partition: int, position: Position, needed: int) -> None:
        """A member is at this position; `needed`: the number up to which this client must have all invalidations."""
        known = self._known.get(partition)
        if known is not None and known[0] == position[0] and known[1] >= position[1]:
            return
        self._known[partition] = position
        if known is None or known[0] != position[0] or known[1] < needed:
            self.missed += known is not None
            self._forget(partition)

    def _repair(self) -> None:
        if not self.running:
            return
        self.world.after(self._repair_ns, self._repair)
        for line in list(self._feeds):
            self.counts["near cache repairs"] += 1
            correlation = self._control(
                line,
                near_caches.FETCH_METADATA,
                partial(self._repaired, line),
                {"member": line.member, "names": b"".join([BEGIN, text(self.map), END])},
            )
            assert correlation in line.control

    def _repaired(self, line: HazelcastLine, answer: bytes) -> None:
        if not answer_kind(answer) or line not in self._feeds:
            return
        for partition, position in read_positions(answer, self.map).items():
            if self._route[partition] is line:
                self._step(partition, position, position[1])


def read_positions(whole: bytes, name: str) -> Mapping[int, Position]:
    """The position of each partition in a member's answer."""
    reader = FrameReader(whole, first_end(whole), len(whole))
    numbers: dict[int, int] = {}
    for _ in reader.elements():
        found, pairs = reader.next()[1], reader.next()[1]
        if found == name.encode():
            numbers = dict(_SEQUENCE.iter_unpack(pairs))
    return {
        partition: (history, numbers.get(partition, 0))
        for partition, history in _HISTORY.iter_unpack(reader.next()[1])
    }
