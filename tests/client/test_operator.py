"""An operator's end of the protocol, against members in one process that do as the test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests import statuses
from tests.server.memory_cluster import MemoryCluster, MemoryMember

from holdfast.actions.drain import Drain
from holdfast.actions.list_clients import ClientList, ListClients
from holdfast.actions.operator_action import OperatorAction
from holdfast.actions.set_state import SetState
from holdfast.actions.shut_down import ShutDown
from holdfast.actions.upgrade import Upgrade
from holdfast.cli.action_commands import _Sending
from holdfast.cli.operator_command import Call
from holdfast.client import operator as control
from holdfast.client.connection import Connection, Credentials
from holdfast.client.operator import Gap, Listening, Silence, Watcher, act, act_at_any
from holdfast.core.model.ids import Address
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, News
from holdfast.core.model.views import ClusterState
from holdfast.errors import Denied, NotReady, Refused, Standing, TooLarge, Unknown, Unreachable, Unsupported
from holdfast.wire import own

NOBODY = Credentials()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    monkeypatch.setattr(control, "LOOK_S", 0.01)
    monkeypatch.setattr(control, "PING_S", 0.05)
    with MemoryCluster(3, 7) as running:
        yield running


def door(member: MemoryMember) -> Address:
    return Address("127.0.0.1", member.port)


def when_ordered(
    cluster: MemoryCluster, member: MemoryMember, deed: Callable[[Any], None]
) -> threading.Thread:
    """Do this with the function that answers the member's first order, when it has come."""

    def wait() -> None:
        while not member.actions:
            time.sleep(0.005)
        cluster.do(lambda: deed(member.actions[0][2]))

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


# -- orders


@pytest.mark.parametrize(
    ("fate", "error"),
    [
        (own.Fate.DONE, None),
        (own.Fate.REJECTED, Refused),
        (own.Fate.ACCEPTED, Standing),
        (own.Fate.UNKNOWN, Unknown),
    ],
)
def test_what_becomes_of_an_order_is_told(
    cluster: MemoryCluster, fate: own.Fate, error: type[Exception] | None
) -> None:
    member = cluster.members[0]
    seen: list[MemberStatus] = []
    # It is answered only after the member was asked how far it is.
    thread = when_ordered(cluster, member, lambda done: cluster.loop.call_later(0.1, done, fate, "because"))
    if error is None:
        told = act(door(member), NOBODY, Drain(), timeout_s=7, progress=seen.append)
        assert told == "because"
    else:
        with pytest.raises(error, match="because"):
            act(door(member), NOBODY, Drain(), timeout_s=7, progress=seen.append)
    thread.join()
    assert [action for action, _, _ in member.actions] == [Drain()]
    assert member.actions[0][1] == 7000
    assert seen
    assert seen[0].name == "m1"


