"""The view of a transaction of its own uncommitted writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from holdfast.core.collections.multimap_steps import decide_multimap
from holdfast.core.model.collections import decode_step
from holdfast.core.model.multimap_values import count_values
from holdfast.core.model.operations import COLLECTION_STEPS, Op, Request, Value
from holdfast.core.model.records import Change
from holdfast.core.model.transactions import TransactionalWrite
from holdfast.core.transactions.transaction import TouchedEntry

_STORING = frozenset({Op.PUT, Op.SET, Op.TRY_PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REPLACE_IF_SAME})


def change_in(
    request: Request, present: bytes | None, lifetimes: tuple[int, int]
) -> tuple[Value, TransactionalWrite | None]:
    """In a transaction that sees `present`: the answer, and the write to the entry (None: none). `lifetimes`: time to
    live and maximum idle time in ms of stored values.
    """
    op = request.op
    if op in COLLECTION_STEPS:
        return _in_multimap(request, present)
    if op is Op.GET:
        return present, None
    if op is Op.CONTAINS_KEY:
        return present is not None, None
    if op in _STORING:
        return _store(request, present, lifetimes)
    if op in (Op.REMOVE, Op.DELETE, Op.TRY_REMOVE, Op.REMOVE_IF_SAME):
        gone = TransactionalWrite(request.map, request.key, None)
        if present is None:
            return (None if op is Op.REMOVE else False), None
        if op is Op.REMOVE_IF_SAME and present != request.expected:
            return False, None
        return (present if op is Op.REMOVE else True), gone
    raise ValueError(f"{op.name} is not done in a transaction")


def _store(
    request: Request, present: bytes | None, lifetimes: tuple[int, int]
) -> tuple[Value, TransactionalWrite | None]:
    op = request.op
    stored = TransactionalWrite(request.map, request.key, request.value, *lifetimes, request.key_hash)
    if op is Op.PUT:
        return present, stored
    if op is Op.SET:
        return None, stored
    if op is Op.TRY_PUT:
        return True, stored
    if op is Op.PUT_IF_ABSENT:
        return present, stored if present is None else None
    if op is Op.REPLACE:
        return present, stored if present is not None else None
    same = present == request.expected
    return same, stored if same else None


def _in_multimap(request: Request, present: bytes | None) -> tuple[Value, TransactionalWrite | None]:
    """A step on the values of one key. Raises StepRefused for too many of them."""
    decided = decide_multimap(
        {} if present is None else {request.key: present}, request, decode_step(request.value)
    )
    write = None
    for update in decided.updates:
        value = update.value if update.change is Change.SET else None
        write = TransactionalWrite(request.map, request.key, value, key_hash=request.key_hash)
    return decided.answer, write


def multimap_size_in(found: Value, entries: Iterable[TouchedEntry]) -> int:
    """The number of values of a multimap. `found`: of stored ones; `entries`: those with own writes."""
    assert isinstance(found, int), "a size is a number"
    return found + sum(_count(entry.present) - _count(entry.value) for entry in entries)


def _count(encoded: bytes | None) -> int:
    return count_values(encoded) if encoded is not None else 0


KEYED = _STORING | {Op.GET, Op.CONTAINS_KEY, Op.REMOVE, Op.DELETE, Op.TRY_REMOVE, Op.REMOVE_IF_SAME}


WHOLE_IN = frozenset({Op.SIZE, Op.IS_EMPTY, Op.CONTAINS_VALUE, Op.KEYS, Op.VALUES, Op.ENTRIES})


def whole_in(request: Request, found: Value, writes: Iterable[TransactionalWrite]) -> Value:
    """`found`: the stored keys, or keys and values in turn."""
    parts = cast("list[bytes]", found or [])
    pairs = request.op in (Op.VALUES, Op.ENTRIES, Op.CONTAINS_VALUE)
    entries = dict(zip(parts[::2], parts[1::2], strict=True)) if pairs else dict.fromkeys(parts, b"")
    for write in writes:
        if write.value is None:
            entries.pop(write.key, None)
        else:
            entries[write.key] = write.value
    match request.op:
        case Op.SIZE:
            return len(entries)
        case Op.IS_EMPTY:
            return not entries
        case Op.CONTAINS_VALUE:
            return request.value in entries.values()
        case Op.KEYS:
            return list(entries)
        case Op.VALUES:
            return list(entries.values())
        case _:
            return [part for pair in entries.items() for part in pair]
