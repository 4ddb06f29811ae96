"""The judge of maps that evict entries: wrong histories are found, and runs with such maps find lies."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.primary_evictions import PrimaryEvictions
from holdfast_lab.check.linearizability import Call, Outcome
from holdfast_lab.sim.eviction_user import ROOMY, TIGHT, judge_history
from holdfast_lab.sim.run import simulate

SEED = 98_530


def put(value: str, at: int, result: str | None = None) -> Call:
    return Call("put", "k", at, at + 1, Outcome.DONE, value, result=result)


def get(result: str | None, at: int) -> Call:
    return Call("get", "k", at, at + 1, Outcome.DONE, result=result)


GONE = [put("a", 0), get(None, 10)]


def test_an_eviction_explains_what_is_gone() -> None:
    assert judge_history(TIGHT, GONE) == []
    assert judge_history(TIGHT, [*GONE, put("b", 20), get("b", 30), get(None, 40)]) == []


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        (ROOMY, GONE),
        (TIGHT, [*GONE, get("a", 20)]),
        (TIGHT, [put("a", 0), put("b", 10, "a"), get("a", 20)]),
        (TIGHT, [*GONE, put("b", 20), get("a", 30)]),
    ],
)
def test_it_does_not_explain_what_comes_back_or_had_to_stay(name: str, calls: list[Call]) -> None:
    assert any("not linearizable" in problem for problem in judge_history(name, calls))


def come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some evicted entries are stored again later, as new updates."""
    evict, draw = PrimaryEvictions.evict, random.Random(1)
    kept: dict[tuple[int, str], tuple[bytes, bytes]] = {}

    def evicts(evictions: PrimaryEvictions, copy: Any, held: Any, most: int) -> int:
        before = dict(held.state.entries)
        count = evict(evictions, copy, held, most)
        place = copy.partition, held.name
        if draw.random() < 0.2 and place in kept and isinstance(evictions._lane, Lane):
            key, value = kept.pop(place)
            if key not in held.state.entries:
                evictions._lane.set(copy, held.name, key, value, 0, 0, 0)
                evict(evictions, copy, held, most)
        for key in before.keys() - held.state.entries.keys():
            kept[place] = key, before[key]
        return count

    monkeypatch.setattr(PrimaryEvictions, "evict", evicts)


def take_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map that is far below its limit loses entries, too."""
    monkeypatch.setattr("holdfast_lab.sim.eviction_user.ROOMY_SIZE", 12)


def take_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrimaryEvictions, "evict", lambda evictions, copy, held, most: 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "named"),
    [
        (None, ""),
        (come_back, "tight: not linearizable"),
        (take_more, "roomy: not linearizable"),
        (take_none, "tight: "),
    ],
)
def test_a_run_finds_lies(monkeypatch: pytest.MonkeyPatch, lie: Any, named: str) -> None:
    if lie is not None:
        lie(monkeypatch)
    verdict = simulate(SEED, journal="mixed")
    assert verdict.figures["eviction_calls_answered"] > 100
    found = [one for one in verdict.problems if one.startswith(named or ("tight", "roomy"))]
    assert bool(found) is (lie is not None), verdict.problems
