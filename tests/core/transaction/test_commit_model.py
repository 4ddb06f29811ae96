"""Every state of the model of commit and recovery; and each rule, left out, does harm in one of them."""

from __future__ import annotations

import pytest
from tests.core.transaction.commit_model import ALL, search

SIZES = [(0, 1), (1, 1), (2, 1), (0, 2)]
"""Crashes, and transactions."""
LARGE = pytest.param(1, 2, marks=[pytest.mark.slow, pytest.mark.timeout(900)])


@pytest.mark.parametrize(("crashes", "transactions"), [*SIZES, LARGE])
def test_with_all_rules_nothing_is_wrong_in_any_state(crashes: int, transactions: int) -> None:
    found = search(crashes, transactions)
    print(f"{crashes} crashes, {transactions} transactions: {found.states} states")
    assert found.wrong == "", "\n".join(found.path)


@pytest.mark.parametrize("rule", sorted(ALL))
def test_without_a_rule_something_is(rule: str) -> None:
    for crashes, transactions in SIZES:
        found = search(crashes, transactions, frozenset({rule}))
        if found.wrong:
            break
    print(found.wrong, *found.path, sep="\n  ")
    assert found.wrong
