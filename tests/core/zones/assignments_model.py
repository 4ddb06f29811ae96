"""A model of one partition's assignments, written from the design document and not from the code.

It follows the pseudocode of the rebalance document (`metastoreInvoke`, and the switch of the stable assignments), with
the two ways to adjust a running change of peers: the new target *replaces* the old one while no leader has locked it,
or the leader *cancels* the change when something is planned. Assignments are plain sets of (node, role).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.zones.assignments import Assignments, PartitionKeys

Replicas = frozenset[tuple[str, str]]
"""Pairs of a node and its role, `peer` or `learner`."""


def replicas(assignments: Assignments) -> Replicas:
    peers = {(node, "peer") for node in assignments.peers}
    return frozenset(peers | {(node, "learner") for node in assignments.learners})


@dataclass
class PartitionModel:
    """`pending` is one target here: queues come from resets alone, which the model has not."""

    stable: Replicas
    replaces: bool
    pending: Replicas | None = None
    planned: Replicas | None = None
    trigger: int | None = None
    locked: bool = False
    reached: list[Replicas] = field(default_factory=list)
    """Every stable assignment, in order."""

    def on_trigger(self, target: Replicas, revision: int) -> None:
        if self.trigger is not None and not self.trigger < revision:
            return
        self.trigger = revision
        if self.pending is None:
            self.planned = None
            self.pending = target if target != self.stable else None
        elif target == self.pending:
            self.planned = None
        elif self.replaces and not self.locked:
            self.pending, self.planned = target, None
        else:
            self.planned = target

    def on_caught_up(self) -> bool:
        """The leader may join the new voters; from then on the target stays."""
        if self.pending is not None:
            self.locked = True
        return self.locked

    def on_change_failed(self) -> None:
        self.locked = False

    def on_cancel(self) -> None:
        if self.pending is not None and self.planned is not None:
            self.pending, self.planned, self.locked = self.planned, None, False

    def on_applied(self, configuration: Replicas) -> None:
        if self.pending is None or configuration != self.pending:
            return
        self.stable, self.pending, self.planned, self.locked = configuration, self.planned, None, False
        self.reached.append(configuration)

    def agrees(self, keys: PartitionKeys) -> bool:
        """Whether the keys of the metastore say the same."""
        assert keys.stable is not None
        assert len(keys.pending) <= 1
        theirs = (
            replicas(keys.stable),
            replicas(keys.pending[0]) if keys.pending else None,
            replicas(keys.planned) if keys.planned is not None else None,
            keys.trigger,
            keys.lock is not None,
        )
        return theirs == (self.stable, self.pending, self.planned, self.trigger, self.locked)
