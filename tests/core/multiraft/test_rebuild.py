"""A replica whose state differs is rebuilt from its leader's state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.multiraft.group_cluster import ONE, TWO, Cluster, hosted, led

from holdfast.core.messages import GroupState, GroupStateTaken, GroupStateWanted
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import ZONE_REPAIRS
from holdfast.core.multiraft import group_host, replica_rebuilds, snapshot_transfer
from holdfast.wire.codec import decode

pytestmark = pytest.mark.rule("multiraft/H-9")


def wrong(*, files: bool = True) -> Cluster:
    """The second of three replicas has applied something else."""
    cluster = led(files)
    for process in cluster.processes.values():
        process.out.level = ZONE_REPAIRS
    cluster.propose(1, b"one", b"two")
    cluster.quiesce()
    cluster.go(2)
    cluster[2].clients[ONE].applied[0] = b"wrong"
    return cluster


def hold_state(cluster: Cluster) -> tuple[MemberId, MemberId, bytes]:
    """Take the state that is sent off the network."""
    cluster.deliver_all_but(GroupState)
    (state,) = cluster.network
    cluster.network.clear()
    return state


def finished(cluster: Cluster, at: int) -> bool:
    return not cluster[at].groups.leftovers["replicas being rebuilt"]


def rebuild(cluster: Cluster, at: int) -> str:
    why = cluster[at].groups.rebuilds.begin(ONE)
    cluster[at].end_step()
    return why


@pytest.mark.parametrize("files", [True, False])
def test_a_follower_gets_the_state_of_its_leader(*, files: bool) -> None:
    cluster = wrong(files=files)
    assert rebuild(cluster, 2) == ""
    cluster.quiesce()
    cluster.go(2)
    assert cluster.applied(2) == cluster.applied(1) == [b"one", b"two"]
    assert cluster[1].groups.leftovers["states of groups on their way"] == 0
    cluster.propose(1, b"three")
    cluster.quiesce()
    cluster.go(2)
    assert cluster.applied(2) == [b"one", b"two", b"three"]


def test_what_was_applied_after_the_state_was_taken_is_applied_again() -> None:
    cluster = wrong()
    assert rebuild(cluster, 2) == ""
    state = hold_state(cluster)
    cluster.propose(1, b"three", b"four")
    cluster.quiesce()
    cluster.go(2)
    assert cluster.applied(2) == [b"wrong", b"two", b"three", b"four"]
    cluster.network.append(state)
    cluster.quiesce()
    assert cluster.applied(2) == [b"one", b"two", b"three", b"four"]


@pytest.mark.parametrize("files", [True, False])
def test_a_state_that_is_newer_than_what_was_applied_counts_when_that_is_applied(*, files: bool) -> None:
    cluster = wrong(files=files)
    cluster.propose(1, b"three")
    cluster.quiesce()
    log = hosted(cluster, 2).group.log
    assert log.applied < hosted(cluster, 1).group.log.applied <= log.last, (
        "it does not know that it is committed"
    )
    assert rebuild(cluster, 2) == ""
    cluster.quiesce()
    assert cluster.applied(2) == [b"one", b"two", b"three"]
    assert finished(cluster, 2)
    assert not cluster.count(GroupStateWanted), "once was enough"


def test_a_state_that_waits_for_its_turn_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of many replicas share the room on the wire, so the next part of each may take longer than a follower
    waits. If each request began the state again, it would never be complete.
    """
    monkeypatch.setattr(snapshot_transfer, "STATE_BYTES", 1)
    cluster = wrong()
    cluster[1].out.now_ns = 10 * snapshot_transfer.LOST_NS
    transfers = cluster[1].groups.transfers
    rebuild(cluster, 2)
    cluster.deliver_all_but(GroupState)
    transfers.bound_flight(0)  # Other states take the room.
    cluster.quiesce()
    cluster.go(2 * replica_rebuilds.AGAIN_TICKS)
    transfers.bound_flight(1 << 20)
    transfers.send_waiting()
    cluster[1].end_step()
    found = [decode(data) for _, _, data in cluster.network]
    assert [each.first for each in found if isinstance(each, GroupState)] == [1]
    cluster.quiesce()
    assert cluster.applied(2) == [b"one", b"two"]
    assert finished(cluster, 2)


