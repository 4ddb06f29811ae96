"""`holdfast cluster exchange`: how partitions got their primaries, by topology and by partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Annotated

import click
import msgspec

from holdfast.actions.show_exchanges import (
    ExchangesSeen,
    PartitionExchangeState,
    PhaseDurations,
    ShowExchanges,
    TopologyExchangeState,
)
from holdfast.cli.answers import Answer
from holdfast.cli.exit_statuses import DONE, UNREACHABLE
from holdfast.cli.operator_command import Call, declared_command
from holdfast.cli.query_commands import answers_of_members
from holdfast.cli.rendering import Shown, table_of
from holdfast.core.model.ids import SECOND
from holdfast.core.model.result_columns import column, duration
from holdfast.errors import Refused

MS_SHOWN_EXACTLY = 10
NS_PER_MS = 1_000_000


class TopologyShown(TopologyExchangeState, frozen=True):
    """A topology, and the exchanges of all members in it."""

    members: list[str]


class PartitionShown(PartitionExchangeState, frozen=True):
    """An exchange of the partition, and the member that became its primary."""

    member: str


class TopologyRow(msgspec.Struct, frozen=True):
    """A line of the list for people."""

    topology: Annotated[int, column("topology", right=True)]
    began: Annotated[str, column("began")]
    change: Annotated[str, column("change", fold=True)]
    primaries: Annotated[str, column("new primaries", fold=True)]
    wait: Annotated[str, column("wait", right=True)]
    table: Annotated[str, column("table", right=True)]
    counters: Annotated[str, column("counters", right=True)]
    switch: Annotated[str, column("switch", right=True)]
    lasted: Annotated[str, column("all done after", right=True)]


class PartitionRow(msgspec.Struct, frozen=True):
    """A line for people."""

    topology: Annotated[str, column("topology", right=True)]
    at: Annotated[str, column("at")]
    cause: Annotated[str, column("cause")]
    before: Annotated[str, column("from")]
    member: Annotated[str, column("to")]
    wait: Annotated[str, column("wait", right=True)]
    table: Annotated[str, column("table", right=True)]
    counters: Annotated[str, column("counters", right=True)]
    switch: Annotated[str, column("switch", right=True)]
    phase: Annotated[str, column("phase")]


class Exchanges(Answer):
    """The last exchanges of the cluster, or of one partition, oldest first."""

    at_ms: int
    topologies: list[TopologyShown]
    partition: int | None
    exchanges: list[PartitionShown]
    open: Annotated[dict[str, int], msgspec.Meta(description="partitions that wait for a member to serve")]
    dropped: Annotated[
        dict[str, int], msgspec.Meta(description="older exchanges that members have forgotten")
    ]
    unreachable_members: list[str]

    def view(self) -> Iterable[Shown]:
        if self.partition is None:
            yield table_of([self._topology(one) for one in self.topologies], TopologyRow)
        elif self.exchanges:
            yield table_of([self._exchange(one) for one in self.exchanges], PartitionRow)
        else:
            yield f"no member that is here remembers an exchange of partition {self.partition}"
        for name, count in self.open.items():
            yield f"{name}: {count} partitions wait until it serves them"

    def _time(self, age_ms: int) -> str:
        return time.strftime("%d %b %H:%M:%S", time.localtime((self.at_ms - age_ms) / 1000))

    def _topology(self, one: TopologyShown) -> TopologyRow:
        served = ", ".join(f"{count} {cause}" for cause, count in sorted(one.exchanges.items()))
        return TopologyRow(
            topology=one.major,
            began=self._time(one.age_ms),
            change=change_in_words(one),
            primaries=served or "none",
            lasted=ms_in_words(one.lasted_ms) if served else "",
            **_times(one.longest, shown=bool(served)),
        )

    def _exchange(self, one: PartitionShown) -> PartitionRow:
        return PartitionRow(
            topology=f"{one.major}.{one.minor}",
            at=self._time(one.age_ms),
            cause=one.cause,
            before=one.before,
            member=one.member,
            phase=one.phase,
            **_times(one.phases, shown=True),
        )

    def notes(self) -> Iterable[str]:
        yield from (f"not asked: {line}" for line in self.unreachable_members)
        if self.partition is not None:
            for name, count in self.dropped.items():
                yield f"{name} has forgotten {count} older exchanges of its partitions"

    @property
    def exit_status(self) -> int:
        return UNREACHABLE if self.unreachable_members else DONE


def ms_in_words(ms: float) -> str:
    return f"{ms:.1f}ms" if ms < MS_SHOWN_EXACTLY else duration(ms * NS_PER_MS / SECOND)


def _times(phases: PhaseDurations, *, shown: bool) -> dict[str, str]:
    plain: dict[str, float] = msgspec.structs.asdict(phases)
    return {name.removesuffix("_ms"): ms_in_words(ms) if shown else "" for name, ms in plain.items()}


def change_in_words(one: TopologyExchangeState) -> str:
    if one.first:
        return f"first one known here: {', '.join(one.joined)}"
    changes = {"joined": one.joined, "restarted": one.restarted, "left": one.left, "gone": one.gone}
    words = [f"{', '.join(names)} {how}" for how, names in changes.items() if names]
    return "; ".join(words) or f"settings, or the state: {one.state}"


def merged(found: dict[str, ExchangesSeen], last: int) -> list[TopologyShown]:
    """The topologies of all members, each once, oldest first."""
    seen: dict[int, dict[str, TopologyExchangeState]] = {}
    for name, answer in found.items():
        for one in answer.topologies:
            seen.setdefault(one.major, {})[name] = one
    return [_merged(seen[major]) for major in sorted(seen)[-last:]]


def _merged(seen: dict[str, TopologyExchangeState]) -> TopologyShown:
    best = min(seen.values(), key=lambda one: one.first)
    exchanges: dict[str, int] = {}
    for one in seen.values():
        for cause, count in one.exchanges.items():
            exchanges[cause] = exchanges.get(cause, 0) + count
    longest = PhaseDurations(
        max(one.longest.wait_ms for one in seen.values()),
        max(one.longest.table_ms for one in seen.values()),
        max(one.longest.counters_ms for one in seen.values()),
        max(one.longest.switch_ms for one in seen.values()),
    )
    return TopologyShown(
        **msgspec.structs.asdict(best)
        | {
            "age_ms": max(one.age_ms for one in seen.values()),
            "exchanges": exchanges,
            "longest": longest,
            "lasted_ms": max(one.lasted_ms for one in seen.values()),
        },
        members=sorted(seen),
    )


def of_partition(found: dict[str, ExchangesSeen], last: int) -> list[PartitionShown]:
    shown = [
        PartitionShown(**msgspec.structs.asdict(one), member=name)
        for name, answer in found.items()
        for one in answer.partition
    ]
    shown.sort(key=lambda one: (one.major, one.minor, -one.age_ms))
    return shown[-last:]


def _counts(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {name: count for name, count in counts if count}


def add_exchange(group: click.Group) -> None:
    @declared_command(ShowExchanges, group)
    @click.option(
        "--partition",
        type=click.IntRange(0),
        default=None,
        metavar="NUMBER",
        help="Only the exchanges of this partition.",
    )
    @click.option(
        "--last",
        type=click.IntRange(1),
        default=20,
        show_default=True,
        metavar="COUNT",
        help="How many exchanges to show.",
    )
    def exchange(call: Call, *, partition: int | None, last: int) -> Exchanges:
        asked = ShowExchanges(partition)
        if why := asked.problem(call.status().partitions.count):
            raise Refused(why)
        answers, silent = answers_of_members(call, asked)
        found: dict[str, ExchangesSeen] = answers
        members: Sequence[tuple[str, ExchangesSeen]] = sorted(found.items())
        return Exchanges(
            at_ms=time.time_ns() // NS_PER_MS,
            topologies=[] if partition is not None else merged(found, last),
            partition=partition,
            exchanges=of_partition(found, last),
            open=_counts((name, one.open) for name, one in members),
            dropped=_counts((name, one.dropped) for name, one in members),
            unreachable_members=silent,
        )
