"""The routes of every member: health, metrics, status, and operator commands."""

from __future__ import annotations

import msgspec

from holdfast.server import access
from holdfast.server.audit_events import AuditEvent, AuditKind, order_of
from holdfast.server.http.http_messages import (
    JSON,
    BadRequest,
    HttpAnswer,
    HttpRequest,
    Responder,
    json_answer,
    login_of,
    text_answer,
)
from holdfast.server.http.routes import HttpMember, Route
from holdfast.server.order_bounds import named_partitions, order_problem
from holdfast.wire import own

STATUS_OF = {own.Fate.DONE: 200, own.Fate.ACCEPTED: 202, own.Fate.REJECTED: 409}
"""HTTP status by result of a command."""


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
            Route("GET", "/status", self.status),
            Route("GET", "/cluster", self.cluster),
            Route("POST", "/orders", self.order),
        ]

    def index(self, request: HttpRequest, responder: Responder) -> None:
        responder.answer(
            text_answer(
                200, "A member of Holdfast: /console /health/live /health/ready /metrics /status /cluster"
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

    def status(self, request: HttpRequest, responder: Responder) -> None:
        self._member.status(lambda body: responder.answer(_told(body, JSON)))

    def cluster(self, request: HttpRequest, responder: Responder) -> None:
        """The status of all members as JSON, fetched with the requester's credentials."""
        login = login_of(request.headers.get("authorization", ""), request.peer)
        self._member.cluster(login, lambda body: responder.answer(_told(body, JSON)))

    def order(self, request: HttpRequest, responder: Responder) -> None:
        """`{"want": "leave"}`; responds when it has taken effect or failed."""
        grid = self._member.grid
        order = read_order(request.json(), grid.partition_count)
        what, rights = order_of(order, ()), request.rights
        if why := access.question_rejection(rights, order, ()):
            grid.audit(AuditEvent(AuditKind.REFUSED, rights.user, request.peer, what, why))
            responder.answer(text_answer(403, why))
            return
        grid.audit(AuditEvent(AuditKind.ORDER, rights.user, request.peer, what))

        def done(fate: own.Fate, why: str) -> None:
            responder.answer(json_answer({"result": fate.name.lower(), "reason": why}, STATUS_OF[fate]))

        grid.order(order, done)


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    want: str
    timeout_ms: int = 60_000
    state: str = ""
    partition: int = -1
    member: str = ""
    partitions: list[int] = []
    maps: list[str] = []
    members: list[str] = []
    adjust_ms: int = -1


def read_order(content: object, partitions: int) -> own.Order:
    """Raises BadRequest."""
    try:
        asked = msgspec.convert(content, _Asked)
    except msgspec.ValidationError as error:
        raise BadRequest(f"this is not a valid command: {error}") from None
    wants = {want.name.lower().replace("_", "-"): want for want in own.Want}
    if asked.want not in wants:
        raise BadRequest(f"there is no order {asked.want[:100]!r}; known are {', '.join(wants)}")
    rest = {name: getattr(asked, name) for name in asked.__struct_fields__ if name != "want"}
    order = own.Order(1, wants[asked.want], **rest)
    if why := order_problem(order):
        raise BadRequest(why)
    if not all(0 <= partition < partitions for partition in named_partitions(order)):
        raise BadRequest(f"partitions are 0 to {partitions - 1}")
    return order
