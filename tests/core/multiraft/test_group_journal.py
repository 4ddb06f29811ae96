"""Writes of replicas, the messages that wait for them, checkpoints, and what a restart makes of them."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.multiraft.group_cluster import (
    ONE,
    TWO,
    Cluster,
    Ledger,
    Process,
    feeding,
    given,
    hosted,
    led,
    parts,
    raft,
)

from holdfast.core.effects import Append, Checkpoint, Note
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.model.journal_entries import Began, Dropped, GroupWrote
from holdfast.core.model.notices import CheckpointEnded
from holdfast.core.multiraft import group_host, group_journal, snapshot_transfer
from holdfast.core.multiraft.persistence import GroupHead, GroupWrite, encoded, regained
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import HardState

K = RaftKind


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 4)
    monkeypatch.setattr(snapshot_transfer, "STATE_BYTES", 7)


@pytest.mark.rule("multiraft/H-1")
def test_the_same_entries_twice_are_acknowledged_when_they_are_on_disk() -> None:
    """The second time there is nothing to write, and the first time is still on its way."""
    cluster = led()
    cluster.propose(1, b"x")
    appends = [each for each in cluster.network if each[1] == cluster[2].info.uuid]
    cluster.network.clear()
    cluster.network.extend(appends * 3)
    while cluster.network and cluster.network[0][1] == cluster[2].info.uuid:
        cluster.deliver()
    assert hosted(cluster, 2).group.log.last == 3
    assert raft(cluster, K.APPENDED) == []
    assert cluster[2].groups.leftovers["groups not written"] == 3
    cluster[2].disk_turn()
    assert [each.index for each in raft(cluster, K.APPENDED, 2)] == [3, 3, 3]
    assert cluster[2].groups.leftovers["groups not written"] == 0


@pytest.mark.rule("multiraft/H-1")
def test_a_vote_in_a_term_that_is_known_is_written_down_before_it_is_given() -> None:
    cluster = led()
    term = hosted(cluster, 2).group.term
    given(cluster[2], RaftMessage(kind=K.HEARTBEAT, to="f2", sender="f1", term=term + 1), 1)
    cluster.quiesce()
    cluster[2].groups.hosted[ONE].group.forget_leader()
    blocks = len(cluster[2].blocks)
    vote = RaftMessage(kind=K.VOTE, to="f2", sender="f3", term=term + 1, index=9, log_term=9)
    given(cluster[2], vote, 3)
    assert raft(cluster, K.VOTED) == []
    (entry,) = cluster[2].blocks[blocks]
    assert isinstance(entry, GroupWrote)
    cluster[2].disk_turn()
    (said,) = raft(cluster, K.VOTED)
    assert (said.to, said.refused) == ("f3", False)
    cluster[2].crash()
    cluster[2].life()
    assert cluster[2].groups.journal.peek(ONE).hard[:2] == (term + 1, "f3")


def test_a_replica_is_begun_in_the_journal_and_dropped_there() -> None:
    cluster = Cluster(3)
    cluster.start(ONE, 1, 2, 3)
    (block,) = cluster[1].blocks
    begin = RaftSnapshot(1, 1, Configuration(frozenset({"f1", "f2", "f3"})))
    wrote = encoded(GroupWrite(hard=HardState(commit=1), begin=begin))
    assert (block[0], block[1].data) == (Began(ONE, 0), wrote)
    assert cluster[1].clients[ONE].restored == 1
    with pytest.raises(AssertionError, match="one replica"):
        cluster[1].groups.start(ONE, begin.configuration, Ledger())
    standing = cluster[1].groups.rounds.standing
    cluster[1].groups.stop(ONE)
    cluster[1].end_step()
    assert cluster[1].blocks[-1] == [Dropped(ONE)]
    assert cluster[1].groups.rounds.standing == standing + 1
    assert (cluster[1].groups.hosted, cluster[1].groups.journal.found) == ({}, [])
    cluster[1].groups.stop(ONE)
    cluster[1].end_step()
    assert len(cluster[1].blocks) == 2, "there was none"
    with pytest.raises(ProposalRefused, match="no replica"):
        cluster[1].groups.propose(ONE, [b"x"])
    bare = Cluster(1, files=False)
    bare.start(ONE, 1)
    bare[1].groups.stop(ONE)
    bare[1].end_step()
    assert bare[1].blocks == []


def test_what_was_found_is_started_as_it_was_or_dropped() -> None:
    cluster = led()
    cluster.propose(1, b"x")
    cluster.go(3)
    for _ in range(2):
        cluster[1].crash()
        cluster[1].life()
        groups = cluster[1].groups
        assert (groups.journal.found, groups.journal.doubt(ONE), groups.journal.doubt(TWO)) == ([ONE], "", "")
        assert groups.journal.peek(ONE).entries[-1].data == b"x"
        replica = groups.start(ONE, Configuration(), cluster[1].client(ONE))
        assert replica is not None
        assert (groups.journal.found, replica.group.log.last) == ([], 3)
        assert replica.group.hard[:2] == (replica.group.term, "f1")
    cluster[1].life()
    cluster[1].groups.stop(ONE)
    cluster[1].end_step()
    assert cluster[1].blocks[-1] == [Dropped(ONE)]


@pytest.mark.rule("multiraft/H-2")
def test_what_cannot_be_read_is_in_doubt() -> None:
    cluster = Cluster(1)
    cluster[1].groups.journal._recovered[ONE] = RecoveredGroup(writes=[b"\xc1"])
    assert cluster[1].groups.start(ONE, Configuration(), Ledger()) is None
    assert cluster[1].groups.journal.doubt(ONE).startswith("what is in the files is none")
    assert ONE not in cluster[1].groups.hosted
    cluster[1].end_step()
    (note,) = [each for each in cluster[1].told if isinstance(each, Note)]
    assert note.level == "error"


@pytest.mark.rule("multiraft/H-4")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("well", [True, False])
def test_a_state_is_acknowledged_when_its_checkpoint_is_durable(*, well: bool) -> None:
    cluster = feeding()
    four = cluster[4]
    for part in parts(cluster):
        four.groups.on_state(cluster[1].info.uuid, part)
        four.end_step()
        if part.last:
            break
    index = hosted(cluster, 1).group.log.applied
    for effect in [each for each in four.disk if isinstance(each, Append)]:
        four.disk.remove(effect)
        four.durable = four.numbers[effect.number]
        four.log.on_durable(effect.number)
    four.end_step()
    assert raft(cluster, K.APPENDED, 4) == []
    assert hosted(cluster, 4).group.log.snapshot is not None
    (checkpoint,) = [each for each in four.disk if isinstance(each, Checkpoint)]
    pieces = checkpoint.snapshot.maps[0].values
    found = regained(RecoveredGroup(list(pieces)))
    assert (found.snapshot.index, found.pieces) == (index, [b"%03d" % number for number in range(10)])
    four.disk.clear()
    if not well:
        four.groups.on_checkpoint(CheckpointEnded(99, False))
        four.log.on_checkpoint(checkpoint.ticket, well=False)
        four.end_step()
        assert raft(cluster, K.APPENDED, 4) == []
        (checkpoint,) = [each for each in four.disk if isinstance(each, Checkpoint)]
        assert list(checkpoint.snapshot.maps[0].values) == list(pieces), "it is tried again"
    four.log.on_checkpoint(checkpoint.ticket, well=True)
    four.end_step()
    assert [each.index for each in raft(cluster, K.APPENDED, 4)] == [index]
    assert hosted(cluster, 4).group.log.snapshot is None


def test_a_replica_is_written_out_as_it_is_now() -> None:
    cluster = led()
    cluster.propose(1, b"x")
    cluster.quiesce()
    cluster.propose(1, b"late")
    groups = cluster[1].groups
    groups.journal.write_out(TWO)
    groups.journal.write_out(ONE)
    cluster[1].end_step()
    (checkpoint,) = [each for each in cluster[1].disk if isinstance(each, Checkpoint)]
    found = regained(RecoveredGroup(list(checkpoint.snapshot.maps[0].values)))
    assert (found.snapshot.index, found.pieces, found.hard) == (3, [b"x"], hosted(cluster, 1).group.hard)
    assert [entry.data for entry in found.entries] == [b"late"]
    assert checkpoint.snapshot.maps[0].keys == [place.to_bytes(8, "big") for place in range(2)]
    fresh = Cluster(1)
    fresh[1].groups.start(ONE, Configuration(), fresh[1].client(ONE))
    fresh[1].groups.journal.write_out(ONE)
    fresh[1].end_step()
    (checkpoint,) = [each for each in fresh[1].disk if isinstance(each, Checkpoint)]
    assert regained(RecoveredGroup(list(checkpoint.snapshot.maps[0].values))).snapshot.index == 0


def test_who_abandons_what_it_has_writes_that_down_first() -> None:
    cluster = led()
    cluster.propose(1, b"x")
    cluster.quiesce()
    two = cluster[2]
    hosted(cluster, 2).reads.append((99, b"r"))
    given(two, RaftMessage(kind=K.HEARTBEAT, to="f2", sender="f1", term=9, generation=3), 1)
    wrote = [entry.data for entry in two.blocks[-1] if isinstance(entry, GroupWrote)]
    assert wrote[0] == encoded(GroupWrite(abandoned=True))
    assert two.clients[ONE].applied == []
    assert hosted(cluster, 2).reads == []
    cluster.quiesce()
    two.crash()
    two.life()
    assert (two.groups.journal.peek(ONE).hard.generation, two.groups.journal.peek(ONE).entries) == (3, [])


def test_a_head_that_is_whole_is_needed_to_read_a_checkpoint() -> None:
    head = GroupHead(HardState(1), RaftSnapshot(1, 1, Configuration()), ())
    cluster = Cluster(1)
    cluster[1].groups.journal._recovered[ONE] = RecoveredGroup([encoded(head), b"p"])
    assert cluster[1].groups.start(ONE, Configuration(), cluster[1].client(ONE)) is not None
    assert cluster[1].clients[ONE].applied == [b"p"]


@pytest.mark.usefixtures("small")
def test_a_member_without_files_writes_no_state_out() -> None:
    cluster = feeding(files=False)
    cluster.go(10)
    assert cluster.applied(4) == cluster.applied(1)
    assert cluster[4].checkpoint == {}


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
    assert checkpoint.snapshot.maps[0].name == group_journal.PIECES
    four.groups.journal.write_out(ONE)
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
