"""Estimates on Spark what happens to a cluster of any size if members join, leave, crash or are restarted.

    result = what_if(spark, ["join:100", "crash-zone"], members=1000, groups=10, partitions=1_000_000, copies=3)
    print(result)

Targets and plans are made by the members' own functions within the tasks (`foresight/blocks.py`). Times and risks are
computed here from sums, by formulas that docs/spark.md explains. No member is contacted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.layout import Candidate
from holdfast.errors import ConfigError
from holdfast.spark import jobs
from holdfast.spark.foresight import blocks
from holdfast.spark.foresight.amounts import BYTES_END, Sizes, bytes_text, time_text
from holdfast.spark.foresight.blocks import NOW, SCALARS, Question, Share
from holdfast.spark.foresight.risk import (
    COPIES_MAX,
    SHAPE_BITS,
    SHAPES,
    Failures,
    Shape,
    any_lost,
    in_a_year,
    losses_a_year,
)
from holdfast.spark.foresight.scenarios import parse, synthetic
from holdfast.spark.foresight.strategies import ARRANGE, STRATEGIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BLOCK = 20_000
"""Default number of partitions that are laid out together: a table up to this size is one block."""

MTBF_S = 90 * 86_400.0
"""Default mean time until a member crashes."""

COPIES_ALLOWED = range(1, COPIES_MAX + 1)
ROUND_TRIPS = 4
"""Of each migration, in addition to its content: request, preparation, readiness, commit."""


@dataclass(frozen=True, slots=True)
class Network:
    """Capacity of a member's network, in both directions at the same time, and other limits of migrations."""

    bandwidth: float = 125_000_000.0
    """Bytes a second of one member, in each direction."""
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
    """Rates of failures, and times of detection and repair."""

    failures: Failures
    detect_s: float = 10.0
    """From a crash to the first new copy: suspicion, and `partitions.rebalance_delay_ms`."""
    repair_s: float | None = None
    """From a crash to the last new copy; None: computed from what a member holds and what the others can send."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Cost of one step, and the cluster after it. Step -1 is the present cluster."""

    strategy: str
    scenario: str
    step: int
    text: str
    members: int
    partitions: int
    changed: int
    migrations: int
    copies: int
    """Migrations whose whole content travels."""
    promotions: int
    lost: int
    cleared: int
    left_out: int
    bytes: int
    dips: int
    """Partitions that at some moment have fewer copies than before and afterwards; none in the members' own plans."""
    sent_max: int
    received_max: int
    seconds_least: float
    """Lower estimate: the busiest sender or receiver, or the partition that takes longest by itself."""
    seconds_most: float
    """Upper estimate if senders and receivers are kept busy: busiest sender, then busiest receiver, then the longest
    partition.
    """
    fewest: int
    """Fewest copies of any partition at the worst moment."""
    lowest: tuple[int, ...]
    """Number of partitions with 0, 1, 2, … copies at the worst moment."""
    owned: tuple[int, int]
    """Least and most partitions owned by a member that holds any."""
    held: tuple[int, int]
    """Least and most replicas."""
    stored: tuple[int, int]
    """Least and most bytes."""
    sets: int
    """Number of distinct sets of holders, any of which may crash together."""
    loss_during: float
    """Upper bound of the probability of a loss during the step."""
    repair_s: float
    loss_year: float
    """The same for a year of the cluster after the step, if each crash is repaired within `repair_s`."""
    orders: Mapping[str, Mapping[str, int]]
    """Other orders of steps: partitions below both their old and their new number of copies, partitions without a
    way, and the fewest copies.
    """


