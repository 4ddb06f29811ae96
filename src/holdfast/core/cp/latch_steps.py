"""Steps on count-down latches.

- cp/T-1: A call counts down at most once, however often the client repeats it, and only in the round for which it was
  made. Example: a latch of 1 opens and is set to 2. A repeated call of the first round does not count in the second.
- cp/T-2: A waiting call ends when its round ends, also if the next one has begun before it is looked at again.
"""

from __future__ import annotations

from holdfast.core.cp.cp_entries import LatchEntry
from holdfast.core.model.cp import CpAnswer, CpFate, CpStep, CpStepKind, waiting
from holdfast.core.model.decisions import Wait

COUNT_MAX = 2**31 - 1
PAST = 100
"""Ids of calls that a latch keeps. The partition has those of `replication.request_ids` calls, too."""


def decide_latch(entry: LatchEntry, step: CpStep) -> tuple[CpAnswer, LatchEntry] | Wait:
    match step.kind:
        case CpStepKind.GET_ROUND:
            return CpAnswer(number=entry.round), entry
        case CpStepKind.TRY_SET_COUNT:
            if not 0 < step.number <= COUNT_MAX:
                return CpAnswer(CpFate.BAD_NUMBER), entry
            if entry.count:
                return CpAnswer(number=0), entry
            return CpAnswer(number=1), LatchEntry(step.number, entry.round + 1)
        case CpStepKind.COUNT_DOWN:
            return CpAnswer(), _count_down(entry, step)
        case CpStepKind.AWAIT:
            if entry.count == 0 or entry.round > step.number:
                return CpAnswer(number=1), entry
            return waiting(step) if step.wait_ms else (CpAnswer(number=0), entry)
        case _:
            return CpAnswer(number=entry.count), entry


def _count_down(entry: LatchEntry, step: CpStep) -> LatchEntry:
    if entry.round != step.number or not entry.count or (step.uid and step.uid in entry.past):
        return entry
    past = [*entry.past, step.uid][-PAST:] if step.uid and entry.count > 1 else []
    return LatchEntry(entry.count - 1, entry.round, past)
