"""Do transactions wait for each other in a circle?

Each member tells the master which transactions have waited for a lock at its partitions for a while, and for whom. The
master puts that together. A wait ends only when its holder does, so a circle that it finds does not open by itself.
What it hears may be older than what is, though, and then the wrong one may have to give way: it is rolled back, which
is always allowed.

- transaction/D-1: Of each circle the transaction gives way that was begun last, by its number: the others go on.
"""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.core.cluster.standing import Standing
from holdfast.core.machine import Outbox
from holdfast.core.messages import DeadlockFound, LocksAwaited
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Op
from holdfast.core.model.transaction_orders import LockWait
from holdfast.core.model.transactions import LockKeys, TransactionId, decode_step
from holdfast.core.routing.router import Router
from holdfast.core.transaction.coordinator import Coordinator
from holdfast.core.transaction.steps import Steps

STALE_NS = 5000 * MILLISECOND
"""What a member has told counts for so long."""
VICTIM = "a deadlock: {} transactions wait for each other, and this one gives way; try it again"


class Deadlocks:
    """What this member knows of who waits for whom."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        standing: Standing,
        router: Router,
        steps: Steps,
        coordinator: Coordinator,
    ) -> None:
        self._me = me
        self._out = out
        self._standing = standing
        self._router = router
        self._steps = steps
        self._coordinator = coordinator
        self._after_ns = settings.transactions.deadlock_after_ms * MILLISECOND
        self._told = False
        """Whether the master was told of waits at the last look."""
        self._known: dict[MemberId, tuple[int, list[tuple[TransactionId, MemberId, TransactionId]]]] = {}

    def waits(self) -> list[LockWait]:
        """Which transactions wait for which, in the partitions of this member."""
        now_ns = self._out.now_ns
        found = []
        for parked in self._router.waits():
            wait = parked.wait
            if wait is None or not wait.holder or parked.request.op is not Op.TRANSACT:
                continue
            step = decode_step(parked.request.value)
            assert isinstance(step, LockKeys), "nothing else waits for a lock"
            waited_ms = (now_ns - parked.since_ns) // MILLISECOND
            found.append(LockWait(wait.waiter, step.owner, wait.holder, wait.key, waited_ms))
        return found

    def look(self) -> None:
        """Tell the master who waits, or look for circles oneself."""
        late_ms = self._after_ns // MILLISECOND
        waits = [(wait.waiter, wait.owner, wait.holder) for wait in self.waits() if wait.since_ms >= late_ms]
        master = self._standing.master
        if master is not None and (waits or self._told):
            self._told = bool(waits)
            message = LocksAwaited(waits)
            if master == self._me:
                self.on_awaited(self._me, message)
            else:
                self._out.send(master, message)
        if self._known:
            self._steps.wake(self._after_ns)

    def on_awaited(self, sender: MemberId, message: LocksAwaited) -> None:
        """A member says who waits at its partitions: that is all, there."""
        if message.waits:
            self._known[sender] = (
                self._out.now_ns,
                [(waiter, owner, holder) for waiter, owner, holder in message.waits],
            )
            self._search()
        else:
            self._known.pop(sender, None)

    def _search(self) -> None:
        """Find every circle, and let one transaction of each give way (transaction/D-1)."""
        oldest_ns = self._out.now_ns - STALE_NS
        self._known = {
            member: known
            for member, known in self._known.items()
            if known[0] >= oldest_ns and self._standing.is_member(member)
        }
        holders: dict[TransactionId, set[TransactionId]] = {}
        owners: dict[TransactionId, MemberId] = {}
        for _, waits in self._known.values():
            for waiter, owner, holder in waits:
                holders.setdefault(waiter, set()).add(holder)
                owners[waiter] = owner
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
        self._coordinator.roll_back(message.transaction, why, None)


def _number(transaction: TransactionId) -> tuple[bytes, bytes]:
    """The one with the highest number was begun last, among those of one member."""
    return transaction[8:], transaction[:8]


def circles(holders: dict[TransactionId, set[TransactionId]]) -> list[list[TransactionId]]:
    """Circles of transactions that wait for each other, none of which shares a transaction with another one."""
    found: list[list[TransactionId]] = []
    done: set[TransactionId] = set()
    for start in sorted(holders):
        if start in done:
            continue
        path: list[TransactionId] = []
        places: dict[TransactionId, int] = {}
        stack = [(start, iter(sorted(holders[start])))]
        places[start] = 0
        path.append(start)
        while stack:
            _, nexts = stack[-1]
            following = next(nexts, None)
            if following is None:
                stack.pop()
                over = path.pop()
                del places[over]
                done.add(over)
            elif following in places:
                found.append(path[places[following] :])
                done.update(path)
                break
            elif following in holders and following not in done:
                places[following] = len(path)
                path.append(following)
                stack.append((following, iter(sorted(holders[following]))))
    return found
