"""Agreement on the next view: every order of messages of three acceptors and two proposers, and what each rule does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.effects import Send, SetTimer
from holdfast.core.membership.view_agreement import RETRY_NS, ZERO, ViewAgreement, is_quorum
from holdfast.core.messages import Accept, Accepted, Ballot, Declined, Prepare, Promise
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox

A, B, C, D = (MemberId(name) for name in "abcd")
NUMBER = 7
Message = Prepare | Promise | Accept | Accepted | Declined


def member(uuid: MemberId) -> MemberInfo:
    return MemberInfo(uuid, 1, uuid, 5701, uuid, 5701, uuid)


def view(*members: MemberId, number: int = NUMBER) -> View:
    return View(number, "cluster", [member(uuid) for uuid in members])


THREE = view(A, B, C)
WANTED = {A: view(A, B, number=8), B: view(B, C, number=8), C: view(C, A, number=8)}
"""What each wants the next view to be: all differ."""


# -- membership/A-1


@pytest.mark.rule("membership/A-1")
@pytest.mark.parametrize("size", range(1, 7))
def test_any_two_quorums_share_a_member_and_more_than_half_is_one(size: int) -> None:
    names = [MemberId(str(number)) for number in range(size)]
    now = view(*names)
    subsets = [set(some) for count in range(size + 1) for some in itertools.combinations(names, count)]
    quorums = [some for some in subsets if is_quorum(now, some)]
    assert all(one & other for one in quorums for other in quorums)
    for some in subsets:
        half_with_oldest = 2 * len(some) == size and names[0] in some
        assert is_quorum(now, some) == (2 * len(some) > size or half_with_oldest)
        assert is_quorum(now, some | {MemberId("stranger"), MemberId("other")}) == is_quorum(now, some)


def test_a_view_of_nobody_needs_nobody() -> None:
    assert is_quorum(view(), set()) is True


# -- every order of messages

Memory = tuple[Any, ...]
Step = tuple[int, int, int]
"""The new memory of the member, which packets it sends and which decisions it comes to (as bits)."""
State = tuple[tuple[int, ...], int, tuple[int, ...], int]
"""What the members remember, the packets under way, how many proposals may still begin, what was decided."""
HANDLERS = {
    Prepare: ViewAgreement.on_prepare,
    Promise: ViewAgreement.on_promise,
    Accept: ViewAgreement.on_accept,
    Accepted: ViewAgreement.on_accepted,
    Declined: ViewAgreement.on_declined,
}
REMEMBERED = (
    "_promised", "_accepted_ballot", "_accepted", "_phase", "_ballot", "_promises", "_acceptances", "_value",
    "_carried",
)  # fmt: skip
GIVEN = ("_me", "_out", "_delegate", "view", "_soon", "_soon_ns")
"""The last two decide about timers alone."""


def frozen(value: Any) -> Any:
    match value:
        case dict():
            return tuple(sorted((name, frozen(held)) for name, held in value.items()))
        case set() | list():
            return tuple(sorted(value))
        case View():
            return tuple(info.uuid for info in value.members)
        case Promise():
            return (value.ballot, value.accepted_ballot, frozen(value.accepted))
    return value


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | set) else value


class Whom:
    """Whom an agreement serves: anybody may propose, for safety must not rest on who does."""

    agreement: ViewAgreement

    def __init__(self, me: MemberId, outcomes: list[tuple[Ballot, View]]) -> None:
        self._me = me
        self._outcomes = outcomes

    def wanted(self) -> View | None:
        return WANTED[self._me]

    def may_propose(self, candidate: MemberId) -> bool:
        return True

    def may_decide(self, view: View, members: set[MemberId]) -> bool:
        return is_quorum(view, members)

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        return []

    def decided(self, view: View, rows: list[tuple[int, Assignment]]) -> None:
        self._outcomes.append((self.agreement._ballot, view))


class Search:
    """All that can happen: each packet that was ever sent may arrive at any time, in any order, any number of times or
    never. So loss, delay, repetition and reordering are all in it. Each proposer begins so many times at most.

    What a packet does depends on the memory of its receiver alone, so each such pair is tried once, with real
    `ViewAgreement`s. A packet that does nothing (any more) is forgotten. Without `declines`, nobody hears that it is
    declined: that only tells a proposer of higher ballots, and there are fewer states.
    """

    def __init__(self, proposals: dict[MemberId, int], now: View = THREE, *, declines: bool = False) -> None:
        self.names = [info.uuid for info in now.members]
        self._out = Outbox()
        self._now = now
        self._declines = declines
        self._proposals = tuple(proposals.get(name, 0) for name in self.names)
        self._outcomes: list[tuple[Ballot, View]] = []
        self.decisions: list[tuple[Ballot, View]] = []
        self._agreements = [self._start(name) for name in self.names]
        self._memories: list[Memory] = []
        self._packets: list[tuple[MemberId, int, Message]] = []
        self._numbers: dict[Any, int] = {}
        self._steps: dict[tuple[int, int, int], Step] = {}

    def _start(self, me: MemberId) -> ViewAgreement:
        whom = Whom(me, self._outcomes)
        agreement = whom.agreement = ViewAgreement(me, self._out, whom)
        agreement.install(self._now)
        return agreement

    def _memory(self, agreement: ViewAgreement) -> int:
        """The number of what it remembers now."""
        held = tuple(getattr(agreement, name) for name in REMEMBERED)
        key = tuple(frozen(value) for value in held)
        if key not in self._numbers:
            self._numbers[key] = len(self._memories)
            self._memories.append(tuple(copied(value) for value in held))
        return self._numbers[key]

    def _packet(self, sender: MemberId, to: MemberId, message: Message) -> int:
        fields = (frozen(getattr(message, name)) for name in message.__struct_fields__)
        key = (sender, to, type(message), *fields)
        if key not in self._numbers:
            self._numbers[key] = len(self._packets)
            self._packets.append((sender, self.names.index(to), message))
        return self._numbers[key]

    def _step(self, index: int, memory: int, number: int) -> Step:
        """What a member does that remembers this, when the packet arrives; or when it begins to propose (-1)."""
        key = (index, memory, number)
        if key not in self._steps:
            agreement = self._agreements[index]
            for name, value in zip(REMEMBERED, self._memories[memory], strict=True):
                setattr(agreement, name, copied(value))
            before = (agreement._promised, agreement._accepted_ballot or ZERO)
            if number < 0:
                agreement.propose()
            else:
                sender, _, message = self._packets[number]
                HANDLERS[type(message)](agreement, sender, message)  # type: ignore[operator]
            after = (agreement._promised, agreement._accepted_ballot or ZERO)
            assert before[0] <= after[0], "a promise is kept"
            assert before[1] <= after[1] <= after[0], "what is accepted is the newest, and promised"
            self._steps[key] = (self._memory(agreement), *self._effects(agreement._me))
        return self._steps[key]

    def _effects(self, me: MemberId) -> tuple[int, int]:
        sent = decided = 0
        for effect in self._out.take():
            if isinstance(effect, Send):
                assert effect.to != me
                if self._declines or not isinstance(effect.message, Declined):
                    sent |= 1 << self._packet(me, effect.to, effect.message)  # type: ignore[arg-type]
        for outcome in self._outcomes:
            if outcome not in self.decisions:
                self.decisions.append(outcome)
            decided |= 1 << self.decisions.index(outcome)
        self._outcomes.clear()
        return sent, decided

    def _alive(self, memories: tuple[int, ...], packets: int) -> int:
        """Those packets that still do something."""
        alive = 0
        for number in bits(packets):
            index = self._packets[number][1]
            memory, sent, decided = self._step(index, memories[index], number)
            if memory != memories[index] or sent & ~packets or decided:
                alive |= 1 << number
        return alive

    def _judge(self, sent: int, decided: int) -> None:
        """One view is decided, and once it is, no other is even proposed with a higher ballot."""
        made = [self.decisions[number] for number in bits(decided)]
        assert len({frozen(value) for _, value in made}) <= 1, made
        for number in bits(sent):
            message = self._packets[number][2]
            if isinstance(message, Accept):
                for ballot, value in made:
                    assert message.ballot < ballot or frozen(message.value) == frozen(value), (message, made)

    def run(self) -> int:
        """How many states there are; each is judged."""
        first: State = (tuple(map(self._memory, self._agreements)), 0, self._proposals, 0)
        seen, todo = {first}, [first]
        while todo:
            memories, packets, left, decided = todo.pop()
            deeds = [(index, -1) for index, proposals in enumerate(left) if proposals]
            deeds += [(self._packets[number][1], number) for number in bits(packets)]
            for index, number in deeds:
                memory, sent, made = self._step(index, memories[index], number)
                after = (*memories[:index], memory, *memories[index + 1 :])
                fewer = left if number >= 0 else (*left[:index], left[index] - 1, *left[index + 1 :])
                state = (after, self._alive(after, packets | sent), fewer, decided | made)
                if state not in seen:
                    self._judge(sent, decided | made)
                    seen.add(state)
                    todo.append(state)
        return len(seen)


def bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def test_the_search_sees_all_that_an_agreement_remembers() -> None:
    assert {*REMEMBERED, *GIVEN} == set(ViewAgreement.__slots__)


def decided_by(proposals: dict[MemberId, int], now: View = THREE, *, declines: bool = False) -> int:
    """Every order is judged; and each proposer may have its way in one of them. Answers how many states there are."""
    search = Search(proposals, now, declines=declines)
    states = search.run()
    assert {frozen(value) for _, value in search.decisions} == {frozen(WANTED[name]) for name in proposals}
    return states


def test_one_view_is_decided_whatever_the_order() -> None:
    """A proposer that begins again has the ballot in which an older accepted view could be taken for the newest."""
    assert decided_by({A: 2, B: 1}) > 10_000


def test_one_view_is_decided_whatever_the_order_also_when_proposers_hear_of_higher_ballots() -> None:
    assert decided_by({A: 1, B: 1}, declines=True) > 10_000


def test_one_view_is_decided_by_one_two_or_four() -> None:
    assert decided_by({A: 2}, view(A)) == 3
    assert decided_by({A: 2, B: 2}, view(A, B), declines=True) > 1_000
    assert decided_by({A: 1, B: 1}, view(A, B, C, D)) > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("proposals", [{A: 2, B: 2}, {A: 1, B: 1, C: 1}])
def test_one_view_is_decided_whatever_the_order_of_more(proposals: dict[MemberId, int]) -> None:
    assert decided_by(proposals) > 100_000


# -- one acceptor, one proposer


class Asked:
    """Answers an agreement as its `Desk` says."""

    def __init__(self, one: Desk, enough: Callable[[View, set[MemberId]], bool]) -> None:
        self._one = one
        self.may_decide = enough

    def wanted(self) -> View | None:
        return self._one.wanted

    def may_propose(self, candidate: MemberId) -> bool:
        self._one.asked.append(candidate)
        return self._one.may_propose

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        return self._one.rows

    def decided(self, view: View, rows: list[tuple[int, Assignment]]) -> None:
        self._one.decided.append((view, rows))


class Desk:
    """One `ViewAgreement`, and what is around it."""

    def __init__(
        self,
        me: MemberId = A,
        now: View | None = THREE,
        enough: Callable[[View, set[MemberId]], bool] = is_quorum,
    ) -> None:
        self.out = Outbox()
        self.wanted: View | None = WANTED[me]
        self.decided: list[tuple[View, list[tuple[int, Assignment]]]] = []
        self.rows: list[tuple[int, Assignment]] = []
        self.may_propose = True
        self.asked: list[MemberId] = []
        self.agreement = ViewAgreement(me, self.out, Asked(self, enough))
        assert (self.agreement.view, self.agreement.proposing) == (None, False)
        self.agreement.install(now)

    def sent(self) -> list[tuple[MemberId, Message]]:
        """What was sent since the last time."""
        return [(effect.to, effect.message) for effect in self.out.take() if isinstance(effect, Send)]  # type: ignore[misc]


def test_a_proposal_asks_everybody_and_takes_what_the_proposer_wants() -> None:
    desk = Desk()
    desk.agreement.propose()
    assert SetTimer("propose", 400 * MILLISECOND, 400 * MILLISECOND) in desk.out.effects
    assert RETRY_NS == 400 * MILLISECOND
    assert desk.agreement.proposing is True
    ballot = (1, A)
    assert desk.sent() == [(B, Prepare(NUMBER, ballot)), (C, Prepare(NUMBER, ballot))]
    desk.agreement.on_promise(B, Promise(NUMBER, ballot, None, None))
    assert desk.sent() == [(B, Accept(NUMBER, ballot, WANTED[A])), (C, Accept(NUMBER, ballot, WANTED[A]))]
    assert desk.agreement.fenced is True
    assert desk.decided == []
    desk.agreement.on_accepted(C, Accepted(NUMBER, ballot, []))
    assert desk.decided == [(WANTED[A], [])]
    assert desk.agreement.proposing is False
    desk.agreement.on_accepted(B, Accepted(NUMBER, ballot, []))
    assert len(desk.decided) == 1


def test_an_answer_to_another_proposal_or_view_does_not_count() -> None:
    desk = Desk()
    desk.agreement.propose()
    desk.agreement.propose()
    ballot = (2, A)
    desk.out.take()
    desk.agreement.on_promise(B, Promise(NUMBER, (1, A), None, None))
    desk.agreement.on_promise(B, Promise(NUMBER - 1, ballot, None, None))
    desk.agreement.on_accepted(B, Accepted(NUMBER, ballot, []))
    assert desk.sent() == []
    desk.agreement.on_promise(B, Promise(NUMBER, ballot, None, None))
    assert desk.sent()
    desk.agreement.on_promise(C, Promise(NUMBER, ballot, (1, C), WANTED[C]))
    desk.agreement.on_accepted(B, Accepted(NUMBER, (1, A), []))
    desk.agreement.on_accepted(B, Accepted(NUMBER - 1, ballot, []))
    assert desk.sent() == []
    assert desk.decided == []


def test_answers_of_an_earlier_proposal_are_forgotten_by_the_next() -> None:
    desk = Desk(now=view(A, B, C, D, MemberId("e")))
    desk.agreement.propose()
    desk.agreement.on_promise(B, Promise(NUMBER, (1, A), (0, D), WANTED[C]))
    desk.agreement.propose()
    desk.out.take()
    desk.agreement.on_promise(C, Promise(NUMBER, (2, A), None, None))
    assert desk.sent() == [], "two of five: what B said to the first proposal is nothing now"
    desk.agreement.on_promise(D, Promise(NUMBER, (2, A), None, None))
    assert [message for _, message in desk.sent()] == [Accept(NUMBER, (2, A), WANTED[A])] * 4
    desk.agreement.on_accepted(B, Accepted(NUMBER, (2, A), [(1, Assignment(5, (B,)))]))
    desk.agreement.propose()
    for sender in (C, D):
        desk.agreement.on_promise(sender, Promise(NUMBER, (3, A), None, None))
    desk.agreement.on_accepted(C, Accepted(NUMBER, (3, A), []))
    assert desk.decided == []
    desk.agreement.on_accepted(D, Accepted(NUMBER, (3, A), []))
    assert desk.decided == [(WANTED[A], [])], "nor the rows that came with an acceptance of the second"


def test_the_view_that_was_accepted_with_the_highest_ballot_is_proposed_again() -> None:
    for order in itertools.permutations([(B, (1, B), WANTED[B]), (C, (2, C), WANTED[C]), (D, None, None)]):
        desk = Desk(now=view(A, B, C, D, MemberId("e"), MemberId("f"), MemberId("g")))
        desk.agreement.propose()
        desk.out.take()
        for sender, ballot, value in order:
            assert desk.sent() == []
            desk.agreement.on_promise(sender, Promise(NUMBER, (1, A), ballot, value))
        assert [message for _, message in desk.sent()] == [Accept(NUMBER, (1, A), WANTED[C])] * 6


def test_what_was_accepted_is_proposed_also_if_its_members_have_not_answered() -> None:
    """membership/A-5 is for what the proposer itself wants: an accepted view may have been decided."""
    desk = Desk(now=view(A, B, C, D))
    away = view(C, D, number=8)
    desk.agreement.propose()
    desk.out.take()
    desk.agreement.on_promise(B, Promise(NUMBER, (1, A), (0, D), away))
    assert desk.sent()[0] == (B, Accept(NUMBER, (1, A), away))


@pytest.mark.rule("membership/A-5")
def test_a_proposer_waits_until_those_answer_who_could_decide_for_its_view() -> None:
    """membership/A-5."""
    desk = Desk(now=view(A, B, C, D))
    desk.wanted = view(A, C, D, number=8)
    desk.agreement.propose()
    desk.out.take()
    desk.agreement.on_promise(B, Promise(NUMBER, (1, A), None, None))
    assert (desk.sent(), desk.agreement.proposing) == ([], True)
    desk.agreement.on_promise(C, Promise(NUMBER, (1, A), None, None))
    assert desk.sent()[0] == (B, Accept(NUMBER, (1, A), desk.wanted))


def test_a_view_of_nobody_waits_for_nobody_and_one_that_nobody_wants_is_not_proposed() -> None:
    desk = Desk(now=view(A), enough=lambda now, members: bool(now.members) and members == {A})
    desk.wanted = view(number=8)
    desk.agreement.propose()
    assert desk.decided == [(desk.wanted, [])]
    desk = Desk()
    desk.wanted = None
    desk.agreement.propose()
    desk.out.take()
    desk.agreement.on_promise(B, Promise(NUMBER, (1, A), None, None))
    assert (desk.sent(), desk.agreement.proposing) == ([], False)


@pytest.mark.rule("membership/A-2")
def test_the_newest_row_of_those_who_accepted_goes_with_the_view() -> None:
    """membership/A-2."""
    desk = Desk()
    desk.rows = [(3, Assignment(1, (A,))), (1, Assignment(4, (A,)))]
    desk.agreement.propose()
    desk.agreement.on_promise(B, Promise(NUMBER, (1, A), None, None))
    same = Assignment(4, (B,))
    desk.agreement.on_accepted(
        B, Accepted(NUMBER, (1, A), [(3, Assignment(2, (B,))), (1, same), (2, Assignment(1, (B,)))])
    )
    assert desk.decided == [
        (WANTED[A], [(1, Assignment(4, (A,))), (2, Assignment(1, (B,))), (3, Assignment(2, (B,)))])
    ]
    desk = Desk()
    desk.rows = [(3, Assignment(2, (A,)))]
    desk.agreement.propose()
    desk.agreement.on_promise(B, Promise(NUMBER, (1, A), None, None))
    desk.agreement.on_accepted(B, Accepted(NUMBER, (1, A), [(3, Assignment(1, (B,)))]))
    assert desk.decided == [(WANTED[A], [(3, Assignment(2, (A,)))])]


def test_an_acceptor_promises_higher_ballots_only() -> None:
    desk = Desk(C)
    prepared: list[tuple[Ballot, Message]] = [
        ((2, A), Promise(NUMBER, (2, A), None, None)),
        ((2, A), Declined(NUMBER, (2, A), (2, A))),
        ((1, B), Declined(NUMBER, (1, B), (2, A))),
        ((2, B), Promise(NUMBER, (2, B), None, None)),
    ]
    for ballot, answer in prepared:
        desk.agreement.on_prepare(MemberId(ballot[1]), Prepare(NUMBER, ballot))
        assert desk.sent() == [(ballot[1], answer)]
    desk.agreement.on_prepare(A, Prepare(NUMBER + 1, (9, A)))
    desk.agreement.on_prepare(A, Prepare(NUMBER - 1, (9, A)))
    assert desk.sent() == []
    assert desk.asked == [A, B]


@pytest.mark.rule("membership/A-4")
def test_an_acceptor_consents_only_if_it_is_the_proposers_turn() -> None:
    """membership/A-4."""
    desk = Desk(C)
    desk.may_propose = False
    desk.agreement.on_prepare(B, Prepare(NUMBER, (1, B)))
    assert desk.sent() == [(B, Declined(NUMBER, (1, B), ZERO))]
    assert desk.asked == [B]
    assert ZERO == (0, "")
    desk.may_propose = True
    desk.agreement.on_prepare(A, Prepare(NUMBER, (1, A)))
    assert desk.sent() == [(A, Promise(NUMBER, (1, A), None, None))], "it has promised nothing to B"


def test_an_accept_below_the_promise_is_refused_and_one_at_it_is_taken() -> None:
    desk = Desk(C)
    desk.rows = [(1, Assignment(2, (C,)))]
    desk.agreement.on_prepare(B, Prepare(NUMBER, (2, B)))
    desk.out.take()
    desk.agreement.on_accept(A, Accept(NUMBER, (1, A), WANTED[A]))
    desk.agreement.on_accept(B, Accept(NUMBER + 1, (2, B), WANTED[B]))
    desk.agreement.on_accept(B, Accept(NUMBER - 1, (2, B), WANTED[B]))
    assert (desk.sent(), desk.agreement.fenced, desk.agreement.accepted) == ([], False, None)
    desk.agreement.on_accept(B, Accept(NUMBER, (2, B), WANTED[B]))
    assert desk.sent() == [(B, Accepted(NUMBER, (2, B), desk.rows))]
    assert (desk.agreement.fenced, desk.agreement.accepted) == (True, WANTED[B])
    desk.agreement.on_prepare(A, Prepare(NUMBER, (3, A)))
    assert desk.sent() == [(A, Promise(NUMBER, (3, A), (2, B), WANTED[B]))], "it tells what it has accepted"


def test_an_accept_is_a_promise_too() -> None:
    desk = Desk(C)
    desk.agreement.on_accept(B, Accept(NUMBER, (2, B), WANTED[B]))
    desk.out.take()
    desk.agreement.on_prepare(A, Prepare(NUMBER, (2, A)))
    assert desk.sent() == [(A, Declined(NUMBER, (2, A), (2, B)))]


def test_who_is_declined_begins_again_above_what_was_promised() -> None:
    desk = Desk()
    desk.agreement.propose()
    desk.agreement.on_declined(B, Declined(NUMBER, (1, A), (6, C)))
    desk.agreement.on_declined(C, Declined(NUMBER, (1, A), (4, C)))
    desk.out.take()
    desk.agreement.retry()
    assert desk.sent()[0] == (B, Prepare(NUMBER, (7, A)))


def test_a_proposal_that_comes_before_the_suspicion_of_others_is_repeated_soon() -> None:
    """B and C notice a few milliseconds later that the master's process has ended. Each pause is twice as long, up to
    the usual one.
    """
    desk = Desk()
    pauses = []
    for ballot in range(1, 8):
        desk.agreement.propose()
        desk.out.take()
        for acceptor in (B, C):
            desk.agreement.on_declined(acceptor, Declined(NUMBER, (ballot, A), ZERO))
        pauses += [effect.after_ns for effect in desk.out.take() if isinstance(effect, SetTimer)]
    assert pauses == [25 * MILLISECOND << number for number in range(4)]
    assert max(pauses) < RETRY_NS


def test_a_proposal_with_a_majority_is_not_repeated_soon() -> None:
    desk = Desk()
    desk.agreement.propose()
    desk.agreement.on_promise(B, Promise(NUMBER, (1, A), None, None))
    desk.out.take()
    desk.agreement.on_declined(C, Declined(NUMBER, (1, A), ZERO))
    assert desk.out.take() == []


def test_a_proposal_that_was_declined_because_it_came_twice_is_not_repeated_soon() -> None:
    desk = Desk()
    desk.agreement.propose()
    desk.out.take()
    desk.agreement.on_declined(C, Declined(NUMBER, (1, A), (1, A)))
    assert desk.out.take() == []


@pytest.mark.parametrize("ballot", [(1, B), (2, A)])
def test_what_was_declined_long_ago_or_to_somebody_else_does_not_count(ballot: Ballot) -> None:
    desk = Desk()
    desk.agreement.propose()
    desk.agreement.on_declined(B, Declined(NUMBER, ballot, (6, C)))
    desk.out.take()
    desk.agreement.retry()
    assert desk.sent()[0] == (B, Prepare(NUMBER, (2, A)))


def test_who_is_declined_for_another_reason_does_not_forget_its_own_promise() -> None:
    desk = Desk()
    desk.agreement.propose()
    desk.agreement.on_prepare(B, Prepare(NUMBER, (5, B)))
    desk.agreement.on_declined(B, Declined(NUMBER, (1, A), (3, C)))
    desk.out.take()
    desk.agreement.on_accept(C, Accept(NUMBER, (4, C), WANTED[C]))
    assert desk.sent() == []
    desk.agreement.on_declined(B, Declined(NUMBER, (1, A), ZERO))
    desk.agreement.retry()
    assert desk.sent()[0] == (B, Prepare(NUMBER, (6, A)))


def test_who_proposes_nothing_is_not_declined() -> None:
    desk = Desk()
    desk.agreement.on_declined(B, Declined(NUMBER, ZERO, (6, C)))
    desk.agreement.propose()
    assert desk.sent()[0] == (B, Prepare(NUMBER, (1, A)))


def test_a_proposal_that_does_not_end_begins_again_until_nobody_needs_it() -> None:
    desk = Desk()
    desk.agreement.retry()
    assert desk.out.take() == [], "nothing to begin again"
    desk.agreement.propose()
    desk.out.take()
    desk.agreement.retry()
    assert desk.sent() == [(B, Prepare(NUMBER, (2, A))), (C, Prepare(NUMBER, (2, A)))]
    desk.wanted = None
    desk.agreement.retry()
    assert (desk.sent(), desk.agreement.proposing) == ([], False)
    desk.agreement.retry()
    assert (desk.sent(), desk.agreement.proposing) == ([], False)


def test_a_proposer_that_has_accepted_a_view_goes_on_though_it_wants_none() -> None:
    """It is sealed: only a decision frees it."""
    desk = Desk()
    desk.agreement.propose()
    desk.agreement.on_accept(B, Accept(NUMBER, (5, B), WANTED[B]))
    desk.wanted = None
    desk.out.take()
    desk.agreement.retry()
    assert desk.sent()[0] == (B, Prepare(NUMBER, (6, A)))
    desk.agreement.on_promise(C, Promise(NUMBER, (6, A), None, None))
    assert desk.sent()[0] == (B, Accept(NUMBER, (6, A), WANTED[B]))


def test_a_new_view_begins_with_an_empty_memory() -> None:
    five = view(A, B, C, D, MemberId("e"))
    desk = Desk(now=five)
    fresh = {name: getattr(Desk(now=five).agreement, name) for name in REMEMBERED}
    desk.agreement.propose()
    for sender in (B, C):
        desk.agreement.on_promise(sender, Promise(NUMBER, (1, A), None, None))
    desk.agreement.on_accepted(B, Accepted(NUMBER, (1, A), [(1, Assignment(1, (B,)))]))
    changed = [name for name in REMEMBERED if getattr(desk.agreement, name) != fresh[name]]
    assert changed == list(REMEMBERED)
    now = view(A, B, C, D, number=8)
    desk.agreement.install(now)
    assert desk.agreement.view == now
    assert {name: getattr(desk.agreement, name) for name in REMEMBERED} == fresh
    desk.out.take()
    desk.agreement.on_prepare(B, Prepare(8, (1, B)))
    assert desk.sent() == [(B, Promise(8, (1, B), None, None))]


def test_who_is_in_no_view_takes_no_part() -> None:
    desk = Desk(now=None)
    desk.agreement.on_prepare(B, Prepare(NUMBER, (1, B)))
    desk.agreement.on_accept(B, Accept(NUMBER, (1, B), WANTED[B]))
    desk.agreement.on_promise(B, Promise(NUMBER, ZERO, None, None))
    desk.agreement.on_accepted(B, Accepted(NUMBER, ZERO, []))
    desk.agreement.on_declined(B, Declined(NUMBER, ZERO, (1, B)))
    desk.agreement.retry()
    assert desk.out.take() == []
    assert desk.agreement.fenced is False
    desk = Desk()
    desk.agreement.propose()
    desk.agreement.install(None)
    desk.out.take()
    desk.agreement.retry()
    assert desk.out.take() == []
