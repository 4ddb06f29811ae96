"""Transactions for clients of Holdfast's own protocol: checks their steps, and keeps which ones a connection began."""

from __future__ import annotations

from holdfast.core.model.operations import request_problem
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    OperateIn,
    RollBackTransaction,
    StoreTogether,
    TransactionAnswer,
    TransactionFate,
    TransactionOrder,
)
from holdfast.server.open_transactions import OpenTransactions
from holdfast.server.question_checks import map_problem
from holdfast.server.reply_channel import ReplyChannel
from holdfast.wire import own


class TransactionQuestions:
    """Answers `OrderTransaction` for one connection."""

    __slots__ = ("_grid", "_replies", "begun")

    def __init__(self, replies: ReplyChannel) -> None:
        self._replies = replies
        self._grid = replies.grid
        self.begun = OpenTransactions(replies.grid)
        """Transactions of this connection that have not ended."""

    def close(self) -> None:
        """No other connection can end its transactions."""
        self.begun.roll_back_all()

    def answer(self, question: own.OrderTransaction) -> None:
        replies, begun, order = self._replies, self.begun, question.order
        if problem := self._problem(order):
            replies.fault(question.id, own.FaultKind.MALFORMED, problem)
            return
        if isinstance(order, BeginTransaction) and (why := begun.rejection()):
            rejection = TransactionAnswer(TransactionFate.NOT_DONE, why=why)
            replies.send(own.TransactionSays(question.id, rejection))
            return
        if not replies.may_wait(question.id):
            return
        replies.handed_over = True
        if isinstance(order, BeginTransaction):
            begun.expect()

        def done(answer: TransactionAnswer) -> None:
            replies.answered()
            if isinstance(order, BeginTransaction) and isinstance(answer.value, bytes):
                begun.began(answer.value)
            elif isinstance(order, BeginTransaction):
                begun.refused()
            elif isinstance(order, CommitTransaction | RollBackTransaction):
                begun.ended(order.transaction)
            replies.send(own.TransactionSays(question.id, answer))

        self._grid.order_transaction(order, replies.on_done("OrderTransaction", question.id, done))

    def _problem(self, order: TransactionOrder) -> str | None:
        if isinstance(order, OperateIn):
            request = order.request
            return map_problem(request.map) or request_problem(request, self._grid.partition_count)
        if isinstance(order, StoreTogether):
            return map_problem(order.map) or order.problem()
        return None
