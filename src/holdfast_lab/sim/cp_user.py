"""Users of a counter, a lock and a semaphore on simulated members, and judgement of their histories.

The models: a counter gives each number once, and numbers rise with time. A lock has one holder at a time, and each
holder a fence of its own, higher than those before. A semaphore has at most as many holders as permits. Users repeat a
call under its id until its outcome is known, as Hazelcast clients do; only additions have no id.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from holdfast.core.cp.cp_entries import E, LockEntry, LongEntry, SemaphoreEntry, decode_entry
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
    session_key,
)
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.operations import Outcome, Status
from holdfast_lab.check.structure_histories import (
    Addition,
    ClientSession,
    Holding,
    judge_counter,
    judge_holders,
)
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

GROUP, NAME = "g", "x"
USERS = 4
PERMITS = 2
TTL_MS = 86_400_000
"""With it no session ends in a run."""
SILENCES, MISSED_ANSWERS, LATE_CALLS, REPEATS = 0.06, 0.1, 0.6, 0.5
HEARTBEATS = 4
"""In each time to live."""
WAITS_MS = (0, 0, 50, 2000)
LATE_KINDS = (
    CpStepKind.HEARTBEAT,
    CpStepKind.LOCK,
    CpStepKind.ACQUIRE,
    CpStepKind.UNLOCK,
    CpStepKind.RELEASE,
)
"""Calls in a session that has ended."""
_ACQUIRING = (CpStepKind.LOCK, CpStepKind.ACQUIRE)
PATIENCE_NS = 20 * SECOND
"""Longer than half of any call timeout, so that a waiting request is answered before."""


class CpUser:
    """A client with a session, which makes one call after the other, each through any member.

    With a short time to live it sends heartbeats, is silent at times for longer than that, and sometimes misses an
    answer and repeats its call after the silence.
    """

    def __init__(
        self, index: int, world: World, cluster: Cluster, ttl_ms: int = TTL_MS, *, clocks_err: bool = False
    ) -> None:
        self._index = index
        self._world = world
        self._cluster = cluster
        self._random = random.Random(f"{world.seed}/cp user {index}")
        self._ttl_ms = ttl_ms
        self._sure_ns = ttl_ms * MILLISECOND // (2 if clocks_err else 1)
        self._heartbeats = Heartbeats(self, world, cluster, index)
        self._calls = 0
        self._session: ClientSession | None = None
        self._step: CpStep | None = None
        """The call under way, which is repeated until its outcome is known."""
        self._began_ns = 0
        """When it was sent first."""
        self._attempt = 0
        self._addition: Addition | None = None
        self._holding: tuple[CpKind, Holding] | None = None
        self._again: CpStep | None = None
        """A call that was answered by the end of its session, and comes again in the next one."""
        self.running = True
        self.silent = False
        self.sessions: dict[int, ClientSession] = {}
        self.additions: list[Addition] = []
        self.holdings: dict[CpKind, list[Holding]] = {CpKind.LOCK: [], CpKind.SEMAPHORE: []}

    @property
    def waiting(self) -> bool:
        return self._step is not None

    @property
    def is_short(self) -> bool:
        return self._ttl_ms < TTL_MS

    @property
    def ttl_ns(self) -> int:
        return self._ttl_ms * MILLISECOND

    @property
    def ended(self) -> int:
        """Sessions that have ended."""
        return sum(session.ended_ns > 0 for session in self.sessions.values())

    def start(self) -> None:
        self._world.after(self._random.randint(SECOND // 2, 3 * SECOND), self._next)

    def _next(self) -> None:
        if not self.running:
            return
        if self.is_short and self._random.random() < SILENCES:
            self._be_silent(self._next)
            return
        self._step = self._chosen()
        self._began_ns = self._world.now_ns
        self._ask()

    def _be_silent(self, then: Callable[[], None]) -> None:
        self.silent = True

        def awake() -> None:
            self.silent = False
            then()

        self._world.after(self._random.randint(self.ttl_ns // 4, 3 * self.ttl_ns), awake)

    def _chosen(self) -> CpStep:
        draw = self._random
        self._calls += 1
        if self._session is None:
            return self._without_session()
        if self._again is not None:
            again, self._again = replace(self._again, session=self._session.number), None
            return again
        uid = b"%08d%08d" % (self._index, self._calls)
        owned = CpStep(CpStepKind.UNLOCK, 1, session=self._session.number, thread=1, uid=uid)
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

    def _without_session(self) -> CpStep:
        if self.sessions and self._random.random() < LATE_CALLS:
            uid = b"%08d%08d" % (self._index, self._calls)
            kind = self._random.choice(LATE_KINDS)
            return CpStep(kind, 1, session=max(self.sessions), thread=1, uid=uid)
        return CpStep(CpStepKind.CREATE_SESSION, self._ttl_ms)

    def _ask(self) -> None:
        step, living = self._step, self._cluster.living()
        assert step is not None, "a call is under way"
        if not living:
            self._world.after(SECOND, self._ask)
            return
        self._attempt += 1
        attempt, asked_ns = self._attempt, self._world.now_ns
        process = self._random.choice(living)
        ask(self._world, self._cluster, process, step, lambda got: self._finish(attempt, asked_ns, got))
        self._world.after(PATIENCE_NS, partial(self._finish, attempt, asked_ns, None))

    def _finish(self, attempt: int, asked_ns: int, outcome: Outcome | None) -> None:
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
            if self.is_short and step.kind in _ACQUIRING and self._random.random() < MISSED_ANSWERS:
                self._be_silent(self._ask)
                return
            self._done(step, asked_ns, decode_answer(outcome.value))
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

    def _done(self, step: CpStep, asked_ns: int, answer: CpAnswer) -> None:
        if step.kind is CpStepKind.CREATE_SESSION:
            session = ClientSession(answer.number, asked_ns, self._sure_ns)
            self._session = self.sessions[session.number] = session
            if self.is_short:
                self._heartbeats.begin(session)
            return
        used = self.sessions.get(step.session)
        if used is not None:
            self._check_ended(used, step, asked_ns, answer)
            if answer.fate is CpFate.NO_SESSION:
                self.on_ended(used)
                self._again = step if step.kind in _ACQUIRING and self._random.random() < REPEATS else None
                return
        if step.kind in (CpStepKind.UNLOCK, CpStepKind.RELEASE):
            self._holding = None
            if answer.fate is not CpFate.DONE and not (used and used.ended_ns):
                self._world.failures.append(f"cp: user {self._index} could not release: {answer.fate.name}")
        elif step.kind in _ACQUIRING and answer.fate is CpFate.DONE and answer.number:
            kind = CpKind.LOCK if step.kind is CpStepKind.LOCK else CpKind.SEMAPHORE
            fence = answer.number if kind is CpKind.LOCK else 0
            holding = Holding(self._index, self._world.now_ns, fence=fence, asked_ns=asked_ns, session=used)
            self.holdings[kind].append(holding)
            if self._session is used:
                self._holding = kind, holding

    def _check_ended(self, session: ClientSession, step: CpStep, asked_ns: int, answer: CpAnswer) -> None:
        """The answer to a call that began after its session had ended says so. One that acquired something says so
        also if it began before and is repeated.
        """
        sent_ns = asked_ns if step.kind in _ACQUIRING else self._began_ns
        if session.ended_ns and sent_ns > session.ended_ns and answer.fate is not CpFate.NO_SESSION:
            self._world.failures.append(
                f"cp: {step.kind.name} was answered {answer.fate.name} after session {session.number} had ended"
            )

    def on_ended(self, session: ClientSession) -> None:
        """A call was answered by that."""
        if self._world.now_ns < session.safe_ns:
            early_s = (session.safe_ns - self._world.now_ns) / SECOND
            self._world.failures.append(f"cp: session {session.number} was closed {early_s:.1f} s too early")
        session.ended_ns = session.ended_ns or self._world.now_ns
        if self._session is session:
            self._session = self._holding = None


class Heartbeats:
    """Sends those of one user while it is not silent."""

    def __init__(self, user: CpUser, world: World, cluster: Cluster, index: int) -> None:
        self._user = user
        self._world = world
        self._cluster = cluster
        self._random = random.Random(f"{world.seed}/cp heartbeats {index}")

    def begin(self, session: ClientSession) -> None:
        self._world.after(self._user.ttl_ns // HEARTBEATS, partial(self._beat, session))

    def _beat(self, session: ClientSession) -> None:
        if session.ended_ns or not self._user.running:
            return
        living = self._cluster.living()
        if living and not self._user.silent:
            step = CpStep(CpStepKind.HEARTBEAT, session=session.number)
            sent_ns = self._world.now_ns
            process = self._random.choice(living)
            ask(self._world, self._cluster, process, step, lambda got: self._heard(session, sent_ns, got))
        self.begin(session)

    def _heard(self, session: ClientSession, sent_ns: int, outcome: Outcome) -> None:
        if outcome.status is not Status.OK:
            return
        assert isinstance(outcome.value, bytes)
        if decode_answer(outcome.value).fate is CpFate.NO_SESSION:
            self._user.on_ended(session)
            return
        session.heard_ns = max(session.heard_ns, sent_ns)
        if session.ended_ns and sent_ns > session.ended_ns:
            self._world.failures.append(
                f"cp: a heartbeat of session {session.number} was taken after its end"
            )


def ask(
    world: World, cluster: Cluster, process: Process, step: CpStep, then: Callable[[Outcome], None]
) -> None:
    """Through this process. There may be no answer."""
    request = cp_request(GROUP, cluster.settings.partitions.count, step, NAME)

    def done(outcome: Outcome) -> None:
        if not process.dead:
            world.after(MILLISECOND, partial(then, outcome))

    process.whenever_awake(lambda: process.step(partial(process.driver.execute, request, done)))


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
    problems = judge_counter(
        [one for user in users for one in user.additions],
        _stored(entries, CpKind.ATOMIC_LONG, LongEntry).value,
    )
    for kind, most in ((CpKind.LOCK, 1), (CpKind.SEMAPHORE, PERMITS)):
        problems += judge_holders(kind, [one for user in users for one in user.holdings[kind]], most)
    problems += judge_left(entries, all_ended=any(user.is_short for user in users))
    return [f"cp: {problem}" for problem in problems]


def judge_left(entries: Mapping[bytes, bytes], *, all_ended: bool) -> list[str]:
    """Errors in what is stored. `all_ended`: the clients have been silent for long."""
    lock = _stored(entries, CpKind.LOCK, LockEntry)
    semaphore = _stored(entries, CpKind.SEMAPHORE, SemaphoreEntry)
    together = semaphore.available + sum(semaphore.held.values())
    problems = []
    if semaphore.is_initialised and together != PERMITS:
        problems.append(f"the semaphore has {together} permits, and not {PERMITS}")
    holders = {*semaphore.held, *((lock.session,) if lock.uids else ())}
    problems += [
        f"session {session} has ended, and holds something"
        for session in sorted(holders)
        if session_key(session) not in entries
    ]
    left = sorted(key.decode() for key in entries if key.startswith(CpKind.SESSION.key()))
    if all_ended and left:
        problems.append(f"silent sessions were not closed: {', '.join(left)}")
    return problems


def _stored(entries: Mapping[bytes, bytes], kind: CpKind, entry: type[E]) -> E:
    return decode_entry(entry, entries.get(kind.key(NAME)))
