"""The judge of list-append histories agrees with trying every order; it has nothing against what locks allow, and
notices when they fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_lab.check.serializability import (
    Anomaly,
    Isolation,
    ListAppend,
    ListRead,
    ListTransaction,
    TransactionOutcome,
    judge,
)

COMMITTED, ROLLED_BACK, UNKNOWN = TransactionOutcome
SERIALIZABLE, STRICT = Isolation.SERIALIZABLE, Isolation.STRICT_SERIALIZABLE
Operation = ListAppend | ListRead


def anomalies(transactions: Sequence[ListTransaction], level: Isolation) -> list[Anomaly]:
    return [found.anomaly for found in judge(transactions, level)]


# -- against trying everything


def explained(order: Sequence[ListTransaction]) -> bool:
    """Whether each read is what one after the other would give."""
    lists: dict[str, list[int | str]] = {}
    for transaction in order:
        for one in transaction.operations:
            now = lists.setdefault(one.key, [])
            if isinstance(one, ListAppend):
                now.append(one.element)
            elif one.elements is not None and list(one.elements) != now:
                return False
    return True


def in_time(order: Sequence[ListTransaction]) -> bool:
    return not any(
        later.outcome is COMMITTED and later.end is not None and later.end < one.start
        for at, one in enumerate(order)
        for later in order[at + 1 :]
    )


def by_force(transactions: Sequence[ListTransaction], *, strict: bool) -> bool:
    committed = [one for one in transactions if one.outcome is COMMITTED]
    doubtful = [one for one in transactions if one.outcome is UNKNOWN]
    for chosen in range(1 << len(doubtful)):
        some = committed + [one for at, one in enumerate(doubtful) if chosen >> at & 1]
        if any(explained(order) and (not strict or in_time(order)) for order in permutations(some)):
            return True
    return False


@st.composite
def histories(draw: st.DrawFn) -> list[ListTransaction]:
    """A few transactions whose operations are mixed, or not, on lists that know no locks; some answers are lies."""
    count = draw(st.integers(1, 5))
    mixed = draw(st.sampled_from([0, 0, 1, 3]))
    order = [number for number in range(count) for _ in range(draw(st.integers(1, 4)))]
    for _ in range(mixed):
        one, other = draw(st.integers(0, len(order) - 1)), draw(st.integers(0, len(order) - 1))
        order[one], order[other] = order[other], order[one]
    outcomes = [draw(st.sampled_from([COMMITTED] * 6 + [UNKNOWN, ROLLED_BACK])) for _ in range(count)]
    done: list[list[Operation]] = [[] for _ in range(count)]
    times: list[list[int]] = [[] for _ in range(count)]
    lists: dict[str, list[int]] = {"x": [], "y": []}
    for at, number in enumerate(order):
        key = draw(st.sampled_from("xy"))
        times[number].append(at * 2)
        if draw(st.booleans()):
            done[number].append(ListAppend(key, at))
            if outcomes[number] is COMMITTED or draw(st.integers(0, 3)) == 0:
                lists[key].append(at)
        else:
            lie = draw(st.sampled_from([0] * 12 + [1, 2, 3]))
            shown = {1: lists[key][:-1], 2: lists[key][::-1], 3: lists[key][1:]}.get(lie, lists[key])
            done[number].append(
                ListRead(key, None if lie == 0 and draw(st.integers(0, 9)) == 0 else tuple(shown))
            )
    found = []
    for number in range(count):
        end = (times[number][-1] + 1 + draw(st.sampled_from([0, 0, 3]))) if times[number] else 0
        answered = outcomes[number] is not UNKNOWN or draw(st.booleans())
        start = times[number][0] if times[number] else 0
        found.append(
            ListTransaction(f"T{number}", outcomes[number], start, end if answered else None, done[number])
        )
    return found


@given(histories())
@settings(max_examples=300)
def test_the_judge_finds_what_trying_every_order_finds(transactions: list[ListTransaction]) -> None:
    found = [one for one in anomalies(transactions, SERIALIZABLE) if one is not Anomaly.LOST_APPEND]
    assert (found == []) == by_force(transactions, strict=False)
    assert (judge(transactions, STRICT) == []) == by_force(transactions, strict=True)


# -- against locks, and what happens without them


@dataclass
class Running:
    """A transaction that is under way."""

    number: int
    start: int
    todo: list[tuple[str, str]]
    faulty: bool
    done: list[Operation] = field(default_factory=list)
    waited: int = 0


class LockedLists:
    """Lists under strict two-phase locking, one step at a time of whichever transaction the dice name. Appends are made
    in place, and undone. A transaction that has waited for long is rolled back; some are anyway, and of some the client
    does not hear.

    With a `fault` a few transactions do not keep to it: `no locks`, `a write is lost`, `locks are given back at once`,
    `a stale read`.
    """

    def __init__(
        self, seed: int, *, transactions: int, keys: int, fault: str = "", faulty: float = 0.0
    ) -> None:
        self.dice = Random(seed)
        self.fault = fault
        self.faults = 0
        """How often something was done that locks would not have allowed, or that a store must not do."""
        self.history: list[ListTransaction] = []
        self._clock = 0
        self._lists: dict[str, list[int]] = {f"k{number}": [] for number in range(keys)}
        self._old: list[dict[str, list[int]]] = []
        self._shared: dict[str, set[int]] = {key: set() for key in self._lists}
        self._exclusive: dict[str, int] = {}
        running: list[Running] = []
        for number in range(transactions):
            todo = [
                (self.dice.choice(["read", "append"]), self.dice.choice(list(self._lists)))
                for _ in range(self.dice.randint(1, 5))
            ]
            self._clock += 1
            running.append(Running(number, self._clock, todo, self.dice.random() < faulty))
            while len(running) >= 6:
                self._step(running)
        while running:
            self._step(running)
        whole: list[Operation] = [ListRead(key, tuple(elements)) for key, elements in self._lists.items()]
        self.history.append(ListTransaction("end", COMMITTED, self._clock + 1, self._clock + 2, whole))

    def _step(self, running: list[Running]) -> None:
        self._clock += 1
        one = self.dice.choice(running)
        if not one.todo:
            running.remove(one)
            self._end(one, rolled_back=self.dice.random() < 0.15)
        elif self._operate(one, *one.todo[0]):
            del one.todo[0]
        else:
            one.waited += 1
            if one.waited > 8:
                running.remove(one)
                self._end(one, rolled_back=True)

    def _free(self, one: Running, kind: str, key: str) -> bool:
        if self._exclusive.get(key, one.number) != one.number:
            return False
        return kind == "read" or self._shared[key] <= {one.number}

    def _operate(self, one: Running, kind: str, key: str) -> bool:
        free = self._free(one, kind, key)
        unlocked = one.faulty and self.fault == "no locks"
        self.faults += unlocked and not free
        if not free and not unlocked:
            return False
        if kind == "append":
            self._exclusive.setdefault(key, one.number)
            self._lists[key].append(self._clock)
            one.done.append(ListAppend(key, self._clock))
        else:
            self._shared[key].add(one.number)
            shown = self._lists[key]
            if one.faulty and self.fault == "a stale read" and self._old:
                own = [done.element for done in one.done if isinstance(done, ListAppend) and done.key == key]
                stale = self._old[-8:][0][key] + own
                self.faults += stale != shown
                shown = stale
            one.done.append(ListRead(key, tuple(shown)))
        if unlocked or (one.faulty and self.fault == "locks are given back at once"):
            self.faults += not unlocked
            self._give_back(one)
        return True

    def _give_back(self, one: Running) -> None:
        for readers in self._shared.values():
            readers.discard(one.number)
        self._exclusive = {key: owner for key, owner in self._exclusive.items() if owner != one.number}

    def _end(self, one: Running, *, rolled_back: bool) -> None:
        appends = [done for done in one.done if isinstance(done, ListAppend)]
        gone = appends if rolled_back else []
        if appends and one.faulty and self.fault == "a write is lost" and not rolled_back:
            gone = [self.dice.choice(appends)]
            self.faults += 1
        for done in gone:
            self._lists[done.key].remove(done.element)  # type: ignore[arg-type]
        self._give_back(one)
        self._old.append({key: list(elements) for key, elements in self._lists.items()})
        outcome = ROLLED_BACK if rolled_back else COMMITTED
        end: int | None = self._clock
        if self.dice.random() < 0.15:
            outcome, end = UNKNOWN, None if self.dice.random() < 0.5 else end
        self.history.append(ListTransaction(f"T{one.number}", outcome, one.start, end, one.done))


@given(st.integers(0, 1 << 30), st.integers(2, 60), st.integers(1, 12))
def test_locks_allow_nothing_that_the_judge_forbids(seed: int, transactions: int, keys: int) -> None:
    lists = LockedLists(seed, transactions=transactions, keys=keys)
    assert judge(lists.history, STRICT) == []
    assert len(lists.history) == transactions + 1


def test_a_good_run_has_something_to_judge() -> None:
    """Else nothing would be said for it: most are committed, some are not, some unknown; reads see others' appends."""
    history = LockedLists(1, transactions=300, keys=6).history
    outcomes = Counter(one.outcome for one in history)
    assert outcomes[COMMITTED] > 100
    assert min(outcomes.values()) > 20


