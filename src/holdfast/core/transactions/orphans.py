"""Orphans: locks and branches whose coordinator has gone (I3; 004 "Crash recovery").

A coordinator may have left the cluster, or have been removed and have come back without its transactions. Then the
branches decide (`finishing`), and locks without a branch are released. The same happens on a primary that came back
from its files with locks of members that are gone.

- transactions/R-1: Only the coordinator can say whether a transaction is running, as long as it is a member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import OwnersAsked, OwnersGone
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.transactions import BranchPlace, BranchState, TransactionBranch, TransactionId
from holdfast.core.operations.transaction_branches import TransactionBranches
from holdfast.core.outbox import Outbox
from holdfast.core.store.key_locks import KeyLocks
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.transactions.branch_routing import BranchRouting
from holdfast.core.transactions.finishing import Finishing
from holdfast.core.transactions.running_transactions import RunningTransactions

LOOK_NS = 1000 * MILLISECOND
ASK_NS = 3000 * MILLISECOND
"""From this age on a transaction's coordinator is asked about it."""
ASKED_MAX = 10_000
BEGUN_MOST = 32
"""In one look, so that requests in between do not wait for long."""


class SeenTransaction:
    __slots__ = ("branch", "holds", "owner", "partitions", "since_ns")

    def __init__(self, owner: MemberId, since_ns: int) -> None:
        self.owner = owner
        self.since_ns = since_ns
        self.branch: TransactionBranch | None = None
        self.holds = False
        """It blocks an entry. A decided branch does not: it stays for a while to answer other branches."""
        self.partitions: set[BranchPlace] = set()


class Orphans:
    def __init__(
        self,
        me: MemberId,
        out: Outbox,
        membership: MembershipStatus,
        leading: Sequence[PartitionCopy | None],
        running: RunningTransactions,
        finishing: Finishing,
        routing: BranchRouting,
    ) -> None:
        self._me = me
        self._out = out
        self._membership = membership
        self._leading = leading
        self._running = running
        self._finishing = finishing
        self._routing = routing
        self._seen: dict[TransactionId, SeenTransaction] = {}
        self._gone: set[TransactionId] = set()

    @property
    def count(self) -> int:
        """Transactions that block entries here and have no coordinator."""
        return sum(seen.holds and not self._membership.is_member(seen.owner) for seen in self._seen.values())

    def look(self) -> bool:
        """Called periodically and when members have gone. Returns whether there is more to do."""
        seen = self._look_at_partitions()
        self._seen = seen
        self._gone &= seen.keys()
        asked: dict[MemberId, list[TransactionId]] = {}
        begun = 0
        for transaction, one in seen.items():
            if self._finishing.keeps(transaction) or self._running.runs(transaction):
                continue
            old = self._out.now_ns - one.since_ns >= ASK_NS
            gone = old if one.owner == self._me else not self._membership.is_member(one.owner)
            if gone or transaction in self._gone:
                begun += 1
                if begun <= BEGUN_MOST:
                    self._recover(transaction, one)
            elif old and len(asked.get(one.owner, [])) < ASKED_MAX:
                asked.setdefault(one.owner, []).append(transaction)
        for owner, transactions in asked.items():
            self._out.send(owner, OwnersAsked(transactions))
        return begun > BEGUN_MOST

    def _look_at_partitions(self) -> dict[TransactionId, SeenTransaction]:
        seen: dict[TransactionId, SeenTransaction] = {}
        now_ns = self._out.now_ns

        def found(transaction: TransactionId, owner: MemberId, place: BranchPlace) -> SeenTransaction:
            one = seen.get(transaction)
            if one is None:
                before = self._seen.get(transaction)
                one = seen[transaction] = SeenTransaction(
                    owner, before.since_ns if before is not None else now_ns
                )
            one.partitions.add(place)
            return one

        for place, copy, locks in self._led():
            branches = TransactionBranches(copy, now_ns, locks=locks)
            for lock in branches.lock_owners():
                found(lock.transaction, lock.owner, place).holds = True
            for transaction, branch in branches.all_branches():
                one = found(transaction, branch.owner, place)
                one.holds |= branch.state is BranchState.PREPARED
                if one.branch is None or branch.state is not BranchState.PREPARED:
                    one.branch = branch
        return seen

    def _led(self) -> Iterator[tuple[BranchPlace, PartitionCopy, KeyLocks]]:
        """The partitions led here that may have something of transactions."""
        for copy in self._leading:
            if copy is not None:
                yield copy.partition, copy, copy.locks
        yield from self._routing.led_in_zones()

    def _recover(self, transaction: TransactionId, seen: SeenTransaction) -> None:
        branch = seen.branch
        if branch is None:
            # It was never prepared here; another branch that asks gets that answer.
            self._finishing.release(transaction, seen.owner, sorted(seen.partitions))
        elif branch.state is BranchState.PREPARED:
            self._finishing.ask(transaction, seen.owner, branch.participants)
        elif branch.state is BranchState.COMMITTED:
            doubted = frozenset(branch.participants)
            locked = frozenset(seen.partitions) - doubted
            self._finishing.commit(transaction, seen.owner, branch.participants, doubted, locked)
        else:
            # A branch prepared elsewhere will ask. Forget it here when no step can be on its way any more.
            here = sorted(seen.partitions)
            self._finishing.roll_back(transaction, seen.owner, here, frozenset(here))

    # -- answers of coordinators

    def on_asked(self, sender: MemberId, message: OwnersAsked) -> None:
        """Another member keeps something of transactions of this one."""
        gone = [
            one
            for one in message.transactions
            if not self._running.runs(one) and not self._finishing.keeps(one)
        ]
        if gone:
            self._out.send(sender, OwnersGone(gone))

    def on_gone(self, sender: MemberId, message: OwnersGone) -> None:
        """See transactions/R-1."""
        for transaction in message.transactions:
            seen = self._seen.get(transaction)
            if seen is not None and seen.owner == sender:
                self._gone.add(transaction)
