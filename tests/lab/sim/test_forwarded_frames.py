"""Requests through a member that does not own their keys: they leave as frames, and each is applied once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, change, settings
from tests.server.hazelcast.one_member import text_data
from tests.server.hazelcast.test_lane_ways import GET, PUT, PUT_IF_ABSENT, REMOVE, SET, request
from tests.server.hazelcast.wire import Wire

from holdfast.actions.drain import Drain
from holdfast.config import Settings
from holdfast.core.events import ActionRequested
from holdfast.core.messages import Answer, Forward, ForwardFrames, FramesAnswer, Replicate
from holdfast.core.model.forwarded_frames import ServedPart
from holdfast.core.model.ids import SECOND
from holdfast.core.model.levels import LOWEST, FeatureLevels
from holdfast.core.model.views import ClusterState
from holdfast.wire.hazelcast.hazelcast_frames import RESPONSE, messages_in
from holdfast.wire.hazelcast.refusals import AGAIN, INDETERMINATE
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.clients.simulated_doors import ConnectionCounts, MarkedForwards, ProcessGrid, Turns
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

OLD = FeatureLevels(LOWEST, 7)
NEVER = 1 << 50
"""A time to live that the data lane leaves to the session."""


class Caller:
    """A client with one connection, whose requests go to one member."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self.stage = stage
        self.process = process
        grid = ProcessGrid(process, Turns(process), ConnectionCounts(Counter()))
        self.wire = Wire(grid, forwards=MarkedForwards(process))  # type: ignore[arg-type]
        process.step(lambda: self.wire.login(stage.settings.cluster.name))
        self.number = 0
        # The first request for a map is not for the data lane.
        self.send(self.of(GET, "first"))
        stage.wait(1)
        assert len(self.answers()) == 1

    def of(self, kind: int, key: str, value: str = "", ttl_ms: int = -1) -> bytes:
        self.number += 1
        stored = text_data(value)
        place = self.stage.partition(key)
        return request(
            kind, MAP, wire_key(key), stored, partition=place, ttl_ms=ttl_ms, word=0, number=self.number
        )

    def send(self, *messages: bytes) -> None:
        driver = self.process.driver

        def receive() -> None:
            driver.enter()
            self.wire.session.receive(b"".join(messages))
            self.wire.resume()
            driver.leave_lane()

        self.process.step(receive)

    def ask(self, *messages: bytes, seconds: float = 1) -> list[str]:
        """The responses in the order of the requests."""
        first = self.number - len(messages) + 1
        self.send(*messages)
        self.stage.wait(seconds)
        found = self.answers()
        return [found.get(number, "nothing") for number in range(first, self.number + 1)]

    def answers(self) -> dict[int, str]:
        """By correlation id: the value, "unknown", "again", or "done"."""
        found: dict[int, str] = {}
        whole, self.wire.sent[:] = b"".join(self.wire.sent), []
        for answer in messages_in(whole):
            _, _, kind, correlation, _ = RESPONSE.unpack_from(answer)
            assert correlation not in found, "a request is answered once"
            found[correlation] = read(kind, answer)
        return dict(sorted(found.items()))


def read(kind: int, answer: bytes) -> str:
    if kind == 0:
        names = {
            one.class_name.encode(): name for one, name in ((INDETERMINATE, "unknown"), (AGAIN, "again"))
        }
        return next((name for text, name in names.items() if text in answer), "error")
    for length in range(30):
        if answer.endswith(text_data(f"v{length}")):
            return f"v{length}"
    return "done"


class Door(Stage):
    """Members, a key, its owner, and a client of another member."""

    def __init__(
        self,
        chosen: Settings | None = None,
        *,
        spare: int = 0,
        builds: Sequence[FeatureLevels] = (),
    ) -> None:
        super().__init__(3, settings=chosen or settings(), spare=spare, builds=builds)
        self.owner = self.owner_of("a")
        (self.backup,) = self.backups_of("a")
        self.door = next(one for one in self.processes if one not in (self.owner, self.backup))
        self.caller = Caller(self, self.door)

    def crash(self, process: Process) -> None:
        process.crash()
        self.processes.remove(process)


