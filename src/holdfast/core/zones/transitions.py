"""What an event makes of a partition's assignments: pure functions, each what one invoke of the metastore does (J2-J5).

- zones/A-1: Of events each is taken once, in the order of their timestamps: what is not newer than the trigger changes
  nothing; what is, is noted there, also where it changes nothing else.
- zones/A-2: While a group moves, a new target waits (`planned`) until it has arrived; a target that is where the group
  is moving already, or where it is, takes back what waits.
- zones/A-3: What a group reports counts only if it is what the group was asked for: the head of `pending`.
- zones/A-4: `stable` becomes only what a group has reported to be its configuration.
- zones/A-5: An automatic reset gives up nothing that a majority of voters still has, and nothing newer than itself.
- zones/A-25: A reset by an operator also helps where a group that moves has lost the majority of its target. With
  {A, B, C} that narrows to {A, B}, and the files of B damaged, A and C are a majority of the stable voters and cannot
  decide: {A, B} have to agree, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique

import msgspec

from holdfast.core.zones.assignments import Assignments, ChainLink, Node, PartitionKeys


@unique
class Result(StrEnum):
    """What has come of an event."""

    PENDING_KEY_UPDATED = "PENDING_KEY_UPDATED"
    PLANNED_KEY_UPDATED = "PLANNED_KEY_UPDATED"
    PLANNED_KEY_REMOVED_EQUALS_PENDING = "PLANNED_KEY_REMOVED_EQUALS_PENDING"
    PLANNED_KEY_REMOVED_EMPTY_PENDING = "PLANNED_KEY_REMOVED_EMPTY_PENDING"
    OUTDATED_UPDATE_RECEIVED = "OUTDATED_UPDATE_RECEIVED"
    SWITCH_APPEND = "SWITCH_APPEND"
    SWITCH_REDUCE = "SWITCH_REDUCE"
    SCHEDULE_PENDING_REBALANCE = "SCHEDULE_PENDING_REBALANCE"
    FINISH_REBALANCE = "FINISH_REBALANCE"
    QUEUE_POLLED = "QUEUE_POLLED"
    IGNORED_NOT_PENDING = "IGNORED_NOT_PENDING"
    PENDING_WRITTEN = "PENDING_WRITTEN"
    PENDING_AND_STABLE_WRITTEN = "PENDING_AND_STABLE_WRITTEN"
    NOOP = "NOOP"
    ASSIGNMENT_NOT_UPDATED = "ASSIGNMENT_NOT_UPDATED"


Transition = tuple[Result, PartitionKeys]
"""What has come of an event, and what the metastore holds after it."""


class NoVoters(ValueError):
    """These assignments would leave a group without voters."""


@unique
class Consistency(StrEnum):
    """What a zone gives up when most of a partition's voters are gone."""

    STRONG = "strong"
    """Nothing: it waits for them, or for an operator."""
    HIGH_AVAILABILITY = "ha"
    """What only they have: the partition goes on with those that are left."""


def _set(keys: PartitionKeys, **changes: object) -> PartitionKeys:
    return msgspec.structs.replace(keys, **changes)


def _newer(keys: PartitionKeys, ts: int) -> bool:
    """zones/A-1."""
    return keys.trigger is None or keys.trigger < ts


