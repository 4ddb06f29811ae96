"""Transactions of Hazelcast clients: begin, commit, rollback, and map operations.

All requests of a transaction use one connection, and the member at its other end is the coordinator. When the
connection ends, a transaction that has not begun to commit is rolled back. The client's transaction type (one-phase or
two-phase) and durability (backups of the transaction log) are ignored: a second phase is used when needed, and the
backups of the maps hold everything.

Writes, and reads for update, lock entries immediately. Plain reads lock nothing and see committed values.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.operations import Op, Request
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    OperateIn,
    RollBackTransaction,
    TransactionAnswer,
    TransactionFate,
)
from holdfast.core.model.transactions import TRANSACTION_ID_BYTES, TransactionId
from holdfast.server.hazelcast.conversation import Conversation, Handler, Made, RequestKind
from holdfast.server.hazelcast.maps import (
    Answering,
    guarded,
    many,
    nothing,
    number,
    reject_other_predicates,
    truth,
    value_or_null,
)
from holdfast.wire.hazelcast.hazelcast_frames import UUID, message, response
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import (
    BAD_ARGUMENT,
    INDETERMINATE,
    TRANSACTION,
    TRANSACTION_NOT_ACTIVE,
    CallRefused,
    ErrorCode,
)

_HALF = TRANSACTION_ID_BYTES // 2
BEGIN = 0x150200


def _as_uuid(transaction: TransactionId) -> bytes:
    most, least = (int.from_bytes(half, "big") for half in (transaction[:_HALF], transaction[_HALF:]))
    return UUID.pack(False, most, least)


def transaction_of(talk: Conversation, call: Call) -> TransactionId:
    """The transaction of a request. A user with limited rights can only use transactions of the same connection."""
    is_null, most, least = UUID.unpack(call.transaction)
    if is_null:
        raise CallRefused(BAD_ARGUMENT, "the id of a transaction is null")
    transaction = bytes(most.to_bytes(_HALF, "big") + least.to_bytes(_HALF, "big"))
    if not talk.rights.everything and transaction not in talk.transactions:
        raise CallRefused(TRANSACTION_NOT_ACTIVE, "the transaction is not active on this connection")
    return transaction


_CODES: dict[TransactionFate, tuple[ErrorCode, str]] = {
    TransactionFate.NOT_DONE: (TRANSACTION, "this was not done"),
    TransactionFate.ROLLED_BACK: (TRANSACTION, "the transaction was rolled back"),
    TransactionFate.UNKNOWN: (INDETERMINATE, "the outcome of the transaction is unknown"),
    TransactionFate.NOT_ACTIVE: (TRANSACTION_NOT_ACTIVE, "the transaction is not active"),
}


def check_done(told: TransactionAnswer) -> None:
    if told.fate is not TransactionFate.DONE:
        code, what = _CODES[told.fate]
        raise CallRefused(code, f"{what}: {told.why}" if told.why else what)


def _begin(talk: Conversation, call: Call) -> None:
    if why := talk.transactions.rejection():
        raise CallRefused(TRANSACTION, why)

    def heard(told: TransactionAnswer) -> None:
        if isinstance(told.value, bytes):
            talk.transactions.began(told.value)
        else:
            talk.transactions.refused()

    def begun(told: TransactionAnswer) -> bytes:
        check_done(told)
        assert isinstance(told.value, bytes), "a transaction has an id"
        return message([response(call.kind + 1, call.correlation, _as_uuid(told.value))])

    timeout_ms = max(0, call.timeout_ms)
    talk.transact(call, BeginTransaction(timeout_ms, label="Hazelcast client"), begun, heard)
    talk.transactions.expect()


def _end(order: Callable[[TransactionId], CommitTransaction | RollBackTransaction]) -> Handler:
    def handle(talk: Conversation, call: Call) -> None:
        transaction = transaction_of(talk, call)

        def ended(told: TransactionAnswer) -> bytes:
            if told.fate is not TransactionFate.NOT_DONE:
                talk.transactions.ended(transaction)
            check_done(told)
            return nothing(call, None)

        talk.transact(call, order(transaction), ended)

    return handle


def _in_map(op: Op, answer: Answering, *, for_update: bool = False) -> Handler:

    def handle(talk: Conversation, call: Call) -> None:
        if call.predicate:
            reject_other_predicates(call)
        request = Request(
            op,
            call.name,
            [0],  # Not used: the coordinator computes the partitions.
            key=call.key,
            value=call.value,
            expected=call.expected,
            ttl_ms=call.ttl_ms,
            key_hash=call.key_hash,
        )

        def made(told: TransactionAnswer) -> Made:
            check_done(told)
            return answer(call, told.value)

        talk.transact(call, OperateIn(transaction_of(talk, call), request, for_update), made)

    return handle


# Message type; fixed-size parameters | variable-size parameters (`wire/hazelcast/layouts.py`); handler.
_ROWS: list[tuple[int, str, Handler]] = [
    (0x0E0100, "transaction thread | name key", _in_map(Op.CONTAINS_KEY, truth)),
    (0x0E0200, "transaction thread | name key", _in_map(Op.GET, value_or_null)),
    (0x0E0300, "transaction thread | name key", _in_map(Op.GET, value_or_null, for_update=True)),
    (0x0E0400, "transaction thread | name", _in_map(Op.SIZE, number)),
    (0x0E0500, "transaction thread | name", _in_map(Op.IS_EMPTY, truth)),
    (0x0E0600, "transaction thread ttl_ms | name key value", _in_map(Op.PUT, value_or_null)),
    (0x0E0700, "transaction thread | name key value", _in_map(Op.SET, nothing)),
    (0x0E0800, "transaction thread | name key value", _in_map(Op.PUT_IF_ABSENT, value_or_null)),
    (0x0E0900, "transaction thread | name key value", _in_map(Op.REPLACE, value_or_null)),
    (0x0E0A00, "transaction thread | name key expected value", _in_map(Op.REPLACE_IF_SAME, truth)),
    (0x0E0B00, "transaction thread | name key", _in_map(Op.REMOVE, value_or_null)),
    (0x0E0C00, "transaction thread | name key", _in_map(Op.DELETE, nothing)),
    (0x0E0D00, "transaction thread | name key expected", _in_map(Op.REMOVE_IF_SAME, truth)),
    (0x0E0E00, "transaction thread | name", _in_map(Op.KEYS, many)),
    (0x0E0F00, "transaction thread | name predicate", _in_map(Op.KEYS, many)),
    (0x0E1000, "transaction thread | name", _in_map(Op.VALUES, many)),
    (0x0E1100, "transaction thread | name predicate", _in_map(Op.VALUES, many)),
    (0x0E1200, "transaction thread | name value", _in_map(Op.CONTAINS_VALUE, truth)),
]

MESSAGES = {
    0x150100: RequestKind(RequestLayout("transaction thread |"), _end(CommitTransaction)),
    BEGIN: RequestKind(RequestLayout("timeout_ms durability transaction_type thread |"), _begin),
    0x150300: RequestKind(RequestLayout("transaction thread |"), _end(RollBackTransaction)),
    **{kind: RequestKind(RequestLayout(layout), guarded(handler)) for kind, layout, handler in _ROWS},
}
