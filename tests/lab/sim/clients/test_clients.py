"""Simulated clients that speak in bytes: each operation, each fault of a connection, and what they are told."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import msgspec
import pytest
from hazelcast.protocol.client_message import OutboundMessage
from hazelcast.protocol.codec import (
    map_clear_codec,
    map_contains_key_codec,
    map_contains_value_codec,
    map_delete_codec,
    map_entry_set_codec,
    map_evict_all_codec,
    map_evict_codec,
    map_get_all_codec,
    map_get_codec,
    map_get_entry_view_codec,
    map_is_empty_codec,
    map_key_set_codec,
    map_put_all_codec,
    map_put_codec,
    map_put_if_absent_codec,
    map_put_if_absent_with_max_idle_codec,
    map_put_with_max_idle_codec,
    map_remove_codec,
    map_remove_if_same_codec,
    map_replace_codec,
    map_replace_if_same_codec,
    map_set_codec,
    map_set_ttl_codec,
    map_set_with_max_idle_codec,
    map_size_codec,
    map_try_put_codec,
    map_try_remove_codec,
    map_values_codec,
)
from tests.lab.sim.callers import Scene, request
from tests.lab.sim.stage import Stage, settings
from tests.sampled_cases import sampled
from tests.server.hazelcast.wire import data as official_data

from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Outcome, Request, Status, Value
from holdfast.core.operations.map_operations import version_of
from holdfast.wire.hazelcast.refusals import refusal
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.clients.client import Client, Manners
from holdfast_lab.sim.clients.hazelcast import KINDS, HazelcastClient, encode, status_of
from holdfast_lab.sim.clients.own_client import OwnClient
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

BOTH: list[type[Client]] = [HazelcastClient, OwnClient]
EVERYWHERE = list(range(7))
HOUR_MS = 3_600_000


def of_all(op: Op, value: str = "") -> Request:
    return Request(op, MAP, EVERYWHERE, value=value.encode())


def same_partition(*keys: str) -> int:
    (partition,) = {partition_of(wire_key(key), 0, 7) for key in keys}
    return partition


def neighbours() -> tuple[str, str]:
    """Two keys of one partition."""
    first, *others = (f"n{number}" for number in range(100))
    home = same_partition(first)
    return first, next(key for key in others if same_partition(key) == home)


class Desk:
    """A cluster at rest, and one client of it."""

    def __init__(
        self, kind: type[Client], *, acks: str = "owner", backups: int = 1, hosts: int = 3, **manners: Any
    ) -> None:
        replication = {"backup_acks": acks, "backup_timeout_ms": 1000}
        self.stage = Stage(hosts, settings=settings(backups, replication=replication))
        self.world = self.stage.world
        self.doors = Doors(self.world, self.stage.cluster)
        self.client = kind("client", self.world, self.doors, random.Random("client"), Manners(**manners))
        self.client.start()
        self.stage.wait(3)

    def send(self, *requests: Request) -> list[list[Outcome]]:
        """What becomes of each, to be looked at later."""
        told: list[list[Outcome]] = [[] for _ in requests]
        self.client.ask([(request, into.append) for request, into in zip(requests, told, strict=True)])
        return told

    def ask(self, request: Request) -> Value:
        """The answer to one that is well."""
        (told,) = self.send(request)
        self.stage.wait(0.5)
        assert [outcome.status for outcome in told] == [Status.OK], told
        return told[0].value

    def line_to(self, process: Process) -> Any:
        return self.client.lines[process.host]


# -- operations


@pytest.mark.parametrize("kind", BOTH)
def test_every_operation_is_answered_as_it_should_be(kind: type[Client]) -> None:
    desk = Desk(kind)
    one, two = neighbours()
    keys = [wire_key(one), wire_key(two)]
    items = [keys[0], b"all1", keys[1], b"all2"]
    home = same_partition(one)
    story: list[tuple[Request, Value]] = [
        (request(Op.GET, "a"), None),
        (request(Op.PUT, "a", "one1"), None),
        (request(Op.PUT, "a", "two2"), b"one1"),
        (request(Op.GET, "a"), b"two2"),
        (request(Op.CONTAINS_KEY, "a"), True),
        (request(Op.CONTAINS_KEY, "b"), False),
        (request(Op.PUT_IF_ABSENT, "a", "none"), b"two2"),
        (request(Op.PUT_IF_ABSENT, "b", "here"), None),
        (request(Op.REPLACE, "c", "none"), None),
        (request(Op.REPLACE, "b", "there"), b"here"),
        (msgspec.structs.replace(request(Op.REPLACE_IF_SAME, "b", "none"), expected=b"else"), False),
        (msgspec.structs.replace(request(Op.REPLACE_IF_SAME, "b", "last"), expected=b"there"), True),
        (msgspec.structs.replace(request(Op.REMOVE_IF_SAME, "b"), expected=b"else"), False),
        (msgspec.structs.replace(request(Op.REMOVE_IF_SAME, "b"), expected=b"last"), True),
        (request(Op.SET, "s", "set1", ttl_ms=HOUR_MS), None),
        (request(Op.SET_TTL, "s", ttl_ms=2 * HOUR_MS), True),
        (request(Op.SET_TTL, "c", ttl_ms=HOUR_MS), False),
        (request(Op.REMOVE, "c"), None),
        (request(Op.REMOVE, "a"), b"two2"),
        (request(Op.DELETE, "a"), False),
        (request(Op.DELETE, "s"), True),
        (request(Op.TRY_PUT, "t", "try1"), True),
        (request(Op.TRY_REMOVE, "t"), True),
        (request(Op.TRY_REMOVE, "t"), False),
        (request(Op.EVICT, "t"), False),
        (Request(Op.PUT_ALL, MAP, [home], items=items), None),
        (request(Op.EVICT, one), True),
        (of_all(Op.SIZE), 1),
        (of_all(Op.IS_EMPTY), False),
        (of_all(Op.CONTAINS_VALUE, "all2"), True),
        (of_all(Op.CONTAINS_VALUE, "all1"), False),
        (of_all(Op.KEYS), [keys[1]]),
        (of_all(Op.VALUES), [b"all2"]),
        (of_all(Op.ENTRIES), [keys[1], b"all2"]),
        (Request(Op.GET_ALL, MAP, [home], items=keys), [keys[1], b"all2"]),
        (of_all(Op.CLEAR), 1 if kind is OwnClient else None),
        (of_all(Op.EVICT_ALL), 0 if kind is OwnClient else None),
        (of_all(Op.IS_EMPTY), True),
    ]
    if kind is OwnClient:
        story.append((of_all(Op.DESTROY), 0))
    for asked, answer in story:
        assert desk.ask(asked) == answer, asked
    assert {asked.op for asked, _ in story} | {Op.ENTRY_VIEW} == kind.OPS
    assert desk.client.counts[f"{kind.KIND} OK"] == len(story)


@pytest.mark.parametrize("kind", BOTH)
def test_an_entry_view_tells_what_it_tells_inside(kind: type[Client]) -> None:
    desk = Desk(kind)
    assert desk.ask(request(Op.ENTRY_VIEW, "v")) is None
    desk.ask(msgspec.structs.replace(request(Op.SET, "v", "view", ttl_ms=HOUR_MS), max_idle_ms=60_000))
    value, ttl_ms, max_idle_ms, remaining_ms, version = desk.ask(request(Op.ENTRY_VIEW, "v"))  # type: ignore[misc]
    assert (value, ttl_ms, max_idle_ms) == (b"view", HOUR_MS, 60_000)
    assert isinstance(remaining_ms, int)
    assert 0 < remaining_ms <= 60_000
    assert version == version_of(b"view")
    desk.ask(request(Op.SET, "w", "view"))
    assert desk.ask(request(Op.ENTRY_VIEW, "w"))[:4] == [b"view", 0, 0, -1]  # type: ignore[index]


@pytest.mark.parametrize("kind", BOTH)
def test_requests_that_are_asked_together_leave_together_and_in_their_order(kind: type[Client]) -> None:
    desk = Desk(kind, choppy=0.0)
    desk.ask(request(Op.SET, "a", "zero"))
    line = desk.line_to(desk.stage.owner_of("a"))
    written: list[bytes] = []
    line.stream.send = written.append
    told = desk.send(*(request(Op.PUT, "a", f"val{number}") for number in range(20)))
    assert len(written) == 1
    del line.stream.send
    line.stream.send(written[0])
    desk.stage.wait(1)
    before = [b"zero", *(b"val%d" % number for number in range(19))]
    assert [[outcome.value for outcome in each] for each in told] == [[value] for value in before]
    assert desk.ask(request(Op.GET, "a")) == b"val19"


@pytest.mark.parametrize("kind", BOTH)
def test_read_buffers_end_anywhere(kind: type[Client]) -> None:
    desk = Desk(kind, choppy=1.0, window=40)
    told = desk.send(*(request(Op.PUT, f"k{number}", f"value{number}") for number in range(30)))
    desk.stage.wait(5)
    assert [[outcome.status for outcome in each] for each in told] == [[Status.OK]] * 30
    assert desk.ask(request(Op.GET, "k29")) == b"value29"


def test_each_request_is_what_the_official_client_writes() -> None:
    asked = Request(
        Op.PUT,
        "m",
        [3],
        b"\xff\xff\xff\xf5key",
        b"\xff\xff\xff\xf5value",
        b"\xff\xff\xff\xf5old",
        [],
        500,
        700,
    )
    key, value, expected = map(official_data, (asked.key, asked.value, asked.expected))
    items = msgspec.structs.replace(asked, items=[asked.key, asked.value])
    official: dict[int, tuple[Any, tuple[Any, ...], Request]] = {
        0x010200: (map_get_codec, (key, 1), asked),
        0x010600: (map_contains_key_codec, (key, 1), asked),
        0x011D00: (map_get_entry_view_codec, (key, 1), asked),
        0x010100: (map_put_codec, (key, value, 1, 500), asked),
        0x014400: (map_put_with_max_idle_codec, (key, value, 1, 500, 700), asked),
        0x010F00: (map_set_codec, (key, value, 1, 500), asked),
        0x014700: (map_set_with_max_idle_codec, (key, value, 1, 500, 700), asked),
        0x010E00: (map_put_if_absent_codec, (key, value, 1, 500), asked),
        0x014600: (map_put_if_absent_with_max_idle_codec, (key, value, 1, 500, 700), asked),
        0x010400: (map_replace_codec, (key, value, 1), asked),
        0x010500: (map_replace_if_same_codec, (key, expected, value, 1), asked),
        0x010300: (map_remove_codec, (key, 1), asked),
        0x010900: (map_delete_codec, (key, 1), asked),
        0x010800: (map_remove_if_same_codec, (key, expected, 1), asked),
        0x014300: (map_set_ttl_codec, (key, 500), asked),
        0x011E00: (map_evict_codec, (key, 1), asked),
        0x010C00: (map_try_put_codec, (key, value, 1, 0), asked),
        0x010B00: (map_try_remove_codec, (key, 1, 0), asked),
        0x012300: (map_get_all_codec, ([key],), msgspec.structs.replace(asked, items=[asked.key])),
        0x012C00: (map_put_all_codec, ([(key, value)], False), items),
        0x012A00: (map_size_codec, (), asked),
        0x010700: (map_contains_value_codec, (value,), asked),
        0x012200: (map_key_set_codec, (), asked),
        0x012400: (map_values_codec, (), asked),
        0x012500: (map_entry_set_codec, (), asked),
        0x012D00: (map_clear_codec, (), asked),
        0x011F00: (map_evict_all_codec, (), asked),
        0x012B00: (map_is_empty_codec, (), asked),
    }
    assert set(official) == {kind for kinds in KINDS.values() for kind in kinds if kind}
    for kind, (written, parameters, wanted) in official.items():
        message: OutboundMessage = written.encode_request("m", *parameters)
        message.set_correlation_id(9)
        message.set_partition_id(3)
        ours = encode(kind, 9, 3, wanted)
        theirs = bytes(message.buf)
        if kind == 0x012C00:
            # Whether a map loader is to be asked comes last, and nothing here needs it.
            theirs = _without_last_fixed_byte(theirs)
        assert ours == theirs, hex(kind)


def _without_last_fixed_byte(message: bytes) -> bytes:
    length = int.from_bytes(message[:4], "little")
    return (length - 1).to_bytes(4, "little") + message[4 : length - 1] + message[length:]


def test_each_refusal_is_known_by_its_error() -> None:
    for status in set(Status) - {Status.OK, Status.UNKNOWN}:
        code, reason = refusal(Outcome(status, None, "for some reason"))
        assert status_of(code.number, reason) is status


# -- faults of connections


@pytest.mark.parametrize("kind", BOTH)
def test_a_write_on_a_connection_that_breaks_is_unknown_and_a_read_is_asked_again(kind: type[Client]) -> None:
    desk = Desk(kind, repeats=False)
    desk.ask(request(Op.SET, "a", "one1"))
    owner = desk.stage.owner_of("a")
    write, read = desk.send(request(Op.SET, "a", "two2"), request(Op.GET, "a"))
    desk.client.break_line(desk.line_to(owner))
    desk.stage.wait(3)
    assert [outcome.status for outcome in write] == [Status.UNKNOWN]
    assert [outcome.status for outcome in read] == [Status.OK]
    assert desk.client.counts["redone"] == 1
    assert owner.host in desk.client.lines, "connected again"


def test_a_client_of_the_own_protocol_repeats_a_write_which_is_applied_once() -> None:
    desk = Desk(OwnClient)
    desk.ask(request(Op.SET, "a", "old1"))
    line = desk.line_to(desk.stage.owner_of("a"))
    line.stream.stall(True)
    (told,) = desk.send(request(Op.PUT_IF_ABSENT, "b", "new1"))
    (removed,) = desk.send(request(Op.REMOVE, "a"))
    desk.stage.wait(0.5)
    assert told == removed == []
    for other in list(desk.client.lines.values()):
        desk.client.break_line(other)
    desk.stage.wait(3)
    assert [outcome.value for outcome in removed] == [b"old1"], "the answer of the first time"
    assert [(outcome.status, outcome.value) for outcome in told] == [(Status.OK, None)]
    assert desk.client.counts["redone"] >= 1


@pytest.mark.parametrize("redo", [False, True])
def test_a_hazelcast_client_repeats_a_write_only_if_it_is_told_to(redo: bool) -> None:
    desk = Desk(HazelcastClient, redo=redo)
    (told,) = desk.send(request(Op.SET, "a", "one1"))
    desk.client.break_line(desk.line_to(desk.stage.owner_of("a")))
    desk.stage.wait(3)
    assert [outcome.status for outcome in told] == [Status.OK if redo else Status.UNKNOWN]


@pytest.mark.parametrize("kind", BOTH)
def test_what_was_never_sent_is_refused_when_it_is_given_up(kind: type[Client]) -> None:
    stage = Stage(3)
    client = kind(
        "c", stage.world, Doors(stage.world, stage.cluster), random.Random(1), Manners(patience_ns=SECOND)
    )
    told: list[Outcome] = []
    for process in stage.processes:
        process.crash()
    client.start()
    client.ask([(request(Op.SET, "a", "one1"), told.append)])
    stage.wait(3)
    assert [outcome.status for outcome in told] == [Status.NOT_READY]


@pytest.mark.parametrize("kind", BOTH)
def test_clients_find_the_next_primary(kind: type[Client]) -> None:
    desk = Desk(kind)
    desk.ask(request(Op.SET, "a", "one1"))
    desk.stage.owner_of("a").crash()
    (told,) = desk.send(request(Op.GET, "a"))
    desk.stage.wait(19)
    assert [outcome.value for outcome in told] == [b"one1"]


@pytest.mark.parametrize("kind", BOTH)
def test_a_member_that_stands_still_is_left_and_what_it_has_is_unknown(kind: type[Client]) -> None:
    desk = Desk(kind, silence_ns=2 * SECOND, repeats=False)
    desk.ask(request(Op.SET, "a", "one1"))
    owner = desk.stage.owner_of("a")
    owner.awake_at_ns = desk.world.now_ns + 60 * SECOND
    (told,) = desk.send(request(Op.SET, "a", "two2"))
    desk.stage.wait(8)
    assert [outcome.status for outcome in told] == [Status.UNKNOWN]
    assert desk.client.counts["silent connections given up"] >= 1


@pytest.mark.parametrize("kind", BOTH)
def test_a_write_that_no_backup_has_is_never_called_done(kind: type[Client]) -> None:
    desk = Desk(kind, repeats=False)
    desk.ask(request(Op.SET, "a", "one1"))
    desk.stage.isolate(desk.stage.owner_of("a"))
    told = desk.send(request(Op.SET, "a", "two2"), request(Op.DELETE, "a"), request(Op.PUT, "a", "six6"))
    desk.stage.wait(2)
    # Its owner has said so: nobody has missed it yet.
    assert desk.client.lines
    assert not desk.client.counts["connections lost"]
    assert [[outcome.status for outcome in each] for each in told] == [[Status.UNKNOWN]] * 3


@pytest.mark.parametrize("kind", BOTH)
def test_an_answer_that_comes_after_the_client_has_given_up_is_not_told(kind: type[Client]) -> None:
    desk = Desk(kind, patience_ns=SECOND)
    desk.ask(request(Op.SET, "a", "one1"))
    desk.stage.owner_of("a").awake_at_ns = desk.world.now_ns + 2 * SECOND
    (told,) = desk.send(request(Op.SET, "a", "two2"))
    desk.stage.wait(4)
    assert [outcome.status for outcome in told] == [Status.UNKNOWN]
    assert desk.ask(request(Op.GET, "a")) == b"two2", "it was applied all the same"


@pytest.mark.parametrize("kind", BOTH)
def test_bytes_wait_while_the_network_is_cut(kind: type[Client]) -> None:
    desk = Desk(kind)
    desk.ask(request(Op.SET, "a", "one1"))
    host = desk.stage.owner_of("a").host
    desk.world.weather.cut[host, "client"] = True
    (told,) = desk.send(request(Op.PUT, "a", "two2"))
    desk.stage.wait(2)
    assert told == []
    desk.stage.heal()
    desk.stage.wait(1)
    assert [outcome.value for outcome in told] == [b"one1"]
    assert not desk.client.counts["connections lost"]


@pytest.mark.rule("server/D-1")
def test_a_client_that_reads_nothing_is_not_served_for_ever() -> None:
    """What it leaves unread stops its own connection, and goes on when it reads again."""
    stage = Stage(1, settings=settings(0, limits={"output_buffer_bytes": 65_536}))
    client = HazelcastClient(
        "c",
        stage.world,
        Doors(stage.world, stage.cluster),
        random.Random(1),
        Manners(window=10_000, silence_ns=60 * SECOND, heartbeat_ns=600 * SECOND, patience_ns=60 * SECOND),
    )
    client.start()
    stage.wait(2)
    told: list[Outcome] = []
    client.ask([(request(Op.SET, "a", "x" * 5000), told.append)])
    stage.wait(1)
    (line,) = client.lines.values()
    line.stream.stall(True)
    client.ask([(request(Op.GET, "a"), told.append) for _ in range(200)])
    stage.wait(2)
    assert len(told) == 1
    unsent = line.stream.get_write_buffer_size()
    assert 0 < unsent < 200_000, "of a million bytes"
    line.stream.stall(False)
    stage.wait(10)
    assert [outcome.status for outcome in told] == [Status.OK] * 201


# -- backups


def test_acknowledgements_of_backups_are_collected_by_the_client() -> None:
    desk = Desk(HazelcastClient, acks="client", backups=2)
    names = [f"k{number}" for number in range(10)]
    # The first request of a connection for a map takes the general way, where the owner waits.
    for _ in range(2):
        desk.send(*(request(Op.SET, name, "some") for name in names))
        desk.stage.wait(1)
        desk.client.counts, before = Counter(), desk.client.counts
    assert before["hazelcast OK"] == before["answers that expect backups"] == 10
    assert before["backup acks"] == 20


def test_without_the_setting_or_without_the_offer_the_owner_waits() -> None:
    for desk in (Desk(HazelcastClient), Desk(HazelcastClient, acks="client", backup_acks=False)):
        desk.ask(request(Op.SET, "a", "some"))
        assert not desk.client.counts["answers that expect backups"]
        assert not desk.client.counts["backup acks"]


@pytest.mark.parametrize("indeterminate_fails", [True, False])
def test_a_write_whose_backup_is_not_heard_is_unknown(indeterminate_fails: bool) -> None:
    desk = Desk(HazelcastClient, acks="client", indeterminate_fails=indeterminate_fails)
    (backup,) = desk.stage.backups_of("a")
    line = desk.line_to(backup)
    line.stream.stall(True)
    (told,) = desk.send(request(Op.SET, "a", "some"))
    desk.stage.wait(0.5)
    assert told == [], "the owner has answered, and its backup was not heard"
    assert desk.client.counts["answers that expect backups"] == 1
    desk.client.break_line(line)
    desk.stage.wait(4)
    assert desk.client.counts["backup acks that never came"] == 1
    # Official clients take silence for success, unless they are told not to.
    assert [outcome.status for outcome in told] == [Status.UNKNOWN if indeterminate_fails else Status.OK]


def test_the_owner_waits_where_the_client_has_no_connection_to_a_backup() -> None:
    desk = Desk(HazelcastClient, acks="client")
    (backup,) = desk.stage.backups_of("a")
    desk.client.wanted = list  # type: ignore[method-assign]
    desk.client.break_line(desk.line_to(backup))
    desk.stage.wait(1)
    desk.ask(request(Op.SET, "a", "some"))
    assert not desk.client.counts["answers that expect backups"]


# -- listeners


@pytest.mark.parametrize("smart", [True, False])
def test_a_listener_hears_of_each_change_once(smart: bool) -> None:
    desk = Desk(HazelcastClient, smart=smart)
    heard: list[EntryEvent] = []
    assert isinstance(desk.client, HazelcastClient)
    listening = desk.client.listen(MAP, heard.append)
    desk.stage.wait(1)
    assert len(listening.registered) == (3 if smart else 1)
    for number in range(10):
        desk.ask(request(Op.SET, f"k{number}", "some"))
    desk.ask(request(Op.PUT, "k3", "more"))
    desk.ask(request(Op.REMOVE, "k4"))
    kinds = [event.kind for event in heard]
    assert kinds == [EventKind.ADDED] * 10 + [EventKind.UPDATED, EventKind.REMOVED]
    assert (heard[10].key, heard[10].value, heard[10].old) == (wire_key("k3"), b"more", b"some")
    assert heard[10].member == desk.stage.owner_of("k3").driver.member.me
    desk.client.break_line(next(iter(desk.client.lines.values())))
    desk.stage.wait(2)
    assert listening.interruptions == 1
    assert len(listening.registered) == (3 if smart else 1), "registered again"


# -- whole runs


@pytest.mark.parametrize(("seed", "acks"), [(4, "owner"), *sampled([(103, "client"), (102, "client")], 2)])
def test_what_clients_are_told_under_faults_is_true(seed: int, acks: str) -> None:
    scene = Scene(seed, acks=acks)
    scene.play(10)
    assert scene.problems() == []
    counts = scene.counts()
    for what in ("hazelcast OK", "own OK", "connections lost", "redone", "views of owners", "tables"):
        assert counts[what], what
    assert bool(counts["backup acks"]) is (acks == "client")


@pytest.mark.parametrize("hash_seed", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_run_does_not_depend_on_the_hash_seed_of_the_process(hash_seed: str) -> None:
    code = (
        "from tests.lab.sim.callers import Scene; s = Scene(7, acks='client'); s.play(1); "
        "print(s.world.hash.hexdigest(), s.problems())"
    )
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    scene = Scene(7, acks="client")
    scene.play(1)
    assert found.stdout.split() == [scene.world.hash.hexdigest(), "[]"]
