"""Transactions of one connection: limits their number, and rolls them back when the connection ends."""

from __future__ import annotations

from holdfast.core.model.transaction_orders import RollBackTransaction, TransactionAnswer
from holdfast.core.model.transactions import TransactionId
from holdfast.server.grid import Grid

ENDED = "the client's connection has ended"


class OpenTransactions:
    """Transactions begun by one connection and not ended by it.

    The member also ends transactions that time out, without notice. So when the limit is reached, this list is compared
    with those that still run.
    """

    __slots__ = ("_begun", "_expected", "_gone", "_grid")

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._begun: set[TransactionId] = set()
        self._expected = 0
        """Requested begins without result."""
        self._gone = False

    def __contains__(self, transaction: object) -> bool:
        return transaction in self._begun

    def __len__(self) -> int:
        return len(self._begun)

    def rejection(self) -> str:
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
        self._expected += 1

    def began(self, transaction: TransactionId) -> None:
        self._expected -= 1
        self._begun.add(transaction)
        if self._gone:
            self.roll_back_all()

    def refused(self) -> None:
        self._expected -= 1

    def ended(self, transaction: TransactionId) -> None:
        """The transaction has ended, or its outcome is left to the member."""
        self._begun.discard(transaction)

    def roll_back_all(self) -> None:
        """The connection has ended; no other one may use its transactions."""
        self._gone = True
        begun, self._begun = self._begun, set()
        for transaction in sorted(begun):
            self._grid.order_transaction(RollBackTransaction(transaction, ENDED), _ignore)


def _ignore(_: TransactionAnswer) -> None: ...
