"""Other layouts and other orders of steps, to compare the members' own ones with.

They are what is often done instead, in its plainest form: no member runs them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from holdfast.core.model.migration_step import ReplicaList
from holdfast.core.placement.dryrun import Layout
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.placement.planner import (
    cancel_cycles,
    plan,
    prioritise,
    published,
    put,
)
from holdfast.sim.ablations.deciding import plan_carelessly
from holdfast.spark.foresight.amounts import mixed

ARRANGE = "arrange"
MODULO = "modulo"
RENDEZVOUS = "rendezvous"
STRATEGIES = (ARRANGE, MODULO, RENDEZVOUS)


def layout(strategy: str, partitions: Sequence[int], order: Sequence[Candidate]) -> Layout:
    """The layout of this name for the rows of these partitions. `order`: all members, in an order that stays."""
    if strategy == ARRANGE:
        return arrange
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

    def rendezvous(
        _: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
    ) -> list[ReplicaList]:
        """A partition is on those whose weights, drawn from partition and member, are the highest."""
        groups = {each.uuid: each.group or each.uuid for each in candidates}
        here = [each.uuid for each in candidates]
        salts = np.array([mixed(mixed(names[uuid]) + 1) for uuid in here], dtype=np.uint64)
        return [_heaviest(_weights(partition, salts), here, groups, replicas) for partition in partitions]

    return modulo if strategy == MODULO else rendezvous


Weights = npt.NDArray[np.uint64]


def _weights(partition: int, salts: Weights) -> Weights:
    """What `amounts.mixed` makes of partition and salt, for all members at once."""
    number = (salts ^ np.uint64(mixed(partition))) + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ number >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ number >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return number ^ number >> np.uint64(31)


def _heaviest(weights: Weights, here: Sequence[str], groups: dict[str, str], replicas: int) -> ReplicaList:
    """The members with the highest weights, of different groups."""
    # Mostly the first few are of groups enough; only else all are sorted.
    for some in (min(4 * replicas, len(here)), len(here)):
        best = np.argpartition(weights, len(here) - some)[len(here) - some :]
        row: list[str] = []
        used: set[str] = set()
        for number in best[np.argsort(weights[best])[::-1]].tolist():
            uuid = here[number]
            if groups[uuid] not in used:
                row.append(uuid)
                used.add(groups[uuid])
                if len(row) == replicas:
                    return tuple(row)
    return (*row, *[None] * (replicas - len(row)))


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
