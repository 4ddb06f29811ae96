"""What has to be permitted: for every request of both protocols, and what a session does with what is not."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hazelcast.protocol.codec import (
    client_add_distributed_object_listener_codec,
    client_authentication_codec,
    client_create_proxy_codec,
    client_get_distributed_objects_codec,
    client_send_schema_codec,
    map_add_entry_listener_codec,
    map_delete_codec,
    map_get_codec,
    map_put_codec,
    map_remove_codec,
    map_set_codec,
    transaction_commit_codec,
    transaction_rollback_codec,
    transactional_map_get_codec,
)
from hazelcast.serialization.compact import Schema
from tests.server.hazelcast.one_member import OneMemberGrid, int_data, text_data
from tests.server.hazelcast.wire import CLIENT, AnsweredError, Wire, data, error_of, stored
from tests.server.memory_cluster import MemoryCluster
from tests.server.memory_cluster import Wire as OwnWire

from holdfast.actions import metastore_keys as metastore
from holdfast.actions.change_zone import AlterZone, CreateZone, DropZone, RenameZone, ResetZone
from holdfast.actions.destroy_cp_object import DestroyCpObject
from holdfast.actions.drain import Drain
from holdfast.actions.list_transactions import ListTransactions, RollBackRunning
from holdfast.actions.operator_action import OperatorAction
from holdfast.actions.rebuild_replica import RebuildReplica
from holdfast.actions.registry import ACTIONS as OPERATOR_ACTIONS
from holdfast.actions.reset_metastore import ResetMetastore
from holdfast.actions.show_status import ShowStatus
from holdfast.actions.show_zones import ListZones, ShowLeaders, ShowZone
from holdfast.actions.shut_down import ShutDown
from holdfast.actions.start_metastore import StartMetastore
from holdfast.client.action_messages import request_of
from holdfast.config import load
from holdfast.config.permissions import ACTIONS, Action, Kind
from holdfast.config.users import users_of
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import BETWEEN_MEMBERS, Op, Request
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    HoldCommits,
    OperateIn,
    ResumeCommits,
    RollBackTransaction,
    StoreTogether,
    TransactionOrder,
)
from holdfast.runtime.data_lane import data_lane
from holdfast.server import access
from holdfast.server.audit_events import AuditKind
from holdfast.server.hazelcast import reference_lane
from holdfast.server.hazelcast.hazelcast_session import MESSAGES
from holdfast.server.hazelcast.names import NAMES, name_of
from holdfast.server.hazelcast.reference_lane import LaneCode
from holdfast.server.logins import LoginAnswer
from holdfast.server.rights import EVERYTHING, Rights
from holdfast.wire import own
from holdfast.wire.hazelcast.hazelcast_frames import UUID as UUID_FORM
from holdfast.wire.hazelcast.layouts import Call

NUMBERS = {name: kind for kind, name in NAMES.items()}


def rights(*rules: str) -> Rights:
    """Of a user with these rules."""
    settings = load(overrides={"users.u.roles": ["r"], "roles.r.rules": list(rules)})
    return Rights(users_of(settings)["u"])


def why(rights: Rights, request: str, **attributes: Any) -> str:
    return access.call_rejection(rights, Call(NUMBERS[request], 1, -1, **attributes))


# -- total


@pytest.mark.rule("server/P-1")
def test_every_request_that_is_answered_has_an_entry() -> None:
    """A new kind of message fails here until somebody has said what it needs."""
    assert {name_of(kind) for kind in MESSAGES} - {name_of(kind) for kind in access.HAZELCAST} == set()


@pytest.mark.rule("server/P-1")
def test_what_has_no_entry_is_refused() -> None:
    everything_but = rights(*(f"{kind} * any" for kind in Kind), "map __* any")
    unknown = NUMBERS["Map.addInterceptor"]
    assert unknown not in access.HAZELCAST
    assert "only to users who may do everything" in access.call_rejection(
        everything_but, Call(unknown, 1, -1, "m")
    )
    assert access.call_rejection(EVERYTHING, Call(unknown, 1, -1, "m")) == ""


def test_the_table_names_kinds_and_actions_that_there_are() -> None:
    for needed in access.HAZELCAST.values():
        match needed:
            case ("open",) | ("object", "known"):
                pass
            case ("object", action):
                assert Action(action) in ACTIONS[Kind.MAP]
            case ("somewhere", kind, action):
                assert Action(action) in ACTIONS[Kind(kind)]
            case (kind, *actions):
                assert actions
                assert set(actions) <= set(ACTIONS[Kind(kind.removesuffix("s"))])


@pytest.mark.rule("server/P-2")
def test_who_is_told_a_value_may_read_it() -> None:
    """By the forms of the answers: those that carry a value, and those that tell whether one was guessed."""
    telling = {Op.GET, Op.ENTRY_VIEW, Op.GET_ALL, Op.VALUES, Op.ENTRIES, Op.KEYS, Op.CONTAINS_VALUE}
    telling |= {Op.PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REMOVE, Op.REPLACE_IF_SAME, Op.REMOVE_IF_SAME}
    for op in telling:
        assert Action.READ in access.OPERATIONS[op], op
    for op in set(Op) - BETWEEN_MEMBERS:
        assert access.OPERATIONS[op]
    assert not BETWEEN_MEMBERS & set(access.OPERATIONS), "members say these to each other"


SOME = {
    own.Hello: own.Hello(1, 1),
    own.AskTable: own.AskTable(1),
    own.NextPage: own.NextPage(1, 1),
    own.Watch: own.Watch(1),
    own.AskDigests: own.AskDigests(1, []),
    own.AskRanges: own.AskRanges(1, 0, "m"),
    own.Execute: own.Execute(1, Request(Op.GET, "m", [0])),
    own.Scan: own.Scan(1, "m", 0),
    own.PutColumns: own.PutColumns(1, "m", [0], [0], own.ColumnBatch.of([], [])),
    own.Cut: own.Cut(1, b"", ["m"], [0], 1),
    own.HoldCut: own.HoldCut(1, b"", 1),
    own.AskHeads: own.AskHeads(1, "m", [0]),
    own.AskChanges: own.AskChanges(1, "m", 0, 0, 0, 0),
    own.Act: request_of(1, Drain(), 1),
    own.OrderTransaction: own.OrderTransaction(1, BeginTransaction()),
}
OPEN = {own.Hello, own.AskTable, own.NextPage}


def test_every_question_of_the_own_protocol_needs_something() -> None:
    assert set(SOME) == set(get_args(own.Question))
    nobody = rights()
    for kind, question in SOME.items():
        refused = access.question_rejection(nobody, question, ())
        assert bool(refused) is (kind not in OPEN), kind
        assert access.question_rejection(EVERYTHING, question, ()) == ""


MINE, OTHERS = b"mine" * 4, b"other" * 4
GET = Request(Op.GET, "m", [0])
NEEDS: list[tuple[object, list[str]]] = [
    (metastore.ReadKey("app/k"), ["metastore app/* read"]),
    (metastore.KeyHistory("app/k"), ["metastore app/k read"]),
    (metastore.ScanKeys("app/"), ["metastore app/* read"]),
    (metastore.KeyChanges("app/", 0), ["metastore app/* read"]),
    (metastore.PutKey("app/k", ""), ["metastore app/* put"]),
    (metastore.RemoveKey("app/k"), ["metastore app/* remove"]),
    # If it is another revision, that is told.
    (metastore.PutKey("app/k", "", 0), ["metastore app/* put", "metastore app/* read"]),
    (metastore.RemoveKey("app/k", 7), ["metastore app/* remove", "metastore app/* read"]),
    (ResetMetastore(), ["metastore * reset"]),
    (CreateZone("z"), ["zone z create"]),
    (AlterZone("z"), ["zone z alter"]),
    (RenameZone("z", "y"), ["zone z rename", "zone y rename"]),
    (DropZone("z"), ["zone z drop"]),
    (ResetZone("z"), ["zone z reset"]),
    (ListZones(), ["zone * show"]),
    (ShowZone("z"), ["zone z show"]),
    (RebuildReplica(1, 2), ["cluster * repair"]),
    (ShowLeaders(), ["cluster * verify"]),
    (StartMetastore(), ["metastore * start"]),
    (BeginTransaction(), ["transaction * use"]),
    (OperateIn(MINE, GET), ["transaction * use", "map m read"]),
    (OperateIn(MINE, GET, for_update=True), ["transaction * use", "map m read", "map m lock"]),
    (CommitTransaction(MINE), ["transaction * use"]),
    (RollBackTransaction(MINE), ["transaction * use"]),
    (RollBackRunning(OTHERS.hex()), ["transaction * roll-back"]),
    (StoreTogether("m", [], []), ["map m put"]),
    (ListTransactions(), ["transaction * list"]),
    (DestroyCpObject("lock", "ledger", "eu"), ["cp ledger@eu destroy"]),
    (HoldCommits(b"", 1), ["transaction * hold"]),
    (ResumeCommits(b""), ["transaction * hold"]),
]


def question_of(asked: Any) -> own.Question:
    if isinstance(asked, get_args(TransactionOrder)):
        return own.OrderTransaction(1, asked)
    raise AssertionError(asked)


def rejection(user: Rights, asked: object) -> str:
    if isinstance(asked, OperatorAction):
        return access.action_rejection(user, asked)
    return access.question_rejection(user, question_of(asked), {MINE})


def test_every_order_is_listed_here() -> None:
    listed = {type(asked) for asked, _ in NEEDS}
    every = set(get_args(TransactionOrder))
    about_names = {kind for kind in OPERATOR_ACTIONS.values() if kind.declared.kind is not Kind.CLUSTER}
    assert listed >= every | about_names


@pytest.mark.parametrize(("asked", "rules"), NEEDS, ids=lambda value: str(value)[:60])
def test_an_order_needs_just_its_rules(asked: object, rules: list[str]) -> None:
    assert rejection(rights(*rules), asked) == ""
    for missing in rules:
        rest = [rule for rule in rules if rule != missing]
        assert rejection(rights(*rest), asked), f"without {missing}"
    all_others = [
        f"{kind} * {action}"
        for kind in Kind
        for action in ACTIONS[kind]
        if not any(rule.startswith(f"{kind} ") and rule.endswith(f" {action}") for rule in rules)
    ]
    assert rejection(rights(*all_others), asked)


@pytest.mark.rule("server/P-3")
def test_transactions_of_others_are_used_by_nobody() -> None:
    user = rights("transaction * any", "map * any")
    for order in (CommitTransaction(OTHERS), RollBackTransaction(OTHERS), OperateIn(OTHERS, GET)):
        assert access.question_rejection(user, own.OrderTransaction(1, order), {MINE})


@pytest.mark.rule("server/P-3")
def test_nor_are_they_in_the_other_protocol() -> None:
    wire = logged_in(OneMemberGrid(), "transaction * use", "map m any")
    key = data(KEY)
    for codec, more in (
        (transaction_commit_codec, (7,)),
        (transaction_rollback_codec, (7,)),
        (transactional_map_get_codec, (7, key)),
    ):
        name = ("m",) if codec is transactional_map_get_codec else ()
        with pytest.raises(AnsweredError, match="not active on this connection"):
            wire.ask(codec, *name, CLIENT, *more)
    nobody = rights("map m any")
    for request in ("create", "commit", "rollback"):
        assert "'use' for transaction" in why(nobody, f"Transaction.{request}")


# -- names


def test_rules_go_by_the_name_of_the_map() -> None:
    user = rights("map flights-* read put", "map own any")
    assert why(user, "Map.get", name="flights-7") == ""
    assert why(user, "Map.put", name="flights-7") == ""
    assert why(user, "Map.remove", name="own") == ""
    refused = why(user, "Map.delete", name="flights-7")
    assert refused == (
        "user 'u' may not do this: Map.delete needs 'remove' for map 'flights-7', which no rule permits. "
        "An operator can add a rule to a role of the user"
    )
    assert why(user, "Map.get", name="flights")
    assert why(user, "Map.get", name="__transactions")
    assert why(user, "Map.get")


def test_each_name_of_a_request_is_looked_at() -> None:
    user = rights("map a any", "cluster * any")
    service = "hz:impl:mapService"
    assert why(user, "Client.createProxies", proxies=[("a", service)]) == ""
    assert "'b'" in why(user, "Client.createProxies", proxies=[("a", service), ("b", service)])
    assert why(user, "Client.createProxy", name="a", service=service) == ""
    assert "executorService" in why(user, "Client.createProxy", name="a", service="hz:impl:executorService")
    assert "queue 'a'" in why(user, "Client.createProxy", name="a", service="hz:impl:queueService")
    assert why(rights("queue a read"), "Client.createProxy", name="a", service="hz:impl:queueService") == ""
    assert "'remove'" in why(rights("queue a read"), "Queue.poll", name="a")
    assert why(rights("queue a* read remove"), "Queue.poll", name="a") == ""
    assert why(user, "Map.fetchNearCacheInvalidationMetadata", names=["a"]) == ""
    assert "'b'" in why(user, "Map.fetchNearCacheInvalidationMetadata", names=["a", "b"])
    assert why(user, "Client.destroyProxy", name="a", service=service) == ""
    assert why(user, "Client.destroyProxy", name="b", service=service)
    cut = own.Cut(1, b"", ["a", "b"], [0], 1)
    assert "'b'" in access.question_rejection(rights("map a any"), cut, ())
    assert access.question_rejection(rights("cluster * verify"), cut, ()) == "", (
        "replicas are compared at a cut"
    )


@pytest.mark.rule("server/P-2")
@pytest.mark.parametrize(
    "request_name",
    ["executeOnKey", "submitToKey", "executeOnKeys", "executeOnAllKeys", "executeWithPredicate"],
)
def test_an_entry_processor_needs_all_that_it_may_do(request_name: str) -> None:
    asked = f"Map.{request_name}"
    for rule, missing in (("put remove", "read"), ("read remove", "put"), ("read put", "remove")):
        assert repr(missing) in why(rights(f"map m {rule}", "map other any"), asked, name="m")
    assert why(rights("map m read put remove"), asked, name="m") == ""


def test_rows_need_what_they_do() -> None:
    puts, removes = rights("map m put"), rights("map m remove")
    batch = own.ColumnBatch.of([b"k"], [b"v"])
    for kinds, may_put, may_remove in (
        (b"", True, False),
        (bytes((own.PutKind.ADD, own.PutKind.SET)), True, False),
        (bytes((own.PutKind.REMOVE,)), False, True),
        (bytes((own.PutKind.REMOVE, own.PutKind.SET)), False, False),
        (bytes((own.PutKind.REMOVE, 77)), False, False),
    ):
        put = own.PutColumns(1, "m", [0], [1], batch, kinds=kinds)
        assert (access.question_rejection(puts, put, ()) == "") is may_put
        assert (access.question_rejection(removes, put, ()) == "") is may_remove


def test_decisions_about_endless_names_are_not_kept() -> None:
    user = rights("map * read")
    for number in range(30_000):
        user.may(Action.READ, Kind.MAP, f"name {number}")
    assert len(user._decided) <= 10_000
    user._decided.clear()
    assert user.may(Action.READ, Kind.MAP, "x" * 1000)
    assert not user._decided


def test_a_name_as_long_as_a_message_is_neither_tried_nor_repeated() -> None:
    """Trying rules on it would hold up the member, and an answer with it takes several times its room."""
    user, long = rights("map * any", "metastore * any"), "\0" * 100_000
    service = "hz:impl:mapService"
    for refused in (
        why(user, "Map.get", name=long),
        why(user, "Client.createProxy", name=long, service=service),
        why(user, "Client.createProxies", proxies=[("m", service), (long, service)]),
        why(user, "Client.destroyProxy", name=long, service=service),
        why(user, "Client.createProxy", name="m", service=long),
        access.question_rejection(user, own.Scan(1, long, 0), ()),
        access.action_rejection(user, metastore.ScanKeys(long)),
    ):
        assert 0 < len(refused) < 2000
    for name, of in (("__" + long, service), ("m", long)):
        wire = Wire(OneMemberGrid())
        wire.login()
        with pytest.raises(AnsweredError) as answered:
            wire.ask(client_create_proxy_codec, name, of)
        assert len(str(answered.value)) < 2000


# -- sessions

KEY, ONE = text_data("k"), int_data(1)


@pytest.fixture(params=["python", "compiled"])
def lane_code(request: pytest.FixtureRequest) -> LaneCode:
    lane = data_lane("python" if request.param == "python" else "auto")
    if lane.kind != request.param:
        pytest.skip(lane.why)
    return lane.code


@pytest.fixture
def grid() -> OneMemberGrid:
    return OneMemberGrid()


def logged_in(grid: OneMemberGrid, *rules: str, lane_code: LaneCode = reference_lane) -> Wire:
    grid.rights = rights(*rules)
    wire = Wire(grid, lane_code=lane_code)
    wire.login()
    return wire


def ask(wire: Wire, codec: Any, *parameters: Any) -> Any:
    """To the partition of the key, as clients send it."""
    return wire.ask(codec, *parameters, partition=partition_of(KEY, 0, 7))


def test_who_may_only_read_reads_by_the_data_lane_and_writes_nothing(
    grid: OneMemberGrid, lane_code: LaneCode
) -> None:
    admin = Wire(grid)
    admin.login()
    for _ in range(2):
        ask(admin, map_set_codec, "m", data(KEY), data(ONE), 7, -1)
    wire = logged_in(grid, "map m read", lane_code=lane_code)
    grid.requests.clear()
    for _ in range(3):
        assert stored(ask(wire, map_get_codec, "m", data(KEY), 7)) == ONE
        for codec, more in (
            (map_set_codec, (data(ONE), 7, -1)),
            (map_put_codec, (data(ONE), 7, -1)),
            (map_remove_codec, (7,)),
            (map_delete_codec, (7,)),
        ):
            with pytest.raises(AnsweredError, match="user 'u' may not") as refused:
                ask(wire, codec, "m", data(KEY), *more)
            assert (refused.value.code, refused.value.class_name) == (
                64,
                "java.security.AccessControlException",
            )
    assert [request.op for request in grid.requests] == [Op.GET], "the lane has served all but the first"
    assert {event.event for event in grid.audited} == {AuditKind.REFUSED}
    assert not wire.closed


def test_the_data_lane_serves_in_one_buffer_what_is_permitted_and_nothing_else(
    grid: OneMemberGrid, lane_code: LaneCode
) -> None:
    """Maps of all forms, one after the other and mixed, so that nothing of one is left over for the next."""
    rules = ("map whole any", "map reads read", "map writes put remove", "map adds read put", "map * listen")
    wire = logged_in(grid, *rules, lane_code=lane_code)
    partition = partition_of(KEY, 0, 7)

    def request(codec: Any, name: str, *more: Any) -> tuple[int, bytes]:
        return wire.number(codec.encode_request(name, data(KEY), *more), partition)

    maps = ("whole", "reads", "writes", "adds", "other")
    wanted: dict[int, bool] = {}
    for _ in range(3):
        sent = b""
        for name in (*maps, *reversed(maps), "reads", "whole"):
            for codec, more, permitted in (
                (map_set_codec, (data(ONE), 7, -1), ("whole", "writes", "adds")),
                (map_get_codec, (7,), ("whole", "reads", "adds")),
                (map_put_codec, (data(ONE), 7, -1), ("whole", "adds")),
                (map_remove_codec, (7,), ("whole",)),
                (map_delete_codec, (7,), ("whole", "writes")),
            ):
                number, content = request(codec, name, *more)
                wanted[number] = name in permitted
                sent += content
        wire.session.receive(sent)
        wire.resume()
    answers = {answer.get_correlation_id(): error_of(answer) is None for answer in wire.take()}
    assert answers == wanted
    assert set(wire.session._names) == {b"whole", b"reads", b"adds"}
    assert {name for copy in grid.copies for name, held in copy.maps.items() if held.state.entries} == {
        "adds"
    }


def test_lists_of_objects_show_what_the_user_knows(grid: OneMemberGrid) -> None:
    admin = Wire(grid)
    admin.login()
    for name in ("mine-1", "theirs"):
        admin.ask(client_create_proxy_codec, name, "hz:impl:mapService")
    wire = logged_in(grid, "map mine-* read")
    listed = wire.ask(client_get_distributed_objects_codec)
    assert [one.name for one in listed] == ["mine-1"]
    wire.ask(client_add_distributed_object_listener_codec, False)
    for name in ("mine-2", "theirs too"):
        admin.ask(client_create_proxy_codec, name, "hz:impl:mapService")
    told = b"".join(wire.sent)
    assert b"mine-2" in told
    assert b"theirs too" not in told
    wire.sent.clear()
    wire.ask(client_create_proxy_codec, "mine-3", "hz:impl:mapService")
    assert "mine-3" not in str(admin.ask(client_get_distributed_objects_codec)), (
        "who stores nothing notes nothing"
    )


def test_a_listener_needs_its_map(grid: OneMemberGrid) -> None:
    wire = logged_in(grid, "map m listen")
    wire.ask(map_add_entry_listener_codec, "m", False, 255, False)
    with pytest.raises(AnsweredError, match="'listen' for map 'other'"):
        wire.ask(map_add_entry_listener_codec, "other", False, 255, False)
    assert [name for name, _, _ in grid.listeners] == ["m"]


@pytest.mark.rule("server/P-2")
def test_who_hears_values_may_read_them(grid: OneMemberGrid) -> None:
    """Listeners' events, and the change stream, tell what an entry was and what it is."""
    wire = logged_in(grid, "map m listen changes", "map r listen changes read")
    with pytest.raises(AnsweredError, match="'read' for map 'm'"):
        wire.ask(map_add_entry_listener_codec, "m", True, 255, False)
    wire.ask(map_add_entry_listener_codec, "r", True, 255, False)
    assert [name for name, _, _ in grid.listeners] == ["r"]
    for name, refused in (("m", True), ("r", False)):
        asked = own.AskChanges(1, name, 0, 0, 0, 0)
        assert bool(access.question_rejection(grid.rights, asked, ())) is refused


