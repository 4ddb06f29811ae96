"""One question to each other member confirms that this one leads all the groups that it reads."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.core.multiraft.group_cluster import ONE, Cluster, Process

from holdfast.core.messages import LeadAsked, LeadConfirmed
from holdfast.core.model.ids import SECOND, GroupNumber
from holdfast.core.multiraft.read_rounds import SLOW_NS
from holdfast.wire.codec import decode
from holdfast_lab.sim.ablations.switching import ablated

GROUPS = [ONE + at for at in range(5)]


class Reader:
    """Somebody who has read what is there."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def lead_confirmed(self, *, confirmed: bool) -> None:
        self.told.append(confirmed)


class _Noted(set[GroupNumber]):
    """A set that notes what is added."""

    def __init__(self, added: list[GroupNumber]) -> None:
        super().__init__()
        self._added = added

    def add(self, number: GroupNumber) -> None:
        self.update([number])

    def update(self, *numbers: Iterable[GroupNumber]) -> None:
        for some in numbers:
            self._added += some
        super().update(*numbers)


class Readers:
    """Three members, the first of which leads every group."""

    def __init__(self, voters: int = 3) -> None:
        self.cluster = Cluster(3)
        for number in GROUPS:
            self.cluster.start(number, *range(1, voters + 1))
        self.cluster.go(30)
        for number in GROUPS:
            self.cluster[1].groups.running(number).transfer(self.cluster.node(1))
            leader = self.cluster.leader(number)
            leader.groups.running(number).transfer(self.cluster.node(1))
            leader.end_step()
        self.cluster.go(5)
        assert all(self.cluster.leader(number) is self.leader for number in GROUPS)

    @property
    def leader(self) -> Process:
        return self.cluster[1]

    def read(self, *groups: GroupNumber) -> Reader:
        """Read here, and ask whether it counts."""
        reader = Reader()
        assert all(self.leader.groups.current(number) for number in groups)
        self.leader.groups.rounds.wait(groups, reader)
        self.leader.end_step()
        return reader

    def later(self, ns: int = SLOW_NS) -> None:
        self.leader.out.now_ns += ns
        self.leader.groups.rounds.on_timer()
        self.leader.end_step()

    def on_their_way(self) -> list[LeadAsked | LeadConfirmed]:
        found = [decode(data) for _, _, data in self.cluster.network]
        return [one for one in found if isinstance(one, LeadAsked | LeadConfirmed)]


@pytest.mark.rule("multiraft/H-5")
def test_all_groups_are_confirmed_by_one_question_to_one_member() -> None:
    readers = Readers()
    first = readers.read(*GROUPS)
    assert [one.groups for one in readers.on_their_way() if isinstance(one, LeadAsked)] == [
        [(number, readers.leader.groups.term(number)) for number in GROUPS]
    ]
    assert first.told == []
    readers.cluster.quiesce()
    assert first.told == [True]
    second = readers.read(*GROUPS[:2])
    assert [one.groups for one in readers.on_their_way() if isinstance(one, LeadAsked)] == [[]]
    third = readers.read(*GROUPS[2:])
    assert len(readers.on_their_way()) == 1, "the next round waits for the one that is on its way"
    readers.cluster.quiesce()
    assert (second.told, third.told) == ([True], [True])
    assert readers.leader.groups.leftovers["reads of groups"] == 0


@pytest.mark.rule("multiraft/H-5")
def test_a_member_at_another_standing_is_asked_for_each_group_at_once() -> None:
    """Another group of that member has another leader: that says nothing about the groups that are read."""
    readers = Readers()
    first = readers.read(*GROUPS)
    [asked] = {to for _, to, data in readers.cluster.network if isinstance(decode(data), LeadAsked)}
    readers.cluster.quiesce()
    assert first.told == [True]
    for process in readers.cluster.processes.values():
        if process.info.uuid == asked:
            process.groups.rounds.changed()
    doubts: list[GroupNumber] = []
    readers.leader.groups.rounds.doubted = _Noted(doubts)
    second = readers.read(*GROUPS)
    readers.cluster.quiesce()
    assert second.told == [True], "without waiting for the timer"
    assert doubts == []


@pytest.mark.rule("multiraft/H-5")
def test_who_was_a_leader_is_not_confirmed_by_what_was_said_before() -> None:
    assert told_to_who_was_a_leader() == [False]
    with ablated("read-standing"):
        assert told_to_who_was_a_leader() == [True]


