"""A small model of how transactions commit and are recovered, of which every state is visited.

Two partitions, two transactions that write the same entry of each, a coordinator of each, and in each partition
somebody who recovers what a dead coordinator has left. A partition is one thing here: its steps are replicated before
they are answered, so members die around it and not in it (the simulator judges that). What may go wrong is everything
else: a prepare comes late, twice, or when its coordinator is long dead; the answer to it is lost; coordinators and
recoverers die between any two steps, and whoever recovers next knows nothing of the one before; and a coordinator is
removed from the cluster while it lives, and goes on until it hears of that.

Commits, rollbacks and questions are repeated until they are answered, and mean the same when they come again; so they
are one step each. Locks that are taken before prepare are left out: with prepare they are the same, only earlier.
What nobody looks at any more is left out of a state, too: what a coordinator knew that is dead, and which answers a
decision came from. And outcomes are forgotten in both partitions at once, for nobody can see the one without the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

ALL = frozenset(
    {
        "lock-exclusive",
        "all-prepared",
        "doubt-asks",
        "asked-is-fenced",
        "branches-decide",
        "all-asked",
        "outcome-kept",
        "orphans-end",
        "forget-late",
    }
)
"""The rules: each can be left out."""
PARTITIONS = (0, 1)
TRANSACTIONS = (0, 1)
YES, NO, LOST = "yes", "no", "lost"
PREPARED, COMMITTED, ROLLED_BACK = "P", "C", "R"


class Place(NamedTuple):
    """One partition."""

    branches: tuple[str, ...] = ("", "")
    lock: int = -1
    written: tuple[bool, ...] = (False, False)


class Coordinator(NamedTuple):
    """Of one transaction."""

    alive: bool = True
    suspected: bool = False
    """Taken for dead by those who recover, though it lives."""
    answers: tuple[str, ...] = ("", "")
    decision: str = ""
    doubt: bool = False
    acked: tuple[bool, ...] = (False, False)
    told: str = ""
    forgotten: bool = False


class Recoverer(NamedTuple):
    """In one partition, of one transaction."""

    answers: tuple[str, ...] = ("", "")
    decision: str = ""
    acked: tuple[bool, ...] = (False, False)


class State(NamedTuple):
    """All of it."""

    places: tuple[Place, ...]
    coordinators: tuple[Coordinator, ...]
    recoverers: tuple[tuple[Recoverer | None, ...], ...]
    """By partition, and transaction."""
    flying: tuple[tuple[int, ...], ...]
    """How many prepares are on their way, by transaction and partition."""
    crashes: int
    """Members that may yet die."""
    removals: int
    """Coordinators that may yet be taken for dead, and removed, while they live."""


Step = tuple[str, State]
Item = TypeVar("Item")


def put(items: tuple[Item, ...], at: int, item: Item) -> tuple[Item, ...]:
    """The same with another item at one place."""
    return (*items[:at], item, *items[at + 1 :])


OVER = Coordinator(decision=ROLLED_BACK, acked=(True, True), forgotten=True)


def first(crashes: int, transactions: int, removals: int = 0) -> State:
    """Each coordinator has sent its prepares. With one transaction the other is over already."""
    coordinators = (Coordinator(), Coordinator() if transactions > 1 else OVER)
    flying = ((1, 1), (1, 1) if transactions > 1 else (0, 0))
    return State((Place(),) * 2, coordinators, ((None, None),) * 2, flying, crashes, removals)


# -- a partition


def prepare(place: Place, of: int, rules: frozenset[str]) -> tuple[Place, str]:
    """What the partition makes of a prepare, and answers."""
    branch = place.branches[of]
    if branch:
        return place, NO if branch == ROLLED_BACK else YES
    if place.lock not in (-1, of) and "lock-exclusive" in rules:
        return place, NO
    if place.written[of]:
        return place, YES
    return Place(put(place.branches, of, PREPARED), of, place.written), YES


def commit(place: Place, of: int, rules: frozenset[str]) -> Place:
    """The same of a commit."""
    if place.branches[of] != PREPARED:
        return place
    kept = COMMITTED if "outcome-kept" in rules else ""
    lock = -1 if place.lock == of else place.lock
    return Place(put(place.branches, of, kept), lock, put(place.written, of, True))


def roll_back(place: Place, of: int, *, fence: bool) -> Place:
    """The same of a rollback."""
    if place.branches[of] == COMMITTED:
        return place
    lock = -1 if place.lock == of else place.lock
    return Place(put(place.branches, of, ROLLED_BACK if fence else ""), lock, place.written)


def ask(place: Place, of: int, rules: frozenset[str]) -> tuple[Place, str]:
    """The same of a question."""
    if place.branches[of]:
        return place, place.branches[of]
    return roll_back(place, of, fence="asked-is-fenced" in rules), ROLLED_BACK


def forget(place: Place, of: int) -> Place:
    """The outcome is of use to nobody any more."""
    if place.branches[of] in (COMMITTED, ROLLED_BACK):
        return place._replace(branches=put(place.branches, of, ""))
    return place


# -- what may happen next


def steps(state: State, rules: frozenset[str]) -> Iterator[Step]:
    """Every next state, with what has happened."""
    for of in TRANSACTIONS:
        yield from _prepares(state, of, rules)
        coordinator = state.coordinators[of]
        if coordinator.alive:
            yield from _coordinates(state, of, rules)
        if (not coordinator.alive or coordinator.suspected) and "orphans-end" in rules:
            for at in PARTITIONS:
                yield from _recovers(state, of, at, rules)


def _with(state: State, at: int, place: Place) -> State:
    return state._replace(places=put(state.places, at, place))


def _prepares(state: State, of: int, rules: frozenset[str]) -> Iterator[Step]:
    coordinator = state.coordinators[of]
    for at in PARTITIONS:
        count = state.flying[of][at]
        if not count:
            continue
        place, answer = prepare(state.places[at], of, rules)
        gone = put(state.flying, of, put(state.flying[of], at, count - 1))
        after = _with(state, at, place)._replace(flying=gone)
        hears = coordinator.alive and not coordinator.decision and coordinator.answers[at] != YES
        if hears:
            heard = coordinator._replace(answers=put(coordinator.answers, at, answer))
            yield f"{of} is prepared in {at}: {answer}", _said(after, of, heard)
            lost = coordinator._replace(answers=put(coordinator.answers, at, LOST), doubt=True)
            yield f"{of} is prepared in {at}: {answer}, and the answer is lost", _said(after, of, lost)
        else:
            yield f"a late prepare of {of} comes to {at}: {answer}", after
        if not coordinator.alive or coordinator.decision:
            yield f"a prepare of {of} to {at} is dropped", state._replace(flying=gone)


def _said(state: State, of: int, coordinator: Coordinator) -> State:
    return state._replace(coordinators=put(state.coordinators, of, coordinator))


def _coordinates(state: State, of: int, rules: frozenset[str]) -> Iterator[Step]:
    me = state.coordinators[of]
    if not me.decision:
        yield from _decides(state, of, me, rules)
    elif not all(me.acked):
        for at in PARTITIONS:
            if not me.acked[at]:
                yield f"{of} tells {at}: {me.decision}", _told(state, of, at, me, rules)
    elif not me.forgotten:
        if not me.doubt or not sum(state.flying[of]) or "forget-late" not in rules:
            after = state
            for at in PARTITIONS:
                after = _with(after, at, forget(after.places[at], of))
            yield f"both forget {of}", _said(after, of, me._replace(forgotten=True))
        return
    dead = Coordinator(alive=False, told=me.told)
    if me.suspected:
        yield f"the coordinator of {of} hears that it was removed", _said(state, of, dead)
    elif state.crashes:
        yield f"the coordinator of {of} dies", _said(state, of, dead)._replace(crashes=state.crashes - 1)
    if state.removals and not me.suspected:
        taken = me._replace(suspected=True)
        yield (
            f"the coordinator of {of} is removed",
            _said(state, of, taken)._replace(removals=state.removals - 1),
        )


def _decides(state: State, of: int, me: Coordinator, rules: frozenset[str]) -> Iterator[Step]:
    enough = any if "all-prepared" not in rules else all
    if enough(answer == YES for answer in me.answers):
        yield (
            f"{of} decides to commit",
            _said(state, of, Coordinator(True, me.suspected, decision=COMMITTED, doubt=me.doubt)),
        )
    refusals = (NO,) if "doubt-asks" in rules else (NO, LOST)
    if any(answer in refusals for answer in me.answers):
        doubt = me.doubt or any(state.flying[of])
        back = Coordinator(True, me.suspected, decision=ROLLED_BACK, told=ROLLED_BACK, doubt=doubt)
        yield f"{of} decides to roll back", _said(state, of, back)
    for at in PARTITIONS:
        if me.answers[at] == LOST and not state.flying[of][at]:
            again = put(state.flying, of, put(state.flying[of], at, 1))
            yield f"{of} sends its prepare to {at} again", state._replace(flying=again)


def _told(state: State, of: int, at: int, me: Coordinator, rules: frozenset[str]) -> State:
    place = state.places[at]
    if me.decision == COMMITTED:
        after = _with(state, at, commit(place, of, rules))
    else:
        after = _with(state, at, roll_back(place, of, fence=me.doubt))
    acked = put(me.acked, at, True)
    told = me.told or (COMMITTED if all(acked) else "")
    return _said(after, of, me._replace(acked=acked, told=told))


def _nothing_comes(state: State, of: int) -> bool:
    """Whether no prepare is on its way, and none can be sent any more. Members know that by the time that has passed:
    nobody takes anything from a coordinator that was removed, and requests wait for a call timeout at most.
    """
    return not sum(state.flying[of]) and not state.coordinators[of].alive


def _recovers(state: State, of: int, at: int, rules: frozenset[str]) -> Iterator[Step]:
    recoverer = state.recoverers[at][of]
    branch = state.places[at].branches[of]

    def now(after: State, one: Recoverer | None) -> State:
        return after._replace(recoverers=put(after.recoverers, at, put(after.recoverers[at], of, one)))

    if recoverer is None:
        if branch == PREPARED:
            if "branches-decide" in rules:
                yield f"{at} begins to recover {of}", now(state, Recoverer())
            else:
                alone = roll_back(state.places[at], of, fence=False)
                yield f"{at} rolls {of} back by itself", _with(state, at, alone)
        elif branch == COMMITTED:
            yield f"{at} sees to it that {of} commits", now(state, Recoverer(decision=COMMITTED))
        elif branch == ROLLED_BACK and _nothing_comes(state, of):
            yield f"{at} forgets {of}, which was rolled back", _with(state, at, forget(state.places[at], of))
        return
    if state.crashes:
        yield f"who recovers {of} in {at} dies", now(state, None)._replace(crashes=state.crashes - 1)
    if not recoverer.decision:
        for other in PARTITIONS:
            if recoverer.answers[other]:
                continue
            place, answer = ask(state.places[other], of, rules)
            answers = put(recoverer.answers, other, answer)
            prepared = [each == PREPARED for each in answers]
            decision = ROLLED_BACK if answer == ROLLED_BACK else COMMITTED if answer == COMMITTED else ""
            if all(prepared) or (any(prepared) and not decision and "all-asked" not in rules):
                decision = COMMITTED
            asked = Recoverer(("", "") if decision else answers, decision)
            yield f"{at} asks {other} of {of}: {answer}", now(_with(state, other, place), asked)
    elif not all(recoverer.acked):
        for other in PARTITIONS:
            if not recoverer.acked[other]:
                place = state.places[other]
                if recoverer.decision == COMMITTED:
                    after = commit(place, of, rules)
                else:
                    after = roll_back(place, of, fence=True)
                told = recoverer._replace(acked=put(recoverer.acked, other, True))
                yield (
                    f"{at} tells {other} of {of}: {recoverer.decision}",
                    now(_with(state, other, after), told),
                )
    elif _nothing_comes(state, of) or "forget-late" not in rules:
        forgot = state
        for other in PARTITIONS:
            forgot = _with(forgot, other, forget(forgot.places[other], of))
        yield f"both forget {of}", now(forgot, None)


# -- what must be


def wrong(state: State, *, at_rest: bool) -> str:
    """What must not be in this state; empty when all is well. `at_rest`: nothing can happen any more."""
    for at, place in enumerate(state.places):
        if place.branches.count(PREPARED) > 1:
            return f"two transactions are prepared to write the entry of {at}"
    for of, coordinator in enumerate(state.coordinators):
        written = [place.written[of] for place in state.places]
        if coordinator.told == COMMITTED and not all(written):
            return f"{of} was told to be committed, and is not there"
        if coordinator.told == ROLLED_BACK and any(written):
            return f"{of} was told to be rolled back, and is there"
        if at_rest and any(written) and not all(written):
            return f"half of {of} is there"
        if at_rest and any(place.branches[of] == PREPARED or place.lock == of for place in state.places):
            return f"{of} holds a lock for ever"
    return ""


class Found(NamedTuple):
    """What a search has found."""

    states: int
    wrong: str
    path: list[str]


def search(
    crashes: int,
    transactions: int,
    removals: int = 0,
    without: frozenset[str] = frozenset(),
    most: int = 5_000_000,
) -> Found:
    """Visit every state; ends with the first that must not be, and the shortest way to it."""
    rules = ALL - without
    start = first(crashes, transactions, removals)
    came: dict[State, tuple[State, str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        following = list(steps(state, rules))
        problem = wrong(state, at_rest=not following)
        if problem:
            path = []
            here: State = state
            while (before := came[here]) is not None:
                here, step = before
                path.append(step)
            return Found(len(came), problem, path[::-1])
        for step, after in following:
            if after not in came:
                came[after] = (state, step)
                waiting.append(after)
        if len(came) > most:
            raise MemoryError(f"more than {most} states")
    return Found(len(came), "", [])
