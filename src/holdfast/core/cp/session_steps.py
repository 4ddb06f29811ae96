"""Steps on sessions of clients.

- cp/S-1: A session that was closed is never open again, and its number is not given to another one.
- cp/S-2: When a session is closed, all that it holds is released. If that is more than one step may do, the session is
  closed at once, and steps that close it again release the rest.
- cp/S-4: A session belongs to the client that created it. To all others it is as if it were closed: session numbers can
  be guessed, and the right to use one object of a group is not one to release the locks of others.
- cp/B-1: A group has at most `SESSIONS_MAX` sessions, a semaphore `HOLDERS_MAX` holders, and a session holds at most
  `HELD_OBJECTS_MAX` objects. So each step takes at most a few ms.
- cp/S-3: No replica looks at a clock: sessions are closed by steps, which the leader proposes (`session_expiry`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.cp import fenced_lock_steps, semaphore_steps
from holdfast.core.cp.cp_entries import (
    CpEntry,
    LockEntry,
    NumbersEntry,
    SemaphoreEntry,
    SessionEntry,
    decode_entry,
    encode_entry,
)
from holdfast.core.cp.holdings_index import HoldingsIndex
from holdfast.core.model.cp import (
    NUMBERS_KEY,
    SESSIONS_MAX,
    CpAnswer,
    CpFate,
    CpKind,
    CpStep,
    CpStepKind,
    session_key,
)
from holdfast.core.model.decisions import Update
from holdfast.core.model.records import Change

RELEASED_MAX = 100
"""Objects that one step releases,"""
RELEASED_BYTES = 2048
"""if each has less than this. A larger one, with many holders, counts several times, so a step takes a few ms."""

Changed = tuple[CpAnswer, Sequence[Update]]


def is_open(entries: Mapping[bytes, bytes], step: CpStep) -> bool:
    """Whether the client of the step has this session."""
    stored = entries.get(session_key(step.session))
    if stored is None:
        return False
    entry = decode_entry(SessionEntry, stored)
    return not entry.closing and _may_use(entry, step)


def _may_use(entry: SessionEntry, step: CpStep) -> bool:
    """See cp/S-4."""
    return not step.client or step.client == entry.owner


def storing(key: bytes, entry: CpEntry) -> Update:
    return Update(Change.SET, key, encode_entry(entry), 0, 0, 0)


def decide_session(entries: Mapping[bytes, bytes], holdings: HoldingsIndex, step: CpStep) -> Changed:
    numbers = decode_entry(NumbersEntry, entries.get(NUMBERS_KEY))
    match step.kind:
        case CpStepKind.HEARTBEAT:
            fate = CpFate.DONE if is_open(entries, step) else CpFate.NO_SESSION
            return CpAnswer(fate), ()
        case CpStepKind.CREATE_SESSION:
            if len(holdings.sessions) >= SESSIONS_MAX:
                return CpAnswer(CpFate.TOO_MANY), ()
            session = numbers.session + 1
            entry = SessionEntry(step.number, step.value or b"", owner=step.client)
            numbers = NumbersEntry(session, numbers.thread)
            return CpAnswer(number=session), (
                storing(NUMBERS_KEY, numbers),
                storing(session_key(session), entry),
            )
        case CpStepKind.NEW_THREAD:
            thread = numbers.thread + 1
            return CpAnswer(number=thread), (storing(NUMBERS_KEY, NumbersEntry(numbers.session, thread)),)
        case _:
            return _close(entries, holdings, step)


def _close(entries: Mapping[bytes, bytes], holdings: HoldingsIndex, step: CpStep) -> Changed:
    changed: dict[bytes, CpEntry] = {}
    updates: list[Update] = []
    count, room = 0, RELEASED_MAX
    for session in dict.fromkeys(step.sessions):
        stored = entries.get(session_key(session))
        if stored is None:
            continue
        entry = decode_entry(SessionEntry, stored)
        if not _may_use(entry, step):
            continue
        count += not entry.closing
        keys = holdings.first(session, room + 1)
        left = holdings.count(session)
        for key in keys:
            cost = 1 + len(entries[key]) // RELEASED_BYTES
            if cost > room and changed:
                break
            room -= cost
            left -= 1
            changed[key] = _released(entries, changed, key, session)
        if not left:
            updates.append(Update(Change.REMOVE, session_key(session)))
        elif not entry.closing:
            closing = replace(entry, closing=True)
            updates.append(storing(session_key(session), closing))
    return CpAnswer(number=count), [*(storing(*one) for one in changed.items()), *updates]


def _released(
    entries: Mapping[bytes, bytes], changed: Mapping[bytes, CpEntry], key: bytes, session: int
) -> CpEntry:
    entry = changed.get(key)
    if key.startswith(CpKind.LOCK.key()):
        return fenced_lock_steps.released(decode_entry(LockEntry, entries[key]))
    if not isinstance(entry, SemaphoreEntry):
        entry = decode_entry(SemaphoreEntry, entries[key])
    return semaphore_steps.released(entry, session)
