"""Parameters of which only some are tried each time: the others are slow tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Every so many-th case, beginning with the first, as it is; the others marked as slow.

    A case is one value, or a tuple of them.
    """
    found: list[Any] = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        found.append(case if number % every == 0 else pytest.param(*values, marks=pytest.mark.slow))
    return found
