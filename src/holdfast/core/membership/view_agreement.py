"""How do the members of one view agree on the next? One single-decree Paxos for each view number.

The acceptors for view n+1 are the members of view n. Their memory is their storage: a process that ends never
comes back as the same acceptor, for it has a new UUID.

- membership/A-1: A quorum is more than half of the view, or exactly half with its oldest member; any two quorums
  share a member.
- membership/A-2: Who accepts a view says which rows it knows, and the decided view carries the newest of them to every
  member. So a row that a majority of the old view has stored is known to the whole new one, also when its
  master dies at once.
- membership/A-3: Who has accepted a next view is *fenced*: it stores no further table of the old one.
- membership/A-4: A member consents only if it suspects every member that should propose before the proposer.
- membership/A-5: A view is proposed only when of those who have just answered there are enough to decide for it: it
  must not consist of members that have died and are not suspected yet.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final, Protocol

from holdfast.core.machine import Outbox
from holdfast.core.messages import Accept, Accepted, Ballot, Declined, Prepare, Promise
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import View

RETRY_NS = 400 * MILLISECOND
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
    """How far the proposal of a member is."""

    IDLE = "idle"
    PREPARE = "prepare"
    """It asks for promises."""
    ACCEPT = "accept"
    """It asks to accept a value."""


@unique
class ProposalStep(StrEnum):
    """What becomes of a proposal."""

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
    """What the agreement asks of whom it serves: which view is wanted, who may say so, and who counts."""

    def wanted(self) -> View | None:
        """The next view this member would like; None when the present one is right, or no majority could agree."""

    def may_propose(self, candidate: MemberId) -> bool:
        """Whether it is this member's turn to propose the next view (membership/A-4)."""

    def may_decide(self, view: View, members: set[MemberId]) -> bool:
        """Whether these members can decide on the view after this one (membership/A-1)."""

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        """The newest assignments that this member knows: who agrees carries them over (membership/A-2)."""

    def decided(self, view: View, rows: list[tuple[int, Assignment]]) -> None:
        """The next view is agreed, and these are the assignments that those who agreed knew."""


class ViewAgreement:
    """Proposer and acceptor for the view after the one that is installed."""

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

    def install(self, view: View | None) -> None:
        """A new view holds: forget the agreement that led to it."""
        assert view is None or self.view is None or view.number >= self.view.number, "no older view follows"
        self.view = view
        self._reset()
        assert not self.fenced, "nobody has agreed yet to what comes after it"
        assert not self.proposing, "nor proposed anything"

    @property
    def fenced(self) -> bool:
        """membership/A-3: whether this member has accepted a next view."""
        return self._accepted is not None

    @property
    def accepted(self) -> View | None:
        """The next view that this member has agreed to, if any."""
        return self._accepted

    @property
    def proposing(self) -> bool:
        """Whether a proposal of this member is under way."""
        return self._phase is not Phase.IDLE

    def _step(self, step: ProposalStep) -> None:
        self._phase = PROPOSAL.after(self._phase, step)

    def propose(self) -> None:
        """Start (or start again, with a higher ballot) to bring about the view that is wanted."""
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
        """The proposal has not ended in time."""
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
            # membership/A-5: wait for more of them to answer, or for the rest to be suspected.
            return
        assert self._value is None, "a ballot has one value"
        assert not self._acceptances, "nobody accepts what was not chosen"
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
        if self.proposing and message.ballot == self._ballot and message.promised > self._ballot:
            self._promised = max(self._promised, message.promised)
