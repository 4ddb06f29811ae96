"""Careless twins are put in the place of what members do, counted, and taken back."""

from __future__ import annotations

import inspect
from collections import Counter
from types import ModuleType
from typing import Any

import pytest

from holdfast.core.model.ids import MemberId
from holdfast.engine.link import Link, road_between
from holdfast_lab.sim.ablations.rules import DIRECTED, DURABLE, RULES
from holdfast_lab.sim.ablations.switching import PLACES, ablated
from holdfast_lab.sim.run import simulate

HERE, THERE = (MemberId("here"), 1), (MemberId("there"), 1)


def present() -> list[object]:
    """What stands now in every place where members decide by a rule."""
    return [vars(place.owner)[place.method] for places in PLACES.values() for place in places]


@pytest.mark.parametrize("counted", [True, False])
def test_everything_is_as_it_was_afterwards(counted: bool) -> None:
    before = present()
    with ablated(*RULES, asked=Counter() if counted else None):
        assert all(now is not then for now, then in zip(present(), before, strict=True))
    assert present() == before
    with pytest.raises(RuntimeError), ablated("fence", asked=Counter()):
        raise RuntimeError
    assert present() == before


def test_what_stands_in_for_what_was_replaced_already_goes_first() -> None:
    before = present()
    with ablated("all-ack"):
        outer = present()
        with ablated("confirmed-answers", "all-ack"):
            assert present() != outer
        assert present() == outer
    assert present() == before


def test_without_a_name_nothing_is_replaced() -> None:
    before = present()
    with ablated():
        assert present() == before


def test_a_rule_that_does_not_exist_cannot_be_switched_off() -> None:
    before = present()
    with pytest.raises(ValueError, match="no such rule: nonsense"), ablated("fence", "nonsense"):
        raise AssertionError
    assert present() == before


def test_every_rule_has_a_place_and_every_place_a_rule() -> None:
    assert PLACES.keys() == RULES.keys()
    assert all(PLACES.values())
    assert RULES.keys() >= DIRECTED | DURABLE


@pytest.mark.parametrize("rule", RULES)
def test_a_twin_can_be_given_what_the_method_is_given(rule: str) -> None:
    """Also under its name: else a call with names would fail only without the rule."""
    for place in PLACES[rule]:
        function = vars(place.owner)[place.method]
        assert inspect.isfunction(function), f"{place.method} would be given another self"
        wanted = inspect.signature(function).parameters.values()
        positional = [one for one in wanted if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        named = {one.name: None for one in wanted if one.kind is inspect.Parameter.KEYWORD_ONLY}
        inspect.signature(place.twin).bind(function, *positional, **named)
        if place.when is not None:
            inspect.signature(place.when).bind(*positional, **named)
        if not isinstance(place.owner, ModuleType):
            assert place.owner.__module__.startswith(("holdfast.core.", "holdfast.engine."))


def arriving(*order: int) -> Counter[str]:
    """How often rules stood before a decision when the first, second and third packet arrive in this order."""
    asked: Counter[str] = Counter()
    with ablated(asked=asked):
        here, there = Link[Any](road_between(HERE, THERE)), Link[Any](road_between(THERE, HERE))
        packets = [here.send(payload, 0) for payload in (b"one", b"two", b"three")]
        for number in order:
            assert there.carries(packets[number - 1])
            there.receive(packets[number - 1], 0, bytes)
    return asked


def test_a_rule_counts_as_asked_only_where_it_stands_before_a_decision() -> None:
    assert arriving() == {}
    assert arriving(1, 2, 3) == {"lives": 3}
    assert arriving(1, 1) == {"lives": 2, "once": 1}
    assert arriving(2, 1) == {"lives": 2, "in-order": 2}


def test_a_run_tells_how_often_it_needed_which_rule() -> None:
    asked: Counter[str] = Counter()
    verdict = simulate(1, asked=asked)
    marks = {name: verdict.figures.get(f"mark_rule {name}", 0) for name in RULES}
    assert marks == {name: asked[name] for name in RULES}
    assert min(asked["all-ack"], asked["fence"], asked["lives"], asked["record-order"]) > 100
    assert not asked.keys() & {"durable-ack", "fill-durable", "failed-sync-stops", "damage-ends"}, "no files"


def test_of_a_run_that_ends_with_an_error_it_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    before, asked = present(), Counter[str]()
    monkeypatch.setattr("holdfast_lab.sim.run._judged", broken)
    with pytest.raises(RuntimeError):
        simulate(96, asked=asked)
    assert asked["all-ack"] > 100
    assert present() == before
