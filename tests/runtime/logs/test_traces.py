"""Spans of what members do beside serving, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.runtime.http.test_http_door import asked, door_of, until
from tests.runtime.in_process.test_embedded import member, run

from holdfast.core.model.migration import Migration
from holdfast.core.model.partition_events import Kind, News
from holdfast.errors import NotInstalled
from holdfast.runtime.logs import traces


class Collector:
    """Keeps the spans that are sent to it."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        """With the name of the member that sent them."""
        collector = self

        class Taking(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") is None:
                    collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *said: object) -> None:  # type: ignore[override]
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def take(self, sent: ExportTraceServiceRequest) -> None:
        for part in sent.resource_spans:
            about = {one.key: one.value.string_value for one in part.resource.attributes}
            assert about["service.name"] == "grid"
            for scope in part.scope_spans:
                self.spans += [(about["holdfast.member"], span) for span in scope.spans]

    def of(self, name: str) -> list[Span]:
        return [span for _, span in self.spans if span.name == name]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.close()


def said(span: Span) -> dict[str, object]:
    """Its attributes."""
    found: dict[str, object] = {}
    for one in span.attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind) if kind else None
        found[one.key.removeprefix("holdfast.")] = (
            [each.string_value for each in value.values] if kind == "array_value" else value
        )
    return found


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_collector_hears_of_orders_migrations_views_and_the_members(collector: Collector) -> None:
    began_ns = time.time_ns()

    async def story() -> None:
        traced = {"traces__endpoint": collector.endpoint, "traces__service_name": "grid"}
        async with member(member__name="one", http__enabled=True, http__port=0, **traced) as one:
            await one.map("m").put("secret-key", "secret-value")
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "holdfast", "start",
                *("--set", "member.name=two", "--set", "member.member_port=0", "--set", "member.client_port=0"),
                *("--set", f"cluster.seeds={one.member_address}", "--set", "partitions.count=31"),
                *("--set", f"traces.endpoint={collector.endpoint}", "--set", "traces.service_name=grid"),
                *("--set", "http.enabled=false"),
                env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                async with asyncio.timeout(120):
                    await until(lambda: len(one._node.member.picture.members()) == 2)
                await one.wait_safe()
                order = '{"state": "active"}'
                sent = await asked(
                    door_of(one), "/v1/actions/state", "POST", order, content_type="application/json"
                )
                assert sent[0] == 200
                refused = "{}"
                await asked(
                    door_of(one),
                    "/v1/actions/promote?timeout_ms=0",
                    "POST",
                    refused,
                    content_type="application/json",
                )
            finally:
                process.terminate()
                await process.wait()

    run(story())
    ended_ns = time.time_ns()
    assert {who for who, span in collector.spans if span.name == "member start"} == {"one", "two"}
    orders = [said(span) for span in collector.of("order")]
    assert (orders[0]["order"], orders[0]["result"]) == ("state", "done")
    assert orders[1]["result"] in {"done", "refused", "stands"}
    views = [said(span) for who, span in collector.spans if span.name == "view" and who == "one"]
    assert any(one.get("joined") == ["two"] for one in views)
    rebalances = {span.span_id: span for span in collector.of("rebalance")}
    migrations = collector.of("migration")
    committed = [span for span in migrations if said(span)["result"] == "committed"]
    assert {said(span)["partition"] for span in committed} == set(range(31))
    assert {said(span)["destination"] for span in committed} == {"one", "two"}, "it came, and drained"
    for span in committed:
        parent = rebalances[span.parent_span_id]
        assert span.trace_id == parent.trace_id
        assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= parent.end_time_unix_nano
    for _, span in collector.spans:
        assert began_ns - 10**9 <= span.start_time_unix_nano <= span.end_time_unix_nano <= ended_ns + 10**9
        assert b"secret" not in span.SerializeToString()
    assert {who for who, span in collector.spans if span.name == "member stop"} == {"one", "two"}


def test_a_collector_that_is_away_holds_up_nothing(
    caplog: pytest.LogCaptureFixture, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.close()
    monkeypatch.setattr(traces, "EXPORT_S", 1.5)

    async def story() -> None:
        async with member(traces__endpoint=collector.endpoint) as one:
            await one.map("m").put(1, 2)
            assert await one.map("m").get(1) == 2
            # Whoever ends after this does not wait long for what would not be taken anyway.
            async with asyncio.timeout(120):
                await until(lambda: "took no spans" in caplog.text)

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert [each.name for each in caplog.records if each.name.startswith("opentelemetry")] == []
    assert f"not sent within {traces.AWAY_S:g} s" in caplog.text


def test_a_collector_that_hangs_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It takes connections and what they say, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as ends:

        async def story() -> None:
            async with member(traces__endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}") as one:
                connection, _ = await asyncio.to_thread(silent.accept)
                ends.enter_context(connection)
                await one.map("m").put(1, 2)
                assert await one.map("m").get(1) == 2

        with caplog.at_level(logging.WARNING):
            asyncio.run(story())
    assert f"not sent within {traces.FLUSH_S:g} s" in caplog.text, "the member did not wait for its answer"


def test_an_order_names_who_gave_it(collector: Collector) -> None:
    users = {"users__ada__passwords": ["a long enough secret"], "users__ada__roles": ["admin"]}

    async def story() -> None:
        traced = {"traces__endpoint": collector.endpoint, "traces__service_name": "grid"}
        async with member(http__enabled=True, http__port=0, **users, **traced) as one:
            order = '{"state": "active"}'
            shown = "Basic " + b64encode(b"ada:a long enough secret").decode()
            told = {"content_type": "application/json", "authorization": shown}
            assert (await asked(door_of(one), "/v1/actions/state", "POST", order, **told))[0] == 200

    run(story())
    (span,) = collector.of("order")
    assert (said(span)["by"], said(span)["result"]) == ("ada", "done")


def test_a_migration_that_failed_is_a_span_that_says_so(collector: Collector) -> None:
    """Of one that began at no rebalance which this member has told, too."""
    move = Migration(3, "uuid-one", 0, -1, "uuid-two", -1, 0)
    process = (7, 1)
    news = [
        News((7, 1), Kind.STARTED, process, planned=1),
        News((7, 2), Kind.FAILED, process, planned=1, failed=1, elapsed_ms=40, migration=move, took_ms=30),
        News((7, 3), Kind.FINISHED, process, planned=1, failed=1, elapsed_ms=50),
        News((8, 1), Kind.FAILED, (6, 9), migration=move),
    ]

    async def story() -> None:
        async with member(traces__endpoint=collector.endpoint, traces__service_name="grid") as one:
            telling = one._node._watch._traces
            assert telling is not None
            telling.heard(news, {"uuid-one": "one", "uuid-two": "two"}, tells=True, now_ns=time.time_ns())

    run(story())
    first, alone = (span for span in collector.of("migration") if said(span)["result"] == "failed")
    assert said(first) == {
        "partition": 3,
        "replica": 0,
        "kind": str(move.kind).lower(),
        "source": "one",
        "destination": "two",
        "result": "failed",
    }
    assert first.end_time_unix_nano - first.start_time_unix_nano == 30 * 10**6
    (rebalance,) = (span for span in collector.of("rebalance") if said(span).get("failed") == 1)
    assert first.parent_span_id == rebalance.span_id
    assert alone.parent_span_id == b""


def test_the_setting_without_the_extra_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    async def story() -> None:
        with pytest.raises(NotInstalled, match=r"pip install '\.\[otel\]' in the source folder"):
            await member(traces__endpoint="http://127.0.0.1:1").start()

    run(story())


def test_without_the_setting_nothing_of_it_is_imported() -> None:
    program = """
import asyncio, sys, holdfast
from holdfast.config import load
from holdfast.runtime.in_process.embedded import Member
async def story():
    settings = {"member.member_port": 0, "member.client_port": 0, "cluster.seeds": [], "partitions.count": 31}
    async with Member(load(None, {}, settings)) as one:
        await one.map("m").put(1, 2)
asyncio.run(story())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30, env=environment())


def test_a_slow_operation_is_a_span_from_when_it_began_to_wait(collector: Collector) -> None:
    async def story() -> None:
        async with member(
            member__name="one", traces__endpoint=collector.endpoint, traces__service_name="grid"
        ) as one:
            slow = one._node._watch._slow
            assert slow is not None
            slow.stalled(3.0)

    run(story())
    (span,) = collector.of("slow operation")
    assert span.end_time_unix_nano - span.start_time_unix_nano == 3 * 10**9
    assert said(span)["kind"] == "a turn of the event loop"
