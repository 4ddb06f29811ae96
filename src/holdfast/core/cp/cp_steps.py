"""Decision of a step on a CP group.

- cp/C-1: All objects and sessions of a group are entries of one internal map, in the partition of the group's name. So
  a step changes an object and the sessions that use it together, and all of them have one order.
- cp/D-1: An object that was destroyed stays so: each later step on it is answered with that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from holdfast.core.cp.atomic_steps import decide_long, decide_reference
from holdfast.core.cp.cp_entries import (
    DESTROYED,
    CpEntry,
    LatchEntry,
    LockEntry,
    LongEntry,
    ReferenceEntry,
    SemaphoreEntry,
    decode_entry,
)
from holdfast.core.cp.fenced_lock_steps import decide_lock
from holdfast.core.cp.holdings_index import HoldingsIndex
from holdfast.core.cp.latch_steps import decide_latch
from holdfast.core.cp.semaphore_steps import decide_semaphore
from holdfast.core.cp.session_steps import decide_session, is_open, storing
from holdfast.core.model.cp import (
    HELD_OBJECTS_MAX,
    KIND_OF,
    NO_SESSION,
    CpAnswer,
    CpFate,
    CpKind,
    CpStep,
    CpStepKind,
    decode_cp_step,
    encode_answer,
)
from holdfast.core.model.decisions import Decision, Update, Wait
from holdfast.core.model.operations import Op, Request, Value
from holdfast.core.model.records import Change
from holdfast.core.store.derived_index import index_of
from holdfast.core.store.map_state import MapState
from holdfast.core.store.replica import MapReplica

_ACQUIRING = frozenset({CpStepKind.LOCK, CpStepKind.ACQUIRE, CpStepKind.DRAIN})


def decide_cp_step(state: MapState | None, request: Request, *, behind: bool = False) -> Decision | Wait:
    """`state`: of the group's map; None if nothing was ever stored there. `behind`: others wait for the same object."""
    step = decode_cp_step(request.value)
    entries: Mapping[bytes, bytes] = state.entries if state is not None else {}
    if step.kind not in KIND_OF and step.kind is not CpStepKind.DESTROY:
        holdings = _holdings(state)
        answer, updates = decide_session(entries, holdings, step)
        return Decision(encode_answer(answer), updates)
    key = request.key
    stored = entries.get(key)
    if step.kind is CpStepKind.DESTROY:
        gone = () if stored == DESTROYED else (Update(Change.SET, key, DESTROYED, 0, 0, 0),)
        return Decision(encode_answer(CpAnswer(number=len(gone))), gone)
    if stored == DESTROYED:
        return Decision(encode_answer(CpAnswer(CpFate.DESTROYED)))
    if step.kind in _ACQUIRING and _holds_too_many(state, key, step):
        return Decision(encode_answer(CpAnswer(CpFate.TOO_MANY)))
    decided = _decide(entries, stored, step, behind)
    if isinstance(decided, Wait):
        return decided
    answer, before, after = decided
    return Decision(encode_answer(answer), () if after is before else (storing(key, after),))


def _holdings(state: MapState | None) -> HoldingsIndex:
    return index_of(state, HoldingsIndex) if state is not None else HoldingsIndex({})


def _holds_too_many(state: MapState | None, key: bytes, step: CpStep) -> bool:
    """The session would hold more objects than it may (cp/B-1)."""
    if state is None or step.session == NO_SESSION:
        return False
    holdings = _holdings(state)
    return holdings.count(step.session) >= HELD_OBJECTS_MAX and not holdings.has(step.session, key)


def answer_again(held: MapReplica | None, request: Request, first: Value) -> Value:
    """The answer to a call that is repeated. It is the first one, unless the call acquired what its session has lost
    meanwhile (cp/L-2): others may hold it by now.
    """
    if request.op is not Op.CHANGE_CP:
        return first
    step = decode_cp_step(request.value)
    entries: Mapping[bytes, bytes] = held.state.entries if held is not None else {}
    if step.kind not in _ACQUIRING or step.session == NO_SESSION:
        return first
    if not is_open(entries, step):
        return encode_answer(CpAnswer(CpFate.NO_SESSION))
    stored = entries.get(request.key)
    if step.kind is CpStepKind.LOCK and step.call not in decode_entry(LockEntry, stored).uids:
        return encode_answer(CpAnswer(CpFate.CANCELLED))
    return first


def _decide(
    entries: Mapping[bytes, bytes], stored: bytes | None, step: CpStep, behind: bool
) -> tuple[CpAnswer, CpEntry, CpEntry] | Wait:
    """The answer, and the entry before and after the step."""
    entry: CpEntry
    decided: tuple[CpAnswer, CpEntry] | Wait
    match KIND_OF[step.kind]:
        case CpKind.ATOMIC_LONG:
            entry = decode_entry(LongEntry, stored)
            decided = decide_long(entry, step)
        case CpKind.ATOMIC_REFERENCE:
            entry = decode_entry(ReferenceEntry, stored)
            decided = decide_reference(entry, step)
        case CpKind.LATCH:
            entry = decode_entry(LatchEntry, stored)
            decided = cast("tuple[CpAnswer, CpEntry] | Wait", decide_latch(entry, step))
        case CpKind.LOCK:
            entry = decode_entry(LockEntry, stored)
            alive = is_open(entries, step)
            decided = cast(
                "tuple[CpAnswer, CpEntry] | Wait", decide_lock(entry, step, alive=alive, behind=behind)
            )
        case _:
            entry = decode_entry(SemaphoreEntry, stored)
            alive = step.session == NO_SESSION or is_open(entries, step)
            found = decide_semaphore(entry, step, alive=alive, behind=behind)
            decided = cast("tuple[CpAnswer, CpEntry] | Wait", found)
    return decided if isinstance(decided, Wait) else (decided[0], entry, decided[1])
