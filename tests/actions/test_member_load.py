"""`holdfast top`: rates between two samples of each member."""

from __future__ import annotations

import asyncio
import json

from click.testing import CliRunner
from tests.runtime.in_process.test_embedded import cluster, run

from holdfast.actions.member_process import MemberLoad
from holdfast.cli.main import holdfast
from holdfast.cli.top import quantile_ms, rates
from holdfast.observe.latency_histogram import BUCKETS, LatencyHistogram

MS = 1_000_000


def load(uptime_ms: int, *took_ms: int, **more: int) -> MemberLoad:
    histogram = LatencyHistogram()
    for one in took_ms:
        histogram.add(one * MS)
    return MemberLoad(
        uptime_ms,
        histogram.count,
        histogram.sum_ns,
        histogram.counts,
        more.get("processor_ms", 0),
        2.5,
        100,
        1000,
        3,
        master=True,
        lite=False,
    )


def test_rates_are_those_between_two_samples() -> None:
    found = rates("one", load(1000, 1, 1), load(3000, 1, 1, 4, 4, 4, 100, processor_ms=3000))
    assert (found.operations_per_s, found.mean_ms, found.processor) == (2.0, 28.0, 1.5)
    assert found.p50_ms is not None
    assert found.p99_ms is not None
    assert 4 <= found.p50_ms <= 5
    assert 100 <= found.p99_ms <= 125
    assert (found.role, found.memory_bytes, found.memory_limit_bytes, found.clients) == (
        "master",
        100,
        1000,
        3,
    )


def test_a_member_that_was_restarted_or_idle_has_no_rates() -> None:
    for before, now in ((load(9000, 1, 1, 1), load(500, 1)), (load(1000, 1), load(2000, 1))):
        found = rates("one", before, now)
        assert (found.operations_per_s, found.mean_ms, found.p50_ms, found.p99_ms) == (0, None, None, None)


def test_quantiles_lie_at_the_bounds_of_buckets() -> None:
    counts = [0] * BUCKETS
    assert quantile_ms(counts, 0.5) is None
    counts[0] = 1
    assert quantile_ms(counts, 0.99) == 0.001


def test_top_shows_every_member() -> None:
    async def story() -> None:
        async with cluster(2) as (first, second):
            await first.map("m").put_all({n: n for n in range(200)})

            def top(*words: str) -> str:
                call = ["top", "--once", "--interval", "0.1", "-a", first.client_address, *words]
                told = CliRunner().invoke(holdfast, call)
                assert told.exit_code == 0, told.output
                return told.stdout

            found = json.loads(await asyncio.to_thread(top, "--json"))
            assert [one["role"] for one in found["members"]] == ["master", ""]
            assert all(one["clients"] >= 1 and one["memory_bytes"] > 0 for one in found["members"])
            lines = (await asyncio.to_thread(top)).splitlines()
            assert lines[0].endswith("operations per second")
            assert [line.split()[0] for line in lines[1:]] == [
                "member", *(one.status().name for one in (first, second))
            ]  # fmt: skip

    run(story())
