"""Planner of one partition: migrations that never cost a copy (source 001 §3.2, H6).

The promise (design rule 7): for every backup count b, at every intermediate state, at least as many of the indexes 0..b
are filled as before or in the target, whichever has fewer. Index i has data only of maps with at least i backups, so b
is what a map sees.

Rotations among owners are cancelled, as in the source, except that two owners exchange their indexes at the end. The
rest follows the order of the source if that keeps the promise, as it does for rows without holes. Otherwise a
construction of the same kinds of migrations is used; docs/placement.md proves that it always arrives. The plan leaves
out indexes that no order of steps can reach (`Plan.cancelled`). Every plan is replayed against the promise.

Indexes that are empty in the target are cleared as late as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import msgspec

from holdfast.core.model.migration import NONE, Migration, ReplicaList
from holdfast.errors import InvariantBroken


class Clear(msgspec.Struct, frozen=True):
    """An index loses its owner without a successor: only the table changes, nothing is copied."""

    slot: int
    owner: str

    def apply_to(self, row: ReplicaList) -> ReplicaList:
        assert row[self.slot] == self.owner, (self, row)
        return put(row, self.slot, None)


PlanStep = Migration | Clear


class Plan(msgspec.Struct, frozen=True):
    """The steps for one partition, in order. Each raises the version by the number of changed indexes."""

    partition: int
    current: ReplicaList
    target: ReplicaList
    """After the plan: the wanted row, except for `cancelled` indexes."""
    steps: list[PlanStep]
    """Indexes are cleared last, unless a target with a hole wants the cleared member in a colder index."""
    cycles: list[list[int]]
    """Cancelled rotations: indexes whose owners would trade places, the first one's going to the second, and so on.
    Rotations of two only without exchanges.
    """
    cancelled: list[int]
    """They do not reach the target: those of `cycles`, and those that no order of steps can reach."""

    @property
    def migrations(self) -> list[Migration]:
        return [step for step in self.steps if isinstance(step, Migration)]

    @property
    def cleared(self) -> list[int]:
        return [step.slot for step in self.steps if isinstance(step, Clear)]

    def states(self) -> Iterator[ReplicaList]:
        row = self.current
        yield row
        for step in self.steps:
            row = step.apply_to(row)
            yield row


def plan(partition: int, current: ReplicaList, target: ReplicaList, *, exchanges: bool = True) -> Plan:
    """Rows of different widths are filled up with empty indexes.

    The current row must have an owner if any member holds a replica: a migration copies from index 0. Without
    `exchanges` two owners that would trade places stay too. Raises ValueError when a row names a member twice.
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
    turning = rotations(current, target)
    pairs = [path for path in turning if exchanges and len(path) == 2]
    wanted = attainable(current, cancel_cycles(current, target))
    floor = promise(current, wanted)
    steps: list[PlanStep] | None = None
    migrations = published(partition, current, wanted)
    if migrations is not None:
        steps = replay(current, prioritise(migrations), wanted, floor)
        steps = replay(current, migrations, wanted, floor) if steps is None else steps
    if steps is None:
        steps = _Route(partition, current, wanted).settle()
    for hot, cold in pairs:
        # Last, because it adds no copy. No other step touches these indexes.
        steps.append(Migration(partition, current[hot], hot, cold, current[cold] or "", cold, hot))
        wanted = steps[-1].apply_to(wanted)
    cycles = [path for path in turning if path not in pairs]
    cancelled = [slot for slot, owner in enumerate(target) if owner != wanted[slot]]
    return Plan(partition, current, wanted, steps, cycles, cancelled)


def put(row: ReplicaList, slot: int, owner: str | None) -> ReplicaList:
    return (*row[:slot], owner, *row[slot + 1 :])


def _after(row: ReplicaList, steps: list[PlanStep]) -> ReplicaList:
    for step in steps:
        row = step.apply_to(row)
    return row


# -- the promise --------------------------------------------------------------------------------------------------


def copies(row: ReplicaList) -> list[int]:
    """By backup count b: how many of the indexes 0..b are filled."""
    return list(accumulate(owner is not None for owner in row))


