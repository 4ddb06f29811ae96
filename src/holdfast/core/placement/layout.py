"""Even layout: the target of every partition for the present members (H7, H6).

`arrange` starts from the present rows and changes them only where one of these rules is broken:

- Every partition has its replicas, no two of them on one member or in one group (a host, a zone; by default each member
  is a group of its own). With fewer groups than replicas, some replica indexes stay empty.
- For every backup count b, the indexes 0..b are spread evenly: two members differ by at most one. A group holds a
  partition at most once, which limits the members of a big group in a small cluster; the others share the rest evenly.

It proceeds index by index, from hot to cold. An index goes to a member that has no replica of the partition, or only a
colder one, which another member then takes over. The present owner gives it up, or moves down to an index that has lost
its owner, which costs no more copies than filling that one. The choice is a cheapest path in a graph of members: as few
replicas as possible are copied, and among equals members share partitions with as many others as possible, so that
after a crash many members restore the copies. The planner can reach every result.

Where each member (or group) holds every partition, primaries and first backups may exchange roles
(`core/placement/owner_exchange.py`). The even spread of colder indexes is given up where it would cost copies. Big
groups beside small ones may be a few replicas off.

The result is stable: arranged again it stays the same. Very uneven rows may need two runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise

import msgspec

from holdfast.core.model.migration import NONE, ReplicaList
from holdfast.core.placement.owner_exchange import exchanging
from holdfast.core.placement.planner import cancel_cycles, plan
from holdfast.core.placement.spread import Levels, Members, Need, Pool, Ranking, Sharing, members_of, sets_of

EMPTY = -1

GONER = -2
"""The owner is leaving: it still has the data, and a successor takes over."""

ROUNDS = 8
"""Repetitions in search of a stable layout; one or two suffice except for contrived rows."""

DEAREST = 1 << 30
"""More than the cost of any chain of members."""

CHOICE = 32
"""The best spread among so many partitions; more would only cost time."""


class Candidate(msgspec.Struct, frozen=True):
    """A member that may hold replicas; two of one group never hold the same partition."""

    uuid: str
    group: str = ""
    """Host, zone or rack; empty: its own group."""
    consistent_id: str = ""
    """Empty: its uuid. Not used in this module."""


Layout = Callable[[Sequence[ReplicaList], Sequence[Candidate], int], list[ReplicaList]]


def arrange(rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int) -> list[ReplicaList]:
    """`replicas` members each if there are as many groups. A member in `rows` that is no candidate is leaving. The
    order of candidates does not matter. Without candidates the rows stay. Raises ValueError when two candidates have
    the same uuid or `replicas` is less than 1.
    """
    work = arranging(rows, candidates, replicas)
    while True:
        try:
            next(work)
        except StopIteration as done:
            target: list[ReplicaList] = done.value
            return target


Arranging = Generator[None, None, list[ReplicaList]]


def arranging(rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int) -> Arranging:
    checked(candidates, replicas)
    if not candidates or not rows:
        return list(rows)
    # Members with replicas first, so that the choice among equals does not depend on the UUID of a new member.
    known = {owner for row in rows for owner in row}
    members = sorted(candidates, key=lambda candidate: (candidate.uuid not in known, candidate.uuid))
    target, final = yield from _rounds(rows, members, replicas)
    if not final:
        # Another order leads to other choices among equals.
        second, final = yield from _rounds(rows[::-1], members, replicas)
        if final:
            target = second[::-1]
    return (yield from exchanging(rows, target, [member.uuid for member in members]))


def by_hosts(
    candidates: Sequence[Candidate], hosts: Mapping[str, str], replicas: int, away: int = 0
) -> list[Candidate]:
    """Grouped by host, if there are as many hosts as replicas. `hosts`: UUID -> host. A configured group is kept. A
    member without a host counts as another one, as do the `away` members whose places are kept.
    """
    grouped = [
        msgspec.structs.replace(one, group=hosts.get(one.uuid, one.uuid))
        if one.group in ("", one.uuid)
        else one
        for one in candidates
    ]
    enough = len({one.group for one in grouped}) + away >= replicas
    return grouped if enough else list(candidates)


def checked(candidates: Sequence[Candidate], replicas: int) -> None:
    if replicas < 1:
        raise ValueError(f"a partition needs at least 1 replica, not {replicas}")
    if len({candidate.uuid for candidate in candidates}) != len(candidates):
        raise ValueError("two candidates have the same uuid")


def _rounds(
    rows: Sequence[ReplicaList], members: Sequence[Candidate], replicas: int
) -> Generator[None, None, tuple[list[ReplicaList], bool]]:
    """The targets, and whether arranging them again would change nothing.

    Rarely an index that was given up opens a path that was closed before. If no stable rows are found, the first ones
    are returned. They are more even than the given ones, judged by the hottest uneven index, so repeated arranging
    ends.
    """
    first = target = _without_cycles(rows, (yield from _Work(rows, members, replicas).settled()))
    for _ in range(ROUNDS):
        further = yield from _Work(target, members, replicas).settled()
        if further == target:
            return target, True
        target = _without_cycles(rows, further)
    return first, False


def _without_cycles(rows: Sequence[ReplicaList], targets: Sequence[ReplicaList]) -> list[ReplicaList]:
    return [
        target if row == target else _without_cycle(row, target)
        for row, target in zip(rows, targets, strict=True)
    ]


def _without_cycle(row: ReplicaList, target: ReplicaList) -> ReplicaList:
    """Owners that only trade places stay. Rows may differ in width."""
    width = max(len(row), len(target))
    padded = row + (None,) * (width - len(row)), target + (None,) * (width - len(target))
    return cancel_cycles(*padded)[: len(target)]


# -- measures -----------------------------------------------------------------------------------------------------


def moves(before: Sequence[ReplicaList], after: Sequence[ReplicaList]) -> int:
    return sum(
        migration.destination_current == NONE
        for partition, (old, new) in enumerate(zip(before, after, strict=True))
        if old != new
        for migration in plan(partition, old, new).migrations
    )


def minimum_moves(rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int) -> int:
    """No layout with full rows and loads in the bounds of `arrange` copies fewer replicas."""
    ordered = sorted(candidates, key=lambda candidate: candidate.uuid)
    groups = [candidate.group or candidate.uuid for candidate in ordered]
    filled = min(replicas, len(set(groups)))
    lows, highs = shares(len(rows), filled, groups)
    group_of = {candidate.uuid: group for candidate, group in zip(ordered, groups, strict=True)}
    holds: Counter[str] = Counter()
    kept = 0
    for row in rows:
        here = [owner for owner in row if owner in group_of]
        holds.update(here)
        kept += min(filled, len({group_of[owner] for owner in here}))
    needed = len(rows) * filled
    lacking = sum(max(0, low - holds[one.uuid]) for one, low in zip(ordered, lows, strict=True))
    usable = sum(min(holds[one.uuid], high) for one, high in zip(ordered, highs, strict=True))
    return max(0, lacking, needed - usable, needed - kept)


def shares(partitions: int, slots: int, groups: Sequence[str]) -> tuple[list[int], list[int]]:
    """Minimum and maximum of replicas with the first `slots` indexes for each member. `groups`: of each member. A group
    holds each partition at most once, so in a small cluster of unequal groups each member of a big group gets less than
    an even share.
    """
    sizes = Counter(groups)
    free = set(sizes)
    rest, members = partitions * slots, len(groups)
    while True:
        # Cap groups whose even share would be more than one replica of each partition.
        full = [group for group in free if members and sizes[group] * rest > partitions * members]
        if not full:
            break
        for group in full:
            free.discard(group)
            rest -= partitions
            members -= sizes[group]
    lows, highs = [], []
    for group in groups:
        amount, among = (rest, members) if group in free else (partitions, sizes[group])
        lows.append(amount // among)
        highs.append(-(-amount // among))
    return lows, highs


# -- the work -----------------------------------------------------------------------------------------------------


class _Work:
    def __init__(self, rows: Sequence[ReplicaList], members: Sequence[Candidate], replicas: int) -> None:
        self.before = rows
        self.uuids = [member.uuid for member in members]
        names = [member.group or member.uuid for member in members]
        numbers = {name: number for number, name in enumerate(sorted(set(names)))}
        self.groups = [numbers[name] for name in names]
        self.names = names
        self.width = replicas
        self.slots = min(replicas, len(numbers))
        self.spare = len(numbers) > self.slots
        """Every partition has a group without a replica."""
        self.numbers: dict[str | None, int] = {uuid: number for number, uuid in enumerate(self.uuids)}
        self.rows = [self._clean(row) for row in rows]
        self.origin = [tuple(row) for row in self.rows]
        self.total = [0] * len(members)
        self.load = [0] * len(members)
        for row in self.rows:
            for number in row:
                if number >= 0:
                    self.total[number] += 1
        self.groups_of = sets_of(self.groups)
        self._sharing: Sharing | None = None

    def _clean(self, row: ReplicaList) -> list[int]:
        """In member numbers, without second members of a group, on the indexes in use.

        Replicas beyond these move up to an index without owner; so does a backup if there is no primary.
        """
        slots: list[int] = []
        used: set[int] = set()
        for owner in row:
            number = self.numbers.get(owner, GONER) if owner is not None else EMPTY
            if number >= 0:
                if self.groups[number] in used:
                    number = GONER
                else:
                    used.add(self.groups[number])
            slots.append(number)
        slots += [EMPTY] * (self.slots - len(slots))
        spare = [number for number in slots[self.slots :] if number >= 0]
        slots = slots[: self.slots]
        for slot, number in enumerate(slots):
            if number < 0 and spare:
                slots[slot] = spare.pop(0)
        if slots[0] == EMPTY:
            heir = next((slot for slot, number in enumerate(slots) if number >= 0), 0)
            slots[0], slots[heir] = slots[heir], EMPTY
        return slots

    @property
    def sharing(self) -> Sharing:
        if self._sharing is None:
            self._sharing = Sharing(len(self.uuids), self.rows)
        return self._sharing

    def replace(self, partition: int, row: list[int]) -> list[int]:
        """Returns the members that gained or lost a replica."""
        before = [number for number in self.rows[partition] if number >= 0]
        after = [number for number in row if number >= 0]
        left = [number for number in before if number not in after]
        come = [number for number in after if number not in before]
        self.rows[partition] = row
        for number in left:
            self.total[number] -= 1
        for number in come:
            self.total[number] += 1
        if self._sharing is not None:
            self._sharing.change(left, [number for number in before if number in after], come)
        return left + come

    def settled(self) -> Arranging:
        """The rows by uuid after settling every index, hot ones first; as wide as before, or as the replicas need."""
        for slot in range(self.slots):
            yield from _Level(self, slot).settle()
        return [
            self.named(row) + (None,) * (max(self.width, len(old)) - len(row))
            for row, old in zip(self.rows, self.before, strict=True)
        ]

    def named(self, row: Iterable[int]) -> ReplicaList:
        return tuple(self.uuids[number] if number >= 0 else None for number in row)


Are = Callable[[int], bool]
"""Whether a member gives, or takes."""

Barred = Callable[[int], list[int]]

Offer = tuple[int, list[Pool], Barred]
"""A member's offer: cost in copies, pools, and groups that cannot take the replicas."""


