"""States of groups that are sent in parts, and the replicas that install them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.multiraft.group_cluster import ONE, TWO, Cluster, feeding, given, hosted, led, parts

from holdfast.core.messages import GroupState, GroupStateTaken, GroupStateWanted
from holdfast.core.model.ids import GROUPS_FROM
from holdfast.core.multiraft import group_host, snapshot_transfer
from holdfast.core.multiraft.group_host import GroupHost
from holdfast.core.multiraft.hosted_group import GatheredFill
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.raft_messages import RaftKind, RaftMessage, RaftSnapshot
from holdfast.errors import ProtocolError
from holdfast.wire.codec import decode

K = RaftKind


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 4)
    monkeypatch.setattr(snapshot_transfer, "STATE_BYTES", 7)


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


@pytest.mark.usefixtures("small")
def test_a_leader_that_is_deposed_keeps_no_state_for_a_node_that_does_not_respond() -> None:
    cluster = feeding()
    next(parts(cluster))
    assert cluster[1].groups.leftovers[ON_THEIR_WAY] == 1
    cluster[1].groups.running(ONE)._become_follower(99)
    cluster[1].groups._dirty.add(ONE)
    cluster[1].end_step()
    assert cluster[1].groups.leftovers[ON_THEIR_WAY] == 0


def test_a_leader_that_sleeps_keeps_no_state_that_was_not_answered() -> None:
    """A follower asked for it, and its response got lost; it has all entries."""
    cluster = led()
    cluster[1].groups.transfers.on_wanted(cluster[2].info.uuid, GroupStateWanted(ONE))
    cluster[1].end_step()
    assert cluster.count(GroupState) == 1
    cluster.network.clear()
    cluster.go(60)
    assert hosted(cluster, 1).group.leading is not None
    assert cluster[1].groups.hosted[ONE].asleep
    assert cluster[1].groups.leftovers[ON_THEIR_WAY] == 0


def many_feeding(groups: int) -> Cluster:
    """The first member leads groups of two members, and the third one is to get the states of all."""
    cluster = Cluster(3, files=False)
    cluster[1].out.now_ns = 10 * snapshot_transfer.LOST_NS
    numbers = range(GROUPS_FROM, GROUPS_FROM + groups)
    for number in numbers:
        cluster.start(number, 1, 2)
        cluster[1].groups.hosted[number].group.campaign()
        cluster[1].groups.running(number)
    cluster[1].end_step()
    cluster.quiesce()
    for number in numbers:
        for command in range(10):
            cluster.propose(1, b"%03d" % command, group=number)
    cluster.quiesce()
    for number in numbers:
        term = cluster[1].groups.term(number)
        assert term is not None
        nodes = [cluster.node(at) for at in (1, 2)]
        cluster[1].groups.running(number).change_peers(term, nodes, [cluster.node(3)], 1)
        cluster[1].end_step()
        cluster.deliver_all_but(GroupState)
    return cluster


@pytest.mark.rule("multiraft/H-8")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("most", "setting", "parts_in_flight"), [(25, 1 << 30, 3), (25, 10, 2), (25, 1, 1), (9, 99, 1)]
)
def test_states_of_many_groups_have_only_so_much_in_flight(
    most: int, setting: int, parts_in_flight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_transfer, "IN_FLIGHT_BYTES", most)
    bound = GroupHost.__init__

    def bounded(host: GroupHost, *given: Any, **named: Any) -> None:
        bound(host, *given, **named)
        host.transfers.bound_flight(setting)

    monkeypatch.setattr(GroupHost, "__init__", bounded)
    cluster = many_feeding(8)
    assert cluster.count(GroupState) == parts_in_flight
    while cluster.network:
        found = [decode(data) for _, _, data in cluster.network]
        sizes = [sum(map(len, each.pieces)) for each in found if isinstance(each, GroupState)]
        assert sum(sizes[:-1]) < min(most, setting)
        cluster.deliver()
        cluster.deliver_all_but(GroupState)
    cluster.go(3)
    assert [len(client.applied) for client in cluster[3].clients.values()] == [10] * 8
    assert cluster[1].groups.leftovers[ON_THEIR_WAY] == 0


@pytest.mark.rule("multiraft/H-8")
@pytest.mark.usefixtures("small")
def test_a_receiver_that_does_not_respond_makes_room_for_others_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_transfer, "IN_FLIGHT_BYTES", 10)
    cluster = many_feeding(5)
    for number in range(GROUPS_FROM, GROUPS_FROM + 3):
        cluster[3].groups.halt(number)
    cluster.go(1)
    assert [len(client.applied) for client in cluster[3].clients.values()] == [0] * 5
    cluster[1].out.now_ns += snapshot_transfer.LOST_NS
    cluster.go(2)
    cluster[1].out.now_ns += snapshot_transfer.LOST_NS
    cluster.go(2)
    assert [len(client.applied) for client in cluster[3].clients.values()] == [0] * 3 + [10] * 2


ON_THEIR_WAY = "states of groups on their way"


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
        wrong.groups.on_state(sender, GroupState(ONE, moved, at, [b"x"], True))
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
        GroupState(ONE, first.snapshot, 4, [b"x"], True),
        GroupState(ONE, first.snapshot, 1, [b"x"], True),
        GroupState(ONE, state_of(99, first.snapshot.snapshot.term), 3, [b"x"], True),  # type: ignore[union-attr]
        GroupState(ONE, state_of(first.snapshot.snapshot.index, 99), 3, [b"x"], True),  # type: ignore[union-attr]
        GroupState(
            ONE,
            RaftMessage(kind=K.SNAPSHOT, to="f9", sender="f1", snapshot=first.snapshot.snapshot),
            0,
            [],
            True,
        ),
        GroupState(ONE, RaftMessage(kind=K.SNAPSHOT, to="f4", sender="f1"), 2, [b"x"], True),
    ):
        wrong.groups.on_state(sender, message)
        wrong.end_step()
    assert len(cluster.network) == count
    arriving = hosted(cluster, 4).arriving
    assert arriving is not None and arriving.fill.pieces == first.pieces  # type: ignore[attr-defined]
    assert hosted(cluster, 4).group.log.snapshot is None, "nothing is installed"
    # The first part once more begins it once more.
    wrong.groups.on_state(sender, first)
    assert hosted(cluster, 4).arriving.fill.pieces == first.pieces  # type: ignore[union-attr]


@pytest.mark.usefixtures("small")
def test_a_malformed_piece_is_ignored_and_the_leader_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = feeding()
    first = next(parts(cluster))

    def malformed(fill: object, piece: bytes) -> None:
        raise ProtocolError("a piece of a group's state cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(GatheredFill, "add", malformed)
        cluster[4].groups.on_state(cluster[1].info.uuid, first)
        cluster[4].end_step()
    assert hosted(cluster, 4).arriving is None
    assert cluster.count(GroupStateTaken) == 0
    cluster[4].groups.on_state(cluster[1].info.uuid, first)
    assert hosted(cluster, 4).arriving is not None


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
        one.transfers.on_state_taken(sender, message)
        cluster[1].end_step()
        assert not cluster.network
    one.transfers.on_state_taken(four, GroupStateTaken(ONE, index, 3))
    cluster[1].end_step()
    assert len(cluster.network) == 1
    leading = hosted(cluster, 1).group.leading
    assert leading is not None
    leading.progress["f4"].quiet = 9
    one.transfers.on_state_taken(four, GroupStateTaken(ONE, index, 3))
    assert leading.progress["f4"].quiet == 0, "it gets on"
    cluster.install([cluster[number].info.uuid for number in (1, 2, 4)])
    assert one.leftovers["states of groups on their way"] == 1
    cluster.install([cluster[number].info.uuid for number in (1, 2)])
    assert one.leftovers["states of groups on their way"] == 0
    later = feeding()
    next(parts(later))
    hosted(later, 1).group._become_follower(99)
    later[1].groups.transfers.on_state_taken(four, GroupStateTaken(ONE, index, 3))
    assert later[1].groups.leftovers["states of groups on their way"] == 0
    stopped = feeding()
    next(parts(stopped))
    stopped[1].groups.stop(TWO)
    assert stopped[1].groups.leftovers["states of groups on their way"] == 1
    stopped[1].groups.stop(ONE)
    assert stopped[1].groups.leftovers["states of groups on their way"] == 0


@pytest.mark.usefixtures("small")
def test_a_part_of_a_state_ends_when_it_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_transfer, "STATE_BYTES", 6)
    assert [len(part.pieces) for part in _taken(feeding())] == [2, 2, 2, 2, 2]


def _taken(cluster: Cluster) -> list[GroupState]:
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
    transfers = cluster[1].groups.transfers
    transfers.on_view({}, {"f4"})
    transfers.send(hosted(cluster, 1), part.snapshot)
    cluster[1].end_step()
    assert not cluster.network
    [state] = transfers._outgoing.values()
    assert state.sent == 0


@pytest.mark.rule("multiraft/H-8")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("how", ["sent", "waiting", "deposed"])
def test_a_group_that_ends_here_makes_room_for_the_states_of_others(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_transfer, "IN_FLIGHT_BYTES", 9)
    cluster = many_feeding(3)
    (sent,) = [message for _, _, data in cluster.network if isinstance(message := decode(data), GroupState)]
    assert cluster[1].groups.leftovers[ON_THEIR_WAY] == 3
    cluster.network.clear()
    groups = cluster[1].groups
    others = [number for number in groups.hosted if number != sent.group]
    ended = sent.group if how == "sent" else others[0]
    if how == "deposed":
        groups.hosted[ended].group._become_follower(99)
    else:
        groups.stop(ended)
    if how != "sent":
        groups.stop(sent.group)
    cluster[1].end_step()
    found = [message for _, _, data in cluster.network if isinstance(message := decode(data), GroupState)]
    assert [message.group for message in found] == ([others[0]] if how == "sent" else [others[1]])
    assert groups.leftovers[ON_THEIR_WAY] == (2 if how == "sent" else 1)
