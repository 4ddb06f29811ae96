"""From a partition's row to the wanted one, by migrations that never cost a copy (source 001 §3.2, H6).

The promise (design rule 7): for every backup count b, at every intermediate state, at least as many of the slots
0..b are filled as in the row before or in the target, whichever has fewer. Slot i carries data only for maps with
at least i backups, so b is what a map sees.

How: rotations among owners are cancelled, as published. Then the published ordering, if it keeps the promise: it does
for rows without holes, and mostly for others. Where it does not, a search over the same kinds of migrations. What no
order of them can reach is not made (`Plan.cancelled`). Every plan is replayed against the promise before it is given
out.

Slots that the target leaves empty are cleared as late as can be, which already repairs most of the published dips.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import accumulate

import msgspec

from holdfast.core.placement.migration import NONE, Migration, Slots
from holdfast.errors import InvariantBroken

ROWS_MAX = 20_000
"""How many rows a search looks at. Rows of up to 5 slots have fewer; wider ones with holes may have more."""


class Clear(msgspec.Struct, frozen=True):
    """A slot loses its owner without a successor: a change of the table alone, nothing is copied."""

    slot: int
    owner: str

    def apply_to(self, row: Slots) -> Slots:
        """The row after it."""
        assert row[self.slot] == self.owner, (self, row)
        return put(row, self.slot, None)


Step = Migration | Clear


class Plan(msgspec.Struct, frozen=True):
    """What to do with one partition, in this order. Each step raises the version by the slots that it changes."""

    partition: int
    current: Slots
    target: Slots
    """The row after the plan. It is the wanted row but for the `cancelled` slots."""
    steps: list[Step]
    """Slots are cleared last, unless a target with a hole wants the cleared member back in a colder slot."""
    cycles: list[list[int]]
    """Cancelled rotations: slots whose owners would trade places, the first one's going to the second, and so on."""
    cancelled: list[int]
    """Slots that do not become what was wanted: those of `cycles`, and those that no order of steps can reach."""

    @property
    def migrations(self) -> list[Migration]:
        """The steps that copy, in order."""
        return [step for step in self.steps if isinstance(step, Migration)]

    @property
    def cleared(self) -> list[int]:
        """Slots whose owner loses its replica without a successor, in order."""
        return [step.slot for step in self.steps if isinstance(step, Clear)]

    def states(self) -> Iterator[Slots]:
        """Every row from `current` to `target`, one for each step."""
        row = self.current
        yield row
        for step in self.steps:
            row = step.apply_to(row)
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
    cycles = rotations(current, target)
    wanted = cancel_cycles(current, target)
    floor = promise(current, wanted)
    steps: list[Step] | None = None
    migrations = published(partition, current, wanted)
    if migrations is not None:
        steps = replay(current, prioritise(migrations), wanted, floor)
        steps = replay(current, migrations, wanted, floor) if steps is None else steps
    if steps is None:
        steps = _search(partition, current, wanted, floor, wide=False)
    if steps is None:
        steps = _search(partition, current, wanted, floor, wide=True)
    assert steps is not None
    reached = _after(current, steps)
    cancelled = [slot for slot, owner in enumerate(target) if owner != reached[slot]]
    return Plan(partition, current, reached, steps, cycles, cancelled)


def plan_carelessly(partition: int, current: Slots, target: Slots) -> Plan:
    """A plan that breaks the promise, for the simulator, which is to find the harm: backups that the target does not
    want where they are lose their replicas first, and their successors are copied afterwards, by the next plan.
    """
    gone: list[Step] = [
        Clear(slot, owner)
        for slot, owner in enumerate(current)
        if slot and owner is not None and owner not in target[slot : slot + 1]
    ]
    if not gone:
        return plan(partition, current, target)
    return Plan(partition, current, _after(current, gone), gone, [], [])


def put(row: Slots, slot: int, owner: str | None) -> Slots:
    """The row with another owner of one slot."""
    return (*row[:slot], owner, *row[slot + 1 :])


def _after(row: Slots, steps: list[Step]) -> Slots:
    for step in steps:
        row = step.apply_to(row)
    return row


# -- the promise --------------------------------------------------------------------------------------------------


def copies(row: Slots) -> list[int]:
    """For every backup count b, how many of the slots 0..b are filled."""
    return list(accumulate(owner is not None for owner in row))


def promise(current: Slots, target: Slots) -> list[int]:
    """For every backup count, how many copies no intermediate state may fall below."""
    return [min(before, after) for before, after in zip(copies(current), copies(target), strict=True)]


def keeps(row: Slots, floor: list[int]) -> bool:
    """Whether the row has all the promised copies."""
    have = 0
    for owner, least in zip(row, floor, strict=True):
        have += owner is not None
        if have < least:
            return False
    return True


