"""Transactions through Holdfast's own protocol: for programs that are no member, and for operators.

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
from holdfast.errors import NotReady, Refused, RolledBack, Unknown
from holdfast.wire import own
from holdfast.wire.values import from_stored, to_stored

CONNECT_S = 5.0
ANSWER_S = 90.0
"""Longer than a member lets anything wait."""


def order_transaction(
    address: Address, credentials: Credentials, order: TransactionOrder
) -> TransactionAnswer:
    """What one member answers to an order. Raises NotReady when it cannot be asked."""
    try:
        connection = Connection(address, credentials, CONNECT_S)
    except Broken as broken:
        raise NotReady(str(broken)) from broken
    try:
        return _asked(connection, order)
    except Broken as broken:
        raise NotReady(str(broken)) from broken
    finally:
        connection.close()


def _asked(connection: Connection, order: TransactionOrder) -> TransactionAnswer:
    """Raises Broken."""
    number = connection.next_number()
    connection.post(own.OrderTransaction(number, order))
    if not connection.wait(number, ANSWER_S):
        raise Broken(f"{connection.address} has not answered for {ANSWER_S:g} s")
    return connection.collect(number, own.TransactionSays).answer


class ClientTransaction:
    """One transaction, run by the first member that can be reached. Leaving the `with` block commits it; an error in
    the block rolls it back. Keys and values are plain Python data.

    Raises RolledBack when nothing of it was done, Unknown when nobody can say yet: then all of it has been done, or
    will be, or nothing. Not for several threads.
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
        """`optimistic`: nothing is locked, and the transaction is rolled back if what it has read has changed when it
        ends; else reads are locked, too. `timeout_s`: it is rolled back after so long; 0: `transactions.timeout_ms`.
        """
        self._addresses = addresses
        self._credentials = credentials or Credentials()
        self._begin = BeginTransaction(round(timeout_s * 1000), optimistic, not optimistic, label)
        self._connection: Connection | None = None
        self._id = b""

    @property
    def id(self) -> str:
        """As `holdfast transactions list` and change streams show it; empty before it has begun."""
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
        raise NotReady("no member answers: " + "; ".join(failures))

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
                # What has not been committed is rolled back with that.
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
        """The value in the map of this name, or None."""
        return self._on_key(Op.GET, name, key)

    def get_for_update(self, name: str, key: object) -> object:
        """The same, and lock the entry, so that nobody changes it until this transaction is over."""
        return self._on_key(Op.GET, name, key, for_update=True)

    def put(self, name: str, key: object, value: object) -> object:
        """Store, and answer the old value."""
        return self._on_key(Op.PUT, name, key, value)

    def set(self, name: str, key: object, value: object) -> None:
        """Store."""
        self._on_key(Op.SET, name, key, value)

    def remove(self, name: str, key: object) -> object:
        """Take out; answers the old value, or None."""
        return self._on_key(Op.REMOVE, name, key)
