"""Users of a ringbuffer, a counter and a generator of ids on simulated members, and judgement of their histories.

The models: each sequence of the ringbuffer belongs to one item and each item to one sequence; an acknowledged item is
there until others replace it; a reader gets all items from its place on. Each acknowledged change of the counter counts
once. Each id is given once. Calls that do not overlap are in the order of their times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from holdfast.core.collections.counter_steps import COUNT_KEY, read_count
from holdfast.core.collections.id_steps import ID_STEP
from holdfast.core.collections.ring_steps import TAIL_KEY, sequence_of
from holdfast.core.member_view import MemberView
from holdfast.core.model.collections import (
    CollectionKind,
    CollectionStep,
    StepKind,
    encode_step,
    partition_of_name,
)
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.operations import Outcome, Request, Status, Value
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

NAME = "model"
RING, COUNTER, IDS = (
    CollectionKind.RINGBUFFER.map_of(NAME),
    CollectionKind.PN_COUNTER.map_of(NAME),
    CollectionKind.FLAKE_ID_GENERATOR.map_of(NAME),
)
USERS = 4
CAPACITY = 32
BATCH = 20
WAITS_MS = (0, 50, 2000)
PATIENCE_NS = 20 * SECOND
"""Longer than half of any call timeout, so that a waiting request is answered before."""


@dataclass(slots=True)
class StructureCall:
    kind: StepKind
    began_ns: int
    item: bytes = b""
    start: int = 0
    """The place of a reader."""
    ended_ns: int = 0
    """0: it was not answered."""
    status: Status | None = None
    value: Value = None

    @property
    def is_known(self) -> bool:
        return self.status is Status.OK

    @property
    def is_unknown(self) -> bool:
        return self.status is None or self.status is Status.UNKNOWN


@dataclass(slots=True)
class Left:
    """The entries of the structures at the end."""

    ring: Mapping[bytes, bytes] = field(default_factory=dict)
    count: bytes | None = None


class StructureUser:
    """Makes one call after the other, each through any member."""

    def __init__(self, index: int, world: World, cluster: Cluster) -> None:
        self._index = index
        self._world = world
        self._cluster = cluster
        self._partition = partition_of_name(NAME, cluster.settings.partitions.count)
        self._random = random.Random(f"{world.seed}/structure user {index}")
        self._place = 0
        self.running = True
        self.calls: list[StructureCall] = []
        self._now: StructureCall | None = None

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
        kind = self._random.choice(
            (StepKind.APPEND, StepKind.APPEND, StepKind.READ_ITEMS, StepKind.INCREASE, StepKind.RESERVE_IDS)
        )
        call = self._now = StructureCall(kind, self._world.now_ns, start=self._place)
        if kind is StepKind.APPEND:
            call.item = b"%d/%d" % (self._index, len(self.calls))
        self.calls.append(call)
        process = self._random.choice(living)
        request = self._request(call)
        process.whenever_awake(lambda: self._ask(process, request, call))
        self._world.after(PATIENCE_NS, partial(self._finish, call, None))

    def _request(self, call: StructureCall) -> Request:
        kind = call.kind
        if kind is StepKind.APPEND:
            name, step = RING, CollectionStep(kind, max_size=CAPACITY)
        elif kind is StepKind.READ_ITEMS:
            wait_ms = self._random.choice(WAITS_MS)
            step = CollectionStep(kind, call.start, CAPACITY, wait_ms, CAPACITY, count=1)
            name = RING
        elif kind is StepKind.INCREASE:
            name, step = COUNTER, CollectionStep(kind, 1)
        else:
            name, step = IDS, CollectionStep(kind, count=BATCH)
        items = [call.item] if call.item else []
        return Request(kind.op, name, [self._partition], value=encode_step(step), items=items)

    def _ask(self, process: Process, request: Request, call: StructureCall) -> None:
        def done(outcome: Outcome) -> None:
            if not process.dead:
                self._world.after(MILLISECOND, partial(self._finish, call, outcome))

        process.step(partial(process.driver.execute, request, done))

    def _finish(self, call: StructureCall, outcome: Outcome | None) -> None:
        if call is not self._now:
            return
        self._now = None
        call.ended_ns = self._world.now_ns
        if outcome is not None:
            call.status, call.value = outcome.status, outcome.value
            if call.kind is StepKind.READ_ITEMS and call.is_known and isinstance(call.value, list):
                first, items = read_items(call.value)
                self._place = first + len(items)
        self._world.after(self._random.randint(5 * MILLISECOND, 60 * MILLISECOND), self._next)


def read_items(value: Sequence[None | int | bytes]) -> tuple[int, list[bytes]]:
    """The sequence of the first item, and the items."""
    first, *items = [part for part in value if isinstance(part, bytes)]
    return sequence_of(first), items


def judge(
    members: Sequence[MemberView], users: Sequence[StructureUser], lost: Collection[int] = ()
) -> list[str]:
    """Errors in the structures of a cluster at rest. `lost`: partitions that have begun again."""
    partition = partition_of_name(NAME, len(members[0].assignments))
    if partition in lost:
        return []
    owner = members[0].assignment(partition).owner
    copy = next(member.held[partition] for member in members if member.me == owner)
    ring, counter = copy.maps.get(RING), copy.maps.get(COUNTER)
    left = Left(
        ring.state.entries if ring is not None else {},
        counter.state.entries.get(COUNT_KEY) if counter is not None else None,
    )
    return judge_history([call for user in users for call in user.calls], left)


def judge_history(calls: Sequence[StructureCall], left: Left) -> list[str]:
    def known(kind: StepKind) -> list[StructureCall]:
        return [call for call in calls if call.kind is kind and call.is_known]

    unknown = sum(call.kind is StepKind.INCREASE and call.is_unknown for call in calls)
    return [
        *(f"ringbuffer: {what}" for what in _judge_ring(known(StepKind.APPEND), calls, left.ring)),
        *(f"counter: {what}" for what in _judge_counter(known(StepKind.INCREASE), unknown, left.count)),
        *(f"ids: {what}" for what in _judge_ids(known(StepKind.RESERVE_IDS))),
    ]


def _judge_ring(
    adds: Sequence[StructureCall], calls: Sequence[StructureCall], left: Mapping[bytes, bytes]
) -> list[str]:
    problems: list[str] = []
    seen: dict[int, bytes] = {}
    places: dict[bytes, int] = {}

    def see(sequence: int, item: bytes) -> None:
        if seen.setdefault(sequence, item) != item:
            problems.append(f"sequence {sequence} was given to {seen[sequence]!r} and {item!r}")
        if places.setdefault(item, sequence) != sequence:
            problems.append(f"{item!r} has the sequences {places[item]} and {sequence}")

    there = {sequence_of(key): item for key, item in left.items() if key != TAIL_KEY}
    oldest = max(there, default=-1) - CAPACITY + 1
    for sequence, item in there.items():
        see(sequence, item)
    for call in adds:
        assert isinstance(call.value, int), "a sequence is a number"
        see(call.value, call.item)
        if call.value >= oldest and there.get(call.value) != call.item:
            problems.append(f"{call.item!r} was acknowledged, and is lost")
    offered = {call.item for call in calls if call.kind is StepKind.APPEND}
    for call in calls:
        if call.kind is not StepKind.READ_ITEMS or not call.is_known or not isinstance(call.value, list):
            continue
        first, items = read_items(call.value)
        for sequence, item in enumerate(items, first):
            see(sequence, item)
        if first < call.start:
            problems.append(f"a reader at {call.start} was sent back to {first}")
        elif first > max(call.start, oldest):
            problems.append(f"a reader at {call.start} got {first}, and the oldest item is {oldest}")
    problems += [f"{item!r} was never added" for item in places if item not in offered]
    return problems + _judge_order(adds, lambda call: call.value, "the sequence")


def _judge_counter(changes: Sequence[StructureCall], unknown: int, left: bytes | None) -> list[str]:
    problems: list[str] = []
    counts = [read_count(_bytes(call.value))[0] for call in changes]
    if len(set(counts)) < len(counts):
        problems.append("two changes have answered the same value")
    count = read_count(left)[0] if left is not None else 0
    if not len(changes) <= count <= len(changes) + unknown:
        problems.append(f"it is {count} after {len(changes)} changes, and {unknown} with no known outcome")
    return problems + _judge_order(changes, lambda call: read_count(_bytes(call.value))[0], "the value")


def _judge_ids(batches: Sequence[StructureCall]) -> list[str]:
    given = [one for call in batches for one in _ids(call.value)]
    return ["an id was given twice"] if len(set(given)) < len(given) else []


def _ids(value: Value) -> Iterable[int]:
    assert isinstance(value, int), "an id is a number"
    return range(value, value + BATCH * ID_STEP, ID_STEP)


def _bytes(value: Value) -> bytes:
    assert isinstance(value, bytes), "an answer of a counter is its entry"
    return value


def _judge_order(
    calls: Sequence[StructureCall], place: Callable[[StructureCall], Value], what: str
) -> list[str]:
    """Calls that ended before others began come before them."""
    problems: list[str] = []
    by_end = sorted(calls, key=lambda call: call.ended_ns)
    latest, at = -1, 0
    for call in sorted(calls, key=lambda call: call.began_ns):
        while at < len(by_end) and by_end[at].ended_ns < call.began_ns:
            latest = max(latest, _number(place(by_end[at])))
            at += 1
        if _number(place(call)) <= latest:
            problems.append(f"{what} {_number(place(call))} came after {latest}")
    return problems


def _number(value: Value) -> int:
    assert isinstance(value, int), "calls are ordered by a number"
    return value
