"""Requests for atomic longs and atomic references."""

from __future__ import annotations

from holdfast.core.model.cp import CpAnswer, CpStep, CpStepKind
from holdfast.server.hazelcast.cp.cp_requests import (
    CpRow,
    CpStepOf,
    long_number,
    messages,
    truth,
    value_or_null,
)
from holdfast.wire.hazelcast.layouts import Call


def _with_number(kind: CpStepKind) -> CpStepOf:
    return lambda call: CpStep(kind, call.number)


def _former(call: Call, answer: CpAnswer) -> bytes:
    """The former value if the client wants it."""
    return value_or_null(call, answer if call.flag else CpAnswer())


_ROWS = [
    CpRow(0x090300, "number | group name", _with_number(CpStepKind.ADD_AND_GET), long_number),
    CpRow(
        0x090400,
        "expected_number number | group name",
        lambda call: CpStep(CpStepKind.COMPARE_AND_SET_LONG, call.number, call.expected_number),
        truth,
    ),
    CpRow(0x090500, "| group name", lambda _: CpStep(CpStepKind.GET_LONG), long_number),
    CpRow(0x090600, "number | group name", _with_number(CpStepKind.GET_AND_ADD), long_number),
    CpRow(0x090700, "number | group name", _with_number(CpStepKind.GET_AND_SET_LONG), long_number),
    CpRow(
        0x0A0200,
        "| group name expected_or_null value_or_null",
        lambda call: CpStep(
            CpStepKind.COMPARE_AND_SET_REFERENCE, value=call.value_or_null, expected=call.expected_or_null
        ),
        truth,
    ),
    CpRow(
        0x0A0300,
        "| group name value_or_null",
        lambda call: CpStep(CpStepKind.CONTAINS, value=call.value_or_null),
        truth,
    ),
    CpRow(0x0A0400, "| group name", lambda _: CpStep(CpStepKind.GET_REFERENCE), value_or_null),
    CpRow(
        0x0A0500,
        "flag | group name value_or_null",
        lambda call: CpStep(CpStepKind.SET_REFERENCE, value=call.value_or_null),
        _former,
    ),
]
MESSAGES = messages(_ROWS)
