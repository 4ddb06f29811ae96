"""Rounds of questions, one step at a time: whom a leader asks, what an answer confirms, and who waits for what."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from tests.core.multiraft.test_read_rounds import Reader

from holdfast.core.effects import Send, SetTimer
from holdfast.core.messages import LeadAsked, LeadConfirmed
from holdfast.core.model.ids import GROUPS_FROM, SECOND, GroupNumber, MemberId
from holdfast.core.model.timer_name import TimerName
from holdfast.core.multiraft.read_rounds import AGAIN_NS, SLOW_NS, ReadRounds
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import Configuration

ONE, TWO, THREE = (GroupNumber(GROUPS_FROM + at) for at in (1, 2, 3))
PATIENCE_NS = 10 * SECOND


@dataclass
class Replica:
    """What the rounds know of a replica of this member."""

    group: Any
    halted: bool = False
    reads: list[tuple[int, bytes]] = field(default_factory=list)


def replica(
    voters: str = "mbc", *, outgoing: str = "", term: int = 5, leads: bool = True, settled: bool = True
) -> Replica:
    configuration = Configuration(frozenset(voters), frozenset(outgoing))
    leading = SimpleNamespace(settled=settled) if leads else None
    log = SimpleNamespace(committed=8)
    return Replica(SimpleNamespace(me="m", term=term, leading=leading, configuration=configuration, log=log))


class Rounds:
    """The rounds of the member `m`, whose nodes are also the names of the members."""

    def __init__(self, **replicas: Replica) -> None:
        names = {"one": ONE, "two": TWO, "three": THREE}
        self.replicas = {names[name]: each for name, each in replicas.items()}
        self.out = Outbox(None)
        self.out.now_ns = 1000
        self.rounds = ReadRounds("m", self.out, self.replicas, PATIENCE_NS)
        self.view("bcde")
        self.timers = 0

    def view(self, nodes: str) -> list[tuple[str, LeadAsked]]:
        self.rounds.on_view({node: MemberId(f"@{node}") for node in ["m", *nodes]})
        return self.sent()

    def sent(self) -> list[tuple[str, Any]]:
        effects = self.out.take()
        timers = [each for each in effects if isinstance(each, SetTimer)]
        assert all((each.name, each.after_ns) == (TimerName.READ_ROUNDS, SLOW_NS) for each in timers)
        self.timers = len(timers)
        return [(each.to[1:], each.message) for each in effects if isinstance(each, Send)]

    def asked(self) -> list[tuple[str, int, list[tuple[GroupNumber, int]]]]:
        self.rounds.flush()
        return [(to, message.round, message.groups) for to, message in self.sent()]

    def wait(self, *groups: GroupNumber) -> Reader:
        reader = Reader()
        self.rounds.wait(groups, reader)
        return reader

    def confirms(self, node: str, number: int, *groups: GroupNumber, standing: int = 1) -> None:
        self.rounds.on_confirmed(MemberId(f"@{node}"), LeadConfirmed(number, standing, list(groups)))

    def later(self, ns: int) -> list[tuple[str, int]]:
        self.out.now_ns += ns
        self.rounds.on_timer()
        return [(to, message.round) for to, message in self.sent()]


def test_which_reads_a_round_can_confirm() -> None:
    table = Rounds()
    for each, takes in (
        (replica(), True),
        (replica(leads=False), False),
        (replica(settled=False), False),
        (replica("m"), False),
        (replica("m", outgoing="mb"), True),
    ):
        assert table.rounds.takes(each.group) is takes


@pytest.mark.rule("multiraft/H-5")
def test_a_read_is_answered_as_of_the_commit_index_at_which_it_was_asked() -> None:
    table = Rounds(one=replica())
    assert not table.rounds.dirty
    table.rounds.ask(ONE, b"x")
    table.rounds.ask(ONE, b"y")
    assert table.rounds.dirty
    assert table.rounds.leftovers == 1
    assert table.asked() == [("b", 1, [(ONE, 5)])]
    assert (table.timers, table.rounds.dirty, table.rounds.leftovers) == (1, False, 1)
    table.replicas[ONE].group.log.committed = 11
    table.confirms("b", 1, ONE)
    assert table.replicas[ONE].reads == [(8, b"x"), (8, b"y")]
    assert (table.rounds.take_ready(), table.rounds.take_ready()) == ([ONE], [])
    assert (table.rounds.take_doubted(), table.rounds.leftovers) == ([], 0)
    table.confirms("b", 1, ONE)
    assert len(table.replicas[ONE].reads) == 2


def test_a_group_that_cannot_be_asked_about_loses_its_reads() -> None:
    for lost in (replica(leads=False), replica()):
        lost.halted = lost.group.leading is not None
        table = Rounds(one=lost)
        table.rounds.ask(ONE, b"x")
        table.rounds.ask(TWO, b"y")
        assert table.asked() == []
        assert (table.rounds.leftovers, table.timers) == (0, 0)


def test_a_voter_that_leads_alone_is_confirmed_at_once() -> None:
    joint, followed, elsewhere = replica("m", outgoing="mb"), replica("m", leads=False), replica("b")
    table = Rounds(one=replica("m"), two=joint)
    assert table.wait(ONE).told == [True]
    assert table.wait(ONE, TWO).told == []
    resting = replica("m")
    resting.halted = True
    for other in (followed, elsewhere, resting, replica("mb")):
        assert Rounds(one=other).wait(ONE).told == []


@pytest.mark.rule("multiraft/H-5")
def test_a_waiter_is_told_when_all_of_its_groups_are_confirmed() -> None:
    table = Rounds(one=replica(), two=replica("mbcde", term=7), three=replica())
    both, single = table.wait(ONE, TWO), table.wait(ONE)
    assert table.rounds.leftovers == 2
    assert table.asked() == [("b", 1, [(ONE, 5), (TWO, 7)]), ("c", 1, [(ONE, 5), (TWO, 7)])]
    table.confirms("b", 1, ONE, TWO)
    assert (both.told, single.told) == ([], [True]), "two of five are no majority"
    table.confirms("c", 1, TWO)
    assert both.told == [True]
    assert table.rounds.leftovers == 0
    assert table.rounds.take_ready() == [], "these need no index"


def test_reads_and_waiters_of_one_group_share_a_round() -> None:
    table = Rounds(one=replica())
    table.rounds.ask(ONE, b"x")
    waiting = table.wait(ONE)
    assert table.rounds.dirty
    table.asked()
    table.confirms("b", 1, ONE)
    assert (waiting.told, table.replicas[ONE].reads) == ([True], [(8, b"x")])
    alone = Rounds(one=replica())
    alone.wait(ONE)
    assert alone.rounds.dirty


def test_half_of_the_voters_are_no_majority() -> None:
    table = Rounds(one=replica("mbcd"))
    waiting = table.wait(ONE)
    assert [to for to, _, _ in table.asked()] == ["b", "c"]
    table.confirms("b", 1, ONE)
    assert waiting.told == []
    table.confirms("c", 1, ONE)
    assert waiting.told == [True]


def test_before_there_is_a_view_nobody_can_be_asked() -> None:
    out = Outbox(None)
    rounds = ReadRounds("m", out, {ONE: replica()}, PATIENCE_NS)
    rounds.wait([ONE], Reader())
    rounds.flush()
    rounds.on_confirmed(MemberId("@b"), LeadConfirmed(1, 1, []))
    assert [each for each in out.take() if isinstance(each, Send)] == []
    assert (rounds.leftovers, rounds.take_doubted()) == (1, []), "it is nobody's answer"


def test_who_waits_for_a_group_that_is_not_led_here_is_refused() -> None:
    table = Rounds(one=replica(), two=replica(leads=False))
    mixed, good = table.wait(ONE, TWO), table.wait(ONE)
    table.asked()
    assert (mixed.told, good.told) == ([False], [])


@pytest.mark.rule("multiraft/H-5")
def test_what_a_member_has_said_counts_while_its_standing_is_the_same() -> None:
    table = Rounds(one=replica(), two=replica())
    first = table.wait(ONE, TWO)
    table.asked()
    table.confirms("b", 1, ONE, TWO)
    assert first.told == [True]
    second = table.wait(ONE, TWO)
    assert table.asked() == [("b", 2, [])], "it has said so"
    table.confirms("b", 2)
    assert second.told == [True]
    third = table.wait(ONE)
    assert table.asked() == [("b", 3, [])]
    table.confirms("b", 3, standing=2)
    assert table.asked() == [("b", 3, [(ONE, 5)])], "the question did not name it"
    assert (third.told, table.rounds.take_doubted()) == ([], [])
    table.confirms("b", 3, standing=2)
    assert (table.asked(), third.told) == ([], [])
    assert (table.rounds.take_doubted(), table.rounds.take_doubted()) == ([ONE], [])
    assert table.later(SLOW_NS) == [("b", 3), ("c", 3)]
    table.confirms("b", 3, ONE, standing=2)
    assert third.told == [True]
    table.view("bcde")
    table.rounds.lead_lost(TWO)
    table.wait(ONE)
    assert table.asked() == [("b", 4, [])], "a view in which it is still the same changes nothing"
    table.confirms("b", 4, standing=2)
    # A new term is asked for by name.
    table.replicas[ONE].group.term = 6
    fourth = table.wait(ONE, TWO)
    assert table.asked() == [("b", 5, [(ONE, 6), (TWO, 5)])]
    table.confirms("b", 5, TWO, standing=2)
    assert fourth.told == []
    table.confirms("c", 5, ONE, TWO, THREE, standing=9)
    assert fourth.told == [True]


@pytest.mark.rule("multiraft/H-5")
def test_who_is_another_member_with_the_same_files_has_said_nothing() -> None:
    table = Rounds(one=replica())
    table.wait(ONE)
    table.asked()
    table.confirms("b", 1, ONE)
    table.rounds.on_view({"m": MemberId("@m"), "b": MemberId("@new"), "c": MemberId("@c")})
    table.wait(ONE)
    assert table.asked() == [("new", 2, [(ONE, 5)])]
    table.confirms("b", 2, ONE)
    assert table.rounds.leftovers == 1, "that member is not in the view"


@pytest.mark.rule("multiraft/H-5")
def test_an_answer_counts_only_in_the_term_and_for_the_voters_of_now() -> None:
    table = Rounds(one=replica())
    waiting = table.wait(ONE)
    table.asked()
    table.replicas[ONE].group.term = 6
    table.confirms("b", 1, ONE)
    assert waiting.told == []
    for change in ("halted", "voters"):
        table = Rounds(one=replica())
        waiting = table.wait(ONE)
        table.asked()
        if change == "halted":
            table.replicas[ONE].halted = True
        else:
            table.replicas[ONE].group.configuration = Configuration(frozenset("mcde"), frozenset("mb"))
        table.confirms("b", 1, ONE)
        assert waiting.told == []


def test_both_halves_of_a_joint_configuration_are_asked_and_needed() -> None:
    table = Rounds(one=replica("mbc", outgoing="cde"))
    waiting = table.wait(ONE)
    assert [to for to, _, _ in table.asked()] == ["b", "c", "d"]
    table.confirms("b", 1, ONE)
    table.confirms("c", 1, ONE)
    assert waiting.told == []
    table.confirms("d", 1, ONE)
    assert waiting.told == [True]


def test_those_are_asked_who_are_here_and_have_answered_in_time() -> None:
    table = Rounds(one=replica("ambnz"))
    table.view("abnz")
    table.wait(ONE)
    assert [to for to, _, _ in table.asked()] == ["n", "z"], "those that follow by name"
    table.later(SLOW_NS)
    table.rounds.lead_lost(ONE)
    table.wait(ONE)
    table.confirms("b", 1)
    assert [to for to, _, _ in table.asked()] == ["a", "b"], "the others are slow"
    table = Rounds(one=replica("ambnz"))
    table.view("az")
    table.wait(ONE)
    assert [to for to, _, _ in table.asked()] == ["a", "z"], "who is not here is not asked"
    # Of two groups one answer may serve both.
    table = Rounds(one=replica("mbc"), two=replica("mcd"), three=replica("mde"))
    table.wait(ONE, TWO, THREE)
    assert [to for to, _, _ in table.asked()] == ["b", "c", "d"]
    table = Rounds(one=replica("mno"), two=replica("nop"))
    table.view("nop")
    table.wait(ONE, TWO)
    assert [to for to, _, _ in table.asked()] == ["n", "o"], "two others where it is no voter itself"


def test_a_round_waits_for_the_one_on_its_way_but_not_for_long() -> None:
    table = Rounds(one=replica(), two=replica())
    first = table.wait(ONE)
    assert table.asked() == [("b", 1, [(ONE, 5)])]
    assert table.timers == 1
    second, third = table.wait(TWO), table.wait(ONE)
    table.out.now_ns += SLOW_NS - 1
    assert table.asked() == []
    table.out.now_ns += 1
    assert table.asked() == [("b", 2, [(TWO, 5)])], "not of what is waited for in vain"
    assert table.timers == 0, "it is set already"
    assert table.rounds.leftovers == 3
    table.confirms("b", 2, TWO)
    assert (first.told, second.told, third.told) == ([], [True], [])
    table.confirms("b", 1, ONE)
    assert first.told == [True]
    assert table.asked() == [("b", 3, [])]
    table.confirms("b", 3)
    assert third.told == [True]


def test_reads_of_a_group_that_is_asked_about_in_vain_wait() -> None:
    table = Rounds(one=replica(), two=replica())
    table.rounds.ask(ONE, b"x")
    table.asked()
    table.rounds.ask(ONE, b"y")
    table.rounds.ask(TWO, b"z")
    table.out.now_ns += SLOW_NS
    assert table.asked() == [("b", 2, [(TWO, 5)])]
    assert table.rounds.leftovers == 3
    table.confirms("b", 2, TWO)
    assert table.replicas[TWO].reads == [(8, b"z")]
    table.confirms("b", 1, ONE)
    assert table.asked() == [("b", 3, [])]
    table.confirms("b", 3)
    assert table.replicas[ONE].reads == [(8, b"x"), (8, b"y")]


def test_all_are_asked_when_those_who_were_chosen_are_slow_and_again_after_a_while() -> None:
    table = Rounds(one=replica())
    waiting = table.wait(ONE)
    table.asked()
    assert table.later(SLOW_NS - 1) == []
    assert table.timers == 1
    assert table.later(1) == [("b", 1), ("c", 1)]
    assert table.later(SLOW_NS) == []
    assert table.later(AGAIN_NS - SLOW_NS - 1) == []
    assert table.later(1) == [("b", 1), ("c", 1)]
    table.confirms("c", 1, ONE)
    assert waiting.told == [True]
    assert table.later(AGAIN_NS) == []
    assert table.timers == 0, "nothing is under way"
    table.wait(ONE)
    assert table.asked() == [("c", 2, [])], "b was slow"


def test_nobody_waits_for_ever() -> None:
    table = Rounds(one=replica(), two=replica())
    first = table.wait(ONE)
    table.asked()
    table.out.now_ns += SLOW_NS
    behind, beside = table.wait(ONE), table.wait(TWO)
    table.asked()
    table.later(PATIENCE_NS - SLOW_NS - 1)
    assert first.told == behind.told == []
    table.later(1)
    assert (first.told, behind.told, beside.told) == ([False], [], [])
    assert table.rounds.leftovers == 2
    table.later(SLOW_NS - 1)
    assert behind.told == []
    table.later(1)
    assert (behind.told, beside.told) == ([False], [False])
    assert (table.rounds.leftovers, table.timers) == (0, 0)


def test_a_new_view_asks_all_of_it_once_more() -> None:
    table = Rounds(one=replica("mbcde"))
    table.wait(ONE)
    assert [to for to, _, _ in table.asked()] == ["b", "c"]
    assert [to for to, _ in table.view("bde")] == ["b", "d", "e"]
    assert table.later(SLOW_NS) == [], "they have just been asked"
    assert table.later(AGAIN_NS - SLOW_NS) == [("b", 1), ("d", 1), ("e", 1)]
    table = Rounds(one=replica("mcd"))
    table.wait(ONE)
    assert [to for to, _, _ in table.asked()] == ["c"]
    table.later(SLOW_NS)
    table.later(AGAIN_NS)
    table.view("c")
    table.view("cd")
    table.rounds.lead_lost(ONE)
    table.wait(ONE)
    assert [to for to, _, _ in table.asked()] == ["d"], "who has gone is not slow any more"


def test_when_a_group_is_not_led_any_more_its_readers_are_told() -> None:
    table = Rounds(one=replica(), two=replica())
    table.rounds.ask(ONE, b"x")
    first, both, other = table.wait(ONE), table.wait(ONE, TWO), table.wait(TWO)
    assert table.rounds.dirty
    table.asked()
    later, unaffected = table.wait(TWO, ONE), table.wait(TWO)
    table.rounds.ask(ONE, b"y")
    table.rounds.lead_lost(ONE)
    assert (first.told, both.told, other.told) == ([False], [False], [])
    assert (later.told, unaffected.told) == ([False], [])
    assert table.rounds.leftovers == 2
    table.confirms("b", 1, ONE, TWO)
    assert other.told == [True]
    assert table.replicas[ONE].reads == []
    table = Rounds(one=replica())
    table.rounds.ask(ONE, b"x")
    table.asked()
    table.rounds.lead_lost(ONE)
    assert table.rounds.leftovers == 0


def test_of_a_group_that_has_ended_nothing_is_left() -> None:
    table = Rounds(one=replica(), two=replica())
    for number in (ONE, TWO):
        table.rounds.ask(number, b"x")
    table.asked()
    table.confirms("b", 1, ONE)
    assert (table.rounds.ready, table.rounds.doubted) == ({ONE}, {TWO})
    waiting = table.wait(TWO)
    table.rounds.ended(ONE)
    table.rounds.ended(TWO)
    assert (table.rounds.take_ready(), table.rounds.take_doubted(), waiting.told) == ([], [], [False])


@pytest.mark.rule("multiraft/H-5")
def test_an_answer_names_the_groups_in_which_no_higher_term_is_known() -> None:
    resting = replica()
    resting.halted = True
    table = Rounds(one=replica(leads=False), two=replica(term=6), three=resting)
    for _ in range(3):
        table.rounds.changed()
    table.rounds.on_asked(MemberId("@b"), LeadAsked(9, [(ONE, 5), (TWO, 5), (THREE, 5), (GroupNumber(1), 5)]))
    table.rounds.on_asked(MemberId("@c"), LeadAsked(4, [(ONE, 4)]))
    assert table.rounds.dirty
    table.rounds.flush()
    assert table.sent() == [("b", LeadConfirmed(9, 3, [ONE])), ("c", LeadConfirmed(4, 3, []))]
    assert not table.rounds.dirty
    table.rounds.flush()
    assert table.sent() == []
