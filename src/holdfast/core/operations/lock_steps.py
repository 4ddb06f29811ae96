"""Steps of map locks: their answers and updates, and the requests that a lock holds up. The state is not changed.

- operations/L-1: An entry has one lock, of a client's thread or of a transaction. Others wait for it, in the order of
  arrival.
- operations/L-2: A thread that has the lock may take it again; it is free when that thread has released it as often.
- operations/L-3: A repeated request changes the lock once, as long as no other request has changed it since.
- operations/L-4: While an entry is locked, only requests of the owner change it. Others wait, and may read.
"""

from __future__ import annotations

from holdfast.core.model.collections import CollectionStep, StepKind, decode_step
from holdfast.core.model.decisions import Decision, Update, Wait
from holdfast.core.model.map_locks import MapLock, encode_lock, guarded_map
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.records import Change
from holdfast.core.model.transactions import lock_key
from holdfast.core.store.key_locks import KeyLocks

LOCKED_BY_CLIENT = "a client has locked the entry and has not unlocked it in time"
TIMES_MAX = 2**31 - 1


def decide_lock_step(locks: KeyLocks, request: Request, now_ns: int) -> Decision | Wait:
    name, key, step = guarded_map(request.map), request.key, decode_step(request.value)
    lock = locks.map_lock(name, key, now_ns)
    if step.kind is StepKind.LOCK:
        if lock_key(name, key) in locks.held:
            return _held_up(step)
        return _take(lock, step, request)
    if step.kind is StepKind.UNLOCK:
        return _release(lock, step, request, locks.lease_left_ms(name, key, now_ns))
    assert step.kind is StepKind.FORCE_UNLOCK, "there are no other steps of a lock"
    return Decision(lock is not None, (_removal(key),) if lock is not None else ())


def _held_up(step: CollectionStep) -> Decision | Wait:
    return Wait(step.wait_ms, False) if step.wait_ms else Decision(False)


def _take(lock: MapLock | None, step: CollectionStep, request: Request) -> Decision | Wait:
    """`ttl_ms` of the request is the lease; 0: no end."""
    if lock is not None and lock.owner != request.holder:
        return _held_up(step)
    if lock is not None and step.index and lock.reference == step.index:
        return Decision(True)
    times = min(lock.times + 1, TIMES_MAX) if lock is not None else 1
    return Decision(True, (_storing(request, MapLock(request.holder, times, step.index), request.ttl_ms),))


def _release(lock: MapLock | None, step: CollectionStep, request: Request, left_ms: int) -> Decision:
    if lock is None or lock.owner != request.holder:
        return Decision(False)
    if step.index and lock.reference == step.index:
        return Decision(True)
    if lock.times == 1:
        return Decision(True, (_removal(request.key),))
    return Decision(True, (_storing(request, MapLock(lock.owner, lock.times - 1, step.index), left_ms),))


def _storing(request: Request, lock: MapLock, ttl_ms: int) -> Update:
    return Update(Change.SET, request.key, encode_lock(lock), ttl_ms, 0, request.key_hash)


def _removal(key: bytes) -> Update:
    return Update(Change.REMOVE, key, b"", 0, 0, 0)


def wait_for_map_lock(locks: KeyLocks, request: Request, now_ns: int, wait_ms: int) -> Decision | Wait | None:
    """None: no lock of another client's thread is in the way of this change."""
    name = request.map
    if not locks.guards_entries(name):
        return None
    for key in request.items[::2] if request.op is Op.PUT_ALL else [request.key]:
        lock = locks.map_lock(name, key, now_ns)
        if lock is None or lock.is_of(request.holder):
            continue
        if request.op in (Op.TRY_PUT, Op.TRY_REMOVE):
            return Wait(request.wait_ms, False) if request.wait_ms else Decision(answer=False)
        return Wait(wait_ms, refused=LOCKED_BY_CLIENT, key=(name, key))
    return None
