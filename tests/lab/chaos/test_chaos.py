"""What the clients of a chaos run note, and what their histories are held against."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from holdfast_lab.chaos import chaos
from holdfast_lab.chaos.chaos import MODES, Chaos, Verdict, judge_modes, kind_of
from holdfast_lab.chaos.nemeses import NEMESES, Clock, choose_s, find_faketime
from holdfast_lab.chaos.recorded_calls import CHOSEN, Keys, history, read_each
from holdfast_lab.chaos.recorded_calls import OPERATIONS as NAMES
from holdfast_lab.check.linearizability import (
    FOREVER,
    OPERATIONS,
    SILENT,
    UNTOLD,
    Broken,
    Call,
    Outcome,
    judge,
)
from holdfast_lab.processes.hazelcast_writer import DemoError

WRITES, QUIET, READS = MODES


def test_lines_become_calls() -> None:
    line = {"client": "c/0", "key": "k", "start_ns": 1, "end_ns": 2, "outcome": "ok", "result": None}
    lines = [
        {"ready": True},
        {**line, "op": "set", "arg": "v"},
        {**line, "op": "replaceIfSame", "arg": ["a", "b"], "result": True},
        {**line, "op": "removeIfSame", "arg": "a", "result": False},
        {**line, "op": "delete", "arg": None},
        {**line, "op": "remove", "arg": None, "outcome": "unknown", "error": "Gone: away"},
        {"done": True, "counts": {}},
    ]
    done = Outcome.DONE
    assert list(history(map(json.dumps, lines))) == [
        Call("set", "k", 1, 2, done, "v", None, None, "c/0"),
        Call("replace_if_same", "k", 1, 2, done, "b", "a", True, "c/0"),
        Call("remove_if_same", "k", 1, 2, done, None, "a", False, "c/0"),
        Call("delete", "k", 1, 2, done, None, None, UNTOLD, "c/0"),
        Call("remove", "k", 1, FOREVER, Outcome.UNKNOWN, None, None, None, "c/0"),
    ]


def test_hot_keys_are_others_after_a_while_and_the_same_for_everybody() -> None:
    keys = Keys(2, "h", rotate_s=60)
    assert keys.names(keys.turn(59_999_999_999)) == ["h0.0", "h0.1"]
    assert keys.names(keys.turn(60_000_000_000)) == ["h1.0", "h1.1"]
    assert Keys(2).names(Keys(2).turn(10**15)) == ["k0", "k1"]


class Answer:
    def __init__(self, value: str | None) -> None:
        self.value = value

    def result(self) -> str:
        if self.value is None:
            raise OSError("away")
        return self.value


def test_what_cannot_be_read_is_read_again() -> None:
    class Map:
        asked = 0

        def get(self, key: str) -> Answer:
            self.asked += 1
            return Answer(None if key == "b" and self.asked < 4 else key)

    lines: list[dict[str, Any]] = []
    read_each(Map(), "c", ["a", "b"], lines.append)
    assert [(line["key"], line["outcome"]) for line in lines[:-1]] == [
        ("a", "ok"),
        ("b", "unknown"),
        ("b", "unknown"),
        ("b", "ok"),
    ]
    assert lines[-1] == {"read": True, "unread": []}
    assert read_each(Map(), "c", [], lines.append) is None


def recorded(seed: int, calls: int = 400) -> list[Call]:
    """A history of two keys and a few clients at a time, each call taking effect at some moment while it lasts."""
    dice = random.Random(seed)
    values: dict[str, str | None] = {"a": None, "b": None}
    made = []
    for number in range(calls):
        key, operation = dice.choice("ab"), NAMES[dice.choice(CHOSEN)]
        argument = (
            f"v{number}"
            if operation in ("set", "put", "put_if_absent", "replace", "replace_if_same")
            else None
        )
        expected = values[key] if operation.endswith("_if_same") and dice.random() < 0.5 else "never"
        call = Call(
            operation,
            key,
            10 * number - dice.randrange(20),
            10 * number + dice.randrange(20),
            Outcome.DONE,
            argument,
            expected if operation.endswith("_if_same") else None,
            client=f"c{number}",
        )
        values[key], answer = OPERATIONS[operation](values[key], call)
        told = UNTOLD if operation == "delete" else None if operation in SILENT else answer
        made.append(replace(call, result=told))
    return made


def altered(calls: list[Call], kind: str) -> list[Call]:
    """The history in which one answer of this kind is that of long before."""
    values = [call.argument for call in calls[:50] if call.operation == "set" and call.key == "a"]
    for number, call in enumerate(calls):
        names = isinstance(call.result, str) and call.operation != "put"
        if number > 200 and call.key == "a" and kind_of(call) == kind and names:
            return [*calls[:number], replace(call, result=values[0]), *calls[number + 1 :]]
    raise AssertionError(f"no call of the kind {kind!r} that names a value")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("kind", "mode"), [("changed something", WRITES), ("changed nothing", QUIET), ("read", READS)]
)
def test_one_altered_answer_is_found_and_its_mode_is_named(seed: int, kind: str, mode: str) -> None:
    calls = recorded(seed)
    judged = judge_modes(calls)
    assert not any(judged.broken.values())
    assert judged.counts[READS] == len(calls)
    broken = judge_modes(altered(calls, kind)).broken
    assert {name: len(found) for name, found in broken.items()} == {name: int(name == mode) for name in MODES}
    assert broken[mode][0].key == "a"


def test_a_lost_write_is_found() -> None:
    """A write that was answered, and that nobody ever saw: the last one of a key that is only read afterwards."""
    calls = [
        Call("set", "k", 1, 2, Outcome.DONE, "old"),
        Call("set", "k", 3, 4, Outcome.DONE, "new"),
        Call("get", "k", 5, 6, Outcome.DONE, result="old"),
    ]
    broken = judge_modes(calls).broken
    assert [len(broken[mode]) for mode in MODES] == [0, 0, 1]
    unknown = [calls[0], replace(calls[1], outcome=Outcome.UNKNOWN, end=FOREVER), calls[2]]
    judged = judge_modes(unknown)
    assert not any(judged.broken.values())
    assert judged.counts == {WRITES: 2, QUIET: 2, READS: 3}


def test_what_the_judge_cannot_decide_is_not_called_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def tired(history: list[Call], *, most: int, quiet: bool = True, reads: bool = True) -> list[Broken]:
        if reads:
            raise RuntimeError("too many")
        return judge(history, quiet=quiet, reads=reads)

    monkeypatch.setattr(chaos, "judge", tired)
    calls = recorded(1)
    verdict = Verdict(judged=judge_modes(calls))
    assert verdict.judged.undecided == {"a": "too many", "b": "too many"}
    assert not verdict.good
    judged = judge_modes(altered(calls, "changed something"))
    assert [len(judged.broken[mode]) for mode in MODES] == [1, 0, 0]
    assert judged.undecided == {"b": "too many"}


def test_a_run_that_got_stuck_is_no_good_one() -> None:
    run = Chaos(NEMESES["kill"](random.Random(1)), None, rounds=1)  # type: ignore[arg-type]
    assert run.verdict.good
    run.verdict.failure = "not settled"
    assert not run.verdict.good
    assert run.verdict.failures()["stuck"] == 1


def test_faults_last_from_one_second_to_fifteen() -> None:
    dice = random.Random(1)
    lengths = [choose_s(dice) for _ in range(1000)]
    assert 1 <= min(lengths) < 1.2
    assert 14 < max(lengths) <= 15


def test_without_libfaketime_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast_lab.chaos.nemeses.FAKETIME", ("/nowhere", "faketime/libfaketimeMT.so.1"))
    with pytest.raises(DemoError, match="apt-get install libfaketime"):
        find_faketime()
    with pytest.raises(DemoError, match="--faketime"):
        Clock(random.Random(1))
