"""Walks through the steps of a scenario, over a block of the partitions.

The members' own functions make and change assignments (`dryrun.forecast`). A layout is one computation over all
assignments, so a table that is too large for one task is cut into blocks, each laid out by itself over the same
members. With one block the result is the master's. With several blocks the members have other names in each, because
names break ties: with 3 members and blocks of 100 partitions, another member gets 34 instead of 33 in each block.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.config.schema import Placement
from holdfast.core.model.baseline import BaselineMember
from holdfast.core.model.migration import NONE, Migration, ReplicaList
from holdfast.core.placement.affinity import LayoutOf, layout_of
from holdfast.core.placement.dryrun import Outlook, dry_run, forecast
from holdfast.core.placement.kept_places import keeping_places, places_of
from holdfast.core.placement.layout import Candidate, Layout, by_hosts
from holdfast.core.placement.planner import keeps, promise
from holdfast.errors import ConfigError
from holdfast.planning.amounts import Sizes, mixed
from holdfast.planning.risk import COPIES_MAX, SHAPE_BITS, SHAPE_NUMBER, Shape
from holdfast.planning.scenarios import Scenario, Step
from holdfast.planning.strategies import (
    PLACEMENTS,
    STRATEGIES,
    careless_states,
    layout,
    published_states,
    strategy_of,
)

WATCHED = 64
"""Members, evenly chosen, for which it is counted with whom they share partitions."""

BLOCK = 20_000
"""Partitions that are laid out together: a table up to this size is one block."""

NOW = -1

SCALARS = (
    "partitions",
    "changed",
    "migrations",
    "copies",
    "promotions",
    "lost",
    "cycles",
    "cleared",
    "left_out",
    "increment",
    "bytes",
    "dips",
)
MEMBERS = ("owned", "held", "stored", "sent", "received", "ends")
ORDERS = ("published", "careless")
ALONE = 64
"""Migrations of one partition are counted up to this, for `alone`; more count as the last."""
LOST_LISTED = 1000


class Part(msgspec.Struct):
    """Figures of one step of one block. Lists are by number of the member."""

    strategy: str
    scenario: int
    step: int
    counts: dict[str, int]
    kinds: dict[str, int]
    members: dict[str, list[int]]
    lowest: list[int]
    orders: dict[str, list[int]]
    alone: list[int]
    partners: list[bytes]
    sets: list[int]
    weak: list[int]
    lost_partitions: list[int]
    cpu_us: int = 0


_HASH_MASK = (1 << 63 - SHAPE_BITS) - 1


@dataclass(frozen=True, slots=True)
class Question:
    members: tuple[Candidate, ...]
    partitions: int
    copies: int
    scenarios: tuple[Scenario, ...]
    sizes: Sizes
    block: int = BLOCK
    rows: tuple[ReplicaList, ...] | None = None
    others: frozenset[str] = frozenset()
    """Present members that shall hold nothing: lite and leaving ones."""
    holders: int = COPIES_MAX
    """A partition is lost if none of its first so many replicas survives."""
    accept: bool = False
    """Whether lost partitions begin again empty instead of waiting."""
    orders: bool = False
    target: tuple[ReplicaList, ...] | None = None
    """Rows to get to, instead of those that the members would lay out."""
    hosts: dict[str, str] | None = None
    """UUID -> host, if members without a group are grouped by host."""
    baseline: tuple[Candidate, ...] | None = None
    """Members that own data (fixed baseline); None: all."""
    away: frozenset[str] = frozenset()
    """Consistent ids of absent members of the baseline, whose places are kept."""

    @property
    def blocks(self) -> int:
        return -(-self.partitions // self.block)

    def everyone(self, scenario: Scenario) -> list[Candidate]:
        """All members that ever hold anything; numbers of members in results are positions in this list."""
        known = {each.uuid: each for each in self.members}
        for step in scenario.steps:
            for each in step.join:
                known.setdefault(each.uuid, each)
        return list(known.values())


@dataclass(frozen=True, slots=True)
class Share:
    strategy: str
    scenarios: tuple[int, ...]
    block: int


def shares(question: Question, strategies: Sequence[str], slots: int) -> list[Share]:
    """A task for each block, and for each scenario if there are too few blocks. Raises ConfigError."""
    if unknown := [each for each in strategies if each not in STRATEGIES]:
        raise ConfigError(f"the strategy {unknown[0]!r} is not known: {', '.join(STRATEGIES)}")
    every = tuple(range(len(question.scenarios)))
    apart = question.blocks < 2 * slots
    return [
        Share(strategy, some, block)
        for strategy in strategies
        for some in ([(each,) for each in every] if apart else [every])
        for block in range(question.blocks)
    ]


def work(question: Question, share: Share) -> Iterator[Part]:
    """The figures of each scenario and step of this share.

    Garbage collection is off, because millions of small tuples come and go, none of them in a cycle.
    """
    began_s, looking = time.process_time(), gc.isenabled()
    gc.disable()
    try:
        for part in _parts(question, share):
            now_s = time.process_time()
            part.cpu_us = round((now_s - began_s) * 1e6)
            began_s = now_s
            yield part
    finally:
        if looking:
            gc.enable()


def _parts(question: Question, share: Share) -> Iterator[Part]:
    start: list[ReplicaList] | None = None
    for scenario in share.scenarios:
        walk = Walk(question, share, scenario)
        if start is None:
            start = walk.first_rows()
        for step, tally in walk.steps(start):
            yield tally.part(share.strategy, scenario, step)


def outlooks(question: Question, strategy: str) -> Iterator[tuple[int, Step, Iterator[Outlook]]]:
    """The fate of every partition in each step of each scenario, all partitions laid out together. Read each
    iterator completely before the next.
    """
    for number, scenario in enumerate(question.scenarios):
        walk = Walk(question, Share(strategy, (number,), 0), number)
        for step, found in walk.outlooks(walk.first_rows()):
            yield number, scenario.steps[step], found


class Walk:
    def __init__(self, question: Question, share: Share, scenario: int) -> None:
        self.question = question
        self.scenario = question.scenarios[scenario]
        self.partitions = range(share.block, question.partitions, question.blocks)
        self.strategy = share.strategy
        self.copies = question.copies
        self._away = set(question.away)
        everyone = question.everyone(self.scenario)
        names = block_names(everyone, len(question.members), share.block, question.blocks)
        self.name = {each.uuid: name for each, name in zip(everyone, names, strict=True)}
        # In the fixed order of member numbers.
        self.order = [
            Candidate(name, each.group or name, each.consistent_id or each.uuid)
            for each, name in zip(everyone, names, strict=True)
        ]
        self.known = {each.uuid: each for each in self.order}
        self.sizes = [question.sizes.of(partition) for partition in self.partitions]

    def first_rows(self) -> list[ReplicaList]:
        question = self.question
        here = [self.known[self.name[each.uuid]] for each in question.members]
        if question.rows is None:
            empty: list[ReplicaList] = [(None,) * question.copies] * len(self.partitions)
            return self._layout(range(len(self.partitions)))(empty, here, question.copies)
        return [self._named(question.rows[partition]) for partition in self.partitions]

    def _named(self, row: ReplicaList) -> ReplicaList:
        return tuple(self.name.get(owner, owner) if owner is not None else None for owner in row)

    def steps(self, rows: list[ReplicaList]) -> Iterator[tuple[int, Tally]]:
        now = Tally(self.order)
        for row, size in zip(rows, self.sizes, strict=True):
            now.add_idle(row, size)
        yield NOW, now
        for number, outlooks in self.outlooks(rows):
            tally = Tally(self.order)
            for partition, outlook, size in zip(self.partitions, outlooks, self.sizes, strict=True):
                tally.add(partition, outlook, size, orders=self.question.orders)
            yield number, tally

    def outlooks(self, rows: list[ReplicaList]) -> Iterator[tuple[int, Iterator[Outlook]]]:
        """The fate of every partition in each step. Read each iterator completely before the next."""
        question = self.question
        holding = [self.name[each.uuid] for each in question.members]
        present = {*holding, *question.others}
        for number, step in enumerate(self.scenario.steps):
            after: list[ReplicaList] = []
            holding, present = self._events(step, holding, present)
            candidates = [self.known[name] for name in holding]
            yield number, _noting(self._outlooks(rows, candidates, present), after)
            rows = after
            present -= {self.name.get(uuid, uuid) for uuid in step.drain}

    def _events(self, step: Step, holding: list[str], present: set[str]) -> tuple[list[str], set[str]]:
        if step.backups is not None:
            self.copies = step.backups + 1
        if step.placement:
            self.strategy = strategy_of(step.placement)
        crashed = {self.name.get(uuid, uuid) for uuid in step.crash}
        gone = crashed | {self.name.get(uuid, uuid) for uuid in step.drain}
        baseline = self.question.baseline
        owning = {each.consistent_id for each in baseline} if baseline is not None else None
        joined = [each for each in step.join if owning is None or each.consistent_id in owning]
        self._away |= {each.consistent_id for each in baseline or () if each.uuid in step.crash}
        self._away -= {each.consistent_id for each in joined}
        come = [self.name[each.uuid] for each in joined]
        return [each for each in holding if each not in gone] + come, (present - crashed) | set(come)

    def _outlooks(
        self, rows: list[ReplicaList], candidates: Sequence[Candidate], present: set[str]
    ) -> Iterator[Outlook]:
        question = self.question
        if question.target is not None:
            return dry_run(rows, [self._named(question.target[partition]) for partition in self.partitions])
        places = places_of(
            [
                BaselineMember(each.consistent_id, each.group)
                for each in question.baseline or ()
                if each.consistent_id in self._away
            ]
        )
        if question.hosts is not None:
            hosts = {self.name.get(uuid, uuid): host for uuid, host in question.hosts.items()}
            candidates = by_hosts(candidates, hosts, self.copies, len(places))
        placement = PLACEMENTS.get(self.strategy)
        return forecast(
            rows,
            present,
            candidates,
            self.copies,
            holders=question.holders,
            heirs=[each.uuid for each in candidates] if question.accept else [],
            layout=self._keeping(placement, places) if places and placement else self._layout,
        )

    def _keeping(self, placement: Placement, places: Sequence[Candidate]) -> LayoutOf:
        kept = keeping(placement, places)
        return lambda numbers: kept([self.partitions[number] for number in numbers])

    def _layout(self, numbers: Sequence[int]) -> Layout:
        return layout(self.strategy, [self.partitions[number] for number in numbers], self.order)


def keeping(placement: Placement, away: Sequence[Candidate]) -> LayoutOf:
    """The master's layout, which keeps the places of absent members."""

    def of(partitions: Sequence[int]) -> Layout:
        def wanted(
            rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
        ) -> list[ReplicaList]:
            targets = layout_of(placement)(partitions)(rows, [*candidates, *away], replicas)
            return keeping_places(partitions, rows, targets, candidates, away, placement)

        return wanted

    return of


