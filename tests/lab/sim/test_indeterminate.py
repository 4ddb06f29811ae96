"""When nobody can say what became of a write: what its caller is told, and what a second try does.

The stories of `IndeterminateOperationStateExceptionTest` in Hazelcast's suite, without those of transactions; and what
request ids add to them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, settings

from holdfast.actions.drain import Drain
from holdfast.core.events import ActionRequested
from holdfast.core.messages import Answer, Forward, Message, Replicate, Replicated
from holdfast.core.model.ids import MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.engine.link import HEADER
from holdfast.wire.codec import decode
from holdfast_lab.check import convergence
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

FAIL = {"unknown_writes": "fail"}
IMPATIENT = {"backup_timeout_ms": 1000}


def before(stage: Stage, kind: type[Message], strike: Callable[[Process, MemberId], None]) -> None:
    """Call `strike` once, when a message of this kind is about to leave."""

    def overhear(sender: Process, to: MemberId, packet: bytes) -> None:
        if len(packet) > HEADER.size and isinstance(decode(packet[HEADER.size :]), kind):
            stage.world.overhearing.remove(overhear)
            strike(sender, to)

    stage.world.overhearing.append(overhear)


def request(op: Op, key: str, value: str = "", request_id: bytes = b"") -> Request:
    raw = wire_key(key)
    return Request(op, MAP, [partition_of(raw, 0, 7)], raw, value.encode(), id=request_id)


def send(process: Process, what: Request) -> list[Outcome]:
    answers: list[Outcome] = []
    process.step(partial(process.driver.execute, what, answers.append))
    return answers


def stranger(stage: Stage, key: str) -> Process:
    """A process that holds nothing of the key's partition."""
    others = [stage.owner_of(key), *stage.backups_of(key)]
    return next(process for process in stage.processes if process not in others)


def settle(stage: Stage) -> None:
    """Let what was sent begin, and wait until all is well again."""
    stage.wait(0.5)
    stage.rest()


def counters(stage: Stage, key: str) -> set[int]:
    """Where the map's copies of the key's partition stand."""
    partition = partition_of(wire_key(key), 0, 7)
    copies = [member.copies.held.get(partition) for member in stage.cluster.members()]
    return {copy.open(MAP).counter for copy in copies if copy is not None}


# -- story 1: messages to the backup are lost


@pytest.mark.parametrize("by", ["owner", "stranger"])
@pytest.mark.parametrize("way", ["router", "lane"])
def test_a_write_whose_backup_is_not_reached_is_unknown_and_says_who_is_missing(by: str, way: str) -> None:
    stage = Stage(4, settings=settings(replication=IMPATIENT))
    owner, backup = stage.owner_of("a"), stage.backups_of("a")[0]
    stage.cut(owner, backup)
    answers: list[Outcome] = []
    if way == "lane":
        lane = owner.driver.member.lane
        copy = lane.serving[partition_of(wire_key("a"), 0, 7)]
        assert copy is not None

        def told(known: bool) -> None:
            status = Status.OK if known else Status.UNKNOWN
            answers.append(Outcome(status, None, lane.unknown_because))

        def write() -> None:
            owner.driver.enter()
            lane.set(copy, MAP, wire_key("a"), b"1", -1, -1, 0)
            lane.close_batch(told)
            owner.driver.leave_lane()

        owner.step(write)
    else:
        asked = owner if by == "owner" else stranger(stage, "a")
        answers = send(asked, request(Op.SET, "a", "1"))
    stage.wait(0.9)
    assert answers == [], "it is waited for so long"
    stage.wait(0.4)
    assert [answer.status for answer in answers] == [Status.UNKNOWN]
    assert str(backup.driver.member.me) in answers[0].detail
    assert "1 s" in answers[0].detail
    stage.heal()
    stage.rest()
    assert counters(stage, "a") == {1}, "the copies have become equal all the same"
    assert stage.get(owner, "a") == "1"
    assert stage.cluster.leftovers() == []


def test_who_asks_again_with_the_same_id_is_answered_when_the_backup_has_it() -> None:
    stage = Stage(4, settings=settings(replication=IMPATIENT))
    stage.put(stage.owner_of("a"), "a", "0")
    asked = stranger(stage, "a")
    owner, backup = stage.owner_of("a"), stage.backups_of("a")[0]
    stage.cut(owner, backup)
    once = request(Op.PUT, "a", "1", b"once")
    first = send(asked, once)
    stage.wait(1.3)
    assert [answer.status for answer in first] == [Status.UNKNOWN]
    again = send(asked, once)
    stage.wait(0.5)
    assert again == [], "no success before the backup has it"
    stage.heal()
    stage.wait(2)
    assert [(answer.status, answer.value) for answer in again] == [(Status.OK, b"0")]
    assert counters(stage, "a") == {2}


# -- story 2: the primary dies after it has begun