def test_a_newer_state_is_installed_where_the_log_lacks_its_entries() -> None:
    cluster = wrong()
    cluster.cut.add(cluster[2].info.uuid)
    cluster.propose(1, b"three")
    cluster.quiesce()
    cluster.cut.clear()
    assert rebuild(cluster, 2) == ""
    cluster.quiesce()
    cluster.go(2)
    assert cluster.applied(2) == [b"one", b"two", b"three"]
    assert finished(cluster, 2)


@pytest.mark.parametrize("lost", [GroupStateWanted, GroupState])
def test_what_is_lost_is_requested_again(lost: type[object]) -> None:
    cluster = wrong()
    rebuild(cluster, 2)
    cluster.deliver_all_but(lost)
    assert cluster.count(lost) == 1
    cluster.network.clear()
    cluster.go(replica_rebuilds.AGAIN_TICKS - 1)
    assert cluster.applied(2)[0] == b"wrong"
    assert not finished(cluster, 2)
    cluster.go(2)
    assert cluster.applied(2) == [b"one", b"two"]
    assert finished(cluster, 2)
    cluster.go(30)
    assert not cluster[2].timer, "then it sleeps"


def test_each_part_of_a_long_state_counts_as_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_transfer, "STATE_BYTES", 1)
    monkeypatch.setattr(replica_rebuilds, "AGAIN_TICKS", 4)
    cluster = wrong()
    requests: list[GroupStateWanted] = []
    monkeypatch.setattr(
        cluster[1].groups.transfers, "on_wanted", noted(cluster[1].groups.transfers.on_wanted, requests)
    )
    rebuild(cluster, 2)
    for _ in range(2):
        cluster.deliver_all_but(GroupState)
        held = list(cluster.network)
        cluster.network.clear()
        cluster.go(3)
        cluster.network.extend(held)
        cluster.deliver()
    assert cluster.applied(2) == [b"one", b"two"]
    assert finished(cluster, 2)
    assert len(requests) == 1


def noted(
    original: Callable[[MemberId, GroupStateWanted], None], found: list[GroupStateWanted]
) -> Callable[[MemberId, GroupStateWanted], None]:
    def on_wanted(sender: MemberId, message: GroupStateWanted) -> None:
        found.append(message)
        original(sender, message)

    return on_wanted


def test_an_older_state_does_not_replace_the_pieces_of_one_that_is_being_installed() -> None:
    cluster = wrong()
    cluster.cut.add(cluster[2].info.uuid)
    states = []
    for command in (b"three", b"four"):
        cluster.propose(1, command)
        cluster.quiesce()
        cluster[1].groups.transfers.on_wanted(cluster[2].info.uuid, GroupStateWanted(ONE))
        cluster[1].end_step()
        cluster.deliver_all_but(GroupState)
        (state,) = [each for each in cluster.network if isinstance(decode(each[2]), GroupState)]
        states.append(state)
        cluster.network.clear()
    cluster.cut.clear()
    assert rebuild(cluster, 2) == ""
    cluster.network.clear()
    for sender, _, data in reversed(states):
        message = decode(data)
        assert isinstance(message, GroupState)
        cluster[2].groups.on_state(sender, message)
    cluster[2].end_step()
    cluster.quiesce()
    cluster.go(2)
    assert cluster.applied(2) == [b"one", b"two", b"three", b"four"]
    assert finished(cluster, 2)


def test_a_replica_that_leads_before_it_is_rebuilt_transfers_its_leadership() -> None:
    cluster = wrong()
    rebuild(cluster, 2)
    cluster.network.clear()
    cluster[1].groups.running(ONE).transfer(cluster.node(2))
    cluster[1].end_step()
    cluster.quiesce()
    cluster.go(replica_rebuilds.AGAIN_TICKS + 10)
    assert cluster.leader() is not cluster[2]
    assert cluster.applied(2) == cluster.applied(1) == [b"one", b"two"]
    assert finished(cluster, 2)


def test_a_replica_that_is_stopped_is_not_rebuilt() -> None:
    cluster = wrong()
    rebuild(cluster, 2)
    cluster.network.clear()
    cluster[2].groups.stop(ONE)
    assert finished(cluster, 2)


