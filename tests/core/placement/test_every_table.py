"""Every table of up to 5 slots and 6 members, judged by code of its own: nothing here is taken from the planner.

A table is a present row and a target. Members have no properties here but their names, so tables that differ in names
only have the same plans but for those names, and one of each such family is enough: the present row is named A, B, C
from slot 0 on, and members that are only in the target go on from there, by slot. That nothing is missed is checked:
the families together have as many tables as there are pairs of rows with the names written out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import comb, perm
from random import Random

import pytest
from tests.sampled_cases import sampled

from holdfast.core.model.migration import NONE, Migration, ReplicaList
from holdfast.core.placement.planner import plan

MEMBERS = "ABCDEF"

# -- the tables


def currents(width: int) -> Iterator[ReplicaList]:
    """Every present row, with any slots empty."""
    for filled in range(2**width):
        names = iter(MEMBERS)
        yield tuple(next(names) if filled >> slot & 1 else None for slot in range(width))


def targets(width: int, known: str, new: str) -> Iterator[ReplicaList]:
    """Every target, with any slots empty: of members of the present row, and of new ones in this order."""
    if not width:
        yield ()
        return
    for rest in targets(width - 1, known, new):
        yield (None, *rest)
    for member in known:
        for rest in targets(width - 1, known.replace(member, ""), new):
            yield (member, *rest)
    if new:
        for rest in targets(width - 1, known, new[1:]):
            yield (new[0], *rest)


def tables(width: int) -> Iterator[tuple[ReplicaList, ReplicaList]]:
    for current in currents(width):
        known = MEMBERS[: width - current.count(None)]
        for target in targets(width, known, MEMBERS[len(known) :]):
            yield current, target


def written_out(width: int) -> int:
    """How many tables there are when members have names: any slots filled, by any members, in each of both rows."""
    return sum(comb(width, filled) * perm(len(MEMBERS), filled) for filled in range(width + 1)) ** 2


# -- the judge


def counts(row: ReplicaList) -> list[int]:
    """For every backup count, the copies."""
    return [sum(owner is not None for owner in row[: backups + 1]) for backups in range(len(row))]


def least(current: ReplicaList, target: ReplicaList) -> list[int]:
    """For every backup count, the copies that may not be missing."""
    return [min(pair) for pair in zip(counts(current), counts(target), strict=True)]


def dips(states: list[ReplicaList], floor: list[int]) -> bool:
    return any(have < need for row in states for have, need in zip(counts(row), floor, strict=True))


def moved(row: ReplicaList, step: Migration) -> ReplicaList:
    """The row after a migration."""
    slots = list(row)
    if step.destination_current != NONE:
        slots[step.destination_current] = None
    if step.source_new != NONE:
        slots[step.source_new] = step.source
    slots[step.destination_new] = step.destination
    return tuple(slots)


def step_slots(step: object) -> set[int]:
    """The slots that a migration changes."""
    assert isinstance(step, Migration)
    return {step.destination_new, step.destination_current, step.source_new} - {NONE}


def emptied(row: ReplicaList, slot: int) -> ReplicaList:
    return (*row[:slot], None, *row[slot + 1 :])


def without_cycles(current: ReplicaList, target: ReplicaList, shortest: int = 2) -> ReplicaList:
    """The target, but where a ring of at least so many owners would only pass their slots on, each keeps its own."""
    wanted = list(target)
    for slot, first in enumerate(current):
        ring, owner = [slot], first
        while owner is not None and owner in target and target.index(owner) not in ring:
            ring.append(target.index(owner))
            owner = current[ring[-1]]
        if owner is not None and len(ring) >= shortest and owner in target and target.index(owner) == slot:
            for each in ring:
                wanted[each] = current[each]
    return tuple(wanted)


# -- the published algorithm, from the words of source 001 §3.2.2 and §3.2.3


def published(current: ReplicaList, target: ReplicaList) -> tuple[list[Migration], list[int]] | None:
    """Its migrations before prioritisation, and the slots that it clears; None where it leads nowhere."""
    state = list(current)
    steps: list[Migration] = []
    cleared: list[int] = []
    slot = 0
    while slot < len(target):
        want, have = target[slot], state[slot]
        if have == want or want is None:
            if have != want:
                cleared.append(slot)
                state[slot] = None
            slot += 1
            continue
        at = slot
        if have is None or want not in state:
            held = state.index(want) if want in state else NONE
            down = target.index(have) if have is not None and have in target else NONE
            if NONE != held < slot or NONE != down < slot:
                return None
            down = down if down != NONE and state[down] is None else NONE
        else:
            # The wanted one has a colder slot. Go on from there to who is wanted there, until nobody is in the way.
            while (
                (held := state.index(target[at])) > at and target[held] is not None and target[held] in state
            ):  # type: ignore[arg-type]
                at = held
            if held < at:
                return None
            if target[held] is not None:
                at, held = held, NONE
            have = state[at]
            down = target.index(have) if held != NONE and have in target else NONE
            down = down if at < down != held and state[down] is None else NONE
        arriving = target[at]
        assert arriving is not None
        steps.append(Migration(0, have, at if have else NONE, down, arriving, held, at))
        state = list(moved(tuple(state), steps[-1]))
        if len(steps) > 20:
            return None
    return (steps, cleared) if tuple(state) == target else None


def prioritised(steps: list[Migration]) -> list[Migration]:
    """Migrations that add a copy go before those that do not and with which they have nothing in common."""
    order: list[Migration] = []
    for step in steps:
        place = len(order)
        while step.source is None and place:
            before = order[place - 1]
            shares = before.source is None or step.destination in (before.source, before.destination)
            if shares or NONE != before.source_new < step.destination_new:
                break
            place -= 1
        order.insert(place, step)
    return order


def executed(
    current: ReplicaList, steps: list[Migration], cleared: list[int], *, first: bool
) -> list[ReplicaList] | None:
    """Every row on the way, when slots are cleared first, or last; None if a migration does not fit."""
    states = [current]
    for slot in cleared if first else []:
        states.append(emptied(states[-1], slot))
    for step in steps:
        row = states[-1]
        held = row.index(step.destination) if step.destination in row else NONE
        taken = step.source_new != NONE and row[step.source_new] is not None
        if row[step.destination_new] != step.source or held != step.destination_current or taken:
            return None
        states.append(moved(row, step))
    for slot in [] if first else cleared:
        states.append(emptied(states[-1], slot))
    return states


# -- whatever could be done


def anything(row: ReplicaList, members: list[str]) -> Iterator[ReplicaList]:
    """Every row that is one migration of any kind, or one cleared slot, away."""
    for slot, have in enumerate(row):
        if have is not None:
            yield emptied(row, slot)
        for member in members:
            held = row.index(member) if member in row else NONE
            if have == member or NONE != held < slot:
                continue
            places = [NONE]
            if have is not None:
                places += [other for other in range(slot + 1, len(row)) if row[other] is None]
            for down in places:
                yield moved(row, Migration(0, have, slot if have else NONE, down, member, held, slot))


def reachable(current: ReplicaList, target: ReplicaList, floor: list[int]) -> bool:
    """Whether any order of any steps leads to the target without a dip. Nobody takes part who is in neither row."""
    members = sorted({owner for row in (current, target) for owner in row if owner is not None})
    seen = {current}
    waiting = [current]
    while waiting:
        for row in anything(waiting.pop(), members):
            if row not in seen and not dips([row], floor):
                if row == target:
                    return True
                seen.add(row)
                waiting.append(row)
    return current == target


# -- the proof

COUNTS = {
    # slots: families, tables with names written out, published plan safe (and ours the same), not made
    1: (5, 49, 5, 0),
    2: (34, 1_849, 33, 1),
    3: (286, 52_441, 263, 7),
    4: (2_815, 1_092_025, 2_393, 46),
    5: (29_243, 16_410_601, 22_193, 338),
}
"""32,383 families, 17,556,965 tables. What is not made is in tables whose target has replicas, but no owner."""


@pytest.mark.parametrize(
    "width", [pytest.param(width, marks=pytest.mark.slow) if width == 5 else width for width in COUNTS]
)
def test_every_table(width: int) -> None:
    """No step costs a copy; a safe published plan is kept; and only that is left out to which no safe order leads."""
    seen: Counter[str] = Counter()
    for current, target in tables(width):
        result = plan(0, current, target)
        wanted = without_cycles(current, target, 3)
        straight = without_cycles(current, target)
        exchanged = [slot for slot, owner in enumerate(straight) if owner != wanted[slot]]
        floor = least(current, wanted)
        seen["families"] += 1
        seen["tables"] += perm(len(MEMBERS), len({*current, *target} - {None}))

        states = [current]
        for step in result.steps:
            states.append(
                moved(states[-1], step) if isinstance(step, Migration) else emptied(states[-1], step.slot)
            )
        assert list(result.states()) == states
        assert states[-1] == result.target
        assert not dips(states, least(current, target)), (current, target)
        assert not dips(states, floor), (current, target)

        turning = {slot for slot, owner in enumerate(wanted) if owner != target[slot]}
        assert {slot for cycle in result.cycles for slot in cycle} == turning
        assert result.cancelled == [slot for slot, owner in enumerate(target) if owner != result.target[slot]]

        exchanges = len(exchanged) // 2
        published_part = result.migrations[: len(result.migrations) - exchanges]
        last = result.steps[len(result.steps) - exchanges :]
        assert sorted(slot for step in last for slot in step_slots(step)) == exchanged

        if (found := published(current, straight)) is not None:
            order = prioritised(found[0])
            ways = [executed(current, order, found[1], first=first) for first in (False, True)]
            if any(way is not None and not dips(way, floor) for way in ways):
                seen["safe as published"] += 1
                assert published_part == order, (current, target)

        if result.target != wanted:
            seen["not made"] += 1
            assert target[0] is None, "all but longer rotations is made if the target has an owner"
            assert not reachable(current, wanted, floor), (current, target)
            assert sum(have != want for have, want in zip(result.target, wanted, strict=True)) == 2
    assert (seen["families"], seen["tables"], seen["safe as published"], seen["not made"]) == COUNTS[width]
    assert seen["tables"] == written_out(width)


SEED = 16
WIDE = 12_000


def wide_tables(count: int, *, owners: bool) -> Iterator[tuple[ReplicaList, ReplicaList]]:
    """Random tables of 6 and 7 slots, both rows with holes: some members stay, some have left, some are new."""
    dice = Random(SEED)
    for _ in range(count):
        width = dice.choice((6, 7))
        # Few members have much in common, many have little.
        members = [f"m{number}" for number in range(width + dice.randint(0, 4))]
        filled = dice.choice((0.5, 0.7, 0.9))
        rows = []
        for _ in range(2):
            order = dice.sample(members, width)
            first = owners or dice.random() < filled
            rows.append(
                tuple(
                    owner if dice.random() < filled or (first and not slot) else None
                    for slot, owner in enumerate(order)
                )
            )
        yield rows[0], rows[1]


@pytest.mark.parametrize("owners", sampled([True, False], 2))
def test_wide_rows(owners: bool) -> None:
    """All but rotations of three and more is made, in few steps, unless the same members are to be where the hottest
    is colder: then somebody would have to leave the hottest slot, and nobody can be spared.
    """
    seen: Counter[str] = Counter()
    for current, target in wide_tables(WIDE, owners=owners):
        wanted = without_cycles(current, target, 3)
        result = plan(0, current, target)
        states = [current]
        for step in result.steps:
            states.append(
                moved(states[-1], step) if isinstance(step, Migration) else emptied(states[-1], step.slot)
            )
        assert list(result.states()) == states
        assert states[-1] == result.target
        for row in states:
            assert len({*row} - {None}) == len(row) - row.count(None), (current, target)
        assert not dips(states, least(current, wanted)), (current, target)
        assert len(result.steps) <= 4 * len(current), (current, target)
        hottest = [next((slot for slot, owner in enumerate(row) if owner), 9) for row in (current, wanted)]
        if {*current} - {None} == {*wanted} - {None} and hottest[0] < hottest[1]:
            seen["not made"] += 1
            wrong = [slot for slot, owner in enumerate(wanted) if owner != result.target[slot]]
            assert len(wrong) == 2, (current, target)
        else:
            assert result.target == wanted, (current, target)
        seen["holes in the target"] += None in target[: len(target) - 1]
        seen["a construction was needed"] += published(current, wanted) is None
    assert seen["holes in the target"] > WIDE // 2
    assert seen["a construction was needed"] > WIDE // 10
    assert (seen["not made"] > 0) == (not owners)


def test_the_judge_sees_a_dip() -> None:
    """The published plan clears D first, before C is there: two copies less than before and than wanted."""
    current, target = ("D", None, "B", "C"), ("D", "B", None, None)
    assert dips([current, ("D", None, None, "C"), target], least(current, target))
    assert not dips([current, target], least(current, target))
    assert reachable(("A", "B", None, "C"), ("B", "C", "A", None), [1, 2, 2, 3])
    assert not reachable(("A", None), (None, "A"), [0, 1])
