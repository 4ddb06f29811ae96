"""Probability that a partition is lost: the model and its formulas, which docs/spark.md explains.

Members crash independently, after an exponentially distributed time with mean `mtbf_s`; so do groups, with all
their members, if `group_mtbf_s` is given. A partition is lost if all its holders crash within one window: the
time until lost copies are replaced after a crash.

With p = 1 - exp(-window / mtbf), and g the same for groups, the k holders in one group all crash in a window with
probability g + (1 - g) p^k. Holders in different groups are independent; q is the product over groups.

    P(anything is lost in a window)  <=  1 - product over the distinct sets of holders of (1 - q)

This holds because crashes only ever add losses, so the survivals of sets are positively dependent (the Harris
inequality). It is exact if no two sets share a member, and close if q is small.

The losses of a year are the first crashes that are followed, within the window, by those of the other holders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.planning.amounts import YEAR_S

COPIES_MAX = 7

Shape = tuple[int, ...]
"""Spread of a partition's holders over groups: the numbers in each, largest first."""


def _shapes(total: int, most: int) -> list[Shape]:
    if total == 0:
        return [()]
    return [
        (first, *rest) for first in range(min(total, most), 0, -1) for rest in _shapes(total - first, first)
    ]


SHAPES: tuple[Shape, ...] = tuple(shape for total in range(COPIES_MAX + 1) for shape in _shapes(total, total))
SHAPE_BITS = 6
SHAPE_NUMBER: dict[Shape, int] = {shape: number for number, shape in enumerate(SHAPES)}


@dataclass(frozen=True, slots=True)
class Failures:
    mtbf_s: float
    group_mtbf_s: float = math.inf

    def crash(self, window_s: float) -> float:
        """p: probability that a member crashes in the window, by itself."""
        return -math.expm1(-window_s / self.mtbf_s)

    def group_crash(self, window_s: float) -> float:
        return -math.expm1(-window_s / self.group_mtbf_s)


def set_lost(shape: Shape, failures: Failures, window_s: float) -> float:
    """q: probability that all holders of one set crash within the window. An empty set is lost already."""
    p, g = failures.crash(window_s), failures.group_crash(window_s)
    return math.prod(g + (1 - g) * p**count for count in shape)


def any_lost(sets: Mapping[Shape, int], failures: Failures, window_s: float) -> float:
    """Upper bound of the probability that anything is lost in one window; `sets`: number of distinct sets by
    shape.
    """
    logs = 0.0
    for shape, count in sets.items():
        lost = set_lost(shape, failures, window_s)
        if count and lost >= 1:
            return 1.0
        logs += count * math.log1p(-lost)
    return -math.expm1(logs)


def losses_a_year(sets: Mapping[Shape, int], failures: Failures, window_s: float) -> float:
    """Expected number of sets lost in a year: a first crash, then all other holders within the window. Empty
    sets count nothing: they are lost already.
    """
    p, g = failures.crash(window_s), failures.group_crash(window_s)

    def group_dead(count: int) -> float:
        return g + (1 - g) * p**count if count else 1.0

    rate = 0.0
    for shape, sets_of_shape in sets.items():
        for place, count in enumerate(shape):
            others = math.prod(group_dead(each) for index, each in enumerate(shape) if index != place)
            first = count * group_dead(count - 1) / failures.mtbf_s + 1 / failures.group_mtbf_s
            rate += sets_of_shape * first * others
    return rate * YEAR_S


def in_a_year(losses: float) -> float:
    """Probability of any loss in a year, from the expected number of losses."""
    return -math.expm1(-losses)