def test_a_restart_after_a_rebuild_has_the_new_state() -> None:
    cluster = wrong()
    assert ONE not in cluster[2].checkpoint
    rebuild(cluster, 2)
    cluster.quiesce()
    cluster.go(2)
    assert ONE in cluster[2].checkpoint, "the wrong state is in none"
    cluster.restart(2)
    cluster.quiesce()
    cluster.go(2)
    assert cluster.applied(2) == [b"one", b"two"]


def test_a_state_from_before_the_log_here_begins_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 4)
    cluster = wrong()
    rebuild(cluster, 2)
    state = hold_state(cluster)
    for number in range(20):
        cluster.propose(1, b"%d" % number)
        cluster.quiesce()
    cluster.go(2)
    cluster.network.append(state)
    cluster.deliver()
    assert cluster.applied(2)[0] == b"wrong"
    cluster.quiesce()
    assert cluster.applied(2) == cluster.applied(1), "it was requested again"
    assert finished(cluster, 2)


def test_a_leader_lets_another_voter_lead_first() -> None:
    cluster = wrong()
    cluster.cut.add(cluster[3].info.uuid)
    cluster.propose(1, b"three")
    cluster.quiesce()
    cluster.cut.clear()
    assert rebuild(cluster, 1) == "it leads: another member has to lead first"
    cluster.quiesce()
    cluster.go(3)
    assert cluster.leader() is cluster[2], "it has more of the log than the third"
    assert rebuild(cluster, 1) == ""
    alone = wrong()
    alone.install([alone[1].info.uuid])
    assert rebuild(alone, 1) == "it leads, and no other voter is here"


def test_why_a_replica_cannot_be_rebuilt_now() -> None:
    cluster = wrong()
    assert cluster[2].groups.rebuilds.begin(TWO) == "this member runs no replica of the partition"
    cluster[3].groups.halt(ONE)
    assert cluster[3].groups.rebuilds.begin(ONE) == "this member runs no replica of the partition"
    cluster[2].out.level = ZONE_REPAIRS - 1
    assert rebuild(cluster, 2) == f"it needs feature level {ZONE_REPAIRS} (holdfast cluster upgrade)"
    cluster[2].out.level = ZONE_REPAIRS
    cluster.install([cluster[2].info.uuid, cluster[3].info.uuid])
    assert rebuild(cluster, 2) == "its leader is not known"
    assert cluster.count(GroupStateWanted) == 0
    unled = Cluster(3)
    unled.start(ONE, 1, 2, 3)
    assert rebuild(unled, 2) == "its leader is not known"


def test_only_a_leader_sends_its_state_and_only_to_its_followers() -> None:
    cluster = led(members=4)
    uuids = [process.info.uuid for process in cluster.processes.values()]

    def sent(at: int, sender: int, group: int = ONE) -> list[str]:
        cluster[at].groups.transfers.on_wanted(uuids[sender - 1], GroupStateWanted(group))
        cluster[at].end_step()
        found = [(to, decode(data)) for _, to, data in cluster.network]
        cluster.network.clear()
        return [to for to, message in found if isinstance(message, GroupState)]

    assert sent(1, 3) == [uuids[2]]
    assert sent(1, 4) == [], "it is no replica"
    assert sent(2, 3) == [], "it does not lead"
    assert sent(1, 3, TWO) == [], "there is no such group"
    cluster[1].groups.transfers.on_wanted("stranger", GroupStateWanted(ONE))  # type: ignore[arg-type]
    cluster[1].end_step()
    assert cluster.count(GroupState) == 0
    cluster[1].groups.halt(ONE)
    assert sent(1, 2) == []


def test_a_state_that_waits_is_given_up_when_its_sender_leads_no_more() -> None:
    cluster = wrong()
    rebuild(cluster, 2)
    state = decode(hold_state(cluster)[2])
    assert isinstance(state, GroupState)
    cluster[1].groups.running(ONE).transfer(cluster.node(3))
    cluster[1].end_step()
    cluster.quiesce()
    cluster.go(2)
    assert cluster.leader() is not cluster[1]
    snapshot = state.snapshot.snapshot
    assert snapshot is not None
    cluster[1].groups.transfers.on_state_taken(
        cluster[2].info.uuid, GroupStateTaken(ONE, snapshot.index, len(state.pieces))
    )
    assert cluster[1].groups.leftovers["states of groups on their way"] == 0
    assert hosted(cluster, 2).group.log.applied == hosted(cluster, 1).group.log.applied
