"""Deadlock detection: the master looks for circles of transactions that wait for each other's locks.

Each member reports to the master the transactions that have waited for a lock in its partitions for
`transactions.deadlock_after_ms`, and the holders of these locks. A report may be out of date, and then a transaction
may be rolled back without need; that is always allowed.

Example: A holds the lock of x on member 1 and waits for y on member 2; B holds y and waits for x. Member 1 reports B ->
A, member 2 reports A -> B. The master joins them to A -> B -> A, and asks the coordinator of the younger of the two to
roll it back.

- transactions/D-1: In each circle the transaction that was begun last, by its number, is rolled back; the others
  continue.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.config import Settings
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import DeadlockFound, LocksAwaited
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Op
from holdfast.core.model.transaction_orders import LockWait
from holdfast.core.model.transactions import LockKeys, TransactionId, decode_step
from holdfast.core.outbox import Outbox
from holdfast.core.transactions.branch_routing import BranchRouting
from holdfast.core.transactions.steps import Steps
from holdfast.core.transactions.two_phase_commit import TwoPhaseCommit

STALE_NS = 5000 * MILLISECOND
VICTIM = "a deadlock: {} transactions wait for each other, and this one gives way; try it again"


class Deadlocks:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        membership: MembershipStatus,
        routing: BranchRouting,
        commits: TwoPhaseCommit,
        steps: Steps,
    ) -> None:
        self._me = me
        self._out = out
        self._membership = membership
        self._routing = routing
        self._commits = commits
        self._steps = steps
        self._after_ms = settings.transactions.deadlock_after_ms
        self._reported = False
        """The last report to the master had some waits."""
        self._known: dict[MemberId, tuple[int, list[tuple[TransactionId, MemberId, TransactionId]]]] = {}

    def waits(self) -> list[LockWait]:
        now_ns = self._out.now_ns
        found = []
        for parked in self._routing.waits():
            if parked.request.op is not Op.TRANSACT:
                continue
            wait, step = parked.wait, decode_step(parked.request.value)
            assert wait is not None and isinstance(step, LockKeys), "no other step waits"
            waited_ms = (now_ns - parked.since_ns) // MILLISECOND
            found.append(LockWait(wait.waiter, step.owner, wait.holder, wait.key, waited_ms))
        return found

    def look_soon(self) -> None:
        """A wait has begun."""
        self._steps.wake(self._after_ms * MILLISECOND)

    def look(self) -> None:
        late = []
        left_ms = 0
        for wait in self.waits():
            if wait.since_ms >= self._after_ms:
                late.append(wait)
            else:
                left_ms = max(left_ms, self._after_ms - wait.since_ms)
        if left_ms:
            self._steps.wake(left_ms * MILLISECOND)
        waits = [(wait.waiter, wait.owner, wait.holder) for wait in late]
        master = self._membership.master
        if master is not None and (waits or self._reported):
            self._reported = bool(waits)
            message = LocksAwaited(waits)
            if master == self._me:
                self.on_awaited(self._me, message)
            else:
                self._out.send(master, message)

    def on_awaited(self, sender: MemberId, message: LocksAwaited) -> None:
        """As master: take all long waits in the partitions of a member."""
        self._known.pop(sender, None)
        if message.waits:
            self._known[sender] = self._out.now_ns, message.waits
            self._search()

    def _search(self) -> None:
        """Roll back one transaction of each circle (transactions/D-1)."""
        oldest_ns = self._out.now_ns - STALE_NS
        self._known = {
            member: known
            for member, known in self._known.items()
            if known[0] >= oldest_ns and self._membership.is_member(member)
        }
        # A transaction waits for one lock at a time. If two members report waits of the same one, the later report
        # replaces the earlier.
        holders: dict[TransactionId, TransactionId] = {}
        owners: dict[TransactionId, MemberId] = {}
        for _, waits in self._known.values():
            for waiter, owner, holder in waits:
                holders[waiter], owners[waiter] = holder, owner
        for circle in circles(holders):
            victim = max(circle, key=_number)
            message = DeadlockFound(victim, [each for each in circle if each != victim])
            if owners[victim] == self._me:
                self.on_found(self._me, message)
            elif self._membership.is_member(owners[victim]):
                self._out.send(owners[victim], message)

    def on_found(self, sender: MemberId, message: DeadlockFound) -> None:
        why = VICTIM.format(1 + len(message.others))
        self._commits.roll_back(message.transaction, why, None)


def _number(transaction: TransactionId) -> tuple[bytes, bytes]:
    """Highest for the transaction that was begun last, among those of one member."""
    return transaction[8:], transaction


def circles(holders: Mapping[TransactionId, TransactionId]) -> list[list[TransactionId]]:
    """`holders`: waiter -> holder.

    Each transaction waits for at most one other. So a walk from holder to holder ends at one that waits for none, or
    enters a circle: in a -> b -> c -> b the circle is [b, c], and a is outside.
    """
    found: list[list[TransactionId]] = []
    visited: set[TransactionId] = set()
    for start in holders:
        path: list[TransactionId] = []
        at = start
        while at in holders and at not in visited:
            visited.add(at)
            path.append(at)
            at = holders[at]
        if at in path:
            found.append(path[path.index(at) :])
    return found
