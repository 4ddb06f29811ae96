"""Show how partitions got their primaries after each change of topology."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from holdfast.actions.operator_action import Declaration, MachineQuery, Partition, Target
from holdfast.config.permissions import Action
from holdfast.core.model.ids import MILLISECOND

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.partition_table import exchange_history as history


class PhaseDurations(msgspec.Struct, frozen=True):
    """The phases of an exchange, in their order. Without a primary the partition was for their sum."""

    wait_ms: Annotated[
        float, Meta(description="until writes and steps of transactions under way were done; 0 after a crash")
    ]
    table_ms: Annotated[float, Meta(description="until the table named the new primary, on a majority")]
    counters_ms: Annotated[float, Meta(description="until all replicas had the new primary's counters")]
    switch_ms: Annotated[float, Meta(description="until the new primary served")]


class PartitionExchangeState(msgspec.Struct, frozen=True):
    """How one partition got this member as its primary."""

    major: Annotated[int, Meta(description="number of the view")]
    minor: Annotated[int, Meta(description="version of the partition table")]
    age_ms: Annotated[int, Meta(description="since its phase of counters began")]
    cause: Annotated[str, Meta(description="first owner, failover, move, or replica is back")]
    before: Annotated[str, Meta(description="the former primary; empty: none was known")]
    phases: PhaseDurations
    phase: Annotated[str, Meta(description="counters, switch, done, or superseded: ended by another one")]


class TopologyExchangeState(msgspec.Struct, frozen=True):
    """A topology, and the exchanges of this member's partitions in it."""

    major: Annotated[int, Meta(description="number of the view")]
    age_ms: int
    joined: list[str]
    restarted: list[str]
    left: Annotated[list[str], Meta(description="members that left in order")]
    gone: list[str]
    state: Annotated[str, Meta(description="of the cluster")]
    master: str
    first: Annotated[bool, Meta(description="the first one that this member has seen: all are called joined")]
    exchanges: Annotated[dict[str, int], Meta(description="number of finished exchanges, by cause")]
    longest: Annotated[PhaseDurations, Meta(description="the longest of each phase")]
    lasted_ms: Annotated[float, Meta(description="until the last exchange had finished; 0: there was none")]


class ExchangesSeen(msgspec.Struct, frozen=True):
    """The exchanges that one member remembers, oldest first."""

    topologies: list[TopologyExchangeState]
    partition: list[PartitionExchangeState]
    open: Annotated[int, Meta(description="partitions that it is to lead and does not serve yet")]
    dropped: Annotated[int, Meta(description="older exchanges of partitions, which it has forgotten")]


class ShowExchanges(MachineQuery, frozen=True):
    r"""Show the last exchanges: after each change of topology, how partitions got their primaries, and how long it
    took. With --partition, those of one partition.

    The phases, in their order: `wait` until writes and steps of transactions under way are done (only if the former
    primary is there to wait); `table` until the new place is in force; `counters` until all replicas have the
    counters of the new primary; `switch` until it serves. A partition has no primary for the sum of them. For a
    topology, each column has the longest of its partitions.

    Members keep them in memory, each for the partitions that it leads. Zones elect leaders instead: see new ones
    with `holdfast cluster watch`, and the present ones with `holdfast zone show`.

    \b
      holdfast cluster exchange
      holdfast cluster exchange --partition 7
    """

    declared = Declaration(
        "exchanges",
        Action.STATUS,
        "cluster exchange",
        "Show how partitions got their primaries, and how long it took.",
        target=Target.EACH,
        timeout_s=5,
    )
    result = ExchangesSeen

    partition: Annotated[Partition | None, Meta(description="Only exchanges of this partition.")] = None

    def problem(self, partitions: int) -> str:
        if self.partition is not None and self.partition >= partitions:
            return f"there is no partition {self.partition}: they are 0 to {partitions - 1}"
        return ""

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        known, now_ns = member.exchanges, member.out.now_ns
        found = [] if self.partition is None else list(known.of_partition(self.partition))
        reply(
            ExchangesSeen(
                [_topology(one, now_ns) for one in known.topologies],
                [_exchange(one, now_ns) for one in found],
                known.open,
                known.dropped,
            )
        )


def _topology(one: history.TopologyExchange, now_ns: int) -> TopologyExchangeState:
    return TopologyExchangeState(
        one.major,
        (now_ns - one.began_ns) // MILLISECOND,
        one.joined,
        one.restarted,
        one.left,
        one.gone,
        one.state,
        one.master,
        one.first,
        {cause.value: count for cause, count in one.exchanges.items()},
        _phases(one.longest),
        _ms(one.last_ns),
    )


def _exchange(one: history.PartitionExchange, now_ns: int) -> PartitionExchangeState:
    return PartitionExchangeState(
        one.topology.major,
        one.topology.minor,
        (now_ns - one.began_ns) // MILLISECOND,
        one.cause.value,
        one.before,
        _phases(one.times),
        one.phase.value,
    )


def _phases(times: history.PhaseTimes) -> PhaseDurations:
    return PhaseDurations(_ms(times.wait), _ms(times.table), _ms(times.counters), _ms(times.switch))


def _ms(duration_ns: int) -> float:
    return round(duration_ns / MILLISECOND, 3)
