"""Disables rules, and counts the decisions that needed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast_lab.sim.ablations.agreeing import AGREEING
from holdfast_lab.sim.ablations.answering import ANSWERING
from holdfast_lab.sim.ablations.committing import COMMITTING
from holdfast_lab.sim.ablations.deciding import DECIDING
from holdfast_lab.sim.ablations.filling import FILLING
from holdfast_lab.sim.ablations.following import FOLLOWING
from holdfast_lab.sim.ablations.moving import MOVING
from holdfast_lab.sim.ablations.packets import PACKETS
from holdfast_lab.sim.ablations.place import Place
from holdfast_lab.sim.ablations.restarting import RESTARTING
from holdfast_lab.sim.ablations.rules import RULES
from holdfast_lab.sim.replacing import Method, Replaced

PLACES: dict[str, tuple[Place, ...]] = (
    ANSWERING | FOLLOWING | FILLING | DECIDING | RESTARTING | PACKETS | AGREEING | COMMITTING | MOVING
)


@contextmanager
def ablated(*without: str, asked: Counter[str] | None = None) -> Iterator[None]:
    """Disable these rules for the block. Make the members within it, because some keep references to methods.
    `asked`: counts the decisions for which each rule mattered, disabled or not. Raises ValueError for an
    unknown rule.
    """
    unknown = set(without) - RULES.keys()
    if unknown:
        raise ValueError(f"no such rule: {', '.join(sorted(unknown))}; the rules are {', '.join(RULES)}")
    replaced = Replaced()
    try:
        for rule, places in PLACES.items():
            for place in places:
                if rule in without:
                    replaced.replace(place.owner, place.method, _careless(place))
                if asked is not None:
                    replaced.replace(place.owner, place.method, _counting(place, rule, asked))
        yield
    finally:
        replaced.end()


def _careless(place: Place) -> Callable[[Method], Method]:
    twin, when = place.twin, place.when

    def by(truth: Method) -> Method:
        def decides(*given: Any, **named: Any) -> Any:
            if when is None or when(*given, **named):
                return twin(truth, *given, **named)
            return truth(*given, **named)

        return decides

    return by


def _counting(place: Place, rule: str, asked: Counter[str]) -> Callable[[Method], Method]:
    when = place.when

    def by(decide: Method) -> Method:
        def counts(*given: Any, **named: Any) -> Any:
            if when is None or when(*given, **named):
                asked[rule] += 1
            return decide(*given, **named)

        return counts

    return by