def test_a_schema_is_stored_by_who_may_store_something(grid: OneMemberGrid) -> None:
    with pytest.raises(AnsweredError, match="needs 'put' for some map"):
        logged_in(grid, "map m read").ask(client_send_schema_codec, Schema("t", []))
    assert logged_in(grid, "map m put").ask(client_send_schema_codec, Schema("t", []))


def test_two_users_are_never_taken_for_one_client(grid: OneMemberGrid) -> None:
    """Clients name themselves by a UUID of their own choice: a user with limited rights takes nobody else's."""
    first, again = logged_in(grid, "map m any"), logged_in(grid, "map m any")
    settings = load(overrides={"users.eve.roles": []})
    grid.rights = Rights(users_of(settings)["eve"])
    other = Wire(grid)
    other.login()
    assert first.session._talk.client == again.session._talk.client != other.session._talk.client
    grid.rights = EVERYTHING
    admin = Wire(grid)
    admin.login()
    assert admin.session._talk.client == UUID_FORM.pack(False, CLIENT.int >> 64, CLIENT.int & (1 << 64) - 1)


def test_no_request_names_a_file_an_address_or_code() -> None:
    """What reads a path, opens a URL or runs what a client names is what other grids had to mend again and again."""
    harmful = {
        "path",
        "file",
        "directory",
        "url",
        "uri",
        "code",
        "script",
        "function",
        "class_name",
        "resource",
    }
    for kind, message in MESSAGES.items():
        assert not harmful & set(message.layout.declaration.replace("|", " ").split()), name_of(kind)
    kinds: list[Any] = [*get_args(own.Question)]
    kinds += [Request, *OPERATOR_ACTIONS.values(), *get_args(TransactionOrder)]
    for one in kinds:
        assert not harmful & set(one.__struct_fields__), one


