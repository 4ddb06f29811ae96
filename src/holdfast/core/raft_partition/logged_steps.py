"""Steps of transactions as requests of a group's log: what each replica does when it applies one (raft_partition/Z-13).

The leader has compared the locks of the transaction before it proposed the step (`leader_locks`), since it alone knows
them. In the log a prepare says what it writes, and which values it has seen; the only locks that count there are those
of prepared branches, and those that a leader has stored for its successor.
"""

from __future__ import annotations

from msgspec import structs

from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.operations import CLEARING, MOVING, READS, Op, Request
from holdfast.core.model.transactions import (
    LockKeys,
    PrepareBranch,
    StepFate,
    StepResult,
    TransactionStep,
    encode,
)
from holdfast.core.operations.move_steps import moving_reason
from holdfast.core.operations.transaction_branches import TransactionBranches, locked_entry
from holdfast.core.store.key_locks import KeyLocks
from holdfast.core.store.partition_copy import PartitionCopy

_UNLOCKED = READS | MOVING | {Op.PIN}
"""No lock is in their way. Moves look at locks themselves (operations/V-3)."""


def for_log(step: PrepareBranch) -> PrepareBranch:
    """The step without what only its leader can compare."""
    return structs.replace(step, locked=False, held=[], mapped=None)


def decide_logged(copy: PartitionCopy, step: TransactionStep, now_ns: int) -> Decision:
    """A function of the copy and of what the log says. A lock that is stored, and held by another, is not taken."""
    if why := moving_reason(copy.maps, NoMoves(), step):
        return Decision(encode(StepResult(StepFate.REFUSED, why=why)))
    branches = TransactionBranches(copy, now_ns, stores=isinstance(step, LockKeys))
    decision = branches.decide(step)
    return Decision(decision.answer) if isinstance(decision, Wait) else decision


def is_locked(locks: KeyLocks, request: Request) -> bool:
    """Whether this request has to wait for a transaction."""
    if request.op in _UNLOCKED:
        return False
    if request.op in CLEARING:
        return locks.guards(request.map)
    return locked_entry(locks, request) is not None
