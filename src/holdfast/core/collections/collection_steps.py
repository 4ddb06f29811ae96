"""Decision of a step, by the kind of its collection; those on CP groups are decided in `core.cp`.

- collections/C-1: The items of a collection are the entries of one internal map, all in the partition of the
  collection's name. Clients cannot name that map. The entries of a multimap are in the partitions of their keys.
"""

from __future__ import annotations

from holdfast.core.collections.cardinality_steps import decide_cardinality
from holdfast.core.collections.counter_steps import decide_counter
from holdfast.core.collections.id_steps import decide_ids
from holdfast.core.collections.item_order import ItemOrder
from holdfast.core.collections.list_steps import decide_list
from holdfast.core.collections.multimap_steps import decide_multimap
from holdfast.core.collections.ordered_steps import StepRefused
from holdfast.core.collections.queue_steps import decide_queue
from holdfast.core.collections.ring_steps import RingSteps
from holdfast.core.collections.set_steps import LastNumber, decide_set
from holdfast.core.cp.cp_steps import decide_cp_step
from holdfast.core.model.collections import CollectionKind, StepKind, collection_of, decode_step
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.operations import CP_STEPS, Op, Outcome, Request, Status, bytes_of, too_long
from holdfast.core.store.derived_index import index_of
from holdfast.core.store.map_state import MapState


def decide_step(
    state: MapState | None,
    request: Request,
    now_ns: int = 0,
    wall_ms: int = 0,
    *,
    updates: int | None = None,
    behind: bool = False,
) -> Decision | Wait:
    """`state`: of the map with the items; None if nothing was ever stored there. `now_ns`, `wall_ms`: the times of the
    deciding member, monotonic and since 1970. `updates`: how many the map has had, where all replicas decide
    (collections/S-2); None: a primary decides. `behind`: others wait for the same object.
    """
    if request.op in CP_STEPS:
        return decide_cp_step(state, request, behind=behind)
    try:
        return _decide(state, request, now_ns, wall_ms, updates)
    except StepRefused as refused:
        return Decision(refused=str(refused))


def rejection_of(decision: Decision, answer_bytes: int) -> Outcome | None:
    """Why a decided step is not carried out; None: it is. `answer_bytes`: limit of its answer; 0: none."""
    if decision.refused:
        return Outcome(Status.TOO_LARGE, None, decision.refused)
    if answer_bytes and bytes_of(decision.answer) > answer_bytes:
        return Outcome(Status.TOO_LARGE, None, too_long(answer_bytes))
    return None


def is_clear(request: Request) -> bool:
    """Whether this step removes all items."""
    return request.op is Op.TAKE_FROM_COLLECTION and decode_step(request.value).kind is StepKind.CLEAR


def keys_to_clear(state: MapState) -> list[bytes]:
    """All keys; the last one is to be removed first."""
    named = collection_of(state.name)
    if named is None or named[0] not in (CollectionKind.QUEUE, CollectionKind.LIST):
        return list(state.entries)[::-1]
    return list(index_of(state, ItemOrder).walk(backwards=True))


def _decide(
    state: MapState | None, request: Request, now_ns: int, wall_ms: int, updates: int | None
) -> Decision | Wait:
    named = collection_of(request.map)
    assert named is not None, "a step names the map of a collection"
    kind, step = named[0], decode_step(request.value)
    entries = state.entries if state is not None else {}
    if kind is CollectionKind.MULTIMAP:
        return decide_multimap(entries, request, step)
    if kind is CollectionKind.SET:
        if updates is None:
            updates = index_of(state, LastNumber).number if state is not None else 0
        return decide_set(updates, entries, step, request.items)
    if kind is CollectionKind.QUEUE or kind is CollectionKind.LIST:
        order = index_of(state, ItemOrder) if state is not None else ItemOrder({})
        decide = decide_queue if kind is CollectionKind.QUEUE else decide_list
        return decide(order, entries, step, request.items)
    if kind is CollectionKind.RINGBUFFER:
        return RingSteps(state, now_ns).decide(step, request.items)
    if kind is CollectionKind.TOPIC:
        return Decision(published=request.items, unconfirmed=True)
    if kind is CollectionKind.PN_COUNTER:
        return decide_counter(entries, step)
    if kind is CollectionKind.FLAKE_ID_GENERATOR:
        return decide_ids(entries, step, wall_ms)
    if kind is CollectionKind.CARDINALITY_ESTIMATOR:
        return decide_cardinality(entries, step)
    raise ValueError(f"a {kind} has no steps")