def frames_of(caller: Caller) -> tuple[bytes, bytes, bytes]:
    return caller.of(SET, "a", "v1"), caller.of(GET, "a"), caller.of(REMOVE, "a")


def test_requests_leave_as_one_message_and_are_answered() -> None:
    stage = Door()
    seen = stage.seen(ForwardFrames, FramesAnswer, Forward, Answer)
    assert stage.caller.ask(*frames_of(stage.caller)) == ["done", "v1", "v1"]
    assert [type(one.message) for one in seen if stage.door in (one.sender, one.receiver)] == [
        ForwardFrames,
        FramesAnswer,
    ]
    stage.rest()
    assert stage.cluster.leftovers() == []


def test_connections_share_a_message() -> None:
    stage = Door()
    other = Caller(stage, stage.door)
    seen = stage.seen(ForwardFrames)
    stage.caller.send(stage.caller.of(SET, "a", "v1"))
    other.send(other.of(PUT, "a", "v2"))
    stage.wait(1)
    assert [len(one.message.parts) for one in seen] == [2]
    assert list(stage.caller.answers().values()) == ["done"]
    assert list(other.answers().values()) == ["v1"]


def test_requests_for_a_key_stay_in_order() -> None:
    """Those of the session, and those of the data lane."""
    stage = Door()
    caller = stage.caller
    asked = [
        caller.of(SET, "a", "v1"),
        caller.of(SET, "a", "v2", NEVER),
        caller.of(PUT, "a", "v3"),
        caller.of(PUT, "a", "v4", NEVER),
        caller.of(PUT, "a", "v5"),
        caller.of(GET, "a"),
    ]
    assert caller.ask(*asked) == ["done", "done", "v2", "v3", "v4", "v5"]


def first_frames(stage: Door, caller: Caller) -> list[bytes]:
    """A write that would answer otherwise if it were applied again."""
    assert caller.ask(caller.of(SET, "a", "v1")) == ["done"]
    return [caller.of(PUT, "a", "v2"), caller.of(GET, "a"), caller.of(PUT_IF_ABSENT, "b", "v3")]


@pytest.mark.rule("routing/R-15")
@pytest.mark.parametrize("lost", [ForwardFrames, FramesAnswer])
def test_owner_that_crashes_before_it_answers(lost: type[ForwardFrames | FramesAnswer]) -> None:
    """Whether it has applied the writes or not, they are applied once."""
    stage = Door()
    caller = stage.caller
    asked = first_frames(stage, caller)
    unblock = stage.block(lambda packet: isinstance(packet.message, lost))
    caller.send(*asked)
    stage.wait(0.3)
    stage.crash(stage.owner)
    unblock()
    stage.wait(10)
    found = caller.answers()
    assert next(iter(found.values())) == "v1"
    assert len(found) == 3
    stage.rest()
    assert stage.owner_of("a") is not stage.owner
    assert caller.ask(caller.of(GET, "a"), caller.of(GET, "b")) == ["v2", "v3"]
    assert stage.cluster.leftovers() == []


@ablated("apply-once")
def test_without_the_rule_a_forwarded_write_is_applied_twice() -> None:
    stage = Door()
    caller = stage.caller
    (asked, *_) = first_frames(stage, caller)
    unblock = stage.block(lambda packet: isinstance(packet.message, FramesAnswer))
    caller.send(asked)
    stage.wait(0.3)
    stage.crash(stage.owner)
    unblock()
    stage.wait(10)
    assert list(caller.answers().values()) == ["v2"]


