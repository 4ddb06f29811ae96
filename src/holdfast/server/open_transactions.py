"""The transactions that one connection has begun: how many it may have open, and which end with it."""

from __future__ import annotations

from holdfast.core.model.transaction_orders import RollBackTransaction, TransactionAnswer
from holdfast.core.model.transactions import TransactionId
from holdfast.server.grid import Grid

ENDED = "the client's connection has ended"


class OpenTransactions:
    """What one connection has begun, and has not ended itself.

    The member ends transactions, too, when their time is over, and tells no session. So what is kept here is compared
    with what still runs when there is no place left.
    """

    __slots__ = ("_begun", "_expected", "_gone", "_grid")

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._begun: set[TransactionId] = set()
        self._expected = 0
        """How many the member was asked to begin, and has not answered."""
        self._gone = False

    def __contains__(self, transaction: object) -> bool:
        return transaction in self._begun

    def __len__(self) -> int:
        return len(self._begun)

    def rejection(self) -> str:
        """Why this connection may not begin another one now, and what to do; empty: it may."""
        most = self._grid.transactions_per_connection
        if len(self._begun) + self._expected >= most:
            self._begun = {one for one in self._begun if self._grid.runs_transaction(one)}
        if len(self._begun) + self._expected < most:
            return ""
        return (
            f"this connection has {most} transactions open (transactions.per_connection); commit or roll back some "
            "of them first"
        )

    def expect(self) -> None:
        """The member is asked to begin one; it answers by `began` or `refused`, perhaps already."""
        self._expected += 1

    def began(self, transaction: TransactionId) -> None:
        """The member has begun it."""
        self._expected -= 1
        self._begun.add(transaction)
        if self._gone:
            self.roll_back_all()

    def refused(self) -> None:
        """The member has not begun one."""
        self._expected -= 1

    def ended(self, transaction: TransactionId) -> None:
        """It is over, or its outcome is not this connection's affair any more."""
        self._begun.discard(transaction)

    def roll_back_all(self) -> None:
        """The connection has gone, and nothing else can go on with what it has begun."""
        self._gone = True
        begun, self._begun = self._begun, set()
        for transaction in sorted(begun):
            self._grid.order_transaction(RollBackTransaction(transaction, ENDED), _ignore)


def _ignore(_: TransactionAnswer) -> None:
    """No session is left to be told."""
