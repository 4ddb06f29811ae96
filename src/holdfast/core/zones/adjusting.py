"""Decisions about one partition of a zone: may its target change, and what do its replicas do next (J5)?

- zones/A-12: The target (the head of `pending`) may be replaced only while no leader has locked it, and a group enters
  the joint configuration only after its leader has locked the target. So no node is ever in a group that no assignments
  name.
- zones/A-13: A lock has the term of its leader. A later leader takes it over; an earlier one can neither take nor
  release it.
- zones/A-14: A replica is destroyed only when no assignments name it, its group is not moving, and the configuration
  that it knows is older than the stable assignments. While the group moves, its leader may count the replica for what
  it has already sent there.
- zones/A-15: While the head of `pending` is forced, only replicas that it names may run.
- zones/A-23: When a reset is complete, every replica of an older generation is destroyed, whatever it holds. If the
  assignments name it, it joins again, empty. A leader of an older generation neither moves its group nor reports it.
  Example: of {A, B, C} only A is left, and the zone is reset to {A}. Then B and C come back with their files. They are
  a majority of the old configuration, and could elect a leader and accept writes beside A. Terms do not decide between
  the two groups, since both rise. The generation does: only A has the token of the reset.
- zones/A-16: A new leader brings the group to the head of `pending`, or reports that the group is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

import msgspec

from holdfast.core.raft.configuration import Configuration
from holdfast.core.zones.assignments import Assignments, Node, PartitionKeys, TargetLock


def try_catch_up_finish(
    keys: PartitionKeys, *, token: int, pending_revision: int, term: int
) -> tuple[bool, PartitionKeys]:
    """Lock the target for the change with `token`, whose new voters have caught up, unless it was replaced or a later
    leader holds the lock (zones/A-12, zones/A-13). Returns whether they may join.
    """
    if not keys.pending or token != pending_revision:
        return False, keys
    if keys.lock is not None and keys.lock.revision == pending_revision and keys.lock.term > term:
        return False, keys
    return True, msgspec.structs.replace(keys, lock=TargetLock(pending_revision, term))


def change_failed(keys: PartitionKeys, *, term: int) -> PartitionKeys:
    """Release the lock, so that the target may be replaced again (zones/A-13)."""
    if keys.lock is None or keys.lock.term > term:
        return keys
    return msgspec.structs.replace(keys, lock=None)


def cancellable(keys: PartitionKeys) -> bool:
    return bool(keys.pending) and keys.planned is not None and not keys.pending[0].force


def cancelled(keys: PartitionKeys, *, token: int, pending_revision: int) -> PartitionKeys:
    """Make the waiting target the current one. No effect if `token` is outdated."""
    if token != pending_revision or not cancellable(keys):
        return keys
    assert keys.planned is not None, "something waits"
    return msgspec.structs.replace(keys, pending=(keys.planned,), planned=None, lock=None, switch_append=None)


def without_doubted(keys: PartitionKeys, configuration: Configuration) -> PartitionKeys:
    """Adjust a target that names replicas in doubt.

    A doubtful replica outside the group may join empty, so it is no longer in doubt. One inside the group would never
    catch up: the target drops it, unless the target is locked; `switch_append` brings it back afterwards.
    """
    if keys.switch_reduce is None or len(keys.pending) != 1 or keys.pending[0].force:
        return keys
    head, reduce = keys.pending[0], keys.switch_reduce
    rejoining = (reduce.nodes & head.nodes) - configuration.members
    if rejoining:
        left = reduce.restricted(reduce.nodes - rejoining)
        return msgspec.structs.replace(keys, switch_reduce=left if left.nodes else None)
    target = head.restricted(head.nodes - reduce.nodes)
    if keys.lock is None and target.peers:
        return msgspec.structs.replace(keys, pending=(target,))
    return keys


# -- what a leader does


@unique
class LeaderDuty(StrEnum):
    NOTHING = "nothing"
    TELL_APPLIED = "tell that the group is where it is to be"
    CHANGE_PEERS = "bring the group to the head of pending"
    CANCEL = "give up what is under way, for what waits"


def leader_duty(
    keys: PartitionKeys, configuration: Configuration, *, pending_revision: int, cancels: bool
) -> LeaderDuty:
    """The next step of the group's leader (zones/A-16). The keys must come from a linearizable read."""
    if not keys.pending:
        return LeaderDuty.NOTHING
    head = keys.pending[0]
    if not configuration.joint and head.same_nodes(assignments_of(configuration)):
        return LeaderDuty.TELL_APPLIED
    if head.force:
        return LeaderDuty.NOTHING
    if cancels and cancellable(keys) and configuration.token < pending_revision:
        return LeaderDuty.CANCEL
    return LeaderDuty.CHANGE_PEERS


def assignments_of(configuration: Configuration) -> Assignments:
    return Assignments(tuple(sorted(configuration.voters)), tuple(sorted(configuration.learners)))


# -- what a member does


@unique
class ReplicaDuty(StrEnum):
    NONE = "there is none, and shall be none"
    FOUND = "begin with the first assignments"
    JOIN = "begin with nothing, and be sent everything"
    RUN = "run"
    RESET = "go on without the majority"
    STOP = "stop, and keep what is there"
    DESTROY = "stop, and destroy what is there"


@dataclass(frozen=True, slots=True)
class LocalCopy:
    running: bool
    configuration: Configuration
    """The newest one that the replica knows; empty: none."""
    generation: int = 0
    """Token of its last reset."""


def replica_duty(
    me: Node,
    keys: PartitionKeys,
    copy: LocalCopy | None,
    *,
    stable_revision: int,
    pending_revision: int,
) -> ReplicaDuty:
    """The next step of this member's replica. `copy`: None if it has no replica."""
    stable, head = keys.stable or Assignments(), keys.pending[0] if keys.pending else None
    if head is not None and head.force:
        return _under_force(me, head, copy, pending_revision)
    if copy is not None and copy.generation < keys.generation and copy.configuration.members:
        return ReplicaDuty.DESTROY  # zones/A-23
    if me in stable.nodes or (head is not None and me in head.nodes):
        if copy is not None:
            return ReplicaDuty.RUN
        first = not stable.ts and not keys.generation and me in stable.nodes
        return ReplicaDuty.FOUND if first else ReplicaDuty.JOIN
    if copy is None:
        return ReplicaDuty.NONE
    if head is not None:
        return ReplicaDuty.RUN if copy.running else ReplicaDuty.STOP
    dropped = keys.stable is None
    older = me not in copy.configuration.members or copy.configuration.token < stable_revision
    return ReplicaDuty.DESTROY if dropped or older else ReplicaDuty.RUN  # zones/A-14


def _under_force(me: Node, head: Assignments, copy: LocalCopy | None, revision: int) -> ReplicaDuty:
    """The next step while the head is forced (zones/A-15). A replica that it does not name keeps its data until later
    assignments are stable.
    """
    if me not in head.nodes:
        return ReplicaDuty.NONE if copy is None else ReplicaDuty.STOP
    if copy is None or not copy.running:
        return ReplicaDuty.RESET
    done = max(copy.generation, copy.configuration.token) >= revision
    return ReplicaDuty.RUN if done else ReplicaDuty.RESET
