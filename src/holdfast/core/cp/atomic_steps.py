"""Steps on atomic longs and atomic references."""

from __future__ import annotations

from holdfast.core.cp.cp_entries import LongEntry, ReferenceEntry
from holdfast.core.model.cp import CpAnswer, CpStep, CpStepKind


def decide_long(entry: LongEntry, step: CpStep) -> tuple[CpAnswer, LongEntry]:
    old = entry.value
    match step.kind:
        case CpStepKind.GET_AND_ADD:
            return CpAnswer(number=old), LongEntry(_wrapped(old + step.number))
        case CpStepKind.ADD_AND_GET:
            new = _wrapped(old + step.number)
            return CpAnswer(number=new), LongEntry(new)
        case CpStepKind.COMPARE_AND_SET_LONG:
            same = old == step.expected_number
            return CpAnswer(number=int(same)), LongEntry(step.number) if same else entry
        case CpStepKind.GET_AND_SET_LONG:
            return CpAnswer(number=old), LongEntry(step.number)
        case _:
            return CpAnswer(number=old), entry


def decide_reference(entry: ReferenceEntry, step: CpStep) -> tuple[CpAnswer, ReferenceEntry]:
    """Values are compared as serialised bytes."""
    old = entry.value
    match step.kind:
        case CpStepKind.CONTAINS:
            return CpAnswer(number=int(old == step.value)), entry
        case CpStepKind.SET_REFERENCE:
            return CpAnswer(value=old), ReferenceEntry(step.value)
        case CpStepKind.COMPARE_AND_SET_REFERENCE:
            same = old == step.expected
            return CpAnswer(number=int(same)), ReferenceEntry(step.value) if same else entry
        case _:
            return CpAnswer(value=old), entry


def _wrapped(number: int) -> int:
    """In 64 bits, as Java adds."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
