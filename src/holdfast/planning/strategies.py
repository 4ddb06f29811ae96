"""Other layouts and orders of steps, for comparison with those of the members.

Members use the layouts of `PLACEMENTS`. The others are common alternatives in their simplest form.
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


def strategy_of(placement: Placement) -> str:
    return next(name for name, one in PLACEMENTS.items() if one == placement)


def layout(strategy: str, partitions: Sequence[int], order: Sequence[Candidate]) -> Layout:
    if strategy in PLACEMENTS:
        return layout_of(PLACEMENTS[strategy])(partitions)
    names = {each.uuid: number for number, each in enumerate(order)}

    def modulo(_: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int) -> list[ReplicaList]:
        """Partition p is on the present members p, p + 1, … (modulo their number)."""
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
    """Every assignment on the way in the published order of migrations, replicas cleared last; None if there
    is no way.
    """
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
    """A plan that breaks the promise: unwanted backups lose their replicas first, and their successors are
    copied later, by the next plan.
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
    """Every assignment on the way if unwanted backups are cleared first and their successors filled later."""
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
