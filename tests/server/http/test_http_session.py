"""One connection over HTTP: bytes in, bytes out, and nobody else harmed. Pure; real members are in tests/runtime."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import h11
import pytest
from tests.server.hazelcast.one_member import OneMemberGrid

from holdfast.actions.drain import Drain
from holdfast.actions.list_clients import ClientList
from holdfast.actions.operator_action import OperatorAction, OperatorQuery
from holdfast.actions.registry import ACTIONS as OPERATOR_ACTIONS
from holdfast.actions.set_state import SetState
from holdfast.config import load
from holdfast.config.permissions import ACTIONS, Action, Kind
from holdfast.config.users import users_of
from holdfast.core.model.ids import SECOND
from holdfast.core.model.views import ClusterState
from holdfast.errors import Refused
from holdfast.observe.health import Health
from holdfast.server import access
from holdfast.server.audit_events import AuditKind
from holdfast.server.http.action_routes import ActionRoutes
from holdfast.server.http.browser_rules import is_own_name
from holdfast.server.http.http_messages import (
    COMMENT,
    ONCE,
    BadRequest,
    HttpRequest,
    Responder,
    Stream,
    event,
    headers_of,
    json_answer,
    text_answer,
)
from holdfast.server.http.http_session import (
    BODY_BYTES,
    CHUNKS_MAX,
    DRAIN_NS,
    DRAINED_BYTES,
    EARLY_BYTES,
    EVENTS_PER_TURN,
    HEAD_BYTES,
    IDLE_NS,
    LINES_MAX,
    UNREAD_NS,
    WHOLE_NS,
    HttpSession,
)
from holdfast.server.http.member_routes import MemberRoutes
from holdfast.server.http.routes import Route, Routes
from holdfast.server.logins import Login, LoginAnswer, LoginDone
from holdfast.server.rights import Rights
from holdfast.wire import own
from holdfast_lab.fuzz.hostile import HTTP, Facts, talk

STATUS = "/v1/queries/status"


class OneHttpMember:
    """A member without a network, for sessions over HTTP."""

    def __init__(self) -> None:
        self.grid = OneMemberGrid()
        self.asks_credentials = False
        self.started = True
        self.told = Health()
        self.turns: list[Callable[[], None]] = []
        self.measured: list[Callable[[bytes, str], None]] = []
        self.forwarded: list[tuple[str, OperatorAction]] = []

    def act_at(
        self,
        request: HttpRequest,
        uuid: str,
        action: OperatorAction,
        timeout_ms: int,
        done: Callable[[own.Fate, str], None],
    ) -> None:
        self.forwarded.append((uuid, action))
        done(own.Fate.REJECTED, "it is away")

    def log_in(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        self.grid.log_in(login, needed, done)

    def health(self) -> Health:
        return self.told

    def metrics(self, accept: str, done: Callable[[bytes, str], None]) -> None:
        self.measured.append(done)

    def ask_all(self, request: HttpRequest, query: OperatorQuery, done: Callable[[bytes], None]) -> None:
        done(b'{"members": []}')

    def soon(self, deed: Callable[[], None]) -> None:
        self.turns.append(deed)

    def turn(self) -> None:
        turns, self.turns = self.turns, []
        for deed in turns:
            deed()


class Desk:
    """A session, what it has sent, and a client's view of that."""

    def __init__(self, *routes: Route, hosts: tuple[str, ...] = (), secure: bool = False) -> None:
        self.member = OneHttpMember()
        self.sent = bytearray()
        self.why = ""
        every = [*MemberRoutes(self.member).all(), *ActionRoutes(self.member, self.member).all(), *routes]
        self.session = HttpSession(
            self.member,
            Routes(every),
            self.sent.extend,
            self._close,
            peer="10.0.0.9",
            hosts=hosts,
            secure=secure,
        )

    def _close(self, why: str) -> None:
        self.why = why

    def ask(self, method: str = "GET", path: str = STATUS, body: bytes = b"", **headers: str) -> None:
        known = {
            "host": "127.0.0.1:5801",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if body:
            known |= {
                "content-length": str(len(body)),
                "content-type": known.get("content-type", "application/json"),
            }
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in known.items())]
        self.session.receive("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def answer(self, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """What a client reads of what was sent, up to one answer."""
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(bytes(self.sent))
        head, body = None, b""
        while True:
            found = client.next_event()
            match found:
                case h11.InformationalResponse():
                    continue
                case h11.Response():
                    head = found
                case h11.Data():
                    body += bytes(found.data)
                case h11.EndOfMessage():
                    break
                case _:
                    raise AssertionError(f"no whole answer: {bytes(self.sent)!r}")
        rest = client.trailing_data[0]
        self.sent[:] = rest
        assert head is not None
        return head.status_code, {n.decode(): v.decode() for n, v in head.headers}, body


def rights(*rules: str) -> Rights:
    settings = load(overrides={"users.u.roles": ["r"], "roles.r.rules": list(rules)})
    return Rights(users_of(settings)["u"])


# -- answers


def test_health_in_words() -> None:
    desk = Desk()
    desk.ask(path="/health/ready")
    assert desk.answer()[::2] == (200, b"ready\n")
    desk.member.told = Health(not_ready="it is looking for the cluster")
    desk.ask(path="/health/ready")
    assert desk.answer()[::2] == (503, b"not ready: it is looking for the cluster\n")
    desk.ask(path="/health/live")
    assert desk.answer()[0] == 200
    desk.member.told = Health(not_live="this member has ended: a bug")
    desk.ask(path="/health/live")
    assert desk.answer()[::2] == (503, b"this member has ended: a bug\n")


def test_status_with_headers_for_browsers() -> None:
    desk = Desk()
    desk.ask()
    status, headers, body = desk.answer()
    assert (status, json.loads(body)["state"]) == (200, "member")
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control-")]


def test_head_has_no_body() -> None:
    desk = Desk()
    desk.ask("HEAD")
    status, headers, body = desk.answer("HEAD")
    assert (status, int(headers["content-length"]) > 100, body) == (200, True, b"")


def test_what_is_not_there() -> None:
    desk = Desk()
    desk.ask(path="/nothing")
    assert desk.answer()[0] == 404
    desk.ask("DELETE", STATUS)
    status, headers, _ = desk.answer()
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_an_answer_may_come_later_and_the_next_request_waits_for_it() -> None:
    desk = Desk()
    desk.ask(path="/metrics")
    desk.ask(path=STATUS)
    assert not desk.sent
    desk.member.measured.pop()(b"a 1\n", "text/plain")
    assert desk.answer()[2] == b"a 1\n"
    assert not desk.sent, "each request has a turn of its own"
    desk.member.turn()
    assert desk.answer()[0] == 200


def test_before_the_member_has_started_only_health_is_told() -> None:
    desk = Desk()
    desk.member.started = False
    desk.ask()
    assert desk.answer()[0] == 503
    desk.ask(path="/health/live")
    assert desk.answer()[0] == 200


def test_errors_of_a_handler_are_answered() -> None:
    def bad(request: HttpRequest, responder: Responder) -> None:
        raise BadRequest("no such thing")

    def refused(request: HttpRequest, responder: Responder) -> None:
        raise Refused("not now")

    def broken(request: HttpRequest, responder: Responder) -> None:
        raise ValueError("a bug")

    desk = Desk(Route("GET", "/bad", bad), Route("GET", "/refused", refused), Route("GET", "/broken", broken))
    for path, status, body in (
        ("/bad", 400, b"no such thing\n"),
        ("/refused", 409, b"not now\n"),
        ("/broken", 500, b"an error inside this member: its log has it\n"),
    ):
        desk.ask(path=path)
        assert desk.answer()[::2] == (status, body)
    assert [kind for kind, _ in desk.member.grid.faults] == ["HTTP GET /broken"]


def test_a_path_is_decoded_and_may_be_a_beginning() -> None:
    seen: list[HttpRequest] = []

    def handler(request: HttpRequest, responder: Responder) -> None:
        seen.append(request)
        responder.answer(json_answer({"path": request.path}))

    desk = Desk(Route("GET", "/files/*", handler))
    desk.ask(path="/files/a%20b/c?x=1&y=%3D&x=2")
    assert json.loads(desk.answer()[2]) == {"path": "/files/a b/c"}
    assert seen[0].query == {"x": "2", "y": "="}


# -- orders


def test_an_order_is_taken_told_and_answered() -> None:
    desk = Desk()
    desk.ask("POST", "/v1/actions/state?timeout_ms=500", b'{"state": "frozen"}')
    ((action, timeout_ms, done),) = desk.member.grid.actions
    assert (action, timeout_ms) == (SetState(ClusterState.FROZEN), 500)
    done(own.Fate.ACCEPTED, "not within 0.5 s")
    status, _, body = desk.answer()
    assert (status, json.loads(body)) == (202, {"result": "accepted", "message": "not within 0.5 s"})
    assert [(told.event, told.what, told.detail) for told in desk.member.grid.audited] == [
        (AuditKind.ORDER, "state", "state state=frozen")
    ]


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        ((own.Fate.UNKNOWN, "no answer"), (504, {"result": "unknown", "message": "no answer"})),
        (
            (own.Fate.DONE, "frozen", ClientList([])),
            (200, {"result": "done", "message": "frozen", "value": {"clients": []}}),
        ),
    ],
)
def test_an_unknown_outcome_and_an_answer_are_in_the_response(
    answer: tuple[Any, ...], response: tuple[int, dict[str, Any]]
) -> None:
    desk = Desk()
    desk.ask("POST", "/v1/actions/state", b'{"state": "frozen"}')
    desk.member.grid.actions.pop()[2](*answer)
    status, _, body = desk.answer()
    assert (status, json.loads(body)) == response


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("state", b"{", b"no JSON"),
        ("explode", b"{}", b"there is no action 'explode'; known are accept-loss, "),
        ("", b"{}", b"there is no action ''"),
        ("state", b'{"state": "melted"}', b"Invalid enum value 'melted'"),
        ("drain?timeout_ms=-1", b"{}", b"timeout_ms is a number"),
        ("drain?timeout_ms=99999999999", b"{}", b"timeout_ms is a number"),
        ("drain?timeout_ms=999999999", b"{}", b"the timeout of an action is"),
        ("drain", b'{"force": true}', b"unknown field `force`"),
        ("drain", b"[]", b"these are no fields of the action drain"),
        ("refill", b'{"partition": 99, "member": "x"}', b"partitions are 0 to"),
        ("state", b"[" * 100_000, b"no JSON"),
        ("state", b'{"state": "\xff"}', b"no JSON"),
        ("state", b'{"state": "\\ud800"}', b"no JSON"),
        ("state", b"9" * 100_000, b"no JSON"),
    ],
)
def test_what_is_no_action(path: str, body: bytes, why: bytes) -> None:
    desk = Desk()
    desk.ask("POST", f"/v1/actions/{path}", body)
    status, _, told = desk.answer()
    assert status == 400
    assert why in told
    assert desk.member.grid.actions == []


def test_an_action_for_another_member_is_forwarded_once_it_is_permitted() -> None:
    desk = Desk()
    desk.ask("POST", "/v1/actions/drain?member=other", b"{}")
    assert desk.member.forwarded == [("other", Drain())]
    assert (desk.answer()[0], desk.member.grid.actions) == (409, [])
    desk.ask("POST", f"/v1/actions/drain?member={desk.member.grid.member_uuid}", b"{}")
    assert [action for action, _, _ in desk.member.grid.actions] == [Drain()]
    desk = Desk()
    desk.member.grid.rights = rights("cluster * metrics")
    desk.member.asks_credentials = True
    desk.ask("POST", "/v1/actions/drain?member=other", b"{}", authorization="Bearer t")
    assert desk.answer()[0] == 403
    assert desk.member.forwarded == []


def test_actions_are_listed_with_their_schemas() -> None:
    desk = Desk()
    desk.ask(path="/v1/actions")
    status, _, body = desk.answer()
    listed = {one["name"]: one for one in json.loads(body)["actions"]}
    assert status == 200
    assert list(listed) == list(OPERATOR_ACTIONS)
    state = listed["state"]
    assert (state["permission"], state["command"]) == ("cluster * state", "holdfast cluster state")
    assert state["fields"]["required"] == ["state"]
    assert state["fields"]["properties"]["state"]["enum"] == sorted(ClusterState)


# -- who may


@pytest.mark.rule("server/H-3")
def test_without_credentials_only_health_is_told() -> None:
    desk = Desk()
    desk.member.asks_credentials = True
    for path in ("/", "/metrics", STATUS):
        desk.ask(path=path)
        status, headers, _ = desk.answer()
        assert (status, headers["www-authenticate"].split()[0]) == (401, "Basic")
    desk.ask(path=STATUS, authorization="Digest x")
    assert desk.answer()[0] == 401
    desk.ask(path="/health/ready")
    assert desk.answer()[0] == 200
    assert desk.member.grid.logins == []


def test_credentials_are_looked_at_once_for_a_connection() -> None:
    desk = Desk()
    desk.member.asks_credentials = True
    desk.member.grid.user = ("ada", "p:w", None)
    basic = "Basic " + b64encode(b"ada:p:w").decode()
    for _ in range(3):
        desk.ask(authorization=basic)
        assert desk.answer()[0] == 200
    assert desk.member.grid.logins == [("ada", "p:w", None)]
    desk.ask(authorization="Bearer wrong")
    assert desk.answer()[0] == 401
    desk.member.grid.user = (None, None, b"right")
    desk.ask(authorization="Bearer right")
    assert desk.answer()[0] == 200
    desk.ask()
    assert desk.answer()[0] == 401


def test_who_has_gone_before_the_login_is_answered_is_not_served() -> None:
    desk = Desk()
    desk.member.asks_credentials = True
    desk.member.grid.proving = []
    desk.ask(path="/metrics", authorization="Bearer right")
    desk.session.closed()
    desk.member.grid.proving.pop()(LoginAnswer(Rights()))
    assert desk.member.measured == []


def test_a_route_needs_what_the_table_says() -> None:
    desk = Desk()
    desk.member.asks_credentials = True
    desk.member.grid.rights = rights("cluster * metrics drain")
    desk.ask(path="/metrics", authorization="Bearer t")
    desk.member.measured.pop()(b"a 1", "text/plain")
    assert desk.answer()[0] == 200
    desk.ask(path=STATUS, authorization="Bearer t")
    status, _, told = desk.answer()
    assert status == 403
    assert b"action status needs 'status' for cluster" in told
    desk.ask("POST", "/v1/actions/drain", b"{}", authorization="Bearer t")
    assert len(desk.member.grid.actions) == 1
    desk.member.grid.actions.pop()[2](own.Fate.DONE, "")
    assert desk.answer()[0] == 200
    desk.ask("POST", "/v1/actions/shutdown", b"{}", authorization="Bearer t")
    assert desk.answer()[0] == 403
    assert desk.member.grid.actions == []
    refused = [told.what for told in desk.member.grid.audited if told.event is AuditKind.REFUSED]
    assert refused == ["status", "shutdown"]


@pytest.mark.rule("server/P-1")
def test_every_route_is_in_the_table_and_none_that_is_not_there() -> None:
    member = OneHttpMember()
    routes = {route.name for route in (*MemberRoutes(member).all(), *ActionRoutes(member, member).all())}
    assert routes <= set(access.HTTP)
    nobody = rights()
    for name, needed in access.HTTP.items():
        match needed:
            case ("open",) | ("known",) | ("question",) | ("action",):
                assert access.route_rejection(nobody, name) == ""
            case (kind, *actions):
                assert set(map(Action, actions)) <= set(ACTIONS[Kind(kind)])
                assert access.route_rejection(nobody, name)
                assert access.route_rejection(rights(f"{kind} * {' '.join(actions)}"), name) == ""
    assert "only to users who may do everything" in access.route_rejection(
        rights("cluster * any"), "GET /elsewhere"
    )
    assert access.route_rejection(Rights(), "GET /elsewhere") == ""


# -- browsers


@pytest.mark.rule("server/B-1")
def test_a_name_that_leads_here_is_refused_where_nobody_asks_who_it_is() -> None:
    desk = Desk(hosts=("grid.example",))
    for host, status in (
        ("127.0.0.1:5801", 200),
        ("[::1]:5801", 200),
        ("localhost", 200),
        ("GRID.example:5801", 200),
        ("rebound.example:5801", 403),
        ("127.0.0.1.example", 403),
        ("localhost.example", 403),
    ):
        desk.ask(host=host)
        assert desk.answer()[0] == status, host
    desk.ask(path="/health/live", host="rebound.example")
    assert desk.answer()[0] == 200
    assert is_own_name("localhost.", ())
    assert not is_own_name("", ())


@pytest.mark.rule("server/B-2")
def test_a_page_of_somebody_else_changes_nothing() -> None:
    desk = Desk()
    order = b"{}"
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:5802"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
    ):
        desk.ask("POST", "/v1/actions/drain", order, **headers)
        assert desk.answer()[0] == 403, headers
    assert desk.member.grid.actions == []
    desk.ask("POST", "/v1/actions/drain", order, origin="http://127.0.0.1:5801", sec_fetch_site="same-origin")
    assert len(desk.member.grid.actions) == 1


@pytest.mark.rule("server/B-2")
def test_the_origin_of_a_door_with_tls() -> None:
    desk = Desk(secure=True)
    desk.ask("POST", "/v1/actions/drain", b"{}", origin="http://127.0.0.1:5801")
    assert desk.answer()[0] == 403
    desk.ask("POST", "/v1/actions/drain", b"{}", origin="https://127.0.0.1:5801")
    assert len(desk.member.grid.actions) == 1


@pytest.mark.rule("server/B-3")
def test_a_page_of_somebody_else_gets_nothing() -> None:
    desk = Desk()
    desk.ask(sec_fetch_site="cross-site", sec_fetch_mode="no-cors")
    assert desk.answer()[0] == 403
    desk.ask(sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    assert desk.answer()[0] == 200
    desk.ask(sec_fetch_site="none")
    assert desk.answer()[0] == 200


# -- what goes on


def streaming(desk: Desk) -> Stream:
    """A stream that somebody has asked for."""
    desk.ask(path="/events")
    (stream,) = STREAMS
    STREAMS.clear()
    return stream


STREAMS: list[Stream] = []
EVENTS_ROUTE = Route("GET", "/events", lambda request, responder: STREAMS.append(responder.stream()))


def test_events_are_sent_as_they_come() -> None:
    desk = Desk(EVENTS_ROUTE)
    stream = streaming(desk)
    assert b"text/event-stream" in desk.sent
    assert b"transfer-encoding: chunked" in desk.sent.lower()
    assert stream.send(event("status", {"n": 1}))
    assert stream.send(COMMENT)
    assert desk.session.close_reason() == ""
    stream.end()
    assert stream.closed
    assert desk.answer()[2] == b'event: status\ndata: {"n":1}\n\n:\n\n'
    assert not stream.send(b"more")
    desk.ask()
    assert desk.answer()[0] == 200


def test_who_does_not_read_events_misses_some_and_is_told_the_newest() -> None:
    desk = Desk(EVENTS_ROUTE)
    stream = streaming(desk)
    told: list[str] = []
    stream.on_room(lambda: told.append("room"))
    desk.session.pause()
    assert not stream.send(b"left out")
    desk.session.resume()
    assert told == ["room"]
    desk.session.pause()
    desk.session.resume()
    assert told == ["room"], "nothing was left out"
    assert b"left out" not in desk.sent


def test_a_stream_is_over_when_the_client_goes() -> None:
    desk = Desk(EVENTS_ROUTE)
    stream = streaming(desk)
    told: list[str] = []
    stream.on_closed(lambda: told.append("closed"))
    desk.session.receive(b"")
    assert (stream.closed, told, desk.why) == (True, ["closed"], "it has gone")
    stream.on_closed(lambda: told.append("again"))
    assert told == ["closed", "again"]
    assert not stream.send(b"more")


# -- enemies


@pytest.mark.rule("server/H-1")
def test_a_head_and_a_body_have_an_end() -> None:
    desk = Desk()
    desk.session.receive(b"GET / HTTP/1.1\r\nx: " + b"y" * (HEAD_BYTES + 1))
    assert desk.sent.startswith(b"HTTP/1.1 431")
    assert desk.why
    desk = Desk()
    desk.session.receive(
        b"POST /v1/actions/drain HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % (BODY_BYTES + 1)
    )
    assert desk.sent.startswith(b"HTTP/1.1 413"), "its head says enough"
    desk.session.receive(b" " * DRAINED_BYTES)
    assert not desk.why, "so that the client reads the refusal"
    desk.session.receive(b" ")
    assert desk.why


@pytest.mark.rule("server/H-1")
@pytest.mark.parametrize("pad", [HEAD_BYTES - 60, HEAD_BYTES, 60_000])
def test_the_limit_of_a_head_holds_for_one_that_comes_whole(pad: int) -> None:
    desk = Desk()
    desk.session.receive(b"GET /health/live HTTP/1.1\r\nhost: a\r\nx: " + b"y" * pad + b"\r\n\r\n")
    assert desk.sent.startswith(b"HTTP/1.1 200" if pad < HEAD_BYTES else b"HTTP/1.1 431")


@pytest.mark.rule("server/H-1")
def test_a_head_has_few_lines() -> None:
    for lines, status in ((LINES_MAX - 3, b"200"), (LINES_MAX - 2, b"431"), (4000, b"431")):
        desk = Desk()
        desk.session.receive(b"GET /health/live HTTP/1.1\r\nhost: a\r\n" + b"a:\r\n" * lines + b"\r\n")
        assert desk.sent.startswith(b"HTTP/1.1 " + status), lines


CHUNKED = (
    b"POST /v1/actions/drain HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\n%b\r\n"
)


def events_of(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events h11 makes in each turn, from now on."""
    events = [0]
    real = h11.Connection.next_event

    def counted(connection: h11.Connection) -> object:
        events[-1] += 1
        return real(connection)

    monkeypatch.setattr(h11.Connection, "next_event", counted)
    turn = desk.member.turn

    def turned() -> None:
        events.append(0)
        turn()

    monkeypatch.setattr(desk.member, "turn", turned)
    return events


@pytest.mark.rule("server/H-4")
def test_a_turn_parses_so_much_of_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    events = events_of(desk, monkeypatch)
    body = b"{}" + b" " * (CHUNKS_MAX - 2)
    wire = b"".join(b"1\r\n%c\r\n" % one for one in body) + b"0\r\n\r\n"
    desk.session.receive(CHUNKED % b"" + wire)
    while desk.member.turns:
        desk.member.turn()
    assert len(desk.member.grid.actions) == 1, "so many chunks are all right"
    assert max(events) <= EVENTS_PER_TURN + 2
    assert len(events) > CHUNKS_MAX // EVENTS_PER_TURN


@pytest.mark.rule("server/H-1")
@pytest.mark.parametrize("at_once", [True, False])
def test_chunks_cost_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch, *, at_once: bool) -> None:
    desk = Desk()
    events = events_of(desk, monkeypatch)
    wire = b"1\r\nx\r\n" * 260_000
    desk.session.receive(CHUNKED % b"")
    for begin in range(0, len(wire), len(wire) if at_once else 65_536):
        desk.session.receive(wire[begin : begin + (len(wire) if at_once else 65_536)])
        while not at_once and desk.member.turns:
            desk.member.turn()
    assert desk.sent.startswith(b"HTTP/1.1 413")
    assert max(events) <= EVENTS_PER_TURN + 2
    assert sum(events) < 3 * CHUNKS_MAX


