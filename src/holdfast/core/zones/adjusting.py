"""How is the target of a running move adjusted? What leaders of groups, and members, decide by a partition's keys (J5).

Pure: of the keys of one partition, and what a member knows of its replica, they say what is to be done.

- zones/A-12: A target is replaced only while no leader has locked it, and joined only by the leader that has: so nobody
  is in a group whom no assignments name. That is so with both adjustments: a zone's may be altered at any moment.
- zones/A-13: A lock is of a term: a later leader takes it over, an earlier one can neither take it nor take it away.
- zones/A-14: A replica is destroyed only when no assignments name it, its group is not moving, and the configuration
  that it knows is older than the stable ones. While the group moves a leader may count on what it has sent there.
- zones/A-15: Where a head is forced, only who is in it has a replica that runs.
- zones/A-23: When a reset has been carried out, replicas of an older generation are given up, whatever they hold and
  however many they are: whoever of them is named begins anew, and their leader neither moves the group nor tells of it.
- zones/A-16: A leader that was elected brings the group to the head of `pending`, or, if it is there, says so: what the
  leader before it had begun is brought to an end.
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
    """The new voters of the change by `token` have caught up: may they be joined? (zones/A-12, zones/A-13)"""
    if not keys.pending or token != pending_revision:
        return False, keys
    if keys.lock is not None and keys.lock.revision == pending_revision and keys.lock.term > term:
        return False, keys
    return True, msgspec.structs.replace(keys, lock=TargetLock(pending_revision, term))


def change_failed(keys: PartitionKeys, *, term: int) -> PartitionKeys:
    """Of a change nothing has come, says the leader of this term: its target may be replaced again (zones/A-13)."""
    if keys.lock is None or keys.lock.term > term:
        return keys
    return msgspec.structs.replace(keys, lock=None)


def cancellable(keys: PartitionKeys) -> bool:
    """Whether something waits that could take the place of the target."""
    return bool(keys.pending) and keys.planned is not None and not keys.pending[0].force


def cancelled(keys: PartitionKeys, *, token: int, pending_revision: int) -> PartitionKeys:
    """Of the change by `token` nothing will come: what waits is the target now. Late, it changes nothing."""
    if token != pending_revision or not cancellable(keys):
        return keys
    assert keys.planned is not None, "something waits"
    return msgspec.structs.replace(keys, pending=(keys.planned,), planned=None, lock=None, switch_append=None)


def without_doubted(keys: PartitionKeys, configuration: Configuration) -> PartitionKeys:
    """What the leader of the group that has this configuration makes of a target that names replicas in doubt.

    Who is not in the group yet may begin anew, and is in doubt no more. Who is in it would never catch up: the target
    is without it, unless it is locked, and then can do without; afterwards it comes back (`switch_append`).
    """
    if keys.switch_reduce is None or len(keys.pending) != 1 or keys.pending[0].force:
        return keys
    head, reduce = keys.pending[0], keys.switch_reduce
    anew = (reduce.nodes & head.nodes) - configuration.members
    if anew:
        left = reduce.restricted(reduce.nodes - anew)
        return msgspec.structs.replace(keys, switch_reduce=left if left.nodes else None)
    target = head.restricted(head.nodes - reduce.nodes)
    if keys.lock is None and target.peers:
        return msgspec.structs.replace(keys, pending=(target,))
    return keys


# -- what a leader does


@unique
class LeaderDuty(StrEnum):
    """What the leader of a group has to do for its partition's assignments."""

    NOTHING = "nothing"
    TELL_APPLIED = "tell that the group is where it is to be"
    CHANGE_PEERS = "bring the group to the head of pending"
    CANCEL = "give up what is under way, for what waits"


def leader_duty(
    keys: PartitionKeys, configuration: Configuration, *, pending_revision: int, cancels: bool
) -> LeaderDuty:
    """What to do for the group that has this configuration (zones/A-16). To be judged by a linearizable read."""
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
    """A group's configuration as assignments."""
    return Assignments(tuple(sorted(configuration.voters)), tuple(sorted(configuration.learners)))


# -- what a member does


@unique
class ReplicaDuty(StrEnum):
    """What a member has to do about its replica of a partition."""

    NONE = "there is none, and shall be none"
    FOUND = "begin with the first assignments"
    JOIN = "begin with nothing, and be sent everything"
    RUN = "run"
    RESET = "go on without the majority"
    STOP = "stop, and keep what is there"
    DESTROY = "stop, and destroy what is there"


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """What a member has of a partition."""

    running: bool
    configuration: Configuration
    """The one in force, as far as its replica knows; empty: none."""
    generation: int = 0
    """The token of the last reset that it took part in."""


def replica_duty(
    me: Node,
    keys: PartitionKeys,
    copy: LocalCopy | None,
    *,
    stable_revision: int,
    pending_revision: int,
) -> ReplicaDuty:
    """What is to become of the replica here. `copy`: None if there is nothing of it."""
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
    """zones/A-15. Who is not in it keeps what it has until the assignments after it are stable."""
    if me not in head.nodes:
        return ReplicaDuty.NONE if copy is None else ReplicaDuty.STOP
    if copy is None or not copy.running:
        return ReplicaDuty.RESET
    done = max(copy.generation, copy.configuration.token) >= revision
    return ReplicaDuty.RUN if done else ReplicaDuty.RESET
