"""Other layouts and other orders of steps, to compare the members' own ones with.

Members run the layouts of `PLACEMENTS`. The others are what is often done instead, in its plainest form.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config.schema import Placement
from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.affinity import layout_of
from holdfast.core.placement.layout import Candidate, Layout
from holdfast.core.placement.planner import (
    Clear,
    Plan,
    PlanStep,
    cancel_cycles,
    plan,
    prioritise,
    published,
    put,
)

ARRANGE = "arrange"
MODULO = "modulo"
RENDEZVOUS = "rendezvous"
STRATEGIES = (ARRANGE, MODULO, RENDEZVOUS)
PLACEMENTS: dict[str, Placement] = {ARRANGE: "even", RENDEZVOUS: "rendezvous"}
"""Layouts that are those of a cluster with this placement."""


def layout(strategy: str, partitions: Sequence[int], order: Sequence[Candidate]) -> Layout:
    """The layout of this name for the rows of these partitions. `order`: all members, in an order that stays."""
    if strategy in PLACEMENTS:
        return layout_of(PLACEMENTS[strategy])(partitions)
    names = {each.uuid: number for number, each in enumerate(order)}

    def modulo(_: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int) -> list[ReplicaList]:
        """Partition p is on the members p, p + 1, … of those who are there."""
        here = sorted((each.uuid for each in candidates), key=names.__getitem__)
        filled = min(replicas, len(here))
        empty = (None,) * (replicas - filled)
        return [
            tuple(here[(partition + slot) % len(here)] for slot in range(filled)) + empty
            for partition in partitions
        ]

    return modulo


# -- orders of steps --------------------------------------------------------------------------------------------------


def published_states(current: ReplicaList, target: ReplicaList) -> list[ReplicaList] | None:
    """Every row on the way by the published order of migrations, slots cleared last; None where it leads nowhere."""
    wanted = cancel_cycles(current, target)
    steps = published(0, current, wanted)
    if steps is None:
        return None
    states = [current]
    for step in prioritise(steps):
        try:
            states.append(step.apply_to(states[-1]))
        except ValueError:
            return None
    return states + _cleared(states[-1], wanted)


def plan_carelessly(partition: int, current: ReplicaList, target: ReplicaList) -> Plan:
    """A plan that breaks the promise: backups that the target does not want where they are lose their replicas first,
    and their successors are copied afterwards, by the next plan.
    """
    gone: list[PlanStep] = [
        Clear(slot, owner)
        for slot, owner in enumerate(current)
        if slot and owner is not None and owner not in target[slot : slot + 1]
    ]
    if not gone:
        return plan(partition, current, target)
    wanted = current
    for step in gone:
        wanted = step.apply_to(wanted)
    return Plan(partition, current, wanted, gone, [], [])


def careless_states(current: ReplicaList, target: ReplicaList) -> list[ReplicaList]:
    """Every row on the way when backups that are not wanted go first, and their successors are filled afterwards."""
    first = plan_carelessly(0, current, target)
    states = list(first.states())
    return states + list(plan(0, states[-1], target).states())[1:]


def _cleared(row: ReplicaList, wanted: ReplicaList) -> list[ReplicaList]:
    states = []
    for slot, owner in enumerate(row):
        if owner is not None and wanted[slot] is None:
            row = put(row, slot, None)
            states.append(row)
    return states
