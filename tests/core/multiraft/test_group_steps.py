"""What a member with groups does at each step: writes, sends, installs, sleeps, and tells its clients."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.core.multiraft.group_cluster import ONE, Cluster, Ledger, Process

from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.machine import Append, Checkpoint, Note, SetTimer
from holdfast.core.messages import GroupMessages, GroupState, GroupStateTaken, LeadAsked
from holdfast.core.model.ids import GROUPS_FROM, METASTORE_GROUP
from holdfast.core.model.journal_entries import Began, Dropped, GroupWrote
from holdfast.core.model.notices import CheckpointEnded, ViewInstalled
from holdfast.core.model.timer_name import TimerName
from holdfast.core.multiraft import group_host
from holdfast.core.multiraft.group_host import GroupHost, LeadChanged, node_of
from holdfast.core.multiraft.persistence import GroupHead, GroupWrite, encoded, regained
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import HardState, LeaderElected, RaftRole, RaftSettings
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.wire.codec import decode

K = RaftKind
TWO = GROUPS_FROM + 8


def led(files: bool = True, members: int = 3) -> Cluster:
    """Three replicas, the first of which leads; everything is done and quiet."""
    cluster = Cluster(members, files=files)
    cluster.start(ONE, 1, 2, 3)
    cluster[1].groups.hosted[ONE].group.campaign()
    cluster[1].groups.rouse(ONE)
    cluster[1].groups._dirty.add(ONE)
    cluster[1].end_step()
    cluster.quiesce()
    assert cluster[1].groups.current(ONE)
    return cluster


def raft(cluster: Cluster, kind: RaftKind, sender: int = 0) -> list[RaftMessage]:
    """What of this kind is on its way, from one member or all."""
    found: list[RaftMessage] = []
    for by, _, data in cluster.network:
        message = decode(data)
        if isinstance(message, GroupMessages) and (not sender or by == cluster[sender].info.uuid):
            found += [each for _, messages in message.groups for each in messages if each.kind is kind]
    return found


def parts(cluster: Cluster) -> Iterator[GroupState]:
    """Take the parts of states that are sent, one after the other, as they come."""
    while True:
        while not cluster.network and any(process.disk for process in cluster.processes.values()):
            for process in cluster.processes.values():
                process.disk_turn()
        if not cluster.network:
            return
        data = cluster.network[0][2]
        message = decode(data)
        if isinstance(message, GroupState):
            cluster.network.popleft()
            yield message
        else:
            cluster.deliver()


def hosted(cluster: Cluster, at: int) -> group_host.HostedGroup:
    return cluster[at].groups.hosted[ONE]


def given(process: Process, message: RaftMessage, sender: int = 2) -> None:
    process.groups.on_messages(process.cluster[sender].info.uuid, GroupMessages([(ONE, [message])], []))
    process.end_step()


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
    assert cluster[2].groups.peek(ONE).hard[:2] == (term + 1, "f3")


def test_a_new_leader_serves_when_it_has_applied_what_was_answered_before() -> None:
    cluster = led()
    cluster.propose(1, b"x")
    cluster.quiesce()
    cluster[2].groups.transfer(ONE, "f2")
    cluster[2].end_step()
    seen = set()
    while not cluster[2].groups.current(ONE):
        leads = cluster[2].groups.term(ONE) is not None
        seen.add(leads)
        if leads:
            assert hosted(cluster, 2).group.log.applied < hosted(cluster, 2).group.log.last
        if cluster.network:
            cluster.deliver()
        else:
            for process in cluster.processes.values():
                process.disk_turn()
    assert seen == {False, True}
    assert cluster.applied(2) == [b"x"]
    cluster[2].groups.halt(ONE)
    assert not cluster[2].groups.current(ONE)
    assert not cluster[2].groups.current(TWO)
    assert not cluster[1].groups.current(ONE)


def test_clients_hear_who_leads_in_which_term_and_when_it_may_serve() -> None:
    cluster = led()
    leader, follower = cluster[1].clients[ONE].notices, cluster[2].clients[ONE].notices
    term = hosted(cluster, 1).group.term
    assert leader[-2:] == [LeadChanged("f1", RaftRole.LEADER, term), LeaderElected(term)]
    assert follower[-1] == LeadChanged("f1", RaftRole.FOLLOWER, term)
    groups = cluster[1].groups
    assert (groups.lead(ONE), groups.term(ONE), groups.lead(TWO), groups.term(TWO)) == (
        "f1",
        term,
        None,
        None,
    )
    assert (cluster[2].groups.lead(ONE), cluster[2].groups.term(ONE)) == ("f1", None)
    assert groups.member("f2") == cluster[2].info.uuid
    assert groups.member("nobody") is None


# -- starting and stopping


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
    assert (cluster[1].groups.hosted, cluster[1].groups.found) == ({}, [])
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
        assert (groups.found, groups.doubt(ONE), groups.doubt(TWO)) == ([ONE], "", "")
        assert groups.peek(ONE).entries[-1].data == b"x"
        replica = groups.start(ONE, Configuration(), cluster[1].client(ONE))
        assert replica is not None
        assert (groups.found, replica.group.log.last) == ([], 3)
        assert replica.group.hard[:2] == (replica.group.term, "f1")
    cluster[1].life()
    cluster[1].groups.stop(ONE)
    cluster[1].end_step()
    assert cluster[1].blocks[-1] == [Dropped(ONE)]


@pytest.mark.rule("multiraft/H-2")
def test_what_cannot_be_read_is_in_doubt() -> None:
    cluster = Cluster(1)
    cluster[1].groups._found[ONE] = RecoveredGroup(writes=[b"\xc1"])
    assert cluster[1].groups.start(ONE, Configuration(), Ledger()) is None
    assert cluster[1].groups.doubt(ONE).startswith("what is in the files is none")
    assert ONE not in cluster[1].groups.hosted
    cluster[1].end_step()
    (note,) = [each for each in cluster[1].told if isinstance(each, Note)]
    assert note.level == "error"


def test_only_followers_of_the_metastore_hear_of_each_commit_at_once() -> None:
    cluster = Cluster(1)
    for number in (ONE, METASTORE_GROUP):
        cluster.start(number, 1)
        settings = cluster[1].groups.hosted[number].group._state.settings
        assert settings.starts_voted
        assert settings.sends_commits is (number == METASTORE_GROUP)


def test_a_replica_that_rests_hears_and_says_nothing_until_it_may_go_on() -> None:
    cluster = led()
    standing = cluster[2].groups.rounds.standing
    cluster[2].groups.halt(ONE)
    cluster[2].groups.halt(TWO)
    assert cluster[2].groups.rounds.standing == standing + 1
    cluster.propose(1, b"x")
    cluster.go(3)
    cluster[2].groups.rouse(ONE)
    cluster[2].end_step()
    cluster.install(cluster.processes)
    cluster.install([cluster[2].info.uuid, cluster[3].info.uuid])
    assert hosted(cluster, 2).asleep
    assert cluster.applied(2) == []
    for order in (lambda: cluster[2].groups.propose(ONE, [b"y"]), lambda: cluster[2].groups.read(ONE, b"r")):
        with pytest.raises(ProposalRefused):
            order()
    cluster.install(cluster.processes)
    cluster[2].groups.resume(ONE)
    cluster[2].end_step()
    cluster.go(10)
    assert cluster.applied(2) == [b"x"]


# -- orders


def test_orders_reach_the_leaders_replica_and_no_other() -> None:
    cluster = led(members=4)
    groups, term = cluster[1].groups, hosted(cluster, 1).group.term
    assert groups.propose(ONE, [b"x", b"y"]) == 4
    cluster.quiesce()
    nodes = [cluster.node(number) for number in (1, 2, 3)]
    answer = groups.change_peers(ONE, term, nodes, [cluster.node(4)], 7, asks=True)
    assert answer is ChangeAnswer.STARTED
    assert not groups.agree_change(ONE, term, 6)
    assert groups.cancel_change(ONE, term, 6)
    assert groups.agree_change(ONE, term, 7)
    cluster[1].end_step()
    cluster.go(5)
    assert hosted(cluster, 1).group.configuration.learners == {cluster.node(4)}
    assert groups.reset(ONE, nodes, 7) is ChangeAnswer.STALE
    assert groups.reset(ONE, nodes, 8) is ChangeAnswer.STARTED
    assert hosted(cluster, 1).group.generation == 8


# -- sleep


@pytest.mark.rule("multiraft/H-3")
@pytest.mark.parametrize(
    "busy", ["", "log", "commit", "applied", "writing", "read", "unsettled", "match", "told", "change"]
)
def test_a_leader_is_idle_when_everything_is_done_everywhere(busy: str) -> None:
    cluster = led()
    cluster.propose(1, b"x")
    cluster.go(3)
    one = hosted(cluster, 1)
    log, leading = one.group.log, one.group.leading
    assert leading is not None
    assert one.idle
    if busy == "log":
        log.append([RaftEntry(one.group.term, log.last + 1)])
    elif busy == "commit":
        log.committed -= 1
    elif busy == "applied":
        log.applied -= 1
    elif busy == "writing":
        one.writing.append(group_host._Writing([], None))
    elif busy == "read":
        one.reads.append((9, b"r"))
    elif busy == "unsettled":
        leading.began = log.last + 1
    elif busy == "match":
        leading.progress["f2"].match -= 1
    elif busy == "told":
        leading.progress["f3"].sent_commit -= 1
    elif busy == "change":
        leading.transferee = "f2"
    assert one.idle is (not busy)
    leading.progress["f1"].sent_commit = 0
    assert one.idle is (not busy), "of itself it hears otherwise"
    follower = hosted(cluster, 2)
    assert follower.idle
    follower.group.log.snapshot = RaftSnapshot(1, 1, Configuration())
    assert not follower.idle


@pytest.mark.rule("multiraft/H-3")
def test_a_leader_sleeps_after_a_while_and_takes_its_followers_along() -> None:
    cluster = led()
    cluster.propose(1, b"x")
    cluster.quiesce()
    asleep_after = 0
    while not hosted(cluster, 1).asleep:
        cluster.go(1)
        asleep_after += 1
        assert asleep_after < 30
    assert asleep_after == group_host.SLEEP_TICKS
    assert [hosted(cluster, at).asleep for at in (1, 2, 3)] == [True] * 3
    # A heartbeat of the same term does not wake it; anything else does.
    term = hosted(cluster, 2).group.term
    given(cluster[2], RaftMessage(kind=K.HEARTBEAT, to="f2", sender="f1", term=term), 1)
    assert hosted(cluster, 2).asleep
    given(cluster[2], RaftMessage(kind=K.HEARTBEAT, to="f2", sender="f1", term=term, context=b"r"), 1)
    assert not hosted(cluster, 2).asleep
    cluster[3].groups.rouse(TWO)
    cluster[3].groups.rouse(ONE)
    assert (hosted(cluster, 3).asleep, hosted(cluster, 3).quiet) == (False, 0)
    hosted(cluster, 3).quiet = 4
    cluster[3].groups.rouse(ONE)
    assert hosted(cluster, 3).quiet == 4, "it was awake"
    hosted(cluster, 3).asleep = True
    given(cluster[3], RaftMessage(kind=K.HEARTBEAT, to="f3", sender="f1", term=term + 1), 1)
    assert not hosted(cluster, 3).asleep


@pytest.mark.rule("multiraft/H-3")
@pytest.mark.parametrize(
    ("sender", "term", "last", "sleeps"),
    [(1, 0, 0, True), (3, 0, 0, False), (1, 1, 0, False), (1, 0, 1, False), (1, 0, -1, False)],
)
def test_a_follower_sleeps_when_its_leader_does_and_it_has_everything(
    sender: int, term: int, last: int, *, sleeps: bool
) -> None:
    cluster = led()
    cluster.go(2)
    group = hosted(cluster, 2).group
    asleep = [(TWO, 1, 1), (ONE, group.term + term, group.log.last + last)]
    cluster[2].groups.on_messages(cluster[sender].info.uuid, GroupMessages([], asleep))
    assert hosted(cluster, 2).asleep is sleeps
    hosted(cluster, 2).asleep = False
    hosted(cluster, 2).reads.append((99, b"r"))
    cluster[2].groups.on_messages(
        cluster[1].info.uuid, GroupMessages([], [(ONE, group.term, group.log.last)])
    )
    assert not hosted(cluster, 2).asleep


def test_a_leader_with_something_under_way_does_not_sleep_and_does_not_keep_others_awake() -> None:
    cluster = led()
    for number in (1, 2, 3):
        cluster[number].groups.start(TWO, hosted(cluster, 1).group.configuration, cluster[number].client(TWO))
    hosted(cluster, 1).reads.append((99, b"r"))
    hosted(cluster, 1).quiet = cluster[1].groups.hosted[TWO].quiet = 50
    cluster[1].groups.on_timer()
    assert not hosted(cluster, 1).asleep
    hosted(cluster, 1).reads.clear()
    cluster[1].end_step()
    before = cluster[1].groups.hosted[TWO].group._elapsed
    cluster[1].groups.on_timer()
    assert hosted(cluster, 1).asleep
    assert cluster[1].groups.hosted[TWO].group._elapsed == before + 1, "the other one's time goes on"
    assert [name for name in (ONE, TWO) if name in cluster[1].groups._dirty] == [TWO]


def test_one_timer_serves_all_groups_that_are_awake() -> None:
    cluster = Cluster(1)
    process = cluster[1]
    for number in (ONE, TWO):
        process.groups.start(number, Configuration(frozenset({"f1"})), process.client(number))
    timers = [SetTimer(TimerName.GROUPS, group_host.TICK_NS, 0)]

    def set_now() -> list[SetTimer]:
        return [each for each in process.out.take() if isinstance(each, SetTimer)]

    assert set_now() == timers
    process.groups.on_timer()
    process.groups.transfer(ONE, "f1")
    assert set_now() == timers
    for hosted_group in process.groups.hosted.values():
        hosted_group.asleep = True
    process.groups.on_timer()
    assert set_now() == []
    process.groups.rouse(ONE)
    process.groups.rouse(TWO)
    assert set_now() == timers


def test_a_leader_reads_by_rounds_and_others_ask_it() -> None:
    cluster = led()
    cluster[1].groups.read(ONE, b"r")
    cluster[1].end_step()
    assert [type(decode(data)) for _, _, data in cluster.network] == [LeadAsked]
    cluster.network.clear()
    cluster[2].groups.read(ONE, b"s")
    cluster[2].end_step()
    assert [(each.to, each.context) for each in raft(cluster, K.READ)] == [("f1", b"s")]
    for replica_of in (TWO, ONE):
        cluster[1].groups.halt(ONE)
        with pytest.raises(ProposalRefused):
            cluster[1].groups.read(replica_of, b"r")


def test_settings_and_what_was_found_are_those_that_are_given() -> None:
    cluster = led()
    process = cluster[1]
    groups = GroupHost(
        process.info, process.out, process.log, process, settings=RaftSettings(election_ticks=77)
    )
    standing = groups.rounds.standing
    replica = groups.start(TWO, Configuration(frozenset({"f1"})), Ledger())
    assert replica is not None
    assert replica.group._state.settings.election_ticks == 77
    assert (groups.found, groups.rounds.standing, replica.bytes_since) == ([], standing + 1, 0)
    assert hosted(cluster, 1).bytes_since == 24


def test_heartbeats_do_not_keep_a_group_awake_and_everything_else_does() -> None:
    cluster = led()
    one = hosted(cluster, 2)
    term = one.group.term
    for kind, context, quiet in (
        (K.HEARTBEAT, b"", 4),
        (K.HEARTBEAT, b"r", 0),
        (K.APPEND, b"", 0),
        (K.HEARTBEAT_HEARD, b"", 4),
    ):
        one.quiet = 4
        given(cluster[2], RaftMessage(kind=kind, to="f2", sender="f1", term=term, context=context), 1)
        assert one.quiet == quiet
    one.quiet = 4
    given(cluster[2], RaftMessage(kind=K.APPEND, to="f3", sender="f1", term=term), 1)
    assert one.quiet == 4, "it is for another node"


# -- who comes and goes


@pytest.mark.rule("multiraft/H-3")
def test_when_its_leader_goes_the_first_voter_that_is_here_campaigns() -> None:
    cluster = led()
    cluster.go(30)
    standing = hosted(cluster, 2).group.term
    cluster.install([cluster[2].info.uuid, cluster[3].info.uuid])
    assert (hosted(cluster, 2).group.role, hosted(cluster, 3).group.role) == (
        RaftRole.PRE_CANDIDATE,
        RaftRole.FOLLOWER,
    )
    assert hosted(cluster, 3).group.lead is None
    assert not hosted(cluster, 3).asleep
    cluster[1].up = False
    cluster.quiesce()
    assert cluster[2].groups.term(ONE) == standing + 1


def test_when_a_follower_goes_its_leader_probes_it() -> None:
    cluster = led()
    cluster.go(30)
    cluster.install([cluster[1].info.uuid, cluster[2].info.uuid])
    leading = hosted(cluster, 1).group.leading
    assert leading is not None
    assert {node: str(progress)[:10] for node, progress in leading.progress.items() if node != "f1"} == {
        "f2": "StateRepli",
        "f3": "StateProbe",
    }
    assert not hosted(cluster, 1).asleep
    assert hosted(cluster, 2).group.lead == "f1"
    other = led(members=4)
    other.go(30)
    other.install(other.processes)
    assert hosted(other, 1).asleep
    other.install([other[number].info.uuid for number in (1, 2, 3)])
    assert hosted(other, 1).asleep, "that one has no part in it"
    # One that has left and come back between two views is another one.
    gone = led()
    gone.go(30)
    view, two = gone.view, frozenset({gone[2].info.uuid})
    gone[1].groups.on_view(ViewInstalled(view, view, True, two, frozenset()))
    leading = hosted(gone, 1).group.leading
    assert leading is not None
    assert str(leading.progress["f2"]).startswith("StateProbe")
    assert str(leading.progress["f3"]).startswith("StateReplicate")
    gone[1].groups.on_view(ViewInstalled(view, None, False, frozenset(), frozenset()))
    assert gone[1].groups.member("f2") is None


def test_a_learner_that_is_left_alone_does_not_campaign() -> None:
    cluster = led(members=4)
    nodes = [cluster.node(number) for number in (1, 2, 3)]
    term = hosted(cluster, 1).group.term
    cluster[1].groups.change_peers(ONE, term, nodes, [cluster.node(4)], 1)
    cluster[1].end_step()
    cluster.go(5)
    cluster.install([cluster[4].info.uuid])
    assert (hosted(cluster, 4).group.role, hosted(cluster, 4).group.lead) == (RaftRole.FOLLOWER, None)


# -- states


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 4)
    monkeypatch.setattr(group_host, "STATE_BYTES", 7)


def feeding(files: bool = True) -> Cluster:
    """The fourth member is to get the state of ten commands of three bytes, of which nothing has arrived."""
    cluster = led(files, members=4)
    for number in range(10):
        cluster.propose(1, b"%03d" % number)
        cluster.quiesce()
    assert hosted(cluster, 1).group.log.base > 1
    nodes = [cluster.node(number) for number in (1, 2, 3)]
    term = hosted(cluster, 1).group.term
    cluster[1].groups.change_peers(ONE, term, nodes, [cluster.node(4)], 1)
    cluster[1].end_step()
    return cluster


@pytest.mark.rule("multiraft/H-4")
@pytest.mark.usefixtures("small")
def test_a_state_goes_in_parts_each_when_the_one_before_it_has_come() -> None:
    cluster = feeding()
    seen = []
    for part in parts(cluster):
        assert cluster[1].groups.leftovers["states of groups on their way"] == 1
        seen.append((part.first, part.pieces, part.last))
        snapshot = part.snapshot.snapshot
        assert snapshot is not None
        assert (snapshot.index, part.snapshot.to) == (hosted(cluster, 1).group.log.applied, "f4")
        cluster[4].groups.on_state(cluster[1].info.uuid, part)
        cluster[4].end_step()
    assert [(first, len(pieces)) for first, pieces, _ in seen] == [(0, 3), (3, 3), (6, 3), (9, 1)]
    assert [last for _, _, last in seen] == [False] * 3 + [True]
    assert cluster[1].groups.leftovers["states of groups on their way"] == 0
    assert hosted(cluster, 4).client.applied == [b"%03d" % number for number in range(10)]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("small")
def test_a_member_without_files_gets_a_state_and_acknowledges_it_at_once() -> None:
    cluster = feeding(files=False)
    cluster.go(10)
    cluster.propose(1, b"more")
    cluster.quiesce()
    cluster.go(2)
    assert cluster.applied(4) == cluster.applied(1)
    assert cluster[4].blocks == []
    assert cluster[4].groups.leftovers["groups not written"] == 0


def state_of(index: int, term: int) -> RaftMessage:
    snapshot = RaftSnapshot(index, term, Configuration(frozenset({"f1", "f4"})))
    return RaftMessage(kind=K.SNAPSHOT, to="f4", sender="f1", term=1, snapshot=snapshot)


def test_a_state_begins_a_replica_that_is_wanted_and_none_that_rests() -> None:
    cluster = led(members=4)
    four, sender = cluster[4], cluster[1].info.uuid
    part = GroupState(ONE, state_of(9, 1), 0, [b"x"], False)
    four.wanted = set()
    four.groups.on_state(sender, part)
    four.end_step()
    assert (four.groups.hosted, len(cluster.network)) == ({}, 0)
    four.wanted = None
    four.groups.on_state(sender, part)
    four.end_step()
    assert len(cluster.network) == 1
    assert hosted(cluster, 4).arriving is not None
    four.groups.halt(ONE)
    cluster.network.clear()
    four.groups.on_state(sender, part)
    four.end_step()
    assert len(cluster.network) == 0
    hosted(cluster, 4).arriving = None
    four.groups.resume(ONE)
    given(four, state_of(9, 1), 1)
    assert hosted(cluster, 4).group.log.snapshot is None, "without the state there is nothing to install"


@pytest.mark.usefixtures("small")
def test_nothing_is_sent_to_who_is_not_in_the_view() -> None:
    cluster = feeding()
    cluster.install([cluster[number].info.uuid for number in (1, 2, 3)])
    refusal = RaftMessage(kind=K.APPENDED, to="f1", sender="f4", term=1, index=11, refused=True)
    term = hosted(cluster, 1).group.term
    cluster.network.clear()
    given(
        cluster[1],
        msgspec.structs.replace(refusal, term=term, index=hosted(cluster, 1).group.log.last - 1),
        4,
    )
    assert [to for _, to, _ in cluster.network if to == cluster[4].info.uuid] == []


def test_a_group_of_which_nothing_is_known_here_holds_up_no_other() -> None:
    cluster = led()
    cluster[2].wanted = {ONE}
    term = hosted(cluster, 2).group.term
    vote = RaftMessage(kind=K.PRE_VOTE, to="f2", sender="f3", term=term)
    beat = RaftMessage(kind=K.HEARTBEAT, to="f2", sender="f1", term=term, context=b"r")
    cluster[2].groups.on_messages(cluster[1].info.uuid, GroupMessages([(TWO, [vote]), (ONE, [beat])], []))
    cluster[2].end_step()
    assert [each.context for each in raft(cluster, K.HEARTBEAT_HEARD)] == [b"r"]


@pytest.mark.rule("multiraft/H-4")
@pytest.mark.usefixtures("small")
def test_parts_that_do_not_follow_each_other_are_not_taken() -> None:
    cluster = feeding()
    sender = cluster[1].info.uuid
    parted = parts(cluster)
    first, wrong = next(parted), cluster[4]
    for index, term, at in ((first.snapshot.snapshot.index, 0, 2), (0, 0, 2)):  # type: ignore[union-attr]
        other = RaftSnapshot(index, term, Configuration())
        moved = RaftMessage(kind=K.SNAPSHOT, to="f4", sender="f1", term=1, snapshot=other)
        wrong.groups.on_state(sender, GroupState(ONE, moved, at, [b"x"], False))
        wrong.end_step()
    assert cluster.network == type(cluster.network)(), "nothing was begun"
    wrong.groups.on_state(sender, first)
    wrong.end_step()
    taken = [decode(data) for _, _, data in cluster.network]
    assert [(each.index, each.taken) for each in taken if isinstance(each, GroupStateTaken)] == [
        (hosted(cluster, 1).group.log.applied, 3)
    ]
    count = len(cluster.network)
    for message in (
        GroupState(ONE, first.snapshot, 4, [b"x"], False),
        GroupState(ONE, first.snapshot, 1, [b"x"], False),
        GroupState(ONE, state_of(99, first.snapshot.snapshot.term), 3, [b"x"], False),  # type: ignore[union-attr]
        GroupState(ONE, state_of(first.snapshot.snapshot.index, 99), 3, [b"x"], False),  # type: ignore[union-attr]
        GroupState(
            ONE,
            RaftMessage(kind=K.SNAPSHOT, to="f9", sender="f1", snapshot=first.snapshot.snapshot),
            0,
            [],
            False,
        ),
        GroupState(ONE, RaftMessage(kind=K.SNAPSHOT, to="f4", sender="f1"), 2, [b"x"], False),
    ):
        wrong.groups.on_state(sender, message)
        wrong.end_step()
    assert len(cluster.network) == count
    arriving = hosted(cluster, 4).arriving
    assert arriving is not None and arriving.pieces == first.pieces
    # The first part once more begins it once more.
    wrong.groups.on_state(sender, first)
    assert hosted(cluster, 4).arriving.pieces == first.pieces  # type: ignore[union-attr]


@pytest.mark.usefixtures("small")
def test_an_answer_to_another_part_sends_nothing() -> None:
    cluster = feeding()
    part = next(parts(cluster))
    one, four = cluster[1].groups, cluster[4].info.uuid
    index = part.snapshot.snapshot.index  # type: ignore[union-attr]
    for sender, message in (
        (four, GroupStateTaken(TWO, index, 3)),
        (four, GroupStateTaken(ONE, index + 1, 3)),
        (four, GroupStateTaken(ONE, index, 2)),
        (cluster[2].info.uuid, GroupStateTaken(ONE, index, 3)),
    ):
        one.on_state_taken(sender, message)
        cluster[1].end_step()
        assert not cluster.network
    one.on_state_taken(four, GroupStateTaken(ONE, index, 3))
    cluster[1].end_step()
    assert len(cluster.network) == 1
    leading = hosted(cluster, 1).group.leading
    assert leading is not None
    leading.progress["f4"].quiet = 9
    one.on_state_taken(four, GroupStateTaken(ONE, index, 3))
    assert leading.progress["f4"].quiet == 0, "it gets on"
    cluster.install([cluster[number].info.uuid for number in (1, 2, 4)])
    assert one.leftovers["states of groups on their way"] == 1
    cluster.install([cluster[number].info.uuid for number in (1, 2)])
    assert one.leftovers["states of groups on their way"] == 0
    later = feeding()
    next(parts(later))
    hosted(later, 1).group._become_follower(99)
    later[1].groups.on_state_taken(four, GroupStateTaken(ONE, index, 3))
    assert later[1].groups.leftovers["states of groups on their way"] == 0
    stopped = feeding()
    next(parts(stopped))
    stopped[1].groups.stop(TWO)
    assert stopped[1].groups.leftovers["states of groups on their way"] == 1
    stopped[1].groups.stop(ONE)
    assert stopped[1].groups.leftovers["states of groups on their way"] == 0


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


@pytest.mark.usefixtures("small")
def test_a_log_is_cut_by_entries_or_bytes_and_keeps_some_for_those_who_lag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = led()
    log = hosted(cluster, 1).group.log
    while log.base == 1:
        assert log.applied - log.base < 8
        cluster.propose(1, b"x")
        cluster.quiesce()
    assert (log.applied - log.base, log.base) == (4, 5)
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 400)
    monkeypatch.setattr(group_host, "LOG_BYTES", 300)
    hosted(cluster, 1).bytes_since = 0
    cluster.propose(1, b"x" * 251)
    cluster.quiesce()
    assert (log.base, hosted(cluster, 1).bytes_since) == (5, 275)
    cluster.propose(1, b"x")
    cluster.quiesce()
    assert (log.applied, log.base, hosted(cluster, 1).bytes_since) == (11, 8, 0)


def test_a_replica_is_written_out_as_it_is_now() -> None:
    cluster = led()
    cluster.propose(1, b"x")
    cluster.quiesce()
    cluster.propose(1, b"late")
    groups = cluster[1].groups
    groups.write_out(TWO)
    groups.write_out(ONE)
    cluster[1].end_step()
    (checkpoint,) = [each for each in cluster[1].disk if isinstance(each, Checkpoint)]
    found = regained(RecoveredGroup(list(checkpoint.snapshot.maps[0].values)))
    assert (found.snapshot.index, found.pieces, found.hard) == (3, [b"x"], hosted(cluster, 1).group.hard)
    assert [entry.data for entry in found.entries] == [b"late"]
    assert checkpoint.snapshot.maps[0].keys == [place.to_bytes(8, "big") for place in range(2)]
    fresh = Cluster(1)
    fresh[1].groups.start(ONE, Configuration(), fresh[1].client(ONE))
    fresh[1].groups.write_out(ONE)
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
    assert (two.groups.peek(ONE).hard.generation, two.groups.peek(ONE).entries) == (3, [])


def test_a_member_is_the_node_of_its_files_and_without_any_one_of_its_own() -> None:
    with_files, without = Cluster(1)[1].info, Cluster(1, files=False)[1].info
    assert (node_of(with_files), node_of(without)) == ("f1", without.uuid)


def test_a_head_that_is_whole_is_needed_to_read_a_checkpoint() -> None:
    head = GroupHead(HardState(1), RaftSnapshot(1, 1, Configuration()), ())
    cluster = Cluster(1)
    cluster[1].groups._found[ONE] = RecoveredGroup([encoded(head), b"p"])
    assert cluster[1].groups.start(ONE, Configuration(), cluster[1].client(ONE)) is not None
    assert cluster[1].clients[ONE].applied == [b"p"]
