"""Transactions of the in-process API.

async with member.transaction() as transaction:
    accounts = transaction.map("accounts")
    balance = await accounts.get_for_update("ann")
    await accounts.set("ann", balance - 10)
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Literal, Self

from holdfast.core.model.operations import DEFAULT_TTL, Op, Request, Value
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    OperateIn,
    RollBackTransaction,
    TransactionAnswer,
    TransactionFate,
    TransactionOrder,
)
from holdfast.errors import Refused, RolledBack, Unknown
from holdfast.runtime.in_process.embedded_maps import given
from holdfast.runtime.node import Node
from holdfast.serialization import Serializers

Isolation = Literal["read-committed", "repeatable-read", "serializable"]


class MemberTransaction:
    """One transaction. Leaving the `async with` block commits it; an error in the block rolls it back.

    The commit raises RolledBack if nothing was applied, and Unknown if the outcome is not known: all of it has been or
    will be applied, or nothing.
    """

    def __init__(
        self, node: Node, isolation: Isolation, timeout_s: float, label: str, serializers: Serializers
    ) -> None:
        if isolation not in ("read-committed", "repeatable-read", "serializable"):
            raise ValueError(
                f"isolation is read-committed, repeatable-read or serializable, not {isolation!r}"
            )
        if timeout_s < 0:
            raise ValueError("timeout_s must not be negative (0: transactions.timeout_ms)")
        self._node = node
        self.serializers = serializers
        self._begin = BeginTransaction(
            round(timeout_s * 1000), isolation == "serializable", isolation == "repeatable-read", label
        )
        self._id = b""

    @property
    def id(self) -> str:
        """The id shown by `holdfast transactions list`; empty before the begin."""
        return self._id.hex()

    async def __aenter__(self) -> Self:
        if self._id:
            raise Refused("a transaction begins once; make another one")
        answer = await self._order(self._begin)
        assert isinstance(answer, bytes), "a transaction has an id"
        self._id = answer
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._order(CommitTransaction(self._id))
        else:
            # Ignore the result: the caller must get the error of the block.
            await _ask(self._node, RollBackTransaction(self._id))

    def map(self, name: str) -> TransactionalMap:
        """The map as this transaction sees it: committed values, and its own changes."""
        return TransactionalMap(self, name)

    async def operate(self, request: Request, *, for_update: bool = False) -> Value:
        """Raises RolledBack if the operation fails; the whole transaction is rolled back then."""
        if not self._id:
            raise Refused("the transaction has not begun: use it in `async with`")
        return await self._order(OperateIn(self._id, request, for_update))

    async def _order(self, order: TransactionOrder) -> Value:
        answer = await _ask(self._node, order)
        if answer.fate is TransactionFate.DONE:
            return answer.value
        if answer.fate is TransactionFate.UNKNOWN:
            raise Unknown(answer.why)
        kind = RolledBack if answer.fate is TransactionFate.ROLLED_BACK else Refused
        raise kind(answer.why)


async def _ask(node: Node, order: TransactionOrder) -> TransactionAnswer:
    node.check_here()
    future: asyncio.Future[TransactionAnswer] = node.loop.create_future()

    def done(answer: TransactionAnswer) -> None:
        if not future.done():
            future.set_result(answer)

    node.calls.add(future)
    try:
        node.guard(lambda: node.order_transaction(order, done))
        return await future
    finally:
        node.calls.discard(future)


class TransactionalMap:
    """A map in one transaction, with the keys and values of `holdfast.Map`."""

    def __init__(self, transaction: MemberTransaction, name: str) -> None:
        self._transaction = transaction
        self._dump, self._load = transaction.serializers.dump, transaction.serializers.load
        self.name = name

    async def _on_key(
        self, op: Op, key: object, value: object = None, *, expected: object = None, for_update: bool = False
    ) -> Value:
        stored = self._dump(value) if value is not None else b""
        wanted = self._dump(expected) if expected is not None else b""
        request = Request(op, self.name, [0], self._dump(key), stored, wanted, [], DEFAULT_TTL, DEFAULT_TTL)
        return await self._transaction.operate(request, for_update=for_update)

    def _plain(self, value: Value) -> Any:
        return self._load(value) if isinstance(value, bytes) else None

    async def get(self, key: object) -> Any:
        return self._plain(await self._on_key(Op.GET, key))

    async def get_for_update(self, key: object) -> Any:
        """The value or None; locks the entry until this transaction ends."""
        return self._plain(await self._on_key(Op.GET, key, for_update=True))

    async def contains_key(self, key: object) -> bool:
        return bool(await self._on_key(Op.CONTAINS_KEY, key))

    async def put(self, key: object, value: object) -> Any:
        """Store and return the old value."""
        return self._plain(await self._on_key(Op.PUT, key, given(value)))

    async def set(self, key: object, value: object) -> None:
        await self._on_key(Op.SET, key, given(value))

    async def put_if_absent(self, key: object, value: object) -> Any:
        """Store if the key is absent; returns the present value, or None."""
        return self._plain(await self._on_key(Op.PUT_IF_ABSENT, key, given(value)))

    async def replace(self, key: object, value: object) -> Any:
        """Store if the key is present; returns the old value, or None."""
        return self._plain(await self._on_key(Op.REPLACE, key, given(value)))

    async def replace_if_same(self, key: object, expected: object, value: object) -> bool:
        """Store if the present value equals `expected`; returns whether it did."""
        return bool(await self._on_key(Op.REPLACE_IF_SAME, key, given(value), expected=given(expected)))

    async def remove(self, key: object) -> Any:
        """Remove; returns the old value, or None."""
        return self._plain(await self._on_key(Op.REMOVE, key))

    async def delete(self, key: object) -> bool:
        """Remove; returns whether the key was present."""
        return bool(await self._on_key(Op.DELETE, key))

    async def size(self) -> int:
        """Includes own changes; no snapshot of others'."""
        answer = await self._transaction.operate(Request(Op.SIZE, self.name, [0]))
        return answer if isinstance(answer, int) else 0

    async def keys(self) -> list[Any]:
        """No snapshot."""
        answer = await self._transaction.operate(Request(Op.KEYS, self.name, [0]))
        return [self._plain(one) for one in answer] if isinstance(answer, list) else []

    async def values(self) -> list[Any]:
        answer = await self._transaction.operate(Request(Op.VALUES, self.name, [0]))
        return [self._plain(one) for one in answer] if isinstance(answer, list) else []
