"""Limits, late ticks, reads that wait, and replicas that end while their writes are on the way to the disk."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.multiraft.group_cluster import ONE, Cluster, Process
from tests.core.multiraft.test_group_steps import feeding, given, hosted, led, parts, raft

from holdfast.core.machine import Append, Checkpoint
from holdfast.core.model.ids import METASTORE_GROUP
from holdfast.core.model.journal_entries import GroupWrote
from holdfast.core.multiraft import group_host
from holdfast.core.multiraft.group_host import LATE_COUNTS, LATE_TICKS, TICK_NS, LeadChanged
from holdfast.core.multiraft.persistence import GroupWrite
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage
from holdfast.core.raft.reconfiguration import ChangeAnswer


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 4)
    monkeypatch.setattr(group_host, "STATE_BYTES", 6)


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


def test_the_log_of_the_metastore_is_cut_after_a_mebibyte() -> None:
    """That of other groups is not: 1 MiB is a small part of the 16 MiB that they keep."""
    for number, cut in ((METASTORE_GROUP, True), (ONE, False)):
        cluster = Cluster(1)
        cluster.start(number, 1)
        cluster.go(30)
        log = cluster[1].groups.hosted[number].group.log
        base = log.base
        for _ in range(6):
            cluster.propose(1, b"x" * (150 << 10), group=number)
            cluster.go(1)
        assert log.base == base, "this is less than a mebibyte"
        cluster.propose(1, b"x" * (150 << 10), group=number)
        cluster.go(1)
        assert (log.base > base) is cut


@pytest.mark.usefixtures("small")
def test_a_part_of_a_state_ends_when_it_is_large_enough() -> None:
    assert [len(part.pieces) for part in _taken(feeding())] == [2, 2, 2, 2, 2]


@pytest.mark.usefixtures("small")
def test_a_member_without_files_writes_no_state_out() -> None:
    cluster = feeding(files=False)
    cluster.go(10)
    assert cluster.applied(4) == cluster.applied(1)
    assert cluster[4].checkpoint == {}


def _taken(cluster: Cluster) -> list[group_host.GroupState]:
    found = []
    for part in parts(cluster):
        found.append(part)
        cluster[4].groups.on_state(cluster[1].info.uuid, part)
        cluster[4].end_step()
    return found


@pytest.mark.usefixtures("small")
def test_a_state_for_a_member_outside_the_view_is_not_sent() -> None:
    cluster = feeding()
    part = next(parts(cluster))
    cluster.network.clear()
    groups = cluster[1].groups
    supply = group_host._Supplying(9, part.snapshot, [b"x"])
    groups._send_part(ONE, "gone", supply)
    assert supply.sent == 0
    cluster[1].end_step()
    assert not cluster.network


def test_the_step_of_a_replica_that_was_stopped_ends() -> None:
    cluster = led()
    groups = cluster[1].groups
    groups.propose(ONE, [b"x"])
    groups.stop(ONE)
    cluster[1].end_step()
    assert raft(cluster, RaftKind.APPEND) == []


@pytest.mark.parametrize("stopped", [False, True])
def test_what_a_stopped_replica_wrote_is_not_acknowledged(*, stopped: bool) -> None:
    cluster = led()
    cluster.propose(1, b"x")
    appends = [each for each in cluster.network if each[1] == cluster[2].info.uuid]
    cluster.network.clear()
    cluster.network.extend(appends)
    cluster.deliver()
    if stopped:
        cluster[2].groups.stop(ONE)
        cluster[2].end_step()
    cluster[2].disk_turn()
    assert bool(raft(cluster, RaftKind.APPENDED, 2)) is not stopped


@pytest.mark.rule("multiraft/H-4")
@pytest.mark.usefixtures("small")
def test_a_state_that_does_not_fit_on_the_disk_of_a_stopped_replica_is_given_up() -> None:
    cluster = _installing()
    four = cluster[4]
    (checkpoint,) = [each for each in four.disk if isinstance(each, Checkpoint)]
    four.groups.stop(ONE)
    four.end_step()
    four.disk.clear()
    four.log.on_checkpoint(checkpoint.ticket, well=False)
    four.end_step()
    assert not [each for each in four.disk if isinstance(each, Checkpoint)]


def _installing() -> Cluster:
    """The state of ten commands has come to the fourth member, and its disk has written nothing of it yet."""
    cluster = feeding()
    for part in parts(cluster):
        cluster[4].groups.on_state(cluster[1].info.uuid, part)
        cluster[4].end_step()
        if part.last:
            break
    return cluster


@pytest.mark.rule("multiraft/H-4")
@pytest.mark.usefixtures("small")
def test_a_state_that_is_installed_is_named_in_what_is_written() -> None:
    cluster = _installing()
    four = cluster[4]
    group = hosted(cluster, 4).group
    snapshot = group.log.snapshot
    assert snapshot is not None
    entry = RaftEntry(snapshot.term, snapshot.index + 1, b"next")
    follows = RaftMessage(
        kind=RaftKind.APPEND,
        to="f4",
        sender="f1",
        term=group.term,
        index=snapshot.index,
        log_term=snapshot.term,
        entries=(entry,),
    )
    given(four, follows, 1)
    assert written(four)[-1] == GroupWrite(None, (entry,), installing=snapshot.index)
    (checkpoint,) = [each for each in four.disk if isinstance(each, Checkpoint)]
    assert (checkpoint.snapshot.partition, checkpoint.snapshot.epoch) == (ONE, 0)
    assert checkpoint.snapshot.maps[0].name == group_host.PIECES
    four.groups.write_out(ONE)
    four.end_step()
    assert [each for each in four.disk if isinstance(each, Checkpoint)] == [checkpoint], "one is under way"
    # With the block durable and not the checkpoint the replica acknowledges nothing, also in a later step.
    for effect in [each for each in four.disk if isinstance(each, Append)]:
        four.disk.remove(effect)
        four.durable = four.numbers[effect.number]
        four.log.on_durable(effect.number)
        four.end_step()
    assert raft(cluster, RaftKind.APPENDED, 4) == []
    assert four.groups.leftovers["groups not written"] == 2


def written(process: Process) -> list[GroupWrite]:
    return [
        msgspec.msgpack.decode(entry.data, type=GroupWrite)
        for block in process.blocks
        for entry in block
        if isinstance(entry, GroupWrote)
    ]


def test_what_is_written_without_a_state_names_none() -> None:
    cluster = led()
    cluster.propose(1, b"x")
    log = hosted(cluster, 1).group.log
    assert written(cluster[1])[-1] == GroupWrite(None, tuple(log.entries_from(log.last)), installing=0)


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


def test_a_reset_without_a_term_is_of_no_term(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = led()
    terms: list[int] = []

    def reset(self: object, voters: object, token: int, *, term: int) -> ChangeAnswer:
        terms.append(term)
        return ChangeAnswer.STARTED

    monkeypatch.setattr(group_host.Group, "reset", reset)
    cluster[1].groups.reset(ONE, ["f1"], 1)
    cluster[1].groups.reset(ONE, ["f1"], 1, term=7)
    assert terms == [0, 7]
