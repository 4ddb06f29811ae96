"""How does a group get to other peers? The new ones catch up, both majorities agree, then the new ones alone go on.

- raft/F-1: Nothing is logged before the new voters are close to the end of the log: a voter that has nothing would
  hold up every commit.
- raft/F-2: While they catch up the target may be replaced, or given up; what was sent to those in both counts on.
  Once the joint configuration is in the log it is too late for both.
- raft/F-3: A request of another term does nothing, and one with an older token than what is known is refused.
- raft/F-4: Catching up has failed when one of them has got nothing new for as long as `catch_up_ticks` says;
  however long it takes as long as it gets on.
- raft/F-5: Where whoever wants the change is to be asked first, nothing is logged before it has agreed to just
  this target.
- raft/F-6: A joint configuration is not entered while most of the voters that are wanted are not heard of: the
  group would do nothing any more, and nobody could be elected who takes it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.raft.configuration import Configuration, NodeId, enter_joint, steps_to
from holdfast.core.raft.leader import Leader
from holdfast.core.raft.raft_state import CaughtUp, ChangeApplied, ChangeFailed, RaftState


@unique
class ChangeStage(StrEnum):
    """How far a change of the peers is, for the leader."""

    NONE = "none"
    CATCHING_UP = "catching up"
    JOINT = "joint"
    FINAL = "final"


@unique
class ChangeStep(StrEnum):
    """What brings it further."""

    REQUESTED = "other peers are wanted"
    REPLACED = "still others are wanted"
    CANCELLED = "it is given up"
    FAILED = "a new voter gets nothing"
    CAUGHT_UP = "the new voters are close to the end of the log"
    BOTH_AGREED = "both majorities hold the joint configuration"
    COMMITTED = "the final configuration is committed"


_C, _S = ChangeStage, ChangeStep
CHANGING: Final[Lifecycle[ChangeStage, ChangeStep]] = Lifecycle(
    "a change of the peers",
    _C.NONE,
    {
        (_C.NONE, _S.REQUESTED): _C.CATCHING_UP,
        (_C.CATCHING_UP, _S.REPLACED): _C.CATCHING_UP,
        (_C.CATCHING_UP, _S.CANCELLED): _C.NONE,
        (_C.CATCHING_UP, _S.FAILED): _C.NONE,
        (_C.CATCHING_UP, _S.CAUGHT_UP): _C.JOINT,
        (_C.JOINT, _S.BOTH_AGREED): _C.FINAL,
        (_C.FINAL, _S.COMMITTED): _C.NONE,
    },
)


@unique
class ChangeAnswer(StrEnum):
    """What a leader says to a request for other peers."""

    STARTED = "started"
    REPLACED = "replaced"
    """It is the target now, in place of another one."""
    DONE = "done"
    """The group has these peers, by this token; it is told again that it has."""
    OLD_TERM = "old term"
    """It was meant for another leader: nothing is done, and nothing has to be."""
    STALE = "stale"
    """A newer one is known."""
    BUSY = "busy"
    """Not now: to be asked again."""


@dataclass(frozen=True, slots=True)
class TargetPeers:
    """The peers that are wanted."""

    voters: frozenset[NodeId]
    learners: frozenset[NodeId]
    token: int
    asks: bool = False
    """Whether `CaughtUp` is told, and `agree` waited for, before it is joined (raft/F-5)."""

    def reached(self, configuration: Configuration) -> bool:
        """Whether this configuration is it."""
        return not configuration.joint and (
            (configuration.voters, configuration.learners, configuration.token)
            == (self.voters, self.learners, self.token)
        )


class Reconfiguration:
    """The change of the peers that a leader is at. It begins with what the log says, and ends with the leader."""

    def __init__(self, seat: RaftState, leading: Leader) -> None:
        self._seat = seat
        self.leading = leading
        configuration, log = seat.configuration, seat.log
        self.stage = _C.NONE
        if configuration.joint:
            self.stage = _C.JOINT
        elif log.configuration_index > log.committed:
            self.stage = _C.FINAL
        self.target: TargetPeers | None = None
        """What is caught up with; None when nothing is."""
        self._catching_up: list[NodeId]
        self._asked: int
        """Ticks until it is asked again whether the target may be joined; 0: to be asked."""
        self._alone: int
        """Ticks since most of the voters that are wanted are not heard of (raft/F-6); 0: they are."""

    def _step(self, step: ChangeStep) -> None:
        self.stage = CHANGING.after(self.stage, step)

    # -- requests

    def request(
        self,
        term: int,
        voters: Iterable[NodeId],
        learners: Iterable[NodeId],
        token: int,
        *,
        asks: bool,
    ) -> ChangeAnswer:
        """Somebody wants these peers; `token`: the revision of the assignments that say so (raft/F-3)."""
        target = TargetPeers(frozenset(voters), frozenset(learners) - frozenset(voters), token, asks)
        assert target.voters, "a group without voters decides nothing"
        if term != self._seat.term:
            return ChangeAnswer.OLD_TERM
        known = max(self._seat.configuration.token, self.target.token if self.target is not None else 0)
        if token < known:
            return ChangeAnswer.STALE
        if self.leading.transferee is not None or not self.leading.settled:
            return ChangeAnswer.BUSY
        if self.stage is _C.NONE:
            if target.reached(self._seat.configuration):
                self._tell_applied()
                return ChangeAnswer.DONE
            self._step(_S.REQUESTED)
            self._catch_up(target)
            return ChangeAnswer.STARTED
        if self.stage is _C.CATCHING_UP:
            if target != self.target:
                self._step(_S.REPLACED)
                self._catch_up(target)
            return ChangeAnswer.REPLACED
        return ChangeAnswer.BUSY

    def cancel(self, term: int, token: int) -> bool:
        """Give up what is caught up with, if it is by this token; whether nothing will come of it."""
        if term != self._seat.term or self.stage not in (_C.NONE, _C.CATCHING_UP):
            return False
        if self.target is not None and self.target.token == token:
            self._step(_S.CANCELLED)
            self._give_up()
        return True

    def agree(self, term: int, token: int) -> bool:
        """The target by this token may be joined; whether it was still waiting for that."""
        target = self.target
        if term != self._seat.term or target is None or (target.token, target.asks) != (token, True):
            return False
        self.target = TargetPeers(target.voters, target.learners, token)
        self.look()
        return True

    def _catch_up(self, target: TargetPeers) -> None:
        """raft/F-1 and raft/F-2."""
        now = self._seat.configuration
        self._asked = self._alone = 0
        self.target = target
        self._catching_up = sorted(target.voters - now.voters)
        self.leading.accompany((target.voters | target.learners) - now.members)
        self.look()

    def _give_up(self) -> None:
        self.target = None
        self.leading.accompany(frozenset())

    def end(self) -> None:
        """The leader leads no more."""
        if self.target is not None:
            token, self.target = self.target.token, None
            self._seat.notices.append(ChangeFailed(token, "the leader has stepped down"))

    # -- what happens

    def tick(self) -> None:
        """Some time has passed (raft/F-4)."""
        if self.target is None:
            return
        if self._asked:
            self._asked -= 1
        if self._alone:
            self._alone += 1
            if self._alone > self._seat.settings.catch_up_ticks:
                self._fail("most of the voters that are wanted are not heard of")
                return
        self.look()
        self._look_at_laggards()

    def _look_at_laggards(self) -> None:
        """raft/F-4."""
        for node in self._catching_up:
            quiet = self.leading.progress[node].quiet
            if quiet >= self._seat.settings.catch_up_ticks and not self._close(node):
                self._fail(f"{node} has got nothing for {quiet} ticks")
                return

    def _fail(self, why: str) -> None:
        assert self.target is not None, "who catches up has a target"
        token = self.target.token
        self._step(_S.FAILED)
        self._give_up()
        self._seat.notices.append(ChangeFailed(token, why))

    def _close(self, node: NodeId) -> bool:
        progress = self.leading.progress[node]
        margin = self._seat.settings.catch_up_margin
        return progress.match > 0 and progress.match + margin >= self._seat.log.last

    def look(self) -> None:
        """Go on, where that is possible."""
        log = self._seat.log
        if self.stage is _C.CATCHING_UP and all(map(self._close, self._catching_up)):
            assert self.target is not None, "who catches up has a target"
            if self.leading.most_are_heard(self.target.voters):
                self._alone = 0
                self._join_if_agreed()
            elif not self._alone:
                self._alone = 1
        if self.stage is _C.JOINT and not self._seat.configuration.joint:
            self._step(_S.BOTH_AGREED)
        if self.stage is _C.FINAL and log.configuration_index <= log.committed:
            self._step(_S.COMMITTED)
            self._tell_applied()

    def _join_if_agreed(self) -> None:
        """raft/F-5. What asks may be lost with whoever it was told to: it is asked again."""
        assert self.target is not None, "who catches up has a target"
        if not self.target.asks:
            self._join()
        elif not self._asked:
            self._asked = self._seat.settings.election_ticks
            self._seat.notices.append(CaughtUp(self.target.token))

    def _join(self) -> None:
        target, now = self.target, self._seat.configuration
        assert target is not None, "who catches up has a target"
        self._step(_S.CAUGHT_UP)
        self.target, self._catching_up = None, []
        steps = steps_to(now, target.voters, target.learners)
        self.leading.change(enter_joint(now, steps, auto_leave=True, token=target.token))
        self.leading.accompany(frozenset())

    def _tell_applied(self) -> None:
        log = self._seat.log
        index = log.configuration_index
        self._seat.notices.append(ChangeApplied(self._seat.configuration, log.term(index), index))
