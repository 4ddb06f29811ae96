"""Callers of an entry processor on simulated members, and judgement of their histories.

The model is a counter: each acknowledged run of the processor counts once, a run that failed does not count, and no two
runs answer the same value.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.processors import ProcessorCall, encode_call
from holdfast.wire.values import to_stored
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.shape import PROCESSED
from holdfast_lab.sim.simulated_processors import LIMIT_MS, runs_in
from holdfast_lab.sim.world import Process, World

NAME = PROCESSED
KEY = to_stored("runs")
USERS = 4
PATIENCE_NS = 20 * SECOND
"""Longer than any call timeout."""
STEP = encode_call(ProcessorCall("count", limit_ms=LIMIT_MS))


@dataclass(slots=True)
class ProcessorRunCall:
    began_ns: int
    ended_ns: int = 0
    """0: it was not answered."""
    status: Status | None = None
    value: int = 0

    @property
    def is_known(self) -> bool:
        return self.status is Status.OK

    @property
    def is_unknown(self) -> bool:
        return self.status is None or self.status is Status.UNKNOWN


class ProcessorUser:
    """Makes one call after the other, each through any member."""

    def __init__(self, index: int, world: World, cluster: Cluster) -> None:
        self._world = world
        self._cluster = cluster
        self._partition = partition_of(KEY, 0, cluster.settings.partitions.count)
        self._random = random.Random(f"{world.seed}/processor user {index}")
        self.running = True
        self.calls: list[ProcessorRunCall] = []
        self._now: ProcessorRunCall | None = None

    @property
    def waiting(self) -> bool:
        return self._now is not None

    @property
    def answered(self) -> int:
        return sum(call.is_known for call in self.calls)

    def start(self) -> None:
        self._world.after(self._random.randint(SECOND // 2, 3 * SECOND), self._next)

    def _next(self) -> None:
        living = self._cluster.living()
        if not self.running:
            return
        if not living:
            self._world.after(SECOND, self._next)
            return
        call = self._now = ProcessorRunCall(self._world.now_ns)
        self.calls.append(call)
        process = self._random.choice(living)
        request = Request(Op.PROCESS, NAME, [self._partition], key=KEY, value=STEP)
        process.whenever_awake(lambda: self._ask(process, request, call))
        self._world.after(PATIENCE_NS, partial(self._finish, call, None))

    def _ask(self, process: Process, request: Request, call: ProcessorRunCall) -> None:
        def done(outcome: Outcome) -> None:
            if not process.dead:
                self._world.after(MILLISECOND, partial(self._finish, call, outcome))

        process.step(partial(process.driver.execute, request, done))

    def _finish(self, call: ProcessorRunCall, outcome: Outcome | None) -> None:
        if call is not self._now:
            return
        self._now = None
        call.ended_ns = self._world.now_ns
        if outcome is not None:
            call.status = outcome.status
            if call.is_known and isinstance(outcome.value, bytes):
                call.value = runs_in(outcome.value)
        self._world.after(self._random.randint(5 * MILLISECOND, 60 * MILLISECOND), self._next)


def judge(
    members: Sequence[MemberView], users: Sequence[ProcessorUser], lost: Collection[int] = ()
) -> list[str]:
    """Errors in the counter of a cluster at rest. `lost`: partitions that have begun again."""
    partition = partition_of(KEY, 0, len(members[0].assignments))
    if partition in lost:
        return []
    led = [found for member in members if (found := member.copies.led(NAME, partition)) is not None]
    if len(led) != 1:
        return [f"processor: {len(led)} members serve its entry"]
    held = led[0].copy.maps.get(NAME)
    left = runs_in(held.state.entries.get(KEY)) if held is not None else 0
    return [
        f"processor: {what}" for what in judge_history([call for user in users for call in user.calls], left)
    ]


def judge_history(calls: Sequence[ProcessorRunCall], left: int) -> list[str]:
    """`left`: the value at the end."""
    known = sorted((call for call in calls if call.is_known), key=lambda call: call.value)
    unknown = sum(call.is_unknown for call in calls)
    problems: list[str] = []
    if len({call.value for call in known}) < len(known):
        problems.append("two runs have answered the same value")
    if not len(known) <= left <= len(known) + unknown:
        problems.append(f"the value is {left} after {len(known)} runs, and {unknown} with no known outcome")
    latest = accumulate((call.began_ns for call in known), max, initial=-1)
    for call, began_ns in zip(known, latest, strict=False):
        if call.ended_ns < began_ns:
            problems.append(f"the run that answered {call.value} had ended before an earlier one began")
    return problems
