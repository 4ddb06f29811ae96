"""Every state of the model of commit and recovery; and each rule, left out, does harm in one of them."""

from __future__ import annotations

import pytest
from tests.core.transactions.commit_model import ALL, search

SIZES = [(0, 1, 0), (1, 1, 0), (2, 1, 0), (0, 1, 1), (1, 1, 1), (2, 1, 1), (0, 2, 0)]
"""Crashes, transactions, and coordinators that are removed while they live."""
LARGE = [pytest.param(*size, marks=pytest.mark.slow) for size in [(1, 2, 0), (2, 2, 0), (0, 2, 1)]]


@pytest.mark.parametrize(("crashes", "transactions", "removals"), [*SIZES, *LARGE])
def test_with_all_rules_nothing_is_wrong_in_any_state(crashes: int, transactions: int, removals: int) -> None:
    found = search(crashes, transactions, removals)
    print(f"{crashes} crashes, {transactions} transactions, {removals} removals: {found.states} states")
    assert found.wrong == "", "\n".join(found.path)


@pytest.mark.parametrize("rule", sorted(ALL))
def test_without_a_rule_something_is(rule: str) -> None:
    for crashes, transactions, removals in SIZES:
        found = search(crashes, transactions, removals, frozenset({rule}))
        if found.wrong:
            break
    print(found.wrong, *found.path, sep="\n  ")
    assert found.wrong
