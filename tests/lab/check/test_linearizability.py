"""The search agrees with trying every order, and speaks about each kind of lie."""

from __future__ import annotations

from itertools import count, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_lab.check.linearizability import (
    FOREVER,
    OPERATIONS,
    READS,
    SILENT,
    UNTOLD,
    Call,
    Outcome,
    changed_nothing,
    judge,
)

DONE, UNKNOWN, REFUSED = Outcome.DONE, Outcome.UNKNOWN, Outcome.REFUSED


def done(operation: str, start: int, end: int, **said: str | bool | None) -> Call:
    return Call(operation, "k", start, end, DONE, **said)  # type: ignore[arg-type]


def unknown(operation: str, start: int, **said: str | bool | None) -> Call:
    return Call(operation, "k", start, FOREVER, UNKNOWN, **said)  # type: ignore[arg-type]


def by_force(calls: list[Call]) -> bool:
    """Every order of every choice of the unknown calls."""
    answered = [call for call in calls if call.outcome is DONE]
    doubtful = [call for call in calls if call.outcome is UNKNOWN and call.operation not in READS]
    for chosen in range(1 << len(doubtful)):
        some = answered + [call for at, call in enumerate(doubtful) if chosen >> at & 1]
        if any(possible(order) for order in permutations(some)):
            return True
    return False


def possible(order: tuple[Call, ...]) -> bool:
    value: str | None = None
    for at, call in enumerate(order):
        if any(later.end < call.start for later in order[at + 1 :]):
            return False
        value, answer = OPERATIONS[call.operation](value, call)
        if call.outcome is DONE and call.operation not in SILENT and call.result not in (answer, UNTOLD):
            return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Call]:
    """A few calls on one key: mostly what a register answers, now and then a lie."""
    values = [f"v{number}" for number in range(3)]
    calls: list[Call] = []
    for number in range(draw(st.integers(1, 6))):
        operation = draw(st.sampled_from(sorted(OPERATIONS)))
        start = draw(st.integers(0, 12)) * 2
        outcome = draw(st.sampled_from([DONE, DONE, DONE, UNKNOWN]))
        end = start + 1 + 2 * draw(st.integers(0, 6))
        if outcome is UNKNOWN and draw(st.booleans()):
            end = FOREVER
        boolean = operation in ("contains", "replace_if_same", "delete", "remove_if_same", "set_ttl")
        result = draw(st.booleans()) if boolean else draw(st.sampled_from([None, *values]))
        argument, expected = f"v{number % 3}", draw(st.sampled_from(values))
        calls.append(Call(operation, "k", start, end, outcome, argument, expected, result))
    return calls


@given(histories())
@settings(max_examples=700, deadline=None)
def test_the_search_finds_what_trying_everything_finds(calls: list[Call]) -> None:
    assert (judge(calls) == []) == by_force(calls)


GOOD = {
    "overlapping writes in either order": [
        done("set", 0, 10, argument="a"),
        done("set", 1, 9, argument="b"),
        done("get", 11, 12, result="a"),
    ],
    "an unknown write that happened": [unknown("set", 0, argument="a"), done("get", 5, 6, result="a")],
    "an unknown write that did not": [unknown("set", 0, argument="a"), done("get", 5, 6, result=None)],
    "an unknown write that happens late": [
        unknown("set", 0, argument="a"),
        done("get", 5, 6, result=None),
        done("get", 7, 8, result="a"),
    ],
    "a refused write leaves nothing": [
        Call("set", "k", 0, 1, REFUSED, "a"),
        done("get", 5, 6, result=None),
    ],
    "an answer that was not passed on": [done("delete", 0, 1, result=UNTOLD)],
}

