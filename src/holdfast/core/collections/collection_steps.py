"""Decision of a step, by the kind of its collection.

- collections/C-1: The items of a collection are the entries of one internal map, all in the partition of the
  collection's name. Clients cannot name that map.
"""

from __future__ import annotations

from holdfast.core.collections.item_order import ItemOrder, index_of
from holdfast.core.collections.list_steps import decide_list
from holdfast.core.collections.ordered_steps import StepRefused
from holdfast.core.collections.queue_steps import decide_queue
from holdfast.core.collections.set_steps import LastNumber, decide_set
from holdfast.core.model.collections import CollectionKind, collection_of, decode_step
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.operations import Request
from holdfast.core.store.map_state import MapState


def decide_step(state: MapState | None, request: Request) -> Decision | Wait:
    """`state`: of the map with the items; None if nothing was ever stored there."""
    try:
        return _decide(state, request)
    except StepRefused as refused:
        return Decision(refused=str(refused))


def keys_to_clear(state: MapState) -> list[bytes]:
    """All keys; the last one is to be removed first."""
    named = collection_of(state.name)
    if named is None or named[0] is CollectionKind.SET:
        return list(state.entries)[::-1]
    return list(index_of(state, ItemOrder).walk(backwards=True))


def _decide(state: MapState | None, request: Request) -> Decision | Wait:
    named = collection_of(request.map)
    assert named is not None, "a step names the map of a collection"
    kind, step = named[0], decode_step(request.value)
    entries = state.entries if state is not None else {}
    if kind is CollectionKind.SET:
        last = index_of(state, LastNumber) if state is not None else LastNumber({})
        return decide_set(last, entries, step, request.items)
    order = index_of(state, ItemOrder) if state is not None else ItemOrder({})
    if kind is CollectionKind.QUEUE:
        return decide_queue(order, entries, step, request.items)
    return decide_list(order, entries, step, request.items)
