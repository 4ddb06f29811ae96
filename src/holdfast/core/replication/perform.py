"""Carrying out a request on copies that this member serves as primary. Pure semantics, one function an
operation group.
"""

from __future__ import annotations

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import DEFAULT_TTL, EventKind, Op, Request, Value
from holdfast.core.model.records import Change
from holdfast.core.replication.lane import Lane
from holdfast.core.services.hosting import part_name
from holdfast.core.store.partition import PartitionCopy
from holdfast.core.store.replica import MapReplica

NEVER = -1


def perform(lane: Lane, copy: PartitionCopy, request: Request, now_ns: int) -> Value:
    """Do a keyed operation; its records wait in the lane for the caller's `seal`."""
    op, name, key = request.op, request.map, request.key
    if op is Op.GET:
        return lane.read(copy, name, key)
    if op is Op.CONTAINS_KEY:
        return lane.read(copy, name, key) is not None
    if op is Op.ENTRY_VIEW:
        return _entry_view(lane, copy, request, now_ns)
    if op is Op.REMOVE:
        return lane.remove(copy, name, key)
    if op in (Op.DELETE, Op.TRY_REMOVE):
        return lane.remove(copy, name, key) is not None
    if op is Op.GET_ALL:
        return _get_all(lane, copy, request)
    if op is Op.PUT_ALL:
        for index in range(0, len(request.items), 2):
            _store(lane, copy, request, request.items[index], request.items[index + 1])
        return None
    if op in (Op.SET_TTL, Op.EVICT, Op.REMOVE_IF_SAME):
        return _change_present(lane, copy, request, now_ns)
    if op is Op.CALL:
        return lane.call(copy, part_name(name), request.value)
    if op is Op.ASK:
        held = copy.services.get(part_name(name))
        return held.state.share.ask(request.value) if held is not None else None
    return _put(lane, copy, request)


def _store(lane: Lane, copy: PartitionCopy, request: Request, key: bytes, value: bytes) -> bytes | None:
    return lane.set(copy, request.map, key, value, request.ttl_ms, request.max_idle_ms, request.key_hash)


def _put(lane: Lane, copy: PartitionCopy, request: Request) -> Value:
    op, key = request.op, request.key
    if op is Op.PUT:
        return _store(lane, copy, request, key, request.value)
    if op is Op.SET:
        _store(lane, copy, request, key, request.value)
        return None
    if op is Op.TRY_PUT:
        _store(lane, copy, request, key, request.value)
        return True
    present = lane.read(copy, request.map, key)
    if op is Op.PUT_IF_ABSENT:
        if present is None:
            _store(lane, copy, request, key, request.value)
        return present
    if op is Op.REPLACE:
        return _store(lane, copy, request, key, request.value) if present is not None else None
    if op is Op.REPLACE_IF_SAME:
        if present is None or present != request.expected:
            return False
        _store(lane, copy, request, key, request.value)
        return True
    raise ValueError(f"{op.name} is not an operation on one key")


def _change_present(lane: Lane, copy: PartitionCopy, request: Request, now_ns: int) -> bool:
    present = lane.read(copy, request.map, request.key)
    if present is None:
        return False
    held = copy.maps[request.map]
    if request.op is Op.EVICT:
        lane.take_out(copy, held, request.key, EventKind.EVICTED)
        return True
    if request.op is Op.REMOVE_IF_SAME:
        if present != request.expected:
            return False
        lane.take_out(copy, held, request.key, EventKind.REMOVED)
        return True
    ttl_ms = 0 if request.ttl_ms == DEFAULT_TTL else request.ttl_ms
    expiry = held.state.expiries.get(request.key)
    max_idle_ms = expiry.max_idle_ms if expiry is not None else 0
    held.state.schedule(request.key, ttl_ms, max_idle_ms, now_ns)
    lane.log(copy, held, Change.EXPIRY, request.key, ttl_ms=ttl_ms, max_idle_ms=max_idle_ms)
    if lane.listening:
        lane.emit(EventKind.UPDATED, held, request.key, present, present)
    return True


def _entry_view(lane: Lane, copy: PartitionCopy, request: Request, now_ns: int) -> Value:
    """Value, ttl_ms, max_idle_ms, milliseconds until it ends (-1: never), and its version.

    The version is the update counter of the map in this partition, which costs no entry a byte: it has grown when this
    entry has changed, and also when another one there has. Equal ones mean that nothing has changed in between.
    """
    value = lane.read(copy, request.map, request.key)
    if value is None:
        return None
    return _view(copy.maps[request.map], request.key, value, now_ns)


def _view(held: MapReplica, key: bytes, value: bytes, now_ns: int) -> Value:
    expiry = held.state.expiries.get(key)
    if expiry is None:
        return [value, 0, 0, NEVER, held.counter]
    left_ms = max(0, expiry.deadline_ns() - now_ns) // MILLISECOND
    return [value, expiry.ttl_ms, expiry.max_idle_ms, left_ms, held.counter]


