"""A simulated client of the Hazelcast protocol with a near cache for one map.

A campaign judges the near cache of `holdfast.aio` (`client_core.near_cache`) with it. Some clients also
compare their numbers with those of the members every few seconds.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import cast

from holdfast.client_core.invalidations import read_invalidations, read_positions
from holdfast.client_core.message_decoding import read_error
from holdfast.client_core.near_cache import ABSENT, NearCache, NearCacheOptions
from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.server.hazelcast import near_caches
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN,
    END,
    text,
)
from holdfast_lab.check.cached_entries import Kept, Numbering
from holdfast_lab.sim.calls import name_of, wire_key
from holdfast_lab.sim.clients.client import Line, Manners
from holdfast_lab.sim.clients.hazelcast import (
    HazelcastClient,
    HazelcastLine,
    answer_kind,
)
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.world import World

INVALIDATION = Struct("<i").pack(256)
AGAIN_NS = SECOND


class NearCacheClient(HazelcastClient):
    def __init__(
        self, name: str, world: World, doors: Doors, draw: random.Random, map_name: str, repair_ns: int
    ) -> None:
        """`repair_ns`: interval at which it asks members for their numbers; 0: never."""
        super().__init__(name, world, doors, draw, replace(Manners.drawn(draw), smart=True))
        self.map = map_name
        self.count = doors.cluster.settings.partitions.count
        self.cache = NearCache(NearCacheOptions(), lambda: world.now_ns / SECOND)
        self.refusals: Counter[int] = Counter()
        self.problems: list[str] = []
        self.invalidated = 0
        self.cleared = 0
        self.fed = 0
        self._repair_ns = repair_ns
        self._feeds: dict[HazelcastLine, Numbering] = {}
        self._registrations: dict[int, HazelcastLine] = {}
        self._route: list[HazelcastLine | None] = [None] * self.count
        """By partition: the connection to its owner, if that sends invalidations."""

    def start(self) -> None:
        super().start()
        if self._repair_ns:
            self.world.after(self._repair_ns, self._repair)

    # -- reading

    def read(self, key: str) -> bool:
        raw = wire_key(key)
        if self.cache.get(raw) is not ABSENT:
            return True
        partition = partition_of(raw, 0, self.count)
        token = self.cache.reserve(raw, partition)
        asked = Request(Op.GET, self.map, [partition], raw)
        self.ask([(asked, partial(self._answered, key, raw, token))])
        return False

    def _answered(self, key: str, raw: bytes, token: object, outcome: Outcome) -> None:
        value = name_of(outcome.value) if outcome.status is Status.OK else None
        self.cache.keep(raw, token, None if value is None else Kept(key, value, self.world.now_ns))

    @property
    def kept(self) -> list[Kept]:
        return cast("list[Kept]", self.cache.values())

    # -- permission to keep entries

    def on_admitted(self, line: Line) -> None:
        super().on_admitted(line)
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

    def _take_owners(self, owners: list[bytes]) -> None:
        super()._take_owners(owners)
        self._rerouted()

    def _rerouted(self) -> None:
        feeds = {line.member: line for line in self._feeds if line.ready}
        before = self._route
        now = self._route = [
            feeds.get(self._owners[partition] if self._owners else b"") for partition in range(self.count)
        ]
        fed = [line is not None for line in now]
        self.cache.feed(fed, lambda partition: before[partition] is not now[partition])

    # -- invalidations

    def _event(self, line: HazelcastLine, kind: int, correlation: int, whole: bytes) -> None:
        if self._registrations.get(correlation) is not line:
            super()._event(line, kind, correlation, whole)
            return
        numbering = self._feeds.get(line)
        assert numbering is not None, "a registration is answered before its first event"
        changed = read_invalidations(kind, whole)
        if changed is None:
            self.cleared += 1
            self.cache.clear()
            numbering.on_clear()
            return
        for one in changed:
            partition = one.partition(self.count)
            self.invalidated += 1
            numbering.on_invalidation(partition, one.history, one.sequence)
            self.cache.invalidated(one.key, partition, one.history, one.sequence)

    def _repair(self) -> None:
        if not self.running:
            return
        self.world.after(self._repair_ns, self._repair)
        for line in list(self._feeds):
            self.counts["near cache repairs"] += 1
            self._control(
                line,
                near_caches.FETCH_METADATA,
                partial(self._repaired, line),
                {"member": line.member, "names": b"".join([BEGIN, text(self.map), END])},
            )

    def _repaired(self, line: HazelcastLine, answer: bytes) -> None:
        if not answer_kind(answer) or line not in self._feeds:
            return
        self.cache.repair(read_positions(answer, self.map))
