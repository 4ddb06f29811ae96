"""The forecast of a plan: what each step of its scenarios would cost, and the cluster after it.

Times and risks are computed from sums, by formulas that docs/spark.md explains. No member is contacted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.layout import Candidate
from holdfast.errors import ConfigError
from holdfast.planning.amounts import BYTES_END, Sizes, bytes_text, time_text
from holdfast.planning.risk import (
    COPIES_MAX,
    SHAPE_BITS,
    SHAPES,
    Failures,
    Shape,
    any_lost,
    in_a_year,
    losses_a_year,
)
from holdfast.planning.scenarios import parse, synthetic
from holdfast.planning.strategies import ARRANGE
from holdfast.planning.timeline import Label
from holdfast.planning.walk import MEMBERS, NOW, ORDERS, Part, Question, partner_counts, shares, work

MTBF_S = 90 * 86_400.0

COPIES_ALLOWED = range(1, COPIES_MAX + 1)
ROUND_TRIPS = 4
"""For each migration, in addition to its content: request, preparation, readiness, commit."""
MEMBERS_SHOWN = 40
LOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Network:
    """Capacity of a member's network, in both directions at the same time, and other limits of migrations."""

    bandwidth: float = 125_000_000.0
    parallel: int = 10
    """Partitions that one member sends or receives at a time: `partitions.parallel_migrations`."""
    chunk_bytes: int = 131_072
    """`partitions.chunk_bytes`: each partition has one such chunk in flight, so a single partition takes a
    round trip for each, however fast the network is.
    """
    round_trip_s: float = 0.001

    @property
    def rate(self) -> float:
        """Bytes a second that one member actually sends or receives."""
        if not self.round_trip_s:
            return self.bandwidth
        return min(self.bandwidth, self.parallel * self.chunk_bytes / self.round_trip_s)

    def busy(self, amount: int, ends: int) -> float:
        """Seconds for which a member is busy with so many bytes in one direction and so many migrations,
        limited by its network or by `parallel`.
        """
        return max(amount / self.bandwidth, self.alone(amount, ends) / self.parallel)

    def alone(self, amount: int, steps: int) -> float:
        """Least seconds for the migrations of one partition, one after the other."""
        return (amount / self.chunk_bytes + ROUND_TRIPS * steps) * self.round_trip_s


@dataclass(frozen=True, slots=True)
class Hazards:
    failures: Failures
    detect_s: float = 10.0
    """From a crash to the first new copy: suspicion, and `partitions.rebalance_delay_ms`."""
    repair_s: float | None = None
    """From a crash to the last new copy; None: computed from the content of a member and the capacity of the
    others.
    """


class MemberLoad(msgspec.Struct, frozen=True):
    member: str
    owned: int
    replicas: int
    bytes: int


