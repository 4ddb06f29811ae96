"""Changes on their way through a group's log."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.raft_partition.test_consensus_replication import NUMBER, Maps, request

from holdfast.core.model.levels import ZONE_IDLE_TIMES
from holdfast.core.model.map_moves import CLOSED
from holdfast.core.model.operations import DEFAULT_TTL, Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneChanges, ZoneRequests, ZoneWrites
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft_partition import proposals as module
from holdfast.core.raft_partition.proposals import (
    BEHIND,
    DONE,
    LATE,
    LOCKED,
    LOST,
    PARTLY,
    PROPOSED_MOST,
    REQUEST,
    STOPPED,
    Proposals,
    Proposed,
    answer_proposed,
)
from holdfast.core.raft_partition.state_machine import Applied, Unapplied
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.raft_partition.zone_replicas import NOT_LEADING


class Leader:
    def __init__(self) -> None:
        self.maps = Maps()
        self.at = self.maps.leader
        for process in self.maps.cluster.processes.values():
            process.out.level = ZONE_IDLE_TIMES

    @property
    def replica(self) -> ZonePartition:
        return self.maps.partitions[self.at]

    @property
    def proposals(self) -> Proposals:
        return self.replica.proposals

    @property
    def last(self) -> int:
        return self.maps.cluster[self.at + 1].groups.hosted[NUMBER].group.log.last

    def submit(self, *requests: Request) -> list[Outcome]:
        """Propose them in one step, if there is room; nothing arrives yet."""
        outcomes: list[Outcome] = []
        for each in requests:
            self.proposals.submit(each, outcomes.append)
        self.flush()
        return outcomes

    def flush(self) -> None:
        self.replica.flush()
        self.maps.end_step(self.at)

    def go(self) -> None:
        self.maps.cluster.go(3)
        self.flush()
        self.maps.cluster.go(3)

    def value(self, key: str, name: str = "m") -> bytes | None:
        return self.replica.look(3, name, key.encode())


def put(key: str, value: str = "v", **more: object) -> Request:
    return request(Op.PUT, key, value, **more)


def test_changes_wait_while_two_entries_are_in_flight() -> None:
    leader = Leader()
    proposals, last = leader.proposals, leader.last
    first, second, third = (leader.submit(put("a", value)) for value in "123")
    assert PROPOSED_MOST == 2
    assert (leader.last, len(proposals.placed), len(proposals.waiting)) == (last + 2, 2, 1)
    assert proposals.unanswered == 3
    fourth = leader.submit(put("a", "4"))
    assert proposals.unanswered == 4
    leader.go()
    assert [each.value for each in (*first, *second, *third, *fourth)] == [None, b"1", b"2", b"3"]
    assert leader.last == last + 3 and proposals.unanswered == 0


def test_the_oldest_entry_is_shown_with_its_start() -> None:
    leader = Leader()
    assert leader.proposals.oldest() is None
    began_ns = leader.replica._out.now_ns
    leader.submit(put("a"), put("b"), put("c"))
    leader.replica._out.now_ns += 1000
    leader.submit(put("d"))
    assert leader.proposals.oldest() == (3, began_ns)


def test_an_entry_is_not_much_longer_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMAND_BYTES", 400)
    leader = Leader()
    last = leader.last
    leader.submit(*(put(f"k{number}", "x" * 150) for number in range(4)))
    assert leader.last == last + 2, "two each: the bytes of keys, values and what surrounds them"
    leader.go()
    big = leader.submit(put("big", "x" * 1000))
    leader.go()
    assert [outcome.status for outcome in big] == [Status.OK], "at least one"
    last = leader.last
    writes: list[ZoneChanges] = [ZoneWrites([("m", b"k", b"y" * 450, 0, 0)], 3)]
    outcomes: list[Outcome] = []
    for _ in range(2):
        leader.proposals.change(list(writes), outcomes.append)
    leader.proposals.submit(request(Op.PUT_ALL, items=[b"i", b"z" * 450]), outcomes.append)
    leader.proposals.submit(put("last"), outcomes.append)
    leader.flush()
    assert leader.last == last + 2
    leader.go()
    assert leader.last == last + 4 and len(outcomes) == 4


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((DEFAULT_TTL, DEFAULT_TTL), (60_000, 30_000)),
        ((DEFAULT_TTL, 7), (60_000, 7)),
        ((7, DEFAULT_TTL), (7, 30_000)),
        ((7, 8), (7, 8)),
    ],
)
def test_a_change_gets_the_lifetimes_of_its_map_where_it_names_none(
    given: tuple[int, int], kept: tuple[int, int]
) -> None:
    leader = Leader()
    asked = msgspec.structs.replace(put("a", name="ends"), ttl_ms=given[0], max_idle_ms=given[1])
    leader.submit(asked)
    leader.go()
    [expiry] = leader.replica.state.copies[3].maps["ends"].state.expiries.values()
    assert (expiry.ttl_ms, expiry.max_idle_ms) == kept


def test_requests_that_store_nothing_or_set_their_own_time_get_no_lifetimes() -> None:
    leader = Leader()
    unset = {"ttl_ms": DEFAULT_TTL, "max_idle_ms": DEFAULT_TTL}
    for op in (Op.REMOVE, Op.SET_TTL):
        asked = msgspec.structs.replace(request(op, "a", name="ends"), **unset)
        assert leader.proposals._with_lifetimes(asked) is asked
    plain = msgspec.structs.replace(put("a"), **unset)
    assert leader.proposals._with_lifetimes(plain) is plain, "its map has none"


# -- outcomes


@pytest.mark.rule("raft_partition/Z-1")
@pytest.mark.parametrize("why", ["another term", "follower", "refused"])
def test_a_change_that_is_not_proposed_is_rejected(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader()
    last = leader.last
    if why == "another term":
        leader.replica.term += 1
    elif why == "follower":
        leader.replica.term = 0
    else:

        def refuse(number: int, data: list[bytes]) -> int:
            raise ProposalRefused("a transfer is in progress")

        monkeypatch.setattr(leader.replica._zone.groups, "propose", refuse)
    assert leader.submit(put("a"), put("b")) == [NOT_LEADING] * 2
    assert leader.last == last and leader.proposals.unanswered == 0


@pytest.mark.rule("raft_partition/Z-1")
def test_a_change_whose_entry_another_leader_replaced_was_not_applied() -> None:
    for term, expected in ((4, Outcome(Status.OK, b"old")), (5, LOST)):
        outcomes: list[Outcome] = []
        answer_proposed(Proposed(4, 0, [(outcomes.append, REQUEST)]), RaftEntry(term, 17), [b"old"])
        assert outcomes == [expected]
    assert LOST.status is Status.MOVED


def test_changes_behind_which_the_log_went_on_without_them_are_lost() -> None:
    leader = Leader()
    first, second = leader.submit(put("a")), leader.submit(put("b"))
    start = min(leader.proposals.placed)
    assert leader.proposals.take(start - 1) is None and not first
    found = leader.proposals.take(start + 1)
    assert found is not None and first == [LOST] and not second
    assert not leader.proposals.placed


@pytest.mark.rule("raft_partition/Z-1")
def test_changes_time_out_with_those_behind_them() -> None:
    leader = Leader()
    out, timeout_ns = leader.replica._out, leader.replica._zone.timeout_ns
    first = leader.submit(put("a"))
    out.now_ns += 10
    second, third = leader.submit(put("b")), leader.submit(put("c"))
    leader.proposals.expire(out.now_ns - 11 + timeout_ns)
    assert not first
    leader.proposals.expire(out.now_ns - 10 + timeout_ns)
    assert (first, second, third) == ([LATE], [], [NOT_LEADING])
    late: list[Outcome] = []
    leader.proposals.expire(out.now_ns + timeout_ns)
    leader.proposals.after(late.append)
    assert (second, late) == ([LATE], [BEHIND])
    leader.go()
    leader.proposals.after(late.append)
    assert late == [BEHIND, DONE], "they are applied by now"
    assert (LATE.status, BEHIND.status) == (Status.UNKNOWN, Status.MOVED)


def test_a_barrier_is_answered_with_the_changes_before_it() -> None:
    leader = Leader()
    outcomes: list[Outcome] = []
    leader.proposals.after(outcomes.append)
    assert outcomes == [DONE]
    put_first = leader.submit(put("a"))
    last = leader.last
    leader.proposals.after(outcomes.append)
    leader.flush()
    assert outcomes == [DONE] and leader.last == last, "it needs no entry"
    leader.go()
    assert len(put_first) == 1 and outcomes == [DONE] * 2


def test_what_a_replica_had_placed_is_unknown_when_it_stops() -> None:
    leader = Leader()
    placed, more = leader.submit(put("a")), leader.submit(put("b"))
    waiting = leader.submit(put("c"))
    leader.replica.stop()
    assert (placed, more, waiting) == ([STOPPED], [STOPPED], [NOT_LEADING])
    assert STOPPED.status is Status.UNKNOWN and leader.proposals.unanswered == 0


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([b"1", None], Outcome(Status.OK, [b"1", None])),
        ([Unapplied.CLOSED, Unapplied.CLOSED], CLOSED),
        ([Unapplied.LOCKED, Unapplied.LOCKED], LOCKED),
        ([Unapplied.LOCKED, None], PARTLY),
        ([None, Unapplied.LOCKED], PARTLY),
    ],
)
def test_a_batch_has_one_outcome(answers: list[Applied], expected: Outcome) -> None:
    outcomes: list[Outcome] = []
    after: list[Outcome] = []
    callbacks = [(outcomes.append, 2), (after.append, REQUEST)]
    answer_proposed(Proposed(4, 0, callbacks), RaftEntry(4, 17), [*answers, b"next"])
    assert (outcomes, after) == ([expected], [Outcome(Status.OK, b"next")])
    assert (LOCKED.status, PARTLY.status) == (Status.MOVED, Status.UNKNOWN)


@pytest.mark.rule("raft_partition/Z-8")
def test_writes_of_different_maps_share_no_part() -> None:
    leader = Leader()
    outcomes: list[Outcome] = []
    for name, key in (("m", b"a"), ("m", b"b"), ("n", b"c")):
        leader.proposals.change([ZoneWrites([(name, key, b"v", 0, 0)], 3)], outcomes.append)
    requests = [ZoneRequests([put("d")]), ZoneRequests([put("e")])]
    for one in requests:
        leader.proposals.change([one], outcomes.append)
    parts: list[ZoneChanges] = []
    for changes, _, _ in leader.proposals.waiting:
        for part in changes:
            module._add(parts, part)
    assert [len(part.writes) if isinstance(part, ZoneWrites) else len(part.requests) for part in parts] == [
        2,
        1,
        2,
    ]
    assert [len(one.requests) for one in requests] == [1, 1], "those of the caller stay as they were"
    leader.go()
    assert [outcome.value for outcome in outcomes] == [[None]] * 5


@pytest.mark.rule("raft_partition/Z-1")
def test_a_leader_that_is_elected_again_does_not_reject_what_its_log_still_has() -> None:
    """It may be committed yet."""
    leader = Leader()
    outcomes = leader.submit(put("a"))
    assert list(leader.proposals.placed) == [leader.last]
    leader.proposals.on_elected()
    assert not outcomes
    leader.go()
    assert [outcome.status for outcome in outcomes] == [Status.OK]


def test_a_barrier_that_waited_for_room_needs_no_entry_when_all_is_applied() -> None:
    leader = Leader()
    leader.submit(put("a"))
    leader.submit(put("b"))
    outcomes: list[Outcome] = []
    leader.proposals.after(outcomes.append)
    leader.maps.cluster.go(3)
    assert not outcomes and not leader.proposals.placed
    last = leader.last
    leader.flush()
    assert outcomes == [DONE] and leader.last == last
