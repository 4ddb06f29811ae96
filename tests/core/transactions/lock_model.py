"""A small model of locks that end with their primary, of which every state is visited.

Two entries, each in a partition of its own, and two transactions that lock both, read both and write one or both of
them. Between any two steps the primary of a partition may die: the next one locks what is prepared there, and knows of
no other lock. Coordinators live on, and messages arrive; `commit_model` is about those that do not.

A transaction has committed what it read and wrote. Some order of the transactions must explain all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

from tests.core.transactions.commit_model import put

ALL = frozenset({"locks-checked", "reads-checked", "reads-first", "prepared-locked"})
"""The rules: each can be left out. `reads-first`: locks are confirmed before any prepare is sent."""
FREE = -1
NEITHER = -9
"""A value that no entry has."""


class Shape(NamedTuple):
    """One transaction: the order in which it locks the entries, and those that it writes."""

    locks: tuple[int, ...]
    writes: tuple[int, ...]


class Place(NamedTuple):
    """An entry, in a partition of its own. Its value is the number of the transaction that wrote it."""

    value: int = FREE
    lock: int = FREE
    prepared: int = FREE


class Run(NamedTuple):
    """A transaction in its coordinator."""

    read: tuple[int, int] = (NEITHER, NEITHER)
    locked: int = 0
    """It has locked so many entries."""
    checked: tuple[int, ...] = ()
    prepared: tuple[int, ...] = ()
    applied: tuple[int, ...] = ()
    end: str = ""
    """committed, aborted, or not yet."""


class State(NamedTuple):
    places: tuple[Place, Place]
    runs: tuple[Run, Run]
    deaths: int


class Model:
    def __init__(self, shapes: tuple[Shape, Shape], rules: frozenset[str], deaths: int) -> None:
        self.shapes = shapes
        self.rules = rules
        self.first = State((Place(), Place()), (Run(), Run()), deaths)

    def steps(self, state: State) -> Iterator[State]:
        if state.deaths:
            for at, place in enumerate(state.places):
                lock = place.prepared if "prepared-locked" in self.rules else FREE
                places = put(state.places, at, place._replace(lock=lock))
                yield state._replace(places=places, deaths=state.deaths - 1)
        for me, run in enumerate(state.runs):
            if not run.end:
                yield from self.go_on(state, me, run)

    def go_on(self, state: State, me: int, run: Run) -> Iterator[State]:
        shape = self.shapes[me]
        if run.locked < len(shape.locks):
            at = shape.locks[run.locked]
            place = state.places[at]
            if place.lock in (FREE, me):
                taken = run._replace(locked=run.locked + 1, read=put(run.read, at, place.value))
                yield self.change(state, me, taken, at, place._replace(lock=me))
            yield self.abort(state, me)  # its owner, a deadlock or a timeout may end it
            return
        unwritten = set(shape.locks) - set(shape.writes) if "reads-checked" in self.rules else set()
        unchecked = unwritten - set(run.checked)
        if len(run.prepared) == len(shape.writes) and (not unchecked or "reads-first" in self.rules):
            yield from self.apply(state, me, run)
            return
        for at in unchecked:
            yield self.check(state, me, run, at)
        if not unchecked or "reads-first" not in self.rules:
            for at in set(shape.writes) - set(run.prepared):
                yield self.prepare(state, me, run, at)
        if run.prepared and "reads-first" not in self.rules and len(run.prepared) == len(shape.writes):
            yield from self.apply(
                state, me, run
            )  # its coordinator has gone: recovery finds all branches prepared

    def check(self, state: State, me: int, run: Run, at: int) -> State:
        place = state.places[at]
        if place.lock != me:
            return self.abort(state, me)
        return self.change(state, me, run._replace(checked=(*run.checked, at)), at, place)

    def prepare(self, state: State, me: int, run: Run, at: int) -> State:
        place = state.places[at]
        held = place.lock == me or ("locks-checked" not in self.rules and place.lock == FREE)
        if not held:
            return self.abort(state, me)
        prepared = tuple(sorted((*run.prepared, at)))
        return self.change(
            state, me, run._replace(prepared=prepared), at, place._replace(lock=me, prepared=me)
        )

    def apply(self, state: State, me: int, run: Run) -> Iterator[State]:
        """Each branch alone: others see the one before the other."""
        for at in set(run.prepared) - set(run.applied):
            place = state.places[at]
            lock = FREE if place.lock == me else place.lock
            after = self.change(
                state,
                me,
                run._replace(applied=(*run.applied, at)),
                at,
                place._replace(value=me, lock=lock, prepared=FREE),
            )
            if len(run.applied) + 1 == len(run.prepared):
                after = self.release(after, me)
                after = after._replace(runs=put(after.runs, me, after.runs[me]._replace(end="committed")))
            yield after

    def abort(self, state: State, me: int) -> State:
        released = self.release(state, me)
        places = tuple(
            place._replace(prepared=FREE) if place.prepared == me else place for place in released.places
        )
        runs = put(released.runs, me, released.runs[me]._replace(end="aborted"))
        return released._replace(places=places, runs=runs)  # type: ignore[arg-type]

    def release(self, state: State, me: int) -> State:
        places = tuple(place._replace(lock=FREE) if place.lock == me else place for place in state.places)
        return state._replace(places=places)  # type: ignore[arg-type]

    def change(self, state: State, me: int, run: Run, at: int, place: Place) -> State:
        return state._replace(places=put(state.places, at, place), runs=put(state.runs, me, run))

    def explained(self, state: State) -> bool:
        """Whether some order of the committed transactions explains what they have read, and what is there."""
        committed = [me for me, run in enumerate(state.runs) if run.end == "committed"]
        if any(not run.end for run in state.runs):
            return True
        return any(self.explains(order, state) for order in permutations(committed))

    def explains(self, order: tuple[int, ...], state: State) -> bool:
        values = [FREE, FREE]
        for me in order:
            if any(state.runs[me].read[at] != values[at] for at in self.shapes[me].locks):
                return False
            for at in self.shapes[me].writes:
                values[at] = me
        return values == [place.value for place in state.places]


def visited(model: Model) -> tuple[int, State | None]:
    """The number of states, and one that no order explains; None: there is none."""
    known = {model.first}
    left = deque(known)
    while left:
        state = left.popleft()
        if not model.explained(state):
            return len(known), state
        for after in model.steps(state):
            if after not in known:
                known.add(after)
                left.append(after)
    return len(known), None