# -- while it is found out who a client is


def test_nothing_is_looked_at_before_it_is_known_who_the_client_is(grid: OneMemberGrid) -> None:
    grid.rights, grid.proving = rights("map m read"), []
    wire = Wire(grid)
    hello = client_authentication_codec.encode_request("dev", "u", "p", CLIENT, "PYH", 1, "5", "c", [])
    _, first = wire.number(hello)
    number, second = wire.number(map_set_codec.encode_request("m", data(KEY), data(ONE), 7, -1))
    _, third = wire.number(map_get_codec.encode_request("m", data(KEY), 7))
    wire.session.receive(first + second[:30])
    wire.session.receive(second[30:] + third)
    wire.resume()
    assert not wire.sent
    assert not wire.session.admitted
    (done,) = grid.proving
    done(LoginAnswer(grid.rights))
    wire.resume()
    answers = wire.take()
    assert [error_of(answer) is None for answer in answers] == [True, False, True]
    assert answers[1].get_correlation_id() == number
    assert wire.session.admitted


def test_who_is_not_known_yet_may_not_send_much(grid: OneMemberGrid) -> None:
    grid.proving = []
    wire = Wire(grid)
    hello = client_authentication_codec.encode_request("dev", "u", "p", CLIENT, "PYH", 1, "5", "c", [])
    wire.session.receive(wire.number(hello)[1])
    for _ in range(5):
        wire.session.receive(bytes(1000))
    assert wire.closed
    grid.proving[0](LoginAnswer(EVERYTHING))
    wire.resume()
    assert not wire.sent
    assert not wire.session.admitted