@pytest.mark.rule("routing/R-15")
def test_write_without_an_id_is_unknown_when_its_owner_leaves() -> None:
    base = settings()
    chosen = msgspec.structs.replace(base.replication, unknown_writes="fail")
    stage = Door(msgspec.structs.replace(base, replication=chosen))
    caller = stage.caller
    asked = first_frames(stage, caller)[:2]
    caller.number = 3
    stage.block(lambda packet: isinstance(packet.message, FramesAnswer))
    caller.send(*asked)
    stage.wait(0.3)
    stage.crash(stage.owner)
    stage.wait(10)
    assert list(caller.answers().values()) == ["unknown", "v2"]


@pytest.mark.rule("routing/R-4")
def test_doubtful_write_is_never_rejected() -> None:
    """The next primary may not take it: the cluster is passive by then."""
    stage = Door()
    caller = stage.caller
    (asked, *_) = first_frames(stage, caller)
    stage.block(lambda packet: isinstance(packet.message, FramesAnswer))
    caller.send(asked)
    stage.wait(0.3)
    change(stage, ClusterState.PASSIVE)
    stage.crash(stage.owner)
    stage.wait(10)
    assert list(caller.answers().values()) == ["unknown"]


def test_outcome_is_unknown_when_backups_do_not_answer() -> None:
    stage = Door()
    caller = stage.caller
    asked = first_frames(stage, caller)[:2]
    stage.block(lambda packet: isinstance(packet.message, Replicate) and packet.sender is stage.owner)
    caller.send(*asked, caller.of(REMOVE, "never"))
    stage.wait(stage.settings.replication.backup_timeout_ms / 1000 + 1)
    found = list(caller.answers().values())
    assert "unknown" in found
    assert "v2" in found


@pytest.mark.rule("routing/R-3")
def test_frames_wait_for_an_answer_no_longer_than_the_call_timeout() -> None:
    stage = Door()
    caller = stage.caller
    asked = first_frames(stage, caller)[:2]
    stage.block(lambda packet: isinstance(packet.message, FramesAnswer))
    caller.send(*asked)
    stage.wait(2)
    picture = stage.door.picture
    (slow,) = picture.open_since(stage.world.now_ns - SECOND, {})
    assert (slow.kind, slow.count, slow.members) == ("forwarded", 2, (stage.owner.driver.member.me,))
    assert slow.places == {MAP: {stage.partition("a")}}
    assert caller.answers() == {}
    stage.wait(stage.settings.limits.call_timeout_ms / 1000)
    assert list(caller.answers().values()) == ["unknown", "again"]


@pytest.mark.rule("routing/R-6")
def test_waiting_frames_are_bounded() -> None:
    base = settings()
    limits = msgspec.structs.replace(base.limits, waiting_requests=10)
    stage = Door(msgspec.structs.replace(base, limits=limits))
    caller = stage.caller
    stage.block(lambda packet: isinstance(packet.message, FramesAnswer))
    for _ in range(4):
        caller.send(*(caller.of(GET, "a") for _ in range(3)))
    stage.wait(1)
    # Nine wait as frames, and one more as a request of its own.
    assert list(caller.answers().values()).count("again") == 2
    stage.wait(stage.settings.limits.call_timeout_ms / 1000 + 2)
    assert stage.door.driver.member.router.waiting._requests == 0


def test_member_of_an_older_build_gets_requests_one_by_one() -> None:
    stage = Door(builds=[OLD, OLD, FeatureLevels(LOWEST, 8)])
    seen = stage.seen(ForwardFrames, Forward)
    assert stage.caller.ask(*frames_of(stage.caller)) == ["done", "v1", "v1"]
    assert {type(one.message) for one in seen} == {Forward}


