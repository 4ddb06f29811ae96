"""Agreement of a view's members on the next view: single-decree Paxos, once per view number.

The acceptors for view n+1 are the members of view n. Their state is in memory only: a process that ends never returns
as the same acceptor. Usually the master proposes: it collects promises, then acceptances, and sends the decided view to
all members.

Why a majority of the *last* view: let a cut divide {1, 2, 3, 4, 5} into {1, 2} and {3, 4, 5}. If each side could decide
by a majority of itself, both would continue, and partition 7 would have two primaries. Only {3, 4, 5} is a majority of
the last view. 1 and 2 wait, and serve nothing that needs the others.

- membership/A-1: A quorum is more than half of the view, or exactly half with its oldest member. Any two quorums share
  a member.
- membership/A-2: An acceptor adds the assignments that it knows to its acceptance, and the decided view carries the
  newest ones to every member. Example: master 1 commits version 12 of partition 7, stored on 1, 2 and 3 of five, and
  dies. Any three of {2, 3, 4, 5} that decide the next view include 2 or 3, so version 12 is not lost.
- membership/A-3: A member that has accepted a next view is *fenced*: it stores no further table of the old view.
  Otherwise the old master could still commit version 13 there after version 12 was carried over.
- membership/A-4: A member votes for a proposer only if it suspects every member that would come before it.
- membership/A-5: A view is proposed only if the members that have just answered are a quorum of the proposed view. It
  must not consist of members that are dead and not suspected yet.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final, Protocol

from holdfast.core.messages import Accept, Accepted, Ballot, Declined, Prepare, Promise
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import View
from holdfast.core.outbox import Outbox

RETRY_NS = 400 * MILLISECOND
SOON_NS = 25 * MILLISECOND
"""First pause before a proposal is repeated that was declined because its acceptor does not suspect the older members;
the next ones are twice as long. Members notice within milliseconds of each other that a process has ended.
"""
ZERO: Ballot = (0, "")


def is_quorum(view: View, members: set[MemberId]) -> bool:
    """membership/A-1."""
    here = [info.uuid for info in view.members]
    if not here:
        return True
    present = sum(1 for uuid in here if uuid in members)
    if 2 * present > len(here):
        return True
    return 2 * present == len(here) and here[0] in members


@unique
class Phase(StrEnum):
    IDLE = "idle"
    PREPARE = "prepare"
    """For promises."""
    ACCEPT = "accept"


@unique
class ProposalStep(StrEnum):
    PROPOSED = "a next view is wanted"
    CHOSEN = "enough have promised, and a value is chosen"
    WITHDRAWN = "no next view is wanted any more"
    DECIDED = "enough have accepted"


PROPOSAL: Final = Lifecycle(
    "a proposal",
    Phase.IDLE,
    {
        (Phase.IDLE, ProposalStep.PROPOSED): Phase.PREPARE,
        (Phase.PREPARE, ProposalStep.PROPOSED): Phase.PREPARE,
        (Phase.PREPARE, ProposalStep.CHOSEN): Phase.ACCEPT,
        (Phase.PREPARE, ProposalStep.WITHDRAWN): Phase.IDLE,
        (Phase.ACCEPT, ProposalStep.PROPOSED): Phase.PREPARE,
        (Phase.ACCEPT, ProposalStep.WITHDRAWN): Phase.IDLE,
        (Phase.ACCEPT, ProposalStep.DECIDED): Phase.IDLE,
    },
)


class ViewAgreementDelegate(Protocol):
    def wanted(self) -> View | None:
        """The view to propose; None: the present one is right, or no majority could agree."""

    def may_propose(self, candidate: MemberId) -> bool:
        """See membership/A-4."""

    def may_decide(self, view: View, members: set[MemberId]) -> bool:
        """Whether these members can decide the view after this one (membership/A-1)."""

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        """See membership/A-2."""

    def decided(self, view: View, rows: list[tuple[int, Assignment]]) -> None:
        """`rows`: known to its acceptors."""


class ViewAgreement:
    __slots__ = (
        "_acceptances",
        "_accepted",
        "_accepted_ballot",
        "_ballot",
        "_carried",
        "_delegate",
        "_me",
        "_out",
        "_phase",
        "_promised",
        "_promises",
        "_soon",
        "_soon_ns",
        "_value",
        "view",
    )

    def __init__(
        self,
        me: MemberId,
        out: Outbox,
        delegate: ViewAgreementDelegate,
    ) -> None:
        self._me = me
        self._out = out
        self._delegate = delegate
        self.view: View | None = None
        self._reset()

    def _reset(self) -> None:
        self._promised: Ballot = ZERO
        self._accepted_ballot: Ballot | None = None
        self._accepted: View | None = None
        self._phase = PROPOSAL.begins
        self._ballot: Ballot = ZERO
        self._promises: dict[MemberId, Promise] = {}
        self._acceptances: set[MemberId] = set()
        self._value: View | None = None
        self._carried: dict[int, Assignment] = {}
        self._soon: Ballot = ZERO
        """The last ballot whose next one was brought forward,"""
        self._soon_ns = SOON_NS
        """and the pause before the next one of them."""

    def install(self, view: View | None) -> None:
        """Forget the agreement that led to it."""
        assert view is None or self.view is None or view.number >= self.view.number, "no older view follows"
        self.view = view
        self._reset()
        assert not self.fenced, "no member has accepted a successor of a new view"
        assert not self.proposing, "nor proposed anything"

    @property
    def fenced(self) -> bool:
        """membership/A-3."""
        return self._accepted is not None

    @property
    def accepted(self) -> View | None:
        return self._accepted

    @property
    def proposing(self) -> bool:
        return self._phase is not Phase.IDLE

    def _step(self, step: ProposalStep) -> None:
        self._phase = PROPOSAL.after(self._phase, step)

    def propose(self) -> None:
        """Propose the wanted view with a new, higher ballot."""
        view = self.view
        assert view is not None
        rounds = max(self._promised[0], self._ballot[0])
        before, self._ballot = self._ballot, (rounds + 1, self._me)
        assert before < self._ballot > self._promised, "a proposer never uses a ballot twice"
        self._step(ProposalStep.PROPOSED)
        self._promises = {}
        self._acceptances = set()
        self._value = None
        self._carried = {}
        self._out.timer(TimerName.PROPOSE, RETRY_NS, RETRY_NS)
        self._to_all(Prepare(view.number, self._ballot))

    def retry(self) -> None:
        if self.proposing and self.view is not None:
            if self._delegate.wanted() is None and self._accepted is None:
                self._step(ProposalStep.WITHDRAWN)
                return
            self.propose()

    def _to_all(self, message: Prepare | Accept) -> None:
        assert self.view is not None
        for info in self.view.members:
            if info.uuid != self._me:
                self._out.send(info.uuid, message)
        if isinstance(message, Prepare):
            self.on_prepare(self._me, message)
        else:
            self.on_accept(self._me, message)

    def _answer(self, to: MemberId, message: Promise | Accepted | Declined) -> None:
        if to != self._me:
            self._out.send(to, message)
        elif isinstance(message, Promise):
            self.on_promise(to, message)
        elif isinstance(message, Accepted):
            self.on_accepted(to, message)

    # -- acceptor

    def on_prepare(self, sender: MemberId, message: Prepare) -> None:
        if self.view is None or message.view != self.view.number:
            return
        if message.ballot <= self._promised or not self._delegate.may_propose(sender):
            self._answer(sender, Declined(message.view, message.ballot, self._promised))
            return
        assert self._accepted_ballot is None or self._accepted_ballot < message.ballot, "promised it twice"
        self._promised = message.ballot
        self._answer(sender, Promise(message.view, message.ballot, self._accepted_ballot, self._accepted))

    def on_accept(self, sender: MemberId, message: Accept) -> None:
        if self.view is None or message.view != self.view.number or message.ballot < self._promised:
            return
        self._promised = message.ballot
        self._accepted_ballot = message.ballot
        self._accepted = message.value
        assert self._accepted_ballot == self._promised >= ZERO
        self._answer(sender, Accepted(message.view, message.ballot, self._delegate.known_assignments()))

    # -- proposer

    def on_promise(self, sender: MemberId, message: Promise) -> None:
        if self._phase is not Phase.PREPARE or self.view is None or message.view != self.view.number:
            return
        if message.ballot != self._ballot:
            return
        self._promises[sender] = message
        if not self._delegate.may_decide(self.view, set(self._promises)):
            return
        best: Promise | None = None
        for promise in self._promises.values():
            if promise.accepted_ballot is not None and (
                best is None or best.accepted_ballot is None or promise.accepted_ballot > best.accepted_ballot
            ):
                best = promise
        value = best.accepted if best is not None else self._delegate.wanted()
        if value is None:
            self._step(ProposalStep.WITHDRAWN)
            return
        if best is None and value.members and not self._delegate.may_decide(value, set(self._promises)):
            # membership/A-5: wait for more answers, or until the others are suspected.
            return
        assert self._value is None, "a ballot has one value"
        assert not self._acceptances, "only a chosen value is accepted"
        self._value = value
        self._step(ProposalStep.CHOSEN)
        self._to_all(Accept(self.view.number, self._ballot, value))

    def on_accepted(self, sender: MemberId, message: Accepted) -> None:
        if self._phase is not Phase.ACCEPT or self.view is None or self._value is None:
            return
        if message.view != self.view.number or message.ballot != self._ballot:
            return
        self._acceptances.add(sender)
        for partition, row in message.rows:
            if partition not in self._carried or self._carried[partition].version < row.version:
                self._carried[partition] = row
        if self._delegate.may_decide(self.view, self._acceptances):
            self._step(ProposalStep.DECIDED)
            self._delegate.decided(self._value, sorted(self._carried.items()))

    def on_declined(self, sender: MemberId, message: Declined) -> None:
        if not self.proposing or message.ballot != self._ballot:
            return
        if message.promised > self._ballot:
            self._promised = max(self._promised, message.promised)
        elif message.promised < self._ballot and self._phase is Phase.PREPARE:
            self._bring_forward()

    def _bring_forward(self) -> None:
        """Once for each ballot, with ever longer pauses."""
        if self._soon != self._ballot and self._soon_ns < RETRY_NS:
            self._soon = self._ballot
            self._out.timer(TimerName.PROPOSE, self._soon_ns)
            self._soon_ns *= 2
