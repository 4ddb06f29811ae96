"""What waits to be written, in its order: the effects of one step may come in any."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.core.effects import Append, Checkpoint, ReadHistory
from holdfast.core.model.journal_entries import Entry
from holdfast.engine.checkpoints import Checkpoints, RunningCheckpoint


@dataclass(slots=True)
class WriteGroup:
    """What the member, or the journal itself (number 0), wants to be written in one piece."""

    number: int
    entries: list[Entry]
    urgent: bool
    cuts: list[RunningCheckpoint] = field(default_factory=list)
    """Checkpoints of the moment just after it: nothing may follow it in its block."""
    questions: list[ReadHistory] = field(default_factory=list)
    """What is looked for in the journal may be in this group."""


class Intake:
    """The groups that wait, oldest first, and what belongs to which of them."""

    def __init__(self, checkpoints: Checkpoints, made_lsn: Callable[[], int]) -> None:
        """made_lsn: answers the lsn of the last block that was made."""
        self.pending: deque[WriteGroup] = deque()
        self._checkpoints = checkpoints
        self._made_lsn = made_lsn
        self._number = 0
        """The newest append that waits here, or was taken from here."""
        self._appends: dict[int, Append] = {}
        """Those that wait for an earlier one."""
        self._early: list[Checkpoint] = []
        """Those that wait for an append."""
        self._questions: list[ReadHistory] = []
        """Taken in at the end of the turn: what they ask for may come as an append of the same turn."""

    @property
    def early(self) -> int:
        """How much waits for something that has not come yet."""
        return len(self._appends) + len(self._early) + len(self._questions)

    def take(self, effect: Append | Checkpoint | ReadHistory) -> None:
        """The member wants this."""
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
        """Find the block after which a checkpoint belongs. Two of one partition never come after the same one."""
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
        """The questions that what is written already may answer; others go with the last group that waits."""
        questions, self._questions = self._questions, []
        assert not self._questions, "each is asked once"
        if self.pending:
            self.pending[-1].questions.extend(questions)
            return []
        return questions