def test_a_client_that_goes_meanwhile_is_not_let_in(grid: OneMemberGrid) -> None:
    grid.proving = []
    wire = Wire(grid)
    hello = client_authentication_codec.encode_request("dev", "u", "p", CLIENT, "PYH", 1, "5", "c", [])
    wire.session.receive(wire.number(hello)[1])
    wire.session.closed()
    grid.proving[0](LoginAnswer(EVERYTHING))
    assert not wire.sent
    assert not wire.session._flow.works


def test_a_connection_is_of_one_user(grid: OneMemberGrid) -> None:
    wire = logged_in(grid, "map m read")
    wire.login()
    assert not wire.closed
    grid.rights = rights("map * any")
    with pytest.raises(ValueError, match="not enough values"):
        wire.login()
    assert wire.closed


def test_nor_does_the_data_lane_serve_while_a_client_comes_again(grid: OneMemberGrid) -> None:
    wire = logged_in(grid, "map m any")
    ask(wire, map_set_codec, "m", data(KEY), data(ONE), 7, -1)
    grid.proving = []
    hello = client_authentication_codec.encode_request("dev", "u", "p", CLIENT, "PYH", 1, "5", "c", [])
    wire.session.receive(wire.number(hello)[1])
    get = wire.number(map_get_codec.encode_request("m", data(KEY), 7), partition_of(KEY, 0, 7))[1]
    wire.session.receive(get)
    assert not wire.sent
    assert wire.session.fast_path() is None
    grid.proving[0](LoginAnswer(None))
    wire.resume()
    assert wire.closed