def test_a_status_that_a_member_rejects_does_not_end_the_order(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member may be about to end, because the order is carried out."""
    asked: list[object] = []

    def reject(connection: object) -> MemberStatus:
        asked.append(connection)
        raise Refused("this member has ended")

    monkeypatch.setattr(control, "ask_status", reject)
    member = cluster.members[0]
    thread = when_ordered(
        cluster, member, lambda done: cluster.loop.call_later(0.1, done, own.Fate.DONE, "left")
    )
    assert act(door(member), NOBODY, Drain(), timeout_s=7, progress=print) == "left"
    thread.join()
    assert asked


def test_a_member_that_goes_away_leaves_the_order_unknown(cluster: MemoryCluster) -> None:
    member = cluster.members[0]
    thread = when_ordered(cluster, member, lambda done: cluster.kill(member))
    with pytest.raises(Unknown, match="the command was sent, and there was no response"):
        act(door(member), NOBODY, Drain(), timeout_s=7)
    thread.join()
    with pytest.raises(NotReady, match="cannot connect"):
        act(door(member), NOBODY, Drain(), timeout_s=7)


def test_the_last_answer_of_a_member_that_ends_is_heard(cluster: MemoryCluster) -> None:
    member = cluster.members[0]

    def end(done: Callable[[own.Fate, str], None]) -> None:
        done(own.Fate.DONE, "left the cluster")
        for writer in list(member.writers):
            writer.close()

    thread = when_ordered(cluster, member, end)
    assert act(door(member), NOBODY, Drain(), timeout_s=7) == "left the cluster"
    thread.join()


def test_an_answer_counts_that_came_before_a_question_could_not_be_sent(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member has answered and ended, and this side has not read the answer when it writes again."""
    member, ended = cluster.members[0], threading.Event()

    def end(done: Callable[[own.Fate, str], None]) -> None:
        done(own.Fate.DONE, "left the cluster")
        for writer in list(member.writers):
            writer.close()
        ended.set()

    def ask(connection: object) -> MemberStatus:
        assert isinstance(connection, Connection)
        assert ended.wait(120)
        # The first one makes the other side reset the connection.
        for number in (91, 92):
            connection.post(own.AskTable(number))
            time.sleep(0.1)
        raise AssertionError("the second question was sent")

    monkeypatch.setattr(control, "ask_status", ask)
    thread = when_ordered(cluster, member, end)
    assert act(door(member), NOBODY, Drain(), timeout_s=7, progress=print) == "left the cluster"
    thread.join()


@pytest.mark.parametrize(("kind", "ends"), [(ShutDown, True), (Drain, False)])
def test_a_member_that_is_gone_without_an_answer_has_ended_if_all_are_to_end(
    cluster: MemoryCluster, kind: type[OperatorAction], ends: bool
) -> None:
    member = cluster.members[0]
    sending = _Sending(kind, Call(timeout_s=7))
    thread = when_ordered(cluster, member, lambda done: cluster.kill(member))
    if ends:
        assert "has ended" in sending._carry_out(kind(), door(member), progress=print)
    else:
        with pytest.raises(Unknown, match="there was no response"):
            sending._carry_out(kind(), door(member), progress=print)
    thread.join()


def test_an_order_to_the_cluster_goes_on_through_another_member(cluster: MemoryCluster) -> None:
    first, second, _ = cluster.members
    threads = [
        when_ordered(cluster, first, lambda done: cluster.kill(first)),
        when_ordered(cluster, second, lambda done: done(own.Fate.DONE, "")),
    ]
    act_at_any([door(first)], NOBODY, SetState(ClusterState.FROZEN), timeout_s=7)
    for thread in threads:
        thread.join()
    action, timeout_ms, _ = second.actions[0]
    assert action == SetState(ClusterState.FROZEN)
    assert timeout_ms <= 7000


class FreezeOnce(SetState, frozen=True):
    """An action that is not idempotent."""

    declared = SetState.declared._replace(sent_once=True)


def test_an_action_that_is_sent_once_goes_to_no_second_member(cluster: MemoryCluster) -> None:
    first, second, _ = cluster.members
    thread = when_ordered(cluster, first, lambda done: cluster.kill(first))
    with pytest.raises(Unknown, match="there was no response"):
        act_at_any([door(first), door(second)], NOBODY, FreezeOnce(ClusterState.FROZEN), timeout_s=7)
    thread.join()
    assert not second.actions


def test_an_action_that_is_sent_once_goes_to_the_first_member_that_can_be_reached(
    cluster: MemoryCluster,
) -> None:
    first, second, _ = cluster.members
    cluster.kill(first)
    thread = when_ordered(cluster, second, lambda done: done(own.Fate.DONE, "frozen"))
    done = act_at_any([door(first), door(second)], NOBODY, FreezeOnce(ClusterState.FROZEN), timeout_s=7)
    thread.join()
    assert done == ("frozen", None)


def test_without_a_response_in_time_an_action_that_does_not_continue_is_unknown(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LATE_S", 0.01)
    at = door(cluster.members[0])
    with pytest.raises(Unknown, match="may be done, or not"):
        act(at, NOBODY, FreezeOnce(ClusterState.FROZEN), timeout_s=0.05)
    with pytest.raises(Unknown, match="may be done, or not"):
        act(at, NOBODY, Upgrade(), timeout_s=0.05)
    with pytest.raises(Standing, match="it may still carry out the command"):
        act(at, NOBODY, SetState(ClusterState.FROZEN), timeout_s=0.05)
    with pytest.raises(Unreachable, match="has not responded in time"):
        control.ask(at, NOBODY, ListClients(), timeout_s=0.05)


def test_a_query_to_any_member_goes_on_through_another_one(cluster: MemoryCluster) -> None:
    first, second, _ = cluster.members
    threads = [
        when_ordered(cluster, first, lambda done: cluster.kill(first)),
        when_ordered(cluster, second, lambda done: done(own.Fate.DONE, "", ClientList([]))),
    ]
    done = act_at_any([door(first), door(second)], NOBODY, ListClients(), timeout_s=7)
    for thread in threads:
        thread.join()
    assert done.value == ClientList([])


@pytest.mark.parametrize("kind", [Denied, NotReady, TooLarge, Unsupported, Refused])
def test_a_rejection_keeps_its_kind(cluster: MemoryCluster, kind: type[Refused]) -> None:
    """`metastore watch` tries again while no member is ready, and ends if there is no metastore."""
    member = cluster.members[0]
    thread = when_ordered(
        cluster, member, lambda done: done(own.Fate.REJECTED, "because", None, kind.__name__)
    )
    with pytest.raises(Refused, match="because") as rejected:
        act(door(member), NOBODY, Drain(), timeout_s=7)
    thread.join()
    assert type(rejected.value) is kind


def test_an_order_to_a_cluster_of_which_nobody_answers(cluster: MemoryCluster) -> None:
    addresses = [door(member) for member in cluster.members]
    for member in cluster.members:
        cluster.do(lambda one=member: cluster.loop.call_soon(one.server.close))
    cluster.do(lambda: None)
    with pytest.raises(NotReady, match="cannot connect"):
        act_at_any(addresses, NOBODY, SetState(ClusterState.FROZEN), timeout_s=1)


def test_credentials_are_shown_at_the_door(cluster: MemoryCluster) -> None:
    member = cluster.members[0]
    member.user = ("ada", "secret", None)
    with pytest.raises(Denied):
        act(door(member), NOBODY, ShutDown(), timeout_s=1)
    with pytest.raises(Denied):
        next(Watcher([door(member)], NOBODY).events())
    thread = when_ordered(cluster, member, lambda done: done(own.Fate.DONE, ""))
    act(door(member), Credentials(None, "ada", "secret"), ShutDown(), timeout_s=1)
    thread.join()


# -- news


def news(count: int) -> News:
    moved = Migration(count, "a", 0, NONE, "b", NONE, 0)
    return News((1, count), Kind.COMPLETED, (1, 0), 9, count, migration=moved)


def tell(cluster: MemoryCluster, count: int, *members: MemoryMember) -> None:
    """All members hear of this; first those that are named."""
    for member in members or cluster.members:
        cluster.do(lambda one=member: one.tell_news(news(count)))


def test_news_come_once_each_also_when_the_member_changes(cluster: MemoryCluster) -> None:
    first, second, _ = cluster.members
    events = Watcher([door(first)], NOBODY).events()
    assert isinstance(next(events), Listening)
    tell(cluster, 1)
    assert next(events) == news(1)
    tell(cluster, 2)
    tell(cluster, 3, second, cluster.members[2])  # the first has not heard of this when it dies
    assert next(events) == news(2)
    cluster.do(lambda: cluster.kill(first))
    listening = next(events)
    assert isinstance(listening, Listening)
    assert listening.status.name == "m2"
    assert next(events) == news(3)
    tell(cluster, 4, second)
    assert next(events) == news(4)
    events.close()  # type: ignore[attr-defined]


def test_what_was_told_while_nobody_asked_is_heard_later(cluster: MemoryCluster) -> None:
    events = Watcher([door(cluster.members[0])], NOBODY).events()
    next(events)
    for count in (1, 2, 3):
        tell(cluster, count)
    assert [next(events) for _ in range(3)] == [news(1), news(2), news(3)]
    events.close()  # type: ignore[attr-defined]


def test_a_gap_is_told(cluster: MemoryCluster) -> None:
    first, second, _ = cluster.members
    events = Watcher([door(first)], NOBODY).events()
    next(events)
    second.complete = False
    tell(cluster, 5, second)
    cluster.do(lambda: cluster.kill(first))
    assert isinstance(next(events), Listening)
    assert next(events) == Gap()
    assert next(events) == news(5)
    events.close()  # type: ignore[attr-defined]


def test_silence_is_told_once_and_ends(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cluster.members[0]
    monkeypatch.setattr(MemoryMember, "status", lambda self: statuses.status(state="exiled"))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            row = {"uuid": "u", "name": "m1", "host": "127.0.0.1", "client_port": first.port}
            monkeypatch.setattr(MemoryMember, "status", lambda self: statuses.status(members=[row]))

    monkeypatch.setattr(control.time, "sleep", sleep)
    events = Watcher([door(first)], NOBODY).events()
    silence = next(events)
    assert isinstance(silence, Silence)
    assert "is exiled" in silence.why
    assert isinstance(next(events), Listening)
    assert len(pauses) == 3
    assert pauses == sorted(set(pauses)), "each longer than the one before"
    events.close()  # type: ignore[attr-defined]


def test_a_member_that_leaves_the_cluster_is_watched_no_longer(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still answers; but what happens now, it is not told."""
    first, before = cluster.members[0], MemoryMember.status
    events = Watcher([door(first)], NOBODY).events()
    next(events)

    def status(self: MemoryMember) -> MemberStatus:
        return replace(before(self), state="exiled") if self is first else before(self)

    monkeypatch.setattr(MemoryMember, "status", status)
    listening = next(events)
    assert isinstance(listening, Listening)
    assert listening.status.name == "m2"
    events.close()  # type: ignore[attr-defined]