def promise(current: ReplicaList, target: ReplicaList) -> list[int]:
    """By backup count: the minimum of copies of all intermediate states."""
    return [min(before, after) for before, after in zip(copies(current), copies(target), strict=True)]


def keeps(row: ReplicaList, floor: list[int]) -> bool:
    have = 0
    for owner, least in zip(row, floor, strict=True):
        have += owner is not None
        if have < least:
            return False
    return True


def replay(
    current: ReplicaList, order: list[Migration], target: ReplicaList, floor: list[int]
) -> list[PlanStep] | None:
    """In this order, with indexes cleared as late as possible: earlier could only reduce copies. None when the
    migrations do not fit, break the promise, or do not end in `target`.
    """
    row = current
    steps: list[PlanStep] = []
    for migration in order:
        here: list[PlanStep] = [migration]
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


def rotations(current: ReplicaList, target: ReplicaList) -> list[list[int]]:
    """Owners that stay would only trade places: each is wanted in the next index."""
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


def cancel_cycles(current: ReplicaList, target: ReplicaList) -> ReplicaList:
    """Owners in rotations keep their indexes.

    A rotation without an empty index would have to remove a copy first, except for an exchange of two.
    """
    for path in rotations(current, target):
        for slot in path:
            target = put(target, slot, current[slot])
    return target


def published(partition: int, current: ReplicaList, target: ReplicaList) -> list[Migration] | None:
    """Source 001 §3.2.2 in its order, before prioritisation.

    `target` has no rotations. None when the rules lead nowhere, which only happens with holes.
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
        # The same index again: it is right now, or closer to it.
    return steps


def _end_of_chain(row: ReplicaList, target: ReplicaList, slot: int) -> int:
    """The coldest index to settle first, when the wanted owner of `slot` holds a colder index.

    Each index must have a successor before its owner leaves it, unless it has none in the target. Example: (A, B, C)
    becomes (A, C, D). A SHIFT UP of C to index 1 would leave index 2 empty until D is filled: two copies instead of
    three. So the shift becomes two MOVEs (source 001 §3.1): first index 2 from C to D, then index 1 from B to C. C is
    copied again, and at every moment there are three copies.
    """
    while True:
        wanted = target[slot]
        assert wanted is not None
        held = row.index(wanted)
        successor = target[held]
        if successor is None:
            return slot  # SHIFT UP to here; the index that it leaves stays empty
        if successor not in row:
            return held  # MOVE the successor in; the wanted owner returns by a second MOVE
        slot = held


def _placement(
    partition: int, row: ReplicaList, target: ReplicaList, slot: int, *, keep: bool = True
) -> Migration | None:
    """None if the wanted owner would have to move to a colder index.

    The present owner moves to its own index in the target if that is colder and empty, and `keep` is set. Otherwise it
    loses its replica, and returns by a later migration if the target wants it.
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
    """Migrations that add a copy come before those that do not and that do not conflict with them."""
    order: list[Migration] = []
    for step in steps:
        place = len(order)
        if step.source is None:
            while place > 0 and not _must_follow(step, order[place - 1]):
                place -= 1
        order.insert(place, step)
    return order


def _must_follow(step: Migration, earlier: Migration) -> bool:
    """Whether a migration without source must stay behind `earlier`."""
    return (
        earlier.source is None
        or step.destination in (earlier.destination, earlier.source)
        or NONE != earlier.source_new < step.destination_new
    )


# -- where the published algorithm would cost a copy --------------------------------------------------------------


