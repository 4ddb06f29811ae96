"""Parameters of which only some are tried each time: the others are slow tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

import pytest

Case = tuple[int, ...]
"""The place of the chosen value on each axis."""


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Every so many-th case, beginning with the first, as it is; the others marked as slow.

    A case is one value, or a tuple of them.
    """
    found: list[Any] = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        found.append(case if number % every == 0 else pytest.param(*values, marks=pytest.mark.slow))
    return found


def mark_uncovering(items: Iterable[pytest.Item]) -> None:
    """Mark those cases of tests with `@pytest.mark.covering(together)` as slow that no covering needs."""
    for item in items:
        mark = item.get_closest_marker("covering")
        if mark is not None and not is_needed(item, *mark.args):
            item.add_marker(pytest.mark.slow)


def is_needed(item: pytest.Item, together: int) -> bool:
    """Whether the covering has this case. Each `parametrize` of the test is an axis."""
    assert isinstance(item, pytest.Function)
    sizes, case = [], []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        chosen = [item.callspec.params[name.strip()] for name in names]
        rows = [list(_values(one, len(names))) for one in mark.args[1]]
        sizes.append(len(rows))
        case.append(rows.index(chosen))
    return tuple(case) in covering(tuple(sizes), together)


def _values(row: Any, count: int) -> Sequence[Any]:
    if isinstance(row, type(pytest.param())):
        return row.values
    return row if count > 1 else (row,)


@cache
def covering(sizes: Sequence[int], together: int) -> frozenset[Case]:
    """Some of all cases of axes with so many values: each choice of a value on any `together` axes occurs. With one,
    each value occurs; with two, each pair of values of two axes.
    """
    axes = list(combinations(range(len(sizes)), together))
    left = {(chosen, values) for chosen in axes for values in product(*(range(sizes[one]) for one in chosen))}
    cases = list(product(*map(range, sizes)))
    found: set[Case] = set()
    while left:
        case = max(cases, key=lambda one: len(_shown(one, axes) & left))
        found.add(case)
        left -= _shown(case, axes)
    return frozenset(found)


def _shown(case: Case, axes: Sequence[tuple[int, ...]]) -> set[tuple[tuple[int, ...], Case]]:
    return {(chosen, tuple(case[one] for one in chosen)) for chosen in axes}
