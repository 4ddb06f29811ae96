"""The section `traces`: spans for an OpenTelemetry collector."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from holdfast.config.sections import Section, sized


class TraceSettings(Section, frozen=True, kw_only=True):
    """Export of spans of operator commands, migrations and slow operations: OTLP over HTTP. Spans contain no keys and
    no values.
    """

    endpoint: Annotated[
        str,
        Meta(
            max_length=2048,
            pattern="^(https?://[^/?#@]+(/[^?#]*)?)?$",
            description="Address of the collector, as http://127.0.0.1:4318; /v1/traces is appended. Empty: no "
            "traces. Needs the extra otel.",
            extra={"allowed": "empty, or an address as http://HOST:PORT"},
        ),
    ] = ""
    service_name: str = sized("holdfast", 255, "service.name of the spans.", least=1)
