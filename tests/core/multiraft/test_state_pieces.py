"""However large the state of a group is, a step of a member reads, takes or collects only a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.multiraft.group_cluster import (
    ONE,
    TWO,
    Cluster,
    Ledger,
    Process,
    feeding,
    hosted,
    led,
    parts,
    raft,
)

from holdfast.core.effects import Append, Checkpoint
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.messages import GroupState, GroupStateTaken
from holdfast.core.multiraft import group_host, group_journal, snapshot_transfer
from holdfast.core.multiraft.hosted_group import GatheredFill
from holdfast.core.multiraft.persistence import GroupWrite, RestoredGroup, regained
from holdfast.core.raft.raft_messages import RaftKind

COMMANDS = [b"%03d" % number for number in range(10)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 4)
    monkeypatch.setattr(snapshot_transfer, "STATE_BYTES", 7)
    monkeypatch.setattr(group_journal, "COLLECTED_BYTES", 7)


class LazyPieces:
    """Counts the pieces that are read."""

    def __init__(self, ledger: LazyLedger, applied: list[bytes]) -> None:
        self.ledger = ledger
        self.left = list(applied)
        self.is_void = False
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        assert not self.is_void and not self.closed
        if not self.left:
            raise StopIteration
        self.ledger.work += 1
        return self.left.pop(0)

    def close(self) -> None:
        self.closed = True


class CountedFill(GatheredFill):
    def __init__(self, ledger: LazyLedger) -> None:
        super().__init__(ledger)
        self.ledger = ledger

    def add(self, piece: bytes) -> None:
        self.ledger.work += 1
        super().add(piece)


class LazyLedger(Ledger):
    """Counts the pieces that are read or taken in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.work = 0
        self.opened: list[LazyPieces] = []

    def pieces(self) -> LazyPieces:  # type: ignore[override]
        self.opened.append(LazyPieces(self, self.applied))
        return self.opened[-1]

    def fill(self) -> CountedFill:
        return CountedFill(self)