LIES = {
    "a lost write": [done("set", 0, 1, argument="a"), done("get", 2, 3, result=None)],
    "a lost delete": [
        done("set", 0, 1, argument="a"),
        unknown("remove", 2),
        done("delete", 4, 5, result=False),
        done("get", 6, 7, result="a"),
    ],
    "a stale read": [
        done("set", 0, 1, argument="a"),
        done("set", 2, 3, argument="b"),
        done("get", 4, 5, result="a"),
    ],
    "a read that goes back": [
        unknown("set", 0, argument="a"),
        done("get", 5, 6, result="a"),
        done("get", 7, 8, result=None),
    ],
    "an unknown write that happens twice": [
        unknown("set", 0, argument="a"),
        done("get", 5, 6, result="a"),
        done("remove", 7, 8, result="a"),
        done("get", 9, 10, result="a"),
    ],
    "a refused write that happened": [
        Call("set", "k", 0, 1, REFUSED, "a"),
        done("get", 5, 6, result="a"),
    ],
    "a compare-and-set that succeeds twice": [
        done("set", 0, 1, argument="a"),
        done("replace_if_same", 2, 10, expected="a", argument="b", result=True),
        done("replace_if_same", 3, 9, expected="a", argument="c", result=True),
    ],
    "a put-if-absent that overwrites": [
        done("set", 0, 1, argument="a"),
        done("put_if_absent", 2, 3, argument="b", result=None),
    ],
    "a put-if-absent that found what had gone": [
        done("set", 0, 1, argument="a"),
        done("remove", 2, 3, result="a"),
        done("put_if_absent", 4, 5, argument="b", result="a"),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_may_happen_is_good(name: str) -> None:
    assert judge(GOOD[name]) == []


@pytest.mark.parametrize("name", LIES)
def test_every_lie_is_found(name: str) -> None:
    (broken,) = judge(LIES[name])
    assert broken.key == "k"
    assert "possible before" in str(broken)


def test_the_three_modes() -> None:
    stale = LIES["a stale read"]
    assert judge(stale, reads=False) == []
    lost = [call for call in LIES["a lost delete"] if call.operation != "get"]
    lost += [done("put_if_absent", 6, 7, argument="x", result="a")]
    assert judge(lost)
    assert judge(lost, quiet=False) == []
    assert judge(LIES["a compare-and-set that succeeds twice"], quiet=False, reads=False)
    assert [call.operation for call in lost if changed_nothing(call)] == ["delete", "put_if_absent"]


def test_keys_are_judged_one_by_one() -> None:
    calls = [Call("set", "a", 0, 1, DONE, "x"), Call("get", "b", 2, 3, DONE, result="x")]
    assert [broken.key for broken in judge(calls)] == ["b"]


def test_many_unknown_calls_do_not_make_it_slow() -> None:
    """Five hundred unanswered writes, removals and compares: as many configurations as subsets would take for ever."""
    clock = count()
    calls: list[Call] = []
    for number in range(500):
        at = next(clock) * 10
        kind = ("set", "remove", "replace_if_same")[number % 3]
        calls.append(unknown(kind, at, argument=f"u{number}", expected=f"d{number - 1}"))
        calls.append(done("set", at + 1, at + 2, argument=f"d{number}"))
        calls.append(
            done("get", at + 3, at + 4, result=f"u{number - 30}" if number % 90 == 33 else f"d{number}")
        )
    assert judge(calls) == []
    calls.append(done("get", 6000, 6001, result="d3"))
    assert len(judge(calls)) == 1


def test_many_calls_at_a_time_do_not_make_it_slow() -> None:
    """Thirty writes wait at a member that is paused, and are answered together; few of their values are ever read."""
    calls = [done("set", number, 1000 + number, argument=f"v{number}") for number in range(30)]
    calls += [done("remove_if_same", 40 + number, 1100, expected="x", result=False) for number in range(30)]
    calls += [done("get", 200 + number, 201 + number, result="v3") for number in range(30)]
    assert judge(calls) == []
    calls.append(done("get", 240, 241, result="v4"))
    assert judge(calls) == []
    calls.append(done("get", 250, 251, result="v3"))
    assert len(judge(calls)) == 1


def test_too_much_at_a_time_is_said() -> None:
    calls = [done("set", 0, 100 + number, argument=f"v{number}") for number in range(14)]
    calls += [done("remove", 150 + number, 300, result=f"v{number}") for number in range(14)]
    with pytest.raises(RuntimeError, match="too many calls under way"):
        judge(calls, most=1000)