class OtherOrder(msgspec.Struct, frozen=True):
    """Another order of the same steps."""

    dips: int
    """Partitions below both their old and their new number of copies."""
    stuck: int
    fewest: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of one step, and the cluster after it. Step -1 is the present cluster."""

    strategy: str
    scenario: str
    step: int
    text: str
    members: int
    partitions: int
    changed: int
    migrations: int
    kinds: dict[str, int]
    copies: int
    promotions: int
    lost: int
    lost_partitions: list[int]
    cycles: int
    """Cancelled rotations of three or more members."""
    cleared: int
    left_out: int
    increment: int
    bytes: int
    dips: int
    """Partitions that at some moment have fewer copies than before and afterwards; none in the members' own
    plans.
    """
    sent_max: int
    received_max: int
    seconds_least: float
    """Lower estimate: the busiest sender or receiver, or the partition that takes longest by itself."""
    seconds_most: float
    """Upper estimate if senders and receivers are kept busy: busiest sender, then busiest receiver, then the
    longest partition.
    """
    fewest: int
    lowest: list[int]
    """Number of partitions with 0, 1, 2, … copies at the worst moment."""
    owned: tuple[int, int]
    held: tuple[int, int]
    stored: tuple[int, int]
    loads: list[MemberLoad]
    sets: int
    """Distinct sets of holders; the members of a set may crash together."""
    loss_during: float
    """Upper bound of the probability of a loss during the step."""
    repair_s: float
    loss_year: float
    """The same for a year after the step, if each crash is repaired within `repair_s`."""
    orders: dict[str, OtherOrder]


@dataclass(frozen=True, slots=True)
class Forecast:
    question: Question
    network: Network
    figures: tuple[Figures, ...]
    seconds: float
    tasks: int
    cpu_s: float = 0.0

    def find(self, scenario: str, step: int = 0, strategy: str = ARRANGE) -> Figures:
        """Raises KeyError."""
        for each in self.figures:
            if (each.scenario, each.step, each.strategy) == (scenario, step, strategy):
                return each
        raise KeyError((scenario, step, strategy))

    def __str__(self) -> str:
        return "\n".join(as_text(self, str))


def ask(
    scenarios: Sequence[str],
    *,
    members: int | Sequence[Candidate],
    groups: int = 0,
    partitions: int = 10_000,
    copies: int = 3,
    rows: Sequence[ReplicaList] | None = None,
    sizes: Sizes | None = None,
    **more: Any,
) -> Question:
    """A checked question, for the members by number or by name. `more`: its other fields. Raises ConfigError."""
    here = synthetic(members, groups) if isinstance(members, int) else tuple(members)
    if not scenarios:
        raise ConfigError("give at least one scenario, such as join:1")
    if copies not in COPIES_ALLOWED:
        raise ConfigError(f"{copies} copies are not possible: 1 to {COPIES_MAX}")
    sizes = sizes or Sizes("fixed", 64 << 20)
    parsed = tuple(parse(each, here, more.get("others", ())) for each in scenarios)
    if any(step.replicas is not None for scenario in parsed for step in scenario.steps):
        raise ConfigError(
            "replicas:N is for a zone: give --zone NAME, or backups:N for maps outside of zones"
        )
    table: dict[str, Any] = {
        "rows": None if rows is None else tuple(rows),
        "partitions": partitions if rows is None else len(rows),
    }
    question = Question(members=here, copies=copies, scenarios=parsed, sizes=sizes, **table, **more)
    if question.partitions < 1 or question.block < 1:
        raise ConfigError("there must be at least 1 partition, and 1 in each block")
    # In one step all copies of a partition may come and go.
    if sizes.mean * question.partitions * 2 * COPIES_MAX >= BYTES_END:
        raise ConfigError(
            f"{question.partitions:,} partitions of {sizes} are too much to count: give a smaller size"
        )
    return question


def foresee(
    question: Question,
    strategies: Sequence[str] = (ARRANGE,),
    network: Network | None = None,
    hazards: Hazards | None = None,
) -> Forecast:
    began = time.monotonic()
    every = shares(question, strategies, 1)
    parts = [part for share in every for part in work(question, share)]
    return forecast_of(question, parts, strategies, network, hazards, time.monotonic() - began, len(every))


def forecast_of(
    question: Question,
    parts: Sequence[Part],
    strategies: Sequence[str],
    network: Network | None,
    hazards: Hazards | None,
    seconds: float,
    tasks: int,
) -> Forecast:
    network, hazards = network or Network(), hazards or Hazards(Failures(MTBF_S))
    figures = summed(question, parts, network, hazards, strategies)
    cpu_s = sum(part.cpu_us for part in parts) / 1e6
    return Forecast(question, network, figures, seconds, tasks, cpu_s)


# -- from sums to figures


def summed(
    question: Question, parts: Iterable[Part], network: Network, hazards: Hazards, strategies: Sequence[str]
) -> tuple[Figures, ...]:
    found: dict[tuple[str, int, int], list[Part]] = {}
    for part in parts:
        found.setdefault((part.strategy, part.scenario, part.step), []).append(part)
    figures = []
    for strategy in strategies:
        for number, scenario in enumerate(question.scenarios):
            here = len(question.members)
            names = [each.uuid for each in question.everyone(scenario)]
            for step in range(NOW, len(scenario.steps)):
                if step >= 0:
                    events = scenario.steps[step]
                    gone = {*events.drain, *events.crash} - question.others
                    here += len(events.join) - len(gone)
                text = scenario.steps[step].text if step >= 0 else "as it is"
                labels = {"strategy": strategy, "scenario": scenario.text, "step": step, "text": text}
                chosen = found[strategy, number, step]
                figures.append(_figures(labels, here, names, chosen, network, hazards))
    return tuple(figures)


def _figures(
    labels: Mapping[str, Any],
    members: int,
    names: Sequence[str],
    parts: Sequence[Part],
    network: Network,
    hazards: Hazards,
) -> Figures:
    counts: dict[str, Any] = {**_counted(part.counts for part in parts)}
    lists = {name: _added(part.members[name] for part in parts) for name in MEMBERS}
    lowest = _added(part.lowest for part in parts)
    others = {name: _added(part.orders[name] for part in parts) for name in ORDERS}
    largest, *by_steps = (max(each) for each in zip(*(part.alone for part in parts), strict=True))
    longest = max(
        (network.alone(amount, steps) for steps, amount in enumerate(by_steps, 1) if amount >= 0), default=0.0
    )
    ends = lists["ends"]
    sending = [network.busy(*each) for each in zip(lists["sent"], ends, strict=True)]
    receiving = [network.busy(*each) for each in zip(lists["received"], ends, strict=True)]
    most = max(sending) + max(receiving) + longest
    sets, weak = _shapes(part.sets for part in parts), _shapes(part.weak for part in parts)
    held = [each for each in lists["held"] if each]
    stored = [each for each, count in zip(lists["stored"], lists["held"], strict=True) if count]
    owned = [each for each, count in zip(lists["owned"], lists["held"], strict=True) if count]
    repair_s = hazards.repair_s
    if repair_s is None:
        # The contents of the fullest member, sent by those that share partitions with it; or its largest
        # partition alone.
        helpers = max(1, min(partner_counts([part.partners for part in parts]), default=1))
        spread_s = max(stored, default=0) / (helpers * network.rate)
        repair_s = hazards.detect_s + max(spread_s, network.alone(largest, 1))
    loads = zip(names, lists["owned"], lists["held"], lists["stored"], strict=True)
    return Figures(
        **labels,
        members=members,
        **counts,
        kinds=_counted(part.kinds for part in parts),
        lost_partitions=sorted(partition for part in parts for partition in part.lost_partitions),
        sent_max=max(lists["sent"]),
        received_max=max(lists["received"]),
        seconds_least=max(*sending, *receiving, longest),
        seconds_most=most,
        fewest=_first(lowest),
        lowest=lowest,
        owned=_ends(owned),
        held=_ends(held),
        stored=_ends(stored),
        loads=[MemberLoad(*each) for each in loads] if len(names) <= MEMBERS_SHOWN else [],
        sets=sum(sets.values()),
        loss_during=any_lost(weak, hazards.failures, hazards.detect_s + most),
        repair_s=repair_s,
        loss_year=in_a_year(losses_a_year(sets, hazards.failures, repair_s)),
        orders={
            name: OtherOrder(counted[0], counted[1], _first(counted[2:]))
            for name, counted in others.items()
            if any(counted)
        },
    )


def _counted(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total


def _added(lists: Iterable[Sequence[int]]) -> list[int]:
    return [sum(each) for each in zip(*lists, strict=True)]


def _shapes(codes: Iterable[Sequence[int]]) -> Counter[Shape]:
    mask = (1 << SHAPE_BITS) - 1
    return Counter(SHAPES[code & mask] for code in set[int]().union(*codes))


def _first(counts: Sequence[int]) -> int:
    return next((copies for copies, count in enumerate(counts) if count), 0)


def _ends(values: Sequence[int]) -> tuple[int, int]:
    return min(values, default=0), max(values, default=0)


# -- for people


def as_text(forecast: Forecast, label: Label) -> Iterator[str]:
    question = forecast.question
    yield (
        f"{len(question.members):,} members, {question.partitions:,} partitions with {question.copies} copies, "
        f"{question.sizes}; {bytes_text(forecast.network.bandwidth)}/s for each member"
    )
    if question.blocks > 1:
        most = -(-question.partitions // question.blocks)
        yield f"arranged in {question.blocks:,} blocks of up to {most:,} partitions"
    before: Figures | None = None
    for each in forecast.figures:
        if each.step == NOW:
            yield f"\n{each.scenario}, by {each.strategy}"
        yield f"  {each.text}: {each.members:,} members"
        if each.step != NOW:
            yield from (f"    {line}" for line in _change_text(each))
        yield from (f"    {line}" for line in _state_text(each))
        if before is not None and each.step != NOW:
            yield from (f"    {line}" for line in _loads_text(before, each, label))
        before = each
    yield (
        f"\nworked out by {forecast.tasks} tasks in {time_text(forecast.seconds)}, "
        f"with {forecast.cpu_s:,.1f} s of processor time"
    )


def _change_text(told: Figures) -> Iterator[str]:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in told.kinds.items())
    yield (
        f"{told.migrations:,} migrations in {told.changed:,} partitions{f' ({kinds})' if kinds else ''}, "
        f"{told.copies:,} of them with {bytes_text(told.bytes)}; {told.promotions:,} promotions"
    )
    yield (
        f"{told.lost:,} partitions lost{_lost_text(told.lost_partitions)}; {told.cycles:,} cycles cancelled, "
        f"{told.left_out:,} slots not made, {told.cleared:,} cleared; version +{told.increment:,}"
    )
    yield (
        f"{time_text(told.seconds_least)} to {time_text(told.seconds_most)}; at most "
        f"{bytes_text(told.sent_max)} from one member, {bytes_text(told.received_max)} to one"
    )
    yield (
        f"{told.fewest} copies at the worst moment ({told.lowest[told.fewest]:,} partitions); "
        f"{told.dips:,} partitions below both their old and their new number of copies"
    )
    yield f"probability of a loss during the step: at most {told.loss_during:.2g}"
    for name, other in told.orders.items():
        yield (
            f"steps in the {name} order: {other.fewest} copies at the worst moment, {other.dips:,} partitions "
            f"below, {other.stuck:,} without a way"
        )


def _lost_text(partitions: Sequence[int]) -> str:
    if not partitions:
        return ""
    return f": {', '.join(map(str, partitions[:LOST_SHOWN]))}" + (
        ", …" if len(partitions) > LOST_SHOWN else ""
    )


def _state_text(told: Figures) -> Iterator[str]:
    owned, held = (f"{least:,} to {most:,}" for least, most in (told.owned, told.held))
    yield (
        f"each member owns {owned} partitions, holds {held}, "
        f"{bytes_text(told.stored[0])} to {bytes_text(told.stored[1])}"
    )
    yield (
        f"{told.sets:,} sets of holders; loss in a year: at most {told.loss_year:.2g}, "
        f"with each crash repaired in {time_text(told.repair_s)}"
    )


def _loads_text(before: Figures, after: Figures, label: Label) -> Iterator[str]:
    width = max((len(label(each.member)) for each in after.loads), default=0)
    if after.loads:
        yield f"{'':{width}}  {'owns':>9}{'after':>9}  {'replicas':>9}{'after':>9}"
    for old, new in zip(before.loads, after.loads, strict=True):
        yield (
            f"{label(new.member):{width}}  {old.owned:>9,}{new.owned:>9,}  {old.replicas:>9,}{new.replicas:>9,}"
        )
