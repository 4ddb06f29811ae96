"""Producers and consumers of a queue on simulated members, and judgement of their histories.

The model is a queue of unique items: an acknowledged item is delivered once or still there, none is delivered twice,
and items are delivered in the order in which they were offered, as far as the times of the calls show it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.core.member_view import MemberView
from holdfast.core.model.collections import (
    CollectionKind,
    CollectionStep,
    StepKind,
    encode_step,
    partition_of_name,
)
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.operations import Outcome, Request, Status
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

NAME = "jobs"
HOLDER = CollectionKind.QUEUE.map_of(NAME)
USERS = 4
WAITS_MS = (0, 0, 50, 2000)
MAX_SIZE = 8
PATIENCE_NS = 20 * SECOND
"""Longer than half of any call timeout, so that a waiting request is answered before."""


@dataclass(slots=True)
class QueueCall:
    item: bytes
    """Offered; or polled, empty: nothing, or not known."""
    offers: bool
    began_ns: int
    ended_ns: int = 0
    """0: it was not answered."""
    status: Status | None = None

    @property
    def is_known(self) -> bool:
        return self.status is Status.OK

    @property
    def is_unknown(self) -> bool:
        return self.status is None or self.status is Status.UNKNOWN


class QueueUser:
    """Makes one call after the other, each through any member."""

    def __init__(self, index: int, world: World, cluster: Cluster) -> None:
        self._index = index
        self._world = world
        self._cluster = cluster
        self._partition = partition_of_name(NAME, cluster.settings.partitions.count)
        self._random = random.Random(f"{world.seed}/queue user {index}")
        self.running = True
        self.calls: list[QueueCall] = []
        self._now: QueueCall | None = None

    @property
    def waiting(self) -> bool:
        return self._now is not None

    @property
    def delivered(self) -> int:
        return sum(not call.offers and call.is_known and bool(call.item) for call in self.calls)

    def start(self) -> None:
        self._world.after(self._random.randint(SECOND // 2, 3 * SECOND), self._next)

    def _next(self) -> None:
        living = self._cluster.living()
        if not self.running:
            return
        if not living:
            self._world.after(SECOND, self._next)
            return
        offers = self._random.random() < 0.5
        item = b"%d/%d" % (self._index, len(self.calls)) if offers else b""
        call = self._now = QueueCall(item, offers, self._world.now_ns)
        self.calls.append(call)
        wait_ms = self._random.choice(WAITS_MS)
        step = CollectionStep(
            StepKind.ADD if offers else StepKind.POLL, wait_ms=wait_ms, max_size=MAX_SIZE if offers else 0
        )
        items = [item] if offers else []
        request = Request(step.kind.op, HOLDER, [self._partition], value=encode_step(step), items=items)
        process = self._random.choice(living)
        process.whenever_awake(lambda: self._ask(process, request, call))
        self._world.after(PATIENCE_NS, partial(self._finish, call, None))

    def _ask(self, process: Process, request: Request, call: QueueCall) -> None:
        def done(outcome: Outcome) -> None:
            if not process.dead:
                self._world.after(MILLISECOND, partial(self._finish, call, outcome))

        process.step(partial(process.driver.execute, request, done))

    def _finish(self, call: QueueCall, outcome: Outcome | None) -> None:
        if call is not self._now:
            return
        self._now = None
        call.ended_ns = self._world.now_ns
        if outcome is not None:
            call.status = outcome.status
            if call.is_known and call.offers and outcome.value is not True:
                call.status = Status.NOT_READY  # The queue was full: it was certainly not added.
            elif call.is_known and isinstance(outcome.value, bytes):
                call.item = outcome.value
        self._world.after(self._random.randint(5 * MILLISECOND, 60 * MILLISECOND), self._next)


def judge(members: Sequence[MemberView], users: Sequence[QueueUser], lost: Collection[int] = ()) -> list[str]:
    """Errors in the queue of a cluster at rest, with one view and table. `lost`: partitions that have begun again."""
    partition = partition_of_name(NAME, len(members[0].assignments))
    if partition in lost:
        return []
    led = [found for member in members if (found := member.copies.led(HOLDER, partition)) is not None]
    if len(led) != 1:
        return [f"queue: {len(led)} members serve it"]
    held = led[0].copy.maps.get(HOLDER)
    entries = held.state.entries if held is not None else {}
    left = [entries[key] for key in sorted(entries)]
    return [f"queue: {what}" for what in judge_history([call for user in users for call in user.calls], left)]


def judge_history(calls: Sequence[QueueCall], left: Sequence[bytes]) -> list[str]:
    """`left`: the items that are there at the end, in their order."""
    offers = {call.item: call for call in calls if call.offers}
    polls = [call for call in calls if not call.offers and call.is_known and call.item]
    problems: list[str] = []
    delivered: dict[bytes, QueueCall] = {}
    for call in polls:
        if call.item in delivered or call.item in left:
            problems.append(f"{call.item!r} was delivered, and again or still there")
        delivered[call.item] = call
    if len(set(left)) < len(left):
        problems.append("an item is there twice")
    for item in (*delivered, *left):
        if item not in offers:
            problems.append(f"{item!r} was never offered")
        elif not offers[item].is_known and not offers[item].is_unknown:
            problems.append(f"{item!r} was refused, and is there")
    lost = [
        item for item, call in offers.items() if call.is_known and item not in delivered and item not in left
    ]
    swallowing = sum(not call.offers and call.is_unknown for call in calls)
    if len(lost) > swallowing:
        problems.append(f"{lost} were acknowledged, and are lost: {swallowing} polls have no known outcome")
    return problems + _judge_order(calls, offers, delivered, left)


def _judge_order(
    calls: Sequence[QueueCall],
    offers: dict[bytes, QueueCall],
    delivered: dict[bytes, QueueCall],
    left: Sequence[bytes],
) -> list[str]:
    problems: list[str] = []
    sure = [call for call in offers.values() if call.is_known]
    for later, poll in delivered.items():
        began_ns = offers[later].began_ns if later in offers else 0
        for call in sure:
            if call.ended_ns >= began_ns:
                continue
            earlier = delivered.get(call.item)
            if call.item in left or (earlier is not None and earlier.began_ns > poll.ended_ns):
                problems.append(f"{later!r} was delivered before {call.item!r}, which was offered before it")
    for poll in calls:
        if poll.offers or not poll.is_known or poll.item:
            continue
        for call in sure:
            taken = delivered.get(call.item)
            there = call.item in left or (taken is not None and taken.began_ns > poll.ended_ns)
            if there and call.ended_ns < poll.began_ns:
                problems.append(f"{call.item!r} was there when nothing was found")
    return problems