def _noting(outlooks: Iterator[Outlook], after: list[ReplicaList]) -> Iterator[Outlook]:
    for outlook in outlooks:
        after.append(outlook.plan.target)
        yield outlook


def block_names(everyone: Sequence[Candidate], first: int, block: int, blocks: int) -> list[str]:
    """Names of members in a block: their own in a single block, else random ones in each. Members from
    position `first` on join later, and come later in the order of names too.
    """
    if blocks == 1:
        return [each.uuid for each in everyone]
    seed = mixed(block)
    return [f"{place >= first:d}{mixed(seed + place):016x}" for place in range(len(everyone))]


@dataclass(slots=True)
class Tally:
    order: Sequence[Candidate]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SCALARS, 0))
    lowest: list[int] = field(default_factory=lambda: [0] * (COPIES_MAX + 1))
    kinds: dict[str, int] = field(default_factory=dict)
    lost_partitions: list[int] = field(default_factory=list)
    others: dict[str, list[int]] = field(
        # For another order: partitions below both numbers of copies, old and new; without a way; and
        # `lowest`.
        default_factory=lambda: {name: [0] * (COPIES_MAX + 3) for name in ORDERS}
    )
    alone: list[int] = field(default_factory=lambda: [0] + [-1] * (ALONE - 1))
    """At n: most bytes that travel for a partition with n migrations, one after the other; -1: there is none.
    At 0: bytes of the largest partition, whether it moves or not.
    """
    watched: int = WATCHED
    sets: set[int] = field(default_factory=set)
    weak: set[int] = field(default_factory=set)

    numbers: dict[str | None, int] = field(init=False)
    groups: list[str] = field(init=False)
    members: dict[str, list[int]] = field(init=False)
    partners: dict[int, int] = field(init=False)
    """For some members: those with which each shares partitions afterwards, as a bit set."""

    def __post_init__(self) -> None:
        self.numbers = {each.uuid: number for number, each in enumerate(self.order)}
        self.groups = [each.group for each in self.order]
        self.partners = dict.fromkeys(range(0, len(self.order), -(-len(self.order) // self.watched)), 0)
        self.members = {name: [0] * len(self.order) for name in MEMBERS}

    def add_idle(self, row: ReplicaList, size: int) -> None:
        self.counts["partitions"] += 1
        code, copies = self._keep(row, size)
        self.lowest[copies] += 1
        self.weak.add(code)

    def add(self, number: int, outlook: Outlook, size: int, *, orders: bool) -> None:
        found = outlook.plan
        if outlook.lost:
            self.counts["lost"] += 1
            if len(self.lost_partitions) < LOST_LISTED:
                self.lost_partitions.append(number)
        if not found.steps and found.current is found.target and outlook.before == found.target:
            self.add_idle(found.target, size)
            return
        counts = self.counts
        counts["partitions"] += 1
        counts["changed"] += outlook.left != found.target
        counts["promotions"] += outlook.promoted != NONE
        counts["cycles"] += len(found.cycles)
        counts["increment"] += outlook.increment
        counts["left_out"] += len(outlook.left_out)
        counts["cleared"] += len(found.cleared)
        states = [outlook.left, *found.states()]
        worst = min(states, key=_copies)
        self.lowest[_copies(worst)] += 1
        self.weak.add(self._code(worst))
        steps = travels = 0
        for step, row in zip(found.steps, found.states(), strict=False):
            if isinstance(step, Migration):
                self._move(step, row, size)
                steps += 1
                travels += size if step.destination_current == NONE else 0
        if steps:
            place = min(steps, ALONE - 1)
            self.alone[place] = max(self.alone[place], travels)
        floor = promise(found.current, found.target)
        counts["dips"] += not all(keeps(row, floor) for row in found.states())
        if orders and found.steps:
            self._compare(found.current, outlook.wanted, floor)
        self._keep(found.target, size)

    def _move(self, step: Migration, row: ReplicaList, size: int) -> None:
        """Count a migration: the owner sends the content, unless the destination has it."""
        self.counts["migrations"] += 1
        self.kinds[step.kind.value] = self.kinds.get(step.kind.value, 0) + 1
        members = self.members
        to = self.numbers[step.destination]
        owner = self.numbers.get(row[0], -1)
        members["ends"][to] += 1
        if owner >= 0:
            members["ends"][owner] += 1
        if step.destination_current != NONE:
            return
        self.counts["copies"] += 1
        self.counts["bytes"] += size
        members["received"][to] += size
        if owner >= 0:
            members["sent"][owner] += size

    def _compare(self, current: ReplicaList, wanted: ReplicaList, floor: list[int]) -> None:
        for name, states in (
            ("published", published_states(current, wanted)),
            ("careless", careless_states(current, wanted)),
        ):
            told = self.others[name]
            if states is None:
                told[1] += 1
                continue
            # Another order is judged by its own ends.
            least = promise(states[0], states[-1]) if states[-1] != wanted else floor
            told[0] += not all(keeps(row, least) for row in states)
            told[2 + min(map(_copies, states))] += 1

    def _keep(self, row: ReplicaList, size: int) -> tuple[int, int]:
        """Count the holders afterwards; returns their code and number."""
        members, numbers = self.members, self.numbers
        self.alone[0] = max(self.alone[0], size)
        held, stored = members["held"], members["stored"]
        for slot, owner in enumerate(row):
            number = numbers.get(owner, -1)
            if number >= 0:
                if number in self.partners:
                    for other in row:
                        if (place := numbers.get(other, -1)) >= 0:
                            self.partners[number] |= 1 << place
                held[number] += 1
                stored[number] += size
                if slot == 0:
                    members["owned"][number] += 1
        code = self._code(row)
        self.sets.add(code)
        return code, _copies(row)

    def _code(self, row: ReplicaList) -> int:
        """Code of a set of holders: 57 bits of a hash of their numbers, and their spread over groups."""
        numbers = self.numbers
        holders = sorted([numbers.get(owner, -1) for owner in row if owner is not None])
        groups = [self.groups[number] if number >= 0 else "" for number in holders]
        if len(set(groups)) == len(groups):
            shape: Shape = (1,) * len(groups)
        else:
            shape = tuple(sorted((groups.count(group) for group in dict.fromkeys(groups)), reverse=True))
        return (hash(tuple(holders)) & _HASH_MASK) << SHAPE_BITS | SHAPE_NUMBER[shape]

    def part(self, strategy: str, scenario: int, step: int) -> Part:
        partners = [some.to_bytes(-(-some.bit_length() // 8), "little") for some in self.partners.values()]
        return Part(
            strategy,
            scenario,
            step,
            self.counts,
            self.kinds,
            self.members,
            self.lowest,
            self.others,
            self.alone,
            partners,
            list(self.sets),
            list(self.weak),
            self.lost_partitions,
        )


def partner_counts(parts: Sequence[Sequence[bytes]]) -> list[int]:
    """Number of others with which each watched member shares partitions, from the `partners` of all blocks."""
    joined = [0] * max(map(len, parts))
    for part in parts:
        for place, told in enumerate(part):
            joined[place] |= int.from_bytes(told, "little")
    # A member also shares its partitions with itself.
    return [some.bit_count() - 1 for some in joined if some]


def _copies(row: ReplicaList) -> int:
    return sum(owner is not None for owner in row)