FAULTS = {"no locks": 100, "a write is lost": 99, "locks are given back at once": 93, "a stale read": 85}
"""In how many runs of a hundred the fault is found. In the others there is an order: it harmed only those that were
rolled back or unknown, or nobody can tell.
"""


@pytest.mark.parametrize("fault", FAULTS)
def test_what_happens_without_locks_is_found(fault: str) -> None:
    """A hundred runs with sixty transactions, of which one in five does not keep to the rules."""
    runs = [LockedLists(seed, transactions=60, keys=5, fault=fault, faulty=0.2) for seed in range(100)]
    assert sum(lists.faults > 0 for lists in runs) >= 99
    found = [lists for lists in runs if judge(lists.history, STRICT)]
    assert all(lists.faults for lists in found)
    assert len(found) >= FAULTS[fault]


# -- how long it takes


def long_history(count: int) -> list[ListTransaction]:
    """One after the other with overlapping times: forty lists at a time, of a hundred elements or so."""
    lists: dict[str, list[int]] = {}
    made = []
    for number in range(count):
        done: list[Operation] = []
        for at in range(4):
            key = f"{number // 1000} {(number * 7 + at * 11) % 40}"
            now = lists.setdefault(key, [])
            if (number + at) % 2:
                now.append(4 * number + at)
                done.append(ListAppend(key, now[-1]))
            else:
                done.append(ListRead(key, tuple(now)))
        made.append(ListTransaction(f"T{number}", COMMITTED, number * 10, number * 10 + 95, done))
    return made


def test_a_long_history_takes_no_square_of_its_length() -> None:
    """Ten thousand transactions; then all of them in one circle."""
    transactions = long_history(10_000)
    assert judge(transactions, STRICT) == []
    first, last = transactions[0], transactions[-1]
    first.operations = [*first.operations, ListRead("z", (1,))]
    last.operations = [*last.operations, ListAppend("z", 1)]
    assert [found.anomaly for found in judge(transactions, STRICT)] == [Anomaly.G1C]
