"""Spans for OpenTelemetry: operator commands, migrations, views, slow operations, start and stop of the member.

Without `traces.endpoint` nothing of OpenTelemetry is imported. Spans go to a queue of the SDK, whose thread sends them:
an unreachable collector loses spans and delays nothing. Spans contain no keys or values.

Every member learns of every migration; only the master makes spans of them, so that each one is recorded once. Their
times on the master's monotonic clock count from the start of the rebalance, and are converted once to wall-clock time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.actions.operator_action import ActionDone, OperatorAction
from holdfast.config import Settings
from holdfast.core.effects import Note
from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.member_status import SlowOperation
from holdfast.core.model.partition_events import Kind, News, Number
from holdfast.errors import NotInstalled
from holdfast.runtime.logs.limited_lines import LimitedLines, quoted
from holdfast.server.audit_events import AuditEvent, AuditKind
from holdfast.version import __version__
from holdfast.wire import own

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.trace import Span

EXPORT_S = 5.0
DELAY_MS = 1000
"""Time a span waits for others to be sent with it."""
FLUSH_S = 2.0
AWAY_S = 0.2
SHOWN_MAX = 500
"""Characters of an attribute; clients influence some."""

Attributes = Mapping[str, str | int | bool | Sequence[str]]


class Traces:
    def __init__(self, settings: Settings, member: str, lines: LimitedLines) -> None:
        """`member`: its UUID. Raises NotInstalled."""
        self._begun_ns = time.time_ns()
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._reached = True
        self._provider = self._provide(settings, member)
        self._tracer = self._provider.get_tracer("holdfast", __version__)
        self._orders: set[Span] = set()
        self._by = ""
        self._picture: MemberView | None = None
        self._heard: Number = (0, 0)
        self._rebalances: dict[Number, tuple[Span, int]] = {}

    def _provide(self, settings: Settings, member: str) -> TracerProvider:
        chosen = settings.traces
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
        except ImportError as absent:
            what = f"traces.endpoint is {chosen.endpoint!r}"
            raise NotInstalled.of(what, "opentelemetry-sdk with its OTLP exporter", "otel") from absent
        # Errors of an unreachable collector are logged here, rate-limited.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        sends = OTLPSpanExporter(endpoint=f"{chosen.endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_S)
        said = self._collector_said

        class Telling(SpanExporter):
            """Exports, and reports failures. Runs in the thread of the SDK."""

            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                try:
                    result = sends.export(spans)
                except Exception:  # noqa: BLE001  (whatever it is: the spans are lost, and nothing else)
                    result = SpanExportResult.FAILURE
                said(taken=result is SpanExportResult.SUCCESS, spans=len(spans))
                return result

            def shutdown(self) -> None:
                sends.shutdown()  # type: ignore[no-untyped-call]

        about = {
            "service.name": chosen.service_name,
            "service.version": __version__,
            "service.instance.id": member,
            "holdfast.cluster": settings.cluster.name,
            "holdfast.member": settings.member.name or member,
        }
        provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(Telling(), schedule_delay_millis=DELAY_MS))
        return provider

    def _collector_said(self, *, taken: bool, spans: int) -> None:
        self._reached = taken
        if taken:
            return
        line = "the collector at traces.endpoint took no spans: %d are dropped"
        try:
            self._loop.call_soon_threadsafe(self._lines.write, "traces", line, spans)
        except RuntimeError:
            return  # the loop is closed

    def _span(
        self, name: str, attributes: Attributes, begun_ns: int, ended_ns: int, parent: Span | None = None
    ) -> Span:
        span = self._begin_span(name, attributes, begun_ns, parent)
        span.end(max(begun_ns, ended_ns))
        return span

    def _begin_span(
        self, name: str, attributes: Attributes, begun_ns: int, parent: Span | None = None
    ) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        context = set_span_in_context(parent, Context()) if parent is not None else Context()
        named = {f"holdfast.{key}": value for key, value in attributes.items()}
        return self._tracer.start_span(name, context, attributes=named, start_time=begun_ns)

    # -- the member itself

    def started(self, picture: MemberView) -> None:
        self._picture = picture
        self._heard = picture.last_news
        self._span("member start", {}, self._begun_ns, time.time_ns())

    def note(self, note: Note) -> None:
        if note.kind == "view":
            now_ns = time.time_ns()
            self._span("view", {key: _said(value) for key, value in note.fields.items()}, now_ns, now_ns)

    async def stop(self, why: str, begun_ns: int) -> None:
        if self._ended:
            return
        self._ended = True
        self._look()
        now_ns = time.time_ns()
        for span in [*self._orders, *(span for span, _ in self._rebalances.values())]:
            span.set_attribute("holdfast.result", "not seen to its end")
            span.end(now_ns)
        self._orders.clear()
        self._rebalances.clear()
        self._span("member stop", {"reason": quoted(why, SHOWN_MAX)}, begun_ns, now_ns)
        sent = asyncio.Event()
        loop = self._loop

        def flush() -> None:
            self._provider.shutdown()
            try:
                loop.call_soon_threadsafe(sent.set)
            except RuntimeError:
                return  # it took too long, and the loop is closed

        # Not a pool's thread, because the process would wait for it at its end.
        threading.Thread(target=flush, name="last traces", daemon=True).start()
        limit_s = FLUSH_S if self._reached else AWAY_S
        try:
            async with asyncio.timeout(limit_s):
                await sent.wait()
        except TimeoutError:
            log = logging.getLogger("holdfast")
            log.warning("the last traces were not sent within %g s, and are dropped", limit_s)

    # -- operator commands

    def audited(self, event: AuditEvent) -> None:
        """Remember the user of a command, which is audited just before it starts."""
        if event.event is AuditKind.ORDER:
            self._by = event.user

    def action(self, action: OperatorAction, done: ActionDone) -> ActionDone:
        """Begin a span for a command; returns the callback to use instead of `done`."""
        by, self._by = self._by, ""
        told: dict[str, str | int] = {"order": action.declared.name, "by": quoted(by, SHOWN_MAX)}
        span = self._begin_span("order", told, time.time_ns())
        self._orders.add(span)

        def ended(fate: own.Fate, message: str, value: msgspec.Struct | None = None, error: str = "") -> None:
            if span in self._orders:
                self._orders.discard(span)
                span.set_attribute("holdfast.result", fate.name.lower())
                span.set_attribute("holdfast.reason", quoted(message, SHOWN_MAX))
                span.end(time.time_ns())
            done(fate, message, value, error)

        return ended

    # -- migrations

    def look(self) -> None:
        if not self._ended:
            self._look()

    def _look(self) -> None:
        if self._picture is None or self._picture.last_news == self._heard:
            return
        news, _ = self._picture.news_since(self._heard)
        self._heard = self._picture.last_news
        names = {str(info.uuid): info.name for info in self._picture.members()}
        self.heard(news, names, tells=self._picture.is_master, now_ns=time.time_ns())

    def heard(self, news: Sequence[News], names: Mapping[str, str], *, tells: bool, now_ns: int) -> None:
        """`tells`: whether this member is the master. `names`: of members, by UUID."""
        newest_ms: dict[Number, int] = {}
        for one in news:
            newest_ms[one.process] = max(one.elapsed_ms, newest_ms.get(one.process, 0))
        for one in news:
            known = self._rebalances.get(one.process)
            if one.kind is Kind.STARTED and tells:
                begun_ns = now_ns - newest_ms[one.process] * MILLISECOND
                span = self._begin_span("rebalance", {"planned": one.planned}, begun_ns)
                self._rebalances[one.process] = span, begun_ns
            elif one.kind is Kind.FINISHED and known is not None:
                span, begun_ns = self._rebalances.pop(one.process)
                span.set_attributes({"holdfast.completed": one.completed, "holdfast.failed": one.failed})
                span.end(begun_ns + one.elapsed_ms * MILLISECOND)
            elif one.migration is not None and tells:
                self._migrated(one, names, known, now_ns)

    def _migrated(
        self, one: News, names: Mapping[str, str], known: tuple[Span, int] | None, now_ns: int
    ) -> None:
        move = one.migration
        assert move is not None, "it is news of a migration"
        ended_ns = known[1] + one.elapsed_ms * MILLISECOND if known is not None else now_ns
        told: dict[str, str | int] = {
            "partition": move.partition,
            "replica": move.destination_new,
            "kind": str(move.kind).lower(),
            "source": names.get(move.source or "", move.source or ""),
            "destination": names.get(move.destination, move.destination),
            "result": "committed" if one.kind is Kind.COMPLETED else "failed",
        }
        begun_ns = ended_ns - one.took_ms * MILLISECOND
        self._span("migration", told, begun_ns, ended_ns, known[0] if known is not None else None)

    # -- slow operations

    def slow(self, told: SlowOperation) -> None:
        assert told.ended_ms is not None, "it has ended"
        names = ("kind", "operations", "places", "waited_for", "members")
        shown = {name: _said(getattr(told, name)) for name in names}
        began_ms = told.ended_ms - told.took_ms
        self._span("slow operation", shown, began_ms * MILLISECOND, told.ended_ms * MILLISECOND)


def _said(value: object) -> str | int | list[str]:
    if isinstance(value, int):
        return value
    if isinstance(value, list | tuple):
        return [quoted(each, SHOWN_MAX) for each in value]
    return quoted(value, SHOWN_MAX)
