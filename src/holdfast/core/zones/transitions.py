"""Transitions of a partition's assignments: pure functions from an event to the next keys, each one invoke (J2-J5).

- zones/A-1: Each event is applied once, in the order of the timestamps. An event that is not newer than `trigger`
  changes nothing; a newer one raises `trigger`, even if it changes nothing else.
- zones/A-2: While a group moves, a new target waits in `planned`. A target that equals the current or the stable
  assignments removes the waiting one.
- zones/A-3: A configuration that a group reports counts only if it is the head of `pending`.
- zones/A-4: `stable` only ever becomes a configuration that a group has reported.
- zones/A-5: An automatic reset changes nothing while a majority of voters has the data, and gives up no target that is
  newer than the reset.
- zones/A-25: A reset by an operator also helps a moving group that has lost the majority of its target. Example:
  {A, B, C} shrinks to {A, B}, and the files of B are damaged. A and C are a majority of the stable voters and still
  cannot decide, since {A, B} has to agree as well.
- zones/A-29: A reset asks whether the configuration in force has lost a majority, as the replicas report it, and not
  whether there are as many voters as the settings want. Example: {A, B} narrows to one replica, and the files of B are
  damaged. One voter is enough for the settings, but the group still has two, and cannot even agree to leave B.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique

import msgspec

from holdfast.core.raft.configuration import Configuration
from holdfast.core.zones.assignments import Assignments, ChainLink, Node, PartitionKeys


@unique
class Result(StrEnum):
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


class NoVoters(ValueError):
    """These assignments would leave a group without voters."""


@unique
class Consistency(StrEnum):
    """Reaction of a zone to the loss of most voters of a partition."""

    STRONG = "strong"
    """Wait for them, or for an operator."""
    HIGH_AVAILABILITY = "ha"
    """Lose what only the others had."""


def _set(keys: PartitionKeys, **changes: object) -> PartitionKeys:
    return msgspec.structs.replace(keys, **changes)


def _newer(keys: PartitionKeys, ts: int) -> bool:
    """Whether an event is newer than all that were applied (zones/A-1)."""
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
    """Make the placement for changed members or settings the target, or the next one (zones/A-2). `calculated`: that
    placement. Raises NoVoters.

    With high availability the target contains only `alive` nodes and those that are stable already. `replaces`: an
    unlocked target is replaced instead of being completed first (see `adjusting`).
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
        # `switch_append` belonged to the old target: the new one takes those replicas into account.
        return Result.PENDING_KEY_UPDATED, _set(keys, pending=(target,), planned=None, switch_append=None)
    return Result.PLANNED_KEY_UPDATED, _set(keys, planned=target)


def configuration_applied(
    keys: PartitionKeys, *, applied: Assignments, calculated: Assignments, term: int, index: int
) -> Transition:
    """The group has reported a configuration: make it stable, and take the next step (zones/A-3). `calculated`: the
    placement as of now.

    Example of reduce and append: of the stable {A, B, C}, C loses its files. `switch_reduce` is {C}, and the group
    moves to {A, B}. When {A, B} is applied, C is out of the group: `switch_append` becomes {C}, and `pending` {A, B,
    C}. C joins with an empty replica. Had C simply started empty inside the group, it could vote for a leader that
    lacks an entry which C had acknowledged before.
    """
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
    """The chain after a change. A graceful change starts a new chain, a forced one extends it, and the second phase of
    a reset replaces the last link. A zone without high availability keeps no chain.
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
    """Remove replicas that have lost their data, before they may return. Raises NoVoters."""
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
    HEALTHY = "HEALTHY"
    INITIALIZING = "INITIALIZING"
    INSTALLING_SNAPSHOT = "INSTALLING_SNAPSHOT"
    CATCHING_UP = "CATCHING_UP"
    BROKEN = "BROKEN"
    UNAVAILABLE = "UNAVAILABLE"


class LocalReplica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    state: LocalState
    log_index: int = 0
    learner: bool = False
    voters: tuple[Node, ...] = ()
    """Voters of its configuration, sorted; empty: not reported."""
    outgoing: tuple[Node, ...] = ()
    """The old voters of a joint configuration; sorted."""
    token: int = 0


@dataclass(frozen=True, slots=True)
class ResetRequest:
    manual: bool
    alive: frozenset[Node]
    alive_data_nodes: frozenset[Node]
    """Present nodes that may hold replicas of the zone."""
    replicas_of: Mapping[Node, LocalReplica]
    placement_order: Sequence[Node]
    """The nodes, in the order in which the placement prefers them for this partition."""
    quorum: int
    replicas: int
    consensus: int
    """Voters among the replicas."""
    pending_newer: bool
    event_ts: int
    assignments_ts: int


def reset(keys: PartitionKeys, request: ResetRequest) -> Transition:
    """Continue without the lost majority of voters, in two phases (zones/A-5).

    Example: of the voters {A, B, C, D, E}, C, D and E are lost; the log of A ends at 90, that of B at 80. Phase one
    (`pending`, forced) is {A} alone: a replica adopts a forced configuration without a vote, so no second one may
    contradict it. It is A, because entries 81 to 90 may be committed. Phase two (`planned`, `from_reset`) is {A, B}: an
    ordinary change of peers, in which B gets from A what it lacks.
    """
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
        # A replica of the target may be the only complete one, if the old voters have left the group.
        kept = kept.with_(there)
    in_force = _in_force(holding, request)
    if in_force is not None:
        enough = not in_force.lacks_majority(holding)
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


def _in_force(holding: Collection[Node], request: ResetRequest) -> Configuration | None:
    """The configuration in force, as the replicas with data report it (zones/A-29); None: none of them does."""
    reported = [request.replicas_of[node] for node in sorted(holding) if request.replicas_of[node].voters]
    if not reported:
        return None  # Older builds report none.
    newest = max(reported, key=lambda replica: (replica.token, replica.log_index))
    return Configuration(frozenset(newest.voters), frozenset(newest.outgoing))


def _placed(kept: Assignments, request: ResetRequest) -> Assignments:
    """The replicas with data, and spare ones if an operator resets, in the roles that the placement gives."""
    chosen = set(kept.nodes)
    if request.manual:
        usable = (request.alive_data_nodes & request.alive) - chosen
        spare = [node for node in request.placement_order if node in usable]
        chosen.update(spare[: max(0, request.replicas - len(chosen))])
    order = [node for node in request.placement_order if node in chosen]
    order += sorted(chosen - set(order))
    return Assignments(tuple(order[: request.consensus]), tuple(order[request.consensus :]))


def _most_advanced(nodes: frozenset[Node], holding: Collection[Node], request: ResetRequest) -> Node:
    """The node with the longest log. Ties, and nodes without data, are decided by name."""
    candidates = sorted(nodes & set(holding)) or sorted(nodes)
    longest = max(_index(node, request) for node in candidates)
    return next(node for node in candidates if _index(node, request) == longest)


def _index(node: Node, request: ResetRequest) -> int:
    replica = request.replicas_of.get(node)
    return replica.log_index if replica is not None else 0
