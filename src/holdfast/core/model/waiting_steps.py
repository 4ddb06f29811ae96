"""Steps of collections and CP objects that may wait, of either kind."""

from __future__ import annotations

import msgspec

from holdfast.core.model import collections, cp
from holdfast.core.model.decisions import Wait
from holdfast.core.model.operations import CP_STEPS, Op, Request


def wait_of(request: Request) -> int:
    """How long this step may wait, in milliseconds."""
    if request.op in CP_STEPS:
        return cp.decode_cp_step(request.value).wait_ms
    return collections.decode_step(request.value).wait_ms


def with_remaining_wait(request: Request, ms: int) -> Request:
    """The same step, which waits so much longer: it has waited elsewhere before."""
    if request.op in CP_STEPS:
        return cp.with_wait(request, ms)
    step = msgspec.structs.replace(collections.decode_step(request.value), wait_ms=ms)
    return msgspec.structs.replace(request, value=collections.encode_step(step))


def for_log(request: Request, answer_bytes: int, *, late: bool) -> Request:
    """The step as its leader proposes it. `late`: it has waited long enough."""
    if request.op in CP_STEPS:
        return cp.with_wait(request, 0) if late else request
    step = collections.decode_step(request.value)
    wait_ms = 0 if late else step.wait_ms
    step = msgspec.structs.replace(step, wait_ms=wait_ms, answer_bytes=answer_bytes)
    return msgspec.structs.replace(request, value=collections.encode_step(step))


def answer_limit(request: Request) -> int:
    """In the log: largest answer of the step; 0: not limited."""
    return 0 if request.op in CP_STEPS else collections.decode_step(request.value).answer_bytes


def wait_behind(request: Request) -> Wait | None:
    """The wait of a step of a collection for which others wait already; None: it does not wait."""
    if request.op in CP_STEPS:
        return None  # Only its decision knows whether it needs what the others wait for.
    step = collections.decode_step(request.value)
    late = None if request.op is Op.TAKE_FROM_COLLECTION else False
    return Wait(step.wait_ms, late) if step.wait_ms else None
