"""`holdfast top`: rates, latency, memory and clients of each member."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Annotated

import click
import msgspec

from holdfast.actions.member_load import Load
from holdfast.actions.member_process import MemberLoad
from holdfast.cli.answers import Answer
from holdfast.cli.exit_statuses import DONE, UNREACHABLE
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.query_commands import answers_of_members
from holdfast.cli.rendering import Shown, table_of
from holdfast.cli.unit_types import Seconds
from holdfast.core.model.result_columns import column
from holdfast.observe.latency_histogram import bound_ns

NS_PER_MS = 1e6
CLEAR = "\x1b[H\x1b[J"


class MemberRates(msgspec.Struct, frozen=True):
    """A member between two samples."""

    member: Annotated[str, column("member")]
    role: Annotated[str, column("role", about="master, lite, or empty")]
    operations_per_s: Annotated[float, column("ops/s", "count")]
    mean_ms: Annotated[float | None, column("mean ms", right=True, about="null: nothing was asked")]
    p50_ms: Annotated[float | None, column("p50 ms", right=True, about="at most a quarter too high")]
    p99_ms: Annotated[float | None, column("p99 ms", right=True)]
    memory_bytes: Annotated[int, column("memory", "bytes")]
    memory_limit_bytes: Annotated[int, column("limit", "bytes")]
    clients: Annotated[int, column("clients", "count")]
    processor: Annotated[float, column("cpu", "percent", about="cores: 1.0 is one whole core")]
    longest_block_ms: Annotated[float, column("blocked", "ms", about="longest within the last minute")]


class Top(Answer):
    """Rates, latency, memory and clients of each member."""

    at_ms: int
    interval_s: float
    members: list[MemberRates]
    unreachable_members: list[str]
    clears: bool | msgspec.UnsetType = msgspec.UNSET

    def view(self) -> Iterable[Shown]:
        if self.clears is True:
            yield CLEAR
        total = sum(one.operations_per_s for one in self.members)
        yield (
            f"{time.strftime('%H:%M:%S', time.localtime(self.at_ms / 1000))}  {len(self.members)} members, "
            f"{total:,.0f} operations per second"
        )
        yield table_of(self.members, MemberRates)

    def notes(self) -> Iterable[str]:
        return self.unreachable_members

    @property
    def exit_status(self) -> int:
        return UNREACHABLE if self.unreachable_members else DONE


def rates(member: str, before: MemberLoad, now: MemberLoad) -> MemberRates:
    """The rates between two samples; zero if the member was restarted between them."""
    seconds = (now.uptime_ms - before.uptime_ms) / 1000
    if seconds <= 0:
        before, seconds = now, 1.0
    done = now.operations - before.operations
    counts = [new - old for new, old in zip(now.latency_counts, before.latency_counts, strict=True)]
    return MemberRates(
        member,
        "master" if now.master else "lite" if now.lite else "",
        done / seconds,
        round((now.latency_sum_ns - before.latency_sum_ns) / done / NS_PER_MS, 3) if done else None,
        quantile_ms(counts, 0.5),
        quantile_ms(counts, 0.99),
        now.memory_bytes,
        now.memory_limit_bytes,
        now.clients,
        (now.processor_ms - before.processor_ms) / 1000 / seconds,
        now.longest_block_ms,
    )


def quantile_ms(counts: list[int], part: float) -> float | None:
    """The upper bound of the bucket that has this quantile; None without requests."""
    total = sum(counts)
    if not total:
        return None
    left = part * total
    for bucket, found in enumerate(counts):
        left -= found
        if left <= 0:
            return round(bound_ns(bucket) / NS_PER_MS, 3)
    return None


@operator_command(short_help="Show rates, latency, memory and clients of each member.")
@click.option("--once", is_flag=True, help="Print one table, and end.")
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(0.05, 3600),
    default=2.0,
    show_default="2 s",
    metavar="TIME",
    help="Time between two samples.",
)
def top(call: Call, *, once: bool, interval_s: float) -> Iterator[Top]:
    r"""Show the operations per second, latency, memory, clients and processor time of each member, until Ctrl-C.
    Latencies are those of requests at the member, without the network.

    \b
      holdfast top
      holdfast top --once --json
    """
    before, _ = answers_of_members(call, Load())
    try:
        for number in count():
            time.sleep(interval_s)
            now, silent = answers_of_members(call, Load())
            members = [rates(name, before[name], load) for name, load in now.items() if name in before]
            yield Top(
                at_ms=time.time_ns() // 1_000_000,
                interval_s=interval_s,
                members=members,
                unreachable_members=silent,
                clears=True if number and not call.as_json else msgspec.UNSET,
            )
            if once:
                return
            before = now
    except KeyboardInterrupt:
        return
