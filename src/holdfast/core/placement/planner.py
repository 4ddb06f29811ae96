"""From a partition's row to the wanted one, by migrations that never cost a copy (source 001 §3.2, H6).

The promise (design rule 7): for every backup count b, at every intermediate state, at least as many of the slots
0..b are filled as in the row before or in the target, whichever has fewer. Slot i carries data only for maps with
at least i backups, so b is what a map sees.

How: the published ordering first. It keeps the promise for rows without holes, and mostly for others. Where it
does not, a search over the same kinds of migrations, which also may pull a replica up into an empty slot. Where
nothing leads there, the part that can be reached is planned and the rest is not made (`Plan.cancelled`). Every plan
is replayed against the promise before it is given out.

Slots that the target leaves empty are cleared last, which already repairs most of the published dips.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import accumulate

import msgspec

from holdfast.core.placement.migration import NONE, Migration, Slots
from holdfast.errors import InvariantBroken


class Plan(msgspec.Struct, frozen=True):
    """What to do with one partition: the migrations in this order, then the cleared slots."""

    partition: int
    current: Slots
    target: Slots
    """The row after the plan. It is the wanted row but for the `cancelled` slots."""
    migrations: list[Migration]
    cleared: list[int]
    """Slots whose owner loses its replica without a successor, after all migrations."""
    cancelled: list[int]
    """Slots that do not become what was wanted, since getting there would cost a copy on the way."""

    def states(self) -> Iterator[Slots]:
        """Every row from `current` to `target`, one for each migration and each cleared slot."""
        row = self.current
        yield row
        for migration in self.migrations:
            row = migration.apply_to(row)
            yield row
        for slot in self.cleared:
            row = put(row, slot, None)
            yield row


def plan(partition: int, current: Slots, target: Slots) -> Plan:
    """Plan one partition. Rows of different widths are filled up with empty slots.

    The current row is to have an owner if any member holds a replica: with slot 0 empty, a migration into it has
    nowhere to take the data from. Raises ValueError when a row names a member twice.
    """
    width = max(len(current), len(target))
    current += (None,) * (width - len(current))
    target += (None,) * (width - len(target))
    for name, row in (("current", current), ("target", target)):
        owners = [owner for owner in row if owner is not None]
        if len(owners) != len(set(owners)):
            raise ValueError(f"partition {partition}: the {name} row {row} names a member twice")
    if current == target:
        return Plan(partition, current, target, [], [], [])
    wanted = cancel_cycles(current, target)
    floor = promise(current, wanted)
    migrations = published(partition, current, wanted)
    if migrations is not None:
        for order in (prioritise(migrations), migrations):
            if (reached := replay(current, order, wanted, floor)) is not None:
                return _finish(partition, current, target, reached, order)
    order, reached = _search(partition, current, wanted, floor)
    return _finish(partition, current, target, reached, order)


def plan_carelessly(partition: int, current: Slots, target: Slots) -> Plan:
    """A plan that breaks the promise, for the simulator, which is to find the harm: backups that the target does not
    want where they are lose their replicas first, and their successors are copied afterwards, by the next plan.
    """
    gone = [
        slot for slot, owner in enumerate(current) if slot and owner not in (None, *target[slot : slot + 1])
    ]
    if not gone:
        return plan(partition, current, target)
    row = current
    for slot in gone:
        row = put(row, slot, None)
    return Plan(partition, current, row, [], gone, [])


def _finish(partition: int, current: Slots, target: Slots, reached: Slots, order: list[Migration]) -> Plan:
    """The plan that goes to `reached`, whose slots without successor are to be cleared."""
    last = current
    for migration in order:
        last = migration.apply_to(last)
    cleared = [slot for slot, owner in enumerate(last) if owner != reached[slot]]
    cancelled = [slot for slot, owner in enumerate(target) if owner != reached[slot]]
    return Plan(partition, current, reached, order, cleared, cancelled)


def put(row: Slots, slot: int, owner: str | None) -> Slots:
    """The row with another owner of one slot."""
    return (*row[:slot], owner, *row[slot + 1 :])


# -- the promise --------------------------------------------------------------------------------------------------


def copies(row: Slots) -> list[int]:
    """For every backup count b, how many of the slots 0..b are filled."""
    return list(accumulate(owner is not None for owner in row))


def promise(current: Slots, target: Slots) -> list[int]:
    """For every backup count, how many copies no intermediate state may fall below."""
    return [min(before, after) for before, after in zip(copies(current), copies(target), strict=True)]


def keeps(row: Slots, floor: list[int]) -> bool:
    """Whether the row has all the promised copies."""
    return all(have >= least for have, least in zip(copies(row), floor, strict=True))


def replay(current: Slots, order: list[Migration], target: Slots, floor: list[int]) -> Slots | None:
    """`target` if these migrations can be done in this order, keep the promise, and leave only slots to clear."""
    row = current
    for migration in order:
        try:
            row = migration.apply_to(row)
        except ValueError:
            return None
        if not keeps(row, floor):
            return None
    arrived = all(want is None or have == want for have, want in zip(row, target, strict=True))
    return target if arrived else None


# -- the published algorithm --------------------------------------------------------------------------------------


def cancel_cycles(current: Slots, target: Slots) -> Slots:
    """The target without its rotations among owners that stay: those slots keep their owners.

    A rotation cannot be made without taking a copy away first.
    """
    result = list(target)
    for start, (old, new) in enumerate(zip(current, target, strict=True)):
        if old is None or new is None or old == result[start]:
            continue
        path = [start]
        owner: str | None = old
        while owner is not None and owner != new and owner in target:
            path.append(target.index(owner))
            owner = current[path[-1]]
        if owner == new:
            for slot in path:
                result[slot] = current[slot]
    return tuple(result)


def published(partition: int, current: Slots, target: Slots) -> list[Migration] | None:
    """The migrations of source 001 §3.2.2 in their order, before prioritisation, clearing last.

    `target` has no rotations. None when the rules lead nowhere, which only rows with holes can cause.
    """
    row = current
    steps: list[Migration] = []
    slot = 0
    while slot < len(target):
        want, have = target[slot], row[slot]
        if want is None or have == want:
            slot += 1
            continue
        place = slot
        if have is not None and want in row:
            place = _end_of_chain(row, target, slot)
        step = _placement(partition, row, target, place)
        if step is None or len(steps) > 2 * len(target):
            return None
        steps.append(step)
        row = step.apply_to(row)
        # The same slot again: it is right now, or nearer to it.
    return steps


def _end_of_chain(row: Slots, target: Slots, slot: int) -> int:
    """The coldest slot to be settled first, when the wanted owner of `slot` is now in a colder slot.

    Follow who is wanted where: each one's present slot must be given on before it is left, unless nobody gets it.
    """
    while True:
        wanted = target[slot]
        assert wanted is not None
        held = row.index(wanted)
        successor = target[held]
        if successor is None:
            return slot  # SHIFT UP to here; the slot it leaves stays empty
        if successor not in row:
            return held  # MOVE the successor in; the wanted one comes back by a MOVE of its own
        slot = held


def _placement(
    partition: int, row: Slots, target: Slots, slot: int, *, keep: bool = True
) -> Migration | None:
    """The migration that gives `slot` to its owner in the target; None when that one would have to go colder.

    The present owner goes to its own slot in the target if that is colder and empty now, and `keep` is set;
    else it loses its replica (and comes back by a later migration if the target wants it).
    """
    want, have = target[slot], row[slot]
    assert want is not None
    held = row.index(want) if want in row else NONE
    if NONE != held < slot:
        return None
    if have is None:
        return Migration(partition, None, NONE, NONE, want, held, slot)
    down = target.index(have) if keep and have in target else NONE
    if down <= slot or row[down] is not None:
        down = NONE
    return Migration(partition, have, slot, down, want, held, slot)


def prioritise(steps: list[Migration]) -> list[Migration]:
    """Bring migrations that add a copy forward, over those that do not and that they do not conflict with."""
    order: list[Migration] = []
    for step in steps:
        place = len(order)
        if step.source is None:
            while place > 0 and not _must_follow(step, order[place - 1]):
                place -= 1
        order.insert(place, step)
    return order


def _must_follow(step: Migration, earlier: Migration) -> bool:
    """Whether a migration without source has to stay behind `earlier`."""
    return (
        earlier.source is None
        or step.destination in (earlier.destination, earlier.source)
        or NONE != earlier.source_new < step.destination_new
    )


# -- where the published algorithm would cost a copy --------------------------------------------------------------


def _search(partition: int, current: Slots, target: Slots, floor: list[int]) -> tuple[list[Migration], Slots]:
    """The shortest order of safe migrations to the target, or to the best row that can be reached.

    Breadth first. Each step settles a slot for good or fills an empty one from a colder slot, so it is short.
    """
    ways: dict[Slots, tuple[Slots, Migration] | None] = {current: None}
    waiting = deque([current])
    best, best_score = current, _score(current, target, floor)
    while waiting:
        row = waiting.popleft()
        for step in _safe_steps(partition, row, target, floor):
            after = step.apply_to(row)
            if after in ways:
                continue
            ways[after] = (row, step)
            waiting.append(after)
            score = _score(after, target, floor)
            if score > best_score:
                best, best_score = after, score
    order: list[Migration] = []
    row = best
    while (way := ways[row]) is not None:
        row, step = way
        order.append(step)
    order.reverse()
    return order, _swept(best, target, floor)


def _safe_steps(partition: int, row: Slots, target: Slots, floor: list[int]) -> Iterator[Migration]:
    """Every migration from `row` that keeps the promise and settles a slot, or moves a replica up into a hole."""
    for slot, want in enumerate(target):
        options: list[Migration | None] = []
        if want is not None and row[slot] != want:
            options = [_placement(partition, row, target, slot)]
            if row[slot] is not None:
                options.append(_placement(partition, row, target, slot, keep=False))
        if row[slot] is None:
            options += [
                Migration(partition, None, NONE, NONE, owner, held, slot)
                for held, owner in enumerate(row)
                if owner is not None and held > slot and owner != want
            ]
        for step in options:
            if step is not None and keeps(step.apply_to(row), floor):
                yield step


def _score(row: Slots, target: Slots, floor: list[int]) -> tuple[int, list[int]]:
    """How good a row is to end in: slots as wanted first, then copies, hotter ones before colder ones."""
    final = _swept(row, target, floor)
    return sum(have == want for have, want in zip(final, target, strict=True)), copies(final)


def _swept(row: Slots, target: Slots, floor: list[int]) -> Slots:
    """The row after clearing what the target does not want, as far as the promise allows."""
    for slot in reversed(range(len(row))):
        if row[slot] is not None and target[slot] is None and keeps(put(row, slot, None), floor):
            row = put(row, slot, None)
    return row


def check(result: Plan, wanted: Slots) -> None:
    """Raise InvariantBroken unless the plan arrives where it says and keeps the promise at every state."""
    floor = promise(result.current, wanted + (None,) * (len(result.current) - len(wanted)))
    row = result.current
    for row in result.states():
        if not keeps(row, floor):
            raise InvariantBroken(f"partition {result.partition}: the plan to {wanted} goes through {row}")
    if row != result.target:
        raise InvariantBroken(f"partition {result.partition}: the plan ends in {row}, not {result.target}")