@pytest.mark.rule("server/H-1")
def test_a_body_is_as_long_as_it_is_on_the_wire() -> None:
    desk = Desk()
    desk.session.receive(CHUNKED % b"")
    chunk = b"%x;%b\r\n%b\r\n" % (100, b"e" * 1000, b" " * 100)
    for _ in range(BODY_BYTES // len(chunk) + 10):
        desk.session.receive(chunk)
        desk.member.turn()
    assert desk.sent.startswith(b"HTTP/1.1 413")


@pytest.mark.rule("server/H-4")
@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        (b"/nothing", b"", b"404"),
        (STATUS.encode(), b"", b"405"),
        (b"/v1/actions/drain", b"origin: http://evil.example\r\n", b"403"),
        (b"/v1/actions/drain", b"authorization: Bearer wrong\r\n", b"401"),
        (b"/v1/actions/drain", b"", b"401"),
    ],
)
@pytest.mark.parametrize("length", [b"transfer-encoding: chunked\r\n", b"content-length: 6000\r\n"])
def test_what_its_head_refuses_is_not_parsed(
    path: bytes, more: bytes, status: bytes, length: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    desk.member.asks_credentials = True
    desk.member.grid.user = (None, None, b"right")
    events = events_of(desk, monkeypatch)
    head = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n%b%b\r\n"
    desk.session.receive(head % (path, more, length) + b"1\r\nx\r\n" * 1000)
    assert desk.sent.startswith(b"HTTP/1.1 " + status)
    assert sum(events) == 1
    desk.sent.clear()
    desk.session.receive(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
    if b"chunked" in length:
        assert not desk.sent, "where the next request begins is not known"
        desk.member.grid.now += DRAIN_NS + 1
        assert desk.session.close_reason()
    else:
        assert desk.answer()[0] == 200, "a body of a known length is stepped over"


@pytest.mark.rule("server/H-4")
def test_a_body_waits_for_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.member.asks_credentials = True
    desk.member.grid.proving = []
    events = events_of(desk, monkeypatch)
    body = b"{}"
    desk.ask("POST", "/v1/actions/drain", body + b" " * (BODY_BYTES - len(body)), authorization="Bearer t")
    desk.session.receive(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
    assert sum(events) == 1
    desk.member.grid.proving.pop()(LoginAnswer(Rights()))
    while desk.member.turns:
        desk.member.turn()
    desk.member.grid.actions.pop()[2](own.Fate.DONE, "")
    assert desk.answer()[0] == 200
    desk.member.turn()
    assert desk.answer()[2] == b"alive\n"


@pytest.mark.parametrize("name", sorted(ONCE))
def test_a_header_that_is_there_once_is_not_doubled(name: str) -> None:
    values = {"host": "127.0.0.1", "content-length": "0", "transfer-encoding": "chunked"}
    line = f"{name}: {values.get(name, 'x')}\r\n".encode()
    host = b"" if name == "host" else b"host: 127.0.0.1\r\n"
    for twice in (line + line, line + line.swapcase()):
        desk = Desk()
        desk.session.receive(b"GET /health/live HTTP/1.1\r\n" + host + twice + b"\r\n")
        # h11 refuses some of them before this door looks.
        assert desk.sent.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
        assert desk.why
    desk = Desk()
    desk.session.receive(b"GET /health/live HTTP/1.1\r\n" + host + b"accept: a\r\naccept: b\r\n\r\n")
    assert desk.answer()[0] == (400 if name == "host" else 200)


def test_a_list_in_two_headers_is_one_list() -> None:
    pairs = [(b"accept", b"a"), (b"host", b"x"), (b"accept", b"b\xff")]
    assert headers_of(pairs, b"GET / HTTP/1.1\r\n") == {"accept": "a, b\xff", "host": "x"}


@pytest.mark.parametrize(
    "credentials",
    [
        b"Basic \xff\xfe",
        b"Basic =",
        b"Basic YQ",
        b"Basic /w==",
        b"Basic YQ==",
        b"Basic",
        b"\xff",
        b"Basic \xb2",
    ],
)
def test_credentials_that_are_none_are_refused(credentials: bytes) -> None:
    desk = Desk()
    desk.member.asks_credentials = True
    desk.session.receive(
        b"GET "
        + STATUS.encode()
        + b" HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: "
        + credentials
        + b"\r\n\r\n"
    )
    assert desk.answer()[0] == 401
    assert desk.member.grid.faults == []


@pytest.mark.parametrize("method", [b"HEAD", b"GET"])
def test_a_refusal_of_what_is_not_whole_has_a_body_only_where_one_may_be(method: bytes) -> None:
    desk = Desk()
    desk.session.receive(method + b" / HTTP/1.1\r\nhost: a\r\ncontent-length: 999999\r\n\r\n" + b"x" * 60_000)
    for _ in range(10):
        desk.session.receive(b"x" * 60_000)
    head, _, body = bytes(desk.sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413")
    assert bool(body) is (method == b"GET")


@pytest.mark.rule("server/H-1")
def test_who_sends_more_than_he_is_answered_is_closed() -> None:
    desk = Desk()
    desk.ask(path="/metrics")
    desk.session.receive(b"x" * EARLY_BYTES)
    assert not desk.why
    desk.session.receive(b"x")
    assert desk.why == "it sends more than it is answered"


@pytest.mark.rule("server/H-2")
def test_what_has_to_come_in_time() -> None:
    desk = Desk()
    grid = desk.member.grid
    grid.now = WHOLE_NS
    desk.session.receive(b"GET / HT")
    grid.now += WHOLE_NS
    desk.session.receive(b"T")
    assert desk.session.close_reason() == ""
    grid.now += 1
    assert desk.session.close_reason() == "a request did not come whole in time"
    desk = Desk()
    desk.ask()
    desk.answer()
    desk.member.grid.now = IDLE_NS + 1
    assert desk.session.close_reason() == "nothing came from it"
    desk = Desk()
    desk.ask(path="/metrics")
    desk.member.grid.now = 10 * IDLE_NS
    assert desk.session.close_reason() == "", "it waits for this member"
    desk.session.pause()
    desk.member.grid.now += UNREAD_NS + SECOND
    assert desk.session.close_reason() == "it does not read what it was answered"


def test_who_does_not_read_is_not_served() -> None:
    desk = Desk()
    desk.ask(path="/metrics")
    desk.ask()
    desk.session.pause()
    desk.member.measured.pop()(b"a 1", "text/plain")
    desk.answer()
    desk.member.turn()
    assert not desk.sent
    desk.session.resume()
    desk.member.turn()
    assert desk.answer()[0] == 200


def test_hundreds_of_requests_at_once_have_a_turn_each() -> None:
    desk = Desk()
    one = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    desk.session.receive(one * 200)
    for _ in range(200):
        assert desk.sent.count(b"HTTP/1.1 200") == 1
        desk.sent.clear()
        desk.member.turn()
    assert not desk.sent
    assert not desk.why


def test_who_ends_his_side_is_answered_first() -> None:
    desk = Desk()
    desk.session.receive(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n" * 2)
    desk.session.receive(b"")
    assert desk.answer()[0] == 200
    desk.member.turn()
    assert desk.answer()[0] == 200
    assert desk.why


@pytest.mark.parametrize(
    "said",
    [
        b"\x00" * 100 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        CHUNKED % b"" + b"zz\r\n",
        b"GET /\x7f\xff HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/0.9\r\nhost: a\r\n\r\n",
    ],
)
def test_what_makes_no_sense_ends_the_connection_alone(said: bytes) -> None:
    desk = Desk()
    desk.session.receive(said)
    desk.session.receive(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    assert desk.sent.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert desk.why
    assert desk.member.grid.faults == []


def test_expectations_and_connect() -> None:
    desk = Desk()
    desk.session.receive(
        b"POST /v1/actions/state HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"expect: 100-continue\r\n"
        b"content-length: 2\r\n\r\n"
    )
    assert desk.sent.startswith(b"HTTP/1.1 100")
    desk.sent.clear()
    desk.session.receive(b"{}")
    assert desk.answer()[0] == 400
    desk.session.receive(b"CONNECT other:443 HTTP/1.1\r\nhost: other:443\r\n\r\n")
    assert desk.sent.startswith(b"HTTP/1.1 404")


def test_nothing_that_strangers_say_meets_an_error() -> None:
    """The same talks as `python -m holdfast_lab fuzz` has, without a network."""
    for number in range(1000):
        said = talk(20, number, Facts("dev", 271, ("aa-01",)))
        if said.door != HTTP:
            continue
        desk = Desk()
        for piece in said.pieces:
            if not desk.why:
                desk.session.receive(piece)
            desk.member.turn()
            for done in desk.member.measured:
                done(b"a 1", "text/plain")
            desk.member.measured.clear()
        desk.session.receive(b"")
        desk.session.closed()
        assert desk.member.grid.faults == []
        assert desk.member.grid.actions == []


def test_an_answer_is_text_for_people() -> None:
    assert text_answer(200, "so it is").body == b"so it is\n"
