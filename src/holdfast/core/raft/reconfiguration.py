"""Change of a group's peers by joint consensus.

- raft/F-1: The change is logged only after the new voters have nearly caught up. Example: {a, b, c} with c dead becomes
  {a, b, d}. If d were a voter with an empty log, nothing could be committed until d has the whole state.
- raft/F-2: During catch-up the target may be replaced or cancelled, and replicas in both targets keep their progress.
  After the joint configuration is in the log neither is possible.
- raft/F-3: A request of another term has no effect; one with an older token than the newest known is rejected.
- raft/F-4: Catch-up fails when a new voter makes no progress for `catch_up_ticks`. It may take any time while it does.
- raft/F-5: With `asks`, nothing is logged before the requester has agreed to exactly this target.
- raft/F-6: A joint configuration is not entered while a majority of the wanted voters is silent: the group could commit
  nothing any more, not even the way back. Only answers since the request count: a group may have slept until then.
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
    NONE = "none"
    CATCHING_UP = "catching up"
    JOINT = "joint"
    FINAL = "final"


@unique
class ChangeStep(StrEnum):
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
    STARTED = "started"
    REPLACED = "replaced"
    DONE = "done"
    """The group has these peers already; that is reported again."""
    OLD_TERM = "old term"
    """The request was meant for another leader: no effect."""
    STALE = "stale"
    """A newer token is known."""
    BUSY = "busy"
    """Retry."""


@dataclass(frozen=True, slots=True)
class TargetPeers:
    voters: frozenset[NodeId]
    learners: frozenset[NodeId]
    token: int
    asks: bool = False
    """Report `CaughtUp` and wait for `agree` before the joint configuration (raft/F-5)."""

    def reached(self, configuration: Configuration) -> bool:
        return not configuration.joint and (
            (configuration.voters, configuration.learners, configuration.token)
            == (self.voters, self.learners, self.token)
        )


class Reconfiguration:
    """The change of peers of one leader. It starts from the configuration in the log and ends with the leadership."""

    def __init__(self, state: RaftState, leading: Leader) -> None:
        self._state = state
        self.leading = leading
        configuration, log = state.configuration, state.log
        self.stage = _C.NONE
        if configuration.joint:
            self.stage = _C.JOINT
        elif log.configuration_index > log.committed:
            self.stage = _C.FINAL
        self.target: TargetPeers | None = None
        self._catching_up: list[NodeId]
        self._asked: int
        """Ticks until `CaughtUp` is reported again; 0: due."""
        self._alone: int
        """Ticks since a majority of the wanted voters is silent (raft/F-6); 0: it is not."""

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
        """Start a change, or replace its target. `token`: revision of the assignments that name these peers
        (raft/F-3).
        """
        target = TargetPeers(frozenset(voters), frozenset(learners) - frozenset(voters), token, asks)
        assert target.voters, "a group without voters decides nothing"
        if term != self._state.term:
            return ChangeAnswer.OLD_TERM
        known = max(self._state.configuration.token, self.target.token if self.target is not None else 0)
        if token < known:
            return ChangeAnswer.STALE
        if self.leading.transferee is not None or not self.leading.settled:
            return ChangeAnswer.BUSY
        if self.stage is _C.NONE:
            if target.reached(self._state.configuration):
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
        """Cancel the catch-up; returns whether the change will not happen."""
        if term != self._state.term or self.stage not in (_C.NONE, _C.CATCHING_UP):
            return False
        if self.target is not None and self.target.token == token:
            self._step(_S.CANCELLED)
            self._give_up()
        return True

    def agree(self, term: int, token: int) -> bool:
        """Agree to the joint configuration; returns whether the change was waiting for that."""
        target = self.target
        if term != self._state.term or target is None or (target.token, target.asks) != (token, True):
            return False
        self.target = TargetPeers(target.voters, target.learners, token)
        self.look()
        return True

    def _catch_up(self, target: TargetPeers) -> None:
        """Let the new peers catch up (raft/F-1), perhaps in place of an earlier target (raft/F-2)."""
        now = self._state.configuration
        self._asked = self._alone = 0
        self.target = target
        self._catching_up = sorted(target.voters - now.voters)
        self.leading.add_catching_up((target.voters | target.learners) - now.members)
        self.leading.expect_answers(target.voters)
        self.look()

    def _give_up(self) -> None:
        self.target = None
        self.leading.add_catching_up(frozenset())

    def end(self) -> None:
        if self.target is not None:
            token, self.target = self.target.token, None
            self._state.notices.append(ChangeFailed(token, "the leader has stepped down"))

    # -- progress

    def tick(self) -> None:
        """Continue the change, or fail it if too many wanted voters are silent or one makes no progress (raft/F-4,
        raft/F-6).
        """
        if self.target is None:
            return
        if self._asked:
            self._asked -= 1
        if self._alone:
            self._alone += 1
            if self._alone > self._state.settings.catch_up_ticks:
                self._fail("a majority of the wanted voters is silent")
                return
            self.leading.ask_silent(self.target.voters)
        self.look()
        self._look_at_laggards()

    def _look_at_laggards(self) -> None:
        """Fail the change if a new voter makes no progress (raft/F-4)."""
        for node in self._catching_up:
            quiet = self.leading.progress[node].quiet
            if quiet >= self._state.settings.catch_up_ticks and not self._close(node):
                self._fail(f"{node} has made no progress for {quiet} ticks")
                return

    def _fail(self, why: str) -> None:
        assert self.target is not None, "who catches up has a target"
        token = self.target.token
        self._step(_S.FAILED)
        self._give_up()
        self._state.notices.append(ChangeFailed(token, why))

    def _close(self, node: NodeId) -> bool:
        progress = self.leading.progress[node]
        margin = self._state.settings.catch_up_margin
        return progress.match > 0 and progress.match + margin >= self._state.log.last

    def look(self) -> None:
        log = self._state.log
        if self.stage is _C.CATCHING_UP and all(map(self._close, self._catching_up)):
            assert self.target is not None, "who catches up has a target"
            if self.leading.hears_majority_of(self.target.voters):
                self._alone = 0
                self._join_if_agreed()
            elif not self._alone:
                self._alone = 1
        if self.stage is _C.JOINT and not self._state.configuration.joint:
            self._step(_S.BOTH_AGREED)
        if self.stage is _C.FINAL and log.configuration_index <= log.committed:
            self._step(_S.COMMITTED)
            self._tell_applied()

    def _join_if_agreed(self) -> None:
        """Enter the joint configuration, or ask for that first (raft/F-5). `CaughtUp` is repeated, since the requester
        may have crashed.
        """
        assert self.target is not None, "who catches up has a target"
        if not self.target.asks:
            self._join()
        elif not self._asked:
            self._asked = self._state.settings.election_ticks
            self._state.notices.append(CaughtUp(self.target.token))

    def _join(self) -> None:
        target, now = self.target, self._state.configuration
        assert target is not None, "who catches up has a target"
        self._step(_S.CAUGHT_UP)
        self.target, self._catching_up = None, []
        steps = steps_to(now, target.voters, target.learners)
        self.leading.change(enter_joint(now, steps, auto_leave=True, token=target.token))
        self.leading.add_catching_up(frozenset())

    def _tell_applied(self) -> None:
        log = self._state.log
        index = log.configuration_index
        self._state.notices.append(ChangeApplied(self._state.configuration, log.term(index), index))
