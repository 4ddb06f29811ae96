"""The routes of operator actions: `POST /v1/actions/NAME` with the fields as JSON, and the list of all actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from holdfast.actions.operator_action import ActionDone, OperatorAction, OperatorQuery
from holdfast.actions.reference import described
from holdfast.actions.registry import ACTIONS, action_of
from holdfast.errors import ProtocolError
from holdfast.server import action_requests
from holdfast.server.http.http_messages import (
    JSON,
    BadRequest,
    HttpAnswer,
    HttpRequest,
    Responder,
    json_answer,
    text_answer,
)
from holdfast.server.http.routes import HttpMember, Route
from holdfast.wire.answers import Fate

ACTIONS_AT: Final = "/v1/actions/"
QUERIES_AT: Final = "/v1/queries/"
ALL_MEMBERS: Final = "all"
STATUS_OF: Final = {Fate.DONE: 200, Fate.ACCEPTED: 202, Fate.REJECTED: 409, Fate.UNKNOWN: 504}


class ActionForwarder(Protocol):
    def act_at(
        self,
        request: HttpRequest,
        uuid: str,
        action: OperatorAction,
        timeout_ms: int,
        done: ActionDone,
    ) -> None:
        """Carry out an action at another member, with the requester's credentials. Raises BadRequest if it does not
        exist.
        """

    def ask_all(self, request: HttpRequest, query: OperatorQuery, done: Callable[[bytes], None]) -> None:
        """Ask a query of all members, with the requester's credentials; `done` gets JSON, possibly a moment old."""


class ActionResult(msgspec.Struct, frozen=True, omit_defaults=True):
    result: str
    """`done`, `rejected`, `accepted`: not finished in time, and the cluster continues with it; or `unknown`: it may or
    may not be done.
    """
    message: str
    value: Any = None
    """The answer, if the action has one beside the message."""


class ActionRoutes:
    def __init__(self, member: HttpMember, forwarder: ActionForwarder) -> None:
        self._member = member
        self._forwarder = forwarder

    def all(self) -> list[Route]:
        return [
            Route("GET", "/v1/actions", self.list),
            Route("POST", f"{ACTIONS_AT}*", self.act),
            Route("GET", f"{QUERIES_AT}*", self.ask),
        ]

    def list(self, request: HttpRequest, responder: Responder) -> None:
        """All actions, with the JSON schemas of their fields."""
        responder.answer(json_answer({"actions": [described(kind) for kind in ACTIONS.values()]}))

    def act(self, request: HttpRequest, responder: Responder) -> None:
        """Carry out an action; responds when it is done or has failed.

        `?timeout_ms=N`: how long to wait. `?member=UUID`: carry it out at that member.
        """
        name = request.path.removeprefix(ACTIONS_AT)
        action = _read(name, request.json())
        if isinstance(action, OperatorQuery):
            raise BadRequest(f"{name} is a query: GET {QUERIES_AT}{name}")

        def done(fate: Fate, message: str, value: msgspec.Struct | None = None, _error: str = "") -> None:
            result = ActionResult(fate.name.lower(), message, value)
            responder.answer(json_answer(msgspec.to_builtins(result), STATUS_OF[fate]))

        self._begin(request, responder, action, done)

    def ask(self, request: HttpRequest, responder: Responder) -> None:
        """Answer a query, with its fields in the query string, as JSON. `timeout_ms` and `member`: as for actions;
        `member=all` asks every member: `{"at_ms": …, "members": [{"uuid", "name", "answer", "error"}, …]}`.
        """
        name = request.path.removeprefix(QUERIES_AT)
        fields = {key: value for key, value in request.query.items() if key not in ("member", "timeout_ms")}
        query = _read(name, fields, strict=False)
        if not isinstance(query, OperatorQuery):
            raise BadRequest(f"{name} is an action: POST {ACTIONS_AT}{name}")

        def done(fate: Fate, message: str, value: msgspec.Struct | None = None, _error: str = "") -> None:
            told = value if fate is Fate.DONE else ActionResult(fate.name.lower(), message)
            responder.answer(json_answer(msgspec.to_builtins(told), STATUS_OF[fate]))

        if request.query.get("member") == ALL_MEMBERS:
            if self._permits(request, responder, query):
                self._forwarder.ask_all(
                    request, query, lambda body: responder.answer(HttpAnswer(200, body, JSON))
                )
            return
        self._begin(request, responder, query, done)

    def _begin(
        self, request: HttpRequest, responder: Responder, action: OperatorAction, done: ActionDone
    ) -> None:
        grid, timeout_ms = self._member.grid, _timeout_ms(request, action)
        if not self._permits(request, responder, action):
            return
        uuid = request.query.get("member", "")
        if uuid in ("", grid.member_uuid):
            grid.act(action, timeout_ms, done)
        else:
            self._forwarder.act_at(request, uuid, action, timeout_ms, done)

    def _permits(self, request: HttpRequest, responder: Responder, action: OperatorAction) -> bool:
        """Raises BadRequest for wrong fields."""
        grid = self._member.grid
        if reason := action_requests.denial(grid, request.rights, request.peer, action):
            responder.answer(text_answer(403, reason))
            return False
        if problem := action_requests.problem(grid, action, _timeout_ms(request, action)):
            raise BadRequest(problem)
        return True


def _read(name: str, content: object, *, strict: bool = True) -> OperatorAction:
    """Raises BadRequest."""
    try:
        return action_of(name, content, strict=strict)
    except ProtocolError as error:
        raise BadRequest(str(error)) from None


def _timeout_ms(request: HttpRequest, action: OperatorAction) -> int:
    text = request.query.get("timeout_ms", "")
    if not text:
        return round(1000 * action.declared.timeout_s)
    if not text.isdecimal() or len(text) > 10:
        raise BadRequest("timeout_ms is a number of milliseconds")
    return int(text)