@dataclass(frozen=True, slots=True)
class WhatIf:
    question: Question
    network: Network
    hazards: Hazards
    figures: tuple[Figures, ...]
    seconds: float
    tasks: int
    cpu_s: float = field(default=0.0, compare=False)
    """Processor time of all tasks."""

    def find(self, scenario: str, step: int = 0, strategy: str = ARRANGE) -> Figures:
        """One step's figures. Raises KeyError."""
        for each in self.figures:
            if (each.scenario, each.step, each.strategy) == (scenario, step, strategy):
                return each
        raise KeyError((scenario, step, strategy))

    def as_data(self) -> list[dict[str, Any]]:
        return [asdict(each) for each in self.figures]

    def frame(self, spark: SparkSession) -> DataFrame:
        rows = [
            {
                **asdict(each),
                "orders": [{"order": name, **told} for name, told in each.orders.items()],
                "lowest": list(each.lowest),
                "owned": list(each.owned),
                "held": list(each.held),
                "stored": list(each.stored),
            }
            for each in self.figures
        ]
        return spark.createDataFrame(pa.Table.from_pylist(rows, schema=FIGURES_SCHEMA))

    def __str__(self) -> str:
        return "\n".join(as_text(self))


_ORDER = [pa.field("order", pa.string())] + [
    pa.field(name, pa.int64()) for name in ("dips", "stuck", "fewest")
]
_REALS = ("seconds_least", "seconds_most", "loss_during", "repair_s", "loss_year")
_TEXTS = ("strategy", "scenario", "text")
_PLAIN = ("step", "members", *SCALARS, "sent_max", "received_max", "fewest", "sets")
FIGURES_SCHEMA = pa.schema(
    [pa.field(name, pa.string()) for name in _TEXTS]
    + [pa.field(name, pa.int64()) for name in _PLAIN]
    + [pa.field(name, pa.float64()) for name in _REALS]
    + [pa.field(name, pa.list_(pa.int64())) for name in ("lowest", "owned", "held", "stored")]
    + [pa.field("orders", pa.list_(pa.struct(_ORDER)))]
)


def what_if(
    spark: SparkSession,
    scenarios: Sequence[str],
    *,
    members: int | Sequence[Candidate] = 100,
    groups: int = 0,
    partitions: int = 10_000,
    copies: int = 3,
    rows: Sequence[ReplicaList] | None = None,
    others: Sequence[str] = (),
    holders: int = COPIES_MAX,
    accept: bool = False,
    sizes: Sizes | None = None,
    strategies: Sequence[str] = (ARRANGE,),
    orders: bool = False,
    network: Network | None = None,
    hazards: Hazards | None = None,
    block: int = BLOCK,
    progress: jobs.Show = jobs.nothing,
) -> WhatIf:
    """Estimate the effect of each scenario (`scenarios.parse`), step by step, each from the same table.

    `members` in `groups` hold `copies` of each of the `partitions`; or `rows` is the present table of the given
    members, and of `others` that shall hold nothing. `strategies`: layouts to compare; `orders`: whether to
    examine other orders of steps. A table of more than `block` partitions is laid out in blocks. Raises
    ConfigError, JobFailed.
    """
    began = time.monotonic()
    question = ask(
        scenarios,
        members=members,
        groups=groups,
        partitions=partitions,
        copies=copies,
        rows=rows,
        others=others,
        holders=holders,
        accept=accept,
        sizes=sizes,
        strategies=strategies,
        orders=orders,
        block=block,
    )
    shares = blocks.shares(question, strategies, jobs.slots(spark))
    counted = jobs.Counted(spark)

    def work(share: Share) -> Any:
        for batch in blocks.work(question, share):
            counted.add(0, batch.column("partitions")[0].as_py())
            yield batch

    found = jobs.run(spark, shares, work, blocks.DDL, title="what if", progress=progress, counted=counted)
    network, hazards = network or Network(), hazards or Hazards(Failures(MTBF_S))
    figures = summed(question, found, network, hazards, strategies)
    cpu_s = (pc.sum(found["cpu_us"]).as_py() or 0) / 1e6
    return WhatIf(question, network, hazards, figures, time.monotonic() - began, len(shares), cpu_s)


