"""Groups of members that have files or none: written down, sent, asleep, restarted."""

from __future__ import annotations

import pytest
from tests.core.multiraft.group_cluster import ONE, Cluster

from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.messages import GroupMessages
from holdfast.core.model.ids import GROUPS_FROM
from holdfast.core.model.journal_entries import GroupWrote
from holdfast.core.multiraft import group_host, snapshot_transfer
from holdfast.core.multiraft.persistence import GroupHead, GroupWrite, encoded, regained
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.group import Group
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry, RaftSnapshot
from holdfast.core.raft.raft_state import ChangeApplied, HardState, LeaderElected, RaftRole
from holdfast.wire.codec import decode


@pytest.mark.parametrize("files", [True, False])
def test_what_is_proposed_anywhere_is_applied_everywhere_in_one_order(files: bool) -> None:
    cluster = Cluster(3, files=files)
    cluster.start(ONE, 1, 2, 3)
    cluster.go(30)
    assert [notice for notice in cluster.leader().clients[ONE].notices if isinstance(notice, LeaderElected)]
    for at in (1, 2, 3):
        cluster.propose(at, b"%d" % at)
    cluster.go(5)
    assert cluster.applied(1) == cluster.applied(2) == cluster.applied(3)
    assert sorted(cluster.applied(1)) == [b"1", b"2", b"3"]


@pytest.mark.rule("multiraft/H-1")
def test_nothing_is_promised_before_it_is_durable() -> None:
    """With disks that stand still nobody is elected, and with those of a majority nothing is committed."""
    cluster = Cluster(3)
    cluster.start(ONE, 1, 2, 3)
    for _ in range(40):
        for process in cluster.processes.values():
            process.groups.on_timer()
            process.end_step()
        while cluster.network:
            cluster.deliver()
    assert all(process.groups.term(ONE) is None for process in cluster.processes.values())
    cluster.go(30)
    leader = cluster.leader()
    cluster.propose(int(leader.info.name[1:]), b"x")
    while cluster.network:
        cluster.deliver()
    leader.disk_turn()
    while cluster.network:
        cluster.deliver()
    assert not any(cluster.applied(number) for number in (1, 2, 3))
    cluster.go(3)
    assert all(cluster.applied(number) == [b"x"] for number in (1, 2, 3))


def test_a_restart_has_what_was_promised() -> None:
    cluster = Cluster(3)
    cluster.start(ONE, 1, 2, 3)
    cluster.go(30)
    for number in range(10):
        cluster.propose(1, b"%d" % number)
        cluster.go(1)
    for number in (1, 2, 3):
        cluster[number].crash()
    for number in (1, 2, 3):
        cluster.restart(number)
    cluster.go(40)
    cluster.propose(2, b"more")
    cluster.go(5)
    assert cluster.applied(1) == [b"%d" % number for number in range(10)] + [b"more"]
    assert cluster.applied(1) == cluster.applied(2) == cluster.applied(3)


def test_a_restart_begins_with_the_checkpoint() -> None:
    cluster = Cluster(3)
    cluster.start(ONE, 1, 2, 3)
    cluster.go(30)
    for number in range(5):
        cluster.propose(1, b"%d" % number)
        cluster.go(1)
    one = cluster[1]
    one.groups.journal.write_out(ONE)
    one.end_step()
    cluster.go(2)
    cluster.propose(1, b"after")
    cluster.go(2)
    lsn = one.checkpoint[ONE][1]
    one.crash()
    one.blocks[:lsn] = [[] for _ in range(lsn)]  # The checkpoint stands for these.
    cluster.restart(1)
    cluster.go(30)
    assert cluster.applied(1) == [b"0", b"1", b"2", b"3", b"4", b"after"]