class _Route:
    """Steps from a row to another, built one by one; each fits and keeps the promise.

    docs/placement.md proves that it always arrives. In short: an index, the index where the target wants its owner, and
    so on form a chain. A chain that begins with a member outside the row never costs a copy. A chain that only gives up
    its first index, because its last owner is not wanted either, comes after all gains. The remaining chains lead from
    an index to be emptied to an empty one, with members that all stay: `_shift` passes them through these two indexes.
    """

    def __init__(self, partition: int, current: ReplicaList, target: ReplicaList) -> None:
        self.steps: list[PlanStep] = []
        self._partition = partition
        self._row = current
        self._target = target
        self._floor = promise(current, target)
        # Those in the target first, the hottest first.
        self._members = list(dict.fromkeys(owner for owner in target + current if owner is not None))

    def settle(self) -> list[PlanStep]:
        """The target is `attainable` and has no rotations with the row."""
        if not self._settled():
            self._lower()
            self._settled()
        if self._row != self._target:
            raise InvariantBroken(
                f"partition {self._partition}: the plan to {self._target} ends in {self._row}"
            )
        return self.steps

    def _settled(self) -> bool:
        """Chain by chain; False if one cannot be settled before the hottest indexes are given up."""
        for ring in rotations(self._row, self._target):
            # After `_lower` a member is outside the row and can stand in.
            outsider = self._outside()
            self._carry(ring[:1], outsider)
            first = self._target[ring[1]]
            assert first is not None
            self._carry([*ring[1:], ring[0]], first)
        paths = _chains(self._row, self._target)
        filling = [path for path in paths if self._row[path[-1]] is None]
        for path in filling:
            if (fresh := self._target[path[0]]) is not None:
                self._carry(self._retreat(path), fresh)
        for path in paths:
            if path not in filling and (fresh := self._target[path[0]]) is not None:
                self._carry(path, fresh)
        # Move replicas up before others move down: then no state has fewer copies than the row before or the target.
        shifted = [path for path in filling if self._target[path[0]] is None]
        for path in sorted(shifted, key=lambda path: (path[0] < path[-1], -path[0])):
            if not self._shift(self._retreat(path)):
                return False
        emptied = [path for path in paths if path not in filling and self._target[path[0]] is None]
        for path in sorted(emptied, key=lambda path: len(path) == 1):
            self._give_up(path)
        return True

    # -- single steps

    def _place(self, member: str, slot: int, down: int = NONE) -> None:
        """The member may be anywhere now; the present owner moves to `down`, or loses its replica."""
        source = self._row[slot]
        held = self._row.index(member) if member in self._row else NONE
        place = NONE if source is None else slot
        self._take(Migration(self._partition, source, place, down, member, held, slot))

    def _take(self, step: PlanStep) -> None:
        self._row = step.apply_to(self._row)
        if not keeps(self._row, self._floor):
            raise InvariantBroken(f"partition {self._partition}: {step} leads to {self._row}")
        self.steps.append(step)

    def _owner(self, slot: int) -> str:
        owner = self._row[slot]
        assert owner is not None, (slot, self._row)
        return owner

    def _outside(self) -> str:
        return next(member for member in self._members if member not in self._row)

    def _spares(self, slot: int) -> bool:
        return keeps(put(self._row, slot, None), self._floor)

    # -- chains

    def _carry(self, path: list[int], member: str) -> None:
        """Into the first index of a path; each replaced owner moves to the next index. None is emptied."""
        for number, slot in enumerate(path):
            replaced = self._row[slot]
            rest = path[number + 1 :]
            if replaced is not None and len(rest) == 1 and rest[0] > slot and self._row[rest[0]] is None:
                self._place(member, slot, down=rest[0])
                return
            self._place(member, slot)
            if replaced is None or not rest:
                return
            member = replaced

    def _give_up(self, path: list[int]) -> None:
        """Empty the first index of a path; its member moves on as in `_carry`, unless there is no next index."""
        member = self._owner(path[0])
        if len(path) == 1 or path[1] > path[0]:
            self._take(Clear(path[0], member))
        self._carry(path[1:], member)

    def _retreat(self, path: list[int]) -> list[int]:
        """While a migration can do it, fill the empty end of a path from the index before; returns the rest."""
        while len(path) > 1:
            last, hole = path[-2:]
            far = path[-3] if len(path) > 2 else NONE
            if last > hole:
                self._place(self._owner(last), hole)
                path = path[:-1]
            elif far > last and keeps(put(put(self._row, hole, self._row[last]), far, None), self._floor):
                self._place(self._owner(far), last, down=hole)
                path = path[:-2]
            else:
                break
        return path

    def _shift(self, path: list[int]) -> bool:
        """Empty the first index of a path whose last one is empty, and settle all others.

        If there is a copy to spare, the first member leaves and returns. Otherwise the first and the last index hold,
        in turn, the member to be settled next: `hot` is the hotter one of the two, `cold` the other. False if the first
        index is the hottest with an owner: another member would have to go there.
        """
        if len(path) == 1:
            return True
        if self._spares(path[0]):
            self._give_up(path)
            return True
        first, *others, last = path
        hot, cold = min(first, last), max(first, last)
        hotter = [slot for slot in range(hot) if self._row[slot] is not None]
        if first == hot and not hotter:
            return False
        for slot in others:
            self._exchange(slot, hot, cold)
        if self._row[last] is not None:
            return True
        if last == hot:
            self._place(self._owner(first), last)
            return True
        # The path down leads through a hotter index, whose owner gets it back.
        aside = hotter[-1]
        self._place(self._owner(first), aside, down=last)
        self._place(self._owner(last), first)
        self._place(self._owner(first), aside, down=last)
        return True

    def _exchange(self, slot: int, hot: int, cold: int) -> None:
        """Move the member in `hot` or `cold` (the other is empty) into `slot`, and that index's owner into one of them.
        In between `hot` is the hottest index that may be empty.
        """
        if slot < hot:
            full, empty = (hot, cold) if self._row[cold] is None else (cold, hot)
            self._place(self._owner(full), slot, down=empty)
            return
        if self._row[hot] is None and slot > cold:
            self._place(self._owner(cold), hot)
        if self._row[hot] is None:
            self._place(self._owner(slot), hot)
            self._place(self._owner(cold), slot)
        elif slot < cold:
            self._place(self._owner(slot), hot, down=cold)
            self._place(self._owner(cold), slot)
        else:
            self._place(self._owner(slot), cold)
            self._place(self._owner(cold), hot, down=slot)

    def _lower(self) -> None:
        """The indexes that are hotter than all of the target, although their members stay.

        All members move up together, so that the hottest index can be spared. Only a target without an owner needs
        this.
        """
        wanted = _hottest(self._target)
        while (top := _hottest(self._row)) < wanted:
            if self._spares(top):
                self._take(Clear(top, self._owner(top)))
                continue
            hole = self._row.index(None, top)
            if copies(self._row)[-1] <= self._floor[-1]:
                self._place(self._outside(), hole)
            else:
                coldest = max(slot for slot, owner in enumerate(self._row) if owner is not None)
                self._place(self._owner(coldest), hole)