def moves(spark: SparkSession, question: Question, strategies: Sequence[str] = (ARRANGE,)) -> DataFrame:
    """A DataFrame with a row for each migration (`blocks.MOVES_DDL`). Indices are -1 for none."""
    shares = blocks.shares(question, strategies, jobs.slots(spark))

    def work(share: Share) -> Iterator[pa.RecordBatch]:
        yield from blocks.moves(question, share)

    return jobs.plan(spark, shares, work, blocks.MOVES_DDL)


def ask(
    scenarios: Sequence[str],
    *,
    members: int | Sequence[Candidate],
    groups: int = 0,
    partitions: int = 10_000,
    copies: int = 3,
    rows: Sequence[ReplicaList] | None = None,
    others: Sequence[str] = (),
    holders: int = COPIES_MAX,
    accept: bool = False,
    sizes: Sizes | None = None,
    strategies: Sequence[str] = (ARRANGE,),
    orders: bool = False,
    block: int = BLOCK,
) -> Question:
    """The checked question of `what_if`. Raises ConfigError."""
    here = synthetic(members, groups) if isinstance(members, int) else tuple(members)
    if not scenarios:
        raise ConfigError("give at least one scenario, such as join:1")
    if copies not in COPIES_ALLOWED:
        raise ConfigError(f"{copies} copies are not possible: 1 to {COPIES_MAX}")
    if partitions < 1 or block < 1:
        raise ConfigError("there must be at least 1 partition, and 1 in each block")
    if unknown := [each for each in strategies if each not in STRATEGIES]:
        raise ConfigError(f"the strategy {unknown[0]!r} is not known: {', '.join(STRATEGIES)}")
    count = partitions if rows is None else len(rows)
    sizes = sizes or Sizes("fixed", 64 << 20)
    # In one step all copies of a partition may come and go.
    if sizes.mean * count * 2 * COPIES_MAX >= BYTES_END:
        raise ConfigError(f"{count:,} partitions of {sizes} are too much to count: give a smaller size")
    return Question(
        here,
        count,
        copies,
        tuple(parse(each, here) for each in scenarios),
        sizes,
        block,
        tuple(rows) if rows is not None else None,
        frozenset(others),
        holders,
        accept,
        orders,
    )


# -- from sums to figures
# ---------------------------------------------------------------------------------------------


def summed(
    question: Question, found: pa.Table, network: Network, hazards: Hazards, strategies: Sequence[str]
) -> tuple[Figures, ...]:
    """Figures from the results of all tasks (`blocks.SCHEMA`), in the order of strategies, scenarios and steps."""
    figures = []
    for strategy in strategies:
        for number, scenario in enumerate(question.scenarios):
            here = len(question.members)
            for step in range(NOW, len(scenario.steps)):
                if step >= 0:
                    events = scenario.steps[step]
                    here += len(events.join) - len(events.drain) - len(events.crash)
                chosen = found.filter(
                    (pc.field("strategy") == strategy)
                    & (pc.field("scenario") == number)
                    & (pc.field("step") == step)
                )
                text = scenario.steps[step].text if step >= 0 else "as it is"
                told = {"strategy": strategy, "scenario": scenario.text, "step": step, "text": text}
                figures.append(_figures(told, here, chosen, network, hazards))
    return tuple(figures)