def update_pending(
    keys: PartitionKeys,
    *,
    calculated: Assignments,
    known_stable: Assignments | None,
    event_ts: int,
    assignments_ts: int,
    consistency: Consistency = Consistency.STRONG,
    alive: Collection[Node] = (),
    replaces: bool = False,
) -> Transition:
    """The members, or the zone's settings, are others: the placement is `calculated`. Raises NoVoters.

    Of high availability nobody is waited for that is not `alive`, unless it is in the stable assignments already.
    `replaces`: a target that nobody has locked does not wait for the one before, but takes its place (`adjusting`).
    """
    target = calculated
    if consistency is Consistency.HIGH_AVAILABILITY:
        kept = known_stable.nodes if known_stable is not None else frozenset()
        target = calculated.restricted({*alive, *(kept & calculated.nodes)})
    if not target.peers:
        raise NoVoters("the event would leave the partition without voters")
    target = target.plain(assignments_ts)
    if not _newer(keys, event_ts):
        return Result.OUTDATED_UPDATE_RECEIVED, keys
    keys = _set(keys, trigger=event_ts)
    if not keys.pending:
        if keys.stable is not None:
            moves = not keys.stable.same(target)
        else:
            moves = known_stable is None or not known_stable.same_nodes(target)
        if moves:
            return Result.PENDING_KEY_UPDATED, _set(keys, pending=(target,))
        return Result.PLANNED_KEY_REMOVED_EMPTY_PENDING, _set(keys, planned=None)
    if keys.pending[-1].same(target):
        return Result.PLANNED_KEY_REMOVED_EQUALS_PENDING, _set(keys, planned=None)
    graceful = len(keys.pending) == 1 and not (keys.pending[0].force or keys.pending[0].from_reset)
    if replaces and keys.lock is None and graceful:
        # Whoever was to come back with the one before comes with this one, or is not wanted.
        return Result.PENDING_KEY_UPDATED, _set(keys, pending=(target,), planned=None, switch_append=None)
    return Result.PLANNED_KEY_UPDATED, _set(keys, planned=target)


def configuration_applied(
    keys: PartitionKeys, *, applied: Assignments, calculated: Assignments, term: int, index: int
) -> Transition:
    """A group reports that this is its configuration now; `calculated`: what its placement would be."""
    if not keys.pending or not keys.pending[0].same_nodes(applied):
        return Result.IGNORED_NOT_PENDING, keys
    keys = _set(keys, lock=None)
    head, *rest = keys.pending
    if rest:
        return Result.QUEUE_POLLED, _set(keys, pending=tuple(rest))
    nothing = Assignments()
    reduce, append = keys.switch_reduce or nothing, keys.switch_append or nothing
    stable = applied.plain(head.ts)
    reduced = reduce.restricted(reduce.nodes - applied.nodes)
    added = applied.restricted(applied.nodes - (keys.stable or nothing).nodes)
    left = reduce.restricted(reduce.nodes - reduced.nodes)
    back = append.with_(reduced)
    back = back.restricted((back.nodes - added.nodes) & calculated.nodes)
    keys = _set(
        keys,
        stable=stable,
        switch_reduce=left.plain(left.ts) if left.nodes else None,
        switch_append=back.plain(back.ts) if back.nodes else None,
        chain=_linked(keys.chain, ChainLink(stable, term, index), head),
    )
    if back.nodes:
        following = applied.with_(reduced)
        following = calculated.restricted(following.nodes & calculated.nodes)
        return Result.SWITCH_APPEND, _set(keys, pending=(following.plain(head.ts),))
    following = applied.restricted(applied.nodes - left.nodes)
    if left.nodes and following.peers:
        return Result.SWITCH_REDUCE, _set(keys, pending=(following.plain(head.ts),))
    if keys.planned is not None:
        return Result.SCHEDULE_PENDING_REBALANCE, _set(keys, pending=(keys.planned,), planned=None)
    return Result.FINISH_REBALANCE, _set(keys, pending=())


def _linked(chain: tuple[ChainLink, ...], link: ChainLink, head: Assignments) -> tuple[ChainLink, ...]:
    """A graceful change begins a new chain, a forced one goes on with it, and its second phase replaces what that led
    to. A zone that keeps none goes on without.
    """
    if not chain:
        return chain
    if head.force:
        return (*chain, link)
    return (*chain[:-1], link) if head.from_reset else (link,)


def reduce_changed(
    keys: PartitionKeys,
    *,
    reduce: Assignments,
    calculated: Assignments,
    event_ts: int,
    assignments_ts: int,
) -> Transition:
    """Replicas have lost their data, and are to be out of the group before they come back. Raises NoVoters."""
    if not reduce.nodes or keys.pending or not _newer(keys, event_ts):
        return Result.NOOP, keys
    pending = calculated.restricted(calculated.nodes - reduce.nodes)
    if not pending.peers:
        raise NoVoters("without the replicas that have lost their data the partition has no voters")
    keys = _set(keys, pending=(pending.plain(assignments_ts),), trigger=event_ts)
    if keys.stable is not None:
        return Result.PENDING_WRITTEN, keys
    return Result.PENDING_AND_STABLE_WRITTEN, _set(keys, stable=calculated.plain(assignments_ts))