def test_the_own_protocol_waits_in_the_same_way() -> None:
    member = MemoryCluster(2, 7).members[0]
    member.rights, member.proving = rights("cluster * status"), []
    wire = OwnWire.to(member)
    wire.session.receive(
        own.frame(own.Hello(1, own.VERSION, None, "u", "p")) + own.frame(request_of(2, ShowStatus(), 1))
    )
    assert wire.answers() == []
    (done,) = member.proving
    done(LoginAnswer(member.rights))
    while wire.session._flow.halted:
        wire.session.resume()
    assert [type(answer) for answer in wire.answers()] == [own.HelloOk, own.Acted]
    wire.session.receive(own.frame(own.AskDigests(3, [0])))
    (refused,) = wire.answers()
    assert isinstance(refused, own.Fault)
    assert refused.kind is own.FaultKind.DENIED
    assert "AskDigests needs 'verify' for cluster, which no rule permits" in refused.detail
    assert [event.event for event in member.audited] == [AuditKind.REFUSED]
    member.proving, member.rights = None, EVERYTHING
    wire.session.receive(own.frame(own.Hello(4, own.VERSION)))
    assert "of one user" in wire.answers()[0].detail  # type: ignore[union-attr]
    assert wire.closed_with


def test_orders_are_audited() -> None:
    member = MemoryCluster(2, 7).members[0]
    member.rights = rights("cluster * drain", "metastore * put")
    wire = OwnWire.to(member)
    wire.hello()
    wire.session.receive(own.frame(request_of(5, Drain(), 1)))
    wire.session.receive(own.frame(request_of(6, metastore.PutKey("k", "a secret value"), 1)))
    wire.session.receive(own.frame(request_of(7, ShutDown(), 1)))
    assert [(event.event, event.detail.partition(":")[0]) for event in member.audited] == [
        (AuditKind.ORDER, "drain"),
        (AuditKind.ORDER, "put-key key=k value=(14 characters)"),
        (AuditKind.REFUSED, "user 'u' may not do this"),
    ]