def _get_all(lane: Lane, copy: PartitionCopy, request: Request) -> Value:
    answer: list[None | int | bytes] = []
    for key in request.items:
        value = lane.read(copy, request.map, key)
        if value is not None:
            answer += (key, value)
    return answer


# -- from a backup

FROM_BACKUPS = frozenset({Op.GET, Op.CONTAINS_KEY, Op.ENTRY_VIEW, Op.GET_ALL})
"""What a backup can answer."""


def can_read(held: MapReplica | None, request: Request) -> bool:
    """Whether a backup can answer: not for entries that end when nobody uses them, for uses count at the primary."""
    if held is None or not held.state.expiries:
        return True
    keys = request.items if request.op is Op.GET_ALL else [request.key]
    return not any(
        (expiry := held.state.expiries.get(key)) is not None and expiry.max_idle_ms for key in keys
    )


def read_backup(held: MapReplica | None, request: Request, now_ns: int) -> Value:
    """Answer one of `FROM_BACKUPS` without changing anything. What has ended is not shown, though it is still there."""
    op, key = request.op, request.key
    if op is Op.GET_ALL:
        found = ((one, _peek(held, one, now_ns)) for one in request.items)
        return [part for pair in found if pair[1] is not None for part in pair]
    value = _peek(held, key, now_ns)
    if op is Op.CONTAINS_KEY:
        return value is not None
    if op is Op.ENTRY_VIEW and held is not None and value is not None:
        return _view(held, key, value, now_ns)
    return value


def _peek(held: MapReplica | None, key: bytes, now_ns: int) -> bytes | None:
    if held is None or (held.state.expiries and held.state.expired(key, now_ns, touch=False)):
        return None
    return held.state.entries.get(key)


# -- whole partitions


def perform_whole(lane: Lane, copies: list[PartitionCopy], request: Request, now_ns: int) -> Value:
    """Do an operation on every entry of these copies."""
    held = [(copy, copy.maps[request.map]) for copy in copies if request.map in copy.maps]
    if request.op in (Op.CLEAR, Op.EVICT_ALL):
        return _clear(lane, held)
    if request.op in (Op.SIZE, Op.IS_EMPTY) and not any(part.state.expiries for _, part in held):
        count = sum(len(part.state.entries) for _, part in held)
        return count if request.op is Op.SIZE else count == 0
    return _collect(request, [_living(part, now_ns) for _, part in held])


def _living(held: MapReplica, now_ns: int) -> dict[bytes, bytes]:
    if not held.state.expiries:
        return held.state.entries
    return {k: v for k, v in held.state.entries.items() if not held.state.expired(k, now_ns, touch=False)}


def _collect(request: Request, parts: list[dict[bytes, bytes]]) -> Value:
    op = request.op
    if op is Op.SIZE:
        return sum(len(entries) for entries in parts)
    if op is Op.IS_EMPTY:
        return not any(parts)
    if op is Op.CONTAINS_VALUE:
        return any(value == request.value for entries in parts for value in entries.values())
    answer: list[None | int | bytes] = []
    for entries in parts:
        if op is Op.KEYS:
            answer.extend(entries)
        elif op is Op.VALUES:
            answer.extend(entries.values())
        else:
            for pair in entries.items():
                answer.extend(pair)
    return answer


def _clear(lane: Lane, held: list[tuple[PartitionCopy, MapReplica]]) -> int:
    """Empty these, which have no change streams: of those nobody would be told (`routing.clearing`)."""
    count = 0
    for copy, part in held:
        if part.state.entries:
            assert not part.changes
            count += len(part.state.entries)
            part.state.wipe()
            lane.log(copy, part, Change.CLEAR)
    return count


def answers(op: Op, value: Value) -> bool:
    """Whether an operation on whole partitions can answer this: a member may say anything."""
    if value is None:
        return True
    if op in (Op.SIZE, Op.CLEAR, Op.EVICT_ALL):
        return isinstance(value, int) and value >= 0
    if op in (Op.CONTAINS_VALUE, Op.IS_EMPTY):
        return isinstance(value, bool)
    return isinstance(value, list) and all(isinstance(part, bytes) for part in value)


def merge(op: Op, so_far: Value, more: Value) -> Value:
    """Join the answers of two members to an operation on whole partitions."""
    if so_far is None:
        return more
    if op in (Op.SIZE, Op.CLEAR, Op.EVICT_ALL):
        assert isinstance(so_far, int) and isinstance(more, int)
        return so_far + more
    if op is Op.CONTAINS_VALUE:
        return bool(so_far) or bool(more)
    if op is Op.IS_EMPTY:
        return bool(so_far) and bool(more)
    assert isinstance(so_far, list) and isinstance(more, list)
    so_far.extend(more)
    return so_far
