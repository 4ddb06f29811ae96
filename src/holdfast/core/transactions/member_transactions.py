"""The transactions of a member: coordination, recovery and deadlock detection as one machine.

- transactions/M-1: A member that ends a hold of commits reports it if the transaction of another coordinator waits for
  that end here. Example: a coordinator commits in one partition of a zone and dies. The hold keeps its branch in
  another one prepared, so a cut that was taken meanwhile has half of the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config import TRANSACTIONS_MAP, Settings
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import DeadlockFound, LocksAwaited, OwnersAsked, OwnersGone
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.levels import PRIMARY_LOCKS
from holdfast.core.model.member_status import TransactionCounts
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.partition_table import Table
from holdfast.core.model.transaction_orders import (
    HOLD_MS_MAX,
    BeginTransaction,
    CommitTransaction,
    HoldCommits,
    OperateIn,
    ResumeCommits,
    RollBackTransaction,
    StoreTogether,
    TransactionAnswer,
    TransactionFate,
    TransactionOrder,
)
from holdfast.core.outbox import Outbox, Reply
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.transactions.branch_routing import BranchRouting
from holdfast.core.transactions.coordinator import Coordinator
from holdfast.core.transactions.deadlocks import Deadlocks
from holdfast.core.transactions.finishing import Finishing
from holdfast.core.transactions.mapping import Mapping
from holdfast.core.transactions.orphans import LOOK_NS, Orphans
from holdfast.core.transactions.steps import Steps

LOOK_AGAIN_NS = 10 * MILLISECOND
"""Pause between looks at partitions that became served here, so that many are looked at together."""
HALF_DONE = "a transaction whose coordinator has gone was not ended yet"
KEPT_TIMES = 2
"""A step with an unknown outcome may be on its way for so many call timeouts."""


class MemberTransactions:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        membership: MembershipStatus,
        routing: BranchRouting,
        leading: Sequence[PartitionCopy | None],
        table: Table,
    ) -> None:
        self.on = settings.transactional
        """Some map takes part in transactions."""
        self._me = me
        self._membership = membership
        self.steps = Steps(out, routing)
        keep_ns = KEPT_TIMES * settings.limits.call_timeout_ms * MILLISECOND
        self.finishing = Finishing(out, self.steps, keep_ns)
        self.mapping = Mapping(membership, table, routing)
        self.coordinator = Coordinator(me, settings, out, self.steps, self.finishing, self.mapping, routing)
        self.orphans = Orphans(
            me, out, membership, leading, self.coordinator.running, self.finishing, routing
        )
        self.deadlocks = Deadlocks(
            me, settings, out, membership, routing, self.coordinator.commits, self.steps
        )
        self._out = out
        self._holding: list[tuple[int, Reply]] = []
        """With their ends; they wait until no commit is in progress."""
        self._looked_ns = 0
        self._leading = leading
        self._looks_soon = False
        """Transactions have something in partitions that have come here, or recovery has more to do."""

    def take(self, order: TransactionOrder, reply: Reply) -> None:
        """`reply` is called once."""
        if not self._membership.admitted:
            why = "this member is in no cluster"
            reply(TransactionAnswer(TransactionFate.NOT_ACTIVE, why=why))
            return
        match order:
            case BeginTransaction():
                self.coordinator.begin(order, reply)
            case OperateIn():
                self.coordinator.operations.operate(order, reply)
            case CommitTransaction():
                self.coordinator.commits.commit(order.transaction, reply)
            case StoreTogether():
                self.coordinator.store_together(order, reply)
            case RollBackTransaction():
                self.coordinator.commits.roll_back(order.transaction, order.why, reply)
            case HoldCommits():
                self._hold(order, reply)
            case ResumeCommits():
                self._resume(order, reply)

    def _hold(self, order: HoldCommits, reply: Reply) -> None:
        if not self.on:
            reply(TransactionAnswer(TransactionFate.NOT_ACTIVE, why="no map takes part in transactions"))
            return
        for_ns = max(1, min(order.ms, HOLD_MS_MAX)) * MILLISECOND
        self.finishing.hold(order.hold, for_ns)
        self._holding.append((self._out.now_ns + for_ns, reply))

    def _resume(self, order: ResumeCommits, reply: Reply) -> None:
        """See transactions/M-1."""
        more = self.on and self.orphans.look()
        half_done = more or self.finishing.holds_up_others(self._me)
        held = self.finishing.resume(order.hold)
        fate = TransactionFate.DONE if held and not half_done else TransactionFate.NOT_DONE
        reply(TransactionAnswer(fate, self._view(), HALF_DONE if held and half_done else ""))

    def _look_at_holds(self) -> None:
        now_ns, waiting = self._out.now_ns, self._holding
        self._holding = []
        for until_ns, reply in waiting:
            if self.finishing.quiet:
                reply(TransactionAnswer(TransactionFate.DONE, self._view()))
            elif until_ns <= now_ns:
                why = "a transaction that is being committed does not come to its end"
                reply(TransactionAnswer(TransactionFate.NOT_DONE, why=why))
            else:
                self._holding.append((until_ns, reply))

    def _view(self) -> list[None | int | bytes]:
        view = self._membership.view
        return [view.number if view is not None else 0, len(self._membership.members())]

    # -- events

    def deliver(self) -> None:
        self.steps.deliver()
        if self._holding:
            self._look_at_holds()

    def wake_if_late(self) -> None:
        self.steps.wake_if_late()

    def on_timer(self) -> None:
        self.steps.on_timer()
        self.steps.deliver()
        self.coordinator.on_timer()
        self.finishing.on_timer()
        self.deadlocks.look()
        if self._looks_soon:
            self._look_at_orphans()

    def sweep(self) -> None:
        if not self.on:
            return
        self.deadlocks.look()
        if self._out.now_ns - self._looked_ns >= LOOK_NS and self._membership.admitted:
            self._looked_ns = self._out.now_ns
            self._look_at_orphans()

    def on_view(self, notice: ViewInstalled) -> None:
        """The primaries of the branches end the transactions of members that have gone."""
        if not notice.admitted:
            self.coordinator.removed()
            self.finishing.forget_all()
        elif notice.gone and self.on:
            if self._out.does(PRIMARY_LOCKS):
                self.coordinator.commits.primaries_gone(notice.gone)
            self._look_at_orphans()

    def _look_at_orphans(self) -> None:
        self._looks_soon = self.orphans.look()
        if self._looks_soon:
            self.steps.wake(LOOK_AGAIN_NS)

    def on_served(self, partition: int) -> None:
        """Look at the partition's transactions: their coordinator may have gone."""
        copy = self._leading[partition]
        if copy is not None and (copy.locks.held or TRANSACTIONS_MAP in copy.maps):
            self._looks_soon = True
            self.steps.wake(LOOK_AGAIN_NS)

    def on_owners_asked(self, sender: MemberId, message: OwnersAsked) -> None:
        self.orphans.on_asked(sender, message)

    def on_owners_gone(self, sender: MemberId, message: OwnersGone) -> None:
        self.orphans.on_gone(sender, message)
        self._looks_soon = True
        self.steps.wake(LOOK_AGAIN_NS)

    def on_awaited(self, sender: MemberId, message: LocksAwaited) -> None:
        self.deadlocks.on_awaited(sender, message)

    def on_deadlock(self, sender: MemberId, message: DeadlockFound) -> None:
        self.deadlocks.on_found(sender, message)

    @property
    def counts(self) -> TransactionCounts:
        running = self.coordinator.running
        return TransactionCounts(running.count, running.oldest_ms, self.orphans.count)

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "transactions": self.coordinator.running.count,
            "transactions that are being ended": self.finishing.running,
            "steps of transactions": self.steps.waiting,
        }
