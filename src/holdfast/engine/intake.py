"""Puts groups of journal entries into order.

The effects of a step may arrive in any order. Example: the core emits append 7, a checkpoint "after 7", and
append 8. An early 8 waits for 7; an early checkpoint waits too, and is attached to the group of 7. That group
ends its block, so that the checkpoint holds exactly the records up to there, without 8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.core.effects import Append, Checkpoint, ReadHistory
from holdfast.core.model.journal_entries import Entry
from holdfast.engine.checkpoints import Checkpoints, RunningCheckpoint


@dataclass(slots=True)
class WriteGroup:
    number: int
    entries: list[Entry]
    urgent: bool
    cuts: list[RunningCheckpoint] = field(default_factory=list)
    """Checkpoints of the moment just after this group, which must end its block."""
    questions: list[ReadHistory] = field(default_factory=list)


class Intake:
    def __init__(self, checkpoints: Checkpoints, made_lsn: Callable[[], int]) -> None:
        self.pending: deque[WriteGroup] = deque()
        self._checkpoints = checkpoints
        self._made_lsn = made_lsn
        self._number = 0
        self._appends: dict[int, Append] = {}
        self._early: list[Checkpoint] = []
        self._questions: list[ReadHistory] = []
        """Accepted at the end of the turn, because the append that they need may come in the same turn."""

    @property
    def early(self) -> int:
        return len(self._appends) + len(self._early) + len(self._questions)

    def take(self, effect: Append | Checkpoint | ReadHistory) -> None:
        if isinstance(effect, ReadHistory):
            self._questions.append(effect)
            return
        if isinstance(effect, Append):
            assert effect.number > self._number and effect.number not in self._appends, "an append comes once"
            self._appends[effect.number] = effect
            while (append := self._appends.pop(self._number + 1, None)) is not None:
                assert append.number == self._number + 1, "groups are written in their order (journal/J-2)"
                self._number = append.number
                self.pending.append(WriteGroup(append.number, append.entries, append.urgent))
        else:
            self._early.append(effect)
        waiting, self._early = self._early, []
        for each in waiting:
            if each.after > self._number:
                self._early.append(each)
            else:
                self._cut(self._checkpoints.begin(each.ticket, each.snapshot), each.after)

    def _cut(self, cut: RunningCheckpoint, after: int) -> None:
        """Attach a checkpoint to its block. Two checkpoints of one partition never share a block."""
        partition = cut.snapshot.partition
        assert after <= self._number, "what it comes after is known"
        for position in range(len(self.pending) - 1, -1, -1):
            group = self.pending[position]
            if group.number == after and after:
                if any(other.snapshot.partition == partition for other in group.cuts):
                    self.pending.insert(position + 1, WriteGroup(after, [], urgent=False, cuts=[cut]))
                else:
                    group.cuts.append(cut)
                return
        if self._checkpoints.clashes(partition, self._made_lsn()):
            self.pending.appendleft(WriteGroup(0, [], urgent=False, cuts=[cut]))
        else:
            self._checkpoints.place(cut, self._made_lsn())

    def take_questions(self) -> list[ReadHistory]:
        """Questions that need only written blocks; the others go with the last pending group."""
        questions, self._questions = self._questions, []
        assert not self._questions, "each is asked once"
        if self.pending:
            self.pending[-1].questions.extend(questions)
            return []
        return questions