@pytest.mark.rule("multiraft/H-4")
def test_who_lacks_what_the_log_has_forgotten_gets_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, then the log goes on; and a restart in the middle does no harm. Scenarios 41 and 45."""
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 4)
    monkeypatch.setattr(snapshot_transfer, "STATE_BYTES", 8)
    cluster = Cluster(4)
    cluster.start(ONE, 1, 2, 3)
    cluster.go(30)
    for number in range(30):
        cluster.propose(1, b"%03d" % number)
        cluster.go(1)
    leader = cluster.leader()
    term = leader.groups.term(ONE)
    assert term is not None
    nodes = [cluster.node(number) for number in (1, 2, 3)]
    leader.groups.running(ONE).change_peers(term, nodes, [cluster.node(4)], 5)
    leader.end_step()
    for _ in range(12):
        if cluster.network:
            cluster.deliver()
    cluster[4].crash()
    cluster.restart(4)
    cluster.go(90)
    cluster.propose(1, b"last")
    cluster.go(10)
    assert cluster.applied(4) == cluster.applied(1)
    assert len(cluster.applied(4)) == 31
    applied = [each for each in leader.clients[ONE].notices if isinstance(each, ChangeApplied)]
    assert applied[-1].configuration.learners == {cluster.node(4)}
    cluster[4].crash()
    cluster.restart(4)
    cluster.go(30)
    assert cluster.applied(4) == cluster.applied(1)


@pytest.mark.rule("multiraft/H-4")
def test_a_crash_while_a_state_is_installed_leaves_what_was_there_before() -> None:
    """The journal may have got on, and told of what is committed with it, when the checkpoint was not written yet.

    Scenario 49.
    """
    begin = GroupWrite(HardState(1), begin=RaftSnapshot(1, 1, Configuration(frozenset("ab"))))
    mine = tuple(RaftEntry(1, index, b"mine") for index in range(2, 9))
    entries = GroupWrite(HardState(1, commit=2), mine)
    for index in (6, 50):
        installing = GroupWrite(HardState(2, "b", index + 1), (RaftEntry(2, index + 1),), installing=index)
        writes = [encoded(each) for each in (begin, entries, installing)]
        replica = regained(RecoveredGroup(writes=writes))
        group = Group("a", b"g", replica.log(), replica.hard)
        assert group.hard == HardState(2, "b", 2)
        assert group.log.entries_from(2) == mine, "and not what follows another log"
        head = GroupHead(
            HardState(2, None, index), RaftSnapshot(index, 2, Configuration(frozenset("ab"))), ()
        )
        replica = regained(RecoveredGroup([encoded(head)], writes[2:]))
        assert replica.hard == HardState(2, "b", index + 1)
        assert [entry.index for entry in replica.log().entries_from(index + 1)] == [index + 1]


def test_one_message_and_one_block_a_step() -> None:
    cluster = Cluster(3)
    numbers = [GROUPS_FROM + each for each in range(1, 30)]
    for number in numbers:
        cluster.start(number, 1, 2, 3)
    cluster.go(40)
    one = cluster[1]
    led = [number for number in numbers if one.groups.term(number) is not None]
    assert len(led) > 2
    before, cluster.network = len(one.blocks), type(cluster.network)()
    for number in led:
        one.groups.propose(number, [b"x"])
    one.end_step()
    assert len(one.blocks) == before + 1
    assert sorted(entry.partition for entry in one.blocks[-1] if isinstance(entry, GroupWrote)) == led
    assert len(cluster.network) == 2
    for _, _, data in cluster.network:
        message = decode(data)
        assert isinstance(message, GroupMessages)
        assert [number for number, _ in message.groups] == led


@pytest.mark.rule("multiraft/H-3")
def test_groups_with_nothing_to_do_sleep_and_wake() -> None:
    cluster = Cluster(3)
    numbers = [GROUPS_FROM + each for each in range(1, 10)]
    for number in numbers:
        cluster.start(number, 1, 2, 3)
    cluster.go(80)
    carried = cluster.carried
    cluster.go(100)
    assert cluster.carried == carried
    assert not any(process.timer for process in cluster.processes.values())
    for at in (1, 2, 3):
        cluster.propose(at, b"%d" % at, group=numbers[0])
    cluster.go(5)
    assert sorted(cluster.applied(1, numbers[0])) == [b"1", b"2", b"3"]
    assert cluster.applied(2, numbers[0]) == cluster.applied(3, numbers[0]) == cluster.applied(1, numbers[0])
    # Its leader goes while it sleeps: the view says so.
    cluster.go(80)
    leader = cluster.leader(numbers[0])
    leader.crash()
    cluster.install([uuid for uuid in cluster.processes if uuid != leader.info.uuid])
    cluster.go(3)
    assert cluster.leader(numbers[0]) is not leader
    cluster.propose(int(cluster.leader(numbers[0]).info.name[1:]), b"new", group=numbers[0])
    cluster.go(5)
    left = [number for number in (1, 2, 3) if cluster[number] is not leader]
    assert all(cluster.applied(number, numbers[0])[-1] == b"new" for number in left)


@pytest.mark.rule("multiraft/H-3")
def test_who_missed_something_while_it_was_away_is_told_though_the_group_slept() -> None:
    cluster = Cluster(3)
    cluster.start(ONE, 1, 2, 3)
    cluster.go(60)
    leader = cluster.leader()
    away = next(number for number in (1, 2, 3) if cluster[number] is not leader)
    cluster[away].crash()
    left = [uuid for uuid in cluster.processes if uuid != cluster[away].info.uuid]
    cluster.install(left)
    cluster.propose(int(leader.info.name[1:]), b"x")
    cluster.go(60)
    cluster.restart(away)
    cluster.go(20)
    assert cluster.applied(away) == [b"x"]


@pytest.mark.rule("multiraft/H-3")
def test_groups_sleep_while_a_member_is_away_and_wake_when_it_returns() -> None:
    """They cost nothing meanwhile, however many they are, and it gets what it missed at once."""
    cluster = Cluster(3)
    numbers = range(GROUPS_FROM, GROUPS_FROM + 40)
    for number in numbers:
        cluster.start(number, 1, 2, 3)
    cluster.go(60)
    cluster[3].crash()
    cluster.install([cluster[1].info.uuid, cluster[2].info.uuid])
    cluster.go(40)
    for number in numbers:
        cluster.propose(1, b"%d" % number, group=number)
    cluster.go(group_host.SLEEP_TICKS + 2)
    carried = cluster.carried
    cluster.go(100)
    assert cluster.carried == carried
    assert [process.timer for process in cluster.processes.values() if process.up] == [False, False]
    cluster.restart(3)
    cluster.go(5)
    assert [cluster.applied(3, number) for number in numbers] == [[b"%d" % number] for number in numbers]


@pytest.mark.rule("multiraft/H-3")
def test_a_leader_without_a_majority_does_not_sleep_but_steps_down() -> None:
    cluster = Cluster(3)
    cluster.start(ONE, 1, 2, 3)
    cluster.go(60)
    leader = cluster.leader()
    assert leader.groups.hosted[ONE].asleep
    for process in cluster.processes.values():
        if process is not leader:
            process.crash()
    cluster.install([leader.info.uuid])
    cluster.go(2 * group_host.SLEEP_TICKS + 2)
    assert not leader.groups.hosted[ONE].asleep
    assert leader.groups.term(ONE) is None


@pytest.mark.rule("multiraft/H-2")
def test_a_replica_that_may_lack_what_it_promised_takes_no_part() -> None:
    cluster = Cluster(3)
    cluster.start(ONE, 1, 2, 3)
    cluster.go(30)
    one = cluster[1]
    one.crash()
    del one.blocks[1]
    one.durable = len(one.blocks)
    one.blocks.insert(1, [])
    one.checkpoint.clear()
    one.life()
    one.groups.journal._recovered[ONE].doubt = "a block is missing"
    assert one.groups.start(ONE, Configuration(), one.client(ONE)) is None
    with pytest.raises(ProposalRefused):
        one.groups.propose(ONE, [b"x"])


def test_reads_see_what_was_answered_before() -> None:
    cluster = Cluster(3)
    cluster.start(ONE, 1, 2, 3)
    cluster.go(30)
    cluster.propose(1, b"a", b"b")
    cluster.go(5)
    for number in (1, 2, 3):
        cluster[number].groups.read(ONE, b"r%d" % number)
        cluster[number].end_step()
    cluster.go(3)
    for number in (1, 2, 3):
        assert cluster[number].clients[ONE].ready == [(b"r%d" % number, 2)]


def test_a_group_that_nobody_wants_here_is_not_begun() -> None:
    cluster = Cluster(4)
    cluster[4].wanted = set()
    cluster.start(ONE, 1, 2, 3)
    cluster.go(30)
    leader = cluster.leader()
    term = leader.groups.term(ONE)
    assert term is not None
    leader.groups.running(ONE).change_peers(term, [cluster.node(n) for n in (1, 2, 3)], [cluster.node(4)], 1)
    leader.end_step()
    cluster.go(20)
    assert not cluster[4].groups.hosted
    cluster[1].groups.stop(ONE)
    cluster[1].end_step()
    cluster.go(1)
    cluster[1].crash()
    cluster[1].life()
    assert cluster[1].groups.journal.found == []


@pytest.mark.rule("multiraft/H-6")
@pytest.mark.parametrize(("late", "least", "most"), [(1, 10, 20), (3, 30, 61)])
def test_a_member_whose_ticks_come_late_waits_longer_before_it_campaigns(
    late: int, least: int, most: int
) -> None:
    cluster = Cluster(3)
    cluster.start(ONE, 1, 2, 3)
    cluster.go(30)
    leader = cluster.leader()
    groups = next(process for process in cluster.processes.values() if process is not leader).groups
    hosted = groups.hosted[ONE]
    groups.rouse(ONE)
    ticks = 0
    while hosted.group.role is RaftRole.FOLLOWER:
        groups._out.now_ns += late * group_host.TICK_NS
        groups.on_timer()
        ticks += 1
        assert ticks <= most
    assert ticks >= least
