"""Steps on fenced locks.

- cp/L-1: A lock has at most one owner, a thread of a session. Each owner gets a fence that is higher than those of all
  owners before; a lock that was destroyed is never used again, so its fences do not begin again.
- cp/L-2: A call is done at most once. One that comes again gets the first answer while its owner holds the lock. After
  that it is cancelled: its client has the lock no more, and would not release what it does not know of. That also
  counts for calls that the partition remembers (`cp_steps.answer_again`).
- cp/L-3: While others wait for the lock, a new request of another thread waits behind them.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.cp.cp_entries import LockEntry
from holdfast.core.model.cp import NO_FENCE, NO_SESSION, CpAnswer, CpFate, CpStep, CpStepKind, waiting
from holdfast.core.model.decisions import Wait

HELD_MAX = 1000
"""So often the owner may hold a lock."""
SPENT = 32
UNLOCKED = 8


def decide_lock(
    entry: LockEntry, step: CpStep, *, alive: bool, behind: bool
) -> tuple[CpAnswer, LockEntry] | Wait:
    """`alive`: the session is open. `behind`: others have waited for the lock since before."""
    if step.kind is CpStepKind.OWNERSHIP:
        owned = bool(entry.uids)
        fence = entry.fence if owned else NO_FENCE
        return CpAnswer(numbers=[fence, len(entry.uids), entry.session, entry.thread]), entry
    if not alive:
        return CpAnswer(CpFate.NO_SESSION), entry
    if step.kind is CpStepKind.UNLOCK:
        return _unlock(entry, step)
    return _lock(entry, step, behind)


def _lock(entry: LockEntry, step: CpStep, behind: bool) -> tuple[CpAnswer, LockEntry] | Wait:
    if step.call in entry.uids and step.owner == (entry.session, entry.thread):
        return CpAnswer(number=entry.fence), entry
    if step.call in entry.spent:
        return CpAnswer(CpFate.CANCELLED), entry
    if not entry.uids:
        if behind and step.wait_ms:
            return waiting(step)
        taken = replace(
            entry, fence=entry.fence + 1, session=step.session, thread=step.thread, uids=[step.call]
        )
        return CpAnswer(number=taken.fence), taken
    if step.owner != (entry.session, entry.thread):
        return waiting(step) if step.wait_ms else (CpAnswer(number=NO_FENCE), entry)
    if len(entry.uids) >= HELD_MAX:
        return CpAnswer(CpFate.TOO_OFTEN), entry
    return CpAnswer(number=entry.fence), replace(entry, uids=[*entry.uids, step.call])


def _unlock(entry: LockEntry, step: CpStep) -> tuple[CpAnswer, LockEntry]:
    done = dict(entry.unlocked)
    if step.call in done:
        return CpAnswer(number=int(done[step.call])), entry
    if not entry.uids or step.owner != (entry.session, entry.thread):
        return CpAnswer(CpFate.NOT_OWNER), entry
    still = len(entry.uids) > 1
    unlocked = [*entry.unlocked, (step.call, still)][-UNLOCKED:]
    left = replace(
        entry,
        uids=entry.uids[:-1],
        spent=[*entry.spent, entry.uids[-1]][-SPENT:],
        unlocked=unlocked,
    )
    return CpAnswer(number=int(still)), left if still else _free(left)


def released(entry: LockEntry) -> LockEntry:
    """Its owner's session was closed."""
    spent = [*entry.spent, *entry.uids][-SPENT:]
    return _free(replace(entry, uids=[], spent=spent))


def _free(entry: LockEntry) -> LockEntry:
    return replace(entry, session=NO_SESSION, thread=0)
