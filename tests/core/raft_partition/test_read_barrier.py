"""Reads of a group's leader: when they are confirmed, and what they are answered."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.raft_partition.test_consensus_replication import NUMBER, SETTINGS, Maps, request

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.levels import ZONE_IDLE_TIMES
from holdfast.core.model.map_moves import CLOSED, PauseMap, encode_move
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft_partition.read_barrier import NOT_CONFIRMED, READ_AGAIN_NS, ReadBarrier
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.raft_partition.zone_replicas import NOT_LEADING, ZoneReplicas


class Reader:
    """The leader of a group, whose messages arrive only in `go`."""

    def __init__(self) -> None:
        self.maps = Maps()
        self.at = self.maps.leader
        for process in self.maps.cluster.processes.values():
            process.out.level = ZONE_IDLE_TIMES
        assert self.change(request(Op.SET, "a", "1")) == [Outcome(Status.OK)]

    @property
    def replica(self) -> ZonePartition:
        return self.maps.partitions[self.at]

    @property
    def reads(self) -> ReadBarrier:
        return self.replica.reads

    @property
    def zone(self) -> ZoneReplicas:
        return self.replica._zone

    def change(self, asked: Request) -> list[Outcome]:
        answers = self.maps.ask(self.at, asked)
        self.go()
        return answers

    def submit(self, asked: Request) -> list[Outcome]:
        answers: list[Outcome] = []
        self.reads.submit(asked, answers.append)
        return answers

    def flush(self) -> None:
        self.replica.flush()
        self.maps.end_step(self.at)

    def go(self) -> None:
        self.flush()
        self.maps.cluster.go(3)

    def read(self, asked: Request) -> Outcome:
        answers = self.submit(asked)
        self.go()
        [answer] = answers
        return answer

    def pass_time(self, ns: int) -> None:
        self.zone.out.now_ns += ns
        self.reads.expire(self.zone.out.now_ns)


GET = request(Op.GET, "a")


@pytest.mark.rule("raft_partition/Z-2")
def test_the_reads_of_a_step_share_a_confirmation_and_later_ones_share_the_next() -> None:
    reader = Reader()
    first = [reader.submit(GET), reader.submit(GET)]
    reader.flush()
    assert (reader.zone.contexts, reader.reads.unanswered) == (1, 2)
    second = [reader.submit(GET), reader.submit(GET)]
    reader.flush()
    assert (reader.zone.contexts, reader.reads.unanswered) == (1, 4)
    reader.maps.cluster.go(3)
    assert first == [[Outcome(Status.OK, b"1")]] * 2
    assert second == [[], []]
    reader.go()
    assert second == first and reader.zone.contexts == 2
    reader.flush()
    assert (reader.zone.contexts, reader.reads.unanswered) == (2, 0), "none is requested without a read"


@pytest.mark.rule("raft_partition/Z-2")
def test_a_lost_confirmation_is_requested_again_until_the_timeout() -> None:
    reader = Reader()
    answers = reader.submit(GET)
    reader.flush()
    reader.pass_time(READ_AGAIN_NS - 1)
    assert reader.zone.contexts == 1
    reader.pass_time(1)
    assert reader.zone.contexts == 2
    reader.pass_time(READ_AGAIN_NS - 1)
    assert reader.zone.contexts == 2
    reader.pass_time(reader.zone.timeout_ns - 2 * READ_AGAIN_NS)
    assert answers == []
    reader.pass_time(1)
    assert answers == [NOT_CONFIRMED] and reader.reads.unanswered == 0
    assert NOT_CONFIRMED.status is Status.NOT_READY
    assert READ_AGAIN_NS == 500 * MILLISECOND


@pytest.mark.rule("raft_partition/Z-2")
def test_a_read_is_answered_by_the_second_confirmation_if_the_first_is_lost() -> None:
    reader = Reader()
    answers = reader.submit(GET)
    reader.flush()
    reader.maps.cluster.network.clear()
    reader.pass_time(READ_AGAIN_NS)
    reader.go()
    assert answers == [Outcome(Status.OK, b"1")]


@pytest.mark.rule("raft_partition/Z-2")
def test_reads_of_a_member_that_leads_no_more_are_rejected() -> None:
    reader = Reader()
    asked = reader.submit(GET)
    reader.flush()
    waiting = reader.submit(GET)
    reader.replica.stop()
    assert asked == waiting == [NOT_LEADING]
    assert reader.reads.unanswered == 0


def test_reads_are_rejected_when_the_group_takes_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    answers = reader.submit(GET)

    def refuse(number: int, context: bytes) -> None:
        raise ProposalRefused("no leader")

    monkeypatch.setattr(reader.zone.groups, "read", refuse)
    reader.reads.flush()
    assert answers == [NOT_LEADING] and reader.reads.unanswered == 0


@pytest.mark.rule("raft_partition/Z-8")
def test_a_map_that_was_paused_while_the_read_waited_is_not_read() -> None:
    reader = Reader()
    pause = Request(Op.MOVE, "m", [3], value=encode_move(PauseMap(1, 1)))
    reader.maps.replications[reader.at].propose(pause, lambda outcome: None)
    reader.go()
    assert reader.read(GET) == CLOSED


def test_values_that_are_too_long_together_are_not_sent() -> None:
    reader = Reader()
    limits = msgspec.structs.replace(SETTINGS.limits, answer_bytes=9)
    reader.zone.settings = msgspec.structs.replace(SETTINGS, limits=limits)
    for value, status in (("123456", Status.OK), ("1234567", Status.TOO_LARGE)):
        reader.change(request(Op.SET, "b", value))
        answer = reader.read(request(Op.GET_ALL, items=[b"a", b"b"]))
        assert answer.status is status, answer
        assert (answer.value is None) == (status is Status.TOO_LARGE)
    assert "9 bytes" in answer.detail
    assert reader.read(request(Op.ENTRY_VIEW, "b")).status is Status.OK


def used(reader: Reader) -> Request:
    """A read that counts as a use of its entry, and has to be in the log (raft_partition/Z-9)."""
    reader.change(request(Op.SET, "used", "v", "ends"))
    reader.zone.out.epoch_ms += 20_000
    asked = request(Op.GET, "used", name="ends")
    assert reader.replica.state.must_log(asked, reader.zone.out.wall_ms())
    return asked


@pytest.mark.rule("raft_partition/Z-9")
def test_a_read_that_is_a_use_is_answered_from_the_log() -> None:
    reader = Reader()
    asked = used(reader)
    index = reader.replica.state.index
    assert reader.read(asked) == Outcome(Status.OK, b"v")
    assert reader.replica.state.index == index + 1 and reader.zone.contexts == 0
    assert reader.read(asked) == Outcome(Status.OK, b"v")
    assert reader.replica.state.index == index + 1, "so soon it needs no entry"


@pytest.mark.rule("raft_partition/Z-9")
def test_a_use_whose_outcome_is_unknown_or_lost_is_a_read_that_was_not_confirmed() -> None:
    reader = Reader()
    asked = used(reader)
    answers = reader.submit(asked)
    reader.flush()
    reader.replica.proposals.expire(reader.zone.out.now_ns + 10**15)
    assert answers == [NOT_CONFIRMED]
    answers = reader.submit(asked)
    reader.replica.proposals.lose_waiting()
    assert answers == [NOT_LEADING]


def test_a_local_read_waits_for_nothing() -> None:
    reader = Reader()
    reader.change(request(Op.SET, "a", "near", "near"))
    assert reader.submit(request(Op.GET, "a", name="near")) == [Outcome(Status.OK, b"near")]
    assert reader.zone.contexts == 0
    assert reader.maps.cluster[reader.at + 1].groups.hosted[NUMBER].group.leading is not None
