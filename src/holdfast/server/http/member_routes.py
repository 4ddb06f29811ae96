"""The routes of every member: health and metrics."""

from __future__ import annotations

from holdfast.server.http.http_messages import (
    HttpAnswer,
    HttpRequest,
    Responder,
    text_answer,
)
from holdfast.server.http.routes import HttpMember, Route


def _told(body: bytes, kind: str) -> HttpAnswer:
    """A response with this body; empty: an internal error."""
    return (
        HttpAnswer(200, body, kind)
        if body
        else text_answer(500, "an error inside this member: its log has it")
    )


class MemberRoutes:
    def __init__(self, member: HttpMember) -> None:
        self._member = member

    def all(self) -> list[Route]:
        return [
            Route("GET", "/", self.index),
            Route("GET", "/health/live", self.live),
            Route("GET", "/health/ready", self.ready),
            Route("GET", "/metrics", self.metrics),
        ]

    def index(self, request: HttpRequest, responder: Responder) -> None:
        responder.answer(
            text_answer(
                200,
                "A member of Holdfast: /console /health/live /health/ready /metrics /v1/actions /v1/queries/status",
            )
        )

    def live(self, request: HttpRequest, responder: Responder) -> None:
        """Liveness: 503 if the member must be restarted."""
        why = self._member.health().not_live
        responder.answer(text_answer(503 if why else 200, why or "alive"))

    def ready(self, request: HttpRequest, responder: Responder) -> None:
        """Readiness: 503 with the reason if clients should not use it."""
        health = self._member.health()
        why = health.not_live or health.not_ready
        responder.answer(text_answer(503 if why else 200, f"not ready: {why}" if why else "ready"))

    def metrics(self, request: HttpRequest, responder: Responder) -> None:
        self._member.metrics(
            request.headers.get("accept", ""), lambda body, kind: responder.answer(_told(body, kind))
        )