def told_to_who_was_a_leader() -> list[bool]:
    """Whether a read counts of who has led until now, and does not know that somebody else has been elected."""
    readers = Readers()
    cluster, old = readers.cluster, readers.leader
    before = readers.read(*GROUPS)
    cluster.quiesce()
    assert before.told == [True]
    cluster.propose(1, b"awake")
    cluster.quiesce()
    cluster.cut = {old.info.uuid}
    for _ in range(40):
        for process in (cluster[2], cluster[3]):
            process.groups.on_timer()
            process.end_step()
        cluster.quiesce()
    new = next(one for one in (cluster[2], cluster[3]) if one.groups.term(ONE) is not None)
    cluster.propose(2 if new is cluster[2] else 3, b"newer")
    cluster.quiesce()
    assert new.clients[ONE].applied[-1] == b"newer"
    cluster.cut = set()
    assert old.groups.current(ONE), "it does not know yet"
    stale = readers.read(ONE)
    others = readers.read(*GROUPS[1:3])
    cluster.quiesce()
    told = list(stale.told)
    cluster.go(5)
    readers.later()
    cluster.go(5)
    assert others.told in ([True], [False])
    return told


@pytest.mark.rule("multiraft/H-5")
def test_a_member_that_does_not_answer_keeps_nobody_waiting() -> None:
    readers = Readers()
    cluster = readers.cluster
    asked = readers.read(*GROUPS)
    (slow,) = {to for _, to, data in cluster.network if isinstance(decode(data), LeadAsked)}
    cluster.network.clear()
    readers.later(SLOW_NS - 1)
    assert not readers.on_their_way()
    readers.later(1)
    cluster.cut = {slow}
    cluster.quiesce()
    assert asked.told == [True]
    again = readers.read(ONE)
    assert {to for _, to, data in cluster.network if isinstance(decode(data), LeadAsked)} != {slow}
    cluster.quiesce()
    assert again.told == [True], "who was slow is asked last"


def test_without_a_majority_a_read_is_given_up_and_others_go_on() -> None:
    readers = Readers()
    cluster = readers.cluster
    alone = ONE + 9
    cluster.start(alone, 1)
    cluster.go(30)
    cluster.cut = {cluster[2].info.uuid, cluster[3].info.uuid}
    stuck = readers.read(ONE)
    cluster.quiesce()
    readers.later()
    behind, here = readers.read(ONE, ONE + 1), readers.read(alone)
    cluster.quiesce()
    assert here.told == [True], "who is alone asks nobody"
    assert stuck.told == behind.told == []
    readers.later(60 * SECOND)
    assert stuck.told == behind.told == [False]
    assert readers.leader.groups.leftovers["reads of groups"] == 0


def test_who_stops_leading_or_has_no_replica_any_more_tells_its_readers() -> None:
    readers = Readers()
    cluster = readers.cluster
    first, second = readers.read(ONE, ONE + 1), readers.read(ONE + 2)
    readers.leader.groups.stop(ONE + 1)
    assert first.told == [False]
    readers.leader.end_step()
    cluster.quiesce()
    assert second.told == [True]
    waiting = readers.read(ONE + 2)
    behind = readers.read(ONE + 2)
    readers.leader.groups.running(ONE + 2).transfer(cluster.node(2))
    readers.leader.end_step()
    cluster.network.extend([cluster.network.popleft()])
    cluster.go(3)
    assert waiting.told and behind.told
    assert readers.leader.groups.leftovers["reads of groups"] == 0


def test_nobody_is_asked_twice_when_the_members_change() -> None:
    readers = Readers()
    cluster = readers.cluster
    asked = readers.read(*GROUPS)
    cluster.network.clear()
    cluster.install([cluster[1].info.uuid, cluster[3].info.uuid])
    cluster.quiesce()
    assert asked.told == [True], "whoever is here now was asked"


def test_an_answer_to_a_round_that_is_over_says_nothing() -> None:
    readers = Readers()
    asked = readers.read(ONE)
    rounds = readers.leader.groups.rounds
    rounds.on_confirmed(readers.cluster[2].info.uuid, LeadConfirmed(99, 0, [ONE]))
    rounds.on_confirmed(readers.cluster[1].info.uuid, LeadConfirmed(1, 0, []))
    assert asked.told == []
    readers.cluster.quiesce()
    assert asked.told == [True]


@pytest.mark.rule("multiraft/H-5")
def test_a_replica_that_was_told_to_rest_confirms_nothing_not_even_alone() -> None:
    """Others may go on without it by now: a reset has given it up."""
    readers = Readers()
    cluster = readers.cluster
    alone = ONE + 9
    cluster.start(alone, 1)
    cluster.go(30)
    waiting = readers.read(ONE)
    readers.leader.groups.halt(ONE)
    assert waiting.told == [False], "nobody waits for what will not come"
    readers.leader.groups.halt(alone)
    reader = Reader()
    readers.leader.groups.rounds.wait([alone], reader)
    readers.leader.end_step()
    assert reader.told == [False]