@pytest.mark.parametrize("moment", [Replicate, Answer])
def test_a_primary_that_dies_before_it_answers_leaves_it_unknown(moment: type[Message]) -> None:
    stage = Stage(4, settings=settings(replication=FAIL))
    asked = stranger(stage, "a")
    before(stage, moment, lambda sender, to: sender.crash())
    answers = send(asked, request(Op.SET, "a", "1"))
    settle(stage)
    assert [answer.status for answer in answers] == [Status.UNKNOWN]
    assert "left before it answered" in answers[0].detail


@pytest.mark.parametrize(
    ("moment", "old", "op"),
    [
        (Forward, b"0", Op.PUT),
        (Replicate, b"0", Op.PUT),
        (Replicated, b"0", Op.PUT),
        (Answer, b"0", Op.PUT),
        (Answer, True, Op.DELETE),
        (Answer, b"0", Op.REMOVE),
    ],
)
def test_with_an_id_it_is_done_once_and_answered_as_the_first_time(
    moment: type[Message], old: object, op: Op
) -> None:
    stage = Stage(4)
    stage.put(stage.owner_of("a"), "a", "0")
    asked, owner = stranger(stage, "a"), stage.owner_of("a")

    def strike(sender: Process, to: MemberId) -> None:
        owner.crash()

    before(stage, moment, strike)
    answers = send(asked, request(op, "a", "1"))
    settle(stage)
    assert [(answer.status, answer.value) for answer in answers] == [(Status.OK, old)]
    assert counters(stage, "a") == {2}, "applied once"
    assert stage.get(asked, "a") == ("1" if op is Op.PUT else None)


@ablated("apply-once")
def test_without_the_rule_it_is_applied_twice() -> None:
    stage = Stage(4)
    stage.put(stage.owner_of("a"), "a", "0")
    asked = stranger(stage, "a")
    before(stage, Answer, lambda sender, to: sender.crash())
    answers = send(asked, request(Op.PUT, "a", "1"))
    settle(stage)
    assert [(answer.status, answer.value) for answer in answers] == [(Status.OK, b"1")]
    assert counters(stage, "a") == {3}


def test_what_a_partition_remembers_moves_with_it() -> None:
    """The primary changes twice: by a crash, and by members that join, so that nobody of the first row is left."""
    stage = Stage(4, spare=3)
    stage.put(stage.owner_of("a"), "a", "0")
    once = request(Op.PUT, "a", "1", b"once")
    first = send(stage.owner_of("a"), once)
    stage.wait(1)
    holders = [stage.owner_of("a"), *stage.backups_of("a")]
    for index in range(4, 7):
        stage.processes.append(stage.cluster.start(index))
    stage.rest()
    for process in holders:
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
        stage.world.run_until(stage.world.now_ns + 120_000_000_000, stop=lambda p=process: p.dead)  # type: ignore[misc]
        assert process.dead
    stage.processes = [process for process in stage.processes if not process.dead]
    stage.rest()
    assert not {process.name for process in holders} & {
        process.name for process in (stage.owner_of("a"), *stage.backups_of("a"))
    }
    again = send(stage.processes[0], once)
    stage.wait(1)
    assert [answer.value for answer in (*first, *again)] == [b"0", b"0"]
    assert counters(stage, "a") == {2}


def test_many_entries_of_one_request_are_stored_once() -> None:
    stage = Stage(4)
    asked = stranger(stage, "a")
    raw = wire_key("a")
    items = [raw, b"1", raw, b"2"]
    whole = Request(Op.PUT_ALL, MAP, [partition_of(raw, 0, 7)], items=items)
    before(stage, Answer, lambda sender, to: sender.crash())
    answers = send(asked, whole)
    settle(stage)
    assert [answer.status for answer in answers] == [Status.OK]
    assert counters(stage, "a") == {2}


# -- story 3: reads


@pytest.mark.parametrize("unknown_writes", ["fail", "retry"])
def test_a_read_whose_answer_is_lost_with_the_primary_succeeds_on_the_new_one(unknown_writes: str) -> None:
    stage = Stage(4, settings=settings(replication={"unknown_writes": unknown_writes}))
    asked = stranger(stage, "a")
    stage.put(asked, "a", "1")
    before(stage, Answer, lambda sender, to: sender.crash())
    answers = send(asked, request(Op.GET, "a"))
    settle(stage)
    assert [(answer.status, answer.value) for answer in answers] == [(Status.OK, b"1")]


# -- story 5: a call that concerns members, not a partition


