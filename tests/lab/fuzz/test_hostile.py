"""What the fuzzer generates: also what members can read, or it would test their readers alone."""

from __future__ import annotations

import random
from collections import Counter

from holdfast.core.messages import Forward
from holdfast.core.model.operations import Op
from holdfast.wire.bounds import message_problem
from holdfast_lab.fuzz.hostile import STEPS, Facts, Liar

PARTITIONS = 7


def test_steps_of_transactions_and_moves_can_be_read_at_times() -> None:
    liar = Liar(random.Random(1), Facts("c", PARTITIONS, ("a", "b")), rough=False)
    good: Counter[Op] = Counter()
    for _ in range(20_000):
        request = liar.request()
        if request.op in STEPS and not message_problem(Forward(1, request), PARTITIONS):
            good[request.op] += 1
    assert good.keys() == STEPS.keys(), good