def _figures(
    told: Mapping[str, Any], members: int, found: pa.Table, network: Network, hazards: Hazards
) -> Figures:
    sums: dict[str, Any] = {name: pc.sum(found[name]).as_py() or 0 for name in SCALARS}
    lists = {name: _added(found[name]) for name in blocks.LISTS if name not in ("sets", "weak", "alone")}
    largest, *by_steps = (max(each) for each in zip(*found["alone"].to_pylist(), strict=True))
    longest = max(
        (network.alone(amount, steps) for steps, amount in enumerate(by_steps, 1) if amount >= 0), default=0.0
    )
    ends = lists["ends"]
    sending = [network.busy(*each) for each in zip(lists["sent"], ends, strict=True)]
    receiving = [network.busy(*each) for each in zip(lists["received"], ends, strict=True)]
    most = max(sending) + max(receiving) + longest
    sets, weak = _shapes(found["sets"]), _shapes(found["weak"])
    held = [each for each in lists["held"] if each]
    stored = [each for each, count in zip(lists["stored"], lists["held"], strict=True) if count]
    owned = [each for each, count in zip(lists["owned"], lists["held"], strict=True) if count]
    repair_s = hazards.repair_s
    if repair_s is None:
        # The contents of the fullest member, sent by those that share partitions with it; or its largest
        # partition alone.
        partners: list[Any] = found["partners"].to_pylist()
        helpers = max(1, min(blocks.partner_counts(partners), default=1))
        spread_s = max(stored, default=0) / (helpers * network.rate)
        repair_s = hazards.detect_s + max(spread_s, network.alone(largest, 1))
    lowest = tuple(lists["lowest"])
    return Figures(
        **told,
        members=members,
        **sums,
        sent_max=max(lists["sent"]),
        received_max=max(lists["received"]),
        seconds_least=max(*sending, *receiving, longest),
        seconds_most=most,
        fewest=_first(lowest),
        lowest=lowest,
        owned=_ends(owned),
        held=_ends(held),
        stored=_ends(stored),
        sets=sum(sets.values()),
        loss_during=any_lost(weak, hazards.failures, hazards.detect_s + most),
        repair_s=repair_s,
        loss_year=in_a_year(losses_a_year(sets, hazards.failures, repair_s)),
        orders={
            name: {"dips": lists[name][0], "stuck": lists[name][1], "fewest": _first(lists[name][2:])}
            for name in blocks.ORDERS
            if any(lists[name])
        },
    )


def _added(column: pa.ChunkedArray[Any]) -> list[int]:
    return [sum(each) for each in zip(*column.to_pylist(), strict=True)]


def _shapes(column: pa.ChunkedArray[Any]) -> Counter[Shape]:
    """Number of distinct sets of holders by shape."""
    codes = pc.unique(pc.list_flatten(column))
    shapes: list[Any] = pc.bit_wise_and(codes, pa.scalar((1 << SHAPE_BITS) - 1, pa.int64())).to_pylist()
    return Counter(SHAPES[shape] for shape in shapes)


def _first(counts: Sequence[int]) -> int:
    return next((copies for copies, count in enumerate(counts) if count), 0)


def _ends(values: Sequence[int]) -> tuple[int, int]:
    return min(values, default=0), max(values, default=0)


# -- for display
# ------------------------------------------------------------------------------------------------------


def as_text(result: WhatIf) -> Iterator[str]:
    question = result.question
    yield (
        f"{len(question.members):,} members, {question.partitions:,} partitions with {question.copies} copies, "
        f"{question.sizes}; {bytes_text(result.network.rate)}/s for each member"
    )
    if question.blocks > 1:
        most = -(-question.partitions // question.blocks)
        yield f"arranged in {question.blocks:,} blocks of up to {most:,} partitions"
    for each in result.figures:
        if each.step == NOW:
            yield f"\n{each.scenario}, by {each.strategy}"
        yield f"  {each.text}: {each.members:,} members"
        if each.step != NOW:
            yield from (f"    {line}" for line in _change_text(each))
        yield from (f"    {line}" for line in _state_text(each))
    yield (
        f"\nworked out by {result.tasks} tasks in {time_text(result.seconds)}, "
        f"with {result.cpu_s:,.1f} s of processor time"
    )


def _change_text(told: Figures) -> Iterator[str]:
    yield (
        f"{told.migrations:,} migrations in {told.changed:,} partitions, {told.copies:,} of them with "
        f"{bytes_text(told.bytes)}; {told.promotions:,} promotions, {told.lost:,} partitions lost"
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
            f"steps in the {name} order: {other['fewest']} copies at the worst moment, {other['dips']:,} partitions "
            f"below, {other['stuck']:,} without a way"
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
