"""The phases of exchanges as one member sees them."""

from __future__ import annotations

import pytest
from tests.core.seats import A, B, C, info, view_of

from holdfast.core.model import notices as n
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.partition_table import Assignment, Table
from holdfast.core.model.views import View
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table import exchange_history as under_test
from holdfast.core.partition_table.exchange_history import (
    ExchangeCause,
    ExchangeHistory,
    ExchangePhase,
    PartitionExchange,
)


class Watching:
    """The history of member C, with a clock."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.table = Table(4)
        self.history = ExchangeHistory(self.out, C, self.table)
        self.view: View | None = None

    def at(self, ms: int) -> Watching:
        self.out.now_ns = ms * MILLISECOND
        return self

    def sees(self, number: int, *members: MemberId, **more: object) -> None:
        old, new = self.view, view_of(number, *members, **more)
        before = {one.uuid for one in old.members} if old is not None else set()
        now = {one.uuid for one in new.members}
        self.view = new
        self.history.on_view(
            n.ViewInstalled(old, new, old is None, frozenset(before - now), frozenset(now - before))
        )

    def assigned(self, partition: int, version: int, *replicas: MemberId | None) -> None:
        row = Assignment(version, replicas)
        old = self.table.apply(partition, row)
        assert old is not None
        self.history.on_assignment(n.AssignmentChanged(partition, old, row))

    def leads(self, partition: int, counters_ms: int, switch_ms: int = 0) -> None:
        """From its activation until it serves."""
        self.history.on_activation(n.ActivationBegan(partition))
        self.out.now_ns += counters_ms * MILLISECOND
        self.history.on_leadership(n.LeadershipTaken(partition))
        self.out.now_ns += switch_ms * MILLISECOND
        self.history.on_serving(n.ServingBegan(partition))

    def only(self, partition: int) -> PartitionExchange:
        [one] = self.history.of_partition(partition)
        return one

    def times_ms(self, partition: int) -> tuple[int, int, int, int]:
        times = self.only(partition).times
        found = (times.wait, times.table, times.counters, times.switch)
        return (
            found[0] // MILLISECOND,
            found[1] // MILLISECOND,
            found[2] // MILLISECOND,
            found[3] // MILLISECOND,
        )


def test_failover_counts_from_the_new_topology() -> None:
    c = Watching()
    c.at(0).sees(1, A, B, C)
    c.assigned(2, 1, B, C)
    c.at(1_000).sees(2, A, C)
    c.at(1_040).assigned(2, 3, C, None)
    c.leads(2, counters_ms=5, switch_ms=2)
    one = c.only(2)
    assert (one.cause, one.before, one.phase) == (ExchangeCause.FAILOVER, "b", ExchangePhase.DONE)
    assert (one.topology.major, one.topology.minor) == (2, c.table.version)
    assert c.times_ms(2) == (0, 40, 5, 2)
    last = c.history.topologies[-1]
    assert (last.major, last.gone, last.left, last.joined) == (2, ["b"], [], [])
    assert last.exchanges == {ExchangeCause.FAILOVER: 1}
    assert last.last_ns == 47 * MILLISECOND


def test_move_counts_from_the_stop_of_writes() -> None:
    c = Watching()
    c.at(0).sees(1, A, B, C)
    c.assigned(0, 1, A, None)
    c.at(500).history.on_last_chunk(n.LastChunkReceived(0, 3 * MILLISECOND))
    c.at(520).assigned(0, 2, C, None)
    c.leads(0, counters_ms=1)
    assert (c.only(0).cause, c.only(0).before) == (ExchangeCause.MOVE, "a")
    assert c.times_ms(0) == (3, 20, 1, 0)


def test_former_handover_does_not_count_for_a_failover() -> None:
    c = Watching()
    c.at(0).sees(1, A, B, C)
    c.assigned(0, 1, A, C)
    c.at(100).history.on_last_chunk(n.LastChunkReceived(0, 7))
    c.at(9_000).sees(2, B, C)
    c.at(9_010).assigned(0, 5, C, None)
    c.leads(0, counters_ms=0)
    assert c.only(0).cause is ExchangeCause.FAILOVER
    assert c.times_ms(0) == (0, 10, 0, 0)


def test_handover_to_another_member_is_forgotten() -> None:
    c = Watching()
    c.at(0).sees(1, A, B, C)
    c.assigned(0, 1, A, C)
    c.history.on_last_chunk(n.LastChunkReceived(0, 7 * MILLISECOND))
    c.assigned(0, 2, B, C)
    c.at(50).assigned(0, 3, C, B)
    c.leads(0, counters_ms=0)
    assert c.times_ms(0) == (0, 0, 0, 0)


def test_first_owner_and_replica_that_is_back() -> None:
    c = Watching()
    c.at(0).sees(1, A, C)
    c.assigned(0, 1, C, A)
    c.leads(0, counters_ms=2)
    c.at(70).leads(0, counters_ms=4)
    first, again = c.history.of_partition(0)
    assert (first.cause, first.before) == (ExchangeCause.FIRST, "")
    assert (again.cause, again.before) == (ExchangeCause.REPLICA_BACK, "c")
    assert c.history.topologies[-1].exchanges == {ExchangeCause.FIRST: 1, ExchangeCause.REPLICA_BACK: 1}
    assert c.history.topologies[-1].longest.counters == 4 * MILLISECOND


@pytest.mark.rule("partition_table/X-2")
@pytest.mark.parametrize("again", [False, True])
def test_superseded_exchange_does_not_count(again: bool) -> None:
    """By another owner, or by another activation of the same one."""
    c = Watching()
    c.at(0).sees(1, A, C)
    c.assigned(0, 1, C, A)
    c.history.on_activation(n.ActivationBegan(0))
    assert c.history.open == 1
    c.at(900)
    if again:
        c.leads(0, counters_ms=1)
    else:
        c.assigned(0, 2, A, C)
        c.history.on_leadership(n.LeadershipTaken(0))
        c.history.on_serving(n.ServingBegan(0))
    first = next(iter(c.history.of_partition(0)))
    assert first.phase is ExchangePhase.SUPERSEDED
    assert c.history.open == 0
    topology = c.history.topologies[-1]
    assert sum(topology.exchanges.values()) == int(again)
    assert topology.longest.counters <= MILLISECOND


def test_resumed_partition_is_no_exchange() -> None:
    """A handover that is given up serves again, and so does a partition whose backups change."""
    c = Watching()
    c.at(0).sees(1, A, C)
    c.assigned(0, 1, C, A)
    c.leads(0, counters_ms=2)
    c.history.on_serving(n.ServingBegan(0))
    c.assigned(0, 2, C, None)
    c.history.on_serving(n.ServingBegan(0))
    assert c.times_ms(0) == (0, 0, 2, 0)
    assert c.history.topologies[-1].exchanges == {ExchangeCause.FIRST: 1}


def test_topology_names_what_has_changed() -> None:
    c = Watching()
    c.at(0).sees(1, A, C)
    c.sees(2, A, B, C)
    c.sees(3, A, C, left=[B])
    assert c.view is not None
    old = c.view
    restarted = view_of(4, A, C)
    restarted.members[0] = info(A, life=2)
    c.history.on_view(n.ViewInstalled(old, restarted, False, frozenset(), frozenset({A})))
    first, joined, left, back = c.history.topologies
    assert (first.first, first.joined, first.master) == (True, ["a", "c"], "a")
    assert (joined.first, joined.joined) == (False, ["b"])
    assert (left.left, left.gone) == (["b"], [])
    assert (back.restarted, back.joined, back.gone) == (["a"], [], [])
    assert back.state == "active"


def test_removed_member_keeps_what_it_saw() -> None:
    c = Watching()
    c.at(0).sees(1, A, C)
    c.history.on_view(n.ViewInstalled(c.view, None, False, frozenset(), frozenset()))
    assert [one.major for one in c.history.topologies] == [1]


@pytest.mark.rule("partition_table/X-1")
def test_history_is_bounded_and_counts_what_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "EXCHANGES", 3)
    monkeypatch.setattr(under_test, "TOPOLOGIES", 2)
    c = Watching()
    for number in range(1, 6):
        c.sees(number, A, C)
    c.assigned(0, 1, C, A)
    for _ in range(5):
        c.leads(0, counters_ms=1)
    assert [one.major for one in c.history.topologies] == [4, 5]
    assert len(list(c.history.of_partition(0))) == 3
    assert c.history.dropped == 2
    assert sum(c.history.topologies[-1].exchanges.values()) == 5, "all of them count"
