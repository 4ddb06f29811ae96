"""Users of a counter, a lock and a semaphore on simulated members, and judgement of their histories.

The models: a counter gives each number once, and numbers rise with time. A lock has one holder at a time, and each
holder a fence of its own, higher than those before. A semaphore has at most as many holders as permits. Users repeat a
call under its id until its outcome is known, as Hazelcast clients do; only additions have no id.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from holdfast.core.cp.cp_entries import LongEntry, SemaphoreEntry, decode_entry
from holdfast.core.member_view import MemberView
from holdfast.core.model.cp import (
    CpAnswer,
    CpFate,
    CpKind,
    CpStep,
    CpStepKind,
    cp_request,
    decode_answer,
    map_of_group,
)
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.operations import Outcome, Status
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

GROUP, NAME = "g", "x"
USERS = 4
PERMITS = 2
TTL_MS = 86_400_000
"""No session ends in a run: its holder could not know that others hold the same."""
WAITS_MS = (0, 0, 50, 2000)
PATIENCE_NS = 20 * SECOND
"""Longer than half of any call timeout, so that a waiting request is answered before."""


@dataclass(slots=True)
class Addition:
    began_ns: int
    ended_ns: int = 0
    former: int | None = None
    """None: the outcome is unknown."""
    rejected: bool = False


@dataclass(slots=True)
class Holding:
    user: int
    since_ns: int
    """When the user knew that it holds the lock or a permit."""
    until_ns: int = 0
    """When it began to release it; 0: not yet."""
    fence: int = 0


class CpUser:
    """A client with a session, which makes one call after the other, each through any member."""

    def __init__(self, index: int, world: World, cluster: Cluster) -> None:
        self._index = index
        self._world = world
        self._cluster = cluster
        self._random = random.Random(f"{world.seed}/cp user {index}")
        self._calls = 0
        self._session = 0
        self._step: CpStep | None = None
        """The call under way, which is repeated until its outcome is known."""
        self._attempt = 0
        self._addition: Addition | None = None
        self._holding: tuple[CpKind, Holding] | None = None
        self.running = True
        self.additions: list[Addition] = []
        self.holdings: dict[CpKind, list[Holding]] = {CpKind.LOCK: [], CpKind.SEMAPHORE: []}

    @property
    def waiting(self) -> bool:
        return self._step is not None

    def start(self) -> None:
        self._world.after(self._random.randint(SECOND // 2, 3 * SECOND), self._next)

    def _next(self) -> None:
        if self.running:
            self._step = self._chosen()
            self._ask()

    def _chosen(self) -> CpStep:
        draw = self._random
        self._calls += 1
        if not self._session:
            return CpStep(CpStepKind.CREATE_SESSION, TTL_MS)
        uid = b"%08d%08d" % (self._index, self._calls)
        owned = CpStep(CpStepKind.UNLOCK, 1, session=self._session, thread=1, uid=uid)
        if self._holding is not None:
            kind, holding = self._holding
            holding.until_ns = self._world.now_ns
            return owned if kind is CpKind.LOCK else replace(owned, kind=CpStepKind.RELEASE)
        which = draw.choice(
            [CpStepKind.GET_AND_ADD, CpStepKind.LOCK, CpStepKind.ACQUIRE, CpStepKind.INIT_PERMITS]
        )
        if which is CpStepKind.GET_AND_ADD:
            self._addition = Addition(self._world.now_ns)
            self.additions.append(self._addition)
            return CpStep(which, 1)
        if which is CpStepKind.INIT_PERMITS:
            return CpStep(which, PERMITS)
        return replace(owned, kind=which, wait_ms=draw.choice(WAITS_MS))

    def _ask(self) -> None:
        step, living = self._step, self._cluster.living()
        assert step is not None, "a call is under way"
        if not living:
            self._world.after(SECOND, self._ask)
            return
        self._attempt += 1
        request = cp_request(GROUP, self._cluster.settings.partitions.count, step, NAME)
        process = self._random.choice(living)
        attempt = self._attempt
        process.whenever_awake(lambda: self._send(process, partial(process.driver.execute, request), attempt))
        self._world.after(PATIENCE_NS, partial(self._finish, attempt, None))

    def _send(self, process: Process, execute: partial[None], attempt: int) -> None:
        def done(outcome: Outcome) -> None:
            if not process.dead:
                self._world.after(MILLISECOND, partial(self._finish, attempt, outcome))

        process.step(partial(execute, done))

    def _finish(self, attempt: int, outcome: Outcome | None) -> None:
        step = self._step
        if attempt != self._attempt or step is None:
            return
        self._attempt += 1
        status = outcome.status if outcome is not None else Status.UNKNOWN
        if step.kind is CpStepKind.GET_AND_ADD:
            self._added(outcome, status)
        elif status is not Status.OK:
            if self.running or self._holding is not None:
                self._world.after(self._random.randint(MILLISECOND, SECOND), self._ask)
            else:
                self._step = None  # It may hold something that it does not know of.
            return
        else:
            assert outcome is not None
            assert isinstance(outcome.value, bytes)
            self._done(step, decode_answer(outcome.value))
        self._step = None
        self._world.after(self._random.randint(5 * MILLISECOND, 60 * MILLISECOND), self._next)

    def _added(self, outcome: Outcome | None, status: Status) -> None:
        addition = self._addition
        assert addition is not None, "it was begun"
        addition.ended_ns = self._world.now_ns
        if status is Status.OK:
            assert outcome is not None
            assert isinstance(outcome.value, bytes)
            addition.former = decode_answer(outcome.value).number
        addition.rejected = status not in (Status.OK, Status.UNKNOWN)

    def _done(self, step: CpStep, answer: CpAnswer) -> None:
        if step.kind is CpStepKind.CREATE_SESSION:
            self._session = answer.number
        elif step.kind in (CpStepKind.UNLOCK, CpStepKind.RELEASE):
            self._holding = None
            if answer.fate is not CpFate.DONE:
                self._world.failures.append(f"cp: user {self._index} could not release: {answer.fate.name}")
        elif step.kind in (CpStepKind.LOCK, CpStepKind.ACQUIRE) and answer.number:
            kind = CpKind.LOCK if step.kind is CpStepKind.LOCK else CpKind.SEMAPHORE
            fence = answer.number if kind is CpKind.LOCK else 0
            holding = Holding(self._index, self._world.now_ns, fence=fence)
            self.holdings[kind].append(holding)
            self._holding = kind, holding


def judge(members: Sequence[MemberView], users: Sequence[CpUser], lost: Collection[int] = ()) -> list[str]:
    """Errors in the group of a cluster at rest. `lost`: partitions that have begun again."""
    name = map_of_group(GROUP)
    partition = cp_request(GROUP, len(members[0].assignments), CpStep(CpStepKind.GET_LONG), NAME).partitions[
        0
    ]
    if partition in lost:
        return []
    led = [found for member in members if (found := member.copies.led(name, partition)) is not None]
    if len(led) != 1:
        return [f"cp: {len(led)} members serve the group"]
    held = led[0].copy.maps.get(name)
    entries = held.state.entries if held is not None else {}
    value = decode_entry(LongEntry, entries.get(CpKind.ATOMIC_LONG.key(NAME))).value
    semaphore = decode_entry(SemaphoreEntry, entries.get(CpKind.SEMAPHORE.key(NAME)))
    problems = judge_counter([one for user in users for one in user.additions], value)
    for kind, most in ((CpKind.LOCK, 1), (CpKind.SEMAPHORE, PERMITS)):
        problems += judge_holders(kind, [one for user in users for one in user.holdings[kind]], most)
    together = semaphore.available + sum(semaphore.held.values())
    if semaphore.is_initialised and together != PERMITS:
        problems.append(f"the semaphore has {together} permits, and not {PERMITS}")
    return [f"cp: {problem}" for problem in problems]


def judge_counter(additions: Sequence[Addition], value: int) -> list[str]:
    known = [one for one in additions if one.former is not None]
    unknown = sum(one.former is None and not one.rejected for one in additions)
    problems = []
    if not len(known) <= value <= len(known) + unknown:
        problems.append(
            f"the counter is {value} after {len(known)} additions, and {unknown} of unknown outcome"
        )
    formers = [one.former for one in known]
    if len(set(formers)) < len(formers):
        problems.append("the counter has given a number twice")
    newest = -1
    for ends, begins in _in_time([(one.began_ns, one.ended_ns, one.former or 0) for one in known]):
        if ends is not None:
            newest = max(newest, ends)
        elif begins is not None and begins <= newest:
            problems.append(f"the counter was {newest}, and then {begins}")
    return problems


def judge_holders(kind: CpKind, holdings: Sequence[Holding], most: int) -> list[str]:
    problems = []
    events = sorted(
        [(one.since_ns, 1, one) for one in holdings]
        + [(one.until_ns, 0, one) for one in holdings if one.until_ns],
        key=lambda event: event[:2],
    )
    holders = newest = 0
    for at_ns, begins, one in events:
        holders += 1 if begins else -1
        if holders > most:
            problems.append(f"a {kind} has {holders} holders at {at_ns / SECOND:.3f} s")
        if begins and kind is CpKind.LOCK:
            if one.fence <= newest:
                problems.append(f"fence {one.fence} was given after {newest}")
            newest = max(newest, one.fence)
    return problems


def _in_time(calls: Sequence[tuple[int, int, int]]) -> list[tuple[int | None, int | None]]:
    """Numbers of calls that end, and that begin, in the order of time; of one moment those that begin first."""
    begins = [(began_ns, 0, None, number) for began_ns, _, number in calls]
    ends = [(ended_ns, 1, number, None) for _, ended_ns, number in calls]
    ordered = sorted([*begins, *ends], key=lambda event: event[:2])
    return [(ended, began) for _, _, ended, began in ordered]
