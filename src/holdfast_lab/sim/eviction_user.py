"""Users of maps that evict entries on simulated members, and judgement of their histories.

Two maps have the same eviction. In `tight` there are more keys than it may hold. Each of its values may be gone at any
time after it was written, once and for good: an evicted value that comes back fits no history. `roomy` never exceeds
its limit, so nothing may go: it is judged like a map without eviction. At rest no partition of `tight` holds more than
its share.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from functools import partial

import msgspec

from holdfast.config import MapSettings, Settings
from holdfast.core.member_view import MemberView
from holdfast.core.model import operations as core
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request, Status
from holdfast_lab.check.linearizability import FOREVER, Call, Outcome, judge
from holdfast_lab.sim.calls import NAMES, name_of, wire_key, wire_value
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

TIGHT, ROOMY = "tight", "roomy"
USERS = 4
KEYS = 40
TIGHT_SIZE = 12
ROOMY_SIZE = 1_000_000
PATIENCE_NS = 20 * SECOND
"""Longer than half of any call timeout, so that a waiting request is answered before."""
OPERATIONS = (Op.SET, Op.SET, Op.PUT, Op.PUT, Op.GET, Op.REMOVE, Op.PUT_IF_ABSENT, Op.REPLACE)


def with_eviction(settings: Settings, seed: int, zone: str) -> Settings:
    """Settings with both maps. `zone`: the name of a zone, in which they are in half of the runs; empty: none."""
    draw = random.Random(f"{seed}/eviction")
    zoned = zone if draw.random() < 0.5 else ""
    usual = settings.map("default")
    chosen = MapSettings(
        backups=usual.backups,
        async_backups=usual.async_backups,
        journal="off" if zoned else usual.journal,
        changes_bytes=usual.changes_bytes,
        reads="primary" if zoned else "confirmed",
        raft_zone=zoned,
        eviction=draw.choice(["lru", "random"]),
        max_size=TIGHT_SIZE,
    )
    roomy = msgspec.structs.replace(chosen, max_size=ROOMY_SIZE)
    return msgspec.structs.replace(settings, maps={**settings.maps, TIGHT: chosen, ROOMY: roomy})


class EvictionUser:
    """Makes one call after the other, each through any member."""

    def __init__(self, index: int, world: World, cluster: Cluster) -> None:
        self._index = index
        self._world = world
        self._cluster = cluster
        self._random = random.Random(f"{world.seed}/eviction user {index}")
        self.running = True
        self.calls: dict[str, list[Call]] = {TIGHT: [], ROOMY: []}
        self._now: Call | None = None

    @property
    def waiting(self) -> bool:
        return self._now is not None

    @property
    def answered(self) -> int:
        return sum(call.outcome is Outcome.DONE for calls in self.calls.values() for call in calls)

    def start(self) -> None:
        self._world.after(self._random.randint(SECOND // 2, 3 * SECOND), self._next)

    def _next(self) -> None:
        living = self._cluster.living()
        if not self.running:
            return
        if not living:
            self._world.after(SECOND, self._next)
            return
        name, op = self._random.choice((TIGHT, TIGHT, ROOMY)), self._random.choice(OPERATIONS)
        call = self._now = Call(
            NAMES[op],
            f"e{self._random.randrange(KEYS)}",
            self._world.now_ns,
            client=f"e{self._index}",
        )
        if op not in (Op.GET, Op.REMOVE):
            call.argument = f"e{self._index}.{name}.{len(self.calls[name])}"
        self.calls[name].append(call)
        key = wire_key(call.key)
        partition = partition_of(key, 0, self._cluster.settings.partitions.count)
        value = wire_value(call.argument) if call.argument is not None else b""
        process, request = self._random.choice(living), Request(op, name, [partition], key, value)
        process.whenever_awake(lambda: self._ask(process, request, call))
        self._world.after(PATIENCE_NS, partial(self._finish, call, None))

    def _ask(self, process: Process, request: Request, call: Call) -> None:
        def done(outcome: core.Outcome) -> None:
            if not process.dead:
                self._world.after(MILLISECOND, partial(self._finish, call, outcome))

        process.step(partial(process.driver.execute, request, done))

    def _finish(self, call: Call, outcome: core.Outcome | None) -> None:
        if call is not self._now:
            return
        self._now = None
        if outcome is not None and outcome.status is Status.OK:
            call.end, call.outcome, call.result = self._world.now_ns, Outcome.DONE, name_of(outcome.value)
        elif outcome is not None and outcome.status is not Status.UNKNOWN:
            call.end, call.outcome = self._world.now_ns, Outcome.REFUSED
        self._world.after(self._random.randint(5 * MILLISECOND, 60 * MILLISECOND), self._next)


def judge_users(
    members: Sequence[MemberView], users: Sequence[EvictionUser], lost: Collection[int] = ()
) -> list[str]:
    """Errors in a cluster at rest. `lost`: partitions that have begun again."""
    count = len(members[0].assignments)
    problems: list[str] = []
    for name in (TIGHT, ROOMY):
        calls = [
            call
            for user in users
            for call in user.calls[name]
            if partition_of(wire_key(call.key), 0, count) not in lost
        ]
        problems += judge_history(name, calls)
    return problems + [problem for member in members for problem in _excess(member)]


def judge_history(name: str, calls: Sequence[Call]) -> list[str]:
    if name == TIGHT:
        calls = [*calls, *_evictions(calls)]
    return [f"{name}: not linearizable: {broken}" for broken in judge(calls)]


def _evictions(calls: Sequence[Call]) -> list[Call]:
    """Each value that was written may be evicted once."""
    return [
        Call("remove_if_same", call.key, call.start, FOREVER, expected=call.argument, client="eviction")
        for call in calls
        if call.argument is not None and call.outcome is not Outcome.REFUSED
    ]


def _excess(member: MemberView) -> list[str]:
    led = [copy for copy in member.leading if copy is not None]
    share = max(1, TIGHT_SIZE // len(led)) if led else 0
    return [
        f"{TIGHT}: {len(held.state.entries)} entries in partition {copy.partition}, and its share is {share}"
        for copy in led
        if (held := copy.maps.get(TIGHT)) is not None and len(held.state.entries) > share
    ]