@unique
class LocalState(StrEnum):
    """What a member says of its replica."""

    HEALTHY = "HEALTHY"
    INITIALIZING = "INITIALIZING"
    INSTALLING_SNAPSHOT = "INSTALLING_SNAPSHOT"
    CATCHING_UP = "CATCHING_UP"
    BROKEN = "BROKEN"
    UNAVAILABLE = "UNAVAILABLE"


class LocalReplica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replica, as its member sees it."""

    state: LocalState
    log_index: int = 0
    learner: bool = False


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """What a reset is decided by."""

    manual: bool
    """Whether an operator wants it."""
    alive: frozenset[Node]
    alive_data_nodes: frozenset[Node]
    """Those that may hold replicas of the zone."""
    replicas_of: Mapping[Node, LocalReplica]
    placement_order: Sequence[Node]
    """Nodes in the order in which the placement would choose them for this partition."""
    quorum: int
    replicas: int
    consensus: int
    """How many of them are voters."""
    pending_newer: bool
    """Whether `pending` is newer than what the reset is for."""
    event_ts: int
    assignments_ts: int


def reset(keys: PartitionKeys, request: ResetRequest) -> Transition:
    """Most voters are gone, and shall not be waited for: go on with one that has data, and from there (zones/A-5)."""
    holding = {
        node
        for node, replica in request.replicas_of.items()
        if node in request.alive and replica.state in (LocalState.HEALTHY, LocalState.CATCHING_UP)
    }
    kept = (keys.stable or Assignments()).restricted(holding)
    enough = len(kept.peers) >= request.quorum
    if request.manual and keys.pending and keys.lock is not None:
        joining, there = keys.pending[0], keys.pending[0].restricted(holding)
        enough = enough and 2 * len(there.peers) > len(joining.peers)
        # One that is being joined may be the only one that has all of it: the old voters may have left the group.
        kept = kept.with_(there)
    if enough:
        return Result.ASSIGNMENT_NOT_UPDATED, keys
    newer = not request.manual and bool(keys.pending) and request.pending_newer
    if newer and all(one.nodes <= request.alive for one in keys.pending):
        return Result.ASSIGNMENT_NOT_UPDATED, keys
    part = _placed(kept, request)
    if not part.peers:
        return Result.ASSIGNMENT_NOT_UPDATED, keys
    first = _most_advanced(part.nodes | kept.nodes, holding, request)
    pending = [Assignments((first,), force=True, ts=request.assignments_ts)]
    if not request.manual:
        alive = (one.restricted(request.alive) for one in keys.pending)
        pending += [one for one in alive if one.nodes]
    if not _newer(keys, request.event_ts):
        return Result.OUTDATED_UPDATE_RECEIVED, keys
    alone = part.nodes == {first}
    planned = msgspec.structs.replace(part.plain(request.assignments_ts), from_reset=True)
    keys = _set(
        keys,
        trigger=request.event_ts,
        pending=tuple(pending),
        planned=None if alone else planned,
        lock=None,
    )
    return Result.PENDING_KEY_UPDATED, keys


def _placed(kept: Assignments, request: ResetRequest) -> Assignments:
    """Who is to hold replicas after it, in the roles that the placement gives them."""
    chosen = set(kept.nodes)
    if request.manual:
        usable = (request.alive_data_nodes & request.alive) - chosen
        spare = [node for node in request.placement_order if node in usable]
        chosen.update(spare[: max(0, request.replicas - len(chosen))])
    order = [node for node in request.placement_order if node in chosen]
    order += sorted(chosen - set(order))
    return Assignments(tuple(order[: request.consensus]), tuple(order[request.consensus :]))


def _most_advanced(nodes: frozenset[Node], holding: Collection[Node], request: ResetRequest) -> Node:
    """Who has the longest log, and of these the first by name; the first by name where nobody has data."""
    candidates = sorted(nodes & set(holding)) or sorted(nodes)
    longest = max(_index(node, request) for node in candidates)
    return next(node for node in candidates if _index(node, request) == longest)


def _index(node: Node, request: ResetRequest) -> int:
    replica = request.replicas_of.get(node)
    return replica.log_index if replica is not None else 0
