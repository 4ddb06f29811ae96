"""Steps of a counter: a value of 64 bits, and a version that grows with every change.

- collections/P-1: A change is rejected if its client has seen a later version: the counter has lost changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from holdfast.core.model.collections import CollectionStep, StepKind
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.records import Change

COUNT_KEY = b"count"
_COUNT = Struct(">qq")
_HALF = 1 << 63


def decide_counter(entries: Mapping[bytes, bytes], step: CollectionStep) -> Decision:
    present = entries.get(COUNT_KEY, bytes(_COUNT.size))
    value, version = _COUNT.unpack(present)
    if step.kind is StepKind.COUNT:
        return Decision(present, unconfirmed=True)
    if step.end > version:
        return Decision(None, unconfirmed=True)
    # As Java's numbers, it overflows without an error.
    changed = _COUNT.pack((value + step.index + _HALF) % (2 * _HALF) - _HALF, version + 1)
    return Decision(changed, (Update(Change.SET, COUNT_KEY, changed, 0, 0),))


def read_count(answer: bytes) -> tuple[int, int]:
    """The value and the version."""
    value, version = _COUNT.unpack(answer)
    return value, version
