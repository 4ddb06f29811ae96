"""A write counts as judged exactly when the judge of linearizability would miss it."""

from __future__ import annotations

import random
from itertools import count

from holdfast_lab.check.linearizability import OPERATIONS, Call, Outcome, judge
from holdfast_lab.check.witnessed import witnessed

CHOSEN = ("set", "put", "put_if_absent", "replace", "remove", "delete", "get", "replace_if_same")


def history(seed: int, *, forgets: int = -1) -> list[Call]:
    """What a register answers to calls one after the other. It forgets the effect of one of them."""
    draw = random.Random(seed)
    value = believed = None
    calls: list[Call] = []
    names = map("v{}".format, count())
    for number in range(12):
        operation = draw.choice(CHOSEN)
        call = Call(
            operation, "k", 10 * number, 10 * number + 5, Outcome.DONE, next(names), believed or "never"
        )
        believed, _ = OPERATIONS[operation](believed, call)
        after, call.result = OPERATIONS[operation](value, call)
        if operation in ("get", "remove", "delete"):
            call.argument = None
        value = value if number == forgets else after
        calls.append(call)
    return calls


def test_what_counts_as_judged_is_missed_when_it_is_lost() -> None:
    judged = 0
    for seed in range(60):
        calls = history(seed)
        for call, seen in witnessed(calls):
            missed = judge(history(seed, forgets=calls.index(call)))
            assert missed or not seen, (seed, str(call))
            judged += seen
    assert judged > 200
