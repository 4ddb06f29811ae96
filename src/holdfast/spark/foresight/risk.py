"""How likely is it that a partition is lost? The model and its formulas; docs/spark.md tells them.

Members crash independently of each other, each after an exponentially distributed time with mean `mtbf_s`; so do
groups, which take all their members with them, if `group_mtbf_s` is given. Content is lost when all holders of a
partition crash within one window: the time until the copies that a crash has cost are made up for.

With p = 1 - exp(-window / mtbf), and g the same for groups, the holders in one group, k of them, all crash in a window
with the probability g + (1 - g) p^k, and the holders of a set in different groups independently; q is the product.

    P(anything is lost in a window)  <=  1 - product over the different sets of holders of (1 - q)

That holds because crashes only ever add to what is lost, so the sets' survivals depend on each other positively (the
Harris inequality). It is exact when no two sets share a member, and close to the truth while q is small.

A year has as many losses as first crashes that are followed, within the window, by those of the other holders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.spark.foresight.amounts import YEAR_S

COPIES_MAX = 7

Shape = tuple[int, ...]
"""How the holders of a partition are spread over groups: so many in each, most first. Nobody holds it: ()."""


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
    """How often what fails."""

    mtbf_s: float
    """Mean time between two crashes of one member."""
    group_mtbf_s: float = math.inf
    """The same of a group as a whole."""

    def crash(self, window_s: float) -> float:
        """p: that a member crashes in the window, by itself."""
        return -math.expm1(-window_s / self.mtbf_s)

    def group_crash(self, window_s: float) -> float:
        """g: that a group does."""
        return -math.expm1(-window_s / self.group_mtbf_s)


def set_lost(shape: Shape, failures: Failures, window_s: float) -> float:
    """q: that all holders of one set crash within the window. A set of nobody is lost already."""
    p, g = failures.crash(window_s), failures.group_crash(window_s)
    return math.prod(g + (1 - g) * p**count for count in shape)


def any_lost(sets: Mapping[Shape, int], failures: Failures, window_s: float) -> float:
    """The bound for the probability that anything is lost in one window; `sets`: how many different ones there are."""
    logs = 0.0
    for shape, count in sets.items():
        lost = set_lost(shape, failures, window_s)
        if count and lost >= 1:
            return 1.0
        logs += count * math.log1p(-lost)
    return -math.expm1(logs)


def losses_a_year(sets: Mapping[Shape, int], failures: Failures, window_s: float) -> float:
    """How many sets are expected to be lost in a year: a first crash, then all other holders within the window.

    Nothing is counted for sets of nobody: they are lost already.
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
    """The probability that anything is lost in a year, when so many losses are expected."""
    return -math.expm1(-losses)