def _chains(row: ReplicaList, target: ReplicaList) -> list[list[int]]:
    """Each owner is wanted in the next index. The first index is to be emptied, or its wanted owner is not in the row;
    the last one is empty, or its owner is not in the target.
    """
    found: list[list[int]] = []
    for start, (have, want) in enumerate(zip(row, target, strict=True)):
        if have == want or (want is not None and want in row):
            continue
        path = [start]
        while (owner := row[path[-1]]) is not None and owner in target:
            path.append(target.index(owner))
        found.append(path)
    return found


def _hottest(row: ReplicaList) -> int:
    return next((slot for slot, owner in enumerate(row) if owner is not None), len(row))


def attainable(current: ReplicaList, target: ReplicaList) -> ReplicaList:
    """The hottest owner may have to stay.

    No migration empties the hottest owned index: its owner moves up, or is replaced. It can only be cleared, and that
    costs a copy if both rows have the same members.
    """
    if target[0] is not None:
        return target  # the usual case, which must be fast
    slot = _hottest(current)
    if slot >= _hottest(target) or set(current) - {None} != set(target) - {None}:
        return target
    stays = current[slot]
    return put(put(target, target.index(stays), None), slot, stays)


def check(result: Plan, wanted: ReplicaList) -> None:
    """Raise InvariantBroken unless it arrives at its target and keeps the promise at every state."""
    floor = promise(result.current, wanted + (None,) * (len(result.current) - len(wanted)))
    row = result.current
    for row in result.states():
        if not keeps(row, floor):
            raise InvariantBroken(f"partition {result.partition}: the plan to {wanted} goes through {row}")
    if row != result.target:
        raise InvariantBroken(f"partition {result.partition}: the plan ends in {row}, not {result.target}")