class _Level:
    """One replica index of all partitions: fill it where it is empty, then even out the indexes up to it."""

    def __init__(self, work: _Work, slot: int) -> None:
        self.work = work
        self.slot = slot
        self.load = work.load
        self.lows, self.highs = shares(len(work.rows), slot + 1, work.names)
        # Partitions whose replica each member can give: without an additional copy (one is made anyway), or with one.
        self.free = [Pool() for _ in work.uuids]
        self.dear = [Pool() for _ in work.uuids]
        self.loose: Members = 0
        """Members with something in `free`."""
        self.vacant: list[int] = []
        for partition, row in enumerate(work.rows):
            owner = row[slot]
            if owner >= 0:
                self._hold(owner, partition)
            else:
                self.vacant.append(partition)
        self.moved: Callable[[int], None] = lambda number: None
        """Their load or total has changed."""

    def settle(self) -> Generator[None]:
        if self.vacant:
            yield from self._fill_all()
        load, lows, highs = self.load, self.lows, self.highs
        if not any(not lows[number] <= load[number] <= highs[number] for number in range(len(load))):
            return
        self._rank()
        while self._give_on():
            yield

    def _fill_all(self) -> Generator[None]:
        load, lows, total = self.load, self.lows, self.work.total
        needs = Levels([load[number] - lows[number] for number in range(len(load))])
        totals = Levels(total)

        def moved(number: int) -> None:
            needs.put(number, load[number] - lows[number])
            totals.put(number, total[number])

        self.moved = moved
        for partition in self.vacant:
            self._fill(partition, needs, totals)
            yield

    def _fill(self, partition: int, needs: Levels, totals: Levels) -> None:
        work = self.work
        row, before, numbers = work.rows[partition], work.before[partition], work.numbers
        here = [number for number in row if number >= 0]
        able = (1 << len(work.uuids)) - 1
        for group in self._taken(partition):
            able &= ~work.groups_of[group]
        # There are as many groups as indexes, so a member is able; and another one if one gave the index up.
        turning = 0
        for owner in before:
            number = numbers.get(owner, EMPTY)
            if number >= 0 and self._turns(number, partition):
                turning |= 1 << number
        able = able & ~turning or able
        able = needs.lowest(able)
        if here:
            able = work.sharing.least(able, here)
        able = totals.lowest(able)
        self._put(partition, (able & -able).bit_length() - 1)

    def _put(self, partition: int, number: int) -> None:
        old = self.work.rows[partition][self.slot]
        if old >= 0:
            self.load[old] -= 1
            self.free[old].drop(partition)
            self.dear[old].drop(partition)
            if not self.free[old]:
                self.loose &= ~(1 << old)
        changed = self.work.replace(partition, self._changed(number, partition))
        self._hold(number, partition)
        self.moved(number)
        if old >= 0:
            self.moved(old)
        for other in changed:
            self.moved(other)

    def _changed(self, number: int, partition: int) -> list[int]:
        """The present owner moves down to an empty index, if there is one. A colder replica of the new owner, or of its
        group, is given up, to be filled later.
        """
        row, groups = self.work.rows[partition].copy(), self.work.groups
        old, group = row[self.slot], groups[number]
        hole = self._hole(row)
        for slot in range(self.slot + 1, len(row)):
            if row[slot] >= 0 and groups[row[slot]] == group:
                row[slot] = GONER
        if old >= 0 and hole and groups[old] != group:
            row[hole] = old
        row[self.slot] = number
        return row

    def _turns(self, number: int, partition: int) -> bool:
        """Whether with this owner some members would only trade places, which no plan can do."""
        before = self.work.before[partition]
        if self.work.uuids[number] not in before:
            return False
        after = self.work.named(self._changed(number, partition))
        return _without_cycle(before, after) != after

    def _hold(self, number: int, partition: int) -> None:
        self.load[number] += 1
        row = self.work.rows[partition]
        fresh = number != self.work.origin[partition][self.slot]
        if fresh or self._hole(row):
            self.free[number].add(partition)
            self.loose |= 1 << number
        else:
            self.dear[number].add(partition)

    def _hole(self, row: list[int]) -> int:
        """The hottest empty index below this one; 0: none."""
        return row.index(EMPTY, self.slot + 1) if EMPTY in row[self.slot + 1 :] else 0

    def _taken(self, partition: int) -> list[int]:
        row, groups = self.work.rows[partition], self.work.groups
        return [groups[number] for slot, number in enumerate(row) if number >= 0 and slot != self.slot]

    def _settled(self, partition: int) -> list[int]:
        """Groups with a hotter replica of the partition."""
        groups = self.work.groups
        return [groups[number] for number in self.work.rows[partition][: self.slot]]

    def _offers(self, giver: int) -> list[Offer]:
        """Cheapest first. For two copies: the taker has a colder replica and gets this one, and another group gets the
        colder one; both are without a replica for some time.
        """
        free, dear = self.free[giver], self.dear[giver]
        offers: list[Offer] = [
            (0, [free], self._taken),
            (1, [dear], self._taken),
        ]
        if self.work.spare:
            offers.append((2, [dear, free], self._settled))
        return offers

    def _able(self, taker: int, copies: int, pools: list[Pool], barred: Barred, count: int) -> list[int]:
        group = self.work.groups[taker]

        def fits(partition: int) -> bool:
            return group not in barred(partition) and not self._turns(taker, partition)

        able: list[int] = []
        for pool in pools:
            if len(able) < count:
                able += pool.first((taker, copies), fits, count - len(able))
        return able

    # -- evening out --

    def _rank(self) -> None:
        load, highs, total = self.load, self.highs, self.work.total
        count = len(load)
        self.needy = Ranking(count, lambda number: (load[number] - highs[number], total[number], number))
        self.givers = Ranking(count, lambda number: (highs[number] - load[number], -total[number], number))

        def moved(number: int) -> None:
            self.needy.moved(number)
            self.givers.moved(number)

        self.moved = moved

    def _is_over(self, number: int) -> bool:
        return self.load[number] > self.highs[number]

    def _is_rich(self, number: int) -> bool:
        return self.load[number] > self.lows[number]

    def _is_under(self, number: int) -> bool:
        return self.load[number] < self.lows[number]

    def _is_able(self, number: int) -> bool:
        return self.load[number] < self.highs[number]

    def _sources(self, gives: Are) -> Iterator[Need]:
        """Members that can give, those with the most first; none is below the highest load."""
        lowest = -1 if gives == self._is_over else 0
        for key in self.givers.sorted:
            if key[0] > lowest:
                return
            if gives(key[-1]):
                yield key

    def _sinks(self, takes: Are) -> Iterator[int]:
        """The neediest first; none has the highest load."""
        for key in self.needy.sorted:
            if key[0] >= 0:
                return
            if takes(key[-1]):
                yield key[-1]

    def _give_on(self) -> bool:
        """Along the cheapest path: from a member with too many replicas, or to one with too few."""
        over, rich, under, able = self._is_over, self._is_rich, self._is_under, self._is_able
        for gives, takes in ((over, under), (over, able), (rich, under)):
            if next(self._sinks(takes), None) is not None and (way := self._way(gives, takes)):
                self._follow(way)
                return True
        return False

    def _way(self, gives: Are, takes: Are) -> list[int]:
        """The cheapest chain of members from a source to a sink, each giving a replica to the next; empty: none."""
        load, highs, total = self.load, self.highs, self.work.total
        cost: dict[int, int] = {}
        giver_of: dict[int, int] = {}
        done: set[int] = set()
        # Among equal costs the neediest sink, or the member with the most to give, comes first.
        waiting: list[tuple[int, int, int, int]] = []
        sources = self._sources(gives)
        source = next(sources, None)
        enough = DEAREST
        while waiting or source is not None:
            if source is not None and (not waiting or (0, *source) < waiting[0]):
                giver, source = source[-1], next(sources, None)
            else:
                giver = heappop(waiting)[-1]
            if giver in done:
                continue
            done.add(giver)
            if giver in giver_of and takes(giver):
                way = [giver]
                while way[-1] in giver_of:
                    way.append(giver_of[way[-1]])
                return way[::-1]
            price = 0 if gives(giver) else cost[giver]
            for number, dearer in self._takers(giver, price, cost, enough, gives, takes).items():
                cost[number] = dearer
                giver_of[number] = giver
                need = load[number] - highs[number] if takes(number) else 0
                if takes(number):
                    if dearer < enough and dearer <= 1:
                        # From here on only a source with something cheaper to give is useful.
                        sources = self._cheap(gives, done) if dearer else iter(())
                        source = next(sources, None)
                    enough = min(enough, dearer)
                heappush(waiting, (dearer, need, total[number], number))
        return []

    def _cheap(self, gives: Are, done: set[int]) -> Iterator[Need]:
        """Members that can give something without a copy, in the order of `_sources`, except for `done`."""
        cheap = [number for number in members_of(self.loose) if gives(number) and number not in done]
        return iter(sorted(self.givers.key(number) for number in cheap))

    def _takers(
        self, giver: int, paid: int, cost: dict[int, int], enough: int, gives: Are, takes: Are
    ) -> dict[int, int]:
        """With the cost of the chain to each, if lower than known.

        Among sinks of one cost the neediest suffices; once one is found, no others of that cost or more are needed.
        """
        found: dict[int, int] = {}
        for offer in self._offers(giver):
            price = paid + offer[0]
            if price >= enough or not any(offer[1]):
                continue

            def can(number: int, price: int = price, offer: Offer = offer) -> bool:
                known = found.get(number, 0 if gives(number) else cost.get(number, DEAREST))
                return number != giver and known > price and bool(self._able(number, *offer, 1))

            sink = next(filter(can, self._sinks(takes)), None)
            if sink is not None:
                found[sink] = enough = price
            else:
                others = (number for number in range(len(self.load)) if not takes(number))
                found.update(dict.fromkeys(filter(can, others), price))
        return found

    def _follow(self, way: list[int]) -> None:
        sharing = self.work.sharing
        for giver, taker in pairwise(way):
            for offer in self._offers(giver):
                if able := self._able(taker, *offer, CHOICE):
                    break
            choice = [
                (
                    sharing.shared(taker, [owner for owner in self.work.rows[partition] if owner >= 0]),
                    partition,
                )
                for partition in able
            ]
            self._put(min(choice)[-1], taker)
