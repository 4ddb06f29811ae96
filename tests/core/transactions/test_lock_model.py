"""Every state of two transactions whose locks may end with a primary; each rule that is left out is found."""

from __future__ import annotations

from itertools import product

import pytest
from tests.core.transactions.lock_model import ALL, Model, Shape, visited

ORDERS = ((0, 1), (1, 0))
WRITES = ((0,), (1,), (0, 1))
SHAPES = [Shape(locks, writes) for locks, writes in product(ORDERS, WRITES)]


def broken(rules: frozenset[str], deaths: int) -> list[tuple[Shape, Shape]]:
    """The pairs of transactions that end as no order explains."""
    pairs = product(SHAPES, SHAPES)
    return [pair for pair in pairs if visited(Model(pair, rules, deaths))[1] is not None]


@pytest.mark.rule("store/K-1")
@pytest.mark.rule("operations/T-5")
@pytest.mark.rule("transactions/C-7")
def test_some_order_explains_every_end() -> None:
    assert broken(ALL, 2) == []
    assert sum(visited(Model(pair, ALL, 2))[0] for pair in product(SHAPES, SHAPES)) > 10_000


@pytest.mark.parametrize("rule", sorted(ALL))
def test_without_a_rule_something_is_lost(rule: str) -> None:
    assert broken(ALL - {rule}, 2)
    assert not broken(ALL - {rule}, 0), "where no primary dies, none of them is needed"
