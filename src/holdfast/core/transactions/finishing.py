"""The end of a transaction whose prepare has begun; the same for its coordinator and for recovery.

It commits if any branch has committed or all are prepared, and is rolled back otherwise (notes on recovery; 004 "Crash
recovery"). The coordinator uses this rule, and, after it has gone, the primaries of the branches; they find the same
outcome, because a branch that was asked and is not prepared never will be (operations/T-3).

- transactions/F-1: A prepared branch is rolled back only if some branch is certainly not prepared.
- transactions/F-2: The outcome is sent to a branch again and again until it has answered.
- transactions/F-4: A branch in a zone that was dropped has no say, and no step to it is repeated. When its coordinator
  has gone, too, the transaction is rolled back, unless another branch has committed.
- transactions/F-3: Branches forget the outcome when all have it. If a step may still be on its way (a prepare without
  an answer), they keep it for a while longer, so that the late step is rejected.

Example: a transaction writes in partitions 1 and 2. Partition 1 is prepared; the prepare of partition 2 has no answer,
and the coordinator crashes. The primary of partition 1 finds a prepared branch without a coordinator and asks both
branches. Partition 2 is not prepared: it stores ROLLED_BACK, then answers. So the transaction is rolled back, and a
late prepare at partition 2 finds ROLLED_BACK and is rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Outcome
from holdfast.core.model.transactions import (
    AskBranch,
    CommitBranch,
    ForgetBranches,
    RollBackBranch,
    StepFate,
    TransactionId,
    TransactionStep,
    split_place,
)
from holdfast.core.outbox import Outbox
from holdfast.core.transactions.steps import Steps, result_of

AGAIN_NS = 100 * MILLISECOND
FORGET_NS = 2500 * MILLISECOND
"""Outcomes are forgotten at multiples of this time, so that each partition gets one step for many transactions. It is
shorter than the age from which a primary asks about a branch (`orphans.ASK_NS`).
"""
FORGET_AT_ONCE = 50
"""Partitions, in one event: some milliseconds. The next ones follow after `FORGET_PAUSE_NS`."""
FORGET_PAUSE_NS = 10 * MILLISECOND


class Ending(Enum):
    ASKING = "asking"
    COMMITTING = "committing"
    ROLLING_BACK = "rolling back"


@dataclass(slots=True)
class Finish:
    transaction: TransactionId
    owner: MemberId
    participants: list[int]
    """Partitions in which it is, or should be, prepared."""
    ending: Ending
    left: set[int]
    """Not answered yet; those that are being asked are among them."""
    lacks: bool = False
    """A branch is gone with its zone (transactions/F-4)."""
    fenced: frozenset[int] = frozenset()
    """A step to these partitions may still be on its way."""
    locked: frozenset[int] = frozenset()
    """The transaction has no branch in these partitions, only locks, which are released."""
    only_locks: bool = False
    """It has no branch anywhere, as far as this member knows."""
    asked: dict[int, int] = field(default_factory=dict)
    """Open steps: ticket -> partition."""
    begun: bool = False


class FinishObserver(Protocol):
    def on_finished(self, transaction: TransactionId, *, committed: bool) -> None: ...


class Finishing:
    """The transactions that this member ends: its own, and those of members that have gone."""

    def __init__(self, out: Outbox, steps: Steps, keep_ns: int) -> None:
        """`keep_ns`: how long a step with an unknown outcome may be on its way."""
        self._out = out
        self._steps = steps
        self._keep_ns = keep_ns
        self.observer: FinishObserver | None = None
        self._running: dict[TransactionId, Finish] = {}
        self._of_ticket: dict[int, Finish] = {}
        self._holds: dict[bytes, int] = {}
        self._remembered: dict[TransactionId, tuple[int, list[int]]] = {}
        """Outcomes that branches keep until a `ForgetBranches`: from when on, and in which partitions."""
        self._forgettable: dict[int, list[TransactionId]] = {}
        """Those whose time has come, by partition."""

    def runs(self, transaction: TransactionId) -> bool:
        return transaction in self._running

    def keeps(self, transaction: TransactionId) -> bool:
        """Whether it is being ended here, or its outcome is kept for a while."""
        return transaction in self._running or transaction in self._remembered

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def remembered(self) -> int:
        return len(self._remembered)

    def ask(self, transaction: TransactionId, owner: MemberId, participants: list[int]) -> None:
        """The outcome is unknown here: ask the branches."""
        self._begin(
            Finish(
                transaction,
                owner,
                participants,
                Ending.ASKING,
                set(participants),
                fenced=frozenset(participants),
            )
        )

    def commit(
        self,
        transaction: TransactionId,
        owner: MemberId,
        participants: list[int],
        doubted: frozenset[int],
        locked: frozenset[int] = frozenset(),
    ) -> None:
        """All branches are prepared, or one has committed. `locked`: further partitions, where it holds only locks."""
        left = {*participants, *locked}
        self._begin(
            Finish(transaction, owner, participants, Ending.COMMITTING, left, fenced=doubted, locked=locked)
        )

    def roll_back(
        self, transaction: TransactionId, owner: MemberId, partitions: list[int], fenced: frozenset[int]
    ) -> None:
        """Some branch is certainly not prepared (transactions/F-1). `fenced`: a step to these partitions may be on its
        way.
        """
        self._begin(
            Finish(transaction, owner, partitions, Ending.ROLLING_BACK, set(partitions), fenced=fenced)
        )

    def release(self, transaction: TransactionId, owner: MemberId, partitions: list[int]) -> None:
        """Locks were found there, and no branch. If one has come meanwhile, it stays."""
        left = set(partitions)
        self._begin(Finish(transaction, owner, partitions, Ending.ROLLING_BACK, left, only_locks=True))

    def _begin(self, finish: Finish) -> None:
        assert finish.transaction not in self._running, "a transaction ends once"
        self._running[finish.transaction] = finish
        self._go_on(finish)

    def _go_on(self, finish: Finish) -> None:
        """Send the step to every branch that has not answered and has no open step."""
        if self._holds and not finish.begun and finish.ending is not Ending.ROLLING_BACK:
            self._steps.wake(AGAIN_NS)
            return
        finish.begun = True
        for partition in sorted(finish.left - set(finish.asked.values())):
            ticket = self._steps.send(self._step(finish, partition), partition, self)
            finish.asked[ticket] = partition
            self._of_ticket[ticket] = finish
        if not finish.left:
            self._over(finish)

    def _step(self, finish: Finish, partition: int) -> TransactionStep:
        if finish.ending is Ending.ASKING:
            return AskBranch(finish.transaction, finish.owner, finish.participants)
        if finish.ending is Ending.COMMITTING and partition not in finish.locked:
            return CommitBranch(finish.transaction)
        fence = partition in finish.fenced
        return RollBackBranch(finish.transaction, finish.owner, finish.participants, fence, finish.only_locks)

    def on_outcome(self, ticket: int, outcome: Outcome) -> None:
        finish = self._of_ticket.pop(ticket)
        partition = finish.asked.pop(ticket)
        result = result_of(outcome)
        if result is None:
            # The outcome is unknown, or the step was not taken: retry (transactions/F-2).
            self._steps.wake(AGAIN_NS)
            return
        if finish.ending is Ending.ASKING:
            self._answered(finish, partition, result.fate)
            return
        wrong = StepFate.ROLLED_BACK if finish.ending is Ending.COMMITTING else StepFate.COMMITTED
        if result.fate in (wrong, StepFate.REFUSED):
            self._out.note(
                "transaction has two outcomes",
                level="error",
                transaction=finish.transaction.hex(),
                partition=split_place(partition)[1],
                reason=f"{finish.ending.value}: {result.fate.name} {result.why}",
            )
        finish.left.discard(partition)
        if not finish.left:
            self._over(finish)

    def _answered(self, finish: Finish, partition: int, fate: StepFate) -> None:
        finish.left.discard(partition)
        if fate is StepFate.PREPARED or fate is StepFate.GONE:
            finish.lacks |= fate is StepFate.GONE
            if finish.left:
                return
            # No branch has committed, so its caller has not heard that it did (transactions/F-4).
            finish.ending = Ending.ROLLING_BACK if finish.lacks else Ending.COMMITTING
        else:
            committed = fate is StepFate.COMMITTED
            finish.ending = Ending.COMMITTING if committed else Ending.ROLLING_BACK
        # The outcome is known: send it also to branches that are still being asked.
        for ticket in finish.asked:
            self._steps.drop(ticket)
            del self._of_ticket[ticket]
        finish.asked.clear()
        finish.left = set(finish.participants)
        self._go_on(finish)

    def _over(self, finish: Finish) -> None:
        del self._running[finish.transaction]
        committed = finish.ending is Ending.COMMITTING
        kept = finish.participants if committed else sorted(finish.fenced)
        if kept:
            now_ns = self._out.now_ns
            due_ns = _forgotten_at(now_ns + (self._keep_ns if finish.fenced else 1))
            self._remembered[finish.transaction] = (due_ns, kept)
            self._steps.wake(due_ns - now_ns)
        if self.observer is not None:
            self.observer.on_finished(finish.transaction, committed=committed)

    # -- cuts that show each transaction whole

    def hold(self, name: bytes, for_ns: int) -> None:
        self._holds[name] = self._out.now_ns + for_ns
        self._steps.wake(for_ns)

    def resume(self, name: bytes) -> bool:
        """Returns whether the hold was still in force."""
        self._end_holds()
        held = self._holds.pop(name, None) is not None
        for finish in list(self._running.values()):
            self._go_on(finish)
        return held

    def holds_up_others(self, me: MemberId) -> bool:
        """Whether a transaction of another coordinator waits for the end of a hold: it may be half done."""
        return any(finish.owner != me and not finish.begun for finish in self._running.values())

    def _end_holds(self) -> None:
        now_ns = self._out.now_ns
        self._holds = {name: until_ns for name, until_ns in self._holds.items() if until_ns > now_ns}

    @property
    def quiet(self) -> bool:
        """Whether no transaction is being committed, or may turn out to be."""
        return not any(
            finish.begun and finish.ending is not Ending.ROLLING_BACK for finish in self._running.values()
        )

    # -- periodic work

    def on_timer(self) -> None:
        self._end_holds()
        for finish in list(self._running.values()):
            self._go_on(finish)
        self._forget()
        if self._remembered:
            soonest = min(due_ns for due_ns, _ in self._remembered.values())
            self._steps.wake(soonest - self._out.now_ns)

    def _forget(self) -> None:
        now_ns = self._out.now_ns
        for transaction, (due_ns, partitions) in list(self._remembered.items()):
            if due_ns <= now_ns:
                del self._remembered[transaction]
                for partition in partitions:
                    self._forgettable.setdefault(partition, []).append(transaction)
        for partition in list(self._forgettable)[:FORGET_AT_ONCE]:
            self._steps.send(ForgetBranches(self._forgettable.pop(partition)), partition, _Unheard())
        if self._forgettable:
            self._steps.wake(FORGET_PAUSE_NS)

    def forget_all(self) -> None:
        for ticket in self._of_ticket:
            self._steps.drop(ticket)
        self._of_ticket.clear()
        self._running.clear()
        self._remembered.clear()
        self._forgettable.clear()


def _forgotten_at(earliest_ns: int) -> int:
    return -(-earliest_ns // FORGET_NS) * FORGET_NS


class _Unheard:
    """Ignores answers: an outcome that was not forgotten stays a little longer, until a sweep finds it."""

    def on_outcome(self, ticket: int, outcome: Outcome) -> None: ...
