"""Transactions over Holdfast's own protocol, for programs that are not members, and for operators.

with ClientTransaction(parse_addresses("127.0.0.1:5701")) as transaction:
    balance = transaction.get_for_update("accounts", "ann")
    transaction.set("accounts", "ann", balance - 10)
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from holdfast.client.connection import Broken, Connection, Credentials
from holdfast.core.model.ids import Address
from holdfast.core.model.operations import Op, Request, Value
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    OperateIn,
    RollBackTransaction,
    TransactionAnswer,
    TransactionFate,
    TransactionOrder,
)
from holdfast.errors import Refused, RolledBack, Unknown, Unreachable
from holdfast.wire import own
from holdfast.wire.values import from_stored, to_stored

CONNECT_S = 5.0
ANSWER_S = 90.0
"""Longer than any wait of a member."""


def _asked(connection: Connection, order: TransactionOrder) -> TransactionAnswer:
    number = connection.next_number()
    connection.post(own.OrderTransaction(number, order))
    if not connection.wait(number, ANSWER_S):
        raise Broken(f"{connection.address} has not answered for {ANSWER_S:g} s")
    return connection.collect(number, own.TransactionSays).answer


class ClientTransaction:
    """One transaction, run by the first member that can be reached. Leaving the `with` block commits it; an
    error in the block rolls it back. Keys and values are plain Python data. Not for several threads.

    Raises RolledBack if nothing of it was applied, Unknown if the outcome is not known: all or nothing of it
    was applied, or will be.
    """

    def __init__(
        self,
        addresses: list[Address],
        credentials: Credentials | None = None,
        *,
        optimistic: bool = False,
        timeout_s: float = 0.0,
        label: str = "",
    ) -> None:
        """`optimistic`: lock nothing, and roll back at the end if an entry that was read has changed; otherwise
        reads lock. `timeout_s`: roll back after so long; 0: `transactions.timeout_ms`.
        """
        self._addresses = addresses
        self._credentials = credentials or Credentials()
        self._begin = BeginTransaction(round(timeout_s * 1000), optimistic, not optimistic, label)
        self._connection: Connection | None = None
        self._id = b""

    @property
    def id(self) -> str:
        """The id that `holdfast transactions list` and change streams show; empty before the transaction begins."""
        return self._id.hex()

    def __enter__(self) -> Self:
        failures = []
        for address in self._addresses:
            try:
                self._connection = Connection(address, self._credentials, CONNECT_S)
                answer = self._order(self._begin)
            except (Broken, Unknown) as failed:
                failures.append(str(failed))
                continue
            assert isinstance(answer, bytes), "a transaction has an id"
            self._id = answer
            return self
        raise Unreachable("no member answers: " + "; ".join(failures))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._order(CommitTransaction(self._id))
            elif not isinstance(error, Unknown):
                self._order(RollBackTransaction(self._id))
        except (Refused, Unknown):
            if error is None:
                raise
        finally:
            if self._connection is not None:
                # This also rolls back a transaction that was not committed.
                self._connection.close()

    def _order(self, order: TransactionOrder) -> Value:
        if self._connection is None:
            raise Refused("the transaction has not begun: use it in `with`")
        try:
            answer = _asked(self._connection, order)
        except Broken as broken:
            if isinstance(order, CommitTransaction):
                raise Unknown(f"{broken}: the transaction was done whole, or not at all") from broken
            raise RolledBack(str(broken)) from broken
        if answer.fate is TransactionFate.DONE:
            return answer.value
        if answer.fate is TransactionFate.UNKNOWN:
            raise Unknown(answer.why)
        raise (RolledBack if answer.fate is TransactionFate.ROLLED_BACK else Refused)(answer.why)

    def _on_key(
        self, op: Op, name: str, key: object, value: object = None, *, for_update: bool = False
    ) -> object:
        stored = to_stored(value) if value is not None else b""
        request = Request(op, name, [0], to_stored(key), stored)
        answer = self._order(OperateIn(self._id, request, for_update))
        return from_stored(answer) if isinstance(answer, bytes) else answer

    def get(self, name: str, key: object) -> object:
        return self._on_key(Op.GET, name, key)

    def get_for_update(self, name: str, key: object) -> object:
        """`get`, and lock the entry against changes until the transaction ends."""
        return self._on_key(Op.GET, name, key, for_update=True)

    def put(self, name: str, key: object, value: object) -> object:
        return self._on_key(Op.PUT, name, key, value)

    def set(self, name: str, key: object, value: object) -> None:
        self._on_key(Op.SET, name, key, value)

    def remove(self, name: str, key: object) -> object:
        return self._on_key(Op.REMOVE, name, key)