@pytest.fixture(autouse=True)
def most(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The most pieces in a step of any member."""
    found = {"work": 0}

    def client(process: Process, number: int) -> LazyLedger:
        return process.clients.setdefault(number, LazyLedger())  # type: ignore[return-value]

    end_step = Process.end_step

    def ended(process: Process) -> None:
        end_step(process)
        for each in process.clients.values():
            assert isinstance(each, LazyLedger)
            found["work"] = max(found["work"], each.work)
            each.work = 0

    monkeypatch.setattr(Process, "client", client)
    monkeypatch.setattr(Process, "end_step", ended)
    return found


def opened(cluster: Cluster, at: int) -> list[LazyPieces]:
    return cluster[at].clients[ONE].opened  # type: ignore[attr-defined, no-any-return]


@pytest.mark.rule("multiraft/H-10")
@pytest.mark.rule("multiraft/H-11")
@pytest.mark.parametrize("files", [True, False])
def test_no_step_handles_more_than_a_part(*, files: bool, most: dict[str, int]) -> None:
    cluster = feeding(files)
    for number in range(90):
        cluster.propose(1, b"x%02d" % number)
    cluster.go(60)
    cluster.propose(1, b"end")
    cluster.go(10)
    assert cluster.applied(4) == cluster.applied(1)
    assert len(cluster.applied(4)) == 101
    assert 3 <= most["work"] <= 4, "three pieces, and one in advance"
    assert all(each.closed or not each.left for number in (1, 4) for each in opened(cluster, number))
    if files:
        for number in (1, 4):
            cluster[number].groups.journal.write_out(ONE)
            cluster[number].end_step()
        cluster.quiesce()
        assert most["work"] <= 4
        for number in (1, 4):
            snapshot, _ = cluster[number].checkpoint[ONE]
            assert regained(RecoveredGroup(list(snapshot.maps[0].values))).pieces == cluster.applied(1)


def settle(cluster: Cluster) -> None:
    """All messages but states arrive, and all disks write."""
    while True:
        cluster.deliver_all_but(GroupState)
        if not any(process.disk for process in cluster.processes.values()):
            return
        for process in cluster.processes.values():
            process.disk_turn()


def take_one(cluster: Cluster, part: GroupState, sender: int, to: int = 4) -> None:
    cluster[to].groups.on_state(cluster[sender].info.uuid, part)
    cluster[to].end_step()


@pytest.mark.rule("multiraft/H-10")
def test_the_state_in_use_stays_until_the_whole_one_has_come() -> None:
    cluster = feeding()
    for number, part in enumerate(parts(cluster)):
        assert not number or cluster.applied(4) == [b"old"]
        take_one(cluster, part, 1)
        if not number:
            cluster[4].clients[ONE].applied = [b"old"]
    assert cluster.applied(4) == COMMANDS


@pytest.mark.rule("multiraft/H-4")
def test_parts_of_two_leaders_are_not_mixed() -> None:
    """Both have the state of one index and term, in different orders."""
    cluster = feeding()
    first, second = list_of_parts(cluster)[:2]
    cluster.network.clear()
    follower = cluster[4].groups
    other = GroupState(ONE, first.snapshot, 0, COMMANDS[:-4:-1], False)
    later = GroupState(
        ONE,
        first.snapshot.__class__(**{**fields(first.snapshot), "term": first.snapshot.term + 1}),
        0,
        COMMANDS[:-4:-1],
        False,
    )
    for sender, begun in ((2, other), (1, later)):
        hosted(cluster, 4).arriving = None
        follower.transfers.receive(cluster[sender].info.uuid, hosted(cluster, 4), begun)
        assert not follower.transfers.receive(cluster[1].info.uuid, hosted(cluster, 4), second)
        assert hosted(cluster, 4).arriving.taken == 3  # type: ignore[union-attr]
    assert not follower.transfers.receive(cluster[1].info.uuid, hosted(cluster, 4), first), "an older term"
    assert hosted(cluster, 4).arriving.lead_term == later.snapshot.term  # type: ignore[union-attr]


def fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


def list_of_parts(cluster: Cluster) -> list[GroupState]:
    """All parts; the first one is delivered, the others are not."""
    found = []
    for part in parts(cluster):
        found.append(part)
        if len(found) == 1:
            take_one(cluster, part, 1)
        else:
            taken = GroupStateTaken(
                ONE,
                part.snapshot.snapshot.index,
                part.first + len(part.pieces),  # type: ignore[union-attr]
            )
            cluster[1].groups.transfers.on_state_taken(cluster[4].info.uuid, taken)
            cluster[1].end_step()
    return found


@pytest.mark.rule("multiraft/H-10")
@pytest.mark.parametrize("crash", [True, False])
def test_another_leader_in_the_middle_sends_the_state_from_its_beginning(*, crash: bool) -> None:
    cluster = feeding()
    parted = parts(cluster)
    for _ in range(2):
        take_one(cluster, next(parted), 1)
    assert hosted(cluster, 4).arriving.taken == 6  # type: ignore[union-attr]
    if crash:
        cluster[1].crash()
        cluster.install(process.info.uuid for process in cluster.processes.values() if process.up)
    else:
        cluster.cut.add(cluster[1].info.uuid)
    cluster.go(60)
    cluster.cut.clear()
    cluster.go(5)
    leader = cluster.leader()
    assert leader is not cluster[1]
    leader.groups.propose(ONE, [b"end"])
    leader.end_step()
    cluster.go(60)
    assert cluster.applied(4) == [*COMMANDS, b"end"]
    assert hosted(cluster, 4).arriving is None
    assert crash or (opened(cluster, 1)[0].closed and cluster[1].groups.transfers.leftovers == 0)


@pytest.mark.rule("multiraft/H-10")
def test_a_state_that_is_begun_is_dropped_when_another_member_leads() -> None:
    cluster = feeding()
    take_one(cluster, next(parts(cluster)), 1)
    assert hosted(cluster, 4).arriving is not None
    follower = hosted(cluster, 4)
    follower.group._state.lead = cluster.node(1)
    cluster[4].groups.transfers.on_leader(follower)
    assert follower.arriving is not None
    follower.group._state.lead = cluster.node(2)
    cluster[4].groups.transfers.on_leader(follower)
    assert follower.arriving is None


@pytest.mark.rule("multiraft/H-10")
def test_a_state_whose_last_part_comes_after_its_sender_has_left_is_installed() -> None:
    """The follower knew no leader any more, and follows this one again in the step that installs the state."""
    cluster = feeding()
    parted = list_of_parts(cluster)
    for part in parted[1:-1]:
        take_one(cluster, part, 1)
    cluster.network.clear()
    cluster.install(list(cluster.processes)[1:])
    cluster[4].groups.running(ONE).forget_leader()
    cluster[4].end_step()
    take_one(cluster, parted[-1], 1)
    assert cluster.applied(4) == COMMANDS
    assert hosted(cluster, 4).arriving is None


@pytest.mark.rule("multiraft/H-10")
def test_a_receiver_that_crashes_in_the_middle_gets_the_state_from_its_beginning() -> None:
    cluster = feeding()
    parted = parts(cluster)
    for _ in range(2):
        take_one(cluster, next(parted), 1)
    cluster[4].crash()
    cluster.restart(4)
    cluster.go(100)
    cluster.propose(1, b"end")
    cluster.go(20)
    assert cluster.applied(4) == [*COMMANDS, b"end"]


@pytest.mark.rule("multiraft/H-10")
def test_a_state_that_cannot_be_read_any_more_is_replaced_by_the_present_one() -> None:
    cluster = feeding()
    parted = parts(cluster)
    take_one(cluster, next(parted), 1)
    before = hosted(cluster, 1).group.log.applied
    cluster.propose(1, b"clear")
    settle(cluster)
    opened(cluster, 1)[-1].is_void = True
    seen = []
    expected = []
    for part in parts(cluster):
        seen.append((part.first, part.snapshot.snapshot.index))  # type: ignore[union-attr]
        if len(seen) == 3:
            expected.append(hosted(cluster, 1).group.leading.progress["f4"].snapshot)  # type: ignore[union-attr]
        take_one(cluster, part, 1)
    begun = next(place for place, (first, _) in enumerate(seen) if first == 0)
    assert begun <= 1, "one part was under way"
    assert [first for first, _ in seen[begun:]] == [0, 3, 6, 9]
    assert expected == [seen[begun][1]], "Raft waits for the index that is sent"
    assert len({index for _, index in seen[begun:]} - {before}) == 1
    cluster.go(5)
    assert cluster.applied(4) == [*COMMANDS, b"clear"]
    assert opened(cluster, 1)[0].closed
    assert hosted(cluster, 1).group.leading.progress["f4"].snapshot == 0  # type: ignore[union-attr]


@pytest.mark.rule("multiraft/H-10")
def test_the_log_keeps_what_follows_a_state_that_is_under_way() -> None:
    cluster = feeding()
    parted = parts(cluster)
    part = next(parted)
    index = part.snapshot.snapshot.index  # type: ignore[union-attr]
    for number in range(30):
        cluster.propose(1, b"more%02d" % number)
        settle(cluster)
    assert hosted(cluster, 1).group.log.base <= index
    take_one(cluster, part, 1)
    states = 1
    for part in parted:
        states += part.first == 0
        take_one(cluster, part, 1)
    cluster.go(20)
    assert states == 1
    for number in range(10):
        cluster.propose(1, b"end%02d" % number)
        cluster.quiesce()
    assert cluster.applied(4)[:40] == cluster.applied(1)[:40]
    assert hosted(cluster, 1).group.log.base > index


@pytest.mark.rule("multiraft/H-10")
def test_the_log_keeps_what_follows_a_state_until_it_is_durable() -> None:
    """All parts have come, and the receiver still writes its checkpoint."""
    cluster = feeding()
    four = installing(cluster)
    snapshot = hosted(cluster, 4).group.log.snapshot
    assert snapshot is not None
    index = snapshot.index
    for number in range(30):
        cluster.propose(1, b"more%02d" % number)
        settle_three(cluster)
    assert four.groups.journal.collecting
    assert hosted(cluster, 1).group.log.base <= index
    states = len(opened(cluster, 1))
    cluster.quiesce()
    cluster.go(5)
    assert cluster.applied(4) == cluster.applied(1)
    assert len(opened(cluster, 1)) == states
    for number in range(10):
        cluster.propose(1, b"end%02d" % number)
        cluster.quiesce()
    assert hosted(cluster, 1).group.log.base > index


@pytest.mark.rule("multiraft/H-10")
def test_a_state_that_the_receiver_does_not_need_is_dropped() -> None:
    cluster = feeding()
    for part in (parted := list_of_parts(cluster))[1:]:
        take_one(cluster, part, 1)
    cluster.go(5)
    assert cluster.applied(4) == COMMANDS
    for part in parted:
        take_one(cluster, part, 1)
    assert hosted(cluster, 4).arriving is None


@pytest.mark.rule("multiraft/H-10")
def test_a_state_without_a_response_is_read_no_more() -> None:
    cluster = feeding()
    next(parts(cluster))
    one = cluster[1]
    for later_ns in (snapshot_transfer.DROPPED_NS, 1):
        assert not opened(cluster, 1)[0].closed
        one.out.now_ns += later_ns
        one.groups.on_timer()
        one.end_step()
    assert opened(cluster, 1)[0].closed
    assert one.groups.transfers.leftovers == 0
    cluster.go(60)
    assert cluster.applied(4) == COMMANDS


@pytest.mark.rule("multiraft/H-10")
def test_a_follower_that_takes_too_long_does_not_keep_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = feeding()
    index = next(parts(cluster)).snapshot.snapshot.index  # type: ignore[union-attr]
    log = hosted(cluster, 1).group.log
    before, size = log.applied, 0
    for number in range(60):
        cluster.propose(1, b"more%02d" % number)
        settle(cluster)
        if number == 30:
            assert log.base <= index
            size = sum(each.size for each in log.entries_from(before + 1))
            monkeypatch.setattr(group_host, "STATE_LOG_BYTES", size + size // 2)
    assert size > 100
    assert log.base > index


# -- checkpoints


def begun() -> Cluster:
    """The first member has begun a checkpoint of ten commands, at the index of the last."""
    cluster = led()
    cluster.propose(1, *COMMANDS)
    cluster.quiesce()
    cluster[1].groups.journal.write_out(ONE)
    cluster[1].end_step()
    assert cluster[1].groups.journal.collecting and cluster[1].more
    return cluster


def checkpoints(process: Process) -> list[RestoredGroup]:
    found = [each for each in process.disk if isinstance(each, Checkpoint)]
    return [regained(RecoveredGroup(list(each.snapshot.maps[0].values))) for each in found]


@pytest.mark.rule("multiraft/H-11")
def test_a_checkpoint_has_the_state_of_its_beginning_and_the_log_of_its_end() -> None:
    cluster = begun()
    one, index = cluster[1], hosted(cluster, 1).group.log.applied
    for number in range(20):
        cluster.propose(1, b"more%02d" % number)
        while cluster.network or any(each.disk for each in cluster.processes.values()):
            for each in cluster.processes.values():
                each.disk_turn()
            while cluster.network:
                cluster.deliver()
    assert cluster.applied(1)[10:] == [b"more%02d" % number for number in range(20)]
    assert hosted(cluster, 1).group.log.base <= index, "the log keeps what the checkpoint needs"
    steps = 0
    while one.more:
        one.take_more()
        steps += 1
    (found,) = checkpoints(one)
    assert steps == 3
    assert (found.snapshot.index, found.pieces) == (index, COMMANDS)
    assert [each.data for each in found.entries] == [b"more%02d" % number for number in range(20)]
    assert found.hard == hosted(cluster, 1).group.hard
    one.disk_turn()
    del one.blocks[:]
    one.checkpoint[ONE] = (one.checkpoint[ONE][0], 0)
    one.crash()
    cluster.restart(1)
    cluster.go(60)
    assert cluster.applied(1) == cluster.applied(2)


@pytest.mark.rule("multiraft/H-11")
def test_a_crash_before_the_last_piece_leaves_the_files_as_they_are() -> None:
    cluster = begun()
    cluster[1].take_more()
    cluster[1].crash()
    cluster.restart(1)
    cluster.go(60)
    assert cluster[1].checkpoint == {}
    assert cluster.applied(1) == COMMANDS


@pytest.mark.rule("multiraft/H-11")
def test_a_checkpoint_that_is_begun_is_not_begun_again() -> None:
    cluster = begun()
    cluster[1].groups.journal.write_out(ONE)
    cluster[1].end_step()
    assert len(opened(cluster, 1)) == 1
    cluster.quiesce()
    assert ONE in cluster[1].checkpoint
    cluster[1].groups.journal.write_out(ONE)
    assert len(opened(cluster, 1)) == 2


@pytest.mark.rule("multiraft/H-11")
def test_checkpoints_of_several_groups_are_taken_one_after_the_other() -> None:
    cluster = begun()
    one = cluster[1]
    cluster.start(TWO, 1)
    one.groups.running(TWO).campaign()
    one.end_step()
    cluster.quiesce()
    cluster.propose(1, *COMMANDS, group=TWO)
    cluster.quiesce()
    assert cluster.applied(1, TWO) == COMMANDS
    one.checkpoint.clear()
    for number in (ONE, TWO):
        one.groups.journal.write_out(number)
    one.end_step()
    cluster.quiesce()
    assert one.checkpoint.keys() == {ONE, TWO}


@pytest.mark.rule("multiraft/H-11")
@pytest.mark.parametrize("by", ["ticks", "a view"])
def test_a_checkpoint_goes_on_after_many_groups_had_their_turn(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share its timer: the last of them must not end it."""
    monkeypatch.setattr(group_host, "GROUPS_AT_ONCE", 1)
    cluster = begun()
    one = cluster[1]
    cluster.start(TWO, 1)
    if by == "ticks":
        for number in (ONE, TWO):
            one.groups.running(number)
        one.groups.on_timer()
        one.end_step()
    else:
        cluster.install(list(cluster.processes)[:2])
    cluster.quiesce()
    assert ONE in one.checkpoint


@pytest.mark.rule("multiraft/H-11")
def test_a_checkpoint_whose_state_cannot_be_read_begins_with_the_present_one() -> None:
    cluster = begun()
    cluster.propose(1, b"clear")
    while cluster.network or any(each.disk for each in cluster.processes.values()):
        for each in cluster.processes.values():
            each.disk_turn()
        while cluster.network:
            cluster.deliver()
    opened(cluster, 1)[0].is_void = True
    while cluster[1].more:
        cluster[1].take_more()
    (found,) = checkpoints(cluster[1])
    assert (found.snapshot.index, found.pieces) == (
        hosted(cluster, 1).group.log.applied,
        [*COMMANDS, b"clear"],
    )
    assert opened(cluster, 1)[0].closed, "it would keep each entry that changes from now on"


@pytest.mark.rule("multiraft/H-9")
def test_a_checkpoint_that_is_begun_before_a_rebuild_is_not_taken() -> None:
    """It has damaged entries."""
    cluster = led()
    cluster.propose(1, *COMMANDS)
    cluster.quiesce()
    two = cluster[2]
    two.clients[ONE].applied = [b"damaged"] * 5
    two.groups.journal.write_out(ONE)
    assert two.groups.rebuilds.begin(ONE) == ""
    two.end_step()
    while two.groups.rebuilds.running:
        cluster.deliver()
    assert cluster.applied(2) == COMMANDS
    while two.more:
        two.take_more()
    assert [found.pieces for found in checkpoints(two)] == [COMMANDS]


@pytest.mark.rule("multiraft/H-11")
def test_the_checkpoint_of_a_replica_that_is_stopped_is_not_taken() -> None:
    cluster = begun()
    cluster[1].groups.stop(ONE)
    cluster[1].end_step()
    assert opened(cluster, 1)[0].closed
    while cluster[1].more:
        cluster[1].take_more()
    assert checkpoints(cluster[1]) == []


def installing(cluster: Cluster) -> Process:
    """The whole state has come, and its checkpoint is being collected."""
    four = cluster[4]
    for part in parts(cluster):
        take_one(cluster, part, 1)
        if part.last:
            break
    assert four.groups.journal.collecting
    return four


def blocks_durable(process: Process) -> None:
    for effect in [each for each in process.disk if isinstance(each, Append)]:
        process.disk.remove(effect)
        process.durable = process.numbers[effect.number]
        process.log.on_durable(effect.number)
    process.end_step()


@pytest.mark.rule("multiraft/H-4")
@pytest.mark.rule("multiraft/H-11")
def test_an_installed_state_is_acknowledged_when_its_collected_checkpoint_is_durable() -> None:
    cluster = feeding()
    four = installing(cluster)
    blocks_durable(four)
    assert raft(cluster, RaftKind.APPENDED, 4) == []
    while four.more:
        four.take_more()
    (found,) = checkpoints(four)
    assert found.pieces == COMMANDS
    assert raft(cluster, RaftKind.APPENDED, 4) == []
    while four.disk:
        four.disk_turn()
    assert [each.index for each in raft(cluster, RaftKind.APPENDED, 4)] == [found.snapshot.index]


@pytest.mark.rule("multiraft/H-4")
@pytest.mark.rule("multiraft/H-11")
def test_a_second_state_that_is_installed_while_the_first_is_collected_is_acknowledged() -> None:
    """The responses of the first wait for the checkpoint of the second."""
    cluster = feeding()
    four = installing(cluster)
    cluster.network.clear()
    cluster.propose(1, b"end")
    settle_three(cluster)
    group = cluster[1].groups.running(ONE)
    leading = group.leading
    assert leading is not None
    leading.snapshot_ended("f4", well=False)
    leading.progress["f4"].paused = False
    group.log.compact(group.log.applied)
    leading.send_append("f4")
    cluster[1].end_step()
    for part in parts(cluster):
        take_one(cluster, part, 1)
        if part.last:
            break
    assert len(hosted(cluster, 4).writing) == 2
    assert cluster.applied(4) == [*COMMANDS, b"end"]
    assert raft(cluster, RaftKind.APPENDED, 4) == []
    cluster.quiesce()
    cluster.go(5)
    assert four.groups.leftovers["groups not written"] == 0
    assert hosted(cluster, 4).group.log.snapshot is None
    assert leading.progress["f4"].match == group.log.last


def settle_three(cluster: Cluster) -> None:
    """The fourth member stands still."""
    while cluster.network or any(cluster[each].disk for each in (1, 2, 3)):
        for each in (1, 2, 3):
            cluster[each].disk_turn()
        while cluster.network:
            cluster.deliver()


@pytest.mark.rule("multiraft/H-11")
def test_a_crash_while_an_installed_state_is_collected_keeps_its_term_and_nothing_of_it() -> None:
    cluster = feeding()
    four = installing(cluster)
    blocks_durable(four)
    four.crash()
    cluster.restart(4)
    assert cluster.applied(4) == []
    cluster.go(60)
    assert cluster.applied(4) == COMMANDS


@pytest.mark.rule("multiraft/H-11")
def test_a_replica_that_abandons_its_state_acknowledges_nothing_of_it() -> None:
    cluster = feeding()
    four = installing(cluster)
    message = raft_heartbeat(generation=3)
    four.groups.on_messages(cluster[1].info.uuid, message)
    four.end_step()
    assert not four.groups.journal.collecting
    assert any(
        entry.data == group_journal.encoded(GroupWrite(abandoned=True))
        for block in four.blocks
        for entry in block
        if hasattr(entry, "data")
    )
    while four.disk:
        four.disk_turn()
    assert [each for each in raft(cluster, RaftKind.APPENDED, 4) if each.generation < 3] == []
    assert four.groups.leftovers["groups not written"] == 0
    assert cluster.applied(4) == []


@pytest.mark.rule("multiraft/H-11")
@pytest.mark.parametrize("well", [True, False])
def test_a_checkpoint_that_ends_after_its_state_was_abandoned_releases_nothing(*, well: bool) -> None:
    """Not well: there was no room. The state is no longer there to be written again."""
    cluster = feeding()
    four = installing(cluster)
    while four.more:
        four.take_more()
    (checkpoint,) = [each for each in four.disk if isinstance(each, Checkpoint)]
    four.groups.on_messages(cluster[1].info.uuid, raft_heartbeat(generation=3))
    four.end_step()
    four.disk.remove(checkpoint)
    four.log.on_checkpoint(checkpoint.ticket, well=well)
    four.end_step()
    while four.disk:
        four.disk_turn()
    assert [each for each in raft(cluster, RaftKind.APPENDED, 4) if each.generation < 3] == []
    assert four.groups.leftovers["groups not written"] == 0
    assert not four.groups.journal.collecting


def raft_heartbeat(generation: int) -> Any:
    from holdfast.core.messages import GroupMessages
    from holdfast.core.raft.raft_messages import RaftMessage

    beat = RaftMessage(kind=RaftKind.HEARTBEAT, to="f4", sender="f1", term=9, generation=generation)
    return GroupMessages([(ONE, [beat])], [])
