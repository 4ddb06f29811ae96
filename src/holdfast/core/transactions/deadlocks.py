"""Do transactions wait for each other in a circle?

Each member tells the master which transactions have waited for a lock at its partitions for a while, and for whom. The
master puts that together. A wait ends only when its holder does, so a circle that it finds does not open by itself.
What it hears may be older than what is, though, and then the wrong one may have to give way: it is rolled back, which
is always allowed.

- transactions/D-1: Of each circle the transaction gives way that was begun last, by its number: the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.config import Settings
from holdfast.core.machine import Outbox
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import DeadlockFound, LocksAwaited
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Op
from holdfast.core.model.transaction_orders import LockWait
from holdfast.core.model.transactions import LockKeys, TransactionId, decode_step
from holdfast.core.routing.router import Router
from holdfast.core.transactions.two_phase_commit import TwoPhaseCommit

STALE_NS = 5000 * MILLISECOND
"""A report counts for so long."""
VICTIM = "a deadlock: {} transactions wait for each other, and this one gives way; try it again"


class Deadlocks:
    """What this member knows of who waits for whom."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        standing: MembershipStatus,
        router: Router,
        commits: TwoPhaseCommit,
    ) -> None:
        self._me = me
        self._out = out
        self._standing = standing
        self._router = router
        self._commits = commits
        self._after_ms = settings.transactions.deadlock_after_ms
        self._reported = False
        """Whether the last report to the master had any waits."""
        self._known: dict[MemberId, tuple[int, list[tuple[TransactionId, MemberId, TransactionId]]]] = {}
        """As master: what each member has reported, and when; the newest report is the last one."""

    def waits(self) -> list[LockWait]:
        """Which transactions wait for which, in the partitions of this member."""
        now_ns = self._out.now_ns
        found = []
        for parked in self._router.waits():
            if parked.request.op is not Op.TRANSACT:
                continue
            wait, step = parked.wait, decode_step(parked.request.value)
            assert wait is not None and isinstance(step, LockKeys), "no other step waits"
            waited_ms = (now_ns - parked.since_ns) // MILLISECOND
            found.append(LockWait(wait.waiter, step.owner, wait.holder, wait.key, waited_ms))
        return found

    def look(self) -> None:
        """Report to the master who waits."""
        late = [wait for wait in self.waits() if wait.since_ms >= self._after_ms]
        waits = [(wait.waiter, wait.owner, wait.holder) for wait in late]
        master = self._standing.master
        if master is not None and (waits or self._reported):
            self._reported = bool(waits)
            message = LocksAwaited(waits)
            if master == self._me:
                self.on_awaited(self._me, message)
            else:
                self._out.send(master, message)

    def on_awaited(self, sender: MemberId, message: LocksAwaited) -> None:
        """As master: these, and no others, wait at the partitions of this member."""
        self._known.pop(sender, None)
        if message.waits:
            self._known[sender] = self._out.now_ns, message.waits
            self._search()

    def _search(self) -> None:
        """Find every circle, and roll back one transaction of each (transactions/D-1)."""
        oldest_ns = self._out.now_ns - STALE_NS
        self._known = {
            member: known
            for member, known in self._known.items()
            if known[0] >= oldest_ns and self._standing.is_member(member)
        }
        # A transaction waits for one lock at a time. If two members report waits of the same one, the report that
        # came first is out of date: the later one replaces it.
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
            elif self._standing.is_member(owners[victim]):
                self._out.send(owners[victim], message)

    def on_found(self, sender: MemberId, message: DeadlockFound) -> None:
        """A transaction of this member is to give way."""
        why = VICTIM.format(1 + len(message.others))
        self._commits.roll_back(message.transaction, why, None)


def _number(transaction: TransactionId) -> tuple[bytes, bytes]:
    """The one with the highest number was begun last, among those of one member."""
    return transaction[8:], transaction


def circles(holders: Mapping[TransactionId, TransactionId]) -> list[list[TransactionId]]:
    """All circles of transactions that wait for each other. `holders`: which transaction each one waits for.

    Each transaction waits for at most one other. So a walk from holder to holder ends at one that waits for none, or
    comes to a circle and stays there: with a -> b -> c -> b it is [b, c], and a is outside. No two circles share a
    transaction, and walks that meet end in the same place.
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
