"""The session of Holdfast's own protocol, alone: no sockets, real stores."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.memory_cluster import MemoryCluster, MemoryMember, Wire

from holdfast.config import LimitSettings
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import READS, WHOLE, Op, Outcome, Request, Status
from holdfast.core.store.digest import range_of, whole
from holdfast.server import digest_questions, question_checks, reply_channel
from holdfast.wire import own
from holdfast.wire.hazelcast.compact_schemas import schema_entry
from holdfast.wire.hazelcast.layouts import Schema

COUNT = 7


def text(word: str) -> bytes:
    """A string in its stored form."""
    raw = word.encode()
    return (-11).to_bytes(4, "big", signed=True) + len(raw).to_bytes(4, "big") + raw


def at(key: bytes) -> int:
    return partition_of(key, 0, COUNT)


KEY = text("k")


@pytest.fixture
def member() -> MemoryMember:
    """One of two, holding every partition as owner or backup."""
    return MemoryCluster(2, COUNT).members[0]


@pytest.fixture
def wire(member: MemoryMember) -> Wire:
    """A connection that has said hello."""
    found = Wire.to(member)
    assert isinstance(found.hello(), own.HelloOk)
    return found


def owned(member: MemoryMember) -> list[int]:
    return [partition for partition in range(COUNT) if member.lane.serving[partition] is not None]


def keys_of(partition: int, count: int) -> list[bytes]:
    found: list[bytes] = []
    number = 0
    while len(found) < count:
        key = text(f"key-{number}")
        if at(key) == partition:
            found.append(key)
        number += 1
    return found


def put(wire: Wire, partition: int, keys: list[bytes], value: bytes = b"vvvv", **more: int) -> own.PutDone:
    columns = own.ColumnBatch.of(keys, [value] * len(keys))
    answer = wire.ask(own.PutColumns, "m", [partition], [len(keys)], columns, **more)
    assert isinstance(answer, own.PutDone)
    return answer


# -- the door


def test_hello_tells_who_answers_and_how_many_partitions_there_are(member: MemoryMember) -> None:
    answer = Wire.to(member).hello(cluster="dev")
    assert (answer.member, answer.partition_count, answer.cluster_name) == (member.member_uuid, COUNT, "dev")


@pytest.mark.parametrize(
    ("hello", "kind"),
    [
        ({"cluster": "other"}, own.FaultKind.DENIED),
        ({"username": "u", "password": "wrong"}, own.FaultKind.DENIED),
    ],
)
def test_a_stranger_is_refused_and_disconnected(
    member: MemoryMember, hello: dict[str, str], kind: own.FaultKind
) -> None:
    if "password" in hello:
        member.user = ("u", "right", None)
    wire = Wire.to(member)
    answer = wire.hello(**hello)
    assert isinstance(answer, own.Fault)
    assert answer.kind is kind
    assert wire.closed_with
    wire.session.receive(own.frame(own.AskTable(9)))
    assert wire.answers() == []


def test_another_version_of_the_protocol_is_refused(member: MemoryMember) -> None:
    wire = Wire.to(member)
    answer = wire.ask(own.Hello, own.VERSION + 1)
    assert answer.kind is own.FaultKind.UNSUPPORTED
    assert wire.closed_with


@pytest.mark.parametrize("operates", [True, False])
def test_a_connection_stays_that_of_an_operator_or_a_client(member: MemoryMember, operates: bool) -> None:
    """Otherwise a client could write on a connection that is read whatever the backlog."""
    wire = Wire.to(member)
    assert isinstance(wire.hello(operates=operates), own.HelloOk)
    assert isinstance(wire.hello(operates=operates), own.HelloOk), "it may repeat its hello"
    answer = wire.hello(operates=not operates)
    assert isinstance(answer, own.Fault)
    assert answer.kind is own.FaultKind.DENIED
    assert "open another one" in answer.detail
    assert wire.closed_with


def test_nothing_is_answered_before_hello(member: MemoryMember) -> None:
    wire = Wire.to(member)
    wire.session.receive(own.frame(own.AskTable(5)) + own.frame(own.AskTable(6)))
    (answer,) = wire.answers()
    assert (answer.id, answer.kind) == (0, own.FaultKind.DENIED)  # type: ignore[union-attr]
    assert wire.closed_with


def test_a_stranger_may_send_little_and_a_client_much(member: MemoryMember) -> None:
    limits = LimitSettings(frame_bytes=1 << 20)
    wire = Wire.to(member, limits=limits)
    wire.session.receive(struct.pack("<I", own.GREETING_BYTES_MAX + 1))
    assert wire.closed_with
    wire = Wire.to(member, limits=limits)
    assert wire.hello().frame_bytes_max == 1 << 20
    wire.session.receive(struct.pack("<I", 1 << 20))
    assert not wire.closed_with
    wire = Wire.to(member, limits=limits)
    wire.hello()
    wire.session.receive(struct.pack("<I", (1 << 20) + 1) + bytes(20))
    assert wire.closed_with


def test_what_follows_a_refused_greeting_is_not_looked_at(member: MemoryMember) -> None:
    member.user = ("u", "right", None)
    wire = Wire.to(member)
    sent = [
        own.Hello(1, own.VERSION, None, "u", "wrong"),
        own.Hello(2, own.VERSION, None, "u", "right"),
        own.Execute(3, Request(Op.SET, "m", [at(KEY)], KEY, b"vvvv")),
    ]
    wire.session.receive(b"".join(map(own.frame, sent)))
    assert [answer.id for answer in wire.answers()] == [1]
    assert member.requests == []


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=80), st.booleans())
def test_rubbish_ends_its_own_connection_and_raises_nothing(rubbish: bytes, known: bool) -> None:
    member = MemoryCluster(2, COUNT).members[0]
    wire, other = Wire.to(member), Wire.to(member)
    other.hello()
    if known:
        wire.hello()
    wire.session.receive(struct.pack("<I", len(rubbish)) + rubbish)
    assert wire.closed_with or wire.answers()
    assert isinstance(other.ask(own.AskTable), own.TableIs)


def test_answers_that_come_after_the_end_are_dropped(member: MemoryMember, wire: Wire) -> None:
    member.verdict = None
    key = keys_of(owned(member)[0], 1)[0]
    wire.session.receive(
        own.frame(own.PutColumns(9, "m", [at(key)], [1], own.ColumnBatch.of([key], [b"vvvv"])))
    )
    wire.session.closed()
    member.settle(safe=True)
    assert wire.answers() == []


# -- the cluster


def test_the_table_names_the_holder_of_every_replica(member: MemoryMember, wire: Wire) -> None:
    member.world.rows[3] = [None, member.member_uuid, "gone"]
    answer = wire.ask(own.AskTable)
    assert [row.uuid for row in answer.members] == [each.member_uuid for each in member.world.members]
    assert answer.replicas[0] == [0, 1]
    assert answer.replicas[3] == [own.NOBODY, 0, own.NOBODY]
    assert answer.version == member.world.version


# -- single operations


def test_an_operation_is_carried_out_and_its_outcome_told(member: MemoryMember, wire: Wire) -> None:
    key = text("k")
    assert wire.ask(own.Execute, Request(Op.SET, "m", [at(key)], key, b"vvvv")).outcome == Outcome(Status.OK)
    assert wire.ask(own.Execute, Request(Op.GET, "m", [at(key)], key)).outcome.value == b"vvvv"
    member.answer_with = Outcome(Status.UNKNOWN, detail="who knows")
    assert wire.ask(own.Execute, Request(Op.GET, "m", [at(key)], key)).outcome == member.answer_with


@pytest.mark.parametrize(
    "request_",
    [
        Request(Op.GET, "", [at(KEY)], KEY),
        Request(Op.GET, "m" * 1025, [at(KEY)], KEY),
        Request(Op.GET, "m", [], KEY),
        Request(Op.GET, "m", [COUNT], KEY),
        Request(Op.SIZE, "m", [-1]),
        Request(Op.GET, "m", [at(KEY) ^ 1], KEY),
        Request(Op.GET, "m", [0, 1], KEY),
        Request(Op.GET_ALL, "m", [at(KEY) ^ 1], items=[KEY]),
        Request(Op.PUT_ALL, "m", [at(KEY)], items=[KEY]),
        Request(Op.SET, "m", [at(KEY)], KEY, b"v", ttl_ms=-2),
        Request(Op.SET, "m", [at(KEY)], KEY, b"v", max_idle_ms=2**60),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused_and_not_carried_out(
    member: MemoryMember, wire: Wire, request_: Request
) -> None:
    answer = wire.ask(own.Execute, request_)
    assert isinstance(answer, own.Fault)
    assert answer.kind is own.FaultKind.MALFORMED
    assert member.requests == []
    assert not wire.closed_with


def test_a_key_that_carries_its_own_hash_belongs_where_that_says(member: MemoryMember, wire: Wire) -> None:
    other = (at(KEY) + 1) % COUNT
    request = Request(Op.GET, "m", [other], KEY, key_hash=other + COUNT)
    assert isinstance(wire.ask(own.Execute, request), own.Executed)


def test_keys_and_values_above_the_limits_are_refused(member: MemoryMember) -> None:
    wire = Wire.to(member, limits=LimitSettings(key_bytes=16, value_bytes=16))
    wire.hello()
    long_key = text("k" * 20)
    for request in (
        Request(Op.GET, "m", [at(long_key)], long_key),
        Request(Op.SET, "m", [at(KEY)], KEY, b"v" * 17),
        Request(Op.PUT_ALL, "m", [at(KEY)], items=[KEY, b"v" * 17]),
    ):
        assert wire.ask(own.Execute, request).kind is own.FaultKind.TOO_LARGE
    columns = own.ColumnBatch.of([KEY], [b"v" * 17])
    assert wire.ask(own.PutColumns, "m", [at(KEY)], [1], columns).kind is own.FaultKind.TOO_LARGE


def test_one_connection_may_not_keep_the_member_waiting_without_end(
    member: MemoryMember, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_channel, "WAITING_MAX", 2)
    monkeypatch.setattr(
        member, "execute", lambda request, done: member.lane.seals.append(lambda _: done(Outcome(Status.OK)))
    )
    ask = own.Execute(1, Request(Op.GET, "m", [at(KEY)], KEY))
    wire.session.receive(own.frame(ask) * 3)
    (refused,) = wire.answers()
    assert refused.kind is own.FaultKind.NOT_READY  # type: ignore[union-attr]
    member.settle(safe=True)
    wire.session.receive(own.frame(ask))
    assert [type(answer) for answer in wire.answers()] == [own.Executed, own.Executed]


# -- columns


def read_all(
    wire: Wire, partition: int, between: Callable[[], None] = lambda: None, **more: int
) -> dict[bytes, bytes]:
    page = wire.ask(own.Scan, "m", partition, **more)
    assert isinstance(page, own.Page), page
    scan = wire.number
    found = dict(zip(*page.columns.split(), strict=True))
    while page.more:
        between()
        page = wire.ask(own.NextPage, scan)
        rows = dict(zip(*page.columns.split(), strict=True))
        assert rows
        assert not found.keys() & rows.keys()
        found |= rows
    return found


@pytest.mark.parametrize(
    "more", [{"rows_max": 1}, {"rows_max": 4}, {"bytes_max": 1}, {"bytes_max": 60}, {"rows_max": 0}, {}]
)
def test_a_scan_gives_every_entry_once(member: MemoryMember, wire: Wire, more: dict[str, int]) -> None:
    partition = owned(member)[0]
    keys = keys_of(partition, 11)
    assert put(wire, partition, keys).stored == 11
    assert read_all(wire, partition, **more) == dict.fromkeys(keys, b"vvvv")


def test_a_page_is_as_large_as_asked(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    put(wire, partition, keys_of(partition, 11), b"v" * 100)
    assert wire.ask(own.Scan, "m", partition, rows_max=4).columns.rows == 4
    page = wire.ask(own.Scan, "m", partition, bytes_max=250)
    assert page.columns.rows == 3
    assert 250 <= page.columns.size_bytes < 400


def test_a_scan_shows_one_moment_whatever_happens_meanwhile(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    keys = keys_of(partition, 12)
    put(wire, partition, keys[:10])
    writer = Wire.to(member)
    writer.hello()

    def meanwhile() -> None:
        put(writer, partition, keys[5:], b"later")
        if member.lane.serving[partition] is not None:
            member.lane.remove(member.held[partition], "m", keys[9])
            member.lane.serving[partition] = None

    assert read_all(wire, partition, meanwhile, rows_max=3) == dict.fromkeys(keys[:10], b"vvvv")


def test_expired_entries_are_not_scanned(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    keys = keys_of(partition, 4)
    put(wire, partition, keys[:2], ttl_ms=10)
    put(wire, partition, keys[2:])
    member.now = 10 * MILLISECOND
    assert read_all(wire, partition).keys() == set(keys[2:])


def test_a_partition_that_is_not_served_has_moved(member: MemoryMember, wire: Wire) -> None:
    backup = next(partition for partition in range(COUNT) if partition not in owned(member))
    assert wire.ask(own.Scan, "m", backup).kind is own.FaultKind.MOVED
    keys = keys_of(backup, 2)
    answer = put(wire, backup, keys)
    assert (answer.stored, answer.moved) == (0, [backup])
    assert member.held[backup].entry_count() == 0
    member.world.owner(backup).lane.set(
        member.world.owner(backup).held[backup], "m", keys[0], b"vvvv", 0, 0, 0
    )
    assert wire.ask(own.Scan, "m", backup, any_copy=True).columns.rows == 1


def test_a_scan_ends_with_the_next_one_and_when_it_is_read(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    put(wire, partition, keys_of(partition, 3))
    wire.ask(own.Scan, "m", partition, rows_max=1)
    first = wire.number
    wire.ask(own.Scan, "m", partition, rows_max=2)
    second = wire.number
    assert wire.ask(own.NextPage, first).kind is own.FaultKind.MALFORMED
    assert not wire.ask(own.NextPage, second).more
    assert wire.ask(own.NextPage, second).kind is own.FaultKind.MALFORMED


def test_put_columns_stores_what_it_may_and_names_what_moved(member: MemoryMember, wire: Wire) -> None:
    mine = owned(member)[0]
    other = next(partition for partition in range(COUNT) if partition not in owned(member))
    columns = own.ColumnBatch.of([*keys_of(other, 2), *keys_of(mine, 3)], [b"vvvv"] * 5)
    answer = wire.ask(own.PutColumns, "m", [other, mine], [2, 3], columns)
    assert answer == own.PutDone(answer.id, 3, [other], known=True)
    assert read_all(wire, mine) == dict.fromkeys(keys_of(mine, 3), b"vvvv")


def test_put_columns_is_answered_when_the_backups_have_spoken(member: MemoryMember, wire: Wire) -> None:
    member.verdict = None
    partition = owned(member)[0]
    columns = own.ColumnBatch.of(keys_of(partition, 1), [b"vvvv"])
    assert not wire.session.unanswered
    for number in (8, 9):
        wire.session.receive(own.frame(own.PutColumns(number, "m", [partition], [1], columns)))
    assert wire.answers() == []
    member.lane.seals[1](False)
    assert wire.session.unanswered
    member.lane.seals[0](True)
    assert not wire.session.unanswered
    assert wire.answers() == [
        own.PutDone(9, 1, [], known=False, why="the test says so"),
        own.PutDone(8, 1, [], known=True),
    ]


@pytest.mark.parametrize(
    ("partitions", "counts"),
    [([0], [1]), ([0, 0], [1, 2]), ([0], [3]), ([0, 0], [3, -1])],
    ids=["too few", "too many", "group without rows", "negative"],
)
def test_groups_that_do_not_add_up_break_the_protocol(
    wire: Wire, partitions: list[int], counts: list[int]
) -> None:
    columns = own.ColumnBatch.of(keys_of(0, 2), [b"vvvv"] * 2)
    wire.session.receive(own.frame(own.PutColumns(9, "m", partitions, counts, columns)))
    assert wire.closed_with


def test_a_key_in_the_wrong_group_stores_nothing(member: MemoryMember, wire: Wire) -> None:
    mine, other = owned(member)[:2]
    columns = own.ColumnBatch.of([*keys_of(mine, 1), *keys_of(other, 1)], [b"vvvv"] * 2)
    wire.session.receive(own.frame(own.PutColumns(9, "m", [mine], [2], columns)))
    assert wire.closed_with
    assert member.held[mine].entry_count() == 0


# -- digests


def test_digests_tell_what_each_copy_holds(member: MemoryMember, wire: Wire) -> None:
    mine = owned(member)[0]
    put(wire, mine, keys_of(mine, 5))
    backup = Wire.to(member.world.members[1])
    backup.hello()
    (here,) = wire.ask(own.AskDigests, [mine]).held
    (there,) = backup.ask(own.AskDigests, [mine]).held
    assert (here.replica, here.serving, there.replica, there.serving) == (0, True, 1, False)
    assert here.maps[0].targets == [member.world.members[1].member_uuid]
    ours, theirs = here.maps[0], there.maps[0]
    assert (ours.counter, ours.entries, ours.digest) == (theirs.counter, theirs.entries, theirs.digest)
    assert (ours.counter, ours.entries) == (5, 5)
    held = member.world.members[1].held[mine].maps["m"]
    held.state.entries[keys_of(mine, 1)[0]] = b"else"
    assert backup.ask(own.AskDigests, [mine]).held[0].maps[0].digest != ours.digest


def test_digests_of_one_map_and_of_what_is_held_only(member: MemoryMember, wire: Wire) -> None:
    mine = owned(member)[0]
    put(wire, mine, keys_of(mine, 1))
    member.lane.set(member.held[mine], "n", KEY, b"vvvv", 0, 0, 0)
    assert [digest.map for digest in wire.ask(own.AskDigests, [mine]).held[0].maps] == ["m", "n"]
    assert [digest.map for digest in wire.ask(own.AskDigests, [mine], map="n").held[0].maps] == ["n"]
    del member.held[mine]
    answer = wire.ask(own.AskDigests, [mine])
    assert (answer.answered, answer.held) == (1, [])
    assert wire.ask(own.AskDigests, [COUNT]).kind is own.FaultKind.MALFORMED


def test_ranges_add_up_to_the_digest_and_can_be_read_alone(member: MemoryMember, wire: Wire) -> None:
    mine = owned(member)[0]
    keys = keys_of(mine, 40)
    put(wire, mine, keys)
    (held,) = wire.ask(own.AskDigests, [mine]).held
    ranges = wire.ask(own.AskRanges, mine, "m")
    assert whole(ranges.digests) == held.maps[0].digest
    assert (ranges.counter, ranges.version) == (40, held.version)
    wanted = range_of(keys[0])
    page = wire.ask(own.Scan, "m", mine, any_copy=True, ranges=[wanted])
    read, _ = page.columns.split()
    assert sorted(read) == sorted(key for key in keys if range_of(key) == wanted)
    assert wire.ask(own.AskRanges, mine, "nothing").digests == [0] * 64
    del member.held[mine]
    assert wire.ask(own.AskRanges, mine, "m").digests == []
    assert wire.ask(own.AskRanges, COUNT, "m").kind is own.FaultKind.MALFORMED


def test_an_answer_with_digests_ends_when_it_was_enough_work(
    member: MemoryMember, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest_questions, "DIGEST_ENTRIES_MAX", 3)
    for partition in owned(member):
        put(wire, partition, keys_of(partition, 2))
    answer = wire.ask(own.AskDigests, owned(member))
    assert answer.answered == 2
    assert len(answer.held) == 2


def test_a_client_waits_for_a_question_that_takes_several_turns(member: MemoryMember, wire: Wire) -> None:
    partition = owned(member)[0]
    for number in range(20_000):
        member.lane.set(member.held[partition], "m", number.to_bytes(8), b"vvvv", 0, 0, 0)
    wire.session.receive(own.frame(own.AskRanges(8, partition, "m")))
    assert wire.session.unanswered
    while wire.session._flow.halted:
        wire.session.resume()
    assert not wire.session.unanswered
    assert [answer.id for answer in wire.answers()] == [8]


def test_the_session_needs_nothing_but_the_grid(wire: Wire) -> None:
    single = Wire.to(OneMemberGrid(COUNT))
    assert isinstance(single.hello(), own.HelloOk)


# -- what ends nothing but a request


@pytest.mark.parametrize("key_hash", [1 << 31, -(1 << 31) - 1, 1 << 60])
def test_a_hash_word_is_an_int32(wire: Wire, key_hash: int) -> None:
    partition = partition_of(KEY, key_hash, COUNT)
    answer = wire.ask(own.Execute, Request(Op.SET, "m", [partition], KEY, b"v", key_hash=key_hash))
    assert answer.kind is own.FaultKind.MALFORMED
    assert "int32" in answer.detail
    assert not wire.closed_with


@pytest.mark.parametrize("limit", [-1, 1 << 63, (1 << 64) - 1])
def test_the_limit_of_a_scan_is_a_count(member: MemoryMember, wire: Wire, limit: int) -> None:
    answer = wire.ask(own.Scan, "m", owned(member)[0], limit=limit)
    assert answer.kind is own.FaultKind.MALFORMED
    assert not member.faults


NUMBERS = (-(2**63), -(2**31) - 1, -2, -1, 0, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)


def _with_numbers(kind: inspect.Type, number: int, place: int, blob: bytes, seen: list[int]) -> object:
    """A value of the type whose number at this place is that one."""
    if isinstance(kind, inspect.IntType):
        seen.append(0)
        return number if len(seen) == place else 0
    if isinstance(kind, inspect.StructType):
        inside = [_with_numbers(one.type, number, place, blob, seen) for one in kind.fields]
        return inside if kind.tag is None else [kind.tag, *inside]
    if isinstance(kind, inspect.ListType):
        return [_with_numbers(kind.item_type, number, place, blob, seen)]
    if isinstance(kind, inspect.TupleType):
        return [_with_numbers(one, number, place, blob, seen) for one in kind.item_types]
    if isinstance(kind, inspect.UnionType):
        some = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return _with_numbers(some[0], number, place, blob, seen)
    if isinstance(kind, inspect.EnumType):
        return next(iter(kind.cls)).value
    return {inspect.StrType: "m", inspect.BytesType: blob, inspect.BoolType: False}[type(kind)]


@pytest.mark.parametrize("blob", [b"", b"0123456789abcdef"])
@pytest.mark.parametrize("question", get_args(own.Question), ids=lambda kind: kind.__name__)
def test_no_number_of_a_question_meets_an_error_inside_the_member(question: type, blob: bytes) -> None:
    """Each number in each question, one after the other, at all edges."""
    kind = inspect.type_info(question)
    for place in range(1, 12):
        for number in NUMBERS:
            member = MemoryCluster(2, COUNT).members[0]
            member.lane.set(member.held[0], "m", keys_of(0, 1)[0], b"v", 0, 0, 0)
            wire = Wire.to(member, limits=LimitSettings())
            wire.hello()
            if question is not own.Act:  # see test_orders
                wire.session.receive(own.frame(_with_numbers(kind, number, place, blob, [])))  # type: ignore[arg-type]
                assert member.faults == [], (place, number)


RESERVED_MAPS = ("__objects", "__schemas", "__schemas.spark", "__streams.spark", "__service:s", "__x")


@pytest.mark.parametrize("name", RESERVED_MAPS)
def test_maps_of_the_members_take_nothing_of_clients(member: MemoryMember, wire: Wire, name: str) -> None:
    for op in set(Op) - READS - {Op.CALL}:
        if op is Op.DELETE and name.endswith(".spark"):
            continue
        partitions, items = ([at(KEY)], [KEY, b"v"]) if op not in WHOLE else (list(range(COUNT)), [])
        answer = wire.ask(own.Execute, Request(op, name, partitions, KEY, b"v", items=items))
        assert answer.kind is own.FaultKind.DENIED, op
    columns = own.ColumnBatch.of([KEY], [b"v"])
    for more in ({}, {"kinds": bytes([1])}, {"kinds": bytes([2])}):
        assert wire.ask(own.PutColumns, name, [at(KEY)], [1], columns, **more).kind is own.FaultKind.DENIED
    assert not any(held.state.entries for copy in member.held.values() for held in copy)
    assert not wire.closed_with
    assert not isinstance(wire.ask(own.Scan, name, owned(member)[0]), own.Fault)


def test_maps_of_the_members_take_what_they_are_for(member: MemoryMember, wire: Wire) -> None:
    key, value = schema_entry(Schema("Flight", [("id", 7), ("tail", 16)]))
    json = b'{"columns": []}'
    stored = (-130).to_bytes(4, "big", signed=True) + len(json).to_bytes(4, "big") + json
    for name, one, other in (("__schemas", key, value), ("__schemas.spark", KEY, stored)):
        request = Request(Op.SET, name, [at(one)], one, other, ttl_ms=0)
        assert wire.ask(own.Execute, request).outcome.status is Status.OK
        columns = own.ColumnBatch.of([one], [other])
        assert isinstance(wire.ask(own.PutColumns, name, [at(one)], [1], columns), own.PutDone)
    gone = wire.ask(own.Execute, Request(Op.DELETE, "__schemas.spark", [at(KEY)], KEY))
    assert gone.outcome.value is True
    swapped = Request(Op.SET, "__schemas", [at(KEY)], KEY, value)
    assert "not the id" in wire.ask(own.Execute, swapped).detail


def number_sent(large: bool, number: int) -> bytes:
    put = own.frame(own.PutColumns(number, "m", [0], [1], own.ColumnBatch.of([KEY], [bytes(200_000)])))
    return put if large else own.frame(own.AskTable(number))


@pytest.mark.parametrize("piece", [1, 5, 4096, 1 << 20])
@pytest.mark.parametrize("number", [1, 200, 70_000, 1 << 40, (1 << 64) - 1, -1, -200, -(1 << 63)])
def test_a_frame_above_the_limit_is_refused_alone(member: MemoryMember, number: int, piece: int) -> None:
    wire = Wire.to(member, limits=LimitSettings(frame_bytes=100_000))
    wire.hello()
    data = number_sent(False, 3) + number_sent(True, number) + number_sent(False, 4)
    for start in range(0, len(data), piece):
        wire.session.receive(data[start : start + piece])
        assert len(wire.session._frames._held) < 100_000
    first, refused, last = wire.answers()
    assert (first.id, refused.id, last.id) == (3, number, 4)
    assert isinstance(refused, own.Fault)
    assert refused.kind is own.FaultKind.TOO_LARGE
    assert "limits.frame_bytes" in refused.detail
    assert not wire.closed_with


def test_a_frame_above_the_limit_that_is_no_question_ends_the_connection(member: MemoryMember) -> None:
    wire = Wire.to(member, limits=LimitSettings(frame_bytes=100_000))
    wire.hello()
    wire.session.receive(struct.pack("<I", 1 << 30) + b"GET / HTTP/1.1\r\n")
    assert len(wire.closed_with) == 1


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a fault of ours")


def test_an_error_before_anything_changes_is_answered_and_the_member_goes_on(
    member: MemoryMember, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "cluster", broken)
    answer = wire.ask(own.AskTable)
    assert answer.kind is own.FaultKind.FAILED
    assert "a fault of ours" in answer.detail
    monkeypatch.setattr(question_checks, "size_rejection", broken)
    request = Request(Op.SET, "m", [at(KEY)], KEY, b"v")
    assert wire.ask(own.Execute, request).kind is own.FaultKind.FAILED
    monkeypatch.undo()
    assert [kind for kind, _ in member.faults] == ["AskTable", "Execute"]
    assert wire.ask(own.Execute, request).outcome.status is Status.OK


def test_an_error_after_a_question_was_handed_on_stops_the_member(
    member: MemoryMember, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member.lane, "set", broken)
    monkeypatch.setattr(member, "execute", broken)
    mine = owned(member)[0]
    key = keys_of(mine, 1)[0]
    with pytest.raises(ZeroDivisionError):
        wire.ask(own.PutColumns, "m", [mine], [1], own.ColumnBatch.of([key], [b"v"]))
    with pytest.raises(ZeroDivisionError):
        wire.ask(own.Execute, Request(Op.SET, "m", [mine], key, b"v"))


def test_an_answer_that_cannot_be_made_is_answered_so(member: MemoryMember, wire: Wire) -> None:
    """It comes from the middle of a step of the member."""
    member.answer_with = Outcome(Status.OK, 1 << 70)
    answer = wire.ask(own.Execute, Request(Op.GET, "m", [at(KEY)], KEY))
    assert answer.kind is own.FaultKind.UNKNOWN
    assert not wire.closed_with
    assert [kind for kind, _ in member.faults] == ["Execute"]


def test_lists_of_ids_are_short_and_name_each_once(wire: Wire) -> None:
    for partitions in ([0, 0], [1] * 100):
        refused = wire.ask(own.Execute, Request(Op.SIZE, "m", partitions))
        assert (refused.kind, "once" in refused.detail or "at most" in refused.detail) == (
            own.FaultKind.MALFORMED,
            True,
        )
        assert wire.ask(own.AskDigests, partitions).kind is own.FaultKind.MALFORMED
    items = [b"k"] * 8193
    assert wire.ask(own.Execute, Request(Op.GET_ALL, "m", [0], items=items)).kind is own.FaultKind.MALFORMED
    wire.session.receive(own.frame(own.AskDigests(1, [0] * 3_000_000)))
    assert wire.closed_with, "so many are not even decoded"