def replay(current: Slots, order: list[Migration], target: Slots, floor: list[int]) -> list[Step] | None:
    """These migrations in this order, and the clearing of slots as late as can be.

    None when they do not fit, break the promise, or end elsewhere than in `target`. Were a slot cleared earlier,
    the rows on the way would only have fewer copies.
    """
    row = current
    steps: list[Step] = []
    for migration in order:
        here: list[Step] = [migration]
        if migration.destination_current == NONE and migration.destination in row:
            slot = row.index(migration.destination)
            if target[slot] is not None:
                return None
            here = [Clear(slot, migration.destination), migration]
        for step in here:
            try:
                row = step.apply_to(row)
            except ValueError:
                return None
            if not keeps(row, floor):
                return None
            steps.append(step)
    last = [
        Clear(slot, owner) for slot, owner in enumerate(row) if owner is not None and target[slot] is None
    ]
    return [*steps, *last] if _after(row, [*last]) == target else None


# -- the published algorithm --------------------------------------------------------------------------------------


def rotations(current: Slots, target: Slots) -> list[list[int]]:
    """Where owners that stay would only trade places: slots, of which each owner is wanted in the next one."""
    found: list[list[int]] = []
    for start, (old, new) in enumerate(zip(current, target, strict=True)):
        if old is None or new is None or old == new or any(start in path for path in found):
            continue
        path = [start]
        owner: str | None = old
        while owner is not None and owner != new and owner in target:
            path.append(target.index(owner))
            owner = current[path[-1]]
        if owner == new:
            found.append(path)
    return found


def cancel_cycles(current: Slots, target: Slots) -> Slots:
    """The target without its rotations among owners that stay: those slots keep their owners.

    A rotation without an empty slot cannot be made without taking a copy away first.
    """
    for path in rotations(current, target):
        for slot in path:
            target = put(target, slot, current[slot])
    return target


def published(partition: int, current: Slots, target: Slots) -> list[Migration] | None:
    """The migrations of source 001 §3.2.2 in their order, before prioritisation.

    `target` has no rotations. None when the rules lead nowhere, which only rows with holes can cause.
    """
    row = current
    steps: list[Migration] = []
    slot = 0
    while slot < len(target):
        want, have = target[slot], row[slot]
        if want is None or have == want:
            row = put(row, slot, want)
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


def _search(
    partition: int, current: Slots, target: Slots, floor: list[int], *, wide: bool
) -> list[Step] | None:
    """The shortest order of safe steps to the target.

    Breadth first. Each step settles a slot for good or fills an empty one from a colder slot, so it is short. A
    `wide` search also lets owners make room for each other and clears slots before the end, and answers the way to the
    best row that can be reached; the other one answers None when it does not arrive.
    """
    ways: dict[Slots, tuple[Slots, Step] | None] = {current: None}
    waiting = deque([current])
    best, best_score = current, _score(current, target, floor)
    while waiting and best_score[0] < len(target) and len(ways) < ROWS_MAX:
        row = waiting.popleft()
        for step in _safe_steps(partition, row, target, floor, wide=wide):
            after = step.apply_to(row)
            if after in ways:
                continue
            ways[after] = (row, step)
            waiting.append(after)
            score = _score(after, target, floor)
            if score > best_score:
                best, best_score = after, score
    reached = _swept(best, target, floor)
    if reached != target and not wide:
        return None
    order: list[Step] = []
    row = best
    while (way := ways[row]) is not None:
        row, step = way
        order.append(step)
    order.reverse()
    late = replay(current, [step for step in order if isinstance(step, Migration)], reached, floor)
    if late is not None:
        return late
    return order + [
        Clear(slot, owner) for slot, owner in enumerate(best) if owner is not None and reached[slot] is None
    ]


def _safe_steps(partition: int, row: Slots, target: Slots, floor: list[int], *, wide: bool) -> Iterator[Step]:
    """Every step from `row` that keeps the promise and is worth trying."""
    options: list[Step] = []
    for slot, want in enumerate(target):
        have = row[slot]
        if want is not None and have != want:
            options += _placements(partition, row, target, slot)
        if have is None:
            options += [
                Migration(partition, None, NONE, NONE, owner, held, slot)
                for held, owner in enumerate(row)
                if owner is not None and held > slot and owner != want
            ]
        elif wide:
            options += _exchanges(partition, row, slot)
            if want is None:
                options.append(Clear(slot, have))
    for step in options:
        if keeps(step.apply_to(row), floor):
            yield step


def _placements(partition: int, row: Slots, target: Slots, slot: int) -> list[Step]:
    """The ways to settle a slot: its present owner goes down, or out."""
    ways = [_placement(partition, row, target, slot)]
    if row[slot] is not None:
        ways.append(_placement(partition, row, target, slot, keep=False))
    return [step for step in ways if step is not None]


def _exchanges(partition: int, row: Slots, slot: int) -> list[Step]:
    """Migrations in which a colder owner takes this slot, and the present one goes to any empty colder slot."""
    empty = [other for other in range(slot + 1, len(row)) if row[other] is None]
    return [
        Migration(partition, row[slot], slot, down, owner, held, slot)
        for down in empty
        for held, owner in enumerate(row)
        if owner is not None and held > slot
    ]


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
