"""Limits, late ticks, reads that wait, and replicas that end while their writes are on the way to the disk."""

from __future__ import annotations

import pytest
from tests.core.multiraft.group_cluster import ONE, Cluster, given, hosted, led, raft

from holdfast.core.model.ids import METASTORE_GROUP, GroupNumber
from holdfast.core.multiraft.group_host import LATE_COUNTS, LATE_TICKS, TICK_NS
from holdfast.core.multiraft.hosted_group import LeadChanged
from holdfast.core.raft.raft_messages import RaftKind, RaftMessage


@pytest.mark.rule("multiraft/H-6")
def test_only_each_third_late_tick_counts_for_a_follower() -> None:
    """A tick is late when more than two intervals have passed since the one before. The first tick is never late."""
    groups = led()[2].groups
    clock = groups._out
    assert groups._ticked_ns == 0

    def follows(passed_ns: int) -> bool:
        clock.now_ns += passed_ns
        return groups._follows_now()

    assert follows(1000 * TICK_NS)
    assert follows(TICK_NS)
    assert follows(LATE_TICKS * TICK_NS), "exactly two intervals are not late"
    late = LATE_TICKS * TICK_NS + 1
    assert [follows(late) for _ in range(2 * LATE_COUNTS)] == [False, False, True, False, False, True]
    assert follows(TICK_NS)
    assert [follows(late) for _ in range(LATE_COUNTS)] == [False, False, True], "the count starts again"


@pytest.mark.rule("multiraft/H-6")
def test_a_leader_counts_late_ticks() -> None:
    """Followers that get no heartbeats campaign, so a leader sends them however late its ticks come."""
    cluster = led()
    groups = cluster[1].groups
    groups.rouse(ONE)
    groups.hosted[ONE].asleep = False
    groups._out.now_ns = 10 * TICK_NS
    groups.on_timer()
    for _ in range(2):
        cluster.network.clear()
        groups._out.now_ns += 3 * TICK_NS
        groups.on_timer()
        cluster[1].end_step()
        assert raft(cluster, RaftKind.HEARTBEAT, 1)


def test_a_read_waits_until_its_index_is_applied() -> None:
    cluster = led()
    groups, client = cluster[1].groups, cluster[1].clients[ONE]
    hosted(cluster, 1).reads = [(1, b"now"), (99, b"later")]
    groups.flush()
    groups.rounds.ready.add(ONE)
    groups.flush()
    assert [context for context, _ in client.ready] == [b"now"]
    assert hosted(cluster, 1).reads == [(99, b"later")]
    assert groups.leftovers["reads of groups"] == 1
    groups.rounds.ask(ONE, b"another")
    assert groups.leftovers["reads of groups"] == 2


@pytest.mark.parametrize(("number", "kept"), [(METASTORE_GROUP, 6 * 150 << 10), (ONE, 2 * 25 << 10)])
def test_a_log_is_cut_after_a_mebibyte_or_64_kibibytes(number: GroupNumber, kept: int) -> None:
    """A member has one metastore and hundreds of other groups."""
    cluster = Cluster(1)
    cluster.start(number, 1)
    cluster.go(30)
    log = cluster[1].groups.hosted[number].group.log
    base, each = log.base, 150 << 10 if number == METASTORE_GROUP else 25 << 10
    for _ in range(kept // each):
        cluster.propose(1, b"x" * each, group=number)
        cluster.go(1)
    assert log.base == base
    cluster.propose(1, b"x" * each, group=number)
    cluster.go(1)
    assert log.base > base


def test_the_step_of_a_replica_that_was_stopped_ends() -> None:
    cluster = led()
    groups = cluster[1].groups
    groups.propose(ONE, [b"x"])
    groups.stop(ONE)
    cluster[1].end_step()
    assert raft(cluster, RaftKind.APPEND) == []


def test_a_member_sends_nothing_to_itself() -> None:
    cluster = Cluster(3)
    sent: list[tuple[str, str]] = []
    deliver = cluster.deliver

    def watched() -> None:
        sent.append(cluster.network[0][:2])
        deliver()

    cluster.deliver = watched  # type: ignore[method-assign]
    cluster.start(ONE, 1, 2, 3)
    cluster.go(30)
    cluster.propose(1, b"x")
    cluster.go(3)
    assert sent and [pair for pair in sent if pair[0] == pair[1]] == []


def test_clients_hear_of_a_lead_once() -> None:
    cluster = led()
    before = [notice for notice in cluster[1].clients[ONE].notices if isinstance(notice, LeadChanged)]
    for _ in range(3):
        cluster.propose(1, b"x")
        cluster.quiesce()
    after = [notice for notice in cluster[1].clients[ONE].notices if isinstance(notice, LeadChanged)]
    assert after == before


@pytest.mark.parametrize("files", [True, False])
def test_what_was_applied_before_a_replica_is_abandoned_is_gone(*, files: bool) -> None:
    cluster = led(files)
    for data in (b"x", b"y"):
        cluster.propose(1, data)
        cluster.quiesce()
    two = cluster[2]
    assert two.clients[ONE].applied == [b"x"], "the second is committed, and two has not heard of it"
    given(
        two,
        RaftMessage(
            kind=RaftKind.HEARTBEAT, to=cluster.node(2), sender=cluster.node(1), term=9, generation=3
        ),
        1,
    )
    assert two.clients[ONE].applied == []