@pytest.mark.rule("routing/R-16")
def test_no_request_overtakes_one_that_the_owner_has_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Door()
    caller = stage.caller
    forwarding = stage.owner.driver.member.serving.forwarding
    server = forwarding._server
    assert server is not None
    real, calls = server.serve, []

    def serve(parts: Sequence[tuple[int, bytes]], ids: object, fenced: set[int]) -> list[ServedPart]:
        calls.append(parts)
        if len(calls) == 1:
            fenced.add(stage.partition("a"))
            return [ServedPart(b"", b"", [0])]
        return real(parts, ids, fenced)  # type: ignore[arg-type]

    monkeypatch.setattr(server, "serve", serve)
    caller.send(caller.of(SET, "a", "v1"))
    stage.wait(0.0001)
    caller.send(caller.of(SET, "a", "v2"))
    stage.wait(1)
    assert list(caller.answers().values()) == ["done", "done"]
    assert caller.ask(caller.of(GET, "a")) == ["v2"]
    assert caller.ask(caller.of(SET, "a", "v3")) == ["done"]
    assert len(calls) >= 4


def test_partitions_that_move_meanwhile() -> None:
    stage = Door(spare=1)
    caller = stage.caller
    keys = [f"k{number}" for number in range(30)]
    newcomer = stage.cluster.start(3)
    stage.processes.append(newcomer)
    newest: dict[str, str] = {}
    for turn in range(40):
        caller.send(*(caller.of(SET, key, f"v{turn % 20}") for key in keys))
        stage.wait(0.05)
        newest.update(dict.fromkeys(keys, f"v{turn % 20}"))
    stage.rest()
    assert list(caller.answers().values()) == ["done"] * 40 * len(keys)
    assert caller.ask(*(caller.of(GET, key) for key in keys)) == list(newest.values())
    assert stage.cluster.leftovers() == []


def test_passive_cluster_rejects_writes_here() -> None:
    stage = Door()
    change(stage, ClusterState.PASSIVE)
    seen = stage.seen(ForwardFrames)
    assert stage.caller.ask(*frames_of(stage.caller)) == ["error", "done", "error"]
    assert seen == []
    change(stage, ClusterState.ACTIVE)
    assert stage.caller.ask(*frames_of(stage.caller)) == ["done", "v1", "v1"]
    assert len(seen) == 1


@pytest.mark.rule("routing/R-8")
def test_member_that_does_not_take_in_answers_gets_frames_back() -> None:
    stage = Door()
    router = stage.owner.driver.member.router
    router.unread(stage.door.driver.member.me, too_many=True)
    seen = stage.seen(Forward, ForwardFrames)
    caller = stage.caller
    caller.send(caller.of(SET, "a", "v1"))
    stage.wait(1)
    assert [type(one.message) for one in seen] == [ForwardFrames, Forward]
    assert list(caller.answers().values()) == ["done"]


def test_client_that_leaves_is_not_answered() -> None:
    stage = Door()
    caller = stage.caller
    caller.send(*frames_of(caller))
    stage.door.step(caller.wire.session.closed)
    stage.wait(2)
    assert caller.wire.sent == []
    stage.rest()
    assert stage.cluster.leftovers() == []


@pytest.mark.rule("routing/R-17")
def test_a_member_that_leaves_owes_no_response() -> None:
    """It answers each request at once for a while before it ends: these were not applied, and the client retries."""
    stage = Door()
    caller, door = stage.caller, stage.door
    assert caller.ask(caller.of(SET, "a", "v1")) == ["done"]
    door.step(partial(door.driver.handle, ActionRequested(Drain())))
    found: list[str] = []
    members = 0
    while not door.dead:
        found.append(next(iter(caller.ask(caller.of(PUT, "a", "v2"), seconds=0.002))))
        members += not door.picture.has_left
    stage.processes.remove(door)
    rejected = found.index("again")
    assert {"done", "v1", "v2", "nothing"} >= set(found[:rejected]), "some responses take longer than 2 ms"
    assert set(found[rejected:]) == {"again"}
    assert members - rejected >= 50, "it rejects requests for 100 ms before it leaves"