@pytest.mark.parametrize("op", [Op.SIZE, Op.CLEAR])
def test_a_call_of_all_members_of_which_one_leaves_is_not_unknown(op: Op) -> None:
    stage = Stage(4, settings=settings(replication=FAIL))
    for number in range(20):
        stage.put(stage.processes[0], f"k{number}", "1")
    asked = stranger(stage, "k0")
    before(stage, Answer, lambda sender, to: sender.crash())
    answers = send(asked, Request(op, MAP, list(range(7))))
    settle(stage)
    assert [answer.status for answer in answers] == [Status.OK]
    if op is Op.SIZE:
        assert answers[0].value == 20
    else:
        survivor = stage.cluster.living()[0]
        assert stage.get(survivor, "k0") is None
    assert convergence.judge(stage.cluster.pictures()) == []


# -- a minority


def test_what_waited_in_an_earlier_life_is_not_done_after_its_answer() -> None:
    """A primary that has not taken office yet keeps what others send to it. Then it is cut off, the next primary is
    asked, and finds a value: nothing is changed. Of that no id is kept; so what was kept must be forgotten.
    """
    stage = Stage(4)
    late, asker = stage.owner_of("a"), stranger(stage, "a")
    partition = partition_of(wire_key("a"), 0, 7)
    stage.put(late, "a", "first")
    office = late.driver.member.lane.leading
    office[partition] = None  # As between its row and its office.
    answers = send(asker, request(Op.PUT_IF_ABSENT, "a", "second"))
    stage.wait(1)
    assert late.driver.member.router.leftovers["parked requests"] == 1
    stage.isolate(late)
    stage.wait(10)
    assert [(answer.status, answer.value) for answer in answers] == [(Status.OK, b"first")]
    removed = send(asker, request(Op.REMOVE, "a"))
    stage.wait(1)
    assert [answer.value for answer in removed] == [b"first"]
    stage.heal()
    stage.rest()
    assert stage.get(asker, "a") is None
    assert stage.cluster.leftovers() == []


def test_a_primary_that_is_cut_off_keeps_a_bounded_amount_and_says_so() -> None:
    limit = 65_536
    stage = Stage(5, settings=settings(limits={"backlog_bytes": limit, "call_timeout_ms": 5000}))
    cut_off = stage.owner_of("a")
    stage.put(cut_off, "a", "0")
    stage.isolate(cut_off)
    member = cut_off.driver.member
    lane = member.lane
    partition = partition_of(wire_key("a"), 0, 7)
    outcomes: list[str] = []
    keep: list[list[Outcome]] = []

    def write(number: int) -> None:
        """As a session does: through the data lane, or, where that serves nothing, the general way."""
        cut_off.driver.enter()
        copy = lane.serving[partition]
        if copy is not None:
            lane.set(copy, MAP, wire_key("a"), bytes(1000), -1, -1, 0)
            lane.close_batch(lambda known: outcomes.append("ok" if known else "unknown"))
        cut_off.driver.leave_lane()
        if copy is None:
            keep.append(send(cut_off, request(Op.SET, "a", "x" * 1000)))

    for number in range(2000):
        cut_off.step(partial(write, number))
        stage.wait(0.01)
        assert lane.backlog.bytes < 2 * limit + 3000
    assert lane.backlog.refusing
    stage.wait(10)
    answers = [answer for answered in keep for answer in answered]
    assert len(answers) == len(keep) > 1500
    assert {answer.status for answer in answers} == {Status.NOT_READY}
    assert set(outcomes) == {"unknown"}
    read = send(cut_off, request(Op.GET, "a"))
    assert [answer.status for answer in read] == [Status.OK]
    stage.heal()
    stage.rest()
    assert lane.backlog.bytes == 0
    assert not lane.backlog.crowded
    assert stage.get(cut_off, "a") == "0"
    stage.put(cut_off, "a", "1")
    assert stage.cluster.leftovers() == []


def test_requests_that_a_cut_off_member_cannot_send_on_are_bounded_and_answered() -> None:
    stage = Stage(5, settings=settings(limits={"waiting_requests": 50, "call_timeout_ms": 5000}))
    cut_off = stranger(stage, "a")
    stage.isolate(cut_off)
    answers = [send(cut_off, request(Op.SET, "a", "1")) for _ in range(60)]
    reads = [send(cut_off, request(Op.GET, "a")) for _ in range(5)]
    assert [answer[0].status for answer in answers if answer] == [Status.NOT_READY] * 10
    assert [answer[0].status for answer in reads] == [Status.NOT_READY] * 5
    stage.wait(8)
    assert [answer[0].status for answer in answers[:50]] == [Status.UNKNOWN] * 50
    assert set(cut_off.driver.member.router.leftovers.values()) == {0}
    stage.heal()
    stage.rest()
    assert stage.cluster.leftovers() == []


def test_a_request_of_an_older_kind_has_no_id() -> None:
    """What has no id at the primary is applied each time it comes."""
    stage = Stage(3)
    owner = stage.owner_of("a")
    plain = msgspec.structs.replace(request(Op.PUT, "a", "1"), id=b"")
    answers = [send(owner, plain) for _ in range(2)]
    stage.wait(1)
    assert [answer.value for each in answers for answer in each] == [None, b"1"]
