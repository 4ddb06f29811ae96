"""Metrics in the text format of Prometheus, collected and written in slices, and shared for a moment.

A thread imports the Prometheus client library at the first request: that takes a tenth of a second, during
which the member keeps running.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.core.member import Member
from holdfast.observe.member_metrics import Collected, HistogramValue, ProcessStats, collecting
from holdfast.observe.metric_catalogue import METRICS
from holdfast.runtime.loop_slices import in_slices

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

FRESH_S = 1.0
SERIES = 100
"""Values written between two looks at the clock, about a millisecond's work."""
CLIENT = "prometheus_client"

Told = Callable[[bytes, str], None]


class MetricsPage:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
        member: Callable[[], Member],
        process_stats: Callable[[], ProcessStats],
        failed: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._threads = threads
        self._member = member
        self._process_stats = process_stats
        self._failed = failed
        self._loaded = False
        self._waiting: dict[str, list[Told]] = {}
        self._kept: dict[str, tuple[bytes, str]] = {}
        self._made_s = -FRESH_S
        self._families: list[Family] = []
        self._working = False

    def ask(self, accept: str, done: Told) -> None:
        """Call `done` with text and content type, both empty after an error."""
        accept = "openmetrics" if "application/openmetrics-text" in accept else ""
        if time.monotonic() - self._made_s < FRESH_S and accept in self._kept:
            done(*self._kept[accept])
            return
        self._waiting.setdefault(accept, []).append(done)
        if not self._working:
            self._working = True
            if self._loaded:
                self._begin()
            else:
                loading = self._loop.run_in_executor(
                    self._threads, import_module, f"{CLIENT}.openmetrics.exposition"
                )
                loading.add_done_callback(self._came)

    def _came(self, loading: asyncio.Future[Any]) -> None:
        if loading.cancelled():
            return  # The member ends.
        self._loaded = True
        loading.exception()  # Mark it as retrieved; the next import raises it again.
        self._begin()

    def _begin(self) -> None:
        in_slices(self._loop, self._working_on(), self._over, self._broken)

    def _over(self, _: None) -> None:
        self._working = False
        if self._waiting:
            self._working = True
            self._begin()

    def _broken(self, error: Exception) -> None:
        self._working = False
        self._failed(error)
        waiting, self._waiting = self._waiting, {}
        for done in [each for told in waiting.values() for each in told]:
            done(b"", "")

    def _working_on(self) -> Generator[None, None, None]:
        if time.monotonic() - self._made_s >= FRESH_S:
            collected = yield from collecting(self._member(), self._process_stats())
            self._families = list(families(collected))
            self._kept.clear()
            self._made_s = time.monotonic()
        for accept in list(self._waiting):
            text, kind = yield from written(self._families, accept)
            self._kept[accept] = (text, kind)
            for done in self._waiting.pop(accept):
                done(text, kind)


def families(collected: Collected) -> Iterator[Family]:
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.process_collector import ProcessCollector

    for name, values in collected.items():
        metric = METRICS[name]
        if not values:
            continue
        if metric.kind == "histogram":
            histogram = HistogramMetricFamily(name, metric.meaning, labels=metric.labels)
            for labels, value in values:
                assert isinstance(value, HistogramValue), name
                buckets = [(f"{bound:g}", float(count)) for bound, count in value.buckets]
                histogram.add_metric(labels, [*buckets, ("+Inf", float(value.count))], value.sum_s)
            yield histogram
            continue
        made: Any = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = made(name, metric.meaning, labels=metric.labels)
        for labels, value in values:
            family.add_metric(labels, value)
        yield family
    yield from ProcessCollector(registry=None).collect()


class _Some:
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def written(families: Iterable[Family], accept: str) -> Generator[None, None, tuple[bytes, str]]:
    from prometheus_client import exposition
    from prometheus_client.openmetrics import exposition as openmetrics

    text: list[bytes] = []
    end = b""
    write: Any = exposition.generate_latest
    kind = exposition.CONTENT_TYPE_PLAIN_0_0_4
    if accept:
        write, kind, end = openmetrics.generate_latest, openmetrics.CONTENT_TYPE_LATEST, b"# EOF\n"
    some: list[Family] = []
    size = 0
    for family in families:
        some.append(family)
        size += len(family.samples)
        if size >= SERIES:
            text.append(write(_Some(some)).removesuffix(end))
            some, size = [], 0
            yield
    text.append(write(_Some(some)).removesuffix(end))
    return b"".join(text) + end, kind
