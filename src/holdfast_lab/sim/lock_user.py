"""Clients that lock an entry of a map on simulated members, and judgement of their histories.

The model is a lock with one holder at a time: from the response to a successful request until its holder asks to
release it, no other client gets it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from holdfast.core.model.collections import CollectionStep, StepKind, encode_step
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.map_locks import CLIENT_BYTES, locks_of, owner_of
from holdfast.core.model.operations import Outcome, Request, Status
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

NAME, KEY = "guarded", b"\0\0\0\0key"
USERS = 4
WAITS_MS = (0, 50, 2000)
HELD_MAX_NS = 300 * MILLISECOND
PATIENCE_NS = 20 * SECOND
"""Longer than half of any call timeout, so that a waiting request is answered before."""


@dataclass(slots=True)
class Hold:
    """The time in which a client knows that it has the lock."""

    user: int
    began_ns: int
    ended_ns: int = 0
    """0: to the end."""


class LockUser:
    """Locks and unlocks the entry, each time through any member. It is connected to all of them."""

    def __init__(self, index: int, world: World, cluster: Cluster) -> None:
        self._index = index
        self._world = world
        self._cluster = cluster
        self.partition = partition_of(KEY, 0, cluster.settings.partitions.count)
        self._random = random.Random(f"{world.seed}/lock user {index}")
        self._client = bytes((0, *[index + 1] * (CLIENT_BYTES - 1)))
        self._connected: list[Process] = []
        self.running = True
        self.holds: list[Hold] = []
        self._asked = 0
        self._answered = True
        self._unlocks = False
        """The next request releases the lock. It is repeated until its outcome is known."""

    @property
    def waiting(self) -> bool:
        return not self._answered

    def start(self) -> None:
        self._world.after(self._random.randint(SECOND // 2, 3 * SECOND), self._next)

    def _next(self) -> None:
        living = self._cluster.living()
        if not self.running and not self._unlocks:
            return
        if not living:
            self._world.after(SECOND, self._next)
            return
        self._asked += 1
        self._answered = False
        kind = StepKind.UNLOCK if self._unlocks else StepKind.LOCK
        wait_ms = 0 if self._unlocks else self._random.choice(WAITS_MS)
        step = CollectionStep(kind, index=self._asked, wait_ms=wait_ms)
        request = Request(
            kind.op,
            locks_of(NAME),
            [self.partition],
            key=KEY,
            value=encode_step(step),
            ttl_ms=0,
            max_idle_ms=0,
            holder=owner_of(self._client, 1),
        )
        for one in living:
            if one not in self._connected:
                self._connected.append(one)
                one.whenever_awake(partial(one.step, partial(self._connect, one)))
        process = self._random.choice(living)
        process.whenever_awake(partial(self._ask, process, request, self._asked))
        self._world.after(PATIENCE_NS, partial(self._finish, self._asked, None))

    def _connect(self, process: Process) -> None:
        process.driver.callers.connect(self._client)

    def _ask(self, process: Process, request: Request, number: int) -> None:
        def done(outcome: Outcome) -> None:
            if not process.dead:
                self._world.after(MILLISECOND, partial(self._finish, number, outcome))

        process.step(partial(process.driver.execute, request, done))

    def _finish(self, number: int, outcome: Outcome | None) -> None:
        if number != self._asked or self._answered:
            return
        self._answered = True
        status = outcome.status if outcome is not None else Status.UNKNOWN
        if self._unlocks:
            self._unlocks = status is not Status.OK
        elif status is Status.OK and outcome is not None and outcome.value is True:
            self.holds.append(Hold(self._index, self._world.now_ns))
            self._world.after(self._random.randint(MILLISECOND, HELD_MAX_NS), self._release)
            return
        elif status is Status.UNKNOWN:
            # It may have the lock, and does not know it.
            self._unlocks = True
        self._world.after(self._random.randint(5 * MILLISECOND, 60 * MILLISECOND), self._next)

    def _release(self) -> None:
        self.holds[-1].ended_ns = self._world.now_ns
        self._unlocks = True
        self._next()


def judge(users: Sequence[LockUser], lost: Sequence[int] = ()) -> list[str]:
    """`lost`: partitions that have begun again, without the locks."""
    if users and users[0].partition in lost:
        return []
    return [f"lock: {what}" for what in judge_holds([hold for user in users for hold in user.holds])]


def judge_holds(holds: Sequence[Hold]) -> list[str]:
    problems = []
    ordered = sorted(holds, key=lambda hold: hold.began_ns)
    for earlier, later in pairwise(ordered):
        if not earlier.ended_ns or later.began_ns < earlier.ended_ns:
            problems.append(
                f"client {later.user} had it at {later.began_ns}, and client {earlier.user} since {earlier.began_ns}"
            )
    return problems
