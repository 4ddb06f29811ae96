"""One connection has only so many transactions open, in both protocols, and all of them end with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hazelcast.protocol.codec import transaction_commit_codec, transaction_create_codec
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.wire import AnsweredError, Wire

from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    RollBackTransaction,
    TransactionAnswer,
    TransactionFate,
    TransactionOrder,
)
from holdfast.server.open_transactions import OpenTransactions

MOST = 3
DONE = TransactionFate.DONE


class TransactionGrid(OneMemberGrid):
    """A member that begins transactions, at once or when it is told to."""

    transactions_per_connection = MOST

    def __init__(self) -> None:
        super().__init__()
        self.running: set[bytes] = set()
        self.begun = 0
        self.late = False
        self.waiting: list[Callable[[], None]] = []

    def runs_transaction(self, transaction: bytes) -> bool:
        return transaction in self.running

    def order_transaction(self, order: TransactionOrder, done: Callable[[Any], None]) -> None:
        if isinstance(order, BeginTransaction):
            if self.late:
                self.waiting.append(lambda: self._begin(done))
            else:
                self._begin(done)
        else:
            assert isinstance(order, CommitTransaction | RollBackTransaction)
            self.running.discard(order.transaction)
            done(TransactionAnswer(DONE))

    def _begin(self, done: Callable[[Any], None]) -> None:
        self.begun += 1
        transaction = self.begun.to_bytes(16, "big")
        self.running.add(transaction)
        done(TransactionAnswer(DONE, transaction))


@pytest.fixture
def grid() -> TransactionGrid:
    return TransactionGrid()


def logged_in(grid: TransactionGrid) -> Wire:
    wire = Wire(grid)
    wire.login()
    return wire


def create(wire: Wire) -> Any:
    return wire.ask(transaction_create_codec, 600_000, 1, 2, 1)


def test_a_connection_is_refused_more_than_it_may_have_and_told_what_to_do(grid: TransactionGrid) -> None:
    wire, other = logged_in(grid), logged_in(grid)
    ids = [create(wire) for _ in range(MOST)]
    with pytest.raises(AnsweredError, match=r"has 3 transactions open .*per_connection.*commit or roll back"):
        create(wire)
    create(other)
    assert len(grid.running) == MOST + 1
    wire.ask(transaction_commit_codec, ids[0], 1)
    create(wire)


def test_transactions_whose_time_is_over_give_their_places_back(grid: TransactionGrid) -> None:
    wire = logged_in(grid)
    for _ in range(20):
        for _ in range(MOST):
            create(wire)
        grid.running.clear()
    assert len(wire.session._talk.transactions) <= MOST, "none are kept that are over"


def test_those_of_a_connection_end_with_it(grid: TransactionGrid) -> None:
    wire = logged_in(grid)
    for _ in range(MOST):
        create(wire)
    wire.session.closed()
    assert not grid.running


def test_one_that_begins_when_its_connection_has_gone_ends_at_once(grid: TransactionGrid) -> None:
    wire = logged_in(grid)
    grid.late = True
    wire.tell(transaction_create_codec.encode_request(600_000, 1, 2, 1))
    wire.session.closed()
    for begin in grid.waiting:
        begin()
    assert grid.begun == 1
    assert not grid.running


def test_what_the_member_has_not_answered_counts(grid: TransactionGrid) -> None:
    begun = OpenTransactions(grid)
    for _ in range(MOST):
        assert not begun.rejection()
        begun.expect()
    assert begun.rejection()
    begun.refused()
    assert not begun.rejection()
