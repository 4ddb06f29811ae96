"""Steps on semaphores. A request without a session takes and gives permits that belong to no session.

- cp/P-1: Permits are neither lost nor made: those that are available, and those that sessions hold, are together what
  INIT_PERMITS, CHANGE_PERMITS and requests without a session have made of them.
- cp/P-2: A call is done at most once, however often its client repeats it. In another session it is another call:
  the permits of the first one were released with its session.
- cp/P-3: While others wait for permits, a new request that may wait does so behind them, also if there are enough for
  it. Example: one waits for 5 permits, and 3 are available. If requests for 1 did not wait, it would get none for ever.
- cp/P-4: Available and held permits are together at most `PERMITS_MAX`. So the number fits into the 32 bits of an
  answer also when sessions give theirs back.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.cp.cp_entries import SemaphoreEntry
from holdfast.core.model.cp import HOLDERS_MAX, NO_SESSION, CpAnswer, CpFate, CpStep, CpStepKind, waiting
from holdfast.core.model.decisions import Wait

PAST = 64
PERMITS_MAX = 2**31 - 1

SemaphoreDecision = tuple[CpAnswer, SemaphoreEntry]


def decide_semaphore(
    entry: SemaphoreEntry, step: CpStep, *, alive: bool, behind: bool
) -> SemaphoreDecision | Wait:
    """`alive`: the session is open, or there is none."""
    if step.kind is CpStepKind.AVAILABLE:
        return CpAnswer(number=entry.available), entry
    if step.kind is CpStepKind.INIT_PERMITS:
        if step.number < 0 or _total(entry) + step.number > PERMITS_MAX:
            return CpAnswer(CpFate.BAD_NUMBER), entry
        if entry.is_initialised:
            return CpAnswer(number=0), entry
        return CpAnswer(number=1), replace(
            entry, is_initialised=True, available=entry.available + step.number
        )
    if not alive:
        return CpAnswer(CpFate.NO_SESSION), entry
    done = dict(entry.past)
    if step.call in done:
        return CpAnswer(number=int(done[step.call])), entry
    match step.kind:
        case CpStepKind.ACQUIRE:
            return _acquire(entry, step, behind)
        case CpStepKind.RELEASE:
            return _release(entry, step)
        case CpStepKind.DRAIN if _has_too_many(entry, step):
            return CpAnswer(CpFate.TOO_MANY), entry
        case CpStepKind.DRAIN:
            drained = entry.available
            return _done(replace(_holding(entry, step, max(0, drained)), available=0), step, drained)
        case _:
            available = entry.available + step.number
            if available < -PERMITS_MAX - 1 or _total(entry) + step.number > PERMITS_MAX:
                return CpAnswer(CpFate.BAD_NUMBER), entry
            return _done(replace(entry, available=available, is_initialised=True), step, 1)


def _total(entry: SemaphoreEntry) -> int:
    return entry.available + sum(entry.held.values())


def _has_too_many(entry: SemaphoreEntry, step: CpStep) -> bool:
    """One more session would hold permits than may (cp/B-1)."""
    is_new = step.session != NO_SESSION and step.session not in entry.held
    return is_new and len(entry.held) >= HOLDERS_MAX


def _acquire(entry: SemaphoreEntry, step: CpStep, behind: bool) -> SemaphoreDecision | Wait:
    permits = step.number
    if permits <= 0:
        return CpAnswer(CpFate.BAD_NUMBER), entry
    if _has_too_many(entry, step):
        return CpAnswer(CpFate.TOO_MANY), entry
    if entry.available < permits or (behind and step.wait_ms):
        return waiting(step) if step.wait_ms else (CpAnswer(number=0), entry)
    taken = replace(_holding(entry, step, permits), available=entry.available - permits)
    return _done(taken, step, 1)


def _release(entry: SemaphoreEntry, step: CpStep) -> SemaphoreDecision:
    permits = step.number
    available = entry.available + permits
    more = permits if step.session == NO_SESSION else 0
    if permits <= 0 or _total(entry) + more > PERMITS_MAX:
        return CpAnswer(CpFate.BAD_NUMBER), entry
    if step.session != NO_SESSION and entry.held.get(step.session, 0) < permits:
        return CpAnswer(CpFate.LACKS_PERMITS), entry
    given = replace(_holding(entry, step, -permits), available=available, is_initialised=True)
    return _done(given, step, 1)


def _holding(entry: SemaphoreEntry, step: CpStep, more: int) -> SemaphoreEntry:
    """With so many more permits in the hands of the session."""
    if step.session == NO_SESSION:
        return entry
    held = {**entry.held, step.session: entry.held.get(step.session, 0) + more}
    return replace(entry, held={session: permits for session, permits in held.items() if permits})


def _done(entry: SemaphoreEntry, step: CpStep, answer: int) -> SemaphoreDecision:
    if step.call:
        entry = replace(entry, past=[*entry.past, (step.call, answer)][-PAST:])
    return CpAnswer(number=int(answer)), entry


def released(entry: SemaphoreEntry, session: int) -> SemaphoreEntry:
    """The session was closed."""
    held = dict(entry.held)
    return replace(entry, available=entry.available + held.pop(session, 0), held=held)
